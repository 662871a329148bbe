"""Processors: classes of the user's that see every record of a key, with state and timers.

    class Silence(Processor[str, Reading, Alarm]):
        last: State[datetime]

        def process(self, record: Record[str, Reading], ctx: Context[str]) -> None:
            self.last.set(record.value.at)
            ctx.timer(record.value.at + timedelta(minutes=5))

        def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[Alarm]:
            yield Alarm(ctx.key, self.last.get(at))

State is declared by annotations and always belongs to the current key. `ProcessorMachine` runs a
processor as a keyed machine: a record that fails leaves no trace in state, timers or output.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args, get_origin, overload

from headwater.streams.errors import TopologyError
from headwater.streams.joins import put_version, version_at
from headwater.streams.machine import (
    SAME_KEY,
    Clock,
    Emitted,
    Failed,
    Headers,
    KeyState,
    Out,
    Row,
    StateVersionError,
    Timer,
    Timers,
    mark,
    packed,
    undo,
    unpacked,
)
from headwater.streams.types import Shape, ShapeError, shape_of
from headwater.streams.windows import Duration, duration

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741
T = TypeVar("T")
KM = TypeVar("KM")

Time = Literal["none", "event", "processing", "both"]

_HELD = "\0rows"  # the timer and the field of records that wait for their time
_EXPIRY = "\0ttl"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def milliseconds(at: datetime | int) -> int:
    """Returns a time in milliseconds since 1970. One without a time zone is in UTC."""
    if isinstance(at, int):
        return at
    return ((at if at.tzinfo is not None else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND


def moment(ms: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=ms)


class _Unset:
    def __repr__(self) -> str:
        return "UNSET"


_UNSET: Any = _Unset()
UNSET = _UNSET  # what a record that is yielded does not say


@dataclass(slots=True)
class Record(Generic[K, V]):
    """A record as functions see it, and as they may yield it.

    In a record that is yielded, what is not given (key, timestamp, headers) is that of the record
    or the timer that it is yielded for. A value of None deletes the key in a table.
    """

    value: V
    key: K = _UNSET
    timestamp: datetime | None = None
    headers: Headers | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None

    def header(self, name: str) -> bytes | None:
        """Returns the last header of that name; None if there is none."""
        for key, value in reversed(self.headers or ()):
            if key == name:
                return value
        return None


# State


@dataclass(slots=True)
class _Current:
    """The processor's current record and key, shared by its states and its context."""

    state: KeyState
    timers: Timers
    time: int  # for time to live: stream time, or the record's if it is ahead; or the host's


@dataclass(frozen=True, slots=True)
class _Kept:
    """Encodes values of a type as state."""

    kind: Any
    shape: Shape | None  # None: as they are
    plain: type | None

    @classmethod
    def of(cls, kind: Any, where: str) -> _Kept:
        try:
            shape = shape_of(kind)
        except ShapeError as error:
            if not _is_plain(kind):
                raise TopologyError(where, str(error)) from None
            return cls(kind, None, None)
        return cls(kind, shape, kind if kind in (str, bytes, int, bool, datetime, date) else None)

    def put(self, value: Any) -> Any:
        shape = self.shape
        if shape is None:
            return value
        row = shape.to_row(value)
        return row if shape.is_record else row["value"]

    def take(self, kept: Any, name: str) -> Any:
        shape = self.shape
        if shape is None:
            return kept
        try:
            if self.plain is not None and kept is not None and type(kept) is not self.plain:
                raise ShapeError(f"expected {self.plain.__name__}, found {kept!r}"[:200])
            return shape.to_python(kept if shape.is_record else {"value": kept})
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise StateVersionError(
                f"state {name}: what is kept does not fit {shape.type_name}: {error}; give the "
                "processor the next `version` and a migration that changes what is kept"
            ) from None


