"""Makes the records that a query writes: those of its sinks, and its dead letters.

A record that cannot be written, because it is too large or does not name a valid topic, is found
before anything is sent: the producer would fail the whole micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from headwater.spark.dead_letters import OFFSET as OFFSET_HEADER
from headwater.spark.dead_letters import PARTITION as PARTITION_HEADER
from headwater.spark.dead_letters import PIPELINE, REASON
from headwater.spark.dead_letters import TOPIC as TOPIC_HEADER
from headwater.streams.columns import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    LETTER,
    LETTER_TYPE,
    OFFSET,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    letter,
    value_fields,
)
from headwater.streams.serde import encode_column, serde_of
from headwater.streams.topology import OnError, Sink
from headwater.streams.types import Shape, shape_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

OPERATOR_HEADER, TRACEBACK_HEADER = "headwater.operator", "headwater.traceback"
CHOSEN = "_to"  # the topic that a function has chosen
_NAME = "^[a-zA-Z0-9._-]{1,249}$"


Records = Callable[["DataFrame"], "DataFrame"]


def records(
    schema: StructType,
    sink: Sink,
    *,
    operator: str,
    topic: Column,
    known: Shape | None,
    app: str,
    dead_letters: str,
    on_error: OnError,
    bytes_max: int,
) -> Records:
    """Returns what makes the records of a sink of rows with a schema, and the letters that came
    with them. `known` is the shape of the values, if it was declared.

    The columns are made once, for all micro-batches: each of them takes dozens of calls of the
    JVM."""
    key_shape = shape_of(schema[KEY].dataType)
    parts = {name: f.col(KEY)[name] for name in key_shape.names}
    key = encode_column(
        parts if key_shape.is_record else {"value": f.col(KEY)},
        key_shape,
        serde_of(sink.key_serde or key_shape),
    )
    shape = value_shape(schema, known, without=(CHOSEN,))
    value = encode_column(
        {name: f.col(f"`{name}`") for name in shape.names},
        shape,
        serde_of(sink.value_serde or shape),
    )
    is_good = f.col(LETTER).isNull()
    encoded = [
        *(f.col(name) for name in (KEY, TIMESTAMP, HEADERS, TOPIC, PARTITION, OFFSET)),
        *(f.col(name) for name in (RAW_KEY, RAW_VALUE, LETTER)),
        f.when(is_good, topic).alias("__topic"),
        f.when(is_good & f.col(KEY).isNotNull(), key).alias("__key"),
        f.when(is_good & ~f.col(TOMBSTONE), value).alias("__value"),
    ]
    checked = _checked(
        operator, on_error, bytes_max=bytes_max, is_chosen=not isinstance(sink.to, str)
    )
    letters, is_letter = f.col(LETTER), f.col(LETTER).isNotNull()
    headers = f.coalesce(f.col(HEADERS), f.array().cast(HEADERS_TYPE))
    written = [
        f.when(is_letter, f.lit(dead_letters)).otherwise(f.col("__topic")).alias("topic"),
        f.when(is_letter, letters["key"]).otherwise(f.col("__key")).alias("key"),
        f.when(is_letter, letters["value"]).otherwise(f.col("__value")).alias("value"),
        f.when(is_letter, _letter_headers(app)).otherwise(headers).alias("headers"),
        f.when(is_letter, letters["timestamp"]).otherwise(f.col(TIMESTAMP)).alias("timestamp"),
    ]
    return lambda frame: checked(frame.select(*encoded)).select(*written)


def value_shape(schema: StructType, known: Shape | None, *, without: tuple[str, ...] = ()) -> Shape:
    """Returns the shape of values with these columns: the declared one, if it is theirs."""
    from pyspark.sql.types import StructField, StructType

    fields = [each for each in value_fields(schema).fields if each.name not in without]
    if known is not None and StructType(fields) == known.schema:
        return known
    if len(fields) == 1 and fields[0].name == "value":
        return shape_of(fields[0].dataType)
    return shape_of(StructType([StructField(each.name, each.dataType) for each in fields]))


def _checked(operator: str, on_error: OnError, *, bytes_max: int, is_chosen: bool) -> Records:
    """Returns what finds the records that cannot be written."""
    size = f.coalesce(f.length("__key"), f.lit(0)) + f.coalesce(f.length("__value"), f.lit(0))
    what = f.concat(
        f.lit(f"operator {operator} (topic "),
        f.coalesce(f.col("__topic"), f.lit("-")),
        f.lit(", from topic "),
        f.coalesce(f.col(TOPIC), f.lit("-")),
        f.lit(", partition "),
        f.coalesce(f.col(PARTITION).cast("string"), f.lit("-")),
        f.lit(", offset "),
        f.coalesce(f.col(OFFSET).cast("string"), f.lit("-")),
        f.lit("): "),
    )
    is_large = size > bytes_max
    why = f.when(
        is_large,
        f.concat(
            what,
            f.lit("the record has "),
            size.cast("string"),
            f.lit(f" bytes, more than the {bytes_max} of record_bytes_max"),
        ),
    )
    if is_chosen:
        is_name = f.coalesce(f.col("__topic").rlike(_NAME), f.lit(False))
        wrong = f.concat(what, f.lit("that is not the name of a topic"))
        why = f.when(~is_name & f.col(LETTER).isNull(), wrong).otherwise(why)
    if on_error == "continue":
        can_be = why.isNull()
        return lambda frame: frame.where(can_be)
    if on_error == "fail":
        then = f.lit('; fix the record, or set on_production_error="dead_letter"')
        failed = f.when(why.isNotNull(), f.raise_error(f.concat(why, then)).cast("string"))
        chosen = f.coalesce(failed, f.col("__topic"))
        return lambda frame: frame.withColumn("__topic", chosen)
    made = letter(
        operator=operator,
        reason=why,
        key=f.col(RAW_KEY),
        # What is too large was not too large to be read; but it may be what made the record so.
        value=f.when(f.length(RAW_VALUE) <= bytes_max, f.col(RAW_VALUE)),
        timestamp=f.col(TIMESTAMP),
        headers=f.col(HEADERS),
        topic=f.col(TOPIC),
        partition=f.col(PARTITION),
        offset=f.col(OFFSET),
    )
    letters = f.coalesce(f.col(LETTER), f.when(why.isNotNull(), made).cast(LETTER_TYPE))
    return lambda frame: frame.withColumn(LETTER, letters)


def _letter_headers(app: str) -> Column:
    letters = f.col(LETTER)
    ours = {
        REASON: letters["reason"],
        PIPELINE: f.lit(app),
        OPERATOR_HEADER: letters["operator"],
        TOPIC_HEADER: letters["topic"],
        PARTITION_HEADER: letters["partition"].cast("string"),
        OFFSET_HEADER: letters["offset"].cast("string"),
        TRACEBACK_HEADER: letters["traceback"],
    }
    added = f.array(
        *(
            f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
            for name, value in ours.items()
        )
    ).cast(HEADERS_TYPE)
    given = f.filter(added, lambda each: each["value"].isNotNull())
    return f.concat(f.coalesce(letters["headers"], f.array().cast(HEADERS_TYPE)), given)
