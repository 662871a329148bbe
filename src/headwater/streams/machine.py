"""Machines that work on the rows of one key, with state and timers, and what runs them.

A `KeyedMachine` is plain Python: rows of a key in, rows out; its state is a `KeyState`, its timers
are `Timers`. It knows nothing of Spark, and whatever runs it (`host` in Spark's workers,
`ProcessorTest` in a test) does so through `KeyedGroup`: the same order of rows, the same bytes of
state, the same timers, the same treatment of errors.

Times are milliseconds since 1970, as in records. Stream time is the watermark: up to there records
are taken to be complete, and what is before it is late.
"""

from __future__ import annotations

import traceback
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from headwater.streams.state_bytes import Names, Page, StateBytesError, decode, encode

Clock = Literal["event", "processing"]
OnError = Literal["fail", "continue", "dead_letter"]
Headers = Sequence[tuple[str, bytes | None]]

_TIMERS = ""  # the field of a key's state that has its timers; no machine can have that name
_PAGE_BYTES = 32_768
_TRACEBACK_CHARACTERS_MAX = 8_000


class SameKey:
    """In place of the key of an output: that of the machine's input."""


SAME_KEY = SameKey()


@dataclass(slots=True)
class Row:
    """A record of a stream, or a change of a table."""

    key: Any
    value: Any  # columns by name; None if there is no value
    timestamp: int
    input: int = 0  # which of the machine's inputs
    tombstone: bool = False
    change: int = 1  # -1: this value of a table goes, +1: it comes
    headers: Headers = ()
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    window: tuple[int, int] | None = None
    raw: tuple[bytes | None, bytes | None] | None = None  # key and value as they were read


@dataclass(slots=True)
class Out:
    """A row that a machine emits. What it does not say (key, timestamp) is that of its source."""

    value: Any
    key: Any = SAME_KEY
    timestamp: int | None = None
    tombstone: bool = False
    change: int = 1
    headers: Headers | None = None  # None: those of its source
    window: tuple[int, int] | None = None
    source: Row | None = None  # the row that it is emitted for


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that is due. `at` is what it was set to; its clock may be further on."""

    at: int
    name: str = ""
    clock: Clock = "event"


@dataclass(slots=True)
class Failed:
    """A row that was not processed since a function raised, or since it did not fit."""

    row: Row | None  # None: a timer's
    error: BaseException
    field: str | None = None
    timer: Timer | None = None


@dataclass(slots=True)
class Dropped:
    """A row that has no effect, by the operator's rules: it is late, or has no key."""

    row: Row
    reason: Literal["late", "null key", "null value", "out of order"]


Emitted = Out | Failed | Dropped


class OperatorError(Exception):
    """A record could not be processed: one line with operator, field, topic and offset; the
    traceback of the function that raised comes after it."""


class StateVersionError(Exception):
    """The state in the checkpoint is of a version that the operator cannot read."""


@dataclass(slots=True)
class Times:
    """The clocks of a batch. Without a watermark, stream time is None."""

    stream_time: int | None
    now: int

    def of(self, clock: Clock) -> int | None:
        return self.stream_time if clock == "event" else self.now


class KeyState:
    """The state of one key: fields by name. A value that was changed in place has to be set."""

    __slots__ = ("changed", "fields")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.changed = False

    def get(self, name: str, default: Any = None) -> Any:
        return self.fields.get(name, default)

    def set(self, name: str, value: Any) -> None:
        self.fields[name] = value
        self.changed = True

    def delete(self, name: str) -> None:
        if name in self.fields:
            del self.fields[name]
            self.changed = True


