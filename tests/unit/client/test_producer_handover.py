"""Records that threads give and one thread takes: order, bounds, and who may do what."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from headwater._blocking import submit_queue
from headwater._core import Handover, Intake

TOPIC = "t"


class Refused(Exception):
    pass


class Calls:
    """Records the calls of the core, for the intake and for the handover."""

    def __init__(self) -> None:
        self.firsts = 0
        self.apart_records: list[Any] = []
        self.openings: list[tuple[str, int]] = []
        self.on_full: Callable[[], None] = lambda: None

    def first(self) -> None:
        self.firsts += 1

    def full(self) -> None:
        self.on_full()

    def apart(self, record: Any) -> None:
        self.apart_records.append(record)

    def refused(self) -> None:
        raise Refused

    def opened(self, topic: str, partition: int) -> None:
        self.openings.append((topic, partition))

    def switch(self, topic: str) -> int:
        return 0

    def closed(self, outgoing: Any) -> None: ...

    def no_partition(self, topic: str, partition: int, partitions: int) -> None:
        raise LookupError(partition)


def make(*, buffer_bytes: int = 100_000, bytes_max: int = 10_000) -> tuple[Handover, Intake, Calls]:
    calls = Calls()
    both: Any = calls  # of the intake and of the handover, as far as they are called here
    intake = Intake(both, batch_bytes=10_000, buffer_bytes=buffer_bytes, record_bytes_max=50_000)
    intake.know(TOPIC, 2)
    return Handover(calls, bytes_max=bytes_max, small_bytes=1000), intake, calls


def elsewhere(work: Callable[[], None]) -> BaseException | None:
    """Does it in another thread; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None


def give(handover: Handover, *values: Any, **more: Any) -> None:
    def work() -> None:
        for value in values:
            handover.submit(TOPIC, value, **more)

    error = elsewhere(work)
    if error is not None:
        raise error


def test_the_taker_is_called_once_until_it_has_taken_all() -> None:
    handover, intake, calls = make()
    give(handover, b"1", "2", None)
    assert calls.firsts == 1
    assert handover.pass_on(intake, 100) == (3, [])
    give(handover, b"4")
    assert calls.firsts == 1
    assert handover.pop() == (TOPIC, b"4", None, None, None, None, None)
    assert handover.pop() is None
    give(handover, b"5")
    assert calls.firsts == 2


def test_what_is_passed_on_is_in_the_intake() -> None:
    handover, intake, calls = make()
    give(handover, b"1", b"2", partition=1)
    assert handover.pass_on(intake, 1) == (1, [])
    assert handover.waiting_bytes > 0
    assert handover.pass_on(intake, 1) == (1, [])
    assert handover.waiting_bytes == 0
    assert calls.openings == [(TOPIC, 1)]
    outgoing = intake.take(TOPIC, 1)
    assert outgoing is not None
    assert outgoing.count == 2


def test_the_smallest_record_counts_for_what_its_taker_reckons_with() -> None:
    handover, *_ = make()
    give(handover, None)
    assert handover.waiting_bytes == submit_queue._RECORD_BYTES_MIN


def test_a_record_that_finds_no_room_stays_the_first() -> None:
    handover, intake, _ = make(buffer_bytes=700)
    give(handover, b"a" * 400, b"b" * 400, b"c")
    assert handover.pass_on(intake, 100) == (1, [])
    assert handover.pass_on(intake, 100) == (0, [])
    record = handover.pop()
    assert record is not None
    assert record[1] == b"b" * 400


def test_who_is_refused_does_not_stop_those_behind() -> None:
    handover, intake, _ = make()
    told: list[Any] = []
    give(handover, b"1", partition=7, on_delivery=told.append)
    give(handover, b"2")
    taken, failed = handover.pass_on(intake, 100)
    assert taken == 2
    [(waiter, error)] = failed
    assert waiter == told.append
    assert isinstance(error, LookupError)


def test_who_finds_it_full_waits_for_room() -> None:
    handover, intake, calls = make(bytes_max=1000)
    waits: list[int] = []

    def on_full() -> None:
        waits.append(handover.waiting_bytes)
        handover.pass_on(intake, 100)

    calls.on_full = on_full
    give(handover, *[b"x" * 200] * 10)
    assert waits == [1200, 1200]


@pytest.mark.parametrize(
    ("value", "more"),
    [
        (bytearray(b"may change"), {}),
        (7, {}),
        ("\ud800", {}),
        (b"x" * 1000, {}),
        (b"x", {"headers": {"a": b"b"}}),
        (b"x", {"timestamp": 5}),
        (b"x", {"key": 7}),
    ],
)
def test_what_could_be_refused_is_told_apart(value: Any, more: dict[str, Any]) -> None:
    handover, _, calls = make()
    give(handover, value, **more)
    assert handover.pop() is None
    [record] = calls.apart_records
    assert record[:3] == (TOPIC, value, more.get("key"))


def test_the_thread_that_takes_may_not_give() -> None:
    handover, _, _ = make()
    with pytest.raises(Refused):
        handover.submit(TOPIC, b"x")


def test_nothing_is_given_once_it_is_closed() -> None:
    handover, intake, _ = make()
    give(handover, b"1")
    handover.close()
    with pytest.raises(Refused):
        give(handover, b"2")
    assert handover.pass_on(intake, 100) == (1, [])
