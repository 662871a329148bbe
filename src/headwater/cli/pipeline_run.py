"""`headwater pipeline run`: starts the queries of a file, watches them, and stops them.

Before a query starts, its name is claimed in the cluster and its checkpoint is locked, so that no
pipeline runs twice. A query that fails for a reason that may pass (a broker that restarts) is
started again from its checkpoint; for any other reason all are stopped, and the command ends with
that reason and what to do about it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
import uuid
from argparse import Namespace
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.connection import cluster_of, explained_errors, open_admin
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import plural
from headwater.cli.pipeline_file import PipelineFile
from headwater.cli.spark_start import require_spark, start_spark, stop_after_batch
from headwater.cli.stopping import StopSignals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.blocking import Admin
    from headwater.cli.pipeline_registry import Registry
    from headwater.spark.failures import Failure
    from headwater.spark.pipeline import Pipeline
    from headwater.spark.pipeline_query import Setting
    from headwater.spark.pipeline_status import Status

_LOOK_SECONDS = 0.25
_SAY_SECONDS = 10.0
_RESTARTS_MAX = 5  # without a finished batch in between


def run(options: Namespace) -> int:
    require_spark()
    file = PipelineFile(Path(options.file))
    with StopSignals(), ExitStack() as stack:
        if file.needs_session:
            with open_admin(options):  # is there a cluster at all? Spark takes seconds to start
                pass
            spark = stack.enter_context(start_spark(options, file.path.stem))
        pipelines = file.pipelines(options.name)
        with open_admin(options) as admin:
            settings = {each.name: _prepare(admin, each, options) for each in pipelines}
        from headwater.cli.pipeline_registry import Registry, lock_checkpoint

        with explained_errors():
            registry = stack.enter_context(Registry(cluster_of(options)))
            runs = [_Run(file, each, settings[each.name], options, registry) for each in pipelines]
            stack.callback(_release, runs)
            for each in runs:
                lock = lock_checkpoint(each.status)
                if lock is not None:
                    stack.callback(os.close, lock)
                each.claim()
        if not file.needs_session:
            spark = stack.enter_context(start_spark(options, file.path.stem))
        # Spark has set a handler for Ctrl-C of its own, which would cut off the batch.
        with StopSignals() as signals:
            signals.raises = False
            return _watch(spark, runs, signals)


def _watch(spark: SparkSession, runs: list[_Run], signals: StopSignals) -> int:
    try:
        for each in runs:
            each.start(spark)
        while any(each.is_active for each in runs) and signals.number is None:
            time.sleep(_LOOK_SECONDS)
            for each in runs:
                each.look()
        if signals.number is not None:
            print("stopping after the current batch", file=sys.stderr)
    finally:
        for each in runs:
            each.stop()
    return FAILED if any(each.has_failed for each in runs) else 0


def _release(runs: list[_Run]) -> None:
    """Gives up the names of pipelines that were claimed and never started."""
    for each in runs:
        each.stop()


class _Run:
    """A run of a pipeline: its query, and its status in the cluster."""

    def __init__(
        self,
        file: PipelineFile,
        pipeline: Pipeline,
        setting: Setting,
        options: Namespace,
        registry: Registry,
    ) -> None:
        from headwater.cli.pipeline_registry import machine
        from headwater.spark.pipeline_status import Status

        self._file = file
        self._pipeline = pipeline
        self._setting = setting
        self._registry = registry
        self._output = options.output
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None
        self._is_claimed = False
        self._failures = 0
        self._start_at: float | None = None  # when to start again after a failure
        self._said_at = float("-inf")
        self.status: Status = Status(
            name=pipeline.name,
            run=uuid.uuid4().hex,
            file=os.path.abspath(options.file),
            host=socket.gethostname(),
            machine=machine(),
            pid=os.getpid(),
            master=options.master,
            reads=tuple(dict.fromkeys(each.topic for each in pipeline.inputs.values())),
            writes=pipeline.to,
            dead_letters=setting.dead_letters,
            mode=pipeline.mode,
            checkpoint=setting.checkpoint(pipeline),
            started_ms=int(time.time() * 1000),
        )

    @property
    def is_active(self) -> bool:
        return self._is_claimed and self.status.state == "running"

    @property
    def has_failed(self) -> bool:
        return self.status.state == "failed"

    def claim(self) -> None:
        """Makes this the only run of the pipeline. CommandError if another one runs."""
        self._registry.claim(self.status)
        self._is_claimed = True

    def start(self, spark: SparkSession) -> None:
        from headwater.spark.failures import failure_of
        from headwater.spark.pipeline import PipelineError
        from headwater.spark.pipeline_query import run_once, start

        self._spark, self._start_at = spark, None
        if self._failures == 0:
            reads = ", ".join(self.status.reads)
            self._print(f"{self._pipeline.name}: {reads} -> {self._pipeline.to}")
        try:
            if self._pipeline.is_batch:
                run_once(spark, self._pipeline, self._setting)
                self._end("finished")
            else:
                self._query = start(spark, self._pipeline, self._setting)
        except PipelineError as error:
            self._end("failed", str(error))
            raise self._file.refusal(error) from None
        except Exception as error:
            self._failed(failure_of(error, folder=self._file.folder))

    def look(self) -> None:
        """Takes in what has happened since the last look."""
        if not self.is_active:
            return
        if self._start_at is not None:
            if time.monotonic() >= self._start_at:
                assert self._spark is not None
                self.start(self._spark)
            return
        query = self._query
        if query is None:
            return
        ended = not query.isActive  # asked first: progress that comes before the end is not missed
        self._take_progress(query)
        if ended:
            self._ended(query)

    def _take_progress(self, query: StreamingQuery) -> None:
        before = self.status
        for progress in query.recentProgress:
            self.status = self.status.with_progress(_as_dict(progress))
        if self.status.rows_in != before.rows_in:
            self._failures = 0
            self.status = replace(self.status, error=None)
            self._say()
            self._write()

    def _ended(self, query: StreamingQuery) -> None:
        from headwater.spark.failures import failure_of

        error = query.exception()
        if error is None:
            self._end("finished" if self._setting.once else "stopped")
        else:
            self._failed(failure_of(error, folder=self._file.folder))

    def _failed(self, failure: Failure) -> None:
        from headwater.spark.failures import Cause

        self._failures += 1
        text = self._file.shown(failure.text)
        if failure.place is not None and self._pipeline.sql is not None:
            line, column = self._pipeline.sql.place_of(*failure.place)
            text = f"{self._file.path}, line {line}, column {column}: {text}"
        if failure.cause is Cause.TRANSIENT and self._failures <= _RESTARTS_MAX:
            wait = float(2**self._failures)
            self._start_at = time.monotonic() + wait
            self.status = replace(self.status, error=text)
            self._write()
            print(f"{self.status.name}: {text}; starting again in {wait:g} s", file=sys.stderr)
            return
        self._end("failed", text)
        raise CommandError(f"{self.status.name}: {text}", then=self._advice(failure))

    def _advice(self, failure: Failure) -> str:
        """Returns what to do about an error that does not pass by itself."""
        from headwater.spark.failures import Cause

        name, checkpoint = self.status.name, self.status.checkpoint
        reset = f"`headwater pipeline reset {name}`"
        match failure.cause:
            case Cause.CHECKPOINT:
                return (
                    f"{checkpoint} belongs to another query, or to this one before it was changed: "
                    f"run it with --name to start under another name, or {reset} to start over"
                )
            case Cause.DATA_LOST:
                return (
                    "to continue without these records, set failOnDataLoss=false on the input; "
                    f"to start over with what is left, {reset}"
                )
            case Cause.USER_CODE:
                return (
                    f"fix {self._file.path} and run it again: it continues from {checkpoint}; "
                    f"to start over instead, {reset}"
                )
            case Cause.TRANSIENT:
                return f"run it again when the cluster is back: it continues from {checkpoint}"
            case _:
                return f"once that is fixed, run it again: it continues from {checkpoint}"

    def stop(self) -> None:
        """Stops between two batches: a batch that is cut off would be written again."""
        if not self.is_active:
            return
        if self._query is not None:
            stop_after_batch(self._query)
            self._take_progress(self._query)
        self._end("stopped")

    def _end(self, state: str, error: str | None = None) -> None:
        self.status = replace(self.status, state=state, error=error or self.status.error)
        self._write()
        if state != "failed" and self._spark is not None:
            self._print(
                f"{self.status.name}: {state} after "
                f"{plural(self.status.rows_in, 'record')}, lag {self.status.lag or 0:,}"
            )

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at < _SAY_SECONDS:
            return
        self._said_at = now
        status = self.status
        self._print(
            f"{status.name}: batch {status.batch}, {plural(status.rows_in, 'record')}, "
            f"{status.input_rate:,.0f}/s, lag {status.lag or 0:,}, {status.batch_ms} ms"
            + (f", {plural(status.state_rows, 'row')} of state" if status.state_rows else "")
        )

    def _print(self, text: str) -> None:
        """Prints a line for people; for programs, the status as an object in a line."""
        if self._output == "json":
            text = json.dumps(asdict(self.status))
        print(text, flush=True)

    def _write(self) -> None:
        self._registry.write(self.status)


def _as_dict(progress: Any) -> dict[str, Any]:
    known: dict[str, Any] = json.loads(progress.json)
    return known


def _prepare(admin: Admin, pipeline: Pipeline, options: Namespace) -> Setting:
    """Checks that inputs exist, and creates the topics that are written."""
    from headwater.client.errors import TopicExists
    from headwater.spark.pipeline_query import Setting
    from headwater.spark.pipeline_status import TOPIC, TOPIC_CONFIGS

    there = {each.name for each in admin.list_topics(internal=True)}
    for each in pipeline.inputs.values():
        if each.topic not in there:
            raise CommandError(
                f"{pipeline.name} reads topic {each.topic}, which does not exist",
                then=f"`headwater topic create {each.topic}` creates it; `headwater topic list` "
                "lists the topics",
            )
    letters = options.dead_letters or f"{pipeline.name}.dead-letters"
    for name in (pipeline.to, letters, TOPIC):
        if name not in there:
            with suppress(TopicExists):  # another run that starts now may be quicker
                if name == TOPIC:
                    admin.create_topic(name, partitions=1, configs=TOPIC_CONFIGS)
                else:
                    admin.create_topic(name)
    checkpoints = options.checkpoints
    if "://" not in checkpoints:
        checkpoints = os.path.abspath(checkpoints)
    cluster = cluster_of(options)
    return Setting(
        bootstrap=cluster.bootstrap,
        options=cluster.spark_options,
        checkpoints=checkpoints,
        dead_letters=letters,
        once=options.once,
        exactly_once=options.delivery == "exactly_once",
    )
