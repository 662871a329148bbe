"""The host of keyed machines: order, pages, timers, versions of state, and rows that fail."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.machine import (
    Emitted,
    Failed,
    KeyState,
    OperatorError,
    Out,
    Row,
    StateVersionError,
    Timer,
    Timers,
    in_order,
)
from headwater.streams.processor_test import MachineTest

both_layouts = pytest.mark.parametrize("packed", [False, True], ids=["key", "bucket"])


@dataclass
class Counter:
    """Counts the rows of a key; at 10 seconds after the first one it says how many there were."""

    state_version: int = 1
    migrations: dict[int, Any] = field(default_factory=dict)

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        for row in rows:
            if row.value == {"value": "bad"}:
                yield Failed(row, ValueError("bad value"), "value")
                continue
            if state.get("count") is None:
                timers.set(row.timestamp + 10_000)
            state.set("count", state.get("count", 0) + 1)
            yield Out({"value": state.get("count")}, source=row)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield Out({"value": -state.get("count")}, timestamp=timer.at)
        state.delete("count")


def _values(outs: list[Out]) -> list[Any]:
    return [out.value["value"] for out in outs]


# Order


def test_records_of_a_partition_stay_in_the_order_of_their_offsets() -> None:
    rows = [Row("k", {"value": n}, 100 - n, topic="t", partition=0, offset=n) for n in range(20)]
    shuffled = random.Random(1).sample(rows, len(rows))
    assert in_order(shuffled) == rows


def test_of_several_partitions_the_lowest_timestamp_comes_first() -> None:
    left = [Row("k", {}, at, 0, topic="a", partition=0, offset=n) for n, at in enumerate([1, 9, 3])]
    right = [Row("k", {}, at, 1, topic="b", partition=0, offset=n) for n, at in enumerate([2, 4])]
    # The 3 waits behind the 9 of its own partition, as it does in Kafka Streams.
    assert [row.timestamp for row in in_order([*left, *right])] == [1, 2, 4, 9, 3]


def test_a_table_is_ahead_of_a_stream_at_the_same_time() -> None:
    rows = [Row("k", {}, 5, 0, topic="a", partition=0, offset=0), Row("k", {}, 5, 1, topic="b")]
    assert [row.input for row in in_order(rows)] == [1, 0]


def test_what_goes_is_ahead_of_what_comes() -> None:
    rows = [
        Row("k", {"value": "new"}, 5, change=1, topic="a", partition=0, offset=7),
        Row("k", {"value": "old"}, 5, change=-1, topic="a", partition=0, offset=7),
    ]
    assert [row.change for row in in_order(rows)] == [-1, 1]


# State


@both_layouts
def test_each_key_has_its_own_state(packed: bool) -> None:
    test = MachineTest(Counter(), packed=packed)
    test.batch([test.row(key, {"value": "x"}, 0) for key in ("a", "b", "a")])
    test.batch([test.row("a", {"value": "x"}, 1)])
    assert test.state("a") == {"count": 3}
    assert test.state("b") == {"count": 1}


@both_layouts
def test_state_that_is_empty_is_gone(packed: bool) -> None:
    test = MachineTest(Counter(), packed=packed)
    test.batch([test.row(key, {"value": "x"}, 0) for key in range(100)])
    assert len(test.keys()) == 100
    test.stream_time_to(10_000)
    assert test.keys() == []
    assert test.state_bytes() < 100  # pages are gone; how many there were is not


@both_layouts
def test_keys_of_several_fields(packed: bool) -> None:
    test = MachineTest(Counter(), packed=packed)
    keys = [{"country": "de", "city": None}, {"country": "fr", "city": "Lyon"}]
    test.batch([test.row(key, {"value": "x"}, 0) for key in [*keys, keys[0], None]])
    assert [test.state(key) for key in [*keys, None]] == [{"count": 2}, {"count": 1}, {"count": 1}]


def test_pages_grow_with_the_state_and_only_those_with_the_keys_of_a_batch_are_written() -> None:
    test = MachineTest(Counter(), packed=True, late=None)
    for start in range(0, 20_000, 5_000):
        test.batch([test.row(f"key-{n}", {"value": "x"}, 0) for n in range(start, start + 5_000)])
    memory = test._groups[b""]
    pages = [number for number in memory.cells if number >= 0]
    assert 10 < len(pages) < 200
    before = dict(memory.cells)
    test.batch([test.row("key-77", {"value": "x"}, 0)])
    changed = {number for number, data in memory.cells.items() if data != before[number]}
    assert len(changed - {-1}) == 1  # and -1, which says how many pages there are
    assert test.state("key-77") == {"count": 2}
    assert len(test.keys()) == 20_000


@given(st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=2000)), max_size=60))
def test_pages_have_what_a_dict_has(puts: list[tuple[int, bytes]]) -> None:
    class Keep:
        def on_rows(
            self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            for row in rows:
                if row.value["value"]:
                    state.set("kept", row.value["value"])
                else:
                    state.delete("kept")
            yield from ()

        def on_timer(
            self, key: Any, timer: Timer, state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            yield from ()

    test = MachineTest(Keep(), packed=True)
    expected: dict[int, bytes] = {}
    for at in range(0, len(puts), 10):
        batch = puts[at : at + 10]
        test.batch([test.row(key, {"value": data * 20}, 0) for key, data in batch])
        expected.update((key, data * 20) for key, data in batch)
    found = {key: fields["kept"] for key, fields, _ in test._states()}
    assert found == {key: data for key, data in expected.items() if data}


# Timers


@both_layouts
def test_a_timer_fires_when_its_time_has_come(packed: bool) -> None:
    test = MachineTest(Counter(), packed=packed, late=timedelta(seconds=5))
    assert _values(test.batch([test.row("a", {"value": "x"}, 1000)])) == [1]
    assert test.timers("a") == [Timer(11_000)]
    assert test.stream_time_to(10_999) == []
    outs = test.stream_time_to(11_000)
    assert _values(outs) == [-1]
    assert (outs[0].key, outs[0].timestamp) == ("a", 11_000)
    assert test.timers("a") == []


@both_layouts
def test_timers_that_are_due_fire_before_the_rows_of_the_next_batch(packed: bool) -> None:
    # In Spark the time moves at the end of a batch, and the next batch may have rows.
    test = MachineTest(Counter(), packed=packed, late=None)
    test.batch([test.row("a", {"value": "x"}, 1000)])
    test._stream_time = 20_000
    assert _values(test.batch([test.row("a", {"value": "x"}, 30_000)])) == [-1, 1]


@both_layouts
@given(times=st.lists(st.integers(1, 10**9), min_size=1, max_size=40), seed=st.integers())
def test_each_timer_fires_once_and_in_the_step_of_its_time(
    packed: bool, times: list[int], seed: int
) -> None:
    @dataclass
    class Alarm:
        def on_rows(
            self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            for row in rows:
                timers.set(row.value["at"], str(row.value["number"]))
            yield from ()

        def on_timer(
            self, key: Any, timer: Timer, state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            yield Out({"number": int(timer.name), "at": timer.at})

    test = MachineTest(Alarm(), packed=packed, late=None)
    test.batch(
        [
            test.row(f"key-{number % 7}", {"at": at, "number": number}, 0)
            for number, at in enumerate(times)
        ]
    )
    chance = random.Random(seed)
    steps = sorted({*(chance.randrange(1, 10**9) for _ in range(10)), 10**9})
    was = 0
    for step in steps:
        fired = {out.value["number"] for out in test.stream_time_to(step)}
        assert fired == {number for number, at in enumerate(times) if was < at <= step}
        was = step
    assert test.keys() == []


@both_layouts
def test_a_timer_that_is_moved_fires_at_its_new_time_only(packed: bool) -> None:
    @dataclass
    class Silence:
        def on_rows(
            self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            timers.set(rows[-1].timestamp + 5_000)
            yield from ()

        def on_timer(
            self, key: Any, timer: Timer, state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            yield Out({"value": timer.at})

    test = MachineTest(Silence(), packed=packed)
    for at in range(0, 60_000, 1_000):
        assert test.batch([test.row("a", {}, at)]) == []
    assert _values(test.stream_time_to(10**9)) == [64_000]
    assert test.keys() == []


@both_layouts
def test_a_timer_set_to_a_time_that_is_over_fires_with_the_same_rows(packed: bool) -> None:
    test = MachineTest(Counter(), packed=packed, late=None)
    test.stream_time_to(50_000)
    assert _values(test.batch([test.row("a", {"value": "x"}, 1000)])) == [1, -1]


@both_layouts
def test_a_timer_that_sets_itself_again_does_not_spin(packed: bool) -> None:
    @dataclass
    class Again:
        def on_rows(
            self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            timers.set(0)
            yield from ()

        def on_timer(
            self, key: Any, timer: Timer, state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            timers.set(0)
            yield Out({"value": timers.stream_time})

    test = MachineTest(Again(), packed=packed, late=None)
    test.stream_time_to(100)
    assert _values(test.batch([test.row("a", {}, 0)])) == [100]
    assert _values(test.stream_time_to(200)) == [200]
    assert _values(test.stream_time_to(300)) == [300]


@both_layouts
def test_the_clock_of_the_host_has_timers_of_its_own(packed: bool) -> None:
    @dataclass
    class Clocks:
        def on_rows(
            self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            timers.set(rows[0].timestamp + 1000)
            timers.set(timers.now + 1000, clock="processing")
            yield from ()

        def on_timer(
            self, key: Any, timer: Timer, state: KeyState, timers: Timers
        ) -> Iterator[Emitted]:
            yield Out({"value": timer.clock})

    test = MachineTest(Clocks(), packed=packed)
    test.batch([test.row("a", {}, 5)])
    assert _values(test.now_to(test.now + timedelta(seconds=1))) == ["processing"]
    assert _values(test.stream_time_to(1005)) == ["event"]
    assert test.keys() == []


# Versions


def _second(change: Any = None) -> Counter:
    return Counter(2, {} if change is None else {1: change})


@both_layouts
def test_state_of_an_older_version_is_migrated(packed: bool) -> None:
    test = MachineTest(Counter(), packed=packed)
    test.batch([test.row("a", {"value": "x"}, 0), test.row("a", {"value": "x"}, 0)])
    test.restart(_second(lambda state: {"count": state["count"] * 100}))
    assert _values(test.batch([test.row("a", {"value": "x"}, 0)])) == [201]
    assert test.timers("a") == [Timer(10_000)]  # timers are kept
    test.restart(Counter())
    with pytest.raises(
        StateVersionError, match="written by version 2, and this code has version 1"
    ):
        test.batch([test.row("a", {"value": "x"}, 0)])


@both_layouts
@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (_second(), r"operator test: its state has version 1, .* from version 1 to 2"),
        (
            _second(lambda state: {"count": state["total"]}),
            r"operator test: the migration .* from version 1 failed: KeyError: 'total'",
        ),
    ],
)
def test_state_that_cannot_be_migrated_names_the_operator(
    packed: bool, machine: Counter, text: str
) -> None:
    test = MachineTest(Counter(), packed=packed)
    test.batch([test.row("a", {"value": "x"}, 0)])
    test.restart(machine)
    with pytest.raises(StateVersionError, match=text):
        test.batch([test.row("a", {"value": "x"}, 0)])


# Failures


def test_a_row_that_fails_names_operator_field_topic_and_offset() -> None:
    test = MachineTest(Counter(), name="count-words")
    with pytest.raises(
        OperatorError,
        match=r"^operator count-words \(field value, topic input-0, partition 0, offset 0\): "
        r"ValueError: bad value\n",
    ):
        test.batch([test.row("a", {"value": "bad"}, 0)])


@pytest.mark.parametrize(("handler", "seen"), [("dead_letter", 1), ("continue", 0)])
def test_a_handler_leaves_out_the_row(handler: Any, seen: int) -> None:
    test = MachineTest(Counter(), on_error=handler)
    rows = [test.row("a", {"value": value}, 0) for value in ("x", "bad", "x")]
    assert _values(test.batch(rows)) == [1, 2]
    assert len(test.failures) == seen
