"""Arguments of a consumer's calls: validated, and quoted in errors."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from headwater import Consumer, blocking
from headwater.client.consumer import OffsetAndMetadata, arguments
from headwater.client.errors import ClientError, ConfigError
from headwater.model import TopicPartition

TP = TopicPartition("orders", 3)


class Number:
    """A whole number that is not an `int`, as numpy has them."""

    def __init__(self, value: int) -> None:
        self._value = value

    def __index__(self) -> int:
        return self._value


def test_partitions_are_pairs_of_a_topic_and_a_number() -> None:
    assert arguments.partition(("orders", 3)) == TP
    assert arguments.partition(TP) is TP
    assert arguments.partition(("orders", Number(3))) == TP
    assert arguments.partitions({TP}) == [TP]
    assert arguments.partitions((TP, ("orders", 4))) == [TP, TopicPartition("orders", 4)]


@pytest.mark.parametrize(
    "value",
    ["orders", ("orders",), ("orders", 1, 2), ("orders", "1"), ("orders", -1), (1, 2), None],
)
def test_an_invalid_partition_is_quoted_in_the_error(value: Any) -> None:
    with pytest.raises(ClientError, match=r"orders|\(1, 2\)|None"):
        arguments.partition(value)


@pytest.mark.parametrize("value", ["orders", ("orders", 1), None, 5])
def test_a_single_partition_is_refused_where_a_list_is_expected(value: Any) -> None:
    with pytest.raises(ClientError, match=rf"{re.escape(repr(value))}: expected a list"):
        arguments.partitions(value)


@pytest.mark.parametrize("value", [1.5, "1", True, None, -1, 2**63])
def test_an_offset_is_an_integer_that_a_log_can_have(value: Any) -> None:
    with pytest.raises(ClientError, match=re.escape(f"seek to {value!r}: expected an integer")):
        arguments.integer("seek to ", value)
    with pytest.raises(ClientError, match=re.escape(f"orders-3: offset {value!r}")):
        arguments.offsets({TP: value})


def test_offsets_may_have_an_epoch_and_a_note() -> None:
    wanted = {TP: Number(5), ("a", 0): (6, 2, "note"), ("b", 0): OffsetAndMetadata(7)}
    assert arguments.offsets(wanted) == {
        TP: OffsetAndMetadata(5),
        ("a", 0): OffsetAndMetadata(6, 2, "note"),
        ("b", 0): OffsetAndMetadata(7),
    }
    with pytest.raises(ClientError, match="metadata 7: expected a string"):
        arguments.offsets({TP: OffsetAndMetadata(5, -1, 7)})  # type: ignore[arg-type]
    with pytest.raises(ClientError, match=r"commit of \[1\]"):
        arguments.offsets([1])


@pytest.mark.parametrize("value", ["1", None, True])
def test_a_timeout_is_a_number(value: Any) -> None:
    with pytest.raises(ClientError, match=f"timeout_ms={value!r}"):
        arguments.milliseconds(value)


@pytest.mark.parametrize("value", [-1, True, "now", 1.5, None, 2**63])
def test_a_time_is_a_datetime_or_milliseconds_since_1970(value: Any) -> None:
    with pytest.raises(
        ClientError, match=re.escape(f"seek to time {value!r}: expected a datetime")
    ):
        arguments.timestamp("seek to time ", value)
    assert arguments.timestamp("", Number(5)) == 5
    assert arguments.timestamp("", datetime(1970, 1, 2, tzinfo=UTC)) == 86_400_000
    with pytest.raises(ClientError, match="1969"):
        arguments.timestamp("", datetime(1969, 1, 2, tzinfo=UTC))


def test_invalid_topics_and_patterns_are_refused() -> None:
    for wrong in ("orders", [1], [None], [""], 5):
        with pytest.raises(ClientError, match="expected a"):
            arguments.topics(wrong)
    for bad in ("(", re.compile(b"x"), 5):
        with pytest.raises(ClientError, match="pattern"):
            arguments.pattern(bad)


@pytest.mark.parametrize("kind", [Consumer, blocking.Consumer])
def test_a_listener_that_would_never_be_called_is_refused(kind: Any) -> None:
    class Listener:
        def on_partitions_assigned(self, partitions: object) -> None: ...

    with pytest.raises(ClientError, match=r"listener=.*on_assigned"):
        kind("localhost", listener=Listener())


def test_settings_are_a_mapping() -> None:
    with pytest.raises(ConfigError, match=r"config=\[1\]"):
        Consumer("localhost", config=[1])  # type: ignore[arg-type]
