"""The producer's intake against its plain Python twin, and its batches against the encoder's."""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater import _core
from tests.reference import batches as twin_batches
from tests.reference.intake import Intake as Twin
from tests.reference.intake import record_of
from tests.reference.strategies import CODEC, RECORDS

LIMITS: dict[str, Any] = {
    "batch_bytes": 300,
    "buffer_bytes": 2000,
    "record_bytes_max": 700,
    "sticky_bytes": 200,
}
TOPICS = st.sampled_from(["a", "b"])
SMALL = st.none() | st.binary(max_size=60) | st.text(max_size=20)
VALUES = SMALL | st.sampled_from([100, 250, 600, 680]).map(bytes)
HEADERS = st.none() | st.dictionaries(st.text(max_size=5), SMALL, max_size=3)
TIMES = st.integers(0, 2**62)
STEPS = st.lists(
    st.tuples(
        st.just("submit"), TOPICS, VALUES, SMALL, HEADERS, TIMES, st.none() | st.integers(0, 4)
    )
    | st.tuples(st.just("know"), TOPICS, st.integers(1, 4))
    | st.tuples(st.just("take"), TOPICS, st.integers(0, 3))
    | st.tuples(st.just("release")),
    max_size=60,
)


class Refused(Exception):
    """Raised by a callback of the intake to refuse the record."""