class Timers:
    """The timers of one key. One for each name and clock: setting it again moves it."""

    __slots__ = ("_clocks", "_state", "_times")

    def __init__(self, state: KeyState, times: Times) -> None:
        self._state = state
        self._times = times
        # For each clock the timers by name, and the earliest time for which this key is indexed.
        self._clocks: dict[str, Any] = state.get(_TIMERS) or {}

    @property
    def stream_time(self) -> int | None:
        return self._times.stream_time

    @property
    def now(self) -> int:
        return self._times.now

    def set(self, at: int, name: str = "", clock: Clock = "event") -> None:
        timers = self._of(clock)
        if timers.get(name) != at:
            timers[name] = at
            self._save()

    def cancel(self, name: str = "", clock: Clock = "event") -> None:
        if self._of(clock).pop(name, None) is not None:
            self._save()

    def get(self, name: str = "", clock: Clock = "event") -> int | None:
        return self._of(clock).get(name)

    def all(self) -> list[Timer]:
        return sorted(
            (
                Timer(at, name, clock)
                for clock in ("event", "processing")
                for name, at in self._of(clock).items()
            ),
            key=lambda timer: (timer.at, timer.name),
        )

    def due(self) -> list[Timer]:
        if not self._clocks:
            return []
        found = []
        for timer in self.all():
            time = self._times.of(timer.clock)
            if time is not None and timer.at <= time:
                found.append(timer)
        return found

    def earliest(self, clock: Clock) -> int | None:
        timers = self._clocks.get(clock)
        return min(timers.values()) if timers else None

    def snapshot(self) -> dict[str, Any]:
        return {
            name: dict(each) if isinstance(each, dict) else each
            for name, each in self._clocks.items()
        }

    def restore(self, snapshot: dict[str, Any]) -> None:
        self._clocks = snapshot

    def indexed(self, clock: Clock) -> int | None:
        found: int | None = self._clocks.get(f"{clock} index")
        return found

    def index(self, clock: Clock, at: int | None) -> None:
        if at is None:
            self._clocks.pop(f"{clock} index", None)
        else:
            self._clocks[f"{clock} index"] = at
        self._save()

    def _of(self, clock: Clock) -> dict[str, int]:
        found: dict[str, int] = self._clocks.setdefault(clock, {})
        return found

    def _save(self) -> None:
        for clock in ("event", "processing"):
            if clock in self._clocks and not self._clocks[clock]:
                del self._clocks[clock]
        if self._clocks:
            self._state.set(_TIMERS, self._clocks)
        else:
            self._state.delete(_TIMERS)


class KeyedMachine(Protocol):
    """A stateful operator, applied to the rows of a key. Its only state is `state`; it is pickled.

    A machine raises for nothing that rows contain: it yields `Failed` for the row.
    """

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        """Rows of one key in one batch, in the order of `in_order`."""
        ...

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]: ...


Migrations = Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]]


def version_of(machine: object) -> int:
    """The version of a machine's state. A machine without `state_version` has 1."""
    return int(getattr(machine, "state_version", 1))


def migrations_of(machine: object) -> Migrations:
    """Functions that make the state of version n + 1 from that of version n, by n."""
    found: Migrations = getattr(machine, "migrations", {})
    return found


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Returns rows in the order in which Kafka Streams would take them from its inputs.

    The records of a partition stay in the order of their offsets; of several partitions the one
    whose next record has the lowest timestamp is next. Rows of the same record stay as they are.
    """
    given = list(rows)
    if len(given) < 2:
        return given
    queues: dict[tuple[int, str | None, int | None], list[Row]] = {}
    for row in given:
        queues.setdefault((row.input, row.topic, row.partition), []).append(row)
    for queue in queues.values():
        queue.sort(key=_offset)
    if len(queues) == 1:
        return next(iter(queues.values()))
    # Few partitions have rows of one key, so the lowest is looked for.
    rest = {_first(name): queue[::-1] for name, queue in queues.items()}
    merged: list[Row] = []
    while rest:
        best = min(rest, key=lambda name: (rest[name][-1].timestamp, name))
        merged.append(rest[best].pop())
        if not rest[best]:
            del rest[best]
    return merged


def _offset(row: Row) -> tuple[int, int, int]:
    # What does not come from a topic, such as the output of a timer, is ordered by its time.
    if row.offset is None:
        return (-1, row.timestamp, row.change)
    return (row.offset, 0, row.change)


def _first(name: tuple[int, str | None, int | None]) -> tuple[int, str, int]:
    return (-name[0], name[1] or "", -1 if name[2] is None else name[2])


def packed(row: Row) -> list[Any]:
    """Returns what has to be kept of a row that waits in the state of its key."""
    headers = [list(header) for header in row.headers]
    place = [row.topic, row.partition, row.offset]
    return [row.timestamp, row.value, headers, row.tombstone, *place, row.input]


def unpacked(kept: list[Any], key: Any) -> Row:
    timestamp, value, headers, tombstone, topic, partition, offset, input_ = kept
    return Row(
        key,
        value,
        timestamp,
        input_,
        tombstone,
        headers=[tuple(header) for header in headers],
        topic=topic,
        partition=partition,
        offset=offset,
    )


class Cells(Protocol):
    """The entries of a group's state, by number."""

    def read(self, number: int) -> bytes | None: ...

    def write(self, number: int, data: bytes) -> None: ...

    def remove(self, number: int) -> None: ...

    def wake(self, at: int, clock: Clock) -> None:
        """Has the group's `on_time` called when the clock has reached this time."""
        ...