def _is_plain(kind: Any) -> bool:
    """Whether values of this type can be kept as they are."""
    if kind in (Any, tuple, list, dict, set, frozenset, None, type(None)):
        return True
    origin = get_origin(kind)
    if origin in (tuple, list, dict, set, frozenset, typing.Union, types.UnionType):
        return all(each is Ellipsis or _is_plain(each) for each in get_args(kind))
    return kind in (str, bytes, int, float, bool, datetime, date, timedelta)


class _Store:
    """A state of a processor. When what is in it is over stands beside it, so that a time to live
    may be added or left out later."""

    _clock: Clock = "event"

    def __init__(self, *, ttl: Duration | None = None) -> None:
        self._ttl: int | None = None
        if ttl is not None:
            self._ttl = duration(ttl, "ttl") // _MILLISECOND
        self._name = ""
        self._current: _Current = cast("_Current", None)

    @property
    def ttl(self) -> int | None:
        """Milliseconds after which what was set is gone."""
        return self._ttl

    def clear(self) -> None:
        """Removes what is kept for the key."""
        self._current.state.delete(self._name)
        self._current.state.delete(f"{_EXPIRY}{self._name}")

    def _get(self, default: Any) -> Any:
        return self._current.state.fields.get(self._name, default)

    def _ends(self, default: Any) -> Any:
        """The expiry times of entries, in the shape of the entries."""
        if self._ttl is None:
            return default
        return self._current.state.fields.get(f"{_EXPIRY}{self._name}", default)

    def _put(self, kept: Any, ends: Any) -> None:
        self._current.state.set(self._name, kept)
        if self._ttl is not None:
            self._current.state.set(f"{_EXPIRY}{self._name}", ends)
        else:
            self._current.state.delete(f"{_EXPIRY}{self._name}")

    def _end(self) -> int | None:
        """Returns the time when an entry that is set now expires."""
        if self._ttl is None:
            return None
        end = self._current.time + self._ttl
        self._wake(end)
        return end

    def _wake(self, end: int) -> None:
        name, timers = f"{_EXPIRY}{self._name}", self._current.timers
        known = timers.get(name, self._clock)
        if known is None or known > end:
            timers.set(end, name, self._clock)

    def _lives(self, end: int | None) -> bool:
        return end is None or end > self._current.time

    def _expire(self) -> None:
        """Removes expired entries, and schedules the next call."""
        raise NotImplementedError


class State(_Store, Generic[T]):
    """One value for each key: `count: State[int]`, or `State(ttl="1 hour", default=0)`."""

    def __init__(self, *, ttl: Duration | None = None, default: T | None = None) -> None:
        super().__init__(ttl=ttl)
        self._default = default
        self._type: _Kept = cast("_Kept", None)

    @overload
    def get(self) -> T | None: ...
    @overload
    def get(self, default: T) -> T: ...
    def get(self, default: T | None = None) -> T | None:
        """Returns the value. If none is set: `default`, or the one of the declaration, or None."""
        kept = self._get(_UNSET)
        if kept is _UNSET or not self._lives(self._ends(None)):
            return default if default is not None else self._default
        found: T = self._type.take(kept, self._name)
        return found

    def set(self, value: T) -> None:
        self._put(self._type.put(value), self._end())

    def exists(self) -> bool:
        return self._get(_UNSET) is not _UNSET and self._lives(self._ends(None))

    def _bind(self, arguments: tuple[Any, ...], where: str) -> None:
        self._type = _Kept.of(arguments[0], where)

    def _expire(self) -> None:
        end = self._ends(None)
        if end is None:
            return
        if self._lives(end):
            self._wake(end)
        else:
            self.clear()


