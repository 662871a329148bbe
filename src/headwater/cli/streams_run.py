"""`headwater streams run`: starts the queries of an app, watches them, and stops them.

Before a query starts, the app's name is claimed in the cluster and its checkpoints are locked, so
that no app runs twice; and what is in them is compared with the topology as it is now. A query that
fails for a reason that may pass is started again from its checkpoint; for any other reason all are
stopped, and the command ends with that reason and what to do about it.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import sys
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.connection import CLIENT_ID, cluster_of, explained_errors, open_admin
from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import plural
from headwater.cli.pipeline_file import PipelineFile
from headwater.cli.settings import check_metrics
from headwater.cli.spark_start import require_spark, start_spark, stop_after_batch
from headwater.cli.stopping import StopSignals
from headwater.cli.streams import CHECKPOINTS
from headwater.cli.streams_file import app_of, file_of, planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from headwater.blocking import Admin, Consumer
    from headwater.cli.connection import Cluster
    from headwater.cli.pipeline_registry import Registry
    from headwater.spark.failures import Failure
    from headwater.spark.pipeline_status import Status
    from headwater.streams.fingerprint import Changes
    from headwater.streams.planner import Plan
    from headwater.streams.running import PreparedQuery

REBUILD = ".rebuild.json"  # behind the name of a query whose state is being made anew
_LOOK_SECONDS = 0.25
_SAY_SECONDS = 10.0
_RESTARTS_MAX = 5  # of a query, without a finished batch in between


def run(options: Namespace) -> int:
    require_spark()
    if options.metrics is not None:
        check_metrics(options.metrics, insecure=options.insecure)
    file = file_of(options.file)
    app = app_of(file, options.app)
    plan = planned(file, app)
    with StopSignals(), ExitStack() as stack:
        checkpoints = checkpoints_of(options)
        with open_admin(options) as admin:
            partitions = _prepare_topics(admin, plan)
        from headwater.cli.pipeline_registry import Registry, lock_checkpoint
        from headwater.spark.pipeline_status import Status

        with explained_errors():
            cluster = cluster_of(options)
            registry = stack.enter_context(Registry(cluster))
            running = _Run(file, plan, options, registry, f"{checkpoints}/{app.name}")
            stack.callback(running.stop)
            lock = lock_checkpoint(Status(**asdict(running.status)))
            if lock is not None:
                stack.callback(os.close, lock)
            running.check_checkpoints(options.start_over)
            running.claim()
            if options.metrics is not None:
                stack.enter_context(_metrics(options.metrics, running))
            stops = stack.enter_context(_StopRequests(cluster, running.status))
        extra = {"spark.jars.packages": options.packages} if options.packages else {}
        spark = stack.enter_context(start_spark(options, app.name, extra))
        # Spark has set a handler for Ctrl-C of its own, which would cut off the batch.
        with StopSignals() as signals:
            signals.raises = False
            running.prepare(spark, cluster, checkpoints, partitions)
            return _watch(running, signals, stops)


def checkpoints_of(options: Namespace) -> str:
    folder: str = options.checkpoints or CHECKPOINTS
    return folder.rstrip("/") if "://" in folder else os.path.abspath(folder)


def _watch(running: _Run, signals: StopSignals, stops: _StopRequests) -> int:
    try:
        while running.is_active and signals.number is None and not stops.is_requested():
            running.look()
            time.sleep(_LOOK_SECONDS)
        if running.is_active:
            print("stopping after the current batches", file=sys.stderr)
    finally:
        running.stop()
    return FAILED if running.has_failed else 0


@dataclass(slots=True)
class _Query:
    """A query of the app, while it runs."""

    prepared: PreparedQuery
    figures: Status
    query: StreamingQuery | None = None
    failures: int = 0
    start_at: float | None = 0.0  # when to start; None: it is running, or has ended
    is_done: bool = False

    @property
    def name(self) -> str:
        return self.prepared.plan.name


@dataclass(slots=True)
class _Run:
    """A run of an app: its queries, and its status in the cluster."""

    file: PipelineFile
    plan: Plan
    options: Namespace
    registry: Registry
    checkpoint: str
    status: Status = field(init=False)
    _queries: list[_Query] = field(init=False, default_factory=list)
    _is_claimed: bool = field(init=False, default=False)
    _said_at: float = field(init=False, default=float("-inf"))

    def __post_init__(self) -> None:
        from headwater.cli.pipeline_registry import machine
        from headwater.spark.pipeline_status import STREAMS, Status

        plan = self.plan
        internal = {each.name for each in plan.topics}
        reads = [topic for query in plan.queries for topic in query.topics_read]
        writes = [topic for query in plan.queries for topic in query.topics_written]
        self.status = Status(
            name=plan.app.name,
            kind=STREAMS,
            run=uuid.uuid4().hex,
            file=os.path.abspath(self.options.file),
            host=socket.gethostname(),
            machine=machine(),
            pid=os.getpid(),
            master=self.options.master,
            reads=tuple(dict.fromkeys(each for each in reads if each not in internal)),
            writes=", ".join(dict.fromkeys(each for each in writes if each not in internal)),
            dead_letters=plan.dead_letters,
            mode=plan.app.latency,
            checkpoint=self.checkpoint,
            started_ms=int(time.time() * 1000),
            topics=tuple(each.name for each in plan.topics),
        )

    @property
    def is_active(self) -> bool:
        return self._is_claimed and self.status.state == "running"

    @property
    def has_failed(self) -> bool:
        return self.status.state == "failed"

    def claim(self) -> None:
        """Makes this the only run of the app. CommandError if another one runs."""
        self.registry.claim(self.status)
        self._is_claimed = True

    def check_checkpoints(self, start_over: Sequence[str]) -> None:
        """Compares the topology with that of the checkpoints. CommandError if one does not fit."""
        from headwater.streams.fingerprint import changes

        for name in start_over:
            if self.plan.query(name) is None:
                known = ", ".join(each.name for each in self.plan.queries)
                raise CommandError(f"--start-over {name}: no such query", then=f"it has {known}")
            if "://" not in self.checkpoint:
                shutil.rmtree(Path(self.checkpoint) / name, ignore_errors=True)
                (Path(self.checkpoint) / f"{name}{REBUILD}").unlink(missing_ok=True)
        for query in self.plan.queries:
            if "://" not in self.checkpoint:
                self._check_rebuilt(query.name)
        found = changes(self.plan, fingerprints(self.checkpoint))
        for line in found.lines():
            print(f"{self.status.name}: {line}", file=sys.stderr)
        if found.lost:
            raise CommandError(self._refusal(found), then=self._way_out(found))

    def _check_rebuilt(self, name: str) -> None:
        if (Path(self.checkpoint.removeprefix("file://")) / f"{name}{REBUILD}").is_file():
            raise CommandError(
                f"{self.status.name}: the rebuild of query {name} was cut off",
                then=f"`headwater streams rebuild {self.options.file} --query {name} --yes` "
                "completes it",
            )

    def _refusal(self, found: Changes) -> str:
        lost = "; ".join(f"{name}: {why}" for name, why in found.lost.items())
        return f"{self.status.name}: the checkpoints do not fit the topology: {lost}"

    def _way_out(self, found: Changes) -> str:
        overs = " ".join(f"--start-over {name}" for name in found.lost)
        return (
            f"{overs} discards their state and position and reads their topics from the beginning; "
            "or give the operator or the app another name"
        )

    def prepare(
        self,
        spark: SparkSession,
        cluster: Cluster,
        checkpoints: str,
        partitions: Mapping[str, int],
    ) -> None:
        """Makes the queries. CommandError names the operator that does not fit."""
        from headwater.spark.pipeline_status import Status
        from headwater.streams.errors import TopologyError
        from headwater.streams.running import TopicEnvironment, check_cores, prepare

        environment = TopicEnvironment(
            bootstrap=cluster.bootstrap,
            options=cluster.spark_options,
            checkpoints=checkpoints,
            exactly_once=self.options.delivery == "exactly_once",
        )
        try:
            check_cores(spark, self.plan, partitions)
            prepared = prepare(spark, self.plan, environment)
        except TopologyError as error:
            self._end("failed", str(error))
            raise self.file.topology_refusal(error) from None
        self._queries = [_Query(each, Status(name=each.plan.name)) for each in prepared]
        write_fingerprints(self.plan, self.checkpoint)
        for each in self.plan.queries:
            reads, writes = ", ".join(each.topics_read), ", ".join(each.topics_written)
            self._print(f"{self.status.name}: {each.name}: {reads} -> {writes}")

    def look(self) -> None:
        """Takes in what has happened since the last look, and starts what is to be started."""
        for at, each in enumerate(self._queries):
            if each.start_at is not None:
                # Read to the end once, a query that reads what another one writes comes after it.
                waits = self.options.once and not all(
                    before.is_done for before in self._queries[:at]
                )
                if not waits and time.monotonic() >= each.start_at:
                    self._start(each)
            elif each.query is not None and not each.is_done:
                ended = not each.query.isActive  # asked first: no progress before it is missed
                self._take_progress(each)
                if ended:
                    self._ended(each)
        self._update()
        if self._queries and all(each.is_done for each in self._queries):
            self._end("finished" if self.options.once else "stopped")

    def _start(self, query: _Query) -> None:
        from headwater.spark.failures import failure_of
        from headwater.streams.errors import TopologyError

        query.start_at = None
        try:
            query.query = query.prepared.start(once=self.options.once)
        except TopologyError as error:
            self._end("failed", str(error))
            raise self.file.topology_refusal(error) from None
        except Exception as error:
            self._failed(query, failure_of(error, folder=self.file.folder))

    def _take_progress(self, query: _Query) -> None:
        assert query.query is not None
        rows = query.figures.rows_in
        for progress in query.query.recentProgress:
            query.figures = query.figures.with_progress(json.loads(progress.json))
        if query.figures.rows_in != rows:
            query.failures = 0
            if self.status.error is not None:
                self.status = replace(self.status, error=None)

    def _ended(self, query: _Query) -> None:
        from headwater.spark.failures import failure_of

        assert query.query is not None
        error = query.query.exception()
        if error is None:
            query.is_done = True
        else:
            self._failed(query, failure_of(error, folder=self.file.folder))

    def _failed(self, query: _Query, failure: Failure) -> None:
        from headwater.spark.failures import Cause

        query.failures += 1
        text = f"query {query.name}: {self.file.shown(failure.text)}"
        if failure.cause is Cause.TRANSIENT and query.failures <= _RESTARTS_MAX:
            wait = float(2**query.failures)
            query.start_at = time.monotonic() + wait
            self.status = replace(self.status, error=text)
            self.registry.write(self.status)
            print(f"{self.status.name}: {text}; starting again in {wait:g} s", file=sys.stderr)
            return
        self._stop_queries()
        self._end("failed", text)
        raise CommandError(f"{self.status.name}: {text}", then=self._advice(query, failure))

    def _advice(self, query: _Query, failure: Failure) -> str:
        from headwater.spark.failures import Cause

        name = self.status.name
        reset = f"`headwater streams reset {name} --query {query.name}`"
        match failure.cause:
            case Cause.CHECKPOINT:
                return f"its checkpoint is of another topology: {reset} starts it over"
            case Cause.DATA_LOST:
                return (
                    "to continue without these records, give the source the option "
                    f'failOnDataLoss="false"; to start over with what is left, {reset}'
                )
            case Cause.USER_CODE:
                return f"fix {self.file.path} and run it again: it continues where it was"
            case Cause.TRANSIENT:
                return "run it again when the cluster is back: it continues where it was"
            case _:
                return "once that is fixed, run it again: it continues where it was"

    def _update(self) -> None:
        """Sums the figures of the queries up."""
        if not self._queries:
            return
        before = self.status
        figures = [each.figures for each in self._queries]
        lags = [each.lag for each in figures if each.lag is not None]
        self.status = replace(
            before,
            rows_in=sum(each.rows_in for each in figures),
            input_rate=round(sum(each.input_rate for each in figures), 1),
            lag=sum(lags) if lags else None,
            state_rows=sum(each.state_rows for each in figures),
            state_bytes=sum(each.state_bytes for each in figures),
            late_rows=sum(each.late_rows for each in figures),
            queries=tuple(_figures(each) for each in self._queries),
        )
        if self.status.rows_in != before.rows_in:
            self.registry.write(self.status)
            self._say()

    def stop(self) -> None:
        """Stops all queries between two batches: one that is cut off would be written again."""
        if not self.is_active:
            return
        self._stop_queries()
        self._update()
        self._end("stopped")

    def _stop_queries(self) -> None:
        for each in self._queries:
            if each.query is not None and each.query.isActive:
                stop_after_batch(each.query)
                self._take_progress(each)

    def _end(self, state: str, error: str | None = None) -> None:
        self.status = replace(self.status, state=state, error=error or self.status.error)
        self.registry.write(self.status)
        if state != "failed" and self._queries:
            self._print(
                f"{self.status.name}: {state} after {plural(self.status.rows_in, 'record')}, "
                f"lag {self.status.lag or 0:,}"
            )

    def _say(self) -> None:
        now = time.monotonic()
        if now - self._said_at < _SAY_SECONDS:
            return
        self._said_at = now
        status = self.status
        late = f", {status.late_rows:,} dropped as late" if status.late_rows else ""
        self._print(
            f"{status.name}: {plural(status.rows_in, 'record')}, {status.input_rate:,.0f}/s, lag "
            f"{status.lag or 0:,}, {plural(status.state_rows, 'row')} of state{late}"
        )

    def _print(self, text: str) -> None:
        """Prints a line for people; for programs, the status as an object in a line."""
        if self.options.output == "json":
            text = json.dumps(asdict(self.status))
        print(text, flush=True)


def _figures(query: _Query) -> dict[str, Any]:
    figures = query.figures
    behind = None
    if figures.lag is not None:
        rate = figures.input_rate
        behind = 0.0 if not figures.lag else round(figures.lag / rate, 1) if rate else None
    return {
        "name": query.name,
        "input_rate": figures.input_rate,
        "rows_in": figures.rows_in,
        "lag": figures.lag,
        "lag_seconds": behind,  # at the present rate
        "batch": figures.batch,
        "batch_ms": figures.batch_ms,
        "state_rows": figures.state_rows,
        "state_bytes": figures.state_bytes,
        "late_rows": figures.late_rows,
        "watermark": figures.watermark,
    }


# Checkpoints and their fingerprints


def fingerprints(checkpoint: str) -> dict[str, str | None]:
    """Reads what the checkpoints of an app were made for, by the names of its queries. Those that
    are not on a local disk are not looked at."""
    from headwater.streams.fingerprint import FILE

    folder = Path(checkpoint.removeprefix("file://"))
    if "://" in checkpoint.removeprefix("file://") or not folder.is_dir():
        return {}
    found: dict[str, str | None] = {}
    for each in sorted(folder.iterdir()):
        if (each / "offsets").is_dir() or (each / FILE).is_file():
            path = each / FILE
            found[each.name] = path.read_text() if path.is_file() else None
    return found


def write_fingerprints(plan: Plan, checkpoint: str) -> None:
    from headwater.streams.fingerprint import FILE, to_json

    if "://" in checkpoint.removeprefix("file://"):
        return
    for query in plan.queries:
        folder = Path(checkpoint.removeprefix("file://")) / query.name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / FILE).write_text(to_json(query))


# Topics


def _prepare_topics(admin: Admin, plan: Plan) -> dict[str, int]:
    """Checks that inputs exist, and creates the topics that are written. Returns how many
    partitions each topic had."""
    from headwater.client.errors import TopicExists
    from headwater.spark.pipeline_status import TOPIC, TOPIC_CONFIGS
    from headwater.streams.topology import Source

    there = {each.name: each.partitions for each in admin.list_topics(internal=True)}
    internal = {each.name for each in plan.topics}
    written = {topic for query in plan.queries for topic in query.topics_written}
    sources = [node for query in plan.queries for node in query.sources]
    for node in dict.fromkeys((*sources, *plan.global_tables)):
        operation = node.operation
        assert isinstance(operation, Source)
        for topic in operation.topics:
            if topic not in there and topic not in written and topic not in internal:
                raise CommandError(
                    f"{plan.app.name}: {node.name} reads topic {topic}, which does not exist",
                    then=f"`headwater topic create {topic}` creates it; `headwater topic list` "
                    "lists the topics",
                )
    wanted: dict[str, tuple[int | None, Mapping[str, str]]] = {TOPIC: (1, TOPIC_CONFIGS)}
    wanted[plan.dead_letters] = (None, {})
    inputs = [
        there[topic] for query in plan.queries for topic in query.topics_read if topic in there
    ]
    most = max(inputs, default=1)
    for made in plan.topics:
        policy = {"cleanup.policy": "compact"} if made.compacted else {}
        wanted[made.name] = (made.partitions or most, policy)
    for query in plan.queries:
        for end in query.ends:
            to = getattr(end.operation, "to", None)
            if isinstance(to, str) and to not in wanted:
                wanted[to] = (getattr(end.operation, "partitions", None), {})
    for name, (partitions, configs) in wanted.items():
        if name not in there:
            with suppress(TopicExists):  # another run that starts now may be quicker
                given: dict[str, Any] = {} if partitions is None else {"partitions": partitions}
                admin.create_topic(name, configs=configs, **given)
    return there


@contextmanager
def _metrics(listen: str, running: _Run) -> Iterator[None]:
    """Serves the figures of a run, from a thread of its own: the main one waits for Spark."""
    from headwater._blocking.loop import LoopThread
    from headwater.io import Host
    from headwater.net.metrics_server import MetricsServer
    from headwater.observability.registry import Registry
    from headwater.streams.metrics import AppMetrics

    registry = Registry()
    name = running.status.name
    figures = AppMetrics(
        name,
        lambda: running.status.queries,
        lambda: running.has_failed,
        lambda: running.status.error,
    )
    registry.register(figures.collect)
    server = MetricsServer(
        Host.system(),
        registry,
        why_not_ready=lambda: None if running.status.queries else "the queries have not started",
        has_failed=lambda: running.has_failed,
    )
    host, _, port = listen.rpartition(":")
    thread = LoopThread("headwater-metrics")

    async def start() -> str:
        return str(server.start(host.strip("[]"), int(port)))

    async def stop() -> None:
        await asyncio.gather(*server.stop(), return_exceptions=True)

    try:
        try:
            address = thread.call(start)
        except OSError as error:
            raise CommandError(f"--metrics {listen}: {error.strerror or error}") from None
        print(f"{name}: metrics at http://{address}/metrics", file=sys.stderr)
        yield
        thread.call(stop)
    finally:
        thread.close()


class _StopRequests:
    """Hears of `headwater streams stop`, wherever it is called."""

    def __init__(self, cluster: Cluster, status: Status) -> None:
        from headwater.blocking import Consumer, TopicPartition
        from headwater.spark.pipeline_status import STOP_KEY, TOPIC

        self._key = f"{STOP_KEY}{status.name}".encode()
        self._run = status.run
        partition = TopicPartition(TOPIC, 0)
        self._consumer: Consumer = Consumer(
            cluster.bootstrap,
            config=cluster.settings,
            client_id=CLIENT_ID,
            allow_auto_create_topics=False,
        )
        self._consumer.__enter__()
        self._consumer.assign([partition])
        self._consumer.seek_to_end(partition)
        self._consumer.position(partition)

    def __enter__(self) -> _StopRequests:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def is_requested(self) -> bool:
        from headwater.client.errors import ClientError

        with suppress(ClientError):
            for record in self._consumer.poll(timeout_ms=0):
                if record.key == self._key and record.value == self._run.encode():
                    return True
        return False
