"""A table in this process: the latest value of each key of a compacted topic, kept up to date.

    async with TableView("localhost:9092", "shop-counts-changelog", key=str, value=int) as view:
        view.get("tea")                       # 42, or None
        view.range("a", "f")                  # [("apple", 3), ("cake", 1)], in the order of keys
        await view.refresh()                  # everything that was committed before this call

The view reads the topic from its beginning when it starts, then follows it. It sees committed
records only, each micro-batch of a streams application as a whole partition by partition. Keys and
values are kept as bytes and decoded when they are asked for.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.consumer import Consumer
from headwater.client.errors import ClientClosed, ClientError, RequestTimedOut
from headwater.model import TopicPartition
from headwater.streams.serde import Serde, SerdeError, serde_of
from headwater.streams.types import Shape, shape_of

if TYPE_CHECKING:
    from headwater._core import ConsumedRecord

_log = logging.getLogger("headwater.streams")

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

KEYS_MAX = 50_000_000
_RECORDS_MAX = 10_000  # between two looks at the event loop's other tasks
_POLL_MS, _WAITED_POLL_MS = 50, 2
_CHANGES_MAX = 10_000  # that a reader of `changes` may be behind
_FEW = 64  # so many new keys are put in their places one by one; more are sorted
_OWN_SETTINGS = ("group", "topics", "isolation_level", "auto_offset_reset")


class ViewError(ClientError):
    """The table cannot be followed any more, or does not fit."""


@dataclass(frozen=True, slots=True)
class Entry(Generic[V]):
    """The latest record of a key."""

    value: V
    timestamp: int  # milliseconds since 1970
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Change(Generic[K, V]):
    """One record of the topic: `old` and `new` are None where the key was, or is, not in the
    table."""

    key: K
    old: V | None
    new: V | None


class Codec(Generic[K]):
    """Keys or values of one type: between Python and bytes, and in an order."""

    def __init__(self, kind: type[K] | Any, serde: Serde[K] | None = None) -> None:
        self.serde: Serde[K] = serde if serde is not None else serde_of(kind)
        self._shape: Shape | None = None if isinstance(kind, Serde) else shape_of(kind)

    def decode(self, data: bytes) -> K:
        return self.serde.decode(data)

    def encode(self, value: K) -> bytes:
        return self.serde.encode(value)

    def order(self, value: K) -> Any:
        """Returns what keys are sorted by: themselves, or the fields of a record in turn. Keys
        without an order are sorted by their bytes."""
        if self._shape is not None and self._shape.is_record:
            return _ordered(self._shape.to_row(value))
        if value is None or not hasattr(type(value), "__lt__") or isinstance(value, (dict, set)):
            return self.encode(value)
        return value


def _ordered(value: Any) -> Any:
    match value:
        case dict():
            return tuple(_ordered(each) for each in value.values())
        case list() | tuple():
            return tuple(_ordered(each) for each in value)
        case None:
            return (0,)
        case _:
            return (1, value)


class Store(Generic[K, V]):
    """The contents of a view: what was read, by key, without I/O."""

    def __init__(self, keys: Codec[K], values: Codec[V], *, keys_max: int = KEYS_MAX) -> None:
        self._keys = keys
        self._values = values
        self._keys_max = keys_max
        self._entries: dict[bytes, tuple[bytes, int, int, int]] = {}
        # Keys in order: made when it is asked for, then kept up to date.
        self._order: list[tuple[Any, bytes]] | None = None
        self._unsorted: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, record: ConsumedRecord[Any, Any]) -> tuple[bytes | None, bytes | None]:
        """Takes a record of the topic. Returns the old and the new value."""
        key: bytes | None = record.key
        if key is None:
            return None, None  # a table has no place for it; compaction drops it as well
        value: bytes | None = record.value
        old = self._entries.get(key)
        if value is None:
            if old is not None:
                del self._entries[key]
                self._removed(key)
            return None if old is None else old[0], None
        if old is None:
            if len(self._entries) >= self._keys_max:
                raise ViewError(
                    f"the table has more than {self._keys_max:,} keys; give the view a larger "
                    "keys_max= if this process has memory for them"
                )
            if self._order is not None:
                self._unsorted.add(key)
        self._entries[key] = (value, record.timestamp, record.partition, record.offset)
        return None if old is None else old[0], value

    def entry(self, key: K) -> Entry[V] | None:
        found = self._entries.get(self._keys.encode(key))
        if found is None:
            return None
        _, timestamp, partition, offset = found
        return Entry(self._value(key, found), timestamp, partition, offset)

    def range(
        self, first: K | None, last: K | None, *, limit: int | None, reverse: bool
    ) -> Iterator[tuple[K, V]]:
        order = self._sorted()
        low = 0 if first is None else bisect_left(order, (self._keys.order(first),))
        if last is None:
            high = len(order)
        else:
            wanted = self._keys.order(last)
            high = bisect_right(order, wanted, key=lambda each: each[0])
        yield from self._decoded(order[low:high], limit, reverse)

    def prefixed(self, prefix: str, *, limit: int | None, reverse: bool) -> Iterator[tuple[K, V]]:
        order = self._sorted()
        low = bisect_left(order, (prefix,))
        # The last character of Unicode stands behind every key that begins with the prefix.
        high = bisect_left(order, (prefix + "\U0010ffff",))
        yield from self._decoded(order[low:high], limit, reverse)

    def decode(self, key: bytes, old: bytes | None, new: bytes | None) -> Change[K, V]:
        values = (None if each is None else self._values.decode(each) for each in (old, new))
        return Change(self._keys.decode(key), *values)

    def _decoded(
        self, keys: list[tuple[Any, bytes]], limit: int | None, reverse: bool
    ) -> Iterator[tuple[K, V]]:
        if reverse:
            keys.reverse()
        for _, data in keys if limit is None else keys[:limit]:
            found = self._entries.get(data)
            if found is not None:
                key = self._keys.decode(data)
                yield key, self._value(key, found)

    def _value(self, key: K, found: tuple[bytes, int, int, int]) -> V:
        try:
            return self._values.decode(found[0])
        except (SerdeError, ValueError, TypeError) as error:
            place = f"partition {found[2]}, offset {found[3]}"
            raise SerdeError(f"the value of key {key!r} at {place}: {error}") from None

    def _removed(self, key: bytes) -> None:
        if self._order is None:
            return
        if key in self._unsorted:
            self._unsorted.discard(key)
            return
        wanted = self._keys.order(self._keys.decode(key))
        at = bisect_left(self._order, (wanted,))
        while at < len(self._order) and self._order[at][1] != key:
            at += 1
        if at < len(self._order):
            del self._order[at]

    def _sorted(self) -> list[tuple[Any, bytes]]:
        if self._order is None:
            self._order = [(self._keys.order(self._keys.decode(key)), key) for key in self._entries]
            self._order.sort()
        elif self._unsorted:
            added = [(self._keys.order(self._keys.decode(key)), key) for key in self._unsorted]
            if len(added) <= _FEW:
                for each in added:
                    insort(self._order, each)
            else:
                self._order += added
                self._order.sort()
            self._unsorted.clear()
        return self._order


class TableView(Generic[K, V]):
    """The latest value of each key of a topic, kept up to date in this process.

    `key` and `value` are types (`str`, a dataclass, ...), as in a streams application, or serdes.
    Other arguments are settings of the consumer, such as `sasl_mechanism=`.
    """

    def __init__(
        self,
        bootstrap: Any,
        topic: str,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        keys_max: int = KEYS_MAX,
        **settings: Any,
    ) -> None:
        for name in _OWN_SETTINGS:
            if name in settings:
                raise TypeError(f"a view sets {name} itself: it reads the whole topic, once")
        self.topic = topic
        self._store: Store[K, V] = Store(Codec(key), Codec(value), keys_max=keys_max)
        self._consumer: Consumer[bytes, bytes] = Consumer(
            bootstrap,
            topics=[topic],
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            **settings,
        )
        self._reader: asyncio.Task[None] | None = None
        self._error: BaseException | None = None
        self._progress = asyncio.Event()
        self._waiting = 0  # calls of `refresh` that wait
        self._listeners: set[_Listener[K, V]] = set()
        self._next: dict[TopicPartition, int] = {}  # the offset after the last record of each

    # Start and end

    async def start(self, *, timeout_ms: int = 60_000) -> None:
        """Connects and reads everything that is committed."""
        await self._consumer.start()
        try:
            await self._consumer.partitions_for(self.topic, timeout_ms=timeout_ms)
            self._reader = asyncio.create_task(self._read())
            await self.refresh(timeout_ms=timeout_ms)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            with suppress(asyncio.CancelledError):
                await reader
        self._end(ClientClosed("the view is closed; open a new one"))
        await self._consumer.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        await self.close()

    # Reading

    def get(self, key: K, default: V | None = None) -> V | None:
        """Returns the latest value of a key."""
        found = self.entry(key)
        return default if found is None else found.value

    def entry(self, key: K) -> Entry[V] | None:
        """Returns the latest value of a key with its timestamp and place."""
        self._check()
        return self._store.entry(key)

    def range(
        self,
        first: K | None = None,
        last: K | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[K, V]]:
        """Returns the keys from `first` to `last`, both included, in their order, with values."""
        self._check()
        return list(self._store.range(first, last, limit=limit, reverse=reverse))

    def scan(
        self, prefix: str | None = None, *, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[K, V]]:
        """Returns all keys, or those (of text) that begin with a prefix, in their order."""
        self._check()
        if prefix is None:
            return list(self._store.range(None, None, limit=limit, reverse=reverse))
        return list(self._store.prefixed(prefix, limit=limit, reverse=reverse))

    def __getitem__(self, key: K) -> V:
        found = self.entry(key)
        if found is None:
            raise KeyError(key)
        return found.value

    def __contains__(self, key: K) -> bool:
        return self.entry(key) is not None

    def __len__(self) -> int:
        self._check()
        return len(self._store)

    def positions(self) -> dict[int, int]:
        """Returns, for each partition, the offset up to which the view has read."""
        return {tp.partition: offset for tp, offset in self._next.items()}

    async def refresh(self, *, timeout_ms: int = 30_000) -> None:
        """Waits until the view has everything that was committed before this call."""
        wanted: dict[TopicPartition, int] = {}
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                partitions = await self._consumer.partitions_for(self.topic, timeout_ms=timeout_ms)
                ends = await self._consumer.end_offsets(*partitions, timeout_ms=timeout_ms)
                starts = await self._consumer.beginning_offsets(*partitions, timeout_ms=timeout_ms)
                wanted = {tp: end for tp, end in ends.items() if end > starts[tp]}
                while not self._has(wanted):
                    self._check()
                    self._progress.clear()
                    await self._progress.wait()
        except TimeoutError:
            behind = [tp for tp, end in wanted.items() if self._next.get(tp, 0) < end]
            raise RequestTimedOut(
                f"the view of {self.topic} was not up to date within {timeout_ms} ms: "
                f"{len(behind)} partitions are behind"
            ) from None
        finally:
            self._waiting -= 1
        self._check()

    def changes(self) -> AsyncIterator[Change[K, V]]:
        """Returns the changes from now on, which end when the view is closed. A reader that falls
        behind by more than 10,000 changes gets ViewError."""
        self._check()
        listener: _Listener[K, V] = _Listener()
        self._listeners.add(listener)
        return self._changes(listener)

    async def _changes(self, listener: _Listener[K, V]) -> AsyncIterator[Change[K, V]]:
        try:
            while True:
                await listener.ready.wait()
                while listener.changes:
                    yield listener.changes.popleft()
                if listener.is_lost:
                    raise ViewError(
                        f"more than {_CHANGES_MAX:,} changes of {self.topic} were waiting to be "
                        "read; take them faster, or read the topic with a consumer"
                    )
                if self._error is not None:
                    break
                listener.ready.clear()
        finally:
            self._listeners.discard(listener)
        if not isinstance(self._error, ClientClosed):
            raise self._error

    # The reader

    async def _read(self) -> None:
        try:
            while True:
                # The consumer says with the next poll what it has got to, markers included.
                timeout_ms = _POLL_MS if self._waiting == 0 else _WAITED_POLL_MS
                self._take(await self._consumer.poll(timeout_ms, records_max=_RECORDS_MAX))
                await self._note_positions()
        except (ClientError, SerdeError) as error:
            _log.error("the view of %s has stopped: %s", self.topic, error)
            self._end(error.with_traceback(None))

    def _take(self, records: list[ConsumedRecord[bytes, bytes]]) -> None:
        put = self._store.put
        for record in records:
            old, new = put(record)
            if self._listeners and record.key is not None:
                self._tell(record.key, old, new)

    async def _note_positions(self) -> None:
        """Behind the last record there may be markers of transactions: the consumer passes them."""
        for tp in self._consumer.assignment():
            with suppress(RequestTimedOut):  # where to begin is not known yet
                self._next[tp] = await self._consumer.position(tp, timeout_ms=0)
        self._progress.set()

    def _end(self, error: BaseException) -> None:
        self._error = self._error or error
        self._progress.set()
        for listener in self._listeners:
            listener.ready.set()

    def _tell(self, key: bytes, old: bytes | None, new: bytes | None) -> None:
        change = self._store.decode(key, old, new)
        for listener in tuple(self._listeners):
            if len(listener.changes) >= _CHANGES_MAX:
                listener.is_lost = True
                self._listeners.discard(listener)
            else:
                listener.changes.append(change)
            listener.ready.set()

    def _has(self, wanted: dict[TopicPartition, int]) -> bool:
        return all(self._next.get(tp, 0) >= end for tp, end in wanted.items())

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._reader is None:
            raise ClientError("the view has not been started; use `async with`, or await start()")


class _Listener(Generic[K, V]):
    """One reader of changes."""

    def __init__(self) -> None:
        self.changes: deque[Change[K, V]] = deque()
        self.ready = asyncio.Event()
        self.is_lost = False


class BlockingTableView(Generic[K, V]):
    """`TableView` for scripts and threads: an event loop in a thread behind it."""

    def __init__(
        self,
        bootstrap: Any,
        topic: str,
        *,
        key: type[K] | Serde[K],
        value: type[V] | Serde[V],
        **settings: Any,
    ) -> None:
        # Made in the loop's thread, as all that belongs to the loop.
        async def make() -> TableView[K, V]:
            return TableView(bootstrap, topic, key=key, value=value, **settings)

        self._thread = LoopThread("headwater-view")
        try:
            self._view = self._thread.call(make)
            self._thread.call(self._view.start)
        except BaseException:
            self._thread.close()
            raise

    def close(self) -> None:
        if not self._thread.is_closed:
            self._thread.close(self._view.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, traceback: object) -> None:
        self.close()

    def get(self, key: K, default: V | None = None) -> V | None:
        return self._call(lambda view: view.get(key, default))

    def entry(self, key: K) -> Entry[V] | None:
        return self._call(lambda view: view.entry(key))

    def range(
        self,
        first: K | None = None,
        last: K | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> list[tuple[K, V]]:
        return self._call(lambda view: view.range(first, last, limit=limit, reverse=reverse))

    def scan(
        self, prefix: str | None = None, *, limit: int | None = None, reverse: bool = False
    ) -> list[tuple[K, V]]:
        return self._call(lambda view: view.scan(prefix, limit=limit, reverse=reverse))

    def __getitem__(self, key: K) -> V:
        return self._call(lambda view: view[key])

    def __contains__(self, key: K) -> bool:
        return self._call(lambda view: key in view)

    def __len__(self) -> int:
        return self._call(len)

    def positions(self) -> dict[int, int]:
        return self._call(lambda view: view.positions())

    def refresh(self, *, timeout_ms: int = 30_000) -> None:
        self._thread.call(lambda: self._view.refresh(timeout_ms=timeout_ms))

    def _call(self, ask: Callable[[TableView[K, V]], T]) -> T:
        # In the loop's thread: nothing changes the table while it is read.
        async def run() -> T:
            return ask(self._view)

        return self._thread.call(run)
