"""The columns of the source, and how what was read becomes batches of them.

The columns are those of Spark's own Kafka source, in its order and types. What is the same in every
row of a partition (topic, partition, most often the timestamp type) is made once and sliced.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headwater import _core
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
# Batches of this size are the quickest for Spark to take; a batch that is larger is cut.
_ROWS_MAX = 100_000


def spark_schema(options: SourceOptions) -> str:
    """In Spark's notation; Spark reads it, and hands the fields of a JSON value back to us."""
    types = dict(_TYPES)
    if options.value_format == "string":
        types["value"] = "string"
    elif options.value_format == "json":
        assert options.value_schema is not None
        types["value"] = f"struct<{options.value_schema}>"
    return ", ".join(f"`{name}` {types[name]}" for name in options.columns)


class Columns:
    """Makes batches of the wanted columns for one partition after another."""

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
        """The records of whole batches, in order; nothing is copied but in the core."""
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
        """So many times the same value. What was made for the longest batch serves the others."""
        known = self._constants.get((name, value))
        if known is None or len(known) < rows:
            type_ = pa.string() if name == "topic" else pa.int32()
            known = pa.repeat(pa.scalar(value, type_), max(rows, 1024))
            self._constants[(name, value)] = known
        return known.slice(0, rows)

    def _timestamp_types(self, read: pa.RecordBatch, data: Buffer, types: int) -> pa.Array:
        if types in (_CREATE_TIME, _APPEND_TIME):
            return self._constant("timestampType", types - 1, read.num_rows)
        # The topic's setting was changed somewhere in here: each batch says which it has.
        batches, _, _ = _core.scan(data, check_crc=False)
        edges = [(batch.last_offset, int(batch.is_log_append_time)) for batch in batches]
        found = []
        at = 0
        for offset in read.column("offset").to_pylist():
            while edges[at][0] < offset:
                at += 1
            found.append(edges[at][1])
        return pa.array(found, pa.int32())
