"""The log directories of a node (`log.dirs`) and all logs in them.

`LogDirectory` is one entry of `log.dirs`: its owner, its checkpoints, and whether it was closed
cleanly. `LogDirs` loads, creates, moves, deletes and closes the logs in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from headwater.config import TopicConfig, parse_properties
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock, Disk
from headwater.io.disk import DiskLock
from headwater.model import METADATA_TOPIC, ZERO_ID, TopicPartition, id_from_text, id_text
from headwater.storage import checkpoints, names
from headwater.storage.checkpoints import (
    CheckpointFile,
    CheckpointWrite,
    read_topic_id,
    render_offsets,
)
from headwater.storage.failures import Health, StorageFailed
from headwater.storage.log import Log
from headwater.storage.recovery import RecoveryReport

_META_VERSION = "1"
NO_BROKER_EPOCH = -1
DAY_MS = 86_400_000


class DirectoryRefused(Exception):
    """A log directory that this node must not use. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The cluster and the node a directory belongs to, and its own id."""

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
    """Returns the content of `meta.properties` in a log directory, None if there is none."""
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


class LogDirectory:
    """An open log directory, locked until `release`."""

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
        self.recovery_points: dict[TopicPartition, int] = {}  # when it was opened
        self.log_starts: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaned_to: dict[TopicPartition, int] = {}
        self.notes: list[str] = []  # for the operator, from opening it

    def lock(self, owner: str) -> None:
        """Creates the directory if necessary and locks it. Raises DirectoryRefused if another
        process has it."""
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
        """Checks that the directory belongs to this node, or makes it so; returns its cluster's
        id."""
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
        """Reads the checkpoints of the last run. The marker of a clean stop is removed before
        anything is written."""
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
        """Reads a checkpoint. A damaged one counts as empty: more is scanned, nothing is lost."""
        try:
            return checkpoints.read_offsets(self._disk, f"{self.path}/{name}")
        except checkpoints.CheckpointCorrupt as corrupt:
            self.notes.append(str(corrupt))
            return {}

    def checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> CheckpointWrite:
        """Returns the write that replaces a checkpoint, for a worker or for `write`."""
        file = self._checkpoints.get(name)
        if file is None:
            file = CheckpointFile(self._disk, f"{self.path}/{name}")
            self._checkpoints[name] = file
        return file.prepare(partial(render_offsets, offsets))

    def write(self, checkpoint: CheckpointWrite) -> None:
        """Replaces a checkpoint. Blocks on the device."""
        with self.health.errors():
            checkpoint.run()

    def mark_clean(self, broker_epoch: int) -> None:
        """Writes the marker of a clean stop, the last thing it does. Blocks on the device."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        with self.health.errors():
            path = f"{self.path}/{names.CLEAN_SHUTDOWN}"
            self._disk.write_atomically(path, content.encode())


def lock_directories(disk: Disk, paths: Iterable[str], owner: str) -> list[LogDirectory]:
    """Locks all directories or none. Raises DirectoryRefused if another process has one. One that
    fails is offline from the start."""
    directories: list[LogDirectory] = []
    try:
        for path in dict.fromkeys(path.rstrip("/") or "/" for path in paths):
            directory = LogDirectory(disk, path)
            directories.append(directory)
            try:
                directory.lock(owner)
            except OSError as error:
                directory.health.fail(str(error))
    except DirectoryRefused:
        for directory in directories:
            directory.release()
        raise
    return directories


def _make_durably(disk: Disk, path: str) -> None:
    """Creates a directory and its missing parents, durably."""
    made = []
    while not disk.exists(path):
        made.append(path)
        path = path.rpartition("/")[0] or ("/" if path.startswith("/") else ".")
    if made:
        disk.make_dirs(made[0])
    for above in (*made[1:], path) if made else ():
        disk.sync_dir(above)