_META = -1
_SLOTS_EVENT = -1 << 61
_SLOTS_PROCESSING = -1 << 62


class _Shelf:
    """The pages of a group, and which keys have timers when.

    Keys are spread over pages by linear hashing: one page after the other is split as state grows,
    so pages keep about the same size, and a batch reads and writes those of the keys it has.
    """

    def __init__(
        self,
        cells: Cells,
        machine: KeyedMachine,
        name: str,
        *,
        is_paged: bool,
        reference: dict[Clock, int],
    ) -> None:
        self._cells = cells
        self._name = name
        self._version = version_of(machine)
        self._migrations = migrations_of(machine)
        self._is_paged = is_paged
        self._reference = reference  # slots of timers are finer near this time
        self._pages: dict[int, Page] = {}
        self._sizes: dict[int, int] = {}  # of pages as they were read
        self._changed: set[int] = set()
        self._slots: dict[tuple[Clock, int], dict[bytes, int]] = {}
        meta: dict[str, Any] = {}
        if is_paged and (data := cells.read(_META)) is not None:
            meta = decode(data)
        self._meta_was = meta
        self._count: int = meta.get("pages", 1)
        self._bytes: int = meta.get("bytes", 0)
        self._due: dict[Clock, dict[int, int]] = {
            "event": dict(meta.get("event", {})),
            "processing": dict(meta.get("processing", {})),
        }

    def load(self, key: bytes) -> KeyState:
        page = self._page(self._number(key))
        data = page.entries.get(key)
        if data is None:
            return KeyState({})
        try:
            fields = decode(data, page.names)
        except StateBytesError as error:
            raise StateVersionError(f"operator {self._name}: {error}") from None
        return KeyState(fields)

    def save(self, key: bytes, state: KeyState) -> None:
        number = self._number(key)
        page = self._page(number)
        if state.fields:
            try:
                page.entries[key] = encode(state.fields, page.names)
            except StateBytesError as error:
                raise OperatorError(f"operator {self._name}: {error}") from None
        elif key in page.entries:
            del page.entries[key]
        self._changed.add(number)

    def index(self, key: bytes, clock: Clock, at: int) -> None:
        """Remembers that a key has a timer at this time."""
        if not self._is_paged:
            self._cells.wake(at, clock)
            return
        slot = _slot(at, self._reference[clock])
        entries = self._slot(clock, slot)
        entries[key] = min(at, entries.get(key, at))
        if at < self._due[clock].get(slot, at + 1):
            self._due[clock][slot] = at
            self._cells.wake(at, clock)

    def take_due(self, clock: Clock, time: int) -> list[bytes]:
        """Returns keys that are indexed up to this time, and forgets what they are indexed for."""
        if not self._is_paged:
            return []
        found: dict[bytes, int] = {}
        for slot in [slot for slot, at in self._due[clock].items() if at <= time]:
            entries = self._slot(clock, slot)
            rest = {key: at for key, at in entries.items() if at > time}
            found.update((key, at) for key, at in entries.items() if at <= time)
            entries.clear()
            del self._due[clock][slot]
            for key, at in rest.items():  # into finer slots: their time has come near
                self.index(key, clock, at)
        return sorted(found, key=lambda key: (found[key], key))

    def next_due(self, clock: Clock) -> int | None:
        return min(self._due[clock].values(), default=None)

    def flush(self) -> None:
        if self._is_paged:
            self._grow()
        for number in self._changed:
            self._flush_page(number)
        for (clock, slot), entries in self._slots.items():
            if entries:
                self._cells.write(_slot_number(clock, slot), encode(entries))
            else:
                self._cells.remove(_slot_number(clock, slot))
        if not self._is_paged:
            return
        meta: dict[str, Any] = {"pages": self._count, "bytes": self._bytes}
        meta.update((str(clock), due) for clock, due in self._due.items())
        if meta != self._meta_was:
            self._cells.write(_META, encode(meta))

    def pages(self) -> Iterator[Page]:
        for number in range(self._count):
            yield self._page(number)

    def _flush_page(self, number: int) -> None:
        page = self._pages[number]
        data = page.to_bytes() if page.entries else b""
        self._bytes += len(data) - self._sizes[number]
        self._sizes[number] = len(data)
        if data:
            self._cells.write(number, data)
        else:
            self._cells.remove(number)

    def _grow(self) -> None:
        grown = self._bytes
        for number in self._changed:
            page = self._pages[number]
            size = sum(map(len, page.entries)) + sum(map(len, page.entries.values()))
            grown += size + 8 * len(page.entries) - self._sizes[number]
        while grown > self._count * _PAGE_BYTES:
            self._split()

    def _split(self) -> None:
        new = self._count
        level = 1 << (new.bit_length() - 1)
        old = self._page(new - level)
        page = Page(self._version, names=Names(list(old.names.list)))
        self._count += 1
        for key in [key for key in old.entries if self._number(key) == new]:
            page.entries[key] = old.entries.pop(key)
        self._pages[new] = page
        self._sizes[new] = 0
        self._changed |= {new, new - level}

    def _number(self, key: bytes) -> int:
        if self._count == 1:
            return 0
        level = 1 << (self._count.bit_length() - 1)
        hashed = zlib.crc32(key)
        number = hashed & (2 * level - 1)
        return number if number < self._count else number & (level - 1)

    def _page(self, number: int) -> Page:
        page = self._pages.get(number)
        if page is not None:
            return page
        data = self._cells.read(number)
        if data is None:
            page = Page(self._version)
        else:
            try:
                page = Page.from_bytes(data)
            except StateBytesError as error:
                raise StateVersionError(f"operator {self._name}: {error}") from None
            if page.version != self._version:
                page = self._migrated(page)
                self._changed.add(number)
        self._pages[number] = page
        self._sizes[number] = len(data) if data is not None else 0
        return page

    def _migrated(self, page: Page) -> Page:
        if page.version > self._version:
            raise StateVersionError(
                f"operator {self._name}: its state was written by version {page.version}, and this "
                f"code has version {self._version}; run the newer code, or reset the application"
            )
        steps = []
        for version in range(page.version, self._version):
            if version not in self._migrations:
                raise StateVersionError(
                    f"operator {self._name}: its state has version {page.version}, the code has "
                    f"version {self._version}, and no migration leads from version {version} to "
                    f"{version + 1}; add it, or reset the application"
                )
            steps.append((version, self._migrations[version]))

        def change(fields: dict[str, Any]) -> dict[str, Any]:
            own = {name: fields.pop(name) for name in list(fields) if _is_own(name)}
            for version, step in steps:
                try:
                    fields = dict(step(fields))
                except Exception as error:
                    raise StateVersionError(
                        f"operator {self._name}: the migration of its state from version {version} "
                        f"failed: {type(error).__name__}: {error}"
                    ) from error
            return {**fields, **own}

        return page.migrated(self._version, change)

    def _slot(self, clock: Clock, slot: int) -> dict[bytes, int]:
        found = self._slots.get((clock, slot))
        if found is None:
            data = self._cells.read(_slot_number(clock, slot)) if slot in self._due[clock] else None
            found = decode(data) if data is not None else {}
            self._slots[clock, slot] = found
        return found


