"""The columns of a row between two operators, and rows on their way to the dead letters.

The contract of all operators: the columns in `ROW`, then those of the value. A row whose `_letter`
is set is a record that could not be read or processed. Operators pass it on and do not look at its
value; at the sink it goes to the dead-letter topic, in the same transaction as the results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.streams.types import Shape

KEY, TIMESTAMP, HEADERS = "_key", "_timestamp", "_headers"
TOPIC, PARTITION, OFFSET = "_topic", "_partition", "_offset"
TOMBSTONE, CHANGE = "_tombstone", "_change"
RAW_KEY, RAW_VALUE = "_raw_key", "_raw_value"  # of the record that a row comes from
LETTER = "_letter"

HEADERS_TYPE = ArrayType(StructType().add("key", StringType()).add("value", BinaryType()))
LETTER_TYPE = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("timestamp", TimestampType()),
        StructField("headers", HEADERS_TYPE),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("operator", StringType()),
        StructField("reason", StringType()),
        StructField("traceback", StringType()),
    ]
)
# Besides the key, whose type is that of the stream.
ROW: Mapping[str, DataType] = {
    TIMESTAMP: TimestampType(),
    HEADERS: HEADERS_TYPE,
    TOPIC: StringType(),
    PARTITION: IntegerType(),
    OFFSET: LongType(),
    TOMBSTONE: BooleanType(),
    RAW_KEY: BinaryType(),
    RAW_VALUE: BinaryType(),
    LETTER: LETTER_TYPE,
}
OWN = (KEY, *ROW, CHANGE)


def value_fields(schema: StructType) -> StructType:
    """Returns the columns of the value."""
    return StructType([field for field in schema.fields if field.name not in OWN])


def value_names(frame: DataFrame) -> list[str]:
    return [name for name in frame.columns if name not in OWN]


def key_type(shape: Shape) -> DataType:
    """Returns the type of the key's column."""
    return shape.schema if shape.is_record else shape.schema["value"].dataType


def with_row(frame: DataFrame, given: Mapping[str, Any], names: Sequence[str]) -> DataFrame:
    """Returns the columns of a row, as given or null, and those of the value."""
    from pyspark.sql import functions as f

    columns: list[Column] = [given[KEY].alias(KEY)]
    for name, kind in ROW.items():
        column = given.get(name)
        columns.append((f.lit(None).cast(kind) if column is None else column).alias(name))
    return frame.select(*columns, *(f.col(f"`{name}`") for name in names))


def letter(
    *,
    operator: str,
    reason: Column,
    key: Column,
    value: Column,
    timestamp: Column,
    headers: Column,
    topic: Column,
    partition: Column,
    offset: Column,
) -> Column:
    """Returns a dead letter without a traceback."""
    from pyspark.sql import functions as f

    return f.struct(
        key.alias("key"),
        value.alias("value"),
        timestamp.alias("timestamp"),
        headers.alias("headers"),
        topic.alias("topic"),
        partition.alias("partition"),
        offset.alias("offset"),
        f.lit(operator).alias("operator"),
        reason.alias("reason"),
        f.lit(None).cast("string").alias("traceback"),
    ).cast(LETTER_TYPE)
