"""The columns of the source, and the conversion of batches of records into them.

The columns are those of Spark's own Kafka source, in its order and types. Columns with one value
for a whole partition (topic, most often the timestamp type) are made once and sliced. A value that
is not of its type becomes null, as with Spark's `from_json`, or fails the query with its place
(`valueMode=FAILFAST`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater import _core
from headwater.spark.errors import BadValue
from headwater.spark.options import SourceOptions

if TYPE_CHECKING:
    from typing_extensions import Buffer

_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
}
_CREATE_TIME, _APPEND_TIME = 1, 2  # bits of `_core.extent`
# Spark takes batches of this size the quickest; larger ones are cut.
_ROWS_MAX = 100_000
_BLOCK_BYTES_MIN = 1 << 20


def spark_schema(options: SourceOptions) -> str:
    """Returns the schema in Spark's notation, which Spark parses and hands back to the readers."""
    types = dict(_TYPES)
    if options.value_format == "string":
        types["value"] = "string"
    elif options.value_format == "json":
        assert options.value_schema is not None
        types["value"] = f"struct<{options.value_schema}>"
    return ", ".join(f"`{name}` {types[name]}" for name in options.columns)


class Columns:
    """Makes Arrow batches of the columns, for one partition after another."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._names = schema.names
        self._constants: dict[tuple[str, Any], pa.Array] = {}

    def batches(
        self,
        data: Buffer,
        *,
        topic: str,
        partition: int,
        from_offset: int,
        to_offset: int,
        timestamp_types: int,
        aborted: list[tuple[int, int]],
        check_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of whole batches, in order. Only the core copies anything."""
        records = _core.decode_arrow(
            data,
            partition=partition,
            from_offset=from_offset,
            to_offset=to_offset,
            check_crc=check_crc,
            aborted=aborted,
        )
        rows = len(records)
        if not rows:
            return
        read = pa.record_batch(records)
        arrays = []
        for name in self._names:
            if name == "topic":
                arrays.append(self._constant(name, topic, rows))
            elif name == "timestampType":
                arrays.append(self._timestamp_types(read, data, timestamp_types))
            else:
                arrays.append(read.column(name))
        batch = pa.RecordBatch.from_arrays(arrays, names=self._names)
        for at in range(0, rows, _ROWS_MAX):
            yield batch.slice(at, _ROWS_MAX) if rows > _ROWS_MAX else batch

    def _constant(self, name: str, value: Any, rows: int) -> pa.Array:
        """Returns an array of the same value. The one for the longest batch serves the others."""
        known = self._constants.get((name, value))
        if known is None or len(known) < rows:
            type_ = pa.string() if name == "topic" else pa.int32()
            known = pa.repeat(pa.scalar(value, type_), max(rows, 1024))
            self._constants[(name, value)] = known
        return known.slice(0, rows)

    def _timestamp_types(self, read: pa.RecordBatch, data: Buffer, types: int) -> pa.Array:
        if types in (_CREATE_TIME, _APPEND_TIME):
            return self._constant("timestampType", types - 1, read.num_rows)
        # The topic's setting was changed within this range: each batch has its own.
        batches, _, _ = _core.scan(data, check_crc=False)
        edges = [(batch.last_offset, int(batch.is_log_append_time)) for batch in batches]
        found = []
        at = 0
        for offset in read.column("offset").to_pylist():
            while edges[at][0] < offset:
                at += 1
            found.append(edges[at][1])
        return pa.array(found, pa.int32())


# Typed values: text, or JSON objects with given fields, made of a column of bytes


def convert(
    batch: pa.RecordBatch, *, value_format: str, type_: pa.DataType, fails: bool
) -> pa.RecordBatch:
    """Returns the batch with its value column as text, or as a struct."""
    at = batch.schema.get_field_index("value")
    values = batch.column(at)
    typed = _texts(values) if value_format == "string" else _objects(values, type_)
    if fails and typed.null_count > values.null_count:
        raise BadValue(_first_bad(batch, values, typed, value_format))
    arrays = list(batch.columns)
    arrays[at] = typed
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _first_bad(batch: pa.RecordBatch, values: pa.Array, typed: pa.Array, wanted: str) -> str:
    bad = pc.and_(pc.is_null(typed), pc.is_valid(values))
    row = pc.index(bad, pa.scalar(True)).as_py()
    names = [name for name in ("topic", "partition", "offset") if name in batch.schema.names]
    place = ", ".join(f"{name} {batch.column(name)[row].as_py()}" for name in names)
    return f"{place}: the value is not {wanted}: {values[row].as_py()[:100]!r}"


def _texts(values: pa.Array) -> pa.Array:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(value) for value in values.to_pylist()], pa.string())


def _text(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _objects(values: pa.Array, type_: pa.DataType) -> pa.Array:
    """Parses all values at once with Arrow's reader; if one is invalid, one by one."""
    if not len(values):
        return pa.array([], type_)
    present = pc.fill_null(values, b"{}")
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], present), b"\n")[0]
    try:
        table = pj.read_json(
            pa.BufferReader(lines.as_buffer()),
            read_options=pj.ReadOptions(
                use_threads=False, block_size=max(_BLOCK_BYTES_MIN, len(lines.as_buffer()) + 1)
            ),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(list(type_)), unexpected_field_behavior="ignore"
            ),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return _one_by_one(values, type_)
    if table.num_rows != len(values):  # a value with several objects, or with none
        return _one_by_one(values, type_)
    columns = [table.column(field.name).combine_chunks() for field in type_]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(type_), mask=mask)


def _one_by_one(values: pa.Array, type_: pa.DataType) -> pa.Array:
    return pa.concat_arrays([_object(value, type_) for value in values.to_pylist()])


def _object(value: bytes | None, type_: pa.DataType) -> pa.Array:
    if value is None:
        return pa.nulls(1, type_)
    try:
        parsed: Any = json.loads(value)
        if not isinstance(parsed, dict):
            return pa.nulls(1, type_)
        table = pj.read_json(
            pa.BufferReader(json.dumps(parsed).encode()),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema(list(type_)), unexpected_field_behavior="ignore"
            ),
        )
        columns = [table.column(field.name).combine_chunks() for field in type_]
        return pa.StructArray.from_arrays(columns, fields=list(type_))
    except (ValueError, pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(1, type_)
