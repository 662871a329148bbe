"""Makes Spark queries of pipelines: reads the inputs, calls the function, writes its result.

Results and dead letters are rows of one query, and one sink writes both. So a pipeline has one
checkpoint, and the transaction of a micro-batch has both.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, StringType, StructType

from headwater.spark import dead_letters
from headwater.spark.dead_letters import PARSED_COLUMN, REASON_COLUMN, RESULT_COLUMN
from headwater.spark.exactly_once import exactly_once_writer, write_exactly_once
from headwater.spark.failures import frames_of, place_in, spark_message
from headwater.spark.pipeline import Input, Pipeline, PipelineError, Stream, Table
from headwater.spark.pipeline_sql import CreateInput, InsertInto, SparkText, Statement

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "headwater"
# The columns of a record besides its value; a function sees them with an underscore in front.
ABOUT = ("key", "topic", "partition", "offset", "timestamp", "headers")
_SINK_COLUMNS = frozenset({"key", "value", "partition", "headers", "timestamp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The environment of a pipeline: its cluster, its checkpoints, its dead letters."""

    bootstrap: str
    checkpoints: str
    # kafka.*, for sources and the sink.
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    dead_letters: str | None = None  # a topic; None: records that do not parse are dropped
    once: bool = False  # read what is there now, then stop
    exactly_once: bool = True  # a micro-batch is one transaction; else results may come twice

    def checkpoint(self, pipeline: Pipeline) -> str:
        return f"{self.checkpoints.rstrip('/')}/{pipeline.name}"


def start(spark: SparkSession, pipeline: Pipeline, setting: Setting) -> StreamingQuery:
    """Starts a pipeline that reads streams. PipelineError if it cannot be run."""
    records = rows_to_write(spark, pipeline, setting)
    if not records.isStreaming:
        raise PipelineError(f"{pipeline.name} reads a stream, but its result does not depend on it")
    writer = records.writeStream.queryName(pipeline.name).outputMode(pipeline.mode)
    writer = writer.option("checkpointLocation", setting.checkpoint(pipeline))
    if setting.once:
        writer = writer.trigger(availableNow=True)
    elif pipeline.every is not None:
        writer = writer.trigger(processingTime=pipeline.every)
    options = _sink_options(pipeline, setting)
    if setting.exactly_once:
        checkpoint = setting.checkpoint(pipeline)
        writer = writer.foreachBatch(
            exactly_once_writer(options, group=pipeline.name, checkpoint=checkpoint)
        )
    elif pipeline.mode == "update":
        # Spark refuses output mode update for Python sinks; a batch of it can be written, though.
        def write(batch: DataFrame, _batch_id: int) -> None:
            batch.write.format(FORMAT).mode("append").options(**options).save()

        writer = writer.foreachBatch(write)
    else:
        writer = writer.format(FORMAT).options(**options)
    try:
        return writer.start()
    except AnalysisException as error:
        raise _refusal(pipeline, error) from None


def run_once(spark: SparkSession, pipeline: Pipeline, setting: Setting) -> None:
    """Runs a pipeline that reads tables only."""
    records = rows_to_write(spark, pipeline, setting)
    options = _sink_options(pipeline, setting)
    if setting.exactly_once:
        write_exactly_once(records, options)
    else:
        records.write.format(FORMAT).mode("append").options(**options).save()


def rows_to_write(spark: SparkSession, pipeline: Pipeline, setting: Setting) -> DataFrame:
    """Returns rows for the sink: the results of a pipeline, and its dead letters."""
    if pipeline.each is not None:
        return _rows_of_each(spark, pipeline, setting)
    frames, parsed = {}, []
    for name, source in pipeline.inputs.items():
        frame = _parsed(spark, pipeline, source, setting)
        frames[name] = _good(frame, source)
        if isinstance(source, Stream) == (not pipeline.is_batch) and REASON_COLUMN in frame.columns:
            parsed.append(frame)
    try:
        result = pipeline.function(**frames)
    except PipelineError:
        raise
    except Exception as error:
        raise _refusal(pipeline, error) from error
    if type(result).__name__ != "DataFrame":
        raise PipelineError(f"{pipeline.name} returned {result!r}: expected a DataFrame")
    parts = [_as_records(result, pipeline)]
    if setting.dead_letters is not None:
        parts += [
            dead_letters.letters(frame, topic=setting.dead_letters, pipeline=pipeline.name)
            for frame in parsed
        ]
    return reduce(lambda a, b: a.unionByName(b, allowMissingColumns=True), parts)