class ListState(_Store, Generic[T]):
    """A list for each key: `seen: ListState[str]`. With a time to live each element has its own."""

    def __init__(self, *, ttl: Duration | None = None) -> None:
        super().__init__(ttl=ttl)
        self._type: _Kept = cast("_Kept", None)

    def get(self) -> list[T]:
        return list(self)

    def set(self, values: Iterable[T]) -> None:
        self._replace([(self._type.put(value), self._end()) for value in values])

    def append(self, value: T) -> None:
        self.extend((value,))

    def extend(self, values: Iterable[T]) -> None:
        # A new list: if the record fails, the one before it is there again.
        self._replace([*self._pairs(), *((self._type.put(value), self._end()) for value in values)])

    def __iter__(self) -> Iterator[T]:
        for kept, end in self._pairs():
            if self._lives(end):
                yield self._type.take(kept, self._name)

    def __len__(self) -> int:
        return sum(self._lives(end) for _, end in self._pairs())

    def _pairs(self) -> list[tuple[Any, int | None]]:
        kept = self._get(())
        ends = list(self._ends(()))
        # Elements from before there was a time to live have none.
        return list(zip(kept, [None] * (len(kept) - len(ends)) + ends, strict=False))

    def _replace(self, pairs: list[tuple[Any, int | None]]) -> None:
        if pairs:
            self._put([kept for kept, _ in pairs], [end for _, end in pairs])
        else:
            self.clear()

    def _bind(self, arguments: tuple[Any, ...], where: str) -> None:
        self._type = _Kept.of(arguments[0], where)

    def _expire(self) -> None:
        pairs = [(kept, end) for kept, end in self._pairs() if self._lives(end)]
        self._replace(pairs)
        ends = [end for _, end in pairs if end is not None]
        if ends:
            self._wake(min(ends))


class MapState(_Store, Generic[KM, T]):
    """A dict for each key: `totals: MapState[str, float]`. Time to live counts for each entry."""

    def __init__(self, *, ttl: Duration | None = None) -> None:
        super().__init__(ttl=ttl)
        self._key_type: _Kept = cast("_Kept", None)
        self._type: _Kept = cast("_Kept", None)

    @overload
    def get(self, key: KM) -> T | None: ...
    @overload
    def get(self, key: KM, default: T) -> T: ...
    def get(self, key: KM, default: T | None = None) -> T | None:
        kept = self._kept(key)
        if kept is _UNSET:
            return default
        found: T = self._type.take(kept, self._name)
        return found

    def __getitem__(self, key: KM) -> T:
        kept = self._kept(key)
        if kept is _UNSET:
            raise KeyError(key)
        found: T = self._type.take(kept, self._name)
        return found

    def set(self, key: KM, value: T) -> None:
        name, end = self._key_type.put(key), self._end()
        ends = {} if end is None else {**self._ends({}), name: end}
        self._put({**self._get({}), name: self._type.put(value)}, ends)

    def __setitem__(self, key: KM, value: T) -> None:
        self.set(key, value)

    def remove(self, key: KM) -> None:
        self._leave_out(frozenset((self._key_type.put(key),)))

    def __delitem__(self, key: KM) -> None:
        self.remove(key)

    def __contains__(self, key: object) -> bool:
        return self._kept(key) is not _UNSET

    def __iter__(self) -> Iterator[KM]:
        return (key for key, _ in self.items())

    def keys(self) -> Iterator[KM]:
        return iter(self)

    def values(self) -> Iterator[T]:
        return (value for _, value in self.items())

    def items(self) -> Iterator[tuple[KM, T]]:
        ends = self._ends({})
        for name, kept in list(self._get({}).items()):
            if self._lives(ends.get(name)):
                yield (
                    self._key_type.take(name, self._name),
                    self._type.take(kept, self._name),
                )

    def __len__(self) -> int:
        ends = self._ends({})
        return sum(self._lives(ends.get(name)) for name in self._get({}))

    def _kept(self, key: Any) -> Any:
        name = self._key_type.put(key)
        kept = self._get({}).get(name, _UNSET)
        return kept if kept is _UNSET or self._lives(self._ends({}).get(name)) else _UNSET

    def _leave_out(self, names: frozenset[Any]) -> None:
        known = self._get({})
        kept = {name: each for name, each in known.items() if name not in names}
        if not kept:
            self.clear()
        elif len(kept) < len(known):
            self._put(kept, {name: end for name, end in self._ends({}).items() if name in kept})

    def _bind(self, arguments: tuple[Any, ...], where: str) -> None:
        self._key_type = _Kept.of(arguments[0], where)
        if self._key_type.shape is not None and self._key_type.shape.is_record:
            raise TopologyError(where, "the keys of a map are records", then="use text or a tuple")
        self._type = _Kept.of(arguments[1], where)

    def _expire(self) -> None:
        over = [name for name, end in self._ends({}).items() if not self._lives(end)]
        self._leave_out(frozenset(over))
        if ends := self._ends({}):
            self._wake(min(ends.values()))