class Calls:
    """Notes what the core calls, in the words of the twin."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.closed_batches: list[_core.Outgoing] = []
        self.switches = 0
        self.partitions: dict[str, int] = {}

    def opened(self, topic: str, partition: int) -> None:
        self.events.append(("opened", topic, partition))

    def closed(self, outgoing: _core.Outgoing) -> None:
        outgoing.seal()
        self.closed_batches.append(outgoing)
        assert outgoing.records is not None
        self.events.append(
            ("closed", outgoing.topic, outgoing.partition, bytes(memoryview(outgoing.records)))
        )

    def switch(self, topic: str) -> int:
        self.events.append(("switch", topic))
        self.switches += 1
        return (self.switches - 1) % self.partitions[topic]

    def unknown(self, topic: str) -> None:
        self.events.append(("unknown", topic))

    def full(self, size: int) -> None:
        self.events.append(("full", size))
        raise Refused

    def timestamp(self, given: Any) -> int:
        raise Refused("timestamp")

    def too_large(self, topic: str, size: int) -> NoReturn:
        self.events.append(("too_large", topic, size))
        raise Refused

    def no_partition(self, topic: str, partition: int, partitions: int) -> NoReturn:
        self.events.append(("no_partition", topic, partitions))
        raise Refused

    def refused(self, what: str, topic: str, cause: Exception) -> NoReturn:
        raise Refused(what) from cause


@settings(max_examples=150)
@given(STEPS)
def test_the_intake_does_what_its_twin_does(steps: list[tuple[Any, ...]]) -> None:
    calls = Calls()
    core, twin = _core.Intake(calls, **LIMITS), Twin(**LIMITS)
    done: list[_core.Outgoing] = []
    for what, *args in steps:
        if what == "submit":
            topic, value, key, headers, timestamp, partition = args
            with contextlib.suppress(Refused):
                core.submit(
                    topic,
                    value,
                    key=key,
                    headers=headers,
                    timestamp=timestamp,
                    partition=partition,
                )
            twin.submit(topic, record_of(value, key, headers, timestamp), partition)
        elif what == "know":
            topic, partitions = args
            partitions = max(partitions, calls.partitions.get(topic, 0))
            calls.partitions[topic] = partitions
            core.know(topic, partitions)
            twin.know(topic, partitions)
        elif what == "take" and args[1] < calls.partitions.get(args[0], 0):
            taken, expected = core.take(*args), twin.take(*args)
            assert (taken is None) == (expected is None)
            if taken is not None:
                taken.seal()
                assert taken.records is not None
                assert bytes(memoryview(taken.records)) == expected
                done.append(taken)
        elif what == "release":
            done += calls.closed_batches
            calls.closed_batches = []
            for batch in done:
                twin.release(batch.cost)
                core.release(batch)
            done = []
        assert calls.events == twin.events
        assert core.used_bytes == twin.used


class Told(int):
    """Somebody to be told, by number."""

    def __call__(self, *_: object) -> None: ...


ME = Told(7)


def intake_of(records: list[twin_batches.Record], *, waiters: bool = False) -> _core.Outgoing:
    calls = Calls()
    calls.partitions["t"] = 1
    intake = _core.Intake(
        calls, batch_bytes=1 << 20, buffer_bytes=1 << 24, record_bytes_max=1 << 20
    )
    intake.know("t", 1)
    for index, (key, value, headers, timestamp) in enumerate(records):
        intake.submit(
            "t",
            value,
            key=key,
            headers=headers,
            timestamp=abs(timestamp) % 2**62,
            partition=0,
            on_delivery=Told(index) if waiters else None,
        )
    batch = intake.take("t", 0)
    assert batch is not None
    return batch


def shown(batch: _core.Outgoing) -> list[_core.Record]:
    assert batch.records is not None
    return _core.decode(batch.records)


@given(RECORDS, CODEC)
def test_a_sealed_batch_is_what_the_encoder_makes(
    records: list[twin_batches.Record], codec: int
) -> None:
    batch = intake_of(records)
    batch.seal(codec, producer_id=7, producer_epoch=3, base_sequence=11)
    expected = [(key, value, headers, abs(time) % 2**62) for key, value, headers, time in records]
    assert batch.records is not None
    assert bytes(memoryview(batch.records)) == _core.encode(
        expected, codec=codec, producer_id=7, producer_epoch=3, base_sequence=11
    )
    assert (batch.count, batch.size) == (len(records), len(batch.records))


@given(RECORDS, CODEC)
def test_a_stamp_changes_the_producer_and_nothing_else(
    records: list[twin_batches.Record], codec: int
) -> None:
    batch = intake_of(records)
    batch.seal(codec, producer_id=7, producer_epoch=3, base_sequence=11)
    before = batch.records
    batch.stamp(producer_id=8, producer_epoch=0, base_sequence=0)
    assert batch.records is not None
    assert before is not None
    header = _core.validate(batch.records)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 0, 0)
    assert _core.validate(before).producer_id == 7  # what is being sent stays as it was
    assert _core.decode(batch.records) == _core.decode(before)


@given(RECORDS, CODEC, st.integers(62, 2000))
def test_a_split_batch_has_the_same_records_in_order(
    records: list[twin_batches.Record], codec: int, bytes_max: int
) -> None:
    batch = intake_of(records, waiters=True)
    batch.seal(codec)
    parts = batch.split(bytes_max)
    for part in parts:
        part.seal(codec)
        assert part.records is not None
        _core.validate(part.records)  # deltas begin at zero, counts and checksums hold
        assert part.count == 1 or part.cost <= bytes_max
        for number, index, _, _, _ in part.waiters:
            assert number - part.waiters[0][0] == index
    found = [
        (record.key, record.value, record.headers, record.timestamp)
        for part in parts
        for record in shown(part)
    ]
    assert found == [(r.key, r.value, r.headers, r.timestamp) for r in shown(batch)]
    assert [w[0] for part in parts for w in part.waiters] == list(range(len(records)))


@given(st.lists(st.none() | st.binary(max_size=9), min_size=1, max_size=20))
def test_waiters_come_with_the_sizes_of_their_records(values: list[bytes | None]) -> None:
    batch = intake_of([(None, value, [], 5) for value in values], waiters=True)
    assert batch.awaited == len(values)
    assert batch.waiters == [
        (index, index, 5, -1, -1 if value is None else len(value))
        for index, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("value", {"value": 3}),
        ("key", {"key": object()}),
        ("value", {"value": "\ud800"}),
        ("headers", {"headers": {"a": 3}}),
        ("headers", {"headers": {1: b""}}),
        ("headers", {"headers": [("a",)]}),
        ("headers", {"headers": 3}),
        ("timestamp", {"timestamp": -1}),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(field: str, given: dict[str, Any]) -> None:
    calls = Calls()
    intake = _core.Intake(calls, **LIMITS)
    with pytest.raises(Refused, match=field):
        intake.submit("t", **given)
    assert intake.used_bytes == 0
    assert intake.held == []


def test_a_record_without_time_has_the_clock_s() -> None:
    calls = Calls()
    calls.partitions["t"] = 1
    intake = _core.Intake(calls, **LIMITS, wall_ms=lambda: 1234)
    intake.know("t", 1)
    intake.submit("t", b"x")
    batch = intake.take("t", 0)
    assert batch is not None
    assert batch.max_timestamp == 1234


def test_held_records_can_be_abandoned() -> None:
    intake = _core.Intake(Calls(), **LIMITS)
    intake.submit("t", b"x", on_delivery=ME)
    intake.submit("t", b"y")
    assert intake.held == [("t", 2)]
    assert intake.abandon("t") == [ME, None]
    assert (intake.used_bytes, intake.held) == (0, [])


def test_held_records_that_have_no_partition_come_back_with_the_reason() -> None:
    calls = Calls()
    intake = _core.Intake(calls, **LIMITS)
    intake.submit("t", b"x", partition=5, on_delivery=ME)
    ((waiter, error),) = intake.know("t", 2)
    assert waiter == ME
    assert isinstance(error, Refused)
    assert intake.used_bytes == 0


def test_a_partitioner_is_asked_for_what_has_no_partition() -> None:
    calls = Calls()
    asked: list[tuple[Any, ...]] = []

    def choose(*args: Any) -> int:
        asked.append(args)
        return 1

    intake = _core.Intake(calls, **LIMITS, choose=choose)
    intake.know("t", 2)
    intake.submit("t", b"v", key="k")
    intake.submit("t", b"w", partition=0)
    assert asked == [("t", "k", b"v")]
    assert calls.events == [("opened", "t", 1), ("opened", "t", 0)]
