"""`headwater streams rebuild`: rebuilds the state of a query, without writing its results again.

The state of an aggregation with a name is taken from the topic of its table, and needs nothing
else. Any other query reads its topics once more from their beginning, up to where it
was, into a new checkpoint; of its results only the tables with names are written, whose topics are
brought up to date. Either way, the next run continues where the last one stopped. Where that is
stays in a file until the state is there, so that a rebuild that is cut off is repeated, and not run
over.
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
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.connection import cluster_of, explained_errors, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import plural, print_json
from headwater.cli.spark_start import require_spark, start_spark
from headwater.cli.streams_file import app_of, file_of, planned
from headwater.cli.streams_run import REBUILD, checkpoints_of, write_fingerprints

if TYPE_CHECKING:
    from headwater.spark.pipeline_status import Status
    from headwater.streams.planner import Plan, QueryPlan

Offsets = dict[str, dict[str, int]]
CHANGELOG, INPUTS = "changelog", "inputs"
_EARLIEST = -2  # of a partition that the query has not read


def rebuild(options: Namespace) -> int:
    require_spark()
    file = file_of(options.file)
    plan = planned(file, app_of(file, options.app))
    query = _query(plan, options.query)
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
        from headwater.streams.fingerprint import to_json

        work = _work(options, plan, query, folder / query.name, kept)
        if not options.yes:
            _report(options, work, done=False)
            return 0
        cluster = cluster_of(options)
        registry = stack.enter_context(Registry(cluster))
        status = _status(options, plan, folder)
        registry.claim(status)
        stack.callback(lambda: registry.write(replace(status, state="stopped")))
        lock = lock_checkpoint(status)
        if lock is not None:
            stack.callback(os.close, lock)
        # Once more, now that no run can start: one may have ended since. Nothing is deleted before
        # all that may refuse the rebuild has been asked.
        work = _work(options, plan, query, folder / query.name, kept)
        start = _settled(options, work) if work.origin == CHANGELOG else None
        begun = {"from": work.origin, "up_to": work.stop, "fingerprint": to_json(query)}
        kept.write_text(json.dumps(begun))
        shutil.rmtree(folder / query.name, ignore_errors=True)
        spark = stack.enter_context(start_spark(options, f"rebuild {plan.app.name}"))
        from headwater.spark.failures import failure_of
        from headwater.streams.errors import TopologyError
        from headwater.streams.restoring import restore
        from headwater.streams.running import TopicEnvironment, prepare

        environment = TopicEnvironment(
            bootstrap=cluster.bootstrap,
            options=cluster.spark_options,
            checkpoints=checkpoints,
            start=start,
            stop=work.stop,
            written=work.tables,
        )
        keys = 0
        try:
            if work.origin == CHANGELOG:
                keys = restore(spark, plan, query, environment)
            else:
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
    _report(options, work, done=True, keys=keys)
    return 0


@dataclass(frozen=True, slots=True)
class _Work:
    query: QueryPlan
    origin: str  # CHANGELOG or INPUTS
    why: str  # why not from the changelog
    stop: Offsets  # up to where the query was
    tables: frozenset[str]


def _work(options: Namespace, plan: Plan, query: QueryPlan, checkpoint: Path, kept: Path) -> _Work:
    """Returns what there is to do: from the beginning, or as a rebuild that was cut off has it."""
    from headwater.streams.fingerprint import FILE, changed_state
    from headwater.streams.restoring import why_not

    tables = frozenset(each.name for each in plan.topics if each.compacted)
    found = json.loads(kept.read_text()) if kept.is_file() else None
    if found is not None and found.get("from", INPUTS) == INPUTS:
        # It has written to the table, which is not what it was.
        if options.origin == CHANGELOG:
            raise CommandError(
                f"a rebuild of query {query.name} from its inputs was cut off",
                then="leave out --from changelog, to complete it",
            )
        _check_inputs(query)
        return _Work(query, INPUTS, "it was begun that way", found.get("up_to", found), tables)
    # One from the changelog has written nothing: the table and the position are what they were.
    fingerprint = checkpoint / FILE
    if found is not None:
        known = found.get("fingerprint")
    else:
        known = fingerprint.read_text() if fingerprint.is_file() else None
    never = why_not(query)
    why = never or ""
    if not why and known is not None and (change := changed_state(query, known)) is not None:
        why = f"{change}, and the table has the results of before"
    if found is not None and options.origin is None and why:
        raise CommandError(
            f"a rebuild of query {query.name} from the changelog was cut off, and is no longer "
            f"possible: {why}",
            then="--from inputs reads its topics again",
        )
    origin = options.origin or (INPUTS if why else CHANGELOG)
    if origin == CHANGELOG and never is not None:
        raise CommandError(
            f"--from changelog: query {query.name} cannot be rebuilt from it: {never}",
            then="--from inputs reads its topics again",
        )
    if origin == INPUTS:
        _check_inputs(query)
    return _Work(query, origin, why, _position(options, query), tables)


def _query(plan: Plan, name: str | None) -> QueryPlan:
    """Returns the query to rebuild."""
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
    return query


def _check_inputs(query: QueryPlan) -> None:
    """CommandError if results would come that depend on the batches in which the query reads."""
    late = [node.name for node in query.stateful if _fires(node, query.mode)]
    if late:
        raise CommandError(
            f"query {query.name} cannot be rebuilt: results of {late[0]} come when a time has "
            "passed, and would come again",
            then=f"--start-over {query.name} of `headwater streams run` reads and writes "
            "everything again",
        )


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


def _position(options: Namespace, query: QueryPlan) -> Offsets:
    """Returns up to where a query has read, by its group."""
    from headwater.streams.running import group_of

    with open_admin(options) as admin:
        committed = admin.group_offsets(group_of(query), require_stable=True)
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


def _settled(options: Namespace, work: _Work) -> Offsets:
    """Returns where the sources begin, with every partition. CommandError while the table and the
    position may belong to two transactions."""
    from headwater.streams.restoring import topic_of

    table = topic_of(work.query)
    with open_admin(options) as admin:
        committed = admin.topic_offsets(table, isolation="read_committed")
        is_open = committed != admin.topic_offsets(table)
        partitions = {each.name: each.partitions for each in admin.list_topics(internal=True)}
    if is_open:
        raise CommandError(
            f"a transaction of the last run of {work.query.name} is still open",
            then="try again: the cluster ends it after its timeout, at most a minute or so",
        )
    if (position := _position(options, work.query)) != work.stop:
        raise CommandError(
            f"the position of query {work.query.name} moved from {json.dumps(work.stop)} to "
            f"{json.dumps(position)}",
            then="stop what still runs it, then rebuild it again",
        )
    return {
        topic: {
            str(number): work.stop.get(topic, {}).get(str(number), _EARLIEST)
            for number in range(count)
        }
        for topic, count in partitions.items()
    }


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


def _report(options: Namespace, work: _Work, *, done: bool, keys: int = 0) -> None:
    from headwater.streams.restoring import has_counts, topic_of

    name = work.query.name
    is_restored = work.origin == CHANGELOG
    written = [] if is_restored else sorted(work.tables & set(work.query.topics_written))
    if options.output == "json":
        found = keys if done and is_restored else None
        facts: dict[str, object] = {"query": name, "from": work.origin, "up_to": work.stop}
        print_json({**facts, "tables": written, "keys": found, "rebuilt": done})
        return
    what = f" and {', '.join(written)}" if written else ""
    if done:
        source = f"{topic_of(work.query)} ({plural(keys, 'key')})" if is_restored else "its inputs"
        print(
            f"rebuilt {name}'s state{what} from {source}; the next run continues where the last "
            "one stopped"
        )
        return
    if is_restored:
        print(f"{name} would take its state from {topic_of(work.query)}, and write nothing")
        if has_counts(work.query):
            print("(a count of n is restored from n rows: large counts take time)")
    else:
        for topic, offsets in work.stop.items():
            places = ", ".join(f"{each}@{offset}" for each, offset in offsets.items()) or "nothing"
            print(f"{name} would read {topic} again: {places}")
        print(f"and write its state{what}, but none of its other results")
        if work.why:
            print(f"(not from the topic of its table: {work.why})")
    print("\nnothing has changed yet: --yes does it")
