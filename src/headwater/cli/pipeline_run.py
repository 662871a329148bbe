"""`headwater pipeline run`: starts the queries of a file, watches them, and ends them well.

Each query is noted in the cluster after its batches and every few seconds. A query that fails for a
reason that may pass (a broker that restarts) is started again from its checkpoint; for any other
reason all are stopped, and the command ends with that reason.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from argparse import Namespace
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.actions import plural
from headwater.cli.cluster_options import cluster_of, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.blocking import Admin
    from headwater.cli.pipeline_notes import Notes
    from headwater.spark.pipeline import Pipeline
    from headwater.spark.pipeline_query import Setting
    from headwater.spark.pipeline_status import Status

_LOOK_SECONDS = 0.25
_SAY_SECONDS = 10.0
_BATCH_PATIENCE_SECONDS = 60.0
_RESTARTS_MAX = 5  # without a finished batch in between


def run(options: Namespace) -> int:
    from headwater.cli.spark_start import require_spark, start_spark

    require_spark()
    path = Path(options.file)
    pipelines = _load(path, options)
    with open_admin(options) as admin:
        settings = {each.name: _prepare(admin, each, options) for each in pipelines}
    from headwater.cli.pipeline_notes import Notes

    spark = start_spark(options, path.stem)
    stopping = _Stopping()
    notes = Notes(cluster_of(options))
    runs = [_Run(spark, each, settings[each.name], options, notes) for each in pipelines]
    try:
        return _watch(runs, stopping)
    finally:
        notes.close()
        spark.stop()


def _watch(runs: list[_Run], stopping: _Stopping) -> int:
    from headwater.spark.pipeline import PipelineError

    try:
        for each in runs:
            each.start()
        while any(each.is_active for each in runs) and not stopping.wait(_LOOK_SECONDS):
            for each in runs:
                each.look()
    except PipelineError as error:
        raise CommandError(str(error)) from None
    finally:
        for each in runs:
            each.stop()
    return FAILED if any(each.has_failed for each in runs) else 0


class _Stopping:
    """SIGTERM or Ctrl-C: batches that run are finished first. A second one does not wait."""

    def __init__(self) -> None:
        self._event = threading.Event()
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, self._called)

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)

    def _called(self, number: int, _frame: object) -> None:
        if self._event.is_set():
            raise KeyboardInterrupt
        self._event.set()
        print("stopping when the batches that run are finished", file=sys.stderr)


class _Run:
    """A pipeline as it runs."""

    def __init__(
        self,
        spark: SparkSession,
        pipeline: Pipeline,
        setting: Setting,
        options: Namespace,
        notes: Notes,
    ) -> None:
        from headwater.spark.pipeline_status import Status

        self._spark = spark
        self._pipeline = pipeline
        self._setting = setting
        self._notes = notes
        self._output = options.output
        self._query: StreamingQuery | None = None
        self._failures = 0
        self._start_at: float | None = None  # again, after a failure
        self._noted_at = self._said_at = float("-inf")
        self._status: Status = Status(
            name=pipeline.name,
            file=os.path.abspath(options.file),
            host=socket.gethostname(),
            pid=os.getpid(),
            master=options.master,
            reads=tuple(dict.fromkeys(each.topic for each in pipeline.inputs.values())),
            writes=pipeline.to,
            dead_letters=setting.dead_letters,
            mode=pipeline.mode,
            checkpoint=setting.checkpoint(pipeline),
            started_ms=_wall_ms(),
        )

    @property
    def is_active(self) -> bool:
        return self._status.state == "running"

    @property
    def has_failed(self) -> bool:
        return self._status.state == "failed"

    def start(self) -> None:
        from headwater.spark.pipeline import PipelineError
        from headwater.spark.pipeline_query import run_once, start
        from headwater.spark.reasons import reason_of

        self._start_at = None
        if self._failures == 0:
            reads = ", ".join(self._status.reads)
            self._print(f"{self._pipeline.name}: {reads} -> {self._pipeline.to}")
            self._note()
        try:
            if self._pipeline.is_batch:
                run_once(self._spark, self._pipeline, self._setting)
                self._end("finished")
            else:
                self._query = start(self._spark, self._pipeline, self._setting)
        except PipelineError as error:
            self._end("failed", str(error))
            raise
        except Exception as error:
            self._failed(reason_of(error))

    def look(self) -> None:
        """Notes what has happened since the last look."""
        if not self.is_active:
            return
        if self._start_at is not None:
            if time.monotonic() >= self._start_at:
                self.start()
            return
        query = self._query
        assert query is not None
        ended = not query.isActive  # asked first: what comes after the end is not missed
        self._take_progress(query)
        if ended:
            self._ended(query)
        elif time.monotonic() - self._noted_at > _note_every():
            self._note()

    def _take_progress(self, query: StreamingQuery) -> None:
        before = self._status
        for progress in query.recentProgress:
            self._status = self._status.with_progress(_as_dict(progress))
        if self._status.rows_in != before.rows_in:
            self._failures = 0
            self._status = replace(self._status, error=None)
            self._say()
            self._note()

    def _ended(self, query: StreamingQuery) -> None:
        from headwater.spark.reasons import reason_of

        error = query.exception()
        if error is None:
            self._end("finished" if self._setting.once else "stopped")
        else:
            self._failed(reason_of(error))

    def _failed(self, reason: Any) -> None:
        self._failures += 1
        if reason.may_pass and self._failures <= _RESTARTS_MAX:
            wait = float(2**self._failures)
            self._start_at = time.monotonic() + wait
            self._status = replace(self._status, error=str(reason))
            self._note()
            print(f"{self._status.name}: {reason}; again in {wait:g} s", file=sys.stderr)
            return
        self._end("failed", str(reason))
        raise CommandError(
            f"{self._status.name}: {reason}",
            then=f"nothing is lost: it goes on from {self._status.checkpoint} when it is run again",
        )

    def stop(self) -> None:
        """Ends at the border of a batch: one that is cut off would be written again."""
        query = self._query
        if not self.is_active or (query is None and self._start_at is None):
            return
        if query is not None:
            self._finish_batch(query)
        self._end("stopped")

    def _finish_batch(self, query: StreamingQuery) -> None:
        running = _batch_of(query)
        deadline = time.monotonic() + _BATCH_PATIENCE_SECONDS
        while query.isActive and query.status["isDataAvailable"] and time.monotonic() < deadline:
            if _batch_of(query) != running:
                break
            time.sleep(0.02)
        if query.isActive:
            query.stop()
        self._take_progress(query)

    def _end(self, state: str, error: str | None = None) -> None:
        self._status = replace(self._status, state=state, error=error or self._status.error)
        self._note()
        if state != "failed":
            self._print(
                f"{self._status.name}: {state} after "
                f"{plural(self._status.rows_in, 'record')}, lag {self._status.lag or 0:,}"
            )

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at < _SAY_SECONDS:
            return
        self._said_at = now
        status = self._status
        self._print(
            f"{status.name}: batch {status.batch}, {plural(status.rows_in, 'record')}, "
            f"{status.input_rate:,.0f}/s, lag {status.lag or 0:,}, {status.batch_ms} ms"
            + (f", {plural(status.state_rows, 'row')} of state" if status.state_rows else "")
        )

    def _print(self, text: str) -> None:
        """A line for people; for programs, an object a line with all that is known."""
        if self._output == "json":
            text = json.dumps(asdict(self._status))
        print(text, flush=True)

    def _note(self) -> None:
        self._noted_at = time.monotonic()
        self._status = replace(self._status, noted_ms=_wall_ms())
        self._notes.write(self._status)


def _note_every() -> float:
    from headwater.spark.pipeline_status import NOTE_EVERY_SECONDS

    return NOTE_EVERY_SECONDS


def _wall_ms() -> int:
    return int(time.time() * 1000)


def _batch_of(query: StreamingQuery) -> int | None:
    """The last batch that is finished."""
    progress = query.lastProgress
    return None if progress is None else int(_as_dict(progress)["batchId"])


def _as_dict(progress: Any) -> dict[str, Any]:
    import json

    known: dict[str, Any] = json.loads(progress.json)
    return known


def _load(path: Path, options: Namespace) -> list[Pipeline]:
    """The pipelines of a file."""
    from headwater.spark.pipeline import PipelineError, declared_in
    from headwater.spark.pipeline_sql import parse

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise CommandError(f"{path}: {reason.lower()}", code=USAGE) from None
    try:
        if path.suffix == ".sql":
            statements = parse(text)
            from headwater.spark.pipeline_query import sql_pipelines

            pipelines = sql_pipelines(statements)
        elif path.suffix == ".py":
            pipelines = declared_in(_executed(path, text))
        else:
            raise CommandError(f"{path}: expected a file that ends with .py or .sql", code=USAGE)
    except PipelineError as error:
        raise CommandError(f"{path}: {error}", code=USAGE) from None
    if not pipelines:
        what = "an INSERT INTO TOPIC" if path.suffix == ".sql" else "a function with @pipeline"
        raise CommandError(f"{path} has no pipeline: expected {what}", code=USAGE)
    names = [each.name for each in pipelines]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise CommandError(f"{path}: two pipelines are called {twice}: give one a name", code=USAGE)
    if options.name is None:
        return pipelines
    if len(pipelines) > 1:
        raise CommandError(f"--name: {path} has several: {', '.join(names)}", code=USAGE)
    return [pipelines[0].with_name(options.name)]


def _executed(path: Path, text: str) -> dict[str, Any]:
    """What a Python file defines. It is no module that workers could import, so its functions
    travel to them whole; what it imports from beside it must be there for them, too."""
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{folder}{os.pathsep}{known}" if known else folder
    namespace: dict[str, Any] = {"__name__": "headwater_pipeline", "__file__": str(path)}
    from headwater.spark.pipeline import PipelineError

    try:
        exec(compile(text, str(path), "exec"), namespace)
    except PipelineError:
        raise
    except Exception as error:
        line = getattr(error, "lineno", None) or _line_in(path, error)
        where = f"{path}, line {line}" if line else str(path)
        raise CommandError(f"{where}: {type(error).__name__}: {error}", code=USAGE) from None
    return namespace


def _line_in(path: Path, error: BaseException) -> int | None:
    found, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            found = trace.tb_lineno
        trace = trace.tb_next
    return found


def _prepare(admin: Admin, pipeline: Pipeline, options: Namespace) -> Setting:
    """Inputs must be there; what is written to is made if it is not."""
    from headwater.spark.pipeline_query import Setting
    from headwater.spark.pipeline_status import TOPIC, TOPIC_CONFIGS

    there = {each.name for each in admin.list_topics(internal=True)}
    for each in pipeline.inputs.values():
        if each.topic not in there:
            raise CommandError(
                f"{pipeline.name} reads topic {each.topic}, which does not exist",
                then=f"`headwater topic create {each.topic}` makes it, `headwater topic list` "
                "shows those there are",
            )
    letters = options.dead_letters or f"{pipeline.name}.dead-letters"
    for name in (pipeline.to, letters):
        if name not in there:
            admin.create_topic(name)
    if TOPIC not in there:
        admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)
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
    )
