"""Loads a topic into files: a bounded stream with its checkpoint in the folder that it fills.

The folder has the data and, in `_headwater/`, which readers of folders skip, the state for the next
run: the checkpoint with the offsets, the arguments of the load, and a note for each batch. A batch
is written aside, then its files are moved in under names of their own, then its note is written. A
run that ends anywhere in between is continued by the next one: a batch with a note is not written
again; of one without, the files that were moved in are deleted and it is written again. So no
reader sees a record twice or misses one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Observation
from pyspark.sql import functions as f

from headwater.spark.dead_letters import PARSED_COLUMN, REASON_COLUMN, parse_json
from headwater.spark.fields import FieldsError, field_names
from headwater.spark.load_folder import Folder
from headwater.spark.pipeline_query import FORMAT, struct_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMATS = ("parquet", "orc", "json", "csv")
VALUES = ("bytes", "text", "json")
OWN = "_headwater"
# Small enough for a progress bar to move, large enough for files that are efficient to read.
BATCH_BYTES = "256m"

# What a record has besides its value, as columns of the files.
ABOUT = ("key", "headers", "partition", "offset", "timestamp")
# What files may be partitioned by besides their columns: parts of the record's time.
TIMES = {"day": "yyyy-MM-dd", "hour": "yyyy-MM-dd-HH"}


class LoadError(Exception):
    """A load cannot be done as asked: which topic or path, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToFiles:
    """The arguments of a load. A folder is filled by one of these, over any number of runs."""

    topic: str
    format: str
    value: str
    schema: str | None = None
    partition_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.value == "json") != (self.schema is not None):
            raise LoadError(
                "--value json and --schema go together: give the fields, such as "
                "--value json --schema 'id string, amount double'"
            )
        if self.value == "bytes" and self.format == "csv":
            raise LoadError("a CSV file cannot hold bytes: use --value text, or --format parquet")
        if self.schema is not None:
            try:
                field_names(self.schema)
            except FieldsError as error:
                raise LoadError(f"--schema {self.schema!r}: {error}") from None
        for name in self.partition_by:
            if name not in self._columns():
                raise LoadError(
                    f"--partition-by {name}: there is no such column; the columns are "
                    f"{', '.join(self._columns())}"
                )

    def _columns(self) -> list[str]:
        """Returns the columns to partition by: those of the files, and parts of the time."""
        if self.schema is None:
            columns = ["value", *ABOUT]
        else:
            columns = [*field_names(self.schema), *(f"_{name}" for name in ABOUT), "_unparsed"]
        return [*columns, *(name for name in TIMES if name not in columns)]


@dataclass(frozen=True, slots=True)
class Loaded:
    """The amount that a run has written."""

    records: int
    files: int
    bytes: int
    batches: int


