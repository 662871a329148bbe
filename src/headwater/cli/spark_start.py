"""A Spark session for a command: quiet, with errors of one line, and stopped between batches."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.arguments import read_pairs
from headwater.cli.errors import CommandError
from headwater.cli.extras import install_command

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


@contextmanager
def _silence() -> Iterator[None]:
    """Discards the stderr of processes that are started in here, which is the JVM and its workers.
    What matters of it arrives as exceptions."""
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(nowhere)
        os.close(kept)


@contextmanager
def _no_orphans() -> Iterator[None]:
    """Ends the processes that the block has started if it is left by an error or a signal. A JVM
    whose start is interrupted waits forever: PySpark has removed the folder for its answer."""
    before = _children()
    try:
        yield
    except BaseException:
        for process in _children() - before:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        raise


def _children() -> set[int]:
    """Returns the ids of the child processes of this one, where the system tells them."""
    texts = [each.read_text() for each in Path("/proc/self/task").glob("*/children")]
    return {int(process) for text in texts for process in text.split()}


_STDERR = 2
_LOOK_SECONDS = 0.02
_BATCH_SECONDS_MAX = 60.0
# PySpark logs each error in SQL here, as JSON with the whole Java stack, before it raises it.
_QUERY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def add_spark_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="where Spark runs: local[2], spark://host:7077, yarn, k8s://... (default: local[*])",
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a Spark setting; may be repeated",
    )
    parser.add_argument(
        "--ship",
        action="store_true",
        help="send this package to the executors of a cluster that does not have it installed; "
        "they need Python 3.11 or newer with PyArrow",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show Spark's log, with warnings and stack traces"
    )


def require_spark() -> None:
    """Checks that PySpark and Java are installed. CommandError says what is missing."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise CommandError(
            f"{error.name} is not installed",
            then=f"install it: {install_command('spark', error.name or 'pyspark')}",
        ) from None
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise CommandError(
            "Spark needs Java, and there is no java on the path",
            then="install Java 17 or 21, or set JAVA_HOME to where it is",
        )


@contextmanager
def start_spark(
    options: Namespace, name: str, extra: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """Starts a session on --master, and stops it at the end. `extra` are settings that --conf may
    change."""
    from headwater.spark import spark_session

    settings = {"spark.ui.enabled": "false", **(extra or {}), **read_pairs(options.conf, "--conf")}
    if not options.verbose:
        from pyspark.logger import PySparkLogger

        for each in _QUERY_LOGGERS:
            PySparkLogger.getLogger(each).disabled = True
    with ExitStack() as stack:
        if options.ship:
            from headwater.spark.shipping import shipping_settings

            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="headwater-ship-"))
            settings |= shipping_settings(Path(folder), settings)
        try:
            with _no_orphans(), nullcontext() if options.verbose else _silence():
                spark = spark_session(name, master=options.master, settings=settings)
        except Exception as error:
            from headwater.spark.failures import failure_of

            raise CommandError(
                f"Spark did not start on {options.master}: {failure_of(error)}",
                then="--verbose shows Spark's log",
            ) from None
        stack.callback(spark.stop)
        yield spark


def stop_after_batch(query: StreamingQuery) -> None:
    """Stops a query between two batches: a batch that is cut off would be written again."""
    running = _last_batch(query)
    deadline = time.monotonic() + _BATCH_SECONDS_MAX
    while query.isActive and query.status["isDataAvailable"] and time.monotonic() < deadline:
        if _last_batch(query) != running:
            break
        time.sleep(_LOOK_SECONDS)
    if query.isActive:
        query.stop()


def _last_batch(query: StreamingQuery) -> int | None:
    """Returns the number of the last batch that has finished."""
    progress = query.lastProgress
    return None if progress is None else int(json.loads(progress.json)["batchId"])
