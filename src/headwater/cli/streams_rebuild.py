"""`headwater streams rebuild`: makes the state of a query anew, without writing its results again.

The query reads its topics once more from their beginning, up to where it was, into a new
checkpoint. Of its results only the tables with names are written, whose topics are brought up to
date; then the next run continues where the last one stopped. Where that is stays in a file until
the state is there, so that a rebuild that is cut off is repeated, and not run over.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
import uuid
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.connection import cluster_of, explained_errors, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import print_json
from headwater.cli.spark_start import require_spark, start_spark
from headwater.cli.streams_file import app_of, file_of, planned
from headwater.cli.streams_run import REBUILD, checkpoints_of, write_fingerprints

if TYPE_CHECKING:
    from headwater.spark.pipeline_status import Status
    from headwater.streams.planner import Plan, QueryPlan

Offsets = dict[str, dict[str, int]]


def rebuild(options: Namespace) -> int:
    require_spark()
    file = file_of(options.file)
    plan = planned(file, app_of(file, options.app))
    query = _query(plan, options.query)
    tables = frozenset(each.name for each in plan.topics if each.compacted)
    checkpoints = checkpoints_of(options)
    if "://" in checkpoints:
        raise CommandError(
            f"the checkpoints of {plan.app.name} are in {checkpoints}, not on a local disk",
            then="--start-over of `headwater streams run` reads everything again",
        )
    folder = Path(checkpoints) / plan.app.name
    kept = folder / f"{query.name}{REBUILD}"
    with ExitStack() as stack, explained_errors():
        from headwater.cli.pipeline_registry import Registry, lock_checkpoint

        stop = _position(options, query, kept)
        if not options.yes:
            _report(options, query, stop, tables, done=False)
            return 0
        cluster = cluster_of(options)
        registry = stack.enter_context(Registry(cluster))
        status = _status(options, plan, folder)
        registry.claim(status)
        stack.callback(lambda: registry.write(replace(status, state="stopped")))
        lock = lock_checkpoint(status)
        if lock is not None:
            stack.callback(os.close, lock)
        kept.write_text(json.dumps(stop))
        shutil.rmtree(folder / query.name, ignore_errors=True)
        spark = stack.enter_context(start_spark(options, f"rebuild {plan.app.name}"))
        from headwater.spark.failures import failure_of
        from headwater.streams.errors import TopologyError
        from headwater.streams.running import TopicEnvironment, prepare

        environment = TopicEnvironment(
            bootstrap=cluster.bootstrap,
            options=cluster.spark_options,
            checkpoints=checkpoints,
            stop=stop,
            written=tables,
        )
        try:
            prepared = {each.plan: each for each in prepare(spark, plan, environment)}
            prepared[query].start(once=True).awaitTermination()
        except TopologyError as error:
            raise file.topology_refusal(error) from None
        except Exception as error:
            failure = failure_of(error, folder=file.folder)
            raise CommandError(
                f"query {query.name}: {file.shown(failure.text)}",
                then="once that is fixed, rebuild it again: until then it does not run",
            ) from None
        write_fingerprints(replace(plan, queries=(query,)), str(folder))
        kept.unlink()
    _report(options, query, stop, tables, done=True)
    return 0


def _query(plan: Plan, name: str | None) -> QueryPlan:
    """Returns the query to rebuild. CommandError if its results would depend on the batches in
    which it reads."""
    known = [each for each in plan.queries if each.stateful]
    if name is None and len(known) != 1:
        names = ", ".join(each.name for each in known) or "none"
        raise CommandError(
            f"which query? those with state are {names}", then="choose one: --query", code=USAGE
        )
    found = [each for each in known if name in (None, each.name)]
    if not found:
        names = ", ".join(each.name for each in known) or "none"
        raise CommandError(f"--query {name}: no query with state; there is {names}", code=USAGE)
    (query,) = found
    if query.real_time:
        raise CommandError(
            f"query {query.name} runs in real time, where results cannot be held back",
            then=f"--start-over {query.name} of `headwater streams run` starts it over",
        )
    late = [node.name for node in query.stateful if _fires(node, query.mode)]
    if late:
        raise CommandError(
            f"query {query.name} cannot be rebuilt: results of {late[0]} come when a time has "
            "passed, and would come again",
            then=f"--start-over {query.name} of `headwater streams run` reads and writes "
            "everything again",
        )
    return query


def _fires(node: object, mode: str) -> bool:
    """Whether an operator yields anything but at once for a record."""
    from headwater.streams.topology import Frame, Keyed, Node, StreamJoin

    assert isinstance(node, Node)
    operation = node.operation
    if isinstance(operation, Keyed):
        return operation.time != "none"
    if isinstance(operation, Frame):
        return True  # nobody knows
    if isinstance(operation, StreamJoin) and operation.how in ("inner", "semi"):
        return False
    return mode == "append"


def _position(options: Namespace, query: QueryPlan, kept: Path) -> Offsets:
    """Returns up to where a query has read: by its group, or by a rebuild that was cut off."""
    from headwater.streams.running import group_of

    if kept.is_file():
        found: Offsets = json.loads(kept.read_text())
        return found
    with open_admin(options) as admin:
        committed = admin.group_offsets(group_of(query))
    stop: Offsets = {}
    for tp, each in sorted(committed.items()):
        if tp.topic in query.topics_read:
            stop.setdefault(tp.topic, {})[str(tp.partition)] = each.offset
    if not stop:
        raise CommandError(
            f"query {query.name} has no position in this cluster: group {group_of(query)} has "
            "committed nothing",
            then="run the app: it begins at the beginning",
        )
    missing = [topic for topic in query.topics_read if topic not in stop]
    for topic in missing:
        stop[topic] = {}  # is read with the next run, which writes what comes of it
    return stop


def _status(options: Namespace, plan: Plan, folder: Path) -> Status:
    from headwater.cli.pipeline_registry import machine
    from headwater.spark.pipeline_status import STREAMS, Status

    return Status(
        name=plan.app.name,
        kind=STREAMS,
        run=uuid.uuid4().hex,
        file=os.path.abspath(options.file),
        host=socket.gethostname(),
        machine=machine(),
        pid=os.getpid(),
        master=options.master,
        dead_letters=plan.dead_letters,
        checkpoint=str(folder),
        started_ms=int(time.time() * 1000),
        topics=tuple(each.name for each in plan.topics),
    )


def _report(
    options: Namespace, query: QueryPlan, stop: Offsets, tables: frozenset[str], *, done: bool
) -> None:
    written = sorted(tables & set(query.topics_written))
    if options.output == "json":
        print_json({"query": query.name, "up_to": stop, "tables": written, "rebuilt": done})
        return
    what = f" and {', '.join(written)}" if written else ""
    if done:
        print(f"the state of {query.name}{what} is made anew; the next run continues where it was")
        return
    for topic, offsets in stop.items():
        places = ", ".join(f"{each}@{offset}" for each, offset in offsets.items()) or "nothing"
        print(f"{query.name} would read {topic} again: {places}")
    print(f"and write its state{what}, but none of its other results")
    print("\nnothing has changed yet: --yes does it")
