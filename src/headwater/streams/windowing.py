"""Aggregates in windows as keyed machines, with Python functions and early results.

Kafka Streams' rules: a window takes records until stream time reaches its end and its grace; then
it is closed, its state is gone, and what comes for it is late. A sliding window has both of its
ends; a session ends with its last record, and sessions that a record joins become one, which
deletes the results of those that were there before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from headwater.streams.machine import (
    Dropped,
    Emitted,
    Failed,
    KeyState,
    Out,
    Row,
    Timer,
    Timers,
)
from headwater.streams.tables import NOTHING, Fold

_CLOSE = "close"


def _refused(key: Any, row: Row) -> Dropped | None:
    if key is None:
        return Dropped(row, "null key")
    if row.value is None or row.tombstone:
        return Dropped(row, "null value")
    return None


@dataclass
class WindowedAggregate:
    """Tumbling and hopping windows of `size` milliseconds, one every `step`.

    final: one result when a window closes, instead of one for each batch that changes it
    """

    fold: Fold
    size: int
    step: int
    grace: int = 0
    final: bool = False
    each_change: bool = False

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        fold, time = self.fold, timers.stream_time
        kept: dict[int, list[Any]] = dict(state.get("windows", {}))
        live: dict[int, Any] = {}
        changed: dict[int, Row] = {}
        for row in rows:
            if (refused := _refused(key, row)) is not None:
                yield refused
                continue
            starts = [
                start
                for start in self._starts(row.timestamp)
                if time is None or start + self.size + self.grace > time
            ]
            if not starts:
                yield Dropped(row, "late")
                continue
            try:
                found = {}
                for start in starts:
                    aggregate = live.get(start, NOTHING)
                    if start not in live:
                        known = kept.get(start)
                        aggregate = fold.begin() if known is None else fold.taken(known[0])
                    found[start] = fold.plus(aggregate, row)
                columns = {start: fold.kept(each) for start, each in found.items()}
            except Exception as error:
                yield Failed(row, error)
                for start in starts:  # what is kept has not been touched by what raised
                    live.pop(start, None)
                continue
            live.update(found)
            for start in starts:
                newest = max(row.timestamp, kept[start][1] if start in kept else 0)
                kept[start] = [columns[start], newest]
                changed[start] = row
                if self.each_change and not self.final:
                    yield self._out(start, kept[start], row)
        if not changed:
            return
        state.set("windows", kept)
        timers.set(min(kept) + self.size + self.grace, _CLOSE)
        if not self.final and not self.each_change:
            for start in sorted(changed):
                yield self._out(start, kept[start], changed[start])

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time = timers.stream_time
        assert time is not None
        kept = state.get("windows", {})
        rest = {}
        for start in sorted(kept):
            if start + self.size + self.grace > time:
                rest[start] = kept[start]
            elif self.final:
                yield self._out(start, kept[start], None)
        if rest:
            state.set("windows", rest)
            timers.set(min(rest) + self.size + self.grace, _CLOSE)
        else:
            state.delete("windows")

    def restore(self, rows: Sequence[Row], state: KeyState, timers: Timers) -> None:
        kept = {}
        for row in rows:
            assert row.window is not None
            kept[row.window[0]] = [self.fold.restored(row), row.timestamp]
        state.set("windows", kept)
        timers.set(min(kept) + self.size + self.grace, _CLOSE)

    def _starts(self, timestamp: int) -> range:
        first = max(0, timestamp - self.size + self.step) // self.step * self.step
        return range(first, timestamp + 1, self.step)

    def _out(self, start: int, kept: list[Any], row: Row | None) -> Out:
        return Out(
            self.fold.columns(kept[0]),
            timestamp=kept[1],
            tombstone=kept[0] is None,
            window=(start, start + self.size),
            source=row,
        )


@dataclass
class SlidingAggregate:
    """A window for each set of records that are at most `size` milliseconds apart.

    For a record at t there is the window that ends with it, and the one that begins right after it
    if any record is in there. The records themselves are kept: an aggregate of a window between
    others is made from them.
    """

    fold: Fold
    size: int
    grace: int = 0
    final: bool = False

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time = timers.stream_time
        kept: list[list[Any]] = list(state.get("rows", ()))
        touched: dict[int, Row] = {}
        for row in rows:
            if (refused := _refused(key, row)) is not None:
                yield refused
                continue
            at = row.timestamp
            if time is not None and at + 1 + self.size + self.grace <= time:
                yield Dropped(row, "late")
                continue
            try:  # by itself: what fails in a window cannot be told from its other records
                self.fold.kept(self.fold.plus(self.fold.begin(), row))
            except Exception as error:
                yield Failed(row, error)
                continue
            insort(kept, [at, row.value, row.input], key=lambda each: int(each[0]))
            for start in self._windows_with(kept, at):
                if time is None or start + self.size + self.grace > time:
                    touched[start] = row
        if not touched:
            return
        state.set("rows", kept)
        if self.final:
            state.set("open", sorted({*state.get("open", ()), *touched}))
        self._schedule(kept, timers, state.get("open", ()))
        if self.final:
            return
        for start in sorted(touched):
            yield from self._result(start, kept, touched[start])

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time = timers.stream_time
        assert time is not None
        kept = state.get("rows", [])
        if self.final:
            waiting = state.get("open", [])
            closed = [start for start in waiting if start + self.size + self.grace <= time]
            for start in closed:
                yield from self._result(start, kept, None)
            if len(closed) < len(waiting):
                state.set("open", waiting[len(closed) :])
            else:
                state.delete("open")
        # A record is in windows that end up to `size` after it, and begins one right after it.
        rest = [each for each in kept if each[0] + 1 + self.size + self.grace > time]
        if rest:
            state.set("rows", rest)
            self._schedule(rest, timers, state.get("open", ()))
        else:
            state.delete("rows")

    def _schedule(self, kept: list[list[Any]], timers: Timers, waiting: Sequence[int]) -> None:
        after = self.size + self.grace
        # Those that wait end before the records in them are no longer needed.
        first = waiting[0] + after if waiting else kept[0][0] + 1 + after
        time = timers.stream_time
        timers.set(first if time is None else max(first, time + 1), _CLOSE)

    def _windows_with(self, kept: list[list[Any]], at: int) -> Iterator[int]:
        """Yields the starts of the windows that have a record at this time."""
        times = sorted({each[0] for each in kept})
        for each in times[bisect_left(times, at) : bisect_right(times, at + self.size)]:
            yield max(each - self.size, 0)  # those that end with a record
        for each in times[bisect_left(times, at - 1 - self.size) : bisect_left(times, at)]:
            yield each + 1  # those that begin after one
        after = bisect_right(times, at)
        is_first = sum(each[0] == at for each in kept) == 1  # otherwise the window is there
        if is_first and after < len(times) and times[after] <= at + 1 + self.size:
            yield at + 1

    def _result(self, start: int, kept: list[list[Any]], row: Row | None) -> Iterator[Emitted]:
        low = bisect_left(kept, start, key=lambda each: int(each[0]))
        high = bisect_right(kept, start + self.size, key=lambda each: int(each[0]))
        aggregate = self.fold.begin()
        try:
            for at, value, input_ in kept[low:high]:
                aggregate = self.fold.plus(aggregate, Row(None, value, at, input_))
            found = self.fold.kept(aggregate)
        except Exception as error:
            yield Failed(row, error)
            return
        yield Out(
            self.fold.columns(found),
            timestamp=kept[high - 1][0] if high > low else start,
            tombstone=found is None,
            window=(start, start + self.size),
            source=row,
        )


@dataclass
class SessionAggregate:
    """Sessions: records that are at most `gap` milliseconds apart. A window is (first, last)."""

    fold: Fold
    gap: int
    grace: int = 0
    final: bool = False

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        fold, time = self.fold, timers.stream_time
        was: list[list[Any]] = state.get("sessions", [])
        sessions = was
        last: Row | None = None
        for row in rows:
            if (refused := _refused(key, row)) is not None:
                yield refused
                continue
            at = row.timestamp
            near = [
                each for each in sessions if each[1] >= at - self.gap and each[0] <= at + self.gap
            ]
            start = min([at, *(each[0] for each in near)])
            end = max([at, *(each[1] for each in near)])
            if time is not None and end + self.gap + self.grace < time:
                yield Dropped(row, "late")
                continue
            try:
                aggregate = fold.begin()
                for each in near:
                    aggregate = fold.merged(aggregate, fold.taken(each[2]))
                found = fold.kept(fold.plus(aggregate, row))
            except Exception as error:
                yield Failed(row, error)
                continue
            sessions = [each for each in sessions if each not in near]
            if found is not None:
                insort(sessions, [start, end, found], key=lambda each: int(each[0]))
            last = row
        if last is None:
            return
        self._keep(sessions, state, timers)
        if not self.final:
            yield from self._changes(was, sessions, last)

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        time = timers.stream_time
        assert time is not None
        rest = []
        for each in state.get("sessions", ()):
            if each[1] + self.gap + self.grace >= time:
                rest.append(each)
            elif self.final:
                yield self._out(each, None)
        self._keep(rest, state, timers)

    def restore(self, rows: Sequence[Row], state: KeyState, timers: Timers) -> None:
        found = []
        for row in rows:
            assert row.window is not None
            found.append([*row.window, self.fold.restored(row)])
        self._keep(sorted(found, key=lambda each: int(each[0])), state, timers)

    def _keep(self, sessions: list[list[Any]], state: KeyState, timers: Timers) -> None:
        if sessions:
            state.set("sessions", sessions)
            end = min(each[1] for each in sessions)
            timers.set(end + self.gap + self.grace + 1, _CLOSE)
        else:
            state.delete("sessions")
            timers.cancel(_CLOSE)

    def _changes(
        self, was: list[list[Any]], sessions: list[list[Any]], row: Row
    ) -> Iterator[Emitted]:
        windows = {(each[0], each[1]) for each in sessions}
        for each in was:
            if (each[0], each[1]) not in windows:
                window = (each[0], each[1])
                yield Out(None, timestamp=each[1], tombstone=True, window=window, source=row)
        for each in sessions:
            if each not in was:
                yield self._out(each, row)

    def _out(self, session: list[Any], row: Row | None) -> Out:
        start, end, kept = session
        return Out(self.fold.columns(kept), timestamp=end, window=(start, end), source=row)
