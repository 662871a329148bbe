"""`headwater streams stop`, `reset` and `scale`: what is done to an app from outside."""

from __future__ import annotations

import os
import shutil
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.connection import CLIENT_ID, cluster_of, explained_errors, open_admin
from headwater.cli.errors import CommandError
from headwater.cli.output import print_json
from headwater.cli.streams import CHECKPOINTS, app_status, apps

if TYPE_CHECKING:
    from headwater.spark.pipeline_status import Status

_STOP_SECONDS_MAX = 120.0
_LOOK_SECONDS = 0.5


def stop(options: Namespace) -> int:
    from headwater.blocking import Producer
    from headwater.spark.pipeline_status import RUNNING, STOP_KEY, TOPIC

    status = app_status(options)
    if status.state != RUNNING:
        raise CommandError(f"app {status.name} is not running: it is {status.state}")
    key = f"{STOP_KEY}{status.name}"
    with explained_errors():
        cluster = cluster_of(options)
        with Producer(cluster.bootstrap, config=cluster.settings, client_id=CLIENT_ID) as producer:
            producer.send(TOPIC, status.run, key=key)
            deadline = time.monotonic() + _STOP_SECONDS_MAX
            while status.state == RUNNING and time.monotonic() < deadline:
                time.sleep(_LOOK_SECONDS)
                status = app_status(options)
            producer.send(TOPIC, None, key=key)
    if status.state == RUNNING:
        raise CommandError(
            f"app {status.name} has not stopped within {_STOP_SECONDS_MAX:g} s",
            then=f"`kill {status.pid}` on {status.host} stops it as well",
        )
    if options.output == "json":
        print_json({"app": status.name, "state": status.state})
    else:
        print(f"app {status.name}: {status.state}")
    return 0


def reset(options: Namespace) -> int:
    status = apps(options).get(options.name)
    folder = _stopped(options, status)
    queries = queries_of(folder, options.query)
    topics = [] if options.query or status is None else list(status.topics)
    with open_admin(options) as admin:
        known = {each.name for each in admin.list_topics(internal=True)}
        topics = [each for each in topics if each in known]
        if options.yes:
            lock = _locked(options.name, folder)
            try:
                for each in queries:
                    shutil.rmtree(folder / each)
            finally:
                if lock is not None:
                    os.close(lock)
            for topic in topics:
                admin.delete_topic(topic)
    if options.output == "json":
        print_json(
            {
                "app": options.name,
                "checkpoints": {each: _batches(folder / each) for each in queries}
                if not options.yes
                else dict.fromkeys(queries, None),
                "topics": topics,
                "deleted": options.yes,
            }
        )
        return 0
    if options.yes:
        print(f"deleted the state and the position of {', '.join(queries) or 'no query'}")
        if topics:
            print(f"deleted the topics {', '.join(topics)}")
        return 0
    for each in queries:
        print(f"{each}: {_plural(_batches(folder / each))} in {folder / each}")
    for topic in topics:
        print(f"topic {topic}")
    print("Without them the next run reads its topics from the beginning (or from its starting")
    print("offsets), writes its results again, and has no state.")
    print("\nnothing has changed yet: --yes deletes it")
    return 0


def scale(options: Namespace) -> int:
    from headwater.cli.spark_start import require_spark, start_spark

    require_spark()
    status = app_status(options)
    folder = _stopped(options, status)
    queries = [each for each in queries_of(folder, []) if (folder / each / "state").is_dir()]
    if not queries:
        raise CommandError(f"app {options.name} has no state in {folder}")
    lock = _locked(options.name, folder)
    try:
        with start_spark(options, f"scale {options.name}") as spark:
            from headwater.spark.failures import spark_message

            for each in queries:
                try:
                    spark._streamingCheckpointManager.repartition(
                        str(folder / each), options.partitions
                    )
                except Exception as error:
                    text, _ = spark_message(error)
                    raise CommandError(f"query {each}: {text}") from None
    finally:
        if lock is not None:
            os.close(lock)
    if options.output == "json":
        print_json({"app": options.name, "queries": queries, "partitions": options.partitions})
    else:
        print(f"the state of {', '.join(queries)} has {options.partitions} partitions")
    return 0


def _stopped(options: Namespace, status: Status | None) -> Path:
    """Returns the folder with the checkpoints of an app that does not run."""
    from headwater.cli.pipeline_registry import already_running, is_dead
    from headwater.spark.pipeline_status import RUNNING

    if status is not None and status.state == RUNNING and not is_dead(status):
        raise already_running(status, then=f"stop it first: `headwater streams stop {status.name}`")
    return checkpoint_folder(options, status)


def checkpoint_folder(options: Namespace, status: Status | None) -> Path:
    """Returns the folder with the checkpoints of an app."""
    place: str = options.checkpoints or (
        os.path.dirname(status.checkpoint) if status is not None else CHECKPOINTS
    )
    if "://" in place.removeprefix("file://"):
        raise CommandError(
            f"the checkpoints of {options.name} are in {place}, which is not on a local disk",
            then="delete the folders of its queries with the tool of their storage",
        )
    folder: Path = Path(os.path.abspath(place.removeprefix("file://"))) / options.name
    if not folder.is_dir():
        raise CommandError(
            f"{options.name} has no checkpoints in {folder}",
            then="--checkpoints names the folder that was given to `headwater streams run`",
        )
    return folder


def queries_of(folder: Path, wanted: list[str]) -> list[str]:
    """Returns the queries that have a checkpoint. Nothing but a checkpoint is ever deleted."""
    from headwater.streams.fingerprint import FILE

    known = [
        each.name
        for each in sorted(folder.iterdir())
        if (each / FILE).is_file() or (each / "offsets").is_dir()
    ]
    for name in wanted:
        if name not in known:
            raise CommandError(
                f"--query {name}: {folder} has no checkpoint of it",
                then=f"it has {', '.join(known)}" if known else "it has none at all",
            )
    return wanted or known


def _locked(name: str, folder: Path) -> int | None:
    from headwater.cli.pipeline_registry import lock_checkpoint
    from headwater.spark.pipeline_status import STREAMS, Status

    return lock_checkpoint(Status(name=name, kind=STREAMS, checkpoint=str(folder), pid=os.getpid()))


def _plural(batches: int) -> str:
    return "1 finished batch" if batches == 1 else f"{batches:,} finished batches"


def _batches(folder: Path) -> int:
    numbers = []
    with suppress(OSError):
        numbers = [int(each.name) for each in folder.glob("commits/[0-9]*") if each.name.isdigit()]
    return max(numbers, default=-1) + 1
