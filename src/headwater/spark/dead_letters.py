"""Dead letters: the records that a pipeline cannot process.

A record whose value does not fit the input's schema, or for which a user's function raised, is
written to the dead-letter topic with its key, value, time and headers; more headers have the reason
and where it came from. The pipeline continues. Dead letters are part of the same query as the
results: one checkpoint and, where the sink is exactly once, one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructField, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REASON, PIPELINE = "headwater.reason", "headwater.pipeline"
TOPIC, PARTITION, OFFSET = "headwater.topic", "headwater.partition", "headwater.offset"

REASON_COLUMN = "__reason"  # null in a valid record
PARSED_COLUMN = "__parsed"
_CORRUPT = "__corrupt"  # from_json puts a value here that it cannot read
_REASON_CHARACTERS_MAX = 1000


def parse_json(raw: DataFrame, schema: str) -> DataFrame:
    """Adds the fields of the values in a struct, and a reason where a value does not parse. A
    record without a value (a tombstone) has no fields and is valid."""
    text = raw["value"].cast("string")
    parsed = f.from_json(
        text,
        f"{schema}, `{_CORRUPT}` string",
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT},
    )
    frame = raw.withColumn(PARSED_COLUMN, parsed)
    misfit = f.lit(f"the value is JSON, but does not fit the schema: {' '.join(schema.split())}")
    reason = f.when(f.try_parse_json(text).isNull(), f.lit("the value is not JSON")).otherwise(
        misfit
    )
    bad = frame[PARSED_COLUMN][_CORRUPT].isNotNull()
    return frame.withColumn(REASON_COLUMN, f.when(bad, reason))


def parse_text(raw: DataFrame) -> DataFrame:
    """Adds a reason where the value is not UTF-8."""
    reason = f.when(
        ~f.is_valid_utf8(raw["value"].cast("string")), f.lit("the value is not UTF-8 text")
    )
    return raw.withColumn(REASON_COLUMN, reason)


def letters(frame: DataFrame, *, topic: str, pipeline: str) -> DataFrame:
    """Returns the records with a reason, as rows for the sink."""
    bad = frame.where(frame[REASON_COLUMN].isNotNull())
    return bad.select(
        f.lit(topic).alias("topic"),
        "key",
        "value",
        "timestamp",
        headers_with_reason(pipeline).alias("headers"),
    )


def headers_with_reason(pipeline: str) -> Column:
    """Returns the headers of a record and ours, for the source's columns with a reason."""
    ours = {
        REASON: f.col(REASON_COLUMN),
        PIPELINE: f.lit(pipeline),
        TOPIC: f.col("topic"),
        PARTITION: f.col("partition").cast("string"),
        OFFSET: f.col("offset").cast("string"),
    }
    added = f.array(
        *(
            f.struct(f.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
            for name, value in ours.items()
        )
    )
    known = f.coalesce(f.col("headers"), f.array().cast(HEADERS_TYPE))
    return f.concat(known, added.cast(HEADERS_TYPE))


HEADERS_TYPE = "array<struct<key: string, value: binary>>"


RESULT_COLUMN = "__result"
_GIVEN_COLUMN = "__given"


def each_record(
    frame: DataFrame,
    function: Callable[[dict[str, Any]], Any],
    result: StructType,
    *,
    fields: Mapping[str, Column],
) -> DataFrame:
    """Calls a function for each valid record. Its result is in RESULT_COLUMN; if it raises, the
    record gets a reason.

    `fields` has the keys of the function's argument, a dict, and the columns they come from.
    """
    given = f.struct(*(column.alias(name) for name, column in fields.items()))
    rest = frame.drop(PARSED_COLUMN)
    output = StructType([*rest.schema.fields, StructField(RESULT_COLUMN, result)])
    called = frame.withColumn(_GIVEN_COLUMN, given).drop(PARSED_COLUMN)
    return called.mapInArrow(_Caller(function, to_arrow_type(result)), output)


class _Caller:
    """Runs in the workers: batches in, batches out, one call for each record."""

    def __init__(self, function: Callable[[dict[str, Any]], Any], result: pa.StructType) -> None:
        self._function = function
        self._type = result
        self._names = frozenset(field.name for field in result)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows: list[int] = []
            results: list[Any] = []
            reasons: list[str | None] = []
            records = batch.column(_GIVEN_COLUMN).to_pylist()
            known = batch.column(REASON_COLUMN).to_pylist()
            for row, (record, reason) in enumerate(zip(records, known, strict=True)):
                found = [None] if reason is not None else self._results(record)
                if isinstance(found, str):
                    found, reason = [None], found
                rows += [row] * len(found)
                results += found
                reasons += [reason] * len(found)
            kept = batch.drop_columns([_GIVEN_COLUMN]).take(pa.array(rows, pa.int32()))
            at = kept.schema.get_field_index(REASON_COLUMN)
            kept = kept.set_column(at, REASON_COLUMN, pa.array(reasons, pa.string()))
            yield kept.append_column(RESULT_COLUMN, pa.array(results, self._type))

    def _results(self, record: dict[str, Any]) -> list[Any] | str:
        """Returns the results of the function, checked for Arrow; or the reason of a failure."""
        try:
            returned = self._function(record)
            if returned is None:
                return []
            # If a generator raises, the results before that are dropped, too.
            several = [returned] if isinstance(returned, Mapping) else list(returned)
            for each in several:
                self._check(each)
        except Exception as error:
            return f"{type(error).__name__}: {error}"[:_REASON_CHARACTERS_MAX]
        return several

    def _check(self, result: Any) -> None:
        if not isinstance(result, Mapping):
            raise TypeError(f"the function returned {result!r}: expected a dict, several, or None")
        unknown = sorted(set(result) - self._names)
        if unknown:
            raise ValueError(
                f"the function returned the field {unknown[0]!r}, which is not in its schema"
            )
        pa.scalar(result, self._type)
