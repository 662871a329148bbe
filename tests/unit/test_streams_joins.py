"""Joins as keyed machines: Kafka Streams' rules for late records, deletions and missing keys."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.streams.joins import (
    FOUND,
    LEFT,
    LEFT_KEY,
    RIGHT,
    SEQUENCE,
    ForeignKeyLookup,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
    put_version,
    version_at,
)
from headwater.streams.machine import Out, Row
from headwater.streams.processor_test import MachineTest


def pair(left: Any, right: Any) -> dict[str, Any]:
    return {"pair": f"{left and left['v']}+{right and right['v']}"}


def pairs(outs: list[Out]) -> list[Any]:
    return [None if out.tombstone else out.value["pair"] for out in outs]


def v(value: Any) -> dict[str, Any]:
    return {"v": value}


def fail(left: Any, right: Any) -> dict[str, Any]:
    raise ZeroDivisionError("no")


# Versions


def test_versions_as_of_a_time() -> None:
    versions: Any = []
    for at, value in ((10, "a"), (30, "c"), (20, "b"), (40, None)):
        versions = put_version(versions, at, value, horizon=5)
    assert [version_at(versions, at) for at in (9, 10, 19, 25, 39, 41)] == [
        None,
        "a",
        "a",
        "b",
        "c",
        None,
    ]
    assert put_version(versions, 4, "late", horizon=5) is None
    # What was valid at the horizon is kept.
    assert put_version(versions, 50, "d", horizon=35) == [[30, "c"], [40, None], [50, "d"]]
    assert put_version(versions, 60, "e", horizon=45) == [[60, "e"]]
    assert put_version([[1, "a"]], 1, "b", horizon=None) == [[1, "b"]]


# Streams with tables


def test_a_record_meets_the_value_of_its_time() -> None:
    test = MachineTest(StreamTableJoin(pair, history=1000))
    test.batch([test.row("k", v(n), n, input=1) for n in (100, 200, 300)])
    outs = test.batch([test.row("k", v("s"), at) for at in (50, 100, 250, 999)])
    assert pairs(outs) == ["s+100", "s+200", "s+300"]
    assert [out.timestamp for out in outs] == [100, 250, 999]


def test_without_a_history_a_record_meets_the_latest_value() -> None:
    test = MachineTest(StreamTableJoin(pair))
    test.batch([test.row("k", v(n), n, input=1) for n in (100, 200)])
    assert pairs(test.batch([test.row("k", v("s"), 150)])) == ["s+200"]
    test.batch([test.row("k", None, 300, input=1)])
    assert pairs(test.batch([test.row("k", v("s"), 310)])) == []
    assert test.keys() == []


def test_in_one_batch_the_times_decide() -> None:
    test = MachineTest(StreamTableJoin(pair, "left"))
    rows = [
        test.row("k", v("t"), 20, input=1),
        test.row("k", v("early"), 10),
        test.row("k", v("late"), 30),
    ]
    assert pairs(test.batch(rows)) == ["early+None", "late+t"]


@pytest.mark.parametrize("packed", [False, True])
def test_with_grace_a_record_waits_for_changes_that_come_late(packed: bool) -> None:
    test = MachineTest(
        StreamTableJoin(pair, history=10_000, grace=0), late="5 seconds", packed=packed
    )
    test.batch([test.row("k", v("old"), 1000, input=1)])
    assert test.batch([test.row("k", v("s"), 4000)]) == []
    test.batch([test.row("k", v("new"), 3000, input=1)])  # older than the record, and later
    assert pairs(test.stream_time_to(4000)) == ["s+new"]
    assert pairs(test.batch([test.row("k", v("late"), 2000)])) == ["late+old"]  # waits no more


def test_records_without_key_or_value() -> None:
    for how, expected in (("inner", []), ("left", ["s+None"])):
        test = MachineTest(StreamTableJoin(pair, how))  # type: ignore[arg-type]
        rows = [
            test.row(None, v("s"), 1),
            test.row("k", None, 1),
            test.row(None, v("t"), 1, input=1),
        ]
        assert pairs(test.batch(rows)) == expected
        assert len(test.dropped) == 3 - len(expected)


def test_a_function_that_fails_is_about_its_record() -> None:
    test = MachineTest(StreamTableJoin(fail, "left"), on_error="dead_letter")
    test.batch([test.row("k", v("s"), 1)])
    assert test.failures[0].row is not None
    assert test.failures[0].row.offset == 0


# Tables with tables


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [None, "1+a", "1+b", "2+b", None, None]),
        ("left", ["1+None", "1+a", "1+b", "2+b", None, None]),
        ("outer", ["1+None", "1+a", "1+b", "2+b", "None+b", None]),
    ],
)
def test_changes_of_joined_tables(how: Any, expected: list[Any]) -> None:
    test = MachineTest(TableTableJoin(pair, how))
    changes = [(0, 1), (1, "a"), (1, "b"), (0, 2), (0, None), (1, None)]
    found: Any = None
    for (side, value), each in zip(changes, expected, strict=True):
        row = test.row("k", None if value is None else v(value), 1, input=side)
        if outs := pairs(test.batch([row])):
            (found,) = outs
        assert found == each
    assert test.keys() == []


def test_a_deletion_of_what_is_not_there_is_no_change() -> None:
    test = MachineTest(TableTableJoin(pair, "left"))
    test.batch([test.row("k", v("left"), 100)])
    test.batch([test.row("k", v("right"), 150, input=1)])
    rows = [test.row("k", None, at, input=1) for at in (120, 200)]
    (out,) = test.batch(rows)
    assert (pairs([out]), out.timestamp) == (["left+None"], 120)
    assert test.batch([test.row("k", None, 300, input=1)]) == []


def test_one_change_for_a_batch_or_one_for_each() -> None:
    def rows(test: MachineTest) -> list[Row]:
        return [test.row("k", v(n), n, input=n % 2) for n in range(4)]

    test = MachineTest(TableTableJoin(pair))
    (out,) = test.batch(rows(test))
    assert (pairs([out]), out.timestamp) == (["2+3"], 3)
    test = MachineTest(TableTableJoin(pair, each_change=True))
    assert pairs(test.batch(rows(test))) == ["0+1", "2+1", "2+3"]


def test_of_a_versioned_table_older_changes_are_ignored() -> None:
    test = MachineTest(TableTableJoin(pair, "left", versioned=(True, False)))
    for value, at in ((1, 100), (0, 50)):
        test.batch([test.row("k", v(value), at)])
    test.batch([test.row("k", v("new"), 20, input=1)])
    assert pairs(test.batch([test.row("k", v("old"), 10, input=1)])) == ["1+old"]
    assert [each.reason for each in test.dropped] == ["out of order"]
    test.batch([test.row("k", None, 200)])
    assert test.batch([test.row("k", v("zombie"), 150)]) == []


def test_a_table_without_keys() -> None:
    test = MachineTest(TableTableJoin(pair, "outer"))
    assert test.batch([test.row(None, v(1), 1)]) == []
    assert test.dropped[0].reason == "null key"


# Foreign keys


class ForeignKeys:
    """The three machines, one behind the other, with a batch of each at a time."""

    def __init__(self, how: Any, combine: Any = pair, packed: bool = True) -> None:
        self.subscribe = MachineTest(ForeignKeySubscribe(lambda row: row["fk"], how), packed=packed)
        self.lookup = MachineTest(ForeignKeyLookup(how), packed=packed)
        resolve = ForeignKeyResolve(combine)
        self.resolve = MachineTest(resolve, packed=packed, on_error="dead_letter")

    def batch(self, left: list[Row], right: list[Row]) -> list[Out]:
        sent = [_row(out, 0) for out in self.subscribe.batch(left)]
        found = [_row(out, 0) for out in self.lookup.batch([*sent, *right])]
        return self.resolve.batch(found)


def _row(out: Out, number: int) -> Row:
    assert out.timestamp is not None
    source = out.source
    assert source is not None
    return Row(
        out.key,
        None if out.tombstone else out.value,  # as Spark has it
        out.timestamp,
        number,
        out.tombstone,
        out.change,
        topic=source.topic,
        partition=source.partition,
        offset=source.offset,
    )


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_row_follows_its_foreign_key(how: Any) -> None:
    join = ForeignKeys(how)
    left, right = join.subscribe, join.lookup
    missing = ["1+None"] if how == "left" else []
    gone = ["1+None"] if how == "left" else [None]
    assert pairs(join.batch([left.row("l", {"v": 1, "fk": "x"}, 1)], [])) == missing
    assert pairs(join.batch([], [right.row("x", v("X"), 2, input=1)])) == ["1+X"]
    assert pairs(join.batch([], [right.row("y", v("Y"), 3, input=1)])) == []
    outs = join.batch(
        [left.row("l", {"v": 1, "fk": "y"}, 4)], [right.row("x", v("XX"), 5, input=1)]
    )
    assert pairs(outs) == ["1+Y"]
    assert outs[0].key == "l"
    assert SEQUENCE not in outs[0].value
    assert pairs(join.batch([], [right.row("x", v("XXX"), 6, input=1)])) == []
    assert pairs(join.batch([], [right.row("y", None, 7, input=1)])) == gone
    assert pairs(join.batch([left.row("l", {"v": 1, "fk": None}, 8)], [])) == missing
    assert pairs(join.batch([left.row("l", {"v": 1, "fk": "x"}, 9)], [])) == ["1+XXX"]
    assert pairs(join.batch([left.row("l", None, 10)], [])) == [None]
    assert left.keys() == []
    assert join.resolve.keys() == []
    assert right.keys() == ["x"]


def test_subscriptions_say_what_a_topic_needs() -> None:
    test = MachineTest(ForeignKeySubscribe(lambda row: row["fk"]))
    (out,) = test.batch([test.row("l", {"v": 1, "fk": "x"}, 1)])
    assert (out.key, out.value[LEFT_KEY], out.value[LEFT]) == ("x", "l", {"v": 1, "fk": "x"})


def test_of_several_results_the_one_of_the_latest_change_counts() -> None:
    test = MachineTest(ForeignKeyResolve(lambda left, _: left))

    def result(sequence: int, value: str | None) -> Row:
        columns = {LEFT: {"pair": value}, RIGHT: None, SEQUENCE: sequence, FOUND: value is not None}
        return test.row("l", columns, 1)

    assert pairs(test.batch([result(2, "new"), result(1, "old"), result(1, None)])) == ["new"]
    assert pairs(test.batch([result(1, "old")])) == []
    assert pairs(test.batch([result(3, None)])) == [None]
    assert pairs(test.batch([result(4, None)])) == []


def test_a_join_by_foreign_key_that_fails_leaves_its_result_as_it_is() -> None:
    def joined(left: Any, right: Any) -> Any:
        return {"pair": left["v"] / right["v"]}

    join = ForeignKeys("inner", joined)
    left, right = join.subscribe, join.lookup
    rows = [left.row("l", {"v": 6, "fk": "x"}, 1)]
    assert pairs(join.batch(rows, [right.row("x", v(3), 1, input=1)])) == [2]
    assert join.batch([], [right.row("x", v(0), 2, input=1)]) == []
    assert isinstance(join.resolve.failures[0].error, ZeroDivisionError)
    assert pairs(join.batch([], [right.row("x", None, 3, input=1)])) == [None]


def test_a_foreign_key_that_cannot_be_found() -> None:
    test = MachineTest(ForeignKeySubscribe(lambda row: row["none"]), on_error="dead_letter")
    assert test.batch([test.row("l", v(1), 1)]) == []
    assert isinstance(test.failures[0].error, KeyError)


# Streams with streams


def test_a_left_join_waits_until_nothing_can_match() -> None:
    test = MachineTest(StreamStreamJoin(before=100, after=50, combine=pair, how="left"), late=None)
    test.batch([test.row("k", v("a"), 1000), test.row("k", v("b"), 2000)])
    assert pairs(test.batch([test.row("k", v("r"), 1050, input=1)])) == ["a+r"]
    assert pairs(test.batch([test.row("k", v("s"), 1899, input=1)])) == []
    assert pairs(test.batch([test.row("k", v("t"), 1900, input=1)])) == ["b+t"]
    test.batch([test.row("k", v("c"), 3000)])
    assert test.stream_time_to(3049) == []
    assert pairs(test.stream_time_to(3050)) == ["c+None"]
    assert test.batch([test.row("k", v("d"), 3000)]) == []
    assert test.dropped[-1].reason == "late"
    assert test.keys() == []


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", ["a+r"]),
        ("left", ["a+r", "b+None"]),
        ("right", ["a+r", "None+s"]),
        ("outer", ["a+r", "b+None", "None+s"]),
        ("semi", ["a+None"]),
        ("anti", ["b+None"]),
    ],
)
def test_kinds_of_joins(how: Any, expected: list[str]) -> None:
    test = MachineTest(StreamStreamJoin(10, 10, 5, pair, how), late=None)
    outs = test.batch(
        [
            test.row("k", v("a"), 100),
            test.row("k", v("b"), 200),
            test.row("k", v("r"), 95, input=1),
            test.row("k", v("s"), 300, input=1),
        ]
    )
    outs += test.stream_time_to(214)
    outs += test.stream_time_to(1000)
    assert pairs(outs) == expected


def test_a_record_without_a_key_is_alone() -> None:
    test = MachineTest(StreamStreamJoin(10, 10, 5, pair, "left"), late=None)
    assert pairs(test.batch([test.row(None, v("a"), 1), test.row(None, v("b"), 1, input=1)])) == [
        "a+None"
    ]
