"""One entry of `log.dirs`: whose it is, whether it was left in order, how far its logs got."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from headwater.config import parse_properties
from headwater.io import Disk
from headwater.io.disk import DiskLock
from headwater.model import TopicPartition, id_from_text, id_text
from headwater.storage import checkpoints, names
from headwater.storage.checkpoints import CheckpointFile, CheckpointWrite, render_offsets
from headwater.storage.failures import Health

_META_VERSION = "1"
_METADATA_VERSION = "version: 0"
_TOPIC_ID = "topic_id: "
NO_BROKER_EPOCH = -1


class DirectoryRefused(Exception):
    """A log directory that this node must not use. The text says why and what to do."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """Which cluster and node a directory belongs to, and its own id."""

    cluster_id: str
    node_id: int
    directory_id: bytes | None

    def render(self) -> bytes:
        lines = ["#", f"cluster.id={self.cluster_id}"]
        if self.directory_id is not None:
            lines.append(f"directory.id={id_text(self.directory_id)}")
        lines += [f"node.id={self.node_id}", f"version={_META_VERSION}", ""]
        return "\n".join(lines).encode()


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """What `meta.properties` in a log directory says; None if there is none."""
    file = f"{path}/{names.META_PROPERTIES}"
    if not disk.exists(file):
        return None
    properties = parse_properties(disk.read(file).decode())
    try:
        node_id = properties.get("node.id") or properties["broker.id"]  # version 0 has the latter
        directory = properties.get("directory.id")
        return MetaProperties(
            properties["cluster.id"],
            int(node_id),
            id_from_text(directory) if directory else None,
        )
    except (KeyError, ValueError) as error:
        raise DirectoryRefused(f"{file} is malformed: {error}") from error


def write_meta_properties(disk: Disk, path: str, properties: MetaProperties) -> None:
    disk.make_dirs(path)
    disk.write_atomically(f"{path}/{names.META_PROPERTIES}", properties.render())


def read_topic_id(disk: Disk, path: str) -> bytes | None:
    """The topic id in a partition's directory; None if there is none that can be read."""
    file = f"{path}/{names.PARTITION_METADATA}"
    if not disk.exists(file):
        return None
    try:
        version, topic_id, *_ = disk.read(file).decode().splitlines()
        if version != _METADATA_VERSION or not topic_id.startswith(_TOPIC_ID):
            return None
        return id_from_text(topic_id.removeprefix(_TOPIC_ID))
    except ValueError:
        return None


def write_topic_id(disk: Disk, path: str, topic_id: bytes) -> str:
    """Writes `partition.metadata`, not yet durable; says to which file."""
    target = f"{path}/{names.PARTITION_METADATA}"
    file = disk.open(target, create=True)
    try:
        file.truncate(0)
        file.append(f"{_METADATA_VERSION}\n{_TOPIC_ID}{id_text(topic_id)}".encode())
    finally:
        file.close()
    return target


