"""Reads the records of topics into rows: keys, values, event time, and what does not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from headwater.streams.columns import (
    HEADERS,
    KEY,
    LETTER,
    LETTER_TYPE,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    ROW,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    letter,
)
from headwater.streams.expressions import to_column
from headwater.streams.serde import decode_columns, serde_of
from headwater.streams.topology import Node, OnError, Source

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.streams.types import Shape


def rows(
    raw: DataFrame, node: Node, key_shape: Shape, value_shape: Shape, on_error: OnError
) -> DataFrame:
    """Returns the records of a topic as rows. One that does not fit its type is a dead letter."""
    operation = node.operation
    assert isinstance(operation, Source)
    key = decode_columns(raw["key"], key_shape, serde_of(operation.key_serde or key_shape))
    value = decode_columns(
        raw["value"], value_shape, serde_of(operation.value_serde or value_shape)
    )
    read = raw.select("*", key.alias("__key"), value.alias("__value"))
    ok, reason = f.col("__value.ok"), f.col("__value.error")
    time = f.col("timestamp")
    if operation.time is not None:
        # The columns of the value have to be there for an expression over them.
        names = [f"`{name}`" for name in value_shape.names]
        fields = {name: ok[name.strip("`")] for name in names}
        read = read.select("*", *(col.alias(name.strip("`")) for name, col in fields.items()))
        time = to_column(operation.time).cast("timestamp")
        read = read.withColumn("__time", time)
        for name in value_shape.names:
            if name not in ("key", "value", "topic", "partition", "offset", "timestamp"):
                read = read.drop(name)
        time = f.col("__time")
        missing = time.isNull() & f.col("value").isNotNull()
        reason = f.coalesce(
            reason, f.when(missing, f.lit(f"the event time {operation.time} is null"))
        )
    is_bad = f.coalesce(reason, f.concat(f.lit("key: "), f.col("__key.error")))
    if node.is_table:
        no_key = f.when(f.col("key").isNull(), f.lit("key: a table needs one, and it is null"))
        is_bad = f.coalesce(is_bad, no_key)
    place = f.concat(
        f.lit(f"operator {node.name} (topic "),
        f.col("topic"),
        f.lit(", partition "),
        f.col("partition").cast("string"),
        f.lit(", offset "),
        f.col("offset").cast("string"),
        f.lit("): "),
    )
    why = f.concat(place, is_bad)
    if on_error == "fail":
        then = f.lit('; fix the record, or set on_error="dead_letter" for this source')
        dead = f.when(is_bad.isNotNull(), f.raise_error(f.concat(why, then)).cast("string"))
        letters = f.when(dead.isNotNull(), f.lit(None)).cast(LETTER_TYPE)
    else:
        made = letter(
            operator=node.name,
            reason=why,
            key=f.col("key"),
            value=f.col("value"),
            timestamp=f.col("timestamp"),
            headers=f.col("headers"),
            topic=f.col("topic"),
            partition=f.col("partition"),
            offset=f.col("offset"),
        )
        letters = f.when(is_bad.isNotNull(), made)
    if on_error == "continue":
        read = read.where(is_bad.isNull())
    given = {
        TIMESTAMP: f.coalesce(time, f.col("timestamp")),
        HEADERS: f.col("headers"),
        TOPIC: f.col("topic"),
        PARTITION: f.col("partition"),
        OFFSET: f.col("offset"),
        TOMBSTONE: f.col("value").isNull(),
        RAW_KEY: f.col("key"),
        RAW_VALUE: f.col("value"),
        LETTER: letters,
    }
    key_column = f.col("__key.ok")
    columns = [(key_column if key_shape.is_record else key_column["value"]).alias(KEY)]
    columns += [given[name].alias(name) for name in ROW]
    columns += [ok[name].alias(name) for name in value_shape.names]
    frame = read.select(*columns)
    if on_error == "fail":
        # Spark would leave out a letter that nobody looks at, and the error with it.
        frame = frame.where(f.col(LETTER).isNull())
    return frame
