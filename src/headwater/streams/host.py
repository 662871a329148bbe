"""Runs a keyed machine in Spark, by transformWithState.

Each call into Spark's state, and each group of rows, costs as much as many rows. So rows travel in
packs: before the shuffle, those of a batch that fall into the same bucket of keys become one blob
of Arrow; Spark groups by bucket; the machine's output goes back in blobs as well. State lies in
pages of many keys (`machine`). `packed=False` makes each key a group of its own, with its own entry
in Spark's state.

    frames --Pack--> (bucket, blob) --shuffle--> KeyedGroup --Unpack--> rows of `output`
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from headwater.streams.errors import TopologyError
from headwater.streams.machine import (
    Clock,
    Dropped,
    Emitted,
    Failed,
    KeyedGroup,
    KeyedMachine,
    OnError,
    OperatorError,
    Out,
    Row,
    Times,
    reason,
    traceback_of,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

TimeMode = Literal["none", "event", "processing", "both"]

KEY, TIMESTAMP, HEADERS = "_key", "_timestamp", "_headers"
TOPIC, PARTITION, OFFSET = "_topic", "_partition", "_offset"
TOMBSTONE, CHANGE = "_tombstone", "_change"
WINDOW_START, WINDOW_END = "_window_start", "_window_end"
RAW_KEY, RAW_VALUE = "_raw_key", "_raw_value"
FAILURE, DROPPED = "_failure", "_dropped"
# What a row has besides its value.
RESERVED = (
    KEY,
    TIMESTAMP,
    HEADERS,
    TOPIC,
    PARTITION,
    OFFSET,
    TOMBSTONE,
    CHANGE,
    WINDOW_START,
    WINDOW_END,
    RAW_KEY,
    RAW_VALUE,
)
FAILURE_TYPE = (
    "struct<reason: string, traceback: string, topic: string, partition: int, offset: bigint, "
    "key: binary, value: binary>"
)

BUCKETS = 128
_MODES = {
    "none": "None",
    "event": "EventTime",
    "processing": "ProcessingTime",
    "both": "ProcessingTime",
}
_BUCKET, _INPUT, _ROWS, _OUT = "_bucket", "_input", "_rows", "_out"
_ROWS_MAX = 10_000  # of an output blob


def run_keyed(
    frames: Sequence[DataFrame],
    machine: KeyedMachine,
    *,
    output: StructType,
    name: str,
    time: TimeMode = "none",
    packed: bool | None = None,
    on_error: OnError = "fail",
    buckets: int = BUCKETS,
    output_mode: str = "Update",
) -> DataFrame:
    """Returns what a machine makes of the rows of some frames, which are its inputs by number.

    output: the columns of the result: those in RESERVED as the output of the machine says, FAILURE
        (a row that failed, with on_error="dead_letter"), DROPPED (why a row had no effect), and
        those of the value. A row with FAILURE or DROPPED has nothing else but its time and headers
    time: the clocks of the machine's timers; "event" and "both" need a watermark in the frames
    packed: keys in buckets; None: yes. One cannot be changed into the other, nor the number of
        `buckets`, on a checkpoint that is there
    """
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

    is_packed = packed is not False
    key_type = _key_type(frames, name)
    group = StructField(_BUCKET, IntegerType() if is_packed else key_type)
    packs = StructType(
        [group, StructField(_INPUT, IntegerType()), StructField(_ROWS, BinaryType())]
    )
    schemas: list[pa.Schema] = []
    packed_frames: list[DataFrame] = []
    for number, frame in enumerate(frames):
        schema: Any = to_arrow_schema(frame.schema, timezone="UTC")
        schemas.append(schema)
        key = f.col(KEY)
        bucket = f.pmod(f.xxhash64(key), f.lit(buckets)).cast("int") if is_packed else key
        given = frame.withColumn(_BUCKET, bucket)
        packed_frames.append(given.mapInArrow(Pack(number, schema, is_packed), packs))
    united = packed_frames[0]
    for each in packed_frames[1:]:
        united = united.unionAll(each)
    columns = Columns(output)
    readers = [_Reader(schema) for schema in schemas]
    host = _Host(machine, name, readers, columns, time, is_packed, on_error)
    ran = united.groupBy(_BUCKET).transformWithState(
        statefulProcessor=_processor(host),
        outputStructType=StructType([StructField(_OUT, BinaryType())]),
        outputMode=output_mode,
        timeMode=_MODES[time],
    )
    return ran.mapInArrow(Unpack(columns.schema), output)


def _key_type(frames: Sequence[DataFrame], name: str) -> DataType:
    types = []
    for number, frame in enumerate(frames):
        if KEY not in frame.columns:
            raise TopologyError(name, f"its input {number} has no column {KEY}", then="set a key")
        types.append(frame.schema[KEY].dataType)
    for each in types[1:]:
        if each.simpleString() != types[0].simpleString():
            raise TopologyError(
                name,
                f"the keys of its inputs have different types: {types[0].simpleString()} and "
                f"{each.simpleString()}",
                then="cast one of them",
            )
    return types[0]


class Pack:
    """In the workers before the shuffle: the rows of each bucket become one blob."""

    def __init__(self, number: int, schema: pa.Schema, is_packed: bool) -> None:
        self._number = number
        self._schema = schema
        self._is_packed = is_packed

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            if not batch.num_rows:
                continue
            at = batch.schema.get_field_index(_BUCKET)
            groups = batch.column(at)
            rows = batch.remove_column(at)
            if rows.schema != self._schema:
                rows = rows.cast(self._schema)
            order, starts = _by_bucket(groups) if self._is_packed else _by_key(groups)
            rows = rows.take(order)
            ends = [*starts[1:], len(order)]
            blobs = [
                rows.slice(start, end - start).serialize().to_pybytes()
                for start, end in zip(starts, ends, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(
                [
                    groups.take(order).take(pa.array(starts, pa.int64())),
                    pa.array([self._number] * len(blobs), pa.int32()),
                    pa.array(blobs, pa.binary()),
                ],
                names=[_BUCKET, _INPUT, _ROWS],
            )


def _by_bucket(groups: pa.Array) -> tuple[pa.Array, list[int]]:
    """Returns the rows ordered by their bucket, otherwise as they are, and where each begins."""
    import pyarrow as pa
    import pyarrow.compute as pc

    order = pc.sort_indices(groups)
    runs = pc.run_end_encode(groups.take(order), run_end_type=pa.int32())
    return order, [0, *runs.run_ends.to_pylist()[:-1]]


def _by_key(groups: pa.Array) -> tuple[pa.Array, list[int]]:
    import pyarrow as pa

    by_key: dict[Any, list[int]] = {}
    for row, key in enumerate(groups.to_pylist()):
        name = key if key.__hash__ is not None else repr(key)
        by_key.setdefault(name, []).append(row)
    starts: list[int] = []
    order: list[int] = []
    for rows in by_key.values():
        starts.append(len(order))
        order += rows
    return pa.array(order, pa.int64()), starts


class Unpack:
    """In the workers behind the machine: blobs become rows."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for blob in batch.column(0):
                yield pa.ipc.read_record_batch(blob.as_buffer(), self._schema)