class LogDirectory:
    """An open log directory, which nobody else can open until `release`."""

    __slots__ = (
        "_checkpoints",
        "_disk",
        "_lock",
        "broker_epoch_at_stop",
        "cleaned_to",
        "health",
        "high_watermarks",
        "id",
        "log_starts",
        "notes",
        "path",
        "recovery_points",
        "was_clean",
    )

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._lock: DiskLock | None = None
        self._checkpoints: dict[str, CheckpointFile] = {}
        self.path = path
        self.health = Health(path)
        self.id = bytes(16)
        self.was_clean = False
        self.broker_epoch_at_stop = NO_BROKER_EPOCH
        self.recovery_points: dict[TopicPartition, int] = {}  # as found when it was opened
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaned_to: dict[TopicPartition, int] = {}
        self.notes: list[str] = []  # what an operator should know of the opening

    def take(self, owner: str) -> None:
        """Makes it if it is not there; DirectoryRefused if another process has it."""
        _make_durably(self._disk, self.path)
        try:
            self._lock = self._disk.lock(f"{self.path}/{names.LOCK}", owner)
        except BlockingIOError as error:
            holder = str(error) or "another process"
            raise DirectoryRefused(
                f"log directory {self.path} is in use by {holder}; stop it or use another directory"
            ) from error

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def identify(
        self, node_id: int, cluster_id: str | None, new_id: Callable[[], bytes]
    ) -> str | None:
        """Checks that the directory is this node's, or makes it so; gives its cluster's id."""
        found = read_meta_properties(self._disk, self.path)
        if found is None and cluster_id is None:
            return None
        if found is None:
            assert cluster_id is not None
            found = MetaProperties(cluster_id, node_id, None)
        if found.node_id != node_id:
            raise DirectoryRefused(
                f"log directory {self.path} belongs to node {found.node_id}, not to {node_id}"
            )
        if cluster_id is not None and found.cluster_id != cluster_id:
            raise DirectoryRefused(
                f"log directory {self.path} belongs to cluster {found.cluster_id}, "
                f"not to {cluster_id}"
            )
        if found.directory_id is None:
            found = MetaProperties(found.cluster_id, node_id, new_id())
            write_meta_properties(self._disk, self.path, found)
        assert found.directory_id is not None
        self.id = found.directory_id
        return found.cluster_id

    def read_state(self) -> None:
        """How the last run left it. The marker of a clean stop goes before anything is written."""
        self.recovery_points = self._read(names.RECOVERY_POINTS)
        self.log_starts = self._read(names.LOG_STARTS)
        self.high_watermarks = self._read(names.HIGH_WATERMARKS)
        self.cleaned_to = self._read(names.CLEANER_OFFSETS)
        marker = f"{self.path}/{names.CLEAN_SHUTDOWN}"
        if not self._disk.exists(marker):
            return
        self.was_clean = True
        try:
            self.broker_epoch_at_stop = int(json.loads(self._disk.read(marker))["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            self.broker_epoch_at_stop = NO_BROKER_EPOCH
        self._disk.remove(marker)
        self._disk.sync_dir(self.path)

    def _read(self, name: str) -> dict[TopicPartition, int]:
        """A checkpoint that cannot be read counts as none: more is scanned, nothing is lost."""
        try:
            return checkpoints.read_offsets(self._disk, f"{self.path}/{name}")
        except checkpoints.CheckpointCorrupt as corrupt:
            self.notes.append(str(corrupt))
            return {}

    def checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> CheckpointWrite:
        """The write that replaces a checkpoint, for a worker or for `write`."""
        file = self._checkpoints.get(name)
        if file is None:
            file = CheckpointFile(self._disk, f"{self.path}/{name}")
            self._checkpoints[name] = file
        return file.prepare(partial(render_offsets, offsets))

    def write(self, checkpoint: CheckpointWrite) -> None:
        """Blocks on the device."""
        with self.health.errors():
            checkpoint.run()

    def mark_clean(self, broker_epoch: int) -> None:
        """The last thing a clean stop does. Blocks on the device."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        with self.health.errors():
            path = f"{self.path}/{names.CLEAN_SHUTDOWN}"
            self._disk.write_atomically(path, content.encode())


def take_directories(disk: Disk, paths: Iterable[str], owner: str) -> list[LogDirectory]:
    """Locks all of them, or none: DirectoryRefused if another process has one. One that fails is
    offline from the start."""
    directories: list[LogDirectory] = []
    try:
        for path in dict.fromkeys(path.rstrip("/") or "/" for path in paths):
            directory = LogDirectory(disk, path)
            directories.append(directory)
            try:
                directory.take(owner)
            except OSError as error:
                directory.health.failure = str(error)
    except DirectoryRefused:
        for directory in directories:
            directory.release()
        raise
    return directories


def _make_durably(disk: Disk, path: str) -> None:
    """A directory and those above it that are missing: after a power cut all of them are there."""
    made = []
    while not disk.exists(path):
        made.append(path)
        path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if made:
        disk.make_dirs(made[0])
    for above in (*made[1:], path) if made else ():
        disk.sync_dir(above)