class VersionedState(_Store, Generic[T]):
    """The values of a key over event time, with lookup as of a time: `prices: VersionedState[float]
    = VersionedState(history="1 day")`. Versions that were over before `history` are forgotten."""

    def __init__(self, *, history: Duration = timedelta(days=1)) -> None:
        super().__init__()
        self._history = duration(history, "history") // _MILLISECOND
        self._type: _Kept = cast("_Kept", None)

    def get(self, at: datetime | None = None) -> T | None:
        """Returns the value as of a time, or the latest one; None if there was none."""
        versions = self._versions()
        if at is None:
            kept = versions[-1][1] if versions else None
        else:
            kept = version_at(versions, milliseconds(at))
        found: T | None = None if kept is None else self._type.take(kept[0], self._name)
        return found

    def put(self, value: T, at: datetime) -> bool:
        """Sets the value from a time on, until that of the next version. False if the time is
        beyond the history."""
        return self._version([self._type.put(value)], at)

    def delete(self, at: datetime) -> bool:
        """From that time on there is no value, until that of the next version."""
        return self._version(None, at)

    def _version(self, kept: list[Any] | None, at: datetime) -> bool:
        versions, timestamp = self._versions(), milliseconds(at)
        latest = max(self._current.time, timestamp, versions[-1][0] if versions else 0)
        found = put_version(versions, timestamp, kept, latest - self._history)
        if found is None:
            return False
        if found:
            self._current.state.set(self._name, found)
        else:
            self.clear()
        return True

    def _versions(self) -> list[list[Any]]:
        found: list[list[Any]] = self._current.state.fields.get(self._name, [])
        return found

    def _bind(self, arguments: tuple[Any, ...], where: str) -> None:
        self._type = _Kept.of(arguments[0], where)


AnyState = State[Any] | ListState[Any] | MapState[Any, Any] | VersionedState[Any]


def _is_state(kind: Any) -> bool:
    return kind in (State, ListState, MapState, VersionedState)


# What processors see


