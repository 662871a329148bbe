"""The registry of running pipelines: a status topic in the cluster, a lock in each checkpoint.

A pipeline must not run twice: two runs would write the same results until Spark noticed that they
share a checkpoint. `Registry.claim` makes a run the holder of its pipeline's name in the cluster
(`headwater.spark.pipeline_status`), and `lock_checkpoint` keeps a second process on the same
machine out of a checkpoint, whichever cluster it writes to.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import threading
import time
from argparse import Namespace
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.connection import CLIENT_ID, Cluster, cluster_of, explained
from headwater.cli.errors import CommandError
from headwater.cli.output import print_json
from headwater.spark.pipeline_status import (
    HEARTBEAT_SECONDS,
    LEASE_MS,
    LOST,
    RUNNING,
    STREAMS,
    TOPIC,
    Status,
    current,
)

if TYPE_CHECKING:
    from types import TracebackType

_TIMEOUT_MS = 10_000
_UNKNOWN_TOPIC_MS = 1_000  # for a cluster in which no pipeline has run yet
LOCK_FILE = ".headwater-lock"


def read_statuses(options: Namespace) -> dict[str, Status]:
    """Reads the status of each pipeline as it is now, by name."""
    from headwater.client.errors import ClientError

    try:
        return _read(cluster_of(options))
    except ClientError as error:
        raise explained(error) from None


def _read(cluster: Cluster) -> dict[str, Status]:
    from headwater.blocking import Consumer, TopicPartition
    from headwater.client.errors import UnknownTopic

    partition = TopicPartition(TOPIC, 0)
    records: list[tuple[bytes | None, bytes | None, int]] = []
    with Consumer(
        cluster.bootstrap,
        config=cluster.settings,
        client_id=CLIENT_ID,
        allow_auto_create_topics=False,
    ) as consumer:
        try:
            consumer.partitions_for(TOPIC, timeout_ms=_UNKNOWN_TOPIC_MS)
        except UnknownTopic:
            return {}
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets(partition)[partition]
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while consumer.position(partition) < end and time.monotonic() < deadline:
            polled = consumer.poll(timeout_ms=1000)
            records += [(record.key, record.value, record.timestamp) for record in polled]
    now_ms = int(time.time() * 1000)
    return {name: each.seen_at(now_ms) for name, each in current(records).items()}


class Registry:
    """Claims the names of pipelines, and keeps their statuses up to date until it is closed.

    After the claim, statuses are queued and errors are ignored: a pipeline does not fail because
    its figures are old.
    """

    def __init__(self, cluster: Cluster) -> None:
        from headwater.blocking import Producer

        self._cluster = cluster
        self._producer = Producer(cluster.bootstrap, config=cluster.settings, client_id=CLIENT_ID)
        self._producer.__enter__()
        self._statuses: dict[str, Status] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        # A thread of its own: the main thread is busy while Spark starts or a batch runs.
        self._heart = threading.Thread(target=self._beat, name="headwater-heartbeat", daemon=True)
        self._heart.start()

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def claim(self, status: Status) -> None:
        """Makes this run the holder of the pipeline's name. CommandError if another run has it."""
        found = _read(self._cluster).get(status.name)
        if found is not None and found.state == RUNNING and is_dead(found):
            error = f"process {found.pid} was killed"
            self._send(replace(found, state=LOST, error=found.error or error))
        self._send(status)
        holder = _read(self._cluster)[status.name]
        if holder.run != status.run:
            raise already_running(holder)
        with self._lock:
            self._statuses[status.name] = status

    def _send(self, status: Status) -> None:
        self._producer.send(TOPIC, status.to_json(), key=status.name)

    def write(self, status: Status) -> None:
        with self._lock:
            self._statuses[status.name] = status
        self._submit(status)

    def _submit(self, status: Status) -> None:
        from headwater.client.errors import ClientError

        with suppress(ClientError):
            self._producer.submit(TOPIC, status.to_json(), key=status.name)

    def _beat(self) -> None:
        while not self._closing.wait(HEARTBEAT_SECONDS):
            with self._lock:
                running = [each for each in self._statuses.values() if each.state == RUNNING]
            for each in running:
                self._submit(each)

    def close(self) -> None:
        from headwater.client.errors import ClientError

        self._closing.set()
        self._heart.join()
        with suppress(ClientError):
            self._producer.close(_TIMEOUT_MS)


