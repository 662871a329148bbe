"""`headwater load`: a topic into files, or files into a topic, with Spark, all partitions at once.

A load may be stopped at any time and run again: it continues where it stopped.
"""

from __future__ import annotations

import json
import os
import time
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import read_pairs
from headwater.cli.connection import add_cluster_options, cluster_of, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, plural, print_json
from headwater.cli.progress import Progress
from headwater.cli.spark_start import (
    add_spark_options,
    require_spark,
    start_spark,
    stop_after_batch,
)
from headwater.cli.stopping import Stopped, StopSignals

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.spark.failures import Failure
    from headwater.spark.load import ToFiles
    from headwater.spark.load_topic import FromFiles

_EXAMPLES = """\
examples:
  headwater load orders --to /lake/orders                          parquet, the whole topic
  headwater load orders --to /lake/orders                          again: records since then
  headwater load orders --to out --format json --since -2h --partition-by day
  headwater load orders --to out --value json --schema 'id string, amount double'
  headwater load --from /lake/orders --to-topic copy               each row a record
  headwater load --from csv --format csv --to-topic customers --key id

A loaded folder keeps its offsets in _headwater/, which other tools skip. From files, the value of a
record is the column value (text or bytes), else the whole row as JSON.
"""

_FORMATS = ("parquet", "json", "csv", "orc")
_LOOK_SECONDS = 0.2


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="the topic to load into files")
    parser.add_argument("--to", metavar="PATH", help="the folder for its files")
    parser.add_argument("--from", dest="source", metavar="PATH", help="the folder to load from")
    parser.add_argument("--to-topic", metavar="TOPIC", help="the topic for its rows")
    parser.add_argument("--format", choices=_FORMATS, default="parquet", help="default: parquet")
    parser.add_argument(
        "--partition-by",
        metavar="COLUMN,...",
        default="",
        help="a subfolder for each value: day, hour, partition, or fields of the schema",
    )
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="only records of this time or later: 2026-03-01T08:00:00Z, or -2h for two hours ago",
    )
    parser.add_argument(
        "--value",
        metavar="WHAT",
        help="the type of values: bytes (default for parquet and orc), text (default for json and "
        "csv), or json, whose fields become columns; with --from: the column that is the value",
    )
    parser.add_argument("--schema", metavar="FIELDS", help="the fields: 'id string, amount double'")
    parser.add_argument("--key", metavar="COLUMN", help="with --from: the column that is the key")
    parser.add_argument(
        "--keep-partitions",
        action="store_true",
        help="with --from: write each record to the partition in its column partition",
    )
    parser.add_argument(
        "--state",
        metavar="DIR",
        help="with --from: where to keep track of loaded files (default: in the folder itself)",
    )
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an option of the source, or of Spark's file reader; may be repeated",
    )
    add_spark_options(parser)
    add_cluster_options(parser)
    add_output_option(parser)
    parser.set_defaults(run=_run)


def _run(options: Namespace) -> int:
    to_files = options.topic is not None and options.to is not None
    from_files = options.source is not None and options.to_topic is not None
    if to_files == from_files or (to_files and (options.source or options.to_topic)):
        raise CommandError(
            "expected `load TOPIC --to PATH` or `load --from PATH --to-topic TOPIC`",
            code=USAGE,
        )
    require_spark()
    from headwater.spark.failures import failure_of
    from headwater.spark.load import LoadError
    from headwater.spark.pipeline import PipelineError

    try:
        with StopSignals():
            return _to_files(options) if to_files else _from_files(options)
    except (LoadError, PipelineError) as error:
        raise CommandError(str(error), code=USAGE) from None
    except CommandError:
        raise
    except Exception as error:
        if options.verbose:
            raise
        failure = failure_of(error)
        raise CommandError(str(failure), then=_advice(failure, options)) from None


def _advice(failure: Failure, options: Namespace) -> str:
    from headwater.spark.failures import Cause

    match failure.cause:
        case Cause.CHECKPOINT:
            return f"the folder belongs to another load: choose another with {_folder(options)}"
        case Cause.DATA_LOST:
            return "to continue without these records, add --option failOnDataLoss=false"
        case Cause.TRANSIENT:
            return "run it again: it continues where it stopped"
        case _:
            return (
                "once that is fixed, run it again: it continues where it stopped; --verbose shows "
                "Spark's log"
            )


def _folder(options: Namespace) -> str:
    return "--to" if options.to is not None else "--state"