def sql_pipelines(statements: Sequence[Statement]) -> list[Pipeline]:
    """Makes the pipelines of a SQL script: one for each INSERT INTO TOPIC."""
    inputs = {each.name: each.input for each in statements if isinstance(each, CreateInput)}
    others = [each for each in statements if isinstance(each, SparkText)]
    done: set[int] = set()  # views and settings are run once, for all queries of the script

    def pipeline_of(insert: InsertInto) -> Pipeline:
        texts = [insert.select.text, *(other.text for other in others)]
        used = {
            name: source
            for name, source in inputs.items()
            if any(re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE) for text in texts)
        }

        def select(**frames: DataFrame) -> DataFrame:
            spark = next(iter(frames.values())).sparkSession
            for name, frame in frames.items():
                frame.createOrReplaceTempView(name)
            for number, other in enumerate(others):
                if number not in done:
                    _run_sql(spark, other)
                    done.add(number)
            return _run_sql(spark, insert.select)

        return Pipeline(
            name=insert.name or insert.to,
            inputs=used,
            function=select,
            to=insert.to,
            key=insert.key,
            mode=insert.mode,
            every=insert.every,
            options=insert.options,
            sql=insert.select,
        )

    return [pipeline_of(each) for each in statements if isinstance(each, InsertInto)]


def _run_sql(spark: SparkSession, sql: SparkText) -> DataFrame:
    try:
        return spark.sql(sql.text)
    except AnalysisException as error:  # also what cannot be parsed
        text, place = spark_message(error)
        line, column = (sql.line, sql.column) if place is None else sql.place_of(*place)
        raise PipelineError(text, line=line, column=column) from None


def _raw(spark: SparkSession, pipeline: Pipeline, source: Input, setting: Setting) -> DataFrame:
    options = {
        "kafka.bootstrap.servers": setting.bootstrap,
        **setting.options,
        "subscribe": source.topic,
        "includeHeaders": "true",
        "startingOffsets": "earliest",
    }
    if any(name.lower().startswith("starting") for name in source.options):
        del options["startingOffsets"]
    own = {name.lower() for name in (*setting.options, *source.options)}
    if setting.exactly_once and "kafka.isolation.level" not in own:
        options["isolation"] = "read_committed"
    if isinstance(source, Stream):
        # With the group, every tool that shows the lag of groups shows that of the pipeline. With
        # transactions the sink commits its offsets.
        if not setting.exactly_once:
            options["group"] = pipeline.name
        reader = spark.readStream.format(FORMAT).options(**options)
        return reader.options(**source.options).load()
    return spark.read.format(FORMAT).options(**options).options(**source.options).load()


def _parsed(spark: SparkSession, pipeline: Pipeline, source: Input, setting: Setting) -> DataFrame:
    """Returns the source's columns, with a schema also the parsed value, and for JSON and text a
    reason."""
    raw = _raw(spark, pipeline, source, setting)
    if isinstance(source, Table):
        raw = _newest(raw)
    match source.value_format:
        case "json":
            assert source.schema is not None
            _fields(source)
            return dead_letters.parse_json(raw, source.schema)
        case "text":
            return dead_letters.parse_text(raw)
        case _:
            return raw


def _newest(raw: DataFrame) -> DataFrame:
    """Returns the latest record of each key. A key is always in the same partition, so offsets can
    be compared."""
    whole = f.struct(*(raw[name] for name in raw.columns))
    newest = (
        raw.where(raw["key"].isNotNull()).groupBy("key").agg(f.max_by(whole, "offset").alias("r"))
    )
    return newest.select("r.*").where(f.col("value").isNotNull())


def _fields(source: Input) -> list[str]:
    assert source.schema is not None
    return struct_of(source.schema, f"topic {source.topic}: schema").fieldNames()


def struct_of(text: str, what: str) -> StructType:
    try:
        struct = StructType.fromDDL(text)
    except ParseException as error:
        reason, _ = spark_message(error)
        raise PipelineError(f"{what} {text!r}: {reason}") from None
    if not isinstance(struct, StructType):
        raise PipelineError(f'{what} {text!r}: expected fields, such as "id string, amount double"')
    return struct


def _columns_of(source: Input) -> dict[str, Column]:
    """Returns the columns that a pipeline's function sees."""
    columns: dict[str, Column] = {}
    is_text = source.value_format != "bytes"
    if source.value_format == "json":
        columns |= {name: f.col(PARSED_COLUMN)[name] for name in _fields(source)}
    else:
        columns["value"] = f.col("value").cast("string") if is_text else f.col("value")
    for name in ABOUT:
        column = f.col(name)
        columns[f"_{name}"] = column.cast("string") if name == "key" and is_text else column
    return columns


def _good(frame: DataFrame, source: Input) -> DataFrame:
    if REASON_COLUMN in frame.columns:
        frame = frame.where(frame[REASON_COLUMN].isNull())
    good = frame.select(*(column.alias(name) for name, column in _columns_of(source).items()))
    if isinstance(source, Stream) and source.watermark is not None:
        column, delay = source.watermark_parts()
        if column not in good.columns:
            raise PipelineError(
                f"topic {source.topic}: there is no column {column} for the watermark; the columns "
                f"are {', '.join(good.columns)}"
            )
        good = good.withWatermark(column, delay)
    return good


