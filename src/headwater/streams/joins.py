"""Joins as keyed machines: with tables, between tables, by foreign key, and those of streams that
Spark has no operator for.

Machines see columns: `combine` takes those of the left and of the right value (None where there is
none) and returns those of the result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headwater.streams.machine import (
    Dropped,
    Emitted,
    Failed,
    KeyState,
    Out,
    Row,
    Timer,
    Timers,
    packed,
    unpacked,
)
from headwater.streams.state_bytes import decode, encode

Columns = dict[str, Any]
Combine = Callable[[Columns | None, Columns | None], Columns | None]

_HELD = "held"
_VERSIONS = "versions"


def both(left: Columns | None, right: Columns | None) -> Columns:
    """Has the columns of both; of two with the same name the left one."""
    return {**(right or {}), **(left or {})}


def _value(row: Row) -> Columns | None:
    return None if row.tombstone or row.value is None else row.value


# Versioned tables


def put_version(
    versions: list[list[Any]], timestamp: int, value: Any, horizon: int | None
) -> list[list[Any]] | None:
    """Adds a version to those of a key, oldest first; None in place of a value is a deletion.

    Versions that were over before `horizon` are forgotten. A version from before it is refused:
    None.
    """
    if horizon is not None and timestamp < horizon and versions:
        return None
    at = bisect_right(versions, timestamp, key=lambda version: int(version[0]))
    added = [*versions]
    if at and added[at - 1][0] == timestamp:
        added[at - 1] = [timestamp, value]  # the later record of the same time counts
    else:
        added.insert(at, [timestamp, value])
    return prune_versions(added, horizon)


def prune_versions(versions: list[list[Any]], horizon: int | None) -> list[list[Any]]:
    if horizon is None:
        return versions
    first = max(bisect_right(versions, horizon, key=lambda version: int(version[0])) - 1, 0)
    kept = versions[first:]
    while kept and kept[0][1] is None and kept[0][0] <= horizon:
        kept = kept[1:]
    return kept


def version_at(versions: Sequence[Sequence[Any]], timestamp: int) -> Any:
    """Returns the value as of a time; None if there was none."""
    at = bisect_right(versions, timestamp, key=lambda version: int(version[0]))
    return versions[at - 1][1] if at else None


@dataclass
class StreamTableJoin:
    """Joins records (input 0) with the value that a table (input 1) has for their key.

    history: for so many milliseconds versions of the table are kept, and a record is joined with
        the one as of its own time; None: with the latest one
    grace: a record waits until stream time is so far beyond it, so that changes of the table that
        come late are taken into account; None: it does not wait
    """

    combine: Combine = both
    how: Literal["inner", "left"] = "inner"
    history: int | None = None
    grace: int | None = None

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        held: list[Row] = []
        time = timers.stream_time
        for row in rows:
            if row.input == 1:
                yield from self._change(key, row, state, timers)
            elif row.value is None or row.tombstone:
                yield Dropped(row, "null value")
            elif key is None:
                if self.how == "left":
                    yield from self._joined(row, None)
                else:
                    yield Dropped(row, "null key")
            elif self.grace is None or (time is not None and row.timestamp + self.grace <= time):
                yield from self._joined(row, self._lookup(state, row.timestamp))
            else:
                held.append(row)
        if held:
            kept = [*state.get(_HELD, ()), *map(packed, held)]
            kept.sort(key=lambda each: int(each[0]))
            self._hold(kept, state, timers)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time, grace = timers.stream_time, self.grace or 0
        assert time is not None
        kept = state.get(_HELD, [])
        due = [each for each in kept if each[0] + grace <= time]
        for each in due:
            row = unpacked(each, key)
            yield from self._joined(row, self._lookup(state, row.timestamp))
        self._hold(kept[len(due) :], state, timers)

    def _hold(self, kept: list[Any], state: KeyState, timers: Timers) -> None:
        if not kept:
            state.delete(_HELD)
            return
        state.set(_HELD, kept)
        timers.set(kept[0][0] + (self.grace or 0), _HELD)

    def _change(self, key: Any, row: Row, state: KeyState, timers: Timers) -> Iterator[Emitted]:
        if key is None:
            yield Dropped(row, "null key")
            return
        value = _value(row)
        if self.history is None:
            if value is None:
                state.delete(_VERSIONS)
            else:
                state.set(_VERSIONS, [[row.timestamp, value]])
            return
        versions = state.get(_VERSIONS, [])
        latest = max(versions[-1][0] if versions else 0, row.timestamp, timers.stream_time or 0)
        found = put_version(versions, row.timestamp, value, latest - self.history)
        if found is None:
            yield Dropped(row, "late")
        elif found:
            state.set(_VERSIONS, found)
        else:
            state.delete(_VERSIONS)

    def _lookup(self, state: KeyState, timestamp: int) -> Columns | None:
        versions = state.get(_VERSIONS, ())
        if self.history is None:
            return versions[0][1] if versions else None
        found: Columns | None = version_at(versions, timestamp)
        return found

    def _joined(self, row: Row, right: Columns | None) -> Iterator[Emitted]:
        if right is None and self.how == "inner":
            return
        try:
            result = self.combine(row.value, right)
        except Exception as error:
            yield Failed(row, error)
            return
        yield Out(result, source=row, tombstone=result is None)


@dataclass
class TableTableJoin:
    """Joins two tables (inputs 0 and 1) that have the same keys, and gives the changes of the table
    of their results.

    versioned: of which inputs a change from before the latest one is ignored
    each_change: a result for each change, instead of one for each batch
    """

    combine: Combine = both
    how: Literal["inner", "left", "outer"] = "inner"
    versioned: tuple[bool, bool] = (False, False)
    each_change: bool = False

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        sides: list[Any] = [state.get("left"), state.get("right")]
        last: Row | None = None
        for row in rows:
            if key is None:
                yield Dropped(row, "null key")
                continue
            side = sides[row.input]
            if self.versioned[row.input] and side is not None and row.timestamp < side[0]:
                yield Dropped(row, "out of order")
                continue
            # A deletion is kept with its time where an earlier change may still come.
            value = _value(row)
            is_kept = value is not None or self.versioned[row.input]
            sides[row.input] = [row.timestamp, value] if is_kept else None
            if value is None and (side is None or side[1] is None):
                continue  # nothing was there: this is no change
            last = row
            if self.each_change:
                yield from self._result(row, sides, state)
        if last is not None and not self.each_change:
            yield from self._result(last, sides, state)
        for name, side in zip(("left", "right"), sides, strict=True):
            if side is None:
                state.delete(name)
            elif side is not state.get(name):
                state.set(name, side)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from ()

    def _result(self, row: Row, sides: list[Any], state: KeyState) -> Iterator[Emitted]:
        left, right = (None if side is None else side[1] for side in sides)
        has = {
            "inner": left is not None and right is not None,
            "left": left is not None,
            "outer": left is not None or right is not None,
        }[self.how]
        result = None
        if has:
            try:
                result = self.combine(left, right)
            except Exception as error:
                yield Failed(row, error)
                return
        if result is None and not state.get("emitted"):
            return
        # As in Kafka Streams, a result is as new as the newer of what it is made of.
        times = [side[0] for side in sides if side is not None and side[1] is not None]
        timestamp = max([row.timestamp, *times])
        if result is None:
            state.delete("emitted")
        elif not state.get("emitted"):
            state.set("emitted", True)
        yield Out(result, timestamp=timestamp, tombstone=result is None, source=row)


# Foreign keys: a row of the left table names its row of the right one. Three machines: by the left
# key, which sends a subscription to the foreign key and takes back the one before; by foreign key;
# and by the left key again, since the results of one left row come from several foreign keys.

LEFT_KEY, LEFT, SEQUENCE, MOVED = "_left_key", "_left", "_sequence", "_moved"
RIGHT, FOUND = "_right", "_found"


@dataclass
class ForeignKeySubscribe:
    """Keyed by the left key. Its output is keyed by the foreign key: the columns LEFT_KEY, LEFT (a
    struct; null takes the subscription back), SEQUENCE (long) and MOVED (boolean)."""

    foreign_key: Callable[[Columns], Any]
    how: Literal["inner", "left"] = "inner"

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        last: Row | None = None
        found: Any = None
        for row in rows:
            if key is None:
                yield Dropped(row, "null key")
                continue
            value = _value(row)
            try:
                new = None if value is None else self.foreign_key(value)
            except Exception as error:
                yield Failed(row, error)
                continue
            last, found = row, new
        if last is not None:
            yield from self._changed(key, last, found, state)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from ()

    def _changed(self, key: Any, row: Row, new: Any, state: KeyState) -> Iterator[Emitted]:
        value = _value(row)
        known = state.get("foreign")  # the foreign key, the number of the change
        old, sequence = known if known is not None else (None, 0)
        sequence += 1
        is_subscribed = known is not None and (old is not None or self.how == "left")
        wants = value is not None and (new is not None or self.how == "left")

        def out(foreign: Any, left: Columns | None, moved: bool) -> Out:
            columns = {LEFT_KEY: key, LEFT: left, SEQUENCE: sequence, MOVED: moved}
            return Out(columns, foreign, source=row, change=-1 if left is None else 1)

        if is_subscribed and (not wants or old != new):
            # Only the last change of a row has a result: if it has another foreign key now, the
            # result comes from there.
            yield out(old, None, moved=wants)
        if wants:
            yield out(new, value, moved=is_subscribed)
        if value is None:
            state.delete("foreign")
        else:
            state.set("foreign", [new, sequence])


@dataclass
class ForeignKeyLookup:
    """Keyed by the foreign key: subscriptions (input 0) and the right table (input 1). Its output
    is keyed by the left key: LEFT and RIGHT (structs), SEQUENCE, and FOUND (boolean: there is a
    result). It has no tombstones, which would come to the next machine without SEQUENCE."""

    how: Literal["inner", "left"] = "inner"

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        if key is None:
            yield from self._without_key(rows)
            return
        was: list[Any] | None = state.get("right")
        right = was
        known: dict[bytes, list[Any]] = state.get("left", {})
        left = dict(known) if any(row.input == 0 for row in rows) else known
        touched: dict[bytes, tuple[Row, bool]] = {}  # and whether there may be a result already
        gone: list[tuple[bytes, Row, int]] = []
        change: Row | None = None
        for row in rows:
            if row.input == 1:
                value = _value(row)
                right, change = None if value is None else [row.timestamp, value], row
                continue
            data = encode(row.value[LEFT_KEY])
            if row.value[LEFT] is not None:
                left[data] = [row.timestamp, row.value[SEQUENCE], row.value[LEFT]]
                touched[data] = row, row.value[MOVED]
            else:
                left.pop(data, None)
                touched.pop(data, None)
                if not row.value[MOVED]:
                    gone.append((data, row, row.value[SEQUENCE]))
        if change is not None:
            for data in left:
                touched.setdefault(data, (change, True))
        self._keep(state, right, left, is_changed=left is not known)
        for data, row, sequence in gone:
            if data not in left:
                yield _lookup(data, None, sequence, row, row.timestamp)
        for data, (row, may_exist) in touched.items():
            yield from self._result(data, left[data], right, row, may_exist or was is not None)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from ()

    def _keep(
        self, state: KeyState, right: Any, left: dict[bytes, list[Any]], *, is_changed: bool
    ) -> None:
        if right is None:
            state.delete("right")
        elif right is not state.get("right"):
            state.set("right", right)
        if not left:
            state.delete("left")
        elif is_changed:
            state.set("left", left)

    def _result(
        self, data: bytes, kept: list[Any], right: Any, row: Row, may_exist: bool
    ) -> Iterator[Emitted]:
        time, sequence, left = kept
        timestamp = max(row.timestamp, time, right[0] if right is not None else 0)
        if right is not None or self.how == "left":
            sides = left, None if right is None else right[1]
            yield _lookup(data, sides, sequence, row, timestamp)
        elif may_exist:
            yield _lookup(data, None, sequence, row, timestamp)

    def _without_key(self, rows: Sequence[Row]) -> Iterator[Emitted]:
        """Rows of the left table without a foreign key: nothing can ever match."""
        for row in rows:
            if row.input == 1:
                yield Dropped(row, "null key")
                continue
            data = encode(row.value[LEFT_KEY])
            left, sequence = row.value[LEFT], row.value[SEQUENCE]
            if left is not None:
                yield from self._result(
                    data, [row.timestamp, sequence, left], None, row, row.value[MOVED]
                )
            elif not row.value[MOVED]:
                yield _lookup(data, None, sequence, row, row.timestamp)


def _lookup(
    data: bytes,
    sides: tuple[Columns, Columns | None] | None,
    sequence: int,
    row: Row,
    timestamp: int,
) -> Out:
    left, right = sides or (None, None)
    columns = {LEFT: left, RIGHT: right, SEQUENCE: sequence, FOUND: sides is not None}
    return Out(columns, decode(data), timestamp, source=row)


@dataclass
class ForeignKeyResolve:
    """Keyed by the left key: of the results of several foreign keys the one of the row's latest
    change counts, even where those keys are in batches of their own."""

    combine: Combine = both

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        row = max(rows, key=lambda each: int(each.value[SEQUENCE]))
        sequence = row.value[SEQUENCE]
        known = state.get("sequence")
        if known is not None and sequence < known:
            return  # from a foreign key that the row no longer has
        result: Columns | None = None
        if row.value[FOUND]:
            try:
                result = self.combine(row.value[LEFT], row.value[RIGHT])
            except Exception as error:
                yield Failed(row, error)
                return
        if result is None:
            if known is None:
                return
            state.delete("sequence")
        elif known != sequence:
            state.set("sequence", sequence)
        yield Out(result, tombstone=result is None, source=row)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        yield from ()


# Streams


@dataclass
class StreamStreamJoin:
    """Joins two streams (inputs 0 and 1) where their times are near: what Spark has no operator
    for, or none in update mode.

    A left record at t matches right ones from t - before to t + after. Where there is nothing to
    join with, that is known when stream time is beyond all that could have matched, and `grace`.
    `semi` has the left records that match, once; `anti` those that do not.
    """

    before: int
    after: int
    grace: int = 0
    combine: Combine = both
    how: Literal["inner", "left", "right", "outer", "semi", "anti"] = "inner"
    _lonely: tuple[bool, bool] = field(init=False)  # of which side a record alone has a result

    def __post_init__(self) -> None:
        self._lonely = (
            self.how in ("left", "outer", "anti"),
            self.how in ("right", "outer"),
        )

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        sides: list[list[list[Any]]] = [
            [list(each) for each in state.get(name, ())] for name in ("left", "right")
        ]
        time = timers.stream_time
        for row in rows:
            if row.value is None or row.tombstone:
                yield Dropped(row, "null value")
            elif key is None:
                if self._lonely[row.input]:
                    yield from self._alone(row)
                else:
                    yield Dropped(row, "null key")
            elif time is not None and self._end(row.input, row.timestamp) <= time:
                yield Dropped(row, "late")
            else:
                yield from self._match(key, row, sides)
        self._keep(sides, state, timers)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time = timers.stream_time
        assert time is not None
        sides: list[list[list[Any]]] = []
        for side, name in enumerate(("left", "right")):
            rest: list[list[Any]] = []
            kept: list[list[Any]] = state.get(name, [])
            for each in kept:
                if self._end(side, each[0][0]) > time:
                    rest.append(each)
                elif not each[1] and self._lonely[side]:
                    yield from self._alone(unpacked(each[0], key))
            sides.append(rest)
        self._keep(sides, state, timers)

    def _end(self, side: int, timestamp: int) -> int:
        """Returns the time after which a record can match no other."""
        return timestamp + (self.after, self.before)[side] + self.grace

    def _match(self, key: Any, row: Row, sides: list[list[list[Any]]]) -> Iterator[Emitted]:
        before, after = (self.before, self.after) if row.input == 0 else (self.after, self.before)
        own: list[Any] = [packed(row), False]  # and whether it has matched
        for other in sides[1 - row.input]:
            if not row.timestamp - before <= other[0][0] <= row.timestamp + after:
                continue
            left, right = (own, other) if row.input == 0 else (other, own)
            if self.how == "semi":
                if not left[1]:
                    yield from self._emit(unpacked(left[0], key), left[0][1], None, row)
            elif self.how != "anti":
                yield from self._emit(
                    row, left[0][1], right[0][1], row, max(row.timestamp, other[0][0])
                )
            own[1] = other[1] = True
        sides[row.input].append(own)

    def _alone(self, row: Row) -> Iterator[Emitted]:
        left, right = (row.value, None) if row.input == 0 else (None, row.value)
        yield from self._emit(row, left, right, row)

    def _emit(
        self,
        row: Row,
        left: Columns | None,
        right: Columns | None,
        cause: Row,
        timestamp: int | None = None,
    ) -> Iterator[Emitted]:
        try:
            result = self.combine(left, right)
        except Exception as error:
            yield Failed(cause, error)
            return
        yield Out(result, timestamp=timestamp, tombstone=result is None, source=row)

    def _keep(self, sides: list[list[list[Any]]], state: KeyState, timers: Timers) -> None:
        ends = [self._end(side, each[0][0]) for side, rows in enumerate(sides) for each in rows]
        for name, rows in zip(("left", "right"), sides, strict=True):
            if rows:
                state.set(name, rows)
            else:
                state.delete(name)
        if ends:
            timers.set(min(ends), "end")
        else:
            timers.cancel("end")


def without(columns: Mapping[str, Any], names: Sequence[str]) -> Columns:
    return {name: each for name, each in columns.items() if name not in names}
