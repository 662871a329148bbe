"""Windows as keyed machines: which windows a record is in, when they close, and what is late."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.streams.machine import Out
from headwater.streams.processor_test import MachineTest
from headwater.streams.tables import Fold, Restored, count, reduce
from headwater.streams.types import shape_of
from headwater.streams.windowing import SessionAggregate, SlidingAggregate, WindowedAggregate

INT = shape_of(int)


def v(value: Any) -> dict[str, Any]:
    return {"value": value}


def windows(outs: list[Out]) -> list[Any]:
    return [
        (out.window, None if out.tombstone or out.value is None else out.value["value"])
        for out in outs
    ]


def rows(test: MachineTest, *times: int) -> list[Any]:
    return [test.row("k", v(1), at) for at in times]


@pytest.mark.parametrize("packed", [False, True])
def test_tumbling_windows_with_early_results(packed: bool) -> None:
    test = MachineTest(WindowedAggregate(count(), 10, 10, grace=5), late=None, packed=packed)
    assert windows(test.batch(rows(test, 1, 9, 10))) == [((0, 10), 2), ((10, 20), 1)]
    assert windows(test.batch(rows(test, 5))) == [((0, 10), 3)]
    test.stream_time_to(14)
    assert windows(test.batch(rows(test, 5))) == [((0, 10), 4)]
    assert test.stream_time_to(15) == []
    assert test.batch(rows(test, 5)) == []
    assert [each.reason for each in test.dropped] == ["late"]
    assert test.state("k") == {"windows": {10: [1, 10]}}
    test.stream_time_to(25)
    assert test.keys() == []


def test_hopping_windows() -> None:
    test = MachineTest(WindowedAggregate(count(), 10, 4), late=None)
    assert windows(test.batch(rows(test, 9))) == [((0, 10), 1), ((4, 14), 1), ((8, 18), 1)]
    test.stream_time_to(10)
    assert windows(test.batch(rows(test, 9))) == [((4, 14), 2), ((8, 18), 2)]  # one is closed


@pytest.mark.parametrize("packed", [False, True])
def test_final_results_come_once(packed: bool) -> None:
    test = MachineTest(WindowedAggregate(count(), 10, 10, 5, final=True), late=None, packed=packed)
    assert test.batch(rows(test, 1, 2, 11)) == []
    assert test.stream_time_to(14) == []
    (out,) = test.stream_time_to(15)
    assert (out.window, out.value, out.timestamp) == ((0, 10), v(2), 2)
    assert windows(test.stream_time_to(100)) == [((10, 20), 1)]
    assert test.keys() == []


def test_a_function_that_fails_leaves_the_windows_as_they_were() -> None:
    def add(total: int, value: int) -> int:
        if value < 0:
            raise ValueError("negative")
        return total + value

    fold = Fold((add,), lambda: 0, values=(INT,), shape=INT)
    test = MachineTest(WindowedAggregate(fold, 10, 5), late=None, on_error="dead_letter")
    outs = test.batch([test.row("k", v(n), 7) for n in (1, -1, 2)])
    assert windows(outs) == [((0, 10), 3), ((5, 15), 3)]
    assert len(test.failures) == 1


def test_sliding_windows_have_both_of_their_ends() -> None:
    test = MachineTest(SlidingAggregate(count(), 10), late=None)
    assert windows(test.batch(rows(test, 20))) == [((10, 20), 1)]
    assert windows(test.batch(rows(test, 30))) == [((20, 30), 2), ((21, 31), 1)]
    assert windows(test.batch(rows(test, 25))) == [
        ((15, 25), 2),
        ((20, 30), 3),
        ((21, 31), 2),
        ((26, 36), 1),
    ]
    test.stream_time_to(35)
    assert test.batch(rows(test, 25)) == []  # all that it is in have ended
    test.stream_time_to(100)
    assert test.keys() == []


def test_sliding_windows_that_are_final() -> None:
    test = MachineTest(SlidingAggregate(count(), 10, final=True), late=None)
    assert test.batch(rows(test, 20, 25)) == []
    assert windows(test.stream_time_to(20)) == [((10, 20), 1)]
    assert windows(test.stream_time_to(30)) == [((15, 25), 2)]
    assert windows(test.stream_time_to(31)) == [((21, 31), 1)]
    test.stream_time_to(100)
    assert test.keys() == []


@pytest.mark.parametrize("packed", [False, True])
def test_sessions_grow_and_become_one(packed: bool) -> None:
    test = MachineTest(SessionAggregate(count(), 10, grace=5), late=None, packed=packed)
    assert windows(test.batch(rows(test, 100))) == [((100, 100), 1)]
    assert windows(test.batch(rows(test, 120))) == [((120, 120), 1)]
    assert windows(test.batch(rows(test, 110))) == [
        ((100, 100), None),
        ((120, 120), None),
        ((100, 120), 3),
    ]
    assert windows(test.batch(rows(test, 115))) == [((100, 120), 4)]
    test.stream_time_to(135)
    assert test.state("k") == {"sessions": [[100, 120, 4]]}
    test.stream_time_to(136)
    assert test.keys() == []
    assert test.batch(rows(test, 120)) == []
    assert test.dropped[-1].reason == "late"


def test_sessions_that_are_final() -> None:
    test = MachineTest(SessionAggregate(reduce(max, INT), 10, final=True), late=None)
    assert test.batch([test.row("k", v(n), n) for n in (5, 15, 40)]) == []
    assert test.stream_time_to(25) == []
    assert windows(test.stream_time_to(26)) == [((5, 15), 15)]
    assert windows(test.stream_time_to(100)) == [((40, 40), 40)]


def test_rows_without_key_or_value_are_in_no_window() -> None:
    for machine in (
        WindowedAggregate(count(), 10, 10),
        SlidingAggregate(count(), 10),
        SessionAggregate(count(), 10),
    ):
        test = MachineTest(machine)
        assert test.batch([test.row(None, v(1), 1), test.row("k", None, 1)]) == []
        assert [each.reason for each in test.dropped] == ["null key", "null value"]


@pytest.mark.parametrize(
    "machine", [WindowedAggregate(count(), 10, 5, grace=5), SessionAggregate(count(), 5)]
)
def test_windows_restored_from_their_results_continue(machine: Any) -> None:
    was = MachineTest(machine, late=None)
    table = {each.window: each for each in was.batch(rows(was, 1, 9, 12, 30))}
    test = MachineTest(Restored(machine, 1), late=None)
    found = [
        test.row("k", out.value, out.timestamp, input=1, window=out.window)
        for out in table.values()
    ]
    assert test.batch(found) == []
    test.restart(machine)
    assert test.state("k") == was.state("k")
    assert test.timers("k") == was.timers("k")
    assert windows(test.batch(rows(test, 13))) == windows(was.batch(rows(was, 13)))
    assert test.stream_time_to(100) == was.stream_time_to(100) == []
    assert test.keys() == []
