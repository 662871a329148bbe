"""All logs of a node, over all its `log.dirs`: found at start, made, moved, deleted, closed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock, Disk
from headwater.model import METADATA_TOPIC, ZERO_ID, TopicPartition
from headwater.storage import names
from headwater.storage.checkpoints import CheckpointWrite
from headwater.storage.directory import (
    NO_BROKER_EPOCH,
    DirectoryRefused,
    LogDirectory,
    read_topic_id,
    take_directories,
    write_topic_id,
)
from headwater.storage.failures import Health, StorageFailed
from headwater.storage.log import Log
from headwater.storage.recovery import RecoveryReport

DAY_MS = 86_400_000


@dataclass(slots=True)
class LoadJob:
    """Opens one partition's log. `run` in a worker, many at a time; then `LogDirs.loaded`."""

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
    """Removes the directory of a log that is gone. `run` in a worker."""

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
    """Writes the checkpoints as they are due now. `run` in a worker."""

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
        self.deletions: list[DeleteJob] = []  # for the driver, after file.delete.delay.ms
        self.reports: list[RecoveryReport] = []
        self._logs: dict[TopicPartition, Log] = {}
        self._futures: dict[TopicPartition, Log] = {}

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
        """Takes the directories for this node: DirectoryRefused if another process has one or it
        belongs to another node or cluster. One that fails is offline; all of them must not be."""
        return cls.of(
            disk,
            take_directories(disk, dirs, owner or f"node {node_id}"),
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
        """The same with directories that are taken already. If they are refused, they are given
        back."""
        try:
            for directory in directories:
                if not directory.health.is_online:
                    continue
                try:
                    cluster_id = directory.identify(node_id, cluster_id, new_id) or cluster_id
                    directory.read_state()
                except OSError as error:
                    directory.health.failure = str(error)
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
        """One job for each partition found. Logs on their way out go to `deletions`. The metadata
        log is left alone: `open_log` gives it to the quorum."""
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
        """The job has run."""
        log = job.log
        assert log is not None, f"the log of {job.tp} was not opened"
        known = self._futures if job.is_future else self._logs
        if job.tp in known:
            raise DirectoryRefused(
                f"{job.tp} is in both {known[job.tp].path} and {log.path}; remove the older one"
            )
        known[job.tp] = log
        self.reports += log.reports

    def load(self, config_of: Callable[[str], TopicConfig]) -> list[RecoveryReport]:
        """Loads everything here and now. A partition that cannot be read takes its directory
        offline, the others are served."""
        for job in self.load_jobs(config_of):
            if not job.directory.health.is_online:
                continue
            try:
                job.run()
            except StorageFailed:
                continue
            self.loaded(job)
        return self.reports

    def open_log(self, tp: TopicPartition, topic_id: bytes, config: TopicConfig) -> Log:
        """The log of a partition that `load_jobs` leaves out, from its first byte on. It is its
        caller's, not in the list of logs, and is closed by him."""
        directory = self._online()[0]
        with directory.health.errors():
            return Log.open(
                self._disk,
                f"{directory.path}/{names.dir_name(tp)}",
                tp,
                topic_id=topic_id,
                config=config,
                now_ms=self._clock.wall_ms(),
                health=directory.health,
                producer_expiration_ms=self._producer_expiration_ms,
            )

    # The logs there are.

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

    def disk_errors(self, path: str) -> AbstractContextManager[None]:
        """Around work in a log directory: an error of the device takes it offline."""
        return self.find(path).health.errors()

    def drop_offline(self) -> list[TopicPartition]:
        """Forgets the logs of directories that failed; says whose they were."""
        gone = [tp for tp, log in self._logs.items() if not log.health.is_online]
        for tp in gone:
            del self._logs[tp]
        for tp in [tp for tp, log in self._futures.items() if not log.health.is_online]:
            del self._futures[tp]
        return gone

    # Making and removing.

    def create(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        config: TopicConfig,
        directory: str | None = None,
    ) -> Log:
        """A new, empty log, in the directory that has the fewest if none is named."""
        assert tp not in self._logs, f"{tp} exists in {self._logs[tp].path}"
        target = self._emptiest() if directory is None else self.find(directory)
        log = self._create(target, tp, topic_id, config, names.dir_name(tp))
        self._logs[tp] = log
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
            # A directory that is there already could not be loaded at the start, as on a full
            # disk: what the checkpoints say holds for it, if it is of this topic.
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
            )
            log.cover(write_topic_id(self._disk, path, topic_id))
        return log

    def assign_topic_id(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Says whose a log is that was found without an id: a crash may keep a directory and lose
        the file that says it."""
        log = self._logs[tp]
        with log.health.errors():
            log.cover(write_topic_id(self._disk, log.path, topic_id))
        log.topic_id = topic_id

    def delete(self, tp: TopicPartition) -> DeleteJob:
        """Takes a log away. Its directory has another name at once; its files go with the job,
        which is in `deletions` too."""
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
        # Now, and not when nobody knows the log any more: what keeps an object alive is hard to
        # see, and an open file that is deleted still takes its space.
        log.close(clean=False)
        job = DeleteJob(self._disk, directory.health, log.tp, target)
        if mark == names.DELETE_DIR:
            self.deletions.append(job)
        return job

    def set_aside(self, tp: TopicPartition) -> str:
        """Takes away a log that the cluster does not know, and keeps its files (`-stray`)."""
        log = self._logs.pop(tp)
        self._rename_away(log, names.STRAY_DIR)
        return log.path

    def start_move(self, tp: TopicPartition, directory: str) -> Log:
        """An empty log in another directory, to be filled and then to take the place of this."""
        log, target = self._logs[tp], self.find(directory)
        name = names.marked_dir_name(tp, self._new_id(), names.FUTURE_DIR)
        future = self._create(target, tp, log.topic_id, log.config, name)
        self._futures[tp] = future
        return future

    def cancel_move(self, tp: TopicPartition) -> None:
        """The log stays where it is, and what was copied of it goes."""
        self._rename_away(self._futures.pop(tp), names.DELETE_DIR)

    def adopt_moved(self) -> list[TopicPartition]:
        """After a start: a log that was on its way takes the place that `finish_move` had cleared
        for it when it was cut short. Not while a directory is offline: the log may be there."""
        if self.offline():
            return []
        orphans = [tp for tp in self._futures if tp not in self._logs]
        for tp in orphans:
            self._put_in_place(tp, self._futures.pop(tp))
        return orphans

    def finish_move(self, tp: TopicPartition) -> Log:
        """The other log has all that this one has: it takes its place."""
        log, future = self._logs[tp], self._futures.pop(tp)
        assert future.end == log.end, f"{tp} is at {future.end} of {log.end}"
        future.cleaned_to = log.cleaned_to
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
        """What the checkpoints must say now. Without high watermarks theirs is left alone."""
        writes = []
        for directory in self._online():
            logs = self.logs_in(directory)
            writes += [(directory, ends) for ends in _checkpoints_of_ends(directory, logs)]
            if high_watermarks is not None:
                here = {
                    log.tp: high_watermarks[log.tp] for log in logs if log.tp in high_watermarks
                }
                writes.append((directory, directory.checkpoint(names.HIGH_WATERMARKS, here)))
        return CheckpointJob(tuple(writes))

    def cleaned_job(self, log: Log) -> CheckpointJob:
        """Says how far the logs of a directory are compacted; run it when one was."""
        directory = self.directory_of(log)
        cleaned = _cleaned(self.logs_in(directory))
        return CheckpointJob(((directory, directory.checkpoint(names.CLEANER_OFFSETS, cleaned)),))

    def _write_ends(self, directory: LogDirectory) -> None:
        """After a truncation: a recovery point above the new end would leave later appends
        unchecked, and a start at the end would be lost with all that came before it."""
        for checkpoint in _checkpoints_of_ends(directory, self.logs_in(directory)):
            directory.write(checkpoint)

    def closing_jobs(self) -> list[Callable[[], None]]:
        """What a clean close has to wait for, one job for each log, to be run in workers side by
        side before `close`. Nobody may use the logs any more."""
        return [partial(_close_clean, log) for log in (*self.all(), *self._futures.values())]

    def close(
        self,
        clean: bool,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        broker_epoch: int = NO_BROKER_EPOCH,
    ) -> None:
        """Ends the use of all logs. A clean close makes all durable and says so. Blocks."""
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
        directory.mark_clean(broker_epoch)

    # Directories.

    def _online(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.health.is_online]

    def _emptiest(self) -> LogDirectory:
        online = self._online()
        if not online:
            raise StorageFailed(self.directories[0].path, "no log directory is online")
        if len(online) == 1:
            return online[0]
        return min(online, key=lambda directory: len(self.logs_in(directory)))

    def space(self, directory: LogDirectory) -> tuple[int, int]:
        """Bytes in all and bytes free where a directory is. May block."""
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


def _checkpoints_of_ends(directory: LogDirectory, logs: list[Log]) -> list[CheckpointWrite]:
    """Up to where each log is durable, and where it starts."""
    return [
        directory.checkpoint(names.RECOVERY_POINTS, _recovery_points(logs)),
        directory.checkpoint(names.LOG_STARTS, _starts(logs)),
    ]


def _recovery_points(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    return {log.tp: log.trusted_end for log in logs}


def _starts(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    """Those that the first segment does not say."""
    return {log.tp: log.start for log in logs if log.start > log.segments[0].base}


def _cleaned(logs: Iterable[Log]) -> dict[TopicPartition, int]:
    return {log.tp: log.cleaned_to for log in logs if log.cleaned_to is not None}


def _normal(path: str) -> str:
    return path.rstrip("/") or "/"