def _to_files(options: Namespace) -> int:
    from headwater.spark.load import VALUES, ToFiles, TopicLoad

    default = "json" if options.schema else "text" if options.format in ("json", "csv") else "bytes"
    value = options.value or default
    if value not in VALUES:
        raise CommandError(f"--value {value}: expected {', '.join(VALUES)}", code=USAGE)
    what = ToFiles(
        topic=options.topic,
        format=options.format,
        value=value,
        schema=options.schema,
        partition_by=tuple(name.strip() for name in options.partition_by.split(",") if name),
    )
    given = read_pairs(options.option, "--option")
    _check_since(options.since)
    _check_target(what, _whole(options.to))
    with open_admin(options) as admin:
        admin.describe_topic(options.topic)  # an error if it does not exist
    with start_spark(options, f"load {options.topic}") as spark:
        load = TopicLoad(spark, what, _whole(options.to))
        began = time.monotonic()
        cluster = cluster_of(options)
        given = cluster.spark_options | given
        query = load.start(cluster.bootstrap, since=options.since, options=given)
        _watch(query, options)
        seconds = time.monotonic() - began
        loaded = load.loaded
    if options.output == "json":
        print_json(
            {
                "topic": options.topic,
                "path": options.to,
                "records": loaded.records,
                "files": loaded.files,
                "bytes": loaded.bytes,
                "seconds": round(seconds, 3),
            }
        )
    elif not loaded.records:
        print(f"{options.topic}: nothing new for {options.to}")
    else:
        print(
            f"{options.topic}: {plural(loaded.records, 'record')} in "
            f"{plural(loaded.files, 'file')} ({_size(loaded.bytes)}) to {options.to}, "
            f"{seconds:.1f} s, {loaded.records / seconds:,.0f} records/s"
        )
    return 0


def _from_files(options: Namespace) -> int:
    from headwater.spark.load_topic import FromFiles, start

    what = FromFiles(
        path=_whole(options.source),
        format=options.format,
        topic=options.to_topic,
        key=options.key,
        value=options.value,
        keep_partitions=options.keep_partitions,
    )
    given = read_pairs(options.option, "--option")
    _check_source(what)
    with open_admin(options) as admin:
        if what.topic not in {each.name for each in admin.list_topics()}:
            admin.create_topic(what.topic)
    with start_spark(options, f"load {options.to_topic}") as spark:
        began = time.monotonic()
        state = None if options.state is None else _whole(options.state)
        cluster = cluster_of(options)
        query = start(
            spark,
            what,
            cluster.bootstrap,
            state=state,
            options=given,
            settings=cluster.spark_options,
        )
        records = _watch(query, options)
        seconds = time.monotonic() - began
    if options.output == "json":
        print_json(
            {
                "path": options.source,
                "topic": what.topic,
                "records": records,
                "seconds": round(seconds, 3),
            }
        )
    elif not records:
        print(f"{options.source}: nothing new for topic {what.topic}")
    else:
        print(
            f"{options.source}: {plural(records, 'record')} to topic {what.topic}, "
            f"{seconds:.1f} s, {records / seconds:,.0f} records/s"
        )
    return 0


def _check_since(text: str | None) -> None:
    from headwater.spark.errors import OptionError
    from headwater.spark.options import read_time_ms

    try:
        if text is not None:
            read_time_ms("--since", text, 0)
    except OptionError as error:
        raise CommandError(str(error), code=USAGE) from None


def _check_target(what: ToFiles, path: str) -> None:
    """Checks a folder on a local disk before Spark, which takes seconds, is started."""
    from headwater.spark.load import OWN, check_folder

    if "://" in path:
        return
    if os.path.exists(path) and not os.path.isdir(path):
        raise CommandError(f"{path} is not a folder", code=USAGE)
    known = None
    with suppress(FileNotFoundError), open(os.path.join(path, OWN, "load.json"), "rb") as file:
        known = json.loads(file.read())
    check_folder(path, what, known, has_files=_has_files(path))


def _check_source(what: FromFiles) -> None:
    from headwater.spark.load_topic import check_source

    if "://" not in what.path:
        is_folder = os.path.isdir(what.path)
        check_source(what, is_folder=is_folder, has_files=is_folder and _has_files(what.path))


def _has_files(path: str) -> bool:
    """Returns whether a folder has anything that is not hidden from readers of data."""
    return os.path.isdir(path) and any(not name.startswith((".", "_")) for name in os.listdir(path))


def _watch(query: StreamingQuery, options: Namespace) -> int:
    """Waits for the end, with a bar on a terminal; returns how many rows were read. A signal stops
    the query after its current batch."""
    seen = ""
    # Spark has set a handler for Ctrl-C of its own, which would cut off the batch.
    with (
        StopSignals() as signals,
        Progress(None, "records", shows=options.output == "text") as bar,
    ):
        signals.raises = False
        while True:
            active = query.isActive
            for progress in query.recentProgress:
                known: dict[str, Any] = json.loads(progress.json)
                if known["timestamp"] > seen:
                    seen = known["timestamp"]
                    rows = int(known.get("numInputRows") or 0)
                    left = _left(known)
                    bar.total = None if left is None else bar.done + rows + left
                    bar.add(rows)
            if not active:
                break
            if signals.number is not None:
                stop_after_batch(query)
                raise Stopped(signals.number)
            time.sleep(_LOOK_SECONDS)
    error = query.exception()
    if error is not None:
        raise error
    return bar.done


def _left(progress: dict[str, Any]) -> int | None:
    from headwater.spark.pipeline_status import Status

    return Status(name="").with_progress(progress).lag


def _whole(path: str) -> str:
    return path if "://" in path else os.path.abspath(path)


def _size(count: int) -> str:
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
