"""Tables as keyed machines: aggregates of Python functions, grouping a table anew, changes that
wait, records that came before.

Kafka Streams' rules: a record without a key or a value is not aggregated; an aggregate of None
deletes the key; an aggregate is as new as the newest record in it. There is one change of a key for
each batch, or one for each record (`each_change`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headwater.streams.machine import (
    Clock,
    Dropped,
    Emitted,
    Failed,
    KeyedMachine,
    KeyState,
    Out,
    Row,
    Timer,
    Timers,
    version_of,
)
from headwater.streams.types import Shape

NOTHING: Any = object()  # an aggregate that has not begun


def _nothing() -> Any:
    return None


def _counted(aggregate: Any, _: Any) -> int:
    return (aggregate or 0) + 1


def _uncounted(aggregate: Any, _: Any) -> int:
    return (aggregate or 0) - 1


def _added(left: Any, right: Any) -> Any:
    return (left or 0) + (right or 0)


@dataclass(frozen=True)
class Fold:
    """The functions of an aggregation. They take and return values of Python types; shapes
    describe these as columns (without a shape, values are used as they are).

    add: for each input, the aggregate with one more value. More than one input is a cogroup
    subtract: the aggregate without a value, for tables
    merge: one aggregate of two, for sessions
    """

    add: tuple[Callable[[Any, Any], Any], ...]
    initial: Callable[[], Any] = _nothing
    subtract: Callable[[Any, Any], Any] | None = None
    merge: Callable[[Any, Any], Any] | None = None
    values: tuple[Shape | None, ...] = (None,)
    shape: Shape | None = None
    first: bool = False  # the first value is the aggregate: a reduce

    def begin(self) -> Any:
        return NOTHING if self.first else self.initial()

    def plus(self, aggregate: Any, row: Row) -> Any:
        value = self._value(row)
        if aggregate is NOTHING:
            return value
        return self.add[row.input](aggregate, value)

    def minus(self, aggregate: Any, row: Row) -> Any:
        if aggregate is NOTHING or self.subtract is None:
            return aggregate
        return self.subtract(aggregate, self._value(row))

    def merged(self, left: Any, right: Any) -> Any:
        if left is NOTHING or right is NOTHING:
            return right if left is NOTHING else left
        assert self.merge is not None
        return self.merge(left, right)

    def kept(self, aggregate: Any) -> Any:
        """The stored columns of an aggregate."""
        if aggregate is None or aggregate is NOTHING or self.shape is None:
            return None if aggregate is NOTHING else aggregate
        row = self.shape.to_row(aggregate)
        return row if self.shape.is_record else row["value"]

    def taken(self, kept: Any) -> Any:
        if kept is None or self.shape is None:
            return kept
        return self.shape.to_python(kept if self.shape.is_record else {"value": kept})

    def columns(self, kept: Any) -> dict[str, Any] | None:
        """The columns of the result."""
        if kept is None:
            return None
        is_record = isinstance(kept, dict) if self.shape is None else self.shape.is_record
        return kept if is_record else {"value": kept}

    def restored(self, row: Row) -> Any:
        """The stored columns of the aggregate whose result a row is."""
        shape = self.shape
        if shape is None:
            return row.value["value"]
        return self.kept(shape.to_python(row.value))

    def _value(self, row: Row) -> Any:
        shape = self.values[row.input] if row.input < len(self.values) else None
        return row.value if shape is None else shape.to_python(row.value)


def count() -> Fold:
    return Fold((_counted,), _zero, _uncounted, _added)


def _zero() -> int:
    return 0


def reduce(
    function: Callable[[Any, Any], Any],
    value: Shape | None = None,
    *,
    subtract: Callable[[Any, Any], Any] | None = None,
) -> Fold:
    """The first value, then function(aggregate, value) for each other one."""
    return Fold((function,), _nothing, subtract, function, (value,), value, first=True)


@dataclass
class Aggregate:
    """One aggregate for each key, of the rows of one input or of several (cogroup). A row of a
    grouped table whose change is -1 is taken out of it."""

    fold: Fold
    each_change: bool = False

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        fold = self.fold
        known = state.get("aggregate")  # what is kept, and its time
        aggregate = fold.begin() if known is None else fold.taken(known[0])
        timestamp = None if known is None else known[1]
        kept: Any = NOTHING
        last: Row | None = None
        for row in rows:
            if key is None:
                yield Dropped(row, "null key")
                continue
            if row.value is None or row.tombstone:
                yield Dropped(row, "null value")
                continue
            try:
                changed = (
                    fold.minus(aggregate, row) if row.change < 0 else fold.plus(aggregate, row)
                )
                kept = fold.kept(changed)
            except Exception as error:
                yield Failed(row, error)
                # A function may have changed the aggregate before it raised.
                if last is None:
                    aggregate = fold.begin() if known is None else fold.taken(known[0])
                else:
                    aggregate = fold.taken(kept)
                continue
            aggregate, last = changed, row
            if kept is None:
                aggregate = fold.begin()
            timestamp = row.timestamp if timestamp is None else max(timestamp, row.timestamp)
            if self.each_change and changed is not NOTHING:
                yield self._out(kept, timestamp, row)
        if last is None or (aggregate is NOTHING and kept is NOTHING):
            return
        if kept is None:
            state.delete("aggregate")
            if known is None and not self.each_change:
                return  # it was never there
        else:
            state.set("aggregate", [kept, timestamp])
        if not self.each_change:
            yield self._out(kept, timestamp, last)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from ()

    def restore(self, rows: Sequence[Row], state: KeyState, timers: Timers) -> None:
        row = rows[-1]
        state.set("aggregate", [self.fold.restored(row), row.timestamp])

    def _out(self, kept: Any, timestamp: int | None, row: Row) -> Out:
        return Out(self.fold.columns(kept), timestamp=timestamp, tombstone=kept is None, source=row)


class Restorable(KeyedMachine, Protocol):
    """A machine whose results have all that it keeps."""

    def restore(self, rows: Sequence[Row], state: KeyState, timers: Timers) -> None:
        """Makes the state of a key from the rows of its table: one, or one for each window."""
        ...


@dataclass
class Restored:
    """Runs a machine whose state comes from its table, whose rows are those of one input."""

    machine: Restorable
    input: int

    @property
    def state_version(self) -> int:
        return version_of(self.machine)

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        found = [row for row in rows if row.input == self.input and row.value is not None]
        if found:
            self.machine.restore(found, state, timers)
        yield from ()

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from self.machine.on_timer(key, timer, state, timers)


@dataclass
class TableChanges:
    """Turns the changes of a table into what goes (-1) and what comes (+1), each with the key by
    which the table is grouped anew. None as that key leaves the row out."""

    key: Callable[[dict[str, Any]], Any]
    versioned: bool = False

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        known: list[Any] | None = state.get("row")  # time, new key, value
        new, last = known, None
        for row in rows:
            if key is None:
                yield Dropped(row, "null key")
                continue
            if self.versioned and new is not None and row.timestamp < new[0]:
                yield Dropped(row, "out of order")
                continue
            if row.value is None or row.tombstone:
                new, last = None, row
                continue
            try:
                new, last = [row.timestamp, self.key(row.value), row.value], row
            except Exception as error:
                yield Failed(row, error)
        if last is None:
            return
        if new is None:
            state.delete("row")
        else:
            state.set("row", new)
        if known is not None and new is not None and known[1:] == new[1:]:
            return
        if known is not None and known[1] is not None:
            yield Out(known[2], known[1], change=-1, source=last)
        if new is not None and new[1] is not None:
            yield Out(new[2], new[1], change=1, source=last)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from ()


@dataclass
class Suppress:
    """Holds the changes of a key back until `limit` milliseconds after the first of them, and then
    gives the last one: by stream time or by the host's."""

    limit: int
    clock: Clock = "event"

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        if timers.get("limit", self.clock) is None:
            first = rows[0].timestamp if self.clock == "event" else timers.now
            timers.set(first + self.limit, "limit", self.clock)
        row = rows[-1]
        headers = [list(header) for header in row.headers]
        state.set(
            "change", [row.timestamp, None if row.tombstone else row.value, headers, row.window]
        )
        yield from ()

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        found = state.get("change")
        if found is None:
            return
        timestamp, value, headers, window = found
        state.delete("change")
        yield Out(
            value,
            timestamp=timestamp,
            tombstone=value is None,
            headers=[tuple(header) for header in headers],
            window=None if window is None else tuple(window),
        )


@dataclass
class Deduplicate:
    """Has the first record of each key, and no other within `within` milliseconds of it, whichever
    way round they come."""

    within: int
    keep: Literal["first"] = "first"

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        seen: list[int] = state.get("seen", [])
        was = seen
        time = timers.stream_time
        for row in rows:
            if key is None:
                yield Dropped(row, "null key")
            elif time is not None and row.timestamp + self.within <= time:
                yield Dropped(row, "late")  # whether it came before is no longer known
            elif all(abs(row.timestamp - each) >= self.within for each in seen):
                seen = sorted([*seen, row.timestamp])
                yield Out(row.value, tombstone=row.tombstone, source=row)
        if seen is not was:
            self._keep(seen, state, timers)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time = timers.stream_time
        assert time is not None
        # A late record may still be as far before it as this one is after the end.
        self._keep(
            [each for each in state.get("seen", ()) if each + 2 * self.within > time], state, timers
        )
        yield from ()

    def _keep(self, seen: list[int], state: KeyState, timers: Timers) -> None:
        if seen:
            state.set("seen", seen)
            timers.set(seen[0] + 2 * self.within, "seen")
        else:
            state.delete("seen")