def _is_own(name: str) -> bool:
    """Whether a field is for timers, times to live or records that wait, and none of the user's."""
    return name == _TIMERS or name[0] == "\0"


def _slot(at: int, reference: int) -> int:
    """Returns the slot for a time: a second wide if it is near, wider if it is far away. So there
    are few of them, and what is due is found without looking at what is not."""
    distance = max(at - reference, 0)
    width = max(10, (distance >> 5).bit_length())
    return (at >> width) * 64 + width


def _slot_number(clock: Clock, slot: int) -> int:
    return (_SLOTS_EVENT if clock == "event" else _SLOTS_PROCESSING) + slot


@dataclass(slots=True)
class KeyedGroup:
    """Runs a machine on the rows of a batch that share a group: a bucket of keys, or one key."""

    machine: KeyedMachine
    name: str
    cells: Cells
    times: Times
    is_paged: bool = True
    on_error: OnError = "fail"
    key: Any = None  # of a group that is one key
    reference: int = 0
    _shelf: _Shelf = field(init=False)
    _next: int | None = field(init=False, default=None)  # timer in event time of the last key

    def __post_init__(self) -> None:
        self._shelf = _Shelf(
            self.cells,
            self.machine,
            self.name,
            is_paged=self.is_paged,
            reference={
                "event": max(self.reference, self.times.stream_time or 0),
                "processing": self.times.now,
            },
        )

    def on_rows(self, rows: Iterable[Row]) -> Iterator[Emitted]:
        """Yields what is emitted; outputs have key, timestamp and headers."""
        by_key: dict[Any, list[Row]] = {}
        encoded: dict[bytes, Any] = {}
        for row in rows:
            try:
                by_key.setdefault(row.key, []).append(row)
            except TypeError:  # a key of several fields is a dict
                data = encode(row.key)
                found = encoded.setdefault(data, _Encoded(data))
                by_key.setdefault(found, []).append(row)
        for key, given in by_key.items():
            data = key.data if isinstance(key, _Encoded) else encode(key)
            yield from self._key(given[0].key, data, in_order(given))
        self._shelf.flush()

    def on_time(self) -> Iterator[Emitted]:
        """Fires the timers that are due. Called when a time has come that `wake` was called for."""
        if not self.is_paged:
            yield from self._key(self.key, encode(self.key), [])
        for clock in _CLOCKS:
            time = self.times.of(clock)
            if time is None:
                continue
            for data in self._shelf.take_due(clock, time):
                yield from self._key(decode(data), data, [], woken=clock)
        self._shelf.flush()

    def poll(self) -> None:
        """Has the group woken again if any of its timers is in event time: for a host that wakes by
        the other clock only."""
        at = self._shelf.next_due("event") if self.is_paged else self._next
        if at is not None:
            self.cells.wake(at, "event")

    def states(self) -> Iterator[tuple[Any, dict[str, Any], list[Timer]]]:
        """Yields keys with their state and timers."""
        for page in self._shelf.pages():
            yield from states_of(page)

    def _key(
        self, key: Any, data: bytes, rows: list[Row], *, woken: Clock | None = None
    ) -> Iterator[Emitted]:
        state = self._shelf.load(data)
        timers = Timers(state, self.times)
        if woken is not None and timers.indexed(woken) is not None:
            timers.index(woken, None)
        # Their time came before these rows, whether or not a batch ran in between.
        yield from self._fire(key, state, timers)
        if rows:
            for each in self.machine.on_rows(key, rows, state, timers):
                yield from self._handled(each, key, rows[-1].timestamp)
            yield from self._fire(key, state, timers)
        self._index(data, timers)
        if state.changed:
            self._shelf.save(data, state)

    def _fire(self, key: Any, state: KeyState, timers: Timers) -> Iterator[Emitted]:
        for timer in timers.due():
            if timers.get(timer.name, timer.clock) != timer.at:
                continue  # one that fired before it has cancelled or moved it
            timers.cancel(timer.name, timer.clock)
            for each in self.machine.on_timer(key, timer, state, timers):
                if isinstance(each, Failed) and each.row is None:
                    each.timer = timer
                yield from self._handled(each, key, timer.at)

    def _index(self, data: bytes, timers: Timers) -> None:
        self._next = timers.earliest("event")
        for clock in _CLOCKS:
            earliest = timers.earliest(clock)
            if earliest is None:
                if timers.indexed(clock) is not None:
                    timers.index(clock, None)
                continue
            time = self.times.of(clock)
            # A timer that is set to a time in the past is due with the next batch.
            at = earliest if time is None else max(earliest, time + 1)
            indexed = timers.indexed(clock)
            if indexed is None or at < indexed or (time is not None and indexed <= time):
                timers.index(clock, at)
                self._shelf.index(data, clock, at)

    def _handled(self, each: Emitted, key: Any, timestamp: int) -> Iterator[Emitted]:
        if isinstance(each, Out):
            source = each.source
            if each.key is SAME_KEY:
                each.key = key
            if each.timestamp is None:
                each.timestamp = timestamp if source is None else source.timestamp
            if each.headers is None:
                each.headers = () if source is None else source.headers
            yield each
        elif isinstance(each, Dropped):
            yield each
        elif self.on_error == "fail":
            raise OperatorError(explained(self.name, each)) from each.error
        elif self.on_error == "dead_letter":
            yield each


