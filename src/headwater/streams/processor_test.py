"""Tests of processors and machines without Spark and without a JVM, in microseconds for a record.

    test = ProcessorTest(Silence, late="10 seconds")
    test.pipe(Reading(at), key="door", timestamp=at)
    test.advance_to(at + timedelta(minutes=6))
    assert test.values() == [Alarm("door", at)]

What runs here is what runs in Spark's workers: the same order of rows, the same bytes of state, the
same timers. Each call of `pipe` is a batch; stream time moves after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar

from headwater.streams.machine import (
    Clock,
    Dropped,
    Emitted,
    Failed,
    Headers,
    KeyedGroup,
    KeyedMachine,
    OnError,
    Out,
    Row,
    Timer,
    Times,
)
from headwater.streams.processor import (
    Processor,
    ProcessorMachine,
    Record,
    milliseconds,
    moment,
    types_of,
)
from headwater.streams.state_bytes import encode
from headwater.streams.types import Shape, shape_of
from headwater.streams.windows import Duration, duration

K = TypeVar("K")
V = TypeVar("V")
O = TypeVar("O")  # noqa: E741

_START = datetime(2026, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


class _Memory:
    """The cells of a group in memory, and when it wants to be woken."""

    __slots__ = ("cells", "key", "wakes")

    def __init__(self, key: Any) -> None:
        self.key = key
        self.cells: dict[int, bytes] = {}
        self.wakes: set[tuple[Clock, int]] = set()

    def read(self, number: int) -> bytes | None:
        return self.cells.get(number)

    def write(self, number: int, data: bytes) -> None:
        self.cells[number] = data

    def remove(self, number: int) -> None:
        self.cells.pop(number, None)

    def wake(self, at: int, clock: Clock) -> None:
        self.wakes.add((clock, at))


class MachineTest:
    """Runs a keyed machine on rows that a test makes.

    late: how far stream time stays behind the latest row
    packed: the keys share one bucket, instead of each being a group
    """

    def __init__(
        self,
        machine: KeyedMachine,
        *,
        name: str = "test",
        late: Duration | None = timedelta(),
        on_error: OnError = "fail",
        packed: bool = False,
        now: datetime = _START,
    ) -> None:
        self.machine = machine
        self.name = name
        self._late = None if late is None else duration(late, "late") // _MILLISECOND
        self._on_error: OnError = on_error
        self._packed = packed
        self._now = milliseconds(now)
        self._latest: int | None = None
        self._stream_time: int | None = None
        self._offset = 0
        self._groups: dict[bytes, _Memory] = {}
        self.failures: list[Failed] = []
        self.dropped: list[Dropped] = []

    @property
    def stream_time(self) -> datetime | None:
        return None if self._stream_time is None else moment(self._stream_time)

    @property
    def now(self) -> datetime:
        return moment(self._now)

    def batch(self, rows: Sequence[Row]) -> list[Out]:
        """Runs the machine on one batch, then moves stream time and fires the timers."""
        by_group: dict[bytes, list[Row]] = {}
        for row in rows:
            by_group.setdefault(b"" if self._packed else encode(row.key), []).append(row)
        outs: list[Out] = []
        for data, given in by_group.items():
            memory = self._groups.get(data)
            if memory is None:
                memory = self._groups[data] = _Memory(given[0].key)
            latest = max(row.timestamp for row in given)
            outs += self._taken(self._group(memory, latest).on_rows(given))
        if rows:
            self._latest = max(self._latest or 0, *(row.timestamp for row in rows))
            if self._late is not None:
                outs += self._until(self._latest - self._late)
        return outs

    def row(
        self,
        key: Any,
        value: Any,
        timestamp: int | datetime | None = None,
        *,
        input: int = 0,  # noqa: A002
        tombstone: bool | None = None,
        **more: Any,
    ) -> Row:
        """Makes a row; without a time it has that of the row before it."""
        at = milliseconds(timestamp) if timestamp is not None else (self._latest or self._now)
        self._offset += 1
        known = {"topic": f"input-{input}", "partition": 0, "offset": self._offset - 1, **more}
        return Row(
            key, value, at, input, value is None if tombstone is None else tombstone, **known
        )

    def stream_time_to(self, at: int | datetime) -> list[Out]:
        """Moves stream time there, as a record of another key would, and fires the timers."""
        return self._until(milliseconds(at))

    def now_to(self, at: int | datetime) -> list[Out]:
        """Moves the clock of the host, and fires the timers."""
        self._now = max(self._now, milliseconds(at))
        return self._fired()

    def state(self, key: Any) -> dict[str, Any]:
        """Returns what is kept for a key, by name."""
        for found, fields, _ in self._states():
            if found == key:
                return fields
        return {}

    def timers(self, key: Any) -> list[Timer]:
        for found, _, timers in self._states():
            if found == key:
                return timers
        return []

    def keys(self) -> list[Any]:
        """Returns the keys that have state."""
        return [key for key, _, _ in self._states()]

    def state_bytes(self) -> int:
        return sum(len(data) for memory in self._groups.values() for data in memory.cells.values())

    def restart(self, machine: KeyedMachine) -> None:
        """Continues with another machine, as after a change of the code, on the state there is."""
        self.machine = machine

    def _states(self) -> Iterator[tuple[Any, dict[str, Any], list[Timer]]]:
        for memory in self._groups.values():
            yield from self._group(memory).states()

    def _until(self, time: int) -> list[Out]:
        if self._stream_time is not None and time <= self._stream_time:
            return []
        self._stream_time = time
        return self._fired()

    def _fired(self) -> list[Out]:
        times = Times(self._stream_time, self._now)
        outs: list[Out] = []
        for memory in list(self._groups.values()):
            if not memory.wakes:
                continue
            due = set()
            for clock, at in memory.wakes:
                time = times.of(clock)
                if time is not None and at <= time:
                    due.add((clock, at))
            if due:
                memory.wakes -= due
                outs += self._taken(self._group(memory).on_time())
        return outs

    def _group(self, memory: _Memory, latest: int = 0) -> KeyedGroup:
        return KeyedGroup(
            self.machine,
            self.name,
            memory,
            Times(self._stream_time, self._now),
            self._packed,
            self._on_error,
            key=memory.key,
            reference=latest,
        )

    def _taken(self, emitted: Iterator[Emitted]) -> list[Out]:
        outs: list[Out] = []
        for each in emitted:
            if isinstance(each, Out):
                outs.append(each)
            elif isinstance(each, Failed):
                self.failures.append(each)
            else:
                self.dropped.append(each)
        return outs


class ProcessorTest(Generic[K, V, O]):
    """Runs a processor on records that a test makes.

    key, value, out: the types, if the class does not say them
    late: how far stream time stays behind the latest record
    on_error: what happens to records that fail: "fail" raises, with "dead_letter" they are in
        `failures`, with "continue" they are gone
    """

    def __init__(
        self,
        processor: Processor[K, V, O] | type[Processor[K, V, O]],
        *,
        key: Any = None,
        value: Any = None,
        out: Any = None,
        late: Duration = timedelta(),
        on_error: OnError = "fail",
        packed: bool = False,
        now: datetime = _START,
    ) -> None:
        found = types_of(processor)
        cls = processor if isinstance(processor, type) else type(processor)
        self._key = _shape(key if key is not None else found.key)
        self._value = _shape(value if value is not None else found.value)
        self._out = _shape(out if out is not None else found.out)
        self._out_key = _shape(found.out_key)
        self._name = cls.__name__
        self._test = MachineTest(
            self._machine(processor),
            name=self._name,
            late=late,
            on_error=on_error,
            packed=packed,
            now=now,
        )
        self._outputs: list[Record[Any, O]] = []

    # Input

    def pipe(
        self,
        value: V | None,
        *,
        key: K | None = None,
        timestamp: datetime | None = None,
        headers: Headers = (),
        topic: str | None = "input",
        partition: int = 0,
        offset: int | None = None,
    ) -> list[Record[Any, O]]:
        """Processes one record as a batch of its own, and returns what came of it."""
        record: Record[Any, Any] = Record(value, key, timestamp, headers, topic, partition, offset)
        return self.pipe_batch([record])

    def pipe_batch(self, records: Iterable[Record[Any, Any]]) -> list[Record[Any, O]]:
        """Processes records in one batch."""
        rows = []
        for each in records:
            value = each.value
            if value is not None and self._value is not None:
                value = self._value.to_row(value)
            key = None if not _is_given(each.key) else each.key
            if key is not None and self._key is not None:
                given = self._key.to_row(key)
                key = given if self._key.is_record else given["value"]
            more: dict[str, Any] = {} if each.offset is None else {"offset": each.offset}
            row = self._test.row(
                key,
                value,
                each.timestamp,
                headers=each.headers or (),
                topic=each.topic or "input",
                partition=each.partition or 0,
                **more,
            )
            rows.append(row)
        return self._got(self._test.batch(rows))

    # Time

    def advance_to(self, at: datetime) -> list[Record[Any, O]]:
        """Moves stream time there, as records of other keys would."""
        return self._got(self._test.stream_time_to(at))

    def advance_clock(self, by: Duration) -> list[Record[Any, O]]:
        """Moves the clock of the host, for timers in processing time."""
        return self._got(self._test.now_to(self._test.now + duration(by, "advance_clock")))

    @property
    def stream_time(self) -> datetime | None:
        return self._test.stream_time

    @property
    def now(self) -> datetime:
        return self._test.now

    # Output and state

    def outputs(self) -> list[Record[Any, O]]:
        """Returns what has come out since the last call."""
        found, self._outputs = self._outputs, []
        return found

    def values(self) -> list[O]:
        return [each.value for each in self.outputs()]

    @property
    def failures(self) -> list[Failed]:
        return self._test.failures

    def state(self, key: K | None = None) -> dict[str, Any]:
        """Returns what is kept for a key, by the names of the states, as columns."""
        return self._test.state(self._column(key))

    def timers(self, key: K | None = None) -> list[Timer]:
        return [each for each in self._test.timers(self._column(key)) if "\0" not in each.name]

    def keys(self) -> list[Any]:
        return self._test.keys()

    def restart(self, processor: Processor[K, V, O] | type[Processor[K, V, O]]) -> None:
        """Continues with another processor on the state there is, as after a change of the code."""
        self._test.restart(self._machine(processor))

    def _machine(self, processor: Any) -> ProcessorMachine:
        return ProcessorMachine(
            processor, self._name, self._key, self._value, self._out, self._out_key
        )

    def _column(self, key: Any) -> Any:
        if key is None or self._key is None:
            return key
        given = self._key.to_row(key)
        return given if self._key.is_record else given["value"]

    def _got(self, outs: list[Out]) -> list[Record[Any, O]]:
        key_shape = self._out_key or self._key
        found: list[Record[Any, O]] = []
        for each in outs:
            value = each.value
            if value is not None and self._out is not None:
                value = self._out.to_python(value)
            key = each.key
            if key is not None and key_shape is not None:
                key = key_shape.to_python(key if key_shape.is_record else {"value": key})
            assert each.timestamp is not None
            found.append(Record(value, key, moment(each.timestamp), each.headers))
        self._outputs += found
        return found


def _is_given(key: Any) -> bool:
    return key is not None and type(key).__name__ != "_Unset"


def _shape(kind: Any) -> Shape | None:
    return None if kind is None else shape_of(kind)