@dataclass(slots=True)
class LoadJob:
    """Opens one partition's log. Run it in a worker, many at a time; then call `LogDirs.loaded`."""

    disk: Disk
    directory: LogDirectory
    tp: TopicPartition
    path: str
    is_future: bool
    config: TopicConfig
    now_ms: int
    producer_expiration_ms: int
    on_truncated: Callable[[], None]
    log: Log | None = None

    def run(self) -> None:
        with self.directory.health.errors():
            directory = self.directory
            self.log = Log.open(
                self.disk,
                self.path,
                self.tp,
                topic_id=read_topic_id(self.disk, self.path) or ZERO_ID,
                config=self.config,
                now_ms=self.now_ms,
                health=directory.health,
                start=directory.log_starts.get(self.tp, 0),
                recovery_point=directory.recovery_points.get(self.tp),
                clean=directory.was_clean,
                producer_expiration_ms=self.producer_expiration_ms,
                on_truncated=self.on_truncated,
                cleaned_to=directory.cleaned_to.get(self.tp),
            )


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Removes the directory of a deleted log. Run it in a worker."""

    disk: Disk
    health: Health
    tp: TopicPartition
    path: str

    def run(self) -> None:
        with self.health.errors():
            if self.disk.exists(self.path):
                self.disk.remove_tree(self.path)


@dataclass(frozen=True, slots=True)
class CheckpointJob:
    """Writes checkpoints as they were when the job was made. Run it in a worker."""

    writes: tuple[tuple[LogDirectory, CheckpointWrite], ...]

    def run(self) -> None:
        for directory, checkpoint in self.writes:
            if directory.health.is_online:
                directory.write(checkpoint)


class LogDirs:
    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        directories: list[LogDirectory],
        cluster_id: str | None,
        new_id: Callable[[], bytes],
        producer_expiration_ms: int,
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._new_id = new_id
        self._producer_expiration_ms = producer_expiration_ms
        self.directories = directories
        self.cluster_id = cluster_id
        self.high_watermarks: dict[TopicPartition, int] = {}  # as the last run left them
        for directory in directories:
            self.high_watermarks |= directory.high_watermarks
        self.deletions: list[DeleteJob] = []
        self.reports: list[RecoveryReport] = []
        self._cordoned: frozenset[str] = frozenset()
        self._logs: dict[TopicPartition, Log] = {}
        self._futures: dict[TopicPartition, Log] = {}
        # Logs that were found and not opened, as on a full disk. Their lines in the checkpoints
        # stay as the last run left them.
        self._unopened: dict[TopicPartition, LogDirectory] = {}

    @classmethod
    def open(
        cls,
        disk: Disk,
        dirs: Sequence[str],
        *,
        node_id: int,
        clock: Clock,
        new_id: Callable[[], bytes],
        cluster_id: str | None = None,
        owner: str | None = None,
        producer_expiration_ms: int = DAY_MS,
    ) -> LogDirs:
        """Opens the directories for this node. Raises DirectoryRefused if another process has
        one, if one belongs to another node or cluster, or if all have failed. One that fails is
        offline."""
        return cls.of(
            disk,
            lock_directories(disk, dirs, owner or f"node {node_id}"),
            node_id=node_id,
            clock=clock,
            new_id=new_id,
            cluster_id=cluster_id,
            producer_expiration_ms=producer_expiration_ms,
        )

    @classmethod
    def of(
        cls,
        disk: Disk,
        directories: list[LogDirectory],
        *,
        node_id: int,
        clock: Clock,
        new_id: Callable[[], bytes],
        cluster_id: str | None = None,
        producer_expiration_ms: int = DAY_MS,
    ) -> LogDirs:
        """Does the same with directories that are already locked, and unlocks them if they are
        refused."""
        try:
            for directory in directories:
                if not directory.health.is_online:
                    continue
                try:
                    cluster_id = directory.identify(node_id, cluster_id, new_id) or cluster_id
                    directory.read_state()
                except OSError as error:
                    directory.health.fail(str(error))
            if not any(directory.health.is_online for directory in directories):
                failures = "; ".join(f"{d.path}: {d.health.failure}" for d in directories)
                raise DirectoryRefused(f"no log directory can be used: {failures}")
        except DirectoryRefused:
            for directory in directories:
                directory.release()
            raise
        return cls(disk, clock, directories, cluster_id, new_id, producer_expiration_ms)

    def identify(self, node_id: int, cluster_id: str) -> None:
        """Formats the directories that were opened before the cluster had an id."""
        for directory in self._online():
            with directory.health.errors():
                directory.identify(node_id, cluster_id, self._new_id)
        self.cluster_id = cluster_id

    # Loading.

    def load_jobs(self, config_of: Callable[[str], TopicConfig]) -> list[LoadJob]:
        """Returns one job for each partition found. Logs that were being deleted go to `deletions`.
        The metadata log is left out: the quorum opens it."""
        jobs = []
        for directory in self._online():
            with directory.health.errors():
                found = self._disk.list(directory.path)
            for name in found:
                path = f"{directory.path}/{name}"
                parsed = names.parse_dir_name(name)
                if parsed is None or not self._disk.is_dir(path):
                    continue
                tp, mark = parsed
                if mark == names.DELETE_DIR:
                    self.deletions.append(DeleteJob(self._disk, directory.health, tp, path))
                elif mark != names.STRAY_DIR and tp.topic != METADATA_TOPIC:
                    if mark != names.FUTURE_DIR:
                        self._unopened[tp] = directory
                    jobs.append(self._load_job(directory, tp, path, mark, config_of(tp.topic)))
        return jobs

    def _load_job(
        self, directory: LogDirectory, tp: TopicPartition, path: str, mark: str, config: TopicConfig
    ) -> LoadJob:
        return LoadJob(
            self._disk,
            directory,
            tp,
            path,
            mark == names.FUTURE_DIR,
            config,
            self._clock.wall_ms(),
            self._producer_expiration_ms,
            lambda: self._write_ends(directory),
        )

    def loaded(self, job: LoadJob) -> None:
        """Takes the log of a job that has run."""
        log = job.log
        assert log is not None, f"the log of {job.tp} was not opened"
        known = self._futures if job.is_future else self._logs
        if job.tp in known:
            raise DirectoryRefused(
                f"{job.tp} is in both {known[job.tp].path} and {log.path}; remove the older one"
            )
        known[job.tp] = log
        if not job.is_future:
            self._unopened.pop(job.tp, None)
        self.reports += log.reports

    def load(self, config_of: Callable[[str], TopicConfig]) -> list[RecoveryReport]:
        """Loads everything here and now. A partition that cannot be read takes its directory
        offline; the others are served."""
        for job in self.load_jobs(config_of):
            if not job.directory.health.is_online:
                continue
            try:
                job.run()
            except StorageFailed:
                continue
            self.loaded(job)
        return self.reports

    # Looking up.

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def future(self, tp: TopicPartition) -> Log | None:
        return self._futures.get(tp)

    def all(self) -> list[Log]:
        return list(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def logs_in(self, directory: LogDirectory, *, future: bool = False) -> list[Log]:
        logs = self._futures if future else self._logs
        return [log for log in logs.values() if log.health is directory.health]

    def directory_of(self, log: Log) -> LogDirectory:
        return next(d for d in self.directories if d.health is log.health)

    def offline(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.health.is_online]

    def cordon(self, paths: Iterable[str]) -> None:
        """Sets which directories get no new replicas; `*` stands for all of them."""
        self._cordoned = frozenset(path if path == "*" else _normal(path) for path in paths)

    def is_cordoned(self, directory: LogDirectory) -> bool:
        return "*" in self._cordoned or directory.path in self._cordoned

    def drop_offline(self) -> list[TopicPartition]:
        """Forgets the logs of directories that failed; returns their partitions."""
        gone = [tp for tp, log in self._logs.items() if not log.health.is_online]
        for tp in gone:
            del self._logs[tp]
        for tp in [tp for tp, log in self._futures.items() if not log.health.is_online]:
            del self._futures[tp]
        return gone

    # Creating, deleting, moving.

    def create(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        directory: str | None = None,
    ) -> Log:
        """Creates an empty log, by default in the directory with the fewest logs. One that could
        not be loaded at the start, as on a full disk, is opened where it is."""
        assert tp not in self._logs, f"{tp} exists in {self._logs[tp].path}"
        target = self._place_for(tp) if directory is None else self.find(directory)
        log = self._create(target, tp, topic_id, config, names.dir_name(tp))
        self._logs[tp] = log
        self._unopened.pop(tp, None)
        return log

    def _create(
        self,
        directory: LogDirectory,
        tp: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        name: str,
    ) -> Log:
        path = f"{directory.path}/{name}"
        with directory.health.errors():
            # The checkpoints are valid for an existing directory, if it belongs to this topic.
            is_there = self._disk.exists(path)
            if is_there and (read_topic_id(self._disk, path) or topic_id) != topic_id:
                away = names.marked_dir_name(tp, self._new_id(), names.DELETE_DIR)
                self._disk.rename(path, f"{directory.path}/{away}")
                job = DeleteJob(self._disk, directory.health, tp, f"{directory.path}/{away}")
                self.deletions.append(job)
                is_there = False
            log = Log.open(
                self._disk,
                path,
                tp,
                topic_id=topic_id,
                config=config,
                now_ms=self._clock.wall_ms(),
                health=directory.health,
                start=directory.log_starts.get(tp, 0) if is_there else 0,
                recovery_point=directory.recovery_points.get(tp) if is_there else None,
                producer_expiration_ms=self._producer_expiration_ms,
                on_truncated=lambda: self._write_ends(directory),
                cleaned_to=directory.cleaned_to.get(tp) if is_there else None,
            )
            log.write_topic_id(topic_id)
        return log

    def assign_topic_id(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Gives a log its topic id that was found without one: a crash may keep a directory and
        lose the file in it."""
        self._logs[tp].write_topic_id(topic_id)

    def take_deletions(self) -> list[DeleteJob]:
        """Returns the new jobs, to be run after `file.delete.delay.ms`."""
        taken, self.deletions = self.deletions, []
        return taken

    def delete(self, tp: TopicPartition) -> DeleteJob:
        """Deletes a log. Its directory is renamed at once; its files go with the job, which is in
        `deletions` too."""
        future = self._futures.pop(tp, None)
        if future is not None:
            self._rename_away(future, names.DELETE_DIR)
        log = self._logs.pop(tp)
        self.high_watermarks.pop(tp, None)
        return self._rename_away(log, names.DELETE_DIR)

    def _rename_away(self, log: Log, mark: str) -> DeleteJob:
        directory = self.directory_of(log)
        target = f"{directory.path}/{names.marked_dir_name(log.tp, self._new_id(), mark)}"
        with directory.health.errors():
            log.move_to(target)
        # Not left to reference counts: what keeps an object alive is hard to see, and a deleted
        # file that is open still takes its space.
        log.close(clean=False)
        job = DeleteJob(self._disk, directory.health, log.tp, target)
        if mark == names.DELETE_DIR:
            self.deletions.append(job)
        return job

    def set_aside(self, tp: TopicPartition) -> str:
        """Removes a log that the cluster does not know, and keeps its files (`-stray`)."""
        log = self._logs.pop(tp)
        self._rename_away(log, names.STRAY_DIR)
        return log.path

    def start_move(self, tp: TopicPartition, directory: str) -> Log:
        """Creates an empty log in another directory that, once it is filled, replaces this one."""
        log, target = self._logs[tp], self.find(directory)
        name = names.marked_dir_name(tp, self._new_id(), names.FUTURE_DIR)
        future = self._create(target, tp, log.topic_id, log.config, name)
        self._futures[tp] = future
        return future

    def cancel_move(self, tp: TopicPartition) -> None:
        """Deletes the copy of a log that was being moved."""
        self._rename_away(self._futures.pop(tp), names.DELETE_DIR)

    def adopt_moved(self) -> list[TopicPartition]:
        """After a start, puts logs in place whose `finish_move` was interrupted after the old log
        was renamed. Not while a directory is offline: the log may be there."""
        if self.offline():
            return []
        orphans = [tp for tp in self._futures if tp not in self._logs]
        for tp in orphans:
            self._put_in_place(tp, self._futures.pop(tp))
        return orphans

    def finish_move(self, tp: TopicPartition) -> Log:
        """Replaces a log by its copy, which has all that it has."""
        log, future = self._logs[tp], self._futures.pop(tp)
        assert future.end == log.end, f"{tp} is at {future.end} of {log.end}"
        future.mark_cleaned(log.cleaned_to)
        self._rename_away(log, names.DELETE_DIR)
        self._put_in_place(tp, future)
        return future

    def _put_in_place(self, tp: TopicPartition, future: Log) -> None:
        directory = self.directory_of(future)
        with directory.health.errors():
            future.move_to(f"{directory.path}/{names.dir_name(tp)}")
        self._logs[tp] = future

    # Durability.

    def checkpoint_job(
        self, high_watermarks: Mapping[TopicPartition, int] | None = None
    ) -> CheckpointJob:
        """Returns a job that writes recovery points and log starts and, if given, high
        watermarks."""
        writes = []
        for directory in self._online():
            writes += [(directory, ends) for ends in self._checkpoints_of_ends(directory)]
            if high_watermarks is not None:
                here = {
                    log.tp: high_watermarks[log.tp]
                    for log in self.logs_in(directory)
                    if log.tp in high_watermarks
                }
                here |= self._kept(directory, directory.high_watermarks)
                writes.append((directory, directory.checkpoint(names.HIGH_WATERMARKS, here)))
        return CheckpointJob(tuple(writes))

    def _checkpoints_of_ends(self, directory: LogDirectory) -> list[CheckpointWrite]:
        """Returns the writes of recovery points and log starts."""
        logs = self.logs_in(directory)
        points = _recovery_points(logs) | self._kept(directory, directory.recovery_points)
        starts = _starts(logs) | self._kept(directory, directory.log_starts)
        return [
            directory.checkpoint(names.RECOVERY_POINTS, points),
            directory.checkpoint(names.LOG_STARTS, starts),
        ]

    def _kept(
        self, directory: LogDirectory, found: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Returns the lines that the last run left for logs that are not open in this one."""
        return {
            tp: found[tp]
            for tp, place in self._unopened.items()
            if place is directory and tp in found
        }

    def cleaned_job(self, log: Log) -> CheckpointJob:
        """Returns a job that writes how far a directory's logs are compacted; run it when one
        was."""
        directory = self.directory_of(log)
        cleaned = _cleaned(self.logs_in(directory)) | self._kept(directory, directory.cleaned_to)
        return CheckpointJob(((directory, directory.checkpoint(names.CLEANER_OFFSETS, cleaned)),))

    def ends_job(self, logs: Iterable[Log]) -> CheckpointJob:
        """Returns a job that writes recovery points and log starts in the directories of these
        logs, once they were truncated."""
        directories = {id(log.health): self.directory_of(log) for log in logs}
        return CheckpointJob(
            tuple(
                (directory, ends)
                for directory in directories.values()
                for ends in self._checkpoints_of_ends(directory)
            )
        )

    def _write_ends(self, directory: LogDirectory) -> None:
        """Writes the checkpoints after a truncation: a recovery point above the new end would
        leave later appends unchecked, and a start at the end would be lost with all that came
        before it."""
        for checkpoint in self._checkpoints_of_ends(directory):
            directory.write(checkpoint)

    def closing_jobs(self) -> list[Callable[[], None]]:
        """Returns one job for each log with what a clean close waits for, to be run in workers in
        parallel before `close`. The logs must not be used any more."""
        return [partial(_close_clean, log) for log in (*self.all(), *self._futures.values())]

    def close(
        self,
        clean: bool,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """Closes all logs. A clean close makes everything durable and leaves a marker. Blocks."""
        failed: set[Health] = set()
        for log in (*self._logs.values(), *self._futures.values()):
            try:
                if clean and log.health.is_online:
                    _close_clean(log)
                else:
                    log.close(clean=False)
            except ApiError:  # a full disk, or one that failed
                failed.add(log.health)
                log.close(clean=False)
        if clean:
            for directory in self._online():
                if directory.health in failed:
                    continue
                try:
                    self._write_last(directory, high_watermarks, broker_epoch)
                except ApiError as error:
                    directory.notes.append(str(error))
        for directory in self.directories:
            directory.release()

    def _write_last(
        self,
        directory: LogDirectory,
        high_watermarks: Mapping[TopicPartition, int] | None,
        broker_epoch: int,
    ) -> None:
        job = self.checkpoint_job(high_watermarks)
        CheckpointJob(tuple(write for write in job.writes if write[0] is directory)).run()
        # The marker is for all logs in the directory: one that was not opened has still to be
        # checked if the stop before this run was not clean.
        if directory.was_clean or directory not in self._unopened.values():
            directory.mark_clean(broker_epoch)

    # Directories.

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.health.is_online]

    def _place_for(self, tp: TopicPartition) -> LogDirectory:
        online = self._online()
        if not online:
            raise StorageFailed(self.directories[0].path, "no log directory is online")
        if len(online) == 1:
            return online[0]
        name = names.dir_name(tp)
        for directory in online:
            if self._disk.exists(f"{directory.path}/{name}"):
                return directory
        # A replica that was placed here before all were cordoned has to be somewhere.
        open_ones = [directory for directory in online if not self.is_cordoned(directory)]
        return min(open_ones or online, key=lambda directory: len(self.logs_in(directory)))

    def space(self, directory: LogDirectory) -> tuple[int, int]:
        """Returns the total and the free bytes of the file system of a directory. May block."""
        with directory.health.errors():
            return self._disk.space(directory.path)

    def find(self, path: str) -> LogDirectory:
        path = _normal(path)
        for directory in self.directories:
            if directory.path == path:
                return directory
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a log directory of this node")


def _close_clean(log: Log) -> None:
    log.seal()
    job = log.flush_job()
    if job is not None:
        job.run()
        log.flushed(job)
    log.close(clean=True)


def _recovery_points(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    return {log.tp: log.trusted_end for log in logs}


def _starts(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    """Returns the starts that the first segment does not tell."""
    return {log.tp: log.start for log in logs if log.start > log.segments[0].base}


def _cleaned(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    return {log.tp: log.cleaned_to for log in logs if log.cleaned_to is not None}


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"
