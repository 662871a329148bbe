"""Builds the Arrow table of a poll from the columns that the core decoded, without a copy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache, lru_cache

import pyarrow as pa

from headwater._core import ArrowRecords
from headwater.model import TopicPartition

_TOPICS_KEPT = 16
_ROWS_KEPT = 16_384


def table(taken: Sequence[tuple[TopicPartition, ArrowRecords]]) -> pa.Table:
    """Returns one table with the records of all partitions."""
    schema = _schema()
    batches = []
    for tp, columns in taken:
        offset, partition, timestamp, key, value, headers = pa.record_batch(columns).columns
        topic = _topic_column(tp.topic, len(offset))
        arrays = [topic, partition, offset, timestamp, key, value, headers]
        batches.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return pa.Table.from_batches(batches, schema=schema)


@cache
def _schema() -> pa.Schema:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", "UTC")),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(pa.field("element", header))),
        ]
    )


def _topic_column(topic: str, rows: int) -> pa.Array:
    """Returns the name in every row; for most polls a slice of a column that is kept."""
    if rows > _ROWS_KEPT:
        return _repeated(topic, rows)
    return _kept(topic).slice(0, rows)


@lru_cache(_TOPICS_KEPT)
def _kept(topic: str) -> pa.Array:
    return _repeated(topic, _ROWS_KEPT)


def _repeated(topic: str, rows: int) -> pa.Array:
    # `pa.scalar` would import pandas where it is installed, and block the event loop meanwhile.
    text = topic.encode()
    buffers = [None, pa.py_buffer(struct.pack("=ii", 0, len(text))), pa.py_buffer(text)]
    return pa.repeat(pa.Array.from_buffers(pa.string(), 1, buffers)[0], rows)