def machine() -> str:
    """Identifies the processes whose ids this process can check: those of the same boot and process
    namespace. A host name is not enough: containers may share it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()


def is_dead(status: Status) -> bool:
    """Returns whether the process of a run is known to be gone."""
    if status.machine != machine() or status.pid == os.getpid():
        return False
    try:
        os.kill(status.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # it exists, and belongs to another user
    return False


def already_running(holder: Status, *, then: str | None = None) -> CommandError:
    silent_ms = int(time.time() * 1000) - holder.noted_ms
    then = then or (
        f"stop it with `kill {holder.pid}` on {holder.host}, or run this one under another name "
        "with --name"
    )
    if silent_ms > 2 * HEARTBEAT_SECONDS * 1000:
        left = max(1, (LEASE_MS - silent_ms) // 1000 + 1)
        then += (
            f"; its last heartbeat was {silent_ms // 1000} s ago, and without another one it can "
            f"be started in {left} s"
        )
    return CommandError(
        f"{_what(holder)} is already running on {holder.host} (process {holder.pid}, "
        f"{holder.file})",
        then=then,
    )


def _what(status: Status) -> str:
    return f"{'app' if status.kind == STREAMS else 'pipeline'} {status.name}"


def lock_checkpoint(status: Status) -> int | None:
    """Locks a checkpoint folder on a local disk until the returned file descriptor is closed or the
    process ends. CommandError if another process has it; None where nothing can be locked."""
    folder = _local(status.checkpoint)
    if folder is None:
        return None
    path = folder / LOCK_FILE
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        text = os.read(descriptor, 1 << 20)
        os.close(descriptor)
        raise _locked(status, text) from None
    except OSError:  # a file system without locks
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, status.to_json().encode())
    return descriptor


def _locked(status: Status, text: bytes) -> CommandError:
    try:
        holder = Status.from_json(text)
    except (json.JSONDecodeError, TypeError):  # it was locked a moment ago
        return CommandError(f"another process has locked the checkpoint {status.checkpoint}")
    return CommandError(
        f"{_what(holder)} is already running on {holder.host} (process {holder.pid}): it "
        f"has locked the checkpoint {status.checkpoint}",
        then=f"stop it with `kill {holder.pid}`, or use another folder with --checkpoints",
    )


def reset(options: Namespace, *, default: str) -> int:
    """Deletes the checkpoint of a pipeline that does not run; without --yes it only shows it."""
    status = read_statuses(options).get(options.name)
    if status is not None and status.state == RUNNING and not is_dead(status):
        raise already_running(status, then=f"stop it first: `kill {status.pid}` on {status.host}")
    folder = _checkpoint(options, status, default)
    batches = _batches(folder)
    if options.yes:
        held = lock_checkpoint(Status(name=options.name, checkpoint=str(folder), pid=os.getpid()))
        shutil.rmtree(folder)
        if held is not None:
            os.close(held)
    if options.output == "json":
        print_json(
            {
                "pipeline": options.name,
                "checkpoint": str(folder),
                "batches": batches,
                "deleted": options.yes,
            }
        )
    elif options.yes:
        print(f"deleted {folder}: the next run of {options.name} starts over")
    else:
        finished = "1 finished batch" if batches == 1 else f"{batches:,} finished batches"
        print(f"checkpoint of {options.name}: {folder}, {finished}")
        print("Without it the next run reads its topics from the beginning (or from its starting")
        print("offsets), writes its results again, and has no state.")
        print("\nnothing has changed yet: --yes deletes it")
    return 0


def _checkpoint(options: Namespace, status: Status | None, default: str) -> Path:
    if options.checkpoints is None and status is not None:
        checkpoint = status.checkpoint
    else:
        checkpoint = f"{(options.checkpoints or default).rstrip('/')}/{options.name}"
    folder = _local(checkpoint)
    if folder is None:
        raise CommandError(
            f"the checkpoint of {options.name} is {checkpoint}, which is not on a local disk",
            then="delete that folder with the tool of its storage",
        )
    if not folder.is_dir():
        elsewhere = status is not None and status.host != socket.gethostname()
        host = f"; the pipeline last ran on {status.host}" if status and elsewhere else ""
        raise CommandError(
            f"{options.name} has no checkpoint in {folder}{host}",
            then="--checkpoints names the folder that was given to `headwater pipeline run`",
        )
    return folder


def _local(checkpoint: str) -> Path | None:
    """Returns the folder of a checkpoint; None if it is not on a local disk."""
    path = checkpoint.removeprefix("file://")
    return None if "://" in path else Path(os.path.abspath(path))


def _batches(folder: Path) -> int:
    """Returns how many batches a checkpoint has finished. CommandError if it is not one of Spark's:
    nothing else is ever deleted."""
    known = {each.name for each in folder.iterdir()}
    if not known & {"metadata", "offsets", "commits", LOCK_FILE}:
        raise CommandError(f"{folder} is not a checkpoint of Spark")
    numbers = [int(each.name) for each in folder.glob("commits/[0-9]*") if each.name.isdigit()]
    return max(numbers, default=-1) + 1
