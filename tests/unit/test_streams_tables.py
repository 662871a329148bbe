"""Aggregates with Python functions, tables grouped anew, suppressed, without duplicates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from headwater.streams.machine import Out
from headwater.streams.processor_test import MachineTest
from headwater.streams.tables import (
    Aggregate,
    Deduplicate,
    Fold,
    Restored,
    Suppress,
    TableChanges,
    count,
    reduce,
)
from headwater.streams.types import shape_of


def v(value: Any) -> dict[str, Any]:
    return {"value": value}


def values(outs: list[Out]) -> list[Any]:
    return [None if out.tombstone else out.value["value"] for out in outs]


INT = shape_of(int)


@dataclass
class Stats:
    total: int
    words: list[str]


def _add(stats: Stats, value: int) -> Stats:
    if value > 100:
        raise ValueError("too large")
    return Stats(stats.total + value, [*stats.words, str(value)])


STATS = Fold((_add,), lambda: Stats(0, []), values=(INT,), shape=shape_of(Stats))


@pytest.mark.parametrize("packed", [False, True])
def test_an_aggregate_of_a_class(packed: bool) -> None:
    test = MachineTest(Aggregate(STATS), packed=packed)
    (out,) = test.batch([test.row("k", v(n), n) for n in (3, 1, 2)])
    assert (out.value, out.timestamp) == ({"total": 6, "words": ["3", "1", "2"]}, 3)
    (out,) = test.batch([test.row("k", v(10), 1)])
    assert (out.value["total"], out.timestamp) == (16, 3)  # as new as the newest record in it


def test_a_value_that_fails_is_left_out() -> None:
    test = MachineTest(Aggregate(STATS), on_error="dead_letter")
    (out,) = test.batch([test.row("k", v(n), 1) for n in (500, 1, 500, 2, 500)])
    assert out.value == {"total": 3, "words": ["1", "2"]}
    assert [failed.row and failed.row.offset for failed in test.failures] == [0, 2, 4]


def test_a_count_leaves_out_records_without_key_or_value() -> None:
    test = MachineTest(Aggregate(count()))
    rows = [test.row("k", v(1), 1), test.row("k", None, 1), test.row(None, v(1), 1)]
    assert values(test.batch(rows)) == [1]
    assert [each.reason for each in test.dropped] == ["null value", "null key"]
    assert values(test.batch([test.row("k", None, 1)])) == []


def test_a_reduce_begins_with_the_first_value() -> None:
    test = MachineTest(Aggregate(reduce(max, INT), each_change=True))
    assert values(test.batch([test.row("k", v(n), 1) for n in (-5, -7, 3)])) == [-5, -5, 3]
    assert values(test.batch([test.row("k", v(9), 1)])) == [9]


def test_an_aggregate_of_none_deletes_the_key() -> None:
    fold = Fold(
        (lambda total, n: None if n == 0 else total + n,), lambda: 0, values=(INT,), shape=INT
    )
    test = MachineTest(Aggregate(fold))
    assert values(test.batch([test.row("k", v(5), 1)])) == [5]
    assert values(test.batch([test.row("k", v(0), 2)])) == [None]
    assert test.keys() == []
    assert values(test.batch([test.row("k", v(0), 2)])) == []
    assert values(test.batch([test.row("k", v(0), 2), test.row("k", v(2), 2)])) == [2]


def test_a_cogroup_has_a_function_for_each_input() -> None:
    fold = Fold(
        (lambda text, n: f"{text}{n}", lambda text, word: f"{text}-{word}"),
        str,
        values=(INT, shape_of(str)),
        shape=shape_of(str),
    )
    test = MachineTest(Aggregate(fold))
    rows = [test.row("k", v(1), 1), test.row("k", v("a"), 2, input=1), test.row("k", v(2), 3)]
    assert values(test.batch(rows)) == ["1-a2"]


# Grouping a table anew


def test_a_change_takes_the_old_value_away_and_brings_the_new_one() -> None:
    changes = MachineTest(TableChanges(lambda row: row["city"]))

    def sent(key: str, city: str | None, n: int) -> list[Any]:
        value = None if city is None else {"city": city, "n": n}
        outs = changes.batch([changes.row(key, value, 1)])
        return [(out.key, out.change, out.value["n"]) for out in outs]

    assert sent("anna", "Rome", 1) == [("Rome", 1, 1)]
    assert sent("anna", "Rome", 1) == []
    assert sent("anna", "Rome", 2) == [("Rome", -1, 1), ("Rome", 1, 2)]
    assert sent("anna", "Oslo", 2) == [("Rome", -1, 2), ("Oslo", 1, 2)]
    assert sent("anna", None, 0) == [("Oslo", -1, 2)]
    assert changes.keys() == []
    assert sent("ben", None, 0) == []


def test_a_sum_with_an_adder_and_a_subtractor() -> None:
    fold = Fold(
        (lambda total, n: total + n,),
        lambda: 0,
        lambda total, n: total - n,
        values=(INT,),
        shape=INT,
    )
    test = MachineTest(Aggregate(fold))
    assert values(test.batch([test.row("Rome", v(5), 1), test.row("Rome", v(3), 1)])) == [8]
    rows = [test.row("Rome", v(4), 2), test.row("Rome", v(5), 2, change=-1)]
    assert values(test.batch(rows)) == [7]


def test_a_row_without_the_new_key_is_left_out() -> None:
    test = MachineTest(TableChanges(lambda row: row["city"]))
    assert test.batch([test.row("anna", {"city": None}, 1)]) == []
    outs = test.batch([test.row("anna", {"city": "Rome"}, 2)])
    assert [(out.key, out.change) for out in outs] == [("Rome", 1)]


# Suppress


@pytest.mark.parametrize("clock", ["event", "processing"])
def test_changes_are_held_back_and_the_last_one_counts(clock: Any) -> None:
    test = MachineTest(Suppress(10_000, clock), late=None)
    for n in range(3):
        assert test.batch([test.row("k", v(n), n * 1000, headers=[("n", b"%d" % n)])]) == []
    if clock == "event":
        assert test.stream_time_to(9_999) == []
        outs = test.stream_time_to(10_000)
    else:
        assert test.now_to(test.now + timedelta(seconds=9.9)) == []
        outs = test.now_to(test.now + timedelta(seconds=0.1))
    assert [(out.value, out.timestamp, out.headers) for out in outs] == [
        (v(2), 2000, [("n", b"2")])
    ]
    assert test.keys() == []


def test_a_deletion_is_held_back_as_well() -> None:
    test = MachineTest(Suppress(1000), late=None)
    test.batch([test.row("k", v(1), 0), test.row("k", None, 1)])
    assert values(test.stream_time_to(1000)) == [None]


# Duplicates


@pytest.mark.parametrize("packed", [False, True])
def test_a_record_passes_once(packed: bool) -> None:
    test = MachineTest(Deduplicate(10_000), late="5 seconds", packed=packed)
    passed = []
    for at in (0, 1_000, 9_999, 10_000, 12_000, 7_000, 30_000):
        passed += [out.timestamp for out in test.batch([test.row("k", v(at), at)])]
    assert passed == [0, 10_000, 30_000]
    assert test.batch([test.row("k", v("late"), 15_000)]) == []
    assert test.dropped[-1].reason == "late"
    test.stream_time_to(100_000)
    assert test.keys() == []


@pytest.mark.parametrize("packed", [False, True])
def test_an_aggregate_restored_from_its_results_continues(packed: bool) -> None:
    was = MachineTest(Aggregate(STATS), packed=packed)
    rows = [was.row(key, v(n), n) for n, key in enumerate("abab")]
    outs = was.batch(rows)
    machine = Aggregate(STATS)
    test = MachineTest(Restored(machine, 1), packed=packed)
    table = [test.row(each.key, each.value, each.timestamp, input=1) for each in outs]
    assert test.batch([*table, test.row("gone", None, 1, input=1)]) == []
    test.restart(machine)
    for key in ("a", "b", "gone"):
        assert test.state(key) == was.state(key)
    more = [was.row("a", v(7), 9), was.row("gone", v(7), 9)]
    assert [each.value for each in test.batch(more)] == [each.value for each in was.batch(more)]