def _rows_of_each(spark: SparkSession, pipeline: Pipeline, setting: Setting) -> DataFrame:
    assert pipeline.each is not None
    (source,) = pipeline.inputs.values()
    frame = _parsed(spark, pipeline, source, setting)
    if REASON_COLUMN not in frame.columns:
        frame = frame.withColumn(REASON_COLUMN, f.lit(None).cast("string"))
    result = struct_of(pipeline.each, f"{pipeline.name}: each =")
    called = dead_letters.each_record(frame, pipeline.function, result, fields=_columns_of(source))
    good = called.where(called[REASON_COLUMN].isNull()) if setting.dead_letters is None else called
    is_bad = good[REASON_COLUMN].isNotNull()
    fine = _record_columns(
        {field.name: good[RESULT_COLUMN][field.name] for field in result.fields},
        {field.name: field.dataType.typeName() for field in result.fields},
        pipeline,
    )
    fine.setdefault("key", good["key"])
    fine.setdefault("timestamp", good["timestamp"])
    fine.setdefault("headers", good["headers"])
    headers = dead_letters.headers_with_reason(pipeline.name)
    return good.select(
        f.when(is_bad, f.lit(setting.dead_letters)).otherwise(f.lit(pipeline.to)).alias("topic"),
        f.when(is_bad, good["key"]).otherwise(fine["key"].cast("binary")).alias("key"),
        f.when(is_bad, good["value"]).otherwise(fine["value"].cast("binary")).alias("value"),
        f.when(is_bad, good["timestamp"]).otherwise(fine["timestamp"]).alias("timestamp"),
        f.when(is_bad, headers).otherwise(fine["headers"]).alias("headers"),
    )


def _as_records(result: DataFrame, pipeline: Pipeline) -> DataFrame:
    kinds = {field.name: field.dataType.typeName() for field in result.schema.fields}
    columns = _record_columns({name: result[name] for name in kinds}, kinds, pipeline)
    columns["topic"] = f.lit(pipeline.to)
    for name in ("key", "value"):
        if name in columns:
            columns[name] = columns[name].cast("binary")
    return result.select(*(column.alias(name) for name, column in columns.items()))


def _record_columns(
    columns: dict[str, Column], kinds: dict[str, str], pipeline: Pipeline
) -> dict[str, Column]:
    """Returns the sink's columns for a result.

    A result with a value of text or bytes, and otherwise only columns of the sink, is written as it
    is. The columns of any other become the fields of a JSON object. `_key`, `_timestamp` and
    `_headers`, if the result has them, become those of the record.
    """
    own = [name for name in columns if not name.startswith("_")]
    text_or_bytes = (StringType.typeName(), BinaryType.typeName())
    if kinds.get("value") in text_or_bytes and _SINK_COLUMNS.issuperset(own):
        records = {name: columns[name] for name in own}
    elif not own:
        raise PipelineError(f"{pipeline.name} returns no columns to write")
    else:
        value = f.to_json(f.struct(*(columns[name].alias(name) for name in own)))
        records = {"value": value}
    if pipeline.key is not None:
        if pipeline.key not in columns:
            raise PipelineError(
                f"{pipeline.name}: key {pipeline.key!r} is not a column of the result; it has "
                f"{', '.join(columns)}"
            )
        key = columns[pipeline.key]
        is_nested = kinds[pipeline.key] in ("struct", "array", "map")
        is_bytes = kinds[pipeline.key] == BinaryType.typeName()
        records["key"] = f.to_json(key) if is_nested else key if is_bytes else key.cast("string")
    for name in ("key", "timestamp", "headers"):
        if f"_{name}" in columns:
            records.setdefault(name, columns[f"_{name}"])
    return records


def _sink_options(pipeline: Pipeline, setting: Setting) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": setting.bootstrap,
        **setting.options,
        **pipeline.options,
    }


def _refusal(pipeline: Pipeline, error: Exception) -> PipelineError:
    """Makes an error that names the line of the user's code, if the error was raised there."""
    text, _ = spark_message(error)
    update = 'mode="update"' if pipeline.sql is None else "mode = 'update'"
    if not isinstance(error, AnalysisException):
        text = f"{type(error).__name__}: {error}"
    elif "OUTPUT_MODE" in text.upper() or "output mode not supported" in text.lower():
        text = (
            f"rows that may still change cannot be appended: use {update}, or give the input a "
            f"watermark and group by a window of it ({text})"
        )
    if pipeline.sql is not None:
        line, column = pipeline.sql.line, pipeline.sql.column
        return PipelineError(f"{pipeline.name}: {text}", line=line, column=column)
    code: Any = getattr(pipeline.function, "__code__", None)
    own = getattr(code, "co_filename", "")
    place = place_in(os.path.dirname(own), frames_of(error))
    if place is None:
        return PipelineError(f"{pipeline.name}: {text}")
    file, line = place
    return PipelineError(f"{pipeline.name}: {text}", line=line, file=file if file != own else None)