def _list(column: pa.Array) -> list[Any]:
    import pyarrow as pa

    if column.null_count == 0 and (
        pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    ):
        found: list[Any] = column.to_numpy().tolist()
    else:
        found = column.to_pylist(maps_as_pydicts="lossy")
    return found


class _Reader:
    """Reads the rows of one input from blobs."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = [name for name in schema.names if name not in RESERVED]
        self._has = frozenset(schema.names)

    def rows(self, blob: bytes, number: int) -> list[Row]:
        import pyarrow as pa

        batch = pa.ipc.read_record_batch(pa.py_buffer(blob), self._schema)
        count = batch.num_rows
        names = self._names
        values: list[Any]
        if names:
            columns = [_list(batch.column(name)) for name in names]
            values = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
        else:
            values = [{}] * count
        nothing = [None] * count

        def column(name: str, default: list[Any] = nothing) -> list[Any]:
            return _list(batch.column(name)) if name in self._has else default

        tombstones = column(TOMBSTONE)
        if VALUE in self._has and names == [VALUE]:  # a value that is one column may be null
            values = [None if each[VALUE] is None else each for each in values]
        made = [
            Row(
                key,
                None if tombstone else value,
                timestamp,
                number,
                bool(tombstone),
                change,
                headers,
                topic,
                partition,
                offset,
            )
            for key, value, tombstone, timestamp, change, headers, topic, partition, offset in zip(
                column(KEY),
                values,
                tombstones,
                self._times(batch, TIMESTAMP, [0] * count),
                column(CHANGE, [1] * count),
                self._headers(batch, count),
                column(TOPIC),
                column(PARTITION),
                column(OFFSET),
                strict=True,
            )
        ]
        if WINDOW_START in self._has:
            ends = self._times(batch, WINDOW_END, [0] * count)
            for row, start, end in zip(
                made, self._times(batch, WINDOW_START, []), ends, strict=True
            ):
                row.window = (start, end)
        if RAW_KEY in self._has or RAW_VALUE in self._has:
            for row, key, value in zip(made, column(RAW_KEY), column(RAW_VALUE), strict=True):
                row.raw = (key, value)
        return made

    def _times(self, batch: pa.RecordBatch, name: str, default: list[int]) -> list[int]:
        import pyarrow as pa

        if name not in self._has:
            return default
        found = _list(batch.column(name).cast(pa.int64()))
        return [0 if each is None else each // 1000 for each in found]

    def _headers(self, batch: pa.RecordBatch, count: int) -> list[Any]:
        if HEADERS not in self._has:
            return [()] * count
        column = batch.column(HEADERS)
        if column.null_count == count or not len(column.flatten()):
            return [()] * count
        return [
            [(header["key"], header["value"]) for header in each] if each else ()
            for each in column.to_pylist()
        ]


VALUE = "value"


class Columns:
    """Makes columns of what a machine emits."""

    def __init__(self, output: StructType) -> None:
        from pyspark.sql.pandas.types import to_arrow_schema

        self.schema: pa.Schema = to_arrow_schema(output, timezone="UTC")
        self._makers = [self._maker(name) for name in self.schema.names]
        self._names: list[str] = list(self.schema.names)

    @property
    def names(self) -> list[str]:
        return self._names

    def __getstate__(self) -> dict[str, Any]:
        return {"schema": self.schema, "_names": self._names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.schema, self._names = state["schema"], state["_names"]
        self._makers = [self._maker(name) for name in self._names]

    def batches(self, emitted: Sequence[Emitted], name: str) -> Iterator[bytes]:
        for at in range(0, len(emitted), _ROWS_MAX):
            yield self.batch(emitted[at : at + _ROWS_MAX], name).serialize().to_pybytes()

    def batch(self, emitted: Sequence[Emitted], operator: str) -> pa.RecordBatch:
        import pyarrow as pa

        arrays = []
        for field, make in zip(self.schema, self._makers, strict=True):
            values = make(emitted, operator)
            try:
                arrays.append(pa.array(values, field.type))
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
                raise self._misfit(values, field, operator) from None
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _misfit(self, values: list[Any], field: pa.Field, operator: str) -> OperatorError:
        import pyarrow as pa

        for value in values:
            try:
                pa.scalar(value, field.type)
            except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
                found = repr(value)[:80]
                return OperatorError(
                    f"operator {operator} (field {field.name}): its result {found} is not "
                    f"{field.type}"
                )
        return OperatorError(f"operator {operator}: its results do not fit the field {field.name}")

    def _maker(self, name: str) -> Callable[[Sequence[Emitted], str], list[Any]]:
        if name in _MAKERS:
            make = _MAKERS[name]
            return lambda emitted, _: [make(each) for each in emitted]
        if name == FAILURE:
            return lambda emitted, operator: [_failure(each, operator) for each in emitted]
        return lambda emitted, _: [
            each.value.get(name) if isinstance(each, Out) and each.value is not None else None
            for each in emitted
        ]


def _of_source(name: str) -> Callable[[Emitted], Any]:
    def found(each: Emitted) -> Any:
        source = each.source if isinstance(each, Out) else each.row
        return None if source is None else getattr(source, name)

    return found


def _timestamp(each: Emitted) -> int | None:
    if isinstance(each, Out):
        return None if each.timestamp is None else each.timestamp * 1000
    return None if each.row is None else each.row.timestamp * 1000


def _headers(each: Emitted) -> list[dict[str, Any]]:
    given = each.headers if isinstance(each, Out) else each.row.headers if each.row else ()
    return [{"key": key, "value": value} for key, value in given or ()]


def _window(index: int) -> Callable[[Emitted], int | None]:
    def found(each: Emitted) -> int | None:
        if not isinstance(each, Out) or each.window is None:
            return None
        return each.window[index] * 1000

    return found


_MAKERS: dict[str, Callable[[Any], Any]] = {
    KEY: lambda each: each.key if isinstance(each, Out) else None,
    TIMESTAMP: _timestamp,
    HEADERS: _headers,
    TOPIC: _of_source("topic"),
    PARTITION: _of_source("partition"),
    OFFSET: _of_source("offset"),
    TOMBSTONE: lambda each: isinstance(each, Out) and each.tombstone,
    CHANGE: lambda each: each.change if isinstance(each, Out) else None,
    WINDOW_START: _window(0),
    WINDOW_END: _window(1),
    DROPPED: lambda each: each.reason if isinstance(each, Dropped) else None,
}


def _failure(each: Emitted, operator: str) -> dict[str, Any] | None:
    if not isinstance(each, Failed):
        return None
    row = each.row
    raw = row.raw if row is not None and row.raw is not None else (None, None)
    return {
        "reason": reason(operator, each)[:1000],
        "traceback": traceback_of(each.error),
        "topic": row.topic if row is not None else None,
        "partition": row.partition if row is not None else None,
        "offset": row.offset if row is not None else None,
        "key": raw[0],
        "value": raw[1],
    }


class _Cells:
    """A group's state in Spark's."""

    def __init__(self, state: Any, handle: Any, times: Times, time: TimeMode) -> None:
        self._state = state
        self._handle = handle
        self._times = times
        self._time = time
        self._woken: set[int] = set()

    def read(self, number: int) -> bytes | None:
        found = self._state.getValue((number,))
        return None if found is None else bytes(found[0])

    def write(self, number: int, data: bytes) -> None:
        self._state.updateValue((number,), (data,))

    def remove(self, number: int) -> None:
        self._state.removeKey((number,))

    def wake(self, at: int, clock: Clock) -> None:
        assert self._time in (clock, "both"), f"a timer in {clock} time, but the operator has none"
        if self._time == "both" and clock == "event":
            at = self._times.now + 1  # Spark wakes by one clock: look with each batch
        if at not in self._woken:
            self._woken.add(at)
            self._handle.registerTimer(at)


class _Host:
    """Runs a machine inside Spark's processor, in the workers."""

    def __init__(
        self,
        machine: KeyedMachine,
        name: str,
        readers: list[_Reader],
        columns: Columns,
        time: TimeMode,
        is_packed: bool,
        on_error: OnError,
    ) -> None:
        self.machine = machine
        self.name = name
        self.readers = readers
        self.columns = columns
        self.time = time
        self.is_packed = is_packed
        self.on_error = on_error
        self.keeps_dropped = DROPPED in columns.names

    def on_rows(self, key: Any, packs: Iterable[Any], state: Any, handle: Any, times: Any) -> Any:
        rows: list[Row] = []
        for pack in packs:
            number = pack[1]
            rows += self.readers[number].rows(pack[2], number)
        latest = max(row.timestamp for row in rows)
        group = self._group(key, state, handle, times, latest)
        return self._kept(group.on_rows(rows))

    def on_time(self, key: Any, state: Any, handle: Any, times: Any) -> Any:
        group = self._group(key, state, handle, times, 0)
        found = self._kept(group.on_time())
        if self.time == "both":
            group.poll()
        return found

    def _kept(self, emitted: Iterator[Emitted]) -> list[Emitted]:
        if self.keeps_dropped:
            return list(emitted)
        return [each for each in emitted if not isinstance(each, Dropped)]

    def _group(self, key: Any, state: Any, handle: Any, times: Any, latest: int) -> KeyedGroup:
        watermark = times.getCurrentWatermarkInMs()
        found = Times(
            watermark if watermark > 0 else None, max(times.getCurrentProcessingTimeInMs(), 0)
        )
        return KeyedGroup(
            self.machine,
            self.name,
            _Cells(state, handle, found, self.time),
            found,
            self.is_packed,
            self.on_error,
            key=_plain(key[0]),
            reference=latest,
        )


def _plain(key: Any) -> Any:
    return key.asDict(recursive=True) if hasattr(key, "asDict") else key


def _processor(host: _Host) -> Any:
    # PySpark is imported when a query is made, and not with the package.
    from pyspark.sql import Row as SparkRow
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    class Processor(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._handle = handle
            self._woken: set[Any] = set()
            self._state = handle.getMapState(
                "state",
                StructType([StructField("number", LongType())]),
                StructType([StructField("data", BinaryType())]),
            )

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            yield from self._rows(host.on_rows(key, rows, self._state, self._handle, timerValues))

        def handleExpiredTimer(
            self,
            key: Any,
            timerValues: Any,
            expiredTimerInfo: Any,
        ) -> Iterator[Any]:
            name = repr(key)
            if name in self._woken:  # all that was due has been done
                return
            self._woken.add(name)
            yield from self._rows(host.on_time(key, self._state, self._handle, timerValues))

        def _rows(self, emitted: list[Emitted]) -> Iterator[Any]:
            for blob in host.columns.batches(emitted, host.name):
                yield SparkRow(_out=blob)

        def close(self) -> None:
            pass

    return Processor()