class TopicLoad:
    """One run of a load."""

    def __init__(self, spark: SparkSession, what: ToFiles, path: str) -> None:
        self._spark = spark
        self._what = what
        self._folder = Folder(spark, path)
        self._written: list[dict[str, Any]] = []

    def start(
        self, bootstrap: str, *, since: str | None, options: Mapping[str, str]
    ) -> StreamingQuery:
        """Starts the load. `since` is for the first run only: later ones continue where the last
        one ended."""
        self._claim()
        given = {
            "kafka.bootstrap.servers": bootstrap,
            "subscribe": self._what.topic,
            "includeHeaders": "true",
            "maxBytesPerTrigger": BATCH_BYTES,
            **({"startingOffsets": "earliest"} if since is None else {"startingTime": since}),
            **options,
        }
        raw = self._spark.readStream.format(FORMAT).options(**given).load()
        rows = rows_of(raw, self._what)
        return (
            rows.writeStream.foreachBatch(self._write)
            .queryName(f"load-{self._what.topic}")
            .option("checkpointLocation", self._folder.at(f"{OWN}/checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    @property
    def loaded(self) -> Loaded:
        return Loaded(
            records=sum(each["records"] for each in self._written),
            files=sum(len(each["files"]) for each in self._written),
            bytes=sum(each["bytes"] for each in self._written),
            batches=len(self._written),
        )

    def _claim(self) -> None:
        folder = self._folder
        known = folder.read_json(f"{OWN}/load.json")
        check_folder(folder.path, self._what, known, has_files=folder.has_files())
        if known is None:
            folder.write_json(f"{OWN}/load.json", asdict(self._what))

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        folder, note = self._folder, f"{OWN}/batches/{batch_id}.json"
        if folder.exists(note):
            return  # the last run ended after the note and before Spark's commit
        moving = folder.read_json(f"{OWN}/moving.json")
        if moving is not None and moving["batch"] == batch_id:
            for name in moving["files"]:
                folder.delete(name)
        aside = f"{OWN}/aside"
        folder.delete(aside)
        seen = Observation()
        writer = batch.observe(seen, f.count(f.lit(1)).alias("records")).write
        if self._what.partition_by:
            writer = writer.partitionBy(*self._what.partition_by)
        if self._what.format == "csv":
            writer = writer.option("header", "true")
        writer.format(self._what.format).save(folder.at(aside))
        moves, size = {}, 0
        for number, (name, length) in enumerate(folder.files(aside)):
            parent, _, last = name.rpartition("/")
            inside = parent.removeprefix(aside).strip("/")
            kind = last.partition(".")[2]
            target = f"{batch_id:06}-{number:05}.{kind}"
            moves[name] = f"{inside}/{target}" if inside else target
            size += length
        folder.write_json(f"{OWN}/moving.json", {"batch": batch_id, "files": list(moves.values())})
        for name, target in moves.items():
            folder.move(name, target)
        written = {
            "records": int(seen.get["records"]),
            "bytes": size,
            "files": list(moves.values()),
        }
        folder.write_json(note, written)
        folder.delete(aside)
        self._written.append(written)


def check_folder(path: str, what: ToFiles, known: Any | None, *, has_files: bool) -> None:
    """Checks that a folder is empty, or that an earlier run of the same load began it. `known` is
    the content of its `load.json`. LoadError says what differs."""
    if known is None:
        if has_files:
            raise LoadError(
                f"{path} has files that were not written by a load: choose another folder"
            )
        return
    for name, value in json.loads(json.dumps(asdict(what))).items():
        if known.get(name) != value:
            raise LoadError(
                f"{path} was loaded with {name} {_shown(known.get(name))}, and now it is "
                f"{_shown(value)}: choose another folder, or ask for the same"
            )


def rows_of(raw: DataFrame, what: ToFiles) -> DataFrame:
    """Returns the columns of the files."""
    columns: dict[str, Column]
    if what.value == "json":
        assert what.schema is not None
        fields = struct_of(what.schema, "--schema").fieldNames()
        raw = parse_json(raw, what.schema)
        columns = {name: f.col(PARSED_COLUMN)[name] for name in fields}
        unread = f.when(f.col(REASON_COLUMN).isNotNull(), f.col("value").cast("string"))
        columns |= _about(raw, what, prefix="_") | {"_unparsed": unread}
    else:
        value = raw["value"] if what.value == "bytes" else raw["value"].cast("string")
        columns = {"value": value} | _about(raw, what, prefix="")
    for name, pattern in TIMES.items():
        if name in what.partition_by and name not in columns:
            columns[name] = f.date_format(raw["timestamp"], pattern)
    return raw.select(*(column.alias(name) for name, column in columns.items()))


def _about(raw: DataFrame, what: ToFiles, *, prefix: str) -> dict[str, Column]:
    """Returns the columns of a record besides its value."""
    key, headers = raw["key"], raw["headers"]
    if what.value != "bytes":
        key = key.cast("string")
        headers = f.transform(
            headers,
            lambda each: f.struct(
                each["key"].alias("key"), each["value"].cast("string").alias("value")
            ),
        )
    if what.format == "csv":
        headers = f.to_json(headers)
    known = {name: raw[name] for name in ABOUT} | {"key": key, "headers": headers}
    return {f"{prefix}{name}": column for name, column in known.items()}


def _shown(value: Any) -> str:
    return ", ".join(value) or "none" if isinstance(value, list) else str(value)