class Context(Generic[K]):
    """The context of a processor: facts about the record, and its timers."""

    __slots__ = ("_current", "_row", "_time", "_timer", "key")

    def __init__(self, time: Time) -> None:
        self._time = time
        self.key: K = cast("K", None)
        self._current: _Current = cast("_Current", None)
        self._row: Row | None = None
        self._timer: Timer | None = None

    @property
    def timestamp(self) -> datetime:
        """The time of the record, or that of the timer."""
        if self._row is not None:
            return moment(self._row.timestamp)
        assert self._timer is not None
        return moment(self._timer.at)

    @property
    def headers(self) -> Headers:
        return self._row.headers if self._row is not None else ()

    @property
    def topic(self) -> str | None:
        return self._row.topic if self._row is not None else None

    @property
    def partition(self) -> int | None:
        return self._row.partition if self._row is not None else None

    @property
    def offset(self) -> int | None:
        return self._row.offset if self._row is not None else None

    @property
    def stream_time(self) -> datetime | None:
        """Up to here records are taken to be complete: the latest time that was seen, less what
        records may be late. It moves from batch to batch."""
        time = self._current.timers.stream_time
        return None if time is None else moment(time)

    @property
    def now(self) -> datetime:
        """The time of the host when the batch began."""
        return moment(self._current.timers.now)

    @property
    def timer_name(self) -> str:
        """The name of the timer that is due, in `on_timer`."""
        return self._timer.name if self._timer is not None else ""

    def timer(self, at: datetime, name: str = "", *, clock: Clock | None = None) -> None:
        """Has `on_timer` called for this key when it is that time. A key has one timer of each
        name and clock: setting it again moves it. The clock is the processor's `time`, unless that
        is "both": then it is event time if nothing is said."""
        if name.startswith("\0"):
            raise ValueError("the name of a timer begins with a null character")
        self._current.timers.set(milliseconds(at), name, self._checked(clock))

    def cancel_timer(self, name: str = "", *, clock: Clock | None = None) -> None:
        self._current.timers.cancel(name, self._checked(clock))

    def timers(self) -> list[Timer]:
        """Returns the timers of this key."""
        return [timer for timer in self._current.timers.all() if not timer.name.startswith("\0")]

    def _checked(self, clock: Clock | None) -> Clock:
        if self._time == "both":
            return clock or "event"
        if self._time == "none":
            raise ValueError(
                "this processor has no timers: it has no on_timer, or its `time` is 'none'"
            )
        if clock not in (None, self._time):
            raise ValueError(
                f"a timer in {clock} time, but the processor's `time` is {self._time!r}; "
                "set it to 'both'"
            )
        return self._time


Result = Iterable[Any] | None


