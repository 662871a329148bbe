"""Records that a deserializer does not accept: raised, skipped by a callback, or dead-lettered."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harness.wire import Plain, Wire, batch
from headwater import (
    ConfigError,
    ConsumedRecord,
    Consumer,
    DeadLetter,
    DeserializationFailed,
    Producer,
    RecordTooLarge,
    TopicPartition,
    blocking,
)
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story

READ: Any = {"auto_offset_reset": "earliest", "value_deserializer": json.loads}


@pytest.fixture
def mixed_topic(wire: Wire, topic: str) -> str:
    """Offsets 1, 2 and 5 cannot be read; 5 is the last."""
    wire.create_topic(topic)
    bad = Plain(b"{1", b"key", (("trace", b"7"), ("none", None)), 123)
    wire.produce(topic, batch([b"0", bad, b"{2", b"3"]))
    wire.produce(topic, batch([b"4", b"{5"]))
    return topic


async def looped(consumer: Consumer, last: int) -> list[int]:
    found = []
    async for record in consumer:
        found.append(record.offset)
        if record.offset == last:
            break
    return found


async def polled(consumer: Consumer, last: int) -> list[int]:
    found: list[int] = []
    while last not in found:
        found += [record.offset for record in await consumer.poll(10_000)]
    return found


@pytest.mark.parametrize("read", [looped, polled])
@story
async def test_a_callback_hears_of_bad_records_and_they_are_skipped(
    shared_broker: EmbeddedBroker, mixed_topic: str, read: Any
) -> None:
    bad: list[tuple[int, bytes | None]] = []

    def on_bad_record(error: DeserializationFailed) -> None:
        assert error.record is not None
        bad.append((error.offset, error.record.value))

    async with Consumer(
        shared_broker.bootstrap, topics=[mixed_topic], on_bad_record=on_bad_record, **READ
    ) as consumer:
        assert await read(consumer, 4) == [0, 3, 4]
        assert bad == [(1, b"{1"), (2, b"{2")]
        assert await consumer.poll(300) == []
        assert bad == [(1, b"{1"), (2, b"{2"), (5, b"{5")]
        assert await consumer.position((mixed_topic, 0)) == 6


@story
async def test_a_skipped_record_is_committed_with_those_before_it(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    settings = READ | {"group": mixed_topic, "topics": [mixed_topic]}
    async with Consumer(
        shared_broker.bootstrap, on_bad_record=lambda error: None, **settings
    ) as consumer:
        assert await polled(consumer, 4) == [0, 3, 4]
        while await consumer.position((mixed_topic, 0)) < 6:
            await consumer.poll(100)
    async with Consumer(shared_broker.bootstrap, **settings) as consumer:
        tp = TopicPartition(mixed_topic, 0)
        stored = (await consumer.committed(tp))[tp]
        assert stored is not None
        assert stored.offset == 6


@story
async def test_the_position_moves_on_when_the_callback_has_returned(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    positions: list[int] = []

    async def on_bad_record(error: DeserializationFailed) -> None:
        positions.append(await consumer.position((mixed_topic, 0)))

    async with Consumer(
        shared_broker.bootstrap, topics=[mixed_topic], on_bad_record=on_bad_record, **READ
    ) as consumer:
        assert await looped(consumer, 3) == [0, 3]
    assert positions == [1, 2]


@story
async def test_a_callback_that_raises_leaves_the_consumer_at_the_record(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    def on_bad_record(error: DeserializationFailed) -> None:
        raise LookupError(error.offset)

    async with Consumer(
        shared_broker.bootstrap, topics=[mixed_topic], on_bad_record=on_bad_record, **READ
    ) as consumer:
        assert await looped(consumer, 0) == [0]
        for _ in range(2):
            with pytest.raises(LookupError, match="1"):
                await consumer.poll(10_000)
        assert await consumer.position((mixed_topic, 0)) == 1


@story
async def test_a_callback_may_seek_elsewhere(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    async with Consumer(
        shared_broker.bootstrap,
        topics=[mixed_topic],
        on_bad_record=lambda error: consumer.seek((error.topic, error.partition), 4),
        **READ,
    ) as consumer:
        assert await looped(consumer, 4) == [0, 4]


@story
async def test_a_callback_may_close_the_consumer(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    async def on_bad_record(error: DeserializationFailed) -> None:
        await consumer.close()

    async with Consumer(
        shared_broker.bootstrap,
        group=mixed_topic,
        topics=[mixed_topic],
        on_bad_record=on_bad_record,
        **READ,
    ) as consumer:
        assert [record.offset async for record in consumer] == [0]
        assert consumer.assignment() == set()


# Dead letters


@asynccontextmanager
async def letters(broker: EmbeddedBroker, topic: str) -> AsyncIterator[list[ConsumedRecord]]:
    """Yields the records of a dead-letter topic, which are filled in at the end of the block."""
    found: list[ConsumedRecord] = []
    yield found
    async with Consumer(broker.bootstrap, topics=[topic], auto_offset_reset="earliest") as consumer:
        (tp,) = await consumer.partitions_for(topic)
        (end,) = (await consumer.end_offsets(tp)).values()
        while len(found) < end:
            found += await consumer.poll(10_000)


@story
async def test_dead_letters_keep_the_record_and_say_where_it_came_from(
    shared_broker: EmbeddedBroker, wire: Wire, mixed_topic: str
) -> None:
    dead = f"{mixed_topic}-dead"
    wire.create_topic(dead)
    async with (
        letters(shared_broker, dead) as found,
        Producer(shared_broker.bootstrap) as producer,
        Consumer(
            shared_broker.bootstrap,
            topics=[mixed_topic],
            on_bad_record=DeadLetter(dead, producer),
            **READ,
        ) as consumer,
    ):
        assert await looped(consumer, 4) == [0, 3, 4]
    letter, other = found
    assert (letter.key, letter.value, letter.timestamp) == (b"key", b"{1", 123)
    assert letter.headers[:2] == (("trace", b"7"), ("none", None))
    headers = dict(letter.headers[2:])
    text = headers.pop("__headwater.errors.message")
    assert text is not None
    assert b"property name" in text
    assert headers == {
        "__headwater.errors.topic": mixed_topic.encode(),
        "__headwater.errors.partition": b"0",
        "__headwater.errors.offset": b"1",
        "__headwater.errors.part": b"value",
        "__headwater.errors.exception": b"json.decoder.JSONDecodeError",
    }
    assert (other.key, other.value) == (None, b"{2")


@story
async def test_a_dead_letter_that_cannot_be_sent_stops_the_consumer_at_the_record(
    shared_broker: EmbeddedBroker, wire: Wire, mixed_topic: str
) -> None:
    dead = f"{mixed_topic}-dead"
    wire.create_topic(dead)
    async with (
        Producer(shared_broker.bootstrap, max_request_size=100) as producer,
        Consumer(
            shared_broker.bootstrap,
            topics=[mixed_topic],
            on_bad_record=DeadLetter(dead, producer),
            **READ,
        ) as consumer,
    ):
        assert await looped(consumer, 0) == [0]
        for _ in range(2):
            with pytest.raises(RecordTooLarge):
                await consumer.poll(10_000)
        assert await consumer.position((mixed_topic, 0)) == 1


@story
async def test_a_dead_letter_that_cannot_be_read_is_raised(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    async with (
        Producer(shared_broker.bootstrap) as producer,
        Consumer(
            shared_broker.bootstrap,
            topics=[mixed_topic],
            on_bad_record=DeadLetter(mixed_topic, producer),
            **READ,
        ) as consumer,
    ):
        with pytest.raises(DeserializationFailed):
            await looped(consumer, 4)


def test_a_blocking_consumer_sends_dead_letters_by_a_blocking_producer(
    shared_broker: EmbeddedBroker, wire: Wire, mixed_topic: str
) -> None:
    dead = f"{mixed_topic}-dead"
    wire.create_topic(dead)
    with (
        blocking.Producer(shared_broker.bootstrap) as producer,
        blocking.Consumer(
            shared_broker.bootstrap,
            topics=[mixed_topic],
            on_bad_record=DeadLetter(dead, producer),
            **READ,
        ) as consumer,
    ):
        found = []
        for record in consumer:
            found.append(record.offset)
            if record.offset == 4:
                break
        assert found == [0, 3, 4]
    with blocking.Consumer(
        shared_broker.bootstrap, topics=[dead], auto_offset_reset="earliest"
    ) as consumer:
        dead_letters = iter(consumer)
        assert [next(dead_letters).value, next(dead_letters).value] == [b"{1", b"{2"]


def test_a_callback_of_a_blocking_consumer_may_call_it(
    shared_broker: EmbeddedBroker, mixed_topic: str
) -> None:
    positions: list[int] = []

    def on_bad_record(error: DeserializationFailed) -> None:
        positions.append(consumer.position((error.topic, error.partition)))

    with blocking.Consumer(
        shared_broker.bootstrap, topics=[mixed_topic], on_bad_record=on_bad_record, **READ
    ) as consumer:
        assert [record.offset for record in consumer.poll(10_000)] == [0]
        assert [record.offset for record in consumer.poll(10_000, records_max=1)] == [3]
    assert positions == [1, 2]


def test_what_cannot_take_bad_records_is_refused() -> None:
    address = "127.0.0.1:1"
    wrong: Any
    for wrong in ("skip", None, 7):
        with pytest.raises(ConfigError, match=r"on_bad_record=.*DeadLetter"):
            Consumer(address, on_bad_record=wrong)
    with pytest.raises(ConfigError, match="value_serializer"):
        DeadLetter("dead", Producer(address, value_serializer=str.encode))
    with pytest.raises(ConfigError, match="key_serializer"):
        DeadLetter("dead", blocking.Producer(address, key_serializer=str.encode))
    with pytest.raises(ConfigError, match="acks=0"):
        DeadLetter("dead", Producer(address, acks=0))
    with pytest.raises(ConfigError, match=r"need a headwater\.Producer"):
        Consumer(address, on_bad_record=DeadLetter("dead", blocking.Producer(address)))
    with pytest.raises(ConfigError, match=r"need a headwater\.blocking\.Producer"):
        blocking.Consumer(address, on_bad_record=DeadLetter("dead", Producer(address)))
