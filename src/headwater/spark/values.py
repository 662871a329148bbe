"""Typed values: text, or JSON objects with given fields, made of a column of bytes.

A value that is no such thing becomes null, as with Spark's `from_json`, or fails the query with its
place (`valueMode=FAILFAST`).
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headwater.spark.errors import BadValue

_BLOCK_BYTES_MIN = 1 << 20


def convert(
    batch: pa.RecordBatch, *, value_format: str, type_: pa.DataType, fails: bool
) -> pa.RecordBatch:
    """The batch with its value column as text, or as a struct."""
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
    """All at once by Arrow's reader; if it stumbles, one by one."""
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