class Processor(Generic[K, V, O]):
    """Sees each record of a key, in order, with state and timers for that key.

    Results are yielded: values of the type O, or `Record`s of them with another key, timestamp or
    headers. For other keys declare O as `Record[OTHER_KEY, VALUE]`.

    time: the clock of its timers, "event", "processing" or "both"; None: event time if it has
        `on_timer` or a time to live
    in_order: records wait until stream time has passed them, and are processed in the order of
        their times, as are timers between them: results do not depend on batches and on what came
        late within what is allowed
    version: of its state; raise it when what is kept changes its type, and add a `migration`
    """

    time: ClassVar[Time | None] = None
    in_order: ClassVar[bool] = False
    version: ClassVar[int] = 1

    _declared: ClassVar[dict[str, Any] | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._declared = None
        # A type that is declared further down is looked for again when the processor is used. Here
        # those that are local to a function are known.
        with suppress(NameError):
            cls._declared = _states(cls, sys._getframe(1).f_locals)

    def process(self, record: Record[K, V], ctx: Context[K], /) -> Result:
        raise NotImplementedError(f"{type(self).__name__} has no process()")

    def on_timer(self, at: datetime, ctx: Context[K], /) -> Result:
        return None


F = TypeVar("F", bound=Callable[..., Any])


def migration(version: int) -> Callable[[F], F]:
    """Marks a static method of a processor that makes the state of the next version from that of
    this one. It takes and returns a dict: what is kept for a key, by the names of the states."""

    def marked(function: F) -> F:
        target: Any = function.__func__ if isinstance(function, staticmethod) else function
        target._migrates = version
        return function

    return marked


_STATE = re.compile(r"(\w+\.)*(State|ListState|MapState|VersionedState)\b")


def _states(cls: type, local: dict[str, Any] | None) -> dict[str, Any]:
    """Returns the annotations of states of a class, by name."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if not (isinstance(base, type) and issubclass(base, Processor)) or base is Processor:
            continue
        known = base.__dict__.get("_declared") if base is not cls else None
        if known is not None:
            found.update(known)
            continue
        spaces = vars(sys.modules.get(base.__module__, types.ModuleType("none")))
        for name, given in _annotations(base).items():
            if isinstance(given, str):
                if _STATE.match(given) is None:
                    continue
                given = eval(given, {**spaces, **(local or {})})
            if _is_state(get_origin(given)):
                found[name] = given
            elif _is_state(given):
                raise TopologyError(
                    f"{cls.__name__}.{name}",
                    f"{given.__name__} without a type",
                    then=f"write {name}: {given.__name__}[TYPE]",
                )
    return found


def _annotations(cls: type) -> dict[str, Any]:
    try:
        return inspect.get_annotations(cls)
    except NameError:
        # Python 3.14 evaluates annotations only here (PEP 649). Those of other attributes may have
        # names that only type checkers know: as text, the states can be told from them.
        if sys.version_info >= (3, 14):
            from annotationlib import Format, get_annotations

            return get_annotations(cls, format=Format.STRING)
        raise


@dataclass(frozen=True, slots=True)
class ProcessorTypes:
    """The types that a class of processors is declared with. None where nothing is known."""

    key: Any
    value: Any
    out_key: Any  # None: that of the input
    out: Any


def types_of(
    processor: Processor[Any, Any, Any] | type[Processor[Any, Any, Any]],
) -> ProcessorTypes:
    """Reads the types from `class P(Processor[K, V, O])`."""
    cls = processor if isinstance(processor, type) else type(processor)
    for base in cls.__mro__:
        for each in base.__dict__.get("__orig_bases__", ()):
            origin = get_origin(each)
            if origin is Processor:
                key, value, out = (
                    None if isinstance(argument, TypeVar) or argument is Any else argument
                    for argument in get_args(each)
                )
                if get_origin(out) is Record:
                    out_key, out = get_args(out)
                    return ProcessorTypes(key, value, out_key, out)
                return ProcessorTypes(key, value, None, out)
    return ProcessorTypes(None, None, None, None)


def time_of(processor: Processor[Any, Any, Any] | type[Processor[Any, Any, Any]]) -> Time:
    """The clock that a processor needs."""
    cls = processor if isinstance(processor, type) else type(processor)
    if cls.time is not None:
        return cls.time
    has_ttl = any(isinstance(each, _Store) and each.ttl is not None for each in _defaults(cls))
    return "event" if cls.on_timer is not Processor.on_timer or has_ttl or cls.in_order else "none"


def _defaults(cls: type) -> Iterator[Any]:
    for base in cls.__mro__:
        yield from vars(base).values()


@dataclass
class ProcessorMachine:
    """Runs a processor. `key` and `value` are the shapes of what it gets, `out_key` and `out` those
    of what it yields; without a shape, keys and values are columns as they are."""

    processor: Processor[Any, Any, Any] | type[Processor[Any, Any, Any]]
    name: str
    key: Shape | None = None
    value: Shape | None = None
    out: Shape | None = None
    out_key: Shape | None = None
    state_version: int = field(init=False)
    migrations: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(init=False)

    def __post_init__(self) -> None:
        cls = self.processor if isinstance(self.processor, type) else type(self.processor)
        self.state_version = cls.version
        self.migrations = {}
        for base in reversed(cls.__mro__):
            for each in vars(base).values():
                function = each.__func__ if isinstance(each, staticmethod) else each
                version = getattr(function, "_migrates", None)
                if isinstance(version, int):
                    self.migrations[version] = function
        self._time: Time = time_of(cls)
        if cls.in_order and self._time not in ("event", "both"):
            raise TopologyError(
                self.name,
                "in_order needs event time",
                then=f"set `time` of {cls.__name__} to 'event'",
            )
        self._made: _Made | None = None
        _Made(self)  # what is declared wrong is found when the topology is built

    @property
    def time(self) -> Time:
        return self._time

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_made": None}

    def on_rows(
        self, key: Any, rows: Sequence[Row], state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        made = self._made or self._make()
        made.begin(key, state, timers)
        if not made.processor.in_order:
            for row in rows:
                yield from made.record(row)
            return
        time = timers.stream_time
        late = [row for row in rows if time is not None and row.timestamp <= time]
        for row in late:  # its time has passed: there is nothing to wait for
            yield from made.record(row)
        made.hold([row for row in rows if time is None or row.timestamp > time])

    def on_timer(
        self, key: Any, timer: Timer, state: KeyState, timers: Timers
    ) -> Iterator[Emitted]:
        made = self._made or self._make()
        made.begin(key, state, timers)
        if timer.name == _HELD:
            yield from made.release()
        elif timer.name.startswith(_EXPIRY):
            made.expire(timer)
        elif made.processor.in_order and timer.clock == "event":
            timers.set(timer.at, timer.name)  # records of that time or before it come first
            yield from made.release()
        else:
            yield from made.timer(timer)

    def _make(self) -> _Made:
        self._made = _Made(self)
        return self._made


class _Made:
    """A processor with its states, in one worker."""

    def __init__(self, machine: ProcessorMachine) -> None:
        given = machine.processor
        self.processor: Any = given() if isinstance(given, type) else given
        self._machine = machine
        self._time = machine.time
        clock: Clock = "processing" if self._time == "processing" else "event"
        self._clock = clock
        self._current = _Current(KeyState({}), cast("Timers", None), 0)
        self._context: Context[Any] = Context(self._time)
        self._context._current = self._current
        self._raw_key: Any = None
        self._stores: dict[str, Any] = {}
        cls = type(self.processor)
        declared = cls._declared
        if declared is None:
            try:
                declared = _states(cls, None)
            except NameError as error:
                raise TopologyError(
                    machine.name,
                    f"the type of a state of {cls.__name__} is not known: {error}",
                    then="declare it above the processor",
                ) from None
        for name, annotation in declared.items():
            store = self._store(cls, name, annotation)
            setattr(self.processor, name, store)
            self._stores[name] = store

    def _store(self, cls: type, name: str, annotation: Any) -> Any:
        where = f"{self._machine.name}: state {cls.__name__}.{name}"
        kind: Any = get_origin(annotation)
        default = getattr(cls, name, None)
        store = kind()
        if isinstance(default, kind):
            store._ttl = default._ttl
            if isinstance(default, State):
                store._default = default._default
            if isinstance(default, VersionedState):
                store._history = default._history
        elif default is not None:
            raise TopologyError(
                where, f"{default!r} is not a {kind.__name__}", then=f"{kind.__name__}(default=...)"
            )
        if store._ttl is not None and self._time == "none":
            raise TopologyError(where, "a time to live needs a clock", then="set `time`")
        store._name = name
        store._current = self._current
        store._clock = self._clock
        store._bind(get_args(annotation), where)
        return store

    def begin(self, key: Any, state: KeyState, timers: Timers) -> None:
        self._current.state = state
        self._current.timers = timers
        self._current.time = (
            timers.now if self._clock == "processing" else (timers.stream_time or 0)
        )
        self._raw_key = key
        self._context.key = key if self._machine.key is None else _python(self._machine.key, key)

    def record(self, row: Row) -> Iterator[Emitted]:
        context, current = self._context, self._current
        context._row, context._timer = row, None
        if self._clock == "event" and row.timestamp > current.time:
            current.time = row.timestamp
        value_shape = self._machine.value
        marked = mark(current.state, current.timers)
        try:
            value = row.value
            if value is not None and value_shape is not None:
                value = value_shape.to_python(value)
            record: Record[Any, Any] = Record(
                value,
                context.key,
                moment(row.timestamp),
                row.headers,
                row.topic,
                row.partition,
                row.offset,
            )
            found = self.processor.process(record, context)
            outs = () if found is None else self._outs(found, row, row.timestamp)
        except StateVersionError:
            raise
        except Exception as error:
            undo(current.state, current.timers, marked)
            yield Failed(row, error)
            return
        yield from outs

    def timer(self, timer: Timer) -> Iterator[Emitted]:
        context, current = self._context, self._current
        context._row, context._timer = None, timer
        if timer.clock == self._clock:
            current.time = max(current.time, timer.at)
        marked = mark(current.state, current.timers)
        try:
            found = self.processor.on_timer(moment(timer.at), context)
            outs = () if found is None else self._outs(found, None, timer.at)
        except StateVersionError:
            raise
        except Exception as error:
            undo(current.state, current.timers, marked)
            yield Failed(None, error, timer=timer)
            return
        yield from outs

    def expire(self, timer: Timer) -> None:
        store = self._stores.get(timer.name.removeprefix(_EXPIRY))
        if store is not None:
            self._current.time = max(self._current.time, timer.at)
            store._expire()

    def hold(self, rows: list[Row]) -> None:
        """Keeps records until stream time has passed them."""
        if not rows:
            return
        held = [*self._current.state.get(_HELD, ()), *map(packed, rows)]
        # Those of the same time stay as they came.
        held.sort(key=lambda each: int(each[0]))
        self._current.state.set(_HELD, held)
        self._current.timers.set(held[0][0], _HELD)

    def release(self, fired: tuple[int, str] | None = None) -> Iterator[Emitted]:
        """Processes the records whose time has come and the timers between them, by their times.

        A timer that sets itself to a time that is over waits for the next batch: only those after
        `fired` are due.
        """
        timers = self._current.timers
        time = timers.stream_time
        assert time is not None
        while True:
            held = self._current.state.get(_HELD, ())
            waiting = [timer for timer in timers.due() if _is_after(timer, fired)]
            first = waiting[0] if waiting else None
            if held and held[0][0] <= time and (first is None or held[0][0] <= first.at):
                if len(held) > 1:
                    self._current.state.set(_HELD, held[1:])
                else:
                    self._current.state.delete(_HELD)
                yield from self.record(unpacked(held[0], self._raw_key))
            elif first is not None:
                timers.cancel(first.name, first.clock)
                fired = first.at, first.name
                if first.name.startswith(_EXPIRY):
                    self.expire(first)
                else:
                    yield from self.timer(first)
            else:
                break
        if held:
            timers.set(held[0][0], _HELD)

    def _outs(self, found: Any, row: Row | None, time: int) -> list[Out]:
        if isinstance(found, (str, bytes, dict, Record)) or not isinstance(found, Iterable):
            raise TypeError(
                f"{type(self.processor).__name__} returned {found!r}; yield results, or return a "
                "list of them"
            )
        machine = self._machine
        shape, key_shape = machine.out, machine.out_key or machine.key
        outs = []
        for each in found:
            if not isinstance(each, Record):
                value = each if shape is None or each is None else shape.to_row(each)
                outs.append(Out(value, SAME_KEY, time, each is None, source=row))
                continue
            value = each.value
            if shape is not None and value is not None:
                value = shape.to_row(value)
            key: Any = SAME_KEY
            if each.key is not _UNSET:
                key = each.key if key_shape is None else _column(key_shape, each.key)
            timestamp = time if each.timestamp is None else milliseconds(each.timestamp)
            outs.append(Out(value, key, timestamp, value is None, headers=each.headers, source=row))
        if machine.out_key is not None and any(each.key is SAME_KEY for each in outs):
            raise TypeError(
                f"the results of {type(self.processor).__name__} have keys of another type: yield "
                "Record(value, key=...)"
            )
        return outs


def _is_after(timer: Timer, fired: tuple[int, str] | None) -> bool:
    is_own = timer.clock == "event" and timer.name != _HELD
    return is_own and (fired is None or (timer.at, timer.name) > fired)


def _python(shape: Shape, column: Any) -> Any:
    """Returns the key whose column this is."""
    if column is None:
        return None
    return shape.to_python(column if shape.is_record else {"value": column})


def _column(shape: Shape, key: Any) -> Any:
    if key is None:
        return None
    row = shape.to_row(key)
    return row if shape.is_record else row["value"]