_CLOCKS: tuple[Clock, Clock] = ("event", "processing")


def states_of(page: Page) -> Iterator[tuple[Any, dict[str, Any], list[Timer]]]:
    """Yields the keys of a page with their state and timers."""
    for key, fields in page:
        timers = Timers(KeyState(fields), Times(None, 0)).all()
        yield key, {name: each for name, each in fields.items() if not _is_own(name)}, timers


class _Encoded:
    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def mark(state: KeyState, timers: Timers) -> Any:
    """Remembers state and timers as they are before a row."""
    return dict(state.fields), timers.snapshot()


def undo(state: KeyState, timers: Timers, marked: Any) -> None:
    """Makes state and timers what they were: a row that fails has no effect at all."""
    fields, clocks = marked
    timers.restore(clocks)
    if clocks:
        fields[_TIMERS] = clocks
    state.fields = fields


def reason(name: str, failed: Failed) -> str:
    """Returns the line that says what failed where."""
    places = []
    if failed.field is not None:
        places.append(f"field {failed.field}")
    row = failed.row
    if row is not None and row.topic is not None:
        places.append(f"topic {row.topic}")
        if row.partition is not None:
            places.append(f"partition {row.partition}")
        if row.offset is not None:
            places.append(f"offset {row.offset}")
    elif failed.timer is not None:
        timer = failed.timer
        places.append(f"timer {timer.name!r} at {timer.at}" if timer.name else f"timer {timer.at}")
    where = f" ({', '.join(places)})" if places else ""
    text = " ".join(str(failed.error).split())
    return f"operator {name}{where}: {type(failed.error).__name__}: {text}"


def traceback_of(error: BaseException) -> str:
    """Returns the traceback, without the frames of the machinery around the user's function."""
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    text = "".join(lines)
    if len(text) > _TRACEBACK_CHARACTERS_MAX:
        half = _TRACEBACK_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n...\n{text[-half:]}"
    return text


def explained(name: str, failed: Failed) -> str:
    return f"{reason(name, failed)}\n{traceback_of(failed.error)}"
