"""Keyed machines against a plain recomputation over all rows at once.

Rows come in random batches; their order, where an operator's rules allow it, is random as well.
What counts is what a consumer of the output has in the end: the table, or the set of results.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.joins import (
    ForeignKeyLookup,
    ForeignKeyResolve,
    ForeignKeySubscribe,
    StreamStreamJoin,
    StreamTableJoin,
    TableTableJoin,
)
from headwater.streams.machine import KeyedMachine, Out, Row
from headwater.streams.processor_test import MachineTest
from headwater.streams.tables import Aggregate, Fold, TableChanges, count
from headwater.streams.types import shape_of
from headwater.streams.windowing import SessionAggregate, SlidingAggregate, WindowedAggregate

INT = shape_of(int)
SUM = Fold(
    (lambda total, n: total + n,),
    lambda: 0,
    lambda total, n: total - n,
    lambda left, right: left + right,
    values=(INT,),
    shape=INT,
)
END = 10**6

keys = st.sampled_from("abc")
events = st.lists(st.tuples(keys, st.integers(0, 200), st.integers(-9, 9)), max_size=40)
# Changes of a table: a key, a value or a deletion.
changes = st.lists(st.tuples(keys, st.none() | st.integers(-9, 9)), max_size=30)
seeds = st.integers(0, 10**6)
layouts = st.booleans()


def batches(rows: list[Row], chance: random.Random) -> Iterator[list[Row]]:
    """Cuts rows into batches, each of them in any order, as after a shuffle."""
    while rows:
        size = chance.randint(1, len(rows))
        batch = rows[:size]
        chance.shuffle(batch)
        yield batch
        rows = rows[size:]


def run(test: MachineTest, rows: list[Row], seed: int) -> list[Out]:
    outs: list[Out] = []
    for batch in batches(rows, random.Random(seed)):
        outs += test.batch(batch)
    outs += test.stream_time_to(END)
    return outs


def table(outs: Iterable[Out]) -> dict[Any, Any]:
    """Returns the final content of a table with these changes."""
    found: dict[Any, Any] = {}
    for out in outs:
        name = out.key if out.window is None else (out.key, *out.window)
        if out.tombstone:
            found.pop(name, None)
        else:
            found[name] = out.value
    return found


def v(value: Any) -> Any:
    return None if value is None else {"value": value}


def make(machine: KeyedMachine, packed: bool) -> MachineTest:
    return MachineTest(machine, packed=packed, late=None)


def stream(test: MachineTest, given_: list[tuple[Any, int, int]], number: int = 0) -> list[Row]:
    return [test.row(key, v(value), at, input=number) for key, at, value in given_]


@given(events, seeds, layouts)
def test_an_aggregate(rows: list[tuple[str, int, int]], seed: int, packed: bool) -> None:
    test = make(Aggregate(SUM), packed)
    expected: dict[str, int] = defaultdict(int)
    for key, _, value in rows:
        expected[key] += value
    assert table(run(test, stream(test, rows), seed)) == {key: v(n) for key, n in expected.items()}


@given(events, seeds, layouts, st.booleans(), st.sampled_from([(10, 10), (10, 3), (7, 5)]))
def test_windows(
    rows: list[tuple[str, int, int]], seed: int, packed: bool, final: bool, shape: tuple[int, int]
) -> None:
    size, step = shape
    test = make(WindowedAggregate(SUM, size, step, final=final), packed)
    expected: dict[Any, int] = defaultdict(int)
    for key, at, value in rows:
        for start in range(0, at + 1, step):
            if start <= at < start + size:
                expected[key, start, start + size] += value
    outs = run(test, stream(test, rows), seed)
    assert table(outs) == {key: v(n) for key, n in expected.items()}
    if final:
        assert len(outs) == len(expected)
    assert test.keys() == []


@given(events, seeds, layouts, st.booleans(), st.sampled_from([1, 5, 20]))
def test_sliding_windows(
    rows: list[tuple[str, int, int]], seed: int, packed: bool, final: bool, size: int
) -> None:
    test = make(SlidingAggregate(SUM, size, final=final), packed)
    expected = {}
    for key, at, _ in rows:
        for start in {max(at - size, 0), at + 1}:
            inside = [n for k, t, n in rows if k == key and start <= t <= start + size]
            if inside:
                expected[key, start, start + size] = v(sum(inside))
    outs = run(test, stream(test, rows), seed)
    assert table(outs) == expected
    if final:
        assert len(outs) == len(expected)
    assert test.keys() == []


@given(events, seeds, layouts, st.booleans(), st.sampled_from([0, 5, 20]))
def test_sessions(
    rows: list[tuple[str, int, int]], seed: int, packed: bool, final: bool, gap: int
) -> None:
    test = make(SessionAggregate(SUM, gap, final=final), packed)
    expected = {}
    by_key: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for key, at, value in rows:
        by_key[key].append((at, value))
    for key, given_ in by_key.items():
        session: list[tuple[int, int]] = []
        for each in [*sorted(given_), (END, 0)]:
            if session and each[0] > session[-1][0] + gap:
                expected[key, session[0][0], session[-1][0]] = v(sum(n for _, n in session))
                session = []
            session.append(each)
    outs = run(test, stream(test, rows), seed)
    assert table(outs) == expected
    if final:
        assert len(outs) == len(expected)
    assert test.keys() == []


@given(events, seeds, st.integers(0, 60), layouts)
def test_windows_of_late_records(
    rows: list[tuple[str, int, int]], seed: int, late: int, packed: bool
) -> None:
    # Each row is a batch, so that which of them are late is known without the machine.
    grace = seed % 20
    test = MachineTest(WindowedAggregate(count(), 10, 10, grace), packed=packed, late=None)
    expected: dict[Any, int] = defaultdict(int)
    time = 0
    outs = []
    for row in stream(test, rows):
        start = row.timestamp // 10 * 10
        if start + 10 + grace > time:
            expected[row.key, start, start + 10] += 1
        outs += test.batch([row])
        time = max(time, row.timestamp - late)
        outs += test.stream_time_to(time)
    assert table(outs) == {key: v(n) for key, n in expected.items()}
    assert len(test.dropped) == len(rows) - sum(expected.values())


def _latest(given_: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in given_:
        if value is None:
            found.pop(key, None)
        else:
            found[key] = value
    return found


def _table_rows(test: MachineTest, given_: list[tuple[str, Any]], number: int) -> list[Row]:
    return [
        test.row(key, v(value), at, input=number, offset=at)
        for at, (key, value) in enumerate(given_)
    ]


def _mixed(left: list[Row], right: list[Row], seed: int) -> list[Row]:
    """Rows of two inputs, each in its own order."""
    chance = random.Random(seed)
    left, right, mixed = left[::-1], right[::-1], []
    while left or right:
        side = left if left and (not right or chance.random() < 0.5) else right
        mixed.append(side.pop())
    return mixed


def _pair(left: Any, right: Any) -> Any:
    return {"left": left and left["value"], "right": right and right["value"]}


@pytest.mark.parametrize("how", ["inner", "left", "outer"])
@given(left=changes, right=changes, seed=seeds, packed=layouts, each=st.booleans())
def test_joined_tables(
    how: Any,
    left: list[tuple[str, Any]],
    right: list[tuple[str, Any]],
    seed: int,
    packed: bool,
    each: bool,
) -> None:
    test = make(TableTableJoin(_pair, how, each_change=each), packed)
    rows = _mixed(_table_rows(test, left, 0), _table_rows(test, right, 1), seed)
    lefts, rights = _latest(left), _latest(right)
    wanted = {
        "inner": lefts.keys() & rights.keys(),
        "left": lefts.keys(),
        "outer": lefts.keys() | rights.keys(),
    }[how]
    assert table(run(test, rows, seed)) == {
        key: {"left": lefts.get(key), "right": rights.get(key)} for key in wanted
    }
    assert set(test.keys()) == lefts.keys() | rights.keys()


@pytest.mark.parametrize("how", ["inner", "left"])
@given(
    left=st.lists(
        st.tuples(
            keys, st.none() | st.tuples(st.none() | st.sampled_from("xyz"), st.integers(0, 9))
        ),
        max_size=30,
    ),
    right=st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.integers(0, 9)), max_size=30),
    seed=seeds,
    packed=layouts,
)
def test_tables_joined_by_foreign_key(
    how: Any, left: list[tuple[str, Any]], right: list[tuple[str, Any]], seed: int, packed: bool
) -> None:
    subscribe = make(ForeignKeySubscribe(lambda row: row["value"][0], how), packed)
    lookup = make(ForeignKeyLookup(how), packed)
    resolve = make(ForeignKeyResolve(_pair), packed)
    chance = random.Random(seed)
    lefts = [
        subscribe.row(key, None if value is None else {"value": list(value)}, at, offset=at)
        for at, (key, value) in enumerate(left)
    ]
    mixed = _mixed(lefts, _table_rows(lookup, right, 1), seed)
    outs: list[Out] = []
    for batch in batches(mixed, chance):
        sent = subscribe.batch([row for row in batch if row.input == 0])
        found = lookup.batch(
            _shuffled([*_sent(sent), *(row for row in batch if row.input == 1)], chance)
        )
        outs += resolve.batch(_shuffled(_sent(found), chance))
    rights = _latest(right)
    expected = {}
    for key, value in _latest(left).items():
        match = rights.get(value[0])
        if match is not None or how == "left":
            expected[key] = {"left": list(value), "right": match}
    assert table(outs) == expected
    known = lookup.keys()
    assert set(known) >= rights.keys()


def _shuffled(rows: list[Row], chance: random.Random) -> list[Row]:
    return chance.sample(rows, len(rows))


def _sent(outs: list[Out]) -> list[Row]:
    """Outputs as rows of the next machine."""
    rows = []
    for out in outs:
        source, timestamp = out.source, out.timestamp
        assert source is not None
        assert timestamp is not None
        place = {"topic": source.topic, "partition": source.partition, "offset": source.offset}
        value = None if out.tombstone else out.value  # as Spark has it
        rows.append(Row(out.key, value, timestamp, 0, out.tombstone, out.change, **place))  # type: ignore[arg-type]
    return rows


@given(changes, st.data(), seeds, layouts)
def test_a_table_grouped_anew(
    given_: list[tuple[str, Any]], data: st.DataObject, seed: int, packed: bool
) -> None:
    changed = make(TableChanges(lambda row: row["value"] % 3 or None), packed)
    total = make(Aggregate(SUM), packed)
    outs: list[Out] = []
    chance = random.Random(seed)
    for batch in batches(_table_rows(changed, given_, 0), chance):
        outs += total.batch(_shuffled(_sent(changed.batch(batch)), chance))
    expected: dict[int, int] = defaultdict(int)
    for value in _latest(given_).values():
        if value % 3:
            expected[value % 3] += value
    found = {key: value["value"] for key, value in table(outs).items()}
    assert {key: n for key, n in found.items() if n} == {key: n for key, n in expected.items() if n}


@given(events, st.lists(st.tuples(keys, st.integers(0, 200), st.none() | st.integers(0, 9))), seeds)
def test_records_joined_with_a_table_as_of_their_time(
    rows: list[tuple[str, int, int]], versions: list[tuple[str, int, Any]], seed: int
) -> None:
    test = make(StreamTableJoin(_pair, "left", history=1000, grace=0), bool(seed % 2))
    given_ = stream(test, rows) + [
        test.row(key, v(value), at, input=1) for key, at, value in versions
    ]
    random.Random(seed).shuffle(given_)
    outs = run(test, given_, seed)
    expected = []
    for key, at, value in rows:
        past = [
            (time, number, found)
            for number, (k, time, found) in enumerate(versions)
            if k == key and time <= at
        ]
        right = max(past, key=lambda each: each[:2])[2] if past else None
        expected.append((key, at, value, right))
    # Versions of the same time that come in several batches count in the order of those.
    times = [(key, at) for key, at, _ in versions]
    if len(times) == len(set(times)):
        found = [(out.key, out.timestamp, out.value["left"], out.value["right"]) for out in outs]
        assert sorted(found, key=repr) == sorted(expected, key=repr)


@pytest.mark.parametrize("how", ["inner", "left", "right", "outer", "semi", "anti"])
@given(
    left=st.lists(st.tuples(keys, st.integers(0, 60), st.integers(0, 9)), max_size=15),
    right=st.lists(st.tuples(keys, st.integers(0, 60), st.integers(0, 9)), max_size=15),
    before=st.integers(0, 20),
    after=st.integers(0, 20),
    seed=seeds,
)
def test_joined_streams(
    how: Any,
    left: list[tuple[str, int, int]],
    right: list[tuple[str, int, int]],
    before: int,
    after: int,
    seed: int,
) -> None:
    test = make(StreamStreamJoin(before, after, combine=_pair, how=how), bool(seed % 2))
    rows = stream(test, left) + stream(test, right, 1)
    random.Random(seed).shuffle(rows)

    def match(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
        return one[0] == other[0] and one[1] - before <= other[1] <= one[1] + after

    expected: list[Any] = []
    for one in left:
        matches = [other[2] for other in right if match(one, other)]
        if how in ("inner", "left", "right", "outer"):
            expected += [(one[0], one[2], n) for n in matches]
        if not matches and how in ("left", "outer", "anti"):
            expected.append((one[0], one[2], None))
        if matches and how == "semi":
            expected.append((one[0], one[2], None))
    if how in ("right", "outer"):
        for other in right:
            if not any(match(one, other) for one in left):
                expected.append((other[0], None, other[2]))
    found = [(out.key, out.value["left"], out.value["right"]) for out in run(test, rows, seed)]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert test.keys() == []
