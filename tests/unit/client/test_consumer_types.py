"""The types of a consumer and its records, as type checkers see them: mypy checks the claims."""

from __future__ import annotations

import json
from typing import Any, assert_type

from headwater import (
    ConsumedRecord,
    Consumer,
    DeserializationFailed,
    RebalanceListener,
    TopicPartition,
    blocking,
)

ADDRESS = "127.0.0.1:1"


def length(data: bytes) -> int:
    return len(data)


def test_keys_and_values_have_the_types_that_deserializers_return() -> None:
    consumer = Consumer(ADDRESS, key_deserializer=bytes.decode, value_deserializer=length)
    assert_type(consumer, Consumer[str, int])
    waiting = blocking.Consumer(ADDRESS, key_deserializer=bytes.decode, value_deserializer=length)
    assert_type(waiting, blocking.Consumer[str, int])

    async def read() -> None:
        async with consumer as started:
            assert_type(started, Consumer[str, int])
            assert_type(await started.poll(), list[ConsumedRecord[str, int]])
            async for record in started:
                assert_type(record, ConsumedRecord[str, int])
                assert_type(record.key, str)
                assert_type(record.value, int)

    def read_here() -> None:
        with waiting as started:
            assert_type(started.poll(), list[ConsumedRecord[str, int]])
            for record in started:
                assert_type(record, ConsumedRecord[str, int])

    assert callable(read)
    assert callable(read_here)


def test_without_deserializers_nothing_has_to_be_said_about_types() -> None:
    plain: Consumer = Consumer(ADDRESS)
    assert_type(plain, Consumer[Any, Any])
    assert_type(Consumer(ADDRESS, value_deserializer=json.loads), Consumer[Any, Any])


def test_the_record_of_an_error_has_raw_bytes_and_may_be_a_tombstone() -> None:
    tombstone = ConsumedRecord[bytes | None, bytes | None]("orders", 0, 7, key=b"\xff", value=None)
    error = DeserializationFailed("bad", part="key", record=tombstone)
    assert error.record is not None
    assert_type(error.record.key, bytes | None)
    assert_type(error.record.value, bytes | None)
    assert error.record.value is None


def test_a_record_type_can_be_written_where_annotations_are_evaluated() -> None:
    assert ConsumedRecord[str, int] is not None
    assert Consumer[str, int] is not None


def test_a_listener_may_have_plain_or_asynchronous_methods() -> None:
    class Listener(RebalanceListener):
        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            return

        async def on_revoked(self, partitions: list[TopicPartition]) -> None:
            return

    Consumer(ADDRESS, listener=Listener())
