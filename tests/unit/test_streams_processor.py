"""Processors: state, time to live, timers, records in and out, order, versions, failures."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.errors import TopologyError
from headwater.streams.machine import OperatorError, StateVersionError, Timer
from headwater.streams.processor import (
    Context,
    ListState,
    MapState,
    Processor,
    ProcessorMachine,
    Record,
    State,
    VersionedState,
    migration,
    time_of,
    types_of,
)
from headwater.streams.processor_test import ProcessorTest

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


@dataclass
class Reading:
    at: datetime
    level: int = 0


@dataclass
class Alarm:
    sensor: str
    last: datetime | None


class Silence(Processor[str, Reading, Alarm]):
    last: State[datetime]

    def process(self, record: Record[str, Reading], ctx: Context[str]) -> None:
        self.last.set(record.value.at)
        ctx.timer(record.value.at + timedelta(minutes=5))

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[Alarm]:
        yield Alarm(ctx.key, self.last.get())


def test_the_example() -> None:
    test = ProcessorTest(Silence, late="10 seconds")
    for second in (0, 60, 200):
        test.pipe(Reading(at(second)), key="door", timestamp=at(second))
    test.pipe(Reading(at(0)), key="roof", timestamp=at(0))
    assert test.state("door") == {"last": at(200)}
    assert [timer.at for timer in test.timers("door")] == [int(at(500).timestamp()) * 1000]
    test.advance_to(at(499))
    assert test.values() == [Alarm("roof", at(0))]
    test.advance_to(at(500))
    (record,) = test.outputs()
    assert record.value == Alarm("door", at(200))
    assert (record.key, record.timestamp) == ("door", at(500))


def test_types_and_clocks_are_read_from_the_class() -> None:
    found = types_of(Silence)
    assert (found.key, found.value, found.out, found.out_key) == (str, Reading, Alarm, None)
    assert time_of(Silence) == "event"
    assert time_of(Stateless) == "none"
    assert types_of(Stateless).out_key is int


class Stateless(Processor[str, int, Record[int, str]]):
    def process(self, record: Record[str, int], ctx: Context[str]) -> Iterator[Record[int, str]]:
        yield Record(
            ctx.key * 2,
            key=record.value,
            timestamp=record.timestamp and record.timestamp + timedelta(seconds=1),
            headers=[*(record.headers or ()), ("from", str(record.offset).encode())],
        )


def test_key_time_and_headers_in_and_out() -> None:
    test: ProcessorTest[str, int, Any] = ProcessorTest(Stateless)
    (record,) = test.pipe(7, key="a", timestamp=at(0), headers=[("h", b"1")], offset=12)
    assert (record.key, record.value, record.timestamp) == (7, "aa", at(1))
    assert record.headers == [("h", b"1"), ("from", b"12")]
    assert record.header("from") == b"12"
    assert record.header("none") is None


class Kinds(Processor[str, str, int]):
    value: State[int] = State(default=10)
    texts: ListState[str]
    counts: MapState[str, int]
    reading: State[Reading]
    pair: State[tuple[int, str]]

    def process(self, record: Record[str, str], ctx: Context[str]) -> list[int]:
        name, _, argument = record.value.partition(" ")
        match name:
            case "add":
                self.value.set((self.value.get() or 0) + 1)
                self.texts.append(argument)
                self.counts[argument] = self.counts.get(argument, 0) + 1
                self.reading.set(Reading(ctx.timestamp, 3))
                self.pair.set((1, argument))
                assert self.reading.get() == Reading(ctx.timestamp, 3)
                assert self.pair.get() == (1, argument)
            case "remove":
                del self.counts[argument]
                self.texts.set([text for text in self.texts if text != argument])
            case "clear":
                for each in (self.value, self.texts, self.counts, self.reading, self.pair):
                    each.clear()
        assert (argument in self.counts) == (name == "add")
        assert sorted(self.counts) == sorted(self.counts.keys())
        assert dict(self.counts.items()) == dict(
            zip(self.counts, self.counts.values(), strict=True)
        )
        return [self.value.get() or 0, len(self.texts), len(self.counts)]


@pytest.mark.parametrize("packed", [False, True])
def test_values_lists_and_maps(packed: bool) -> None:
    test = ProcessorTest(Kinds, packed=packed)
    for line in ("add x", "add y", "add x"):
        test.pipe(line, key="a")
    assert test.values()[-3:] == [13, 3, 2]
    test.pipe("remove x", key="a")
    assert test.values() == [13, 1, 1]
    assert test.state("a")["counts"] == {"y": 1}
    test.pipe("other", key="b")
    assert test.values() == [10, 0, 0]  # the default
    test.pipe("clear -", key="a")
    assert test.keys() == []


def test_a_missing_entry_of_a_map_is_a_key_error() -> None:
    class Look(Processor[str, str, int]):
        counts: MapState[str, int]

        def process(self, record: Record[str, str], ctx: Context[str]) -> list[int]:
            return [self.counts[record.value]]

    test = ProcessorTest(Look, on_error="dead_letter")
    test.pipe("x", key="a")
    assert isinstance(test.failures[0].error, KeyError)


class Prices(Processor[str, float | None, str]):
    prices: VersionedState[float] = VersionedState(history="1 minute")

    def process(self, record: Record[str, float | None], ctx: Context[str]) -> list[str]:
        if record.value is None:
            kept = self.prices.delete(ctx.timestamp)
        else:
            kept = self.prices.put(record.value, ctx.timestamp)
        found = [self.prices.get(at(second)) for second in (0, 10, 20, 30)]
        return [f"{kept} {found} {self.prices.get()}"]


def test_a_versioned_state_is_looked_up_as_of_a_time() -> None:
    test = ProcessorTest(Prices, value=float)
    for value, second in ((1.0, 10), (3.0, 30), (2.0, 20), (None, 25), (9.0, 95), (5.0, 30)):
        test.pipe(value, key="a", timestamp=at(second))
    assert test.values() == [
        "True [None, 1.0, 1.0, 1.0] 1.0",
        "True [None, 1.0, 1.0, 3.0] 3.0",
        "True [None, 1.0, 2.0, 3.0] 3.0",
        "True [None, 1.0, 2.0, 3.0] 3.0",
        "True [None, None, None, 3.0] 9.0",  # what was valid a minute ago is kept
        "False [None, None, None, 3.0] 9.0",
    ]


# Time to live


class Expiring(Processor[str, str, str]):
    one: State[str] = State(ttl="10 seconds", default="none")
    several: ListState[str] = ListState(ttl="10 seconds")
    named: MapState[str, int] = MapState(ttl=timedelta(seconds=10))

    def process(self, record: Record[str, str], ctx: Context[str]) -> list[str]:
        if record.value:
            self.one.set(record.value)
            self.several.append(record.value)
            self.named[record.value] = 1
        return [self.one.get() or "", *self.several, *self.named]


@pytest.mark.parametrize("packed", [False, True])
def test_what_has_lived_its_time_is_gone(packed: bool) -> None:
    test = ProcessorTest(Expiring, late="5 seconds", packed=packed)
    test.pipe("x", key="a", timestamp=at(0))
    test.pipe("y", key="a", timestamp=at(5))
    assert test.values() == ["x", "x", "x", "y", "x", "y", "x", "y"]
    test.pipe("", key="a", timestamp=at(10))  # the time of the record counts
    assert test.values() == ["y", "y", "y"]
    test.advance_to(at(15))
    assert test.keys() == []  # and stream time removes it
    test.pipe("", key="a", timestamp=at(20))
    assert test.values() == ["none"]


def test_a_time_to_live_may_be_added_and_left_out() -> None:
    class Lasting(Expiring):
        one: State[str] = State()
        several: ListState[str] = ListState()
        named: MapState[str, int] = MapState()

    for first, then in ((Expiring, Lasting), (Lasting, Expiring)):
        test = ProcessorTest(first, late="5 seconds")
        test.pipe("x", key="a", timestamp=at(0))
        test.restart(then)
        test.pipe("y", key="a", timestamp=at(5))
        assert test.values()[3:] == ["y", "x", "y", "x", "y"]
        test.pipe("", key="a", timestamp=at(16))
        left = ["y", "x", "y", "x", "y"] if then is Lasting else ["none", "x", "x"]
        assert test.values() == left


def test_time_to_live_by_the_clock_of_the_host() -> None:
    class Recent(Processor[str, int, int]):
        time = "processing"
        seen: ListState[int] = ListState(ttl="1 minute")

        def process(self, record: Record[str, int], ctx: Context[str]) -> list[int]:
            self.seen.append(record.value)
            return [len(self.seen)]

    test = ProcessorTest(Recent)
    test.pipe(1, key="a", timestamp=at(0))
    test.pipe(1, key="a", timestamp=at(5000))
    test.advance_clock("59 seconds")
    test.pipe(1, key="a")
    test.advance_clock("1 second")
    test.pipe(1, key="a")
    assert test.values() == [1, 2, 3, 2]


# Timers


class Timed(Processor[str, str, str]):
    time = "both"

    def process(self, record: Record[str, str], ctx: Context[str]) -> list[str] | None:
        name, _, seconds = record.value.partition(" ")
        if name == "cancel":
            ctx.cancel_timer(seconds)
        elif name == "host":
            ctx.timer(ctx.now + timedelta(seconds=int(seconds)), name, clock="processing")
        else:
            ctx.timer(ctx.timestamp + timedelta(seconds=int(seconds)), name)
        return [timer.name for timer in ctx.timers()]

    def on_timer(self, at: datetime, ctx: Context[str]) -> list[str]:
        assert ctx.timestamp == at
        return [f"{ctx.timer_name} {at - T0}"]


def test_named_timers_of_both_clocks() -> None:
    test = ProcessorTest(Timed, now=T0)
    for line in ("a 30", "b 10", "host 5"):
        test.pipe(line, key="k", timestamp=at(0))
    assert test.values()[-3:] == ["host", "b", "a"]
    assert Timer(int(at(5).timestamp()) * 1000, "host", "processing") in test.timers("k")
    test.pipe("cancel b", key="k", timestamp=at(0))
    test.outputs()
    test.advance_to(at(60))
    assert test.values() == ["a 0:00:30"]
    test.advance_clock("4 seconds")
    assert test.values() == []
    test.advance_clock("1 second")
    assert test.values() == ["host 0:00:05"]


def test_a_timer_of_a_clock_that_was_not_asked_for() -> None:
    class Wrong(Processor[str, int, int]):
        def process(self, record: Record[str, int], ctx: Context[str]) -> None:
            ctx.timer(ctx.timestamp, clock="processing" if record.value else None)

    test = ProcessorTest(Wrong, on_error="dead_letter")
    test.pipe(0, key="a")
    assert "this processor has no timers" in str(test.failures[0].error)
    Wrong.time = "event"
    test = ProcessorTest(Wrong, on_error="dead_letter")
    test.pipe(1, key="a")
    assert "set it to 'both'" in str(test.failures[0].error)


# Order


class Ordered(Processor[str, int, str]):
    in_order = True
    last: State[int] = State(default=0)

    def process(self, record: Record[str, int], ctx: Context[str]) -> list[str]:
        self.last.set(record.value)
        ctx.timer(ctx.timestamp + timedelta(seconds=3))
        return [f"{record.value}@{ctx.timestamp - T0}"]

    def on_timer(self, at: datetime, ctx: Context[str]) -> list[str]:
        return [f"silent after {self.last.get()}@{at - T0}"]


@pytest.mark.parametrize("packed", [False, True])
@given(data=st.data())
def test_in_order_results_do_not_depend_on_batches_and_order(
    packed: bool, data: st.DataObject
) -> None:
    seconds = data.draw(st.lists(st.integers(0, 60), max_size=30, unique=True))
    expected = []
    ordered = sorted(seconds)
    for number, second in enumerate(ordered):
        expected.append(f"{second}@{timedelta(seconds=second)}")
        if number + 1 == len(ordered) or ordered[number + 1] > second + 3:
            expected.append(f"silent after {second}@{timedelta(seconds=second + 3)}")
    test = ProcessorTest(Ordered, late="2 minutes", packed=packed)
    while seconds:
        size = data.draw(st.integers(1, len(seconds)))
        test.pipe_batch([Record(s, "k", at(s)) for s in seconds[:size]])
        seconds = seconds[size:]
    step = data.draw(st.integers(0, 100))
    test.advance_to(at(step))
    test.advance_to(at(200))
    assert test.values() == expected


# Versions


class Before(Processor[str, int, int]):
    total: State[int] = State(default=0)

    def process(self, record: Record[str, int], ctx: Context[str]) -> list[int]:
        self.total.set(self.total.get(0) + record.value)
        return [self.total.get(0)]


def test_changed_state_is_migrated() -> None:
    class After(Processor[str, int, int]):
        version = 2
        totals: MapState[str, int]

        @staticmethod
        @migration(1)
        def by_name(state: dict[str, Any]) -> dict[str, Any]:
            return {"totals": {"all": state["total"]}}

        def process(self, record: Record[str, int], ctx: Context[str]) -> list[int]:
            return [self.totals.get("all", 0)]

    test = ProcessorTest(Before)
    test.pipe(5, key="a")
    test.restart(After)
    test.pipe(5, key="a")
    assert test.values() == [5, 5]


def test_a_changed_type_without_a_version_names_the_state() -> None:
    class After(Processor[str, int, str]):
        total: State[str]

        def process(self, record: Record[str, int], ctx: Context[str]) -> list[str]:
            return [self.total.get("")]

    test = ProcessorTest(Before)
    test.pipe(5, key="a")
    test.restart(After)  # type: ignore[arg-type]
    with pytest.raises(StateVersionError, match="state total: what is kept does not fit str"):
        test.pipe(5, key="a")


# Failures


class Fragile(Processor[str, int, int]):
    total: State[int] = State(default=0)

    def process(self, record: Record[str, int], ctx: Context[str]) -> Iterator[int]:
        self.total.set(self.total.get(0) + record.value)
        if record.value > 10:
            ctx.timer(at(record.value))
        yield self.total.get(0)
        if record.value < 0:
            raise ValueError(f"{record.value} is negative")

    def on_timer(self, at: datetime, ctx: Context[str]) -> list[int]:
        raise RuntimeError("timers fail")


def test_a_record_that_fails_leaves_no_trace() -> None:
    test = ProcessorTest(Fragile, on_error="dead_letter")
    test.pipe_batch([Record(value, "a", at(0)) for value in (1, -5, 2)])
    assert test.values() == [1, 3]
    assert test.state("a") == {"total": 3}
    (failed,) = test.failures
    assert failed.row is not None
    assert (failed.row.offset, str(failed.error)) == (1, "-5 is negative")


def test_by_default_a_failure_ends_it_in_one_line_with_its_place_and_the_traceback() -> None:
    test = ProcessorTest(Fragile)
    with pytest.raises(OperatorError) as raised:
        test.pipe(-1, key="a", topic="numbers", partition=3, offset=77)
    first, *trace = str(raised.value).splitlines()
    assert first == (
        "operator Fragile (topic numbers, partition 3, offset 77): ValueError: -1 is negative"
    )
    assert any("in process" in line for line in trace)


def test_a_timer_that_fails() -> None:
    test = ProcessorTest(Fragile, late="1 second", on_error="dead_letter")
    test.pipe(20, key="a", timestamp=at(0))
    test.advance_to(at(30))
    assert test.failures[0].timer is not None
    assert test.timers("a") == []


@pytest.mark.parametrize("result", ["text", {"a": 1}, 5])
def test_results_are_yielded(result: Any) -> None:
    class Returns(Processor[str, int, Any]):
        def process(self, record: Record[str, int], ctx: Context[str]) -> Any:
            return result

    test = ProcessorTest(Returns, on_error="dead_letter")
    test.pipe(1, key="a")
    assert "yield results" in str(test.failures[0].error)


def test_a_result_of_another_type_is_a_failure() -> None:
    class Returns(Processor[str, int, int]):
        def process(self, record: Record[str, int], ctx: Context[str]) -> Any:
            return ["text"]

    test = ProcessorTest(Returns, on_error="dead_letter")
    test.pipe(1, key="a")
    assert len(test.failures) == 1


def test_none_deletes_a_key() -> None:
    class Deletes(Processor[str, int, int]):
        def process(self, record: Record[str, int], ctx: Context[str]) -> Any:
            return [None]

    test = ProcessorTest(Deletes)
    assert test.pipe(1, key="a")[0].value is None


# Declarations


def test_what_is_declared_wrong_is_found_when_the_topology_is_built() -> None:
    class NoType(Processor[str, int, int]):
        time: ClassVar[Any] = "none"
        total: State[int] = State(ttl="1 second")

    with pytest.raises(TopologyError, match=r"state NoType.total: a time to live needs a clock"):
        ProcessorMachine(NoType, "count")

    class Default(Processor[str, int, int]):
        total: State[int] = 5  # type: ignore[assignment]

    with pytest.raises(TopologyError, match=r"state Default.total: 5 is not a State"):
        ProcessorMachine(Default, "count")

    class Unknown(Processor[str, int, int]):
        total: State[object]

    with pytest.raises(TopologyError, match=r"count: state Unknown.total"):
        ProcessorMachine(Unknown, "count")

    class Late(Processor[str, int, int]):
        in_order = True
        time = "processing"

    with pytest.raises(TopologyError, match="in_order needs event time"):
        ProcessorMachine(Late, "count")


def test_state_of_a_base_class() -> None:
    class Base(Processor[str, int, int]):
        total: State[int] = State(default=0)

    class Sum(Base):
        def process(self, record: Record[str, int], ctx: Context[str]) -> list[int]:
            self.total.set(self.total.get(0) + record.value)
            return [self.total.get(0)]

    test = ProcessorTest(Sum)
    test.pipe(2, key="a")
    test.pipe(3, key="a")
    assert test.values() == [2, 5]


_LATE = """
class Counting(Processor[str, int, int]):
    rate: ClassVar[Decimal]
    latest: State[Later]
    count: State[int]

    def process(self, record, ctx):
        self.count.set(self.count.get(0) + record.value)
        yield self.count.get(0)

Later = int
"""


def test_annotations_that_are_not_of_states_may_have_names_for_type_checkers_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = _LATE
    if sys.version_info < (3, 14):  # which evaluates annotations late without being asked to
        source = f"from __future__ import annotations\n{source}"
    module = ModuleType("late")
    monkeypatch.setitem(sys.modules, "late", module)
    vars(module).update(Processor=Processor, State=State)
    exec(compile(source, "late.py", "exec", dont_inherit=True), vars(module))
    test = ProcessorTest(module.Counting)
    test.pipe(2, key="a")
    test.pipe(3, key="a")
    assert test.values() == [2, 5]
