"""Loads files into a topic: each file that is not loaded yet, each row a record.

A bounded stream over the folder: its checkpoint has the files, so a second run loads only new ones.
If a run ends in the middle of a batch, the next one writes the records of that batch again: the
sink is at least once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from headwater.spark.failures import spark_message
from headwater.spark.load import OWN, LoadError
from headwater.spark.load_folder import Folder
from headwater.spark.pipeline_query import FORMAT

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# Columns of a folder that was loaded from a topic, which a new record does not take.
_OLD = frozenset({"offset", "partition", "day", "hour", "topic", "timestampType"})
_HEADERS = "array<struct<key:string,value:binary>>"


@dataclass(frozen=True, slots=True, kw_only=True)
class FromFiles:
    path: str
    format: str
    topic: str
    key: str | None = None  # columns; None: as they are called
    value: str | None = None
    keep_partitions: bool = False


def start(
    spark: SparkSession,
    what: FromFiles,
    bootstrap: str,
    *,
    state: str | None,
    options: Mapping[str, str],
    settings: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Starts the load. `options` are for the files, `settings` for the topic. LoadError if the
    folder is empty or a column is missing."""
    folder = Folder(spark, what.path)
    check_source(what, is_folder=folder.is_folder(), has_files=folder.has_files())
    reading = {"header": "true", **options} if what.format == "csv" else dict(options)
    try:
        schema = spark.read.format(what.format).options(**reading).load(what.path).schema
    except AnalysisException as error:
        first, _ = spark_message(error)
        raise LoadError(f"{what.path} has no readable {what.format} files: {first}") from None
    stream = spark.readStream.format(what.format).options(**reading).schema(schema)
    records = records_of(stream.load(what.path), what)
    checkpoint = state or folder.at(f"{OWN}/to-{what.topic}")
    return (
        records.writeStream.format(FORMAT)
        .options(**{"kafka.bootstrap.servers": bootstrap, "topic": what.topic, **(settings or {})})
        .queryName(f"load-{what.topic}")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )


def check_source(what: FromFiles, *, is_folder: bool, has_files: bool) -> None:
    """Checks that there is something to load. LoadError if not."""
    if not is_folder:
        raise LoadError(f"{what.path} is not a folder: --from takes one with {what.format} files")
    if not has_files:
        raise LoadError(f"{what.path} has no files")


def records_of(rows: DataFrame, what: FromFiles) -> DataFrame:
    """Returns rows for the sink. A column `value` of text or bytes is the value; without one, the
    whole row is, as JSON."""
    kinds = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    for option, name in (("--key", what.key), ("--value", what.value)):
        if name is not None and name not in kinds:
            raise LoadError(
                f"{option} {name}: there is no such column; the columns are {', '.join(kinds)}"
            )
    value = what.value or ("value" if kinds.get("value") in ("string", "binary") else None)
    key = what.key or _first(kinds, "_key", "key")
    records: dict[str, Column] = {}
    if value is not None:
        records["value"] = _bytes(rows[value], kinds[value])
    else:
        fields = [name for name in kinds if not name.startswith("_") and name not in _OLD]
        records["value"] = f.to_json(f.struct(*fields))
    if key is not None:
        records["key"] = _bytes(rows[key], kinds[key])
    if (moment := _first(kinds, "_timestamp", "timestamp")) is not None:
        if kinds[moment] == "string":
            records["timestamp"] = f.try_to_timestamp(rows[moment])
        elif kinds[moment] == "timestamp":
            records["timestamp"] = rows[moment]
    headers = _first(kinds, "_headers", "headers")
    if headers and kinds[headers].replace("value:string", "value:binary") == _HEADERS:
        records["headers"] = rows[headers].cast(_HEADERS)
    if what.keep_partitions:
        if (partition := _first(kinds, "_partition", "partition")) is None:
            raise LoadError("--keep-partitions: there is no column partition")
        records["partition"] = rows[partition].cast("int")
    return rows.select(*(column.alias(name) for name, column in records.items()))


def _first(kinds: Mapping[str, str], *names: str) -> str | None:
    return next((name for name in names if name in kinds), None)


def _bytes(column: Column, kind: str) -> Column:
    if kind == "binary":
        return column
    if kind.startswith(("struct", "array", "map")):
        return f.to_json(column)
    return column.cast("string")
