"""One replica of a partition on this broker: its log, its role, and the requests that wait for it.

Produce and fetch meet here. Everything is plain calls on the loop; a request that has to wait
leaves a callback and costs nothing until it is called.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.model import TopicPartition
from headwater.replication.leader import LeaderState
from headwater.storage import Appended, Log, Origin

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io import Workers

ALL_IN_SYNC = -1


class Watcher(Protocol):
    """A request that waits for more to read."""

    def on_more(self, partition: Partition, added_bytes: int) -> None: ...

    def on_changed(self, partition: Partition) -> None:
        """Leadership, log start or existence changed: read again now."""


class Partition:
    __slots__ = (
        "_flushing",
        "_last_high_watermark",
        "_replicated",
        "_workers",
        "leader",
        "log",
        "topic_id",
        "tp",
        "watchers",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        log: Log,
        workers: Workers,
        high_watermark: int,
    ) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader: LeaderState | None = None
        self._last_high_watermark = high_watermark  # while this broker does not lead
        self.watchers: dict[Watcher, None] = {}  # ordered, so that the simulator can replay a run
        self._replicated: list[tuple[int, asyncio.Future[None]]] = []
        self._workers = workers
        self._flushing: asyncio.Future[None] | None = None

    # Offsets that readers may see

    @property
    def high_watermark(self) -> int:
        return self.leader.high_watermark if self.leader is not None else self._last_high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end (exclusive) of what a read_committed reader may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def lead(self, epoch: int) -> LeaderState:
        """Returns the leader's state after checking the epoch that the caller knows."""
        leader = self.leader
        if leader is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} has its leader on another broker"
            )
        if epoch != -1 and epoch != leader.epoch:
            if epoch < leader.epoch:
                raise ApiError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"epoch {epoch}; the leader epoch of {self.tp} is {leader.epoch}",
                )
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"epoch {epoch}; the leader epoch of {self.tp} is {leader.epoch}",
            )
        return leader

    # Writing

    def append(self, data: Buffer, *, acks: int, now_ms: int, origin: Origin) -> Appended:
        leader = self.leader
        if leader is None:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} has its leader on another broker"
            )
        if acks == ALL_IN_SYNC and len(leader.isr) < leader.min_isr and leader.is_under_min_isr:
            raise self._not_enough(ErrorCode.NOT_ENOUGH_REPLICAS, leader)
        appended = self.log.append_as_leader(data, epoch=leader.epoch, now_ms=now_ms, origin=origin)
        if not appended.duplicate:
            before = leader.high_watermark
            if leader.on_append(self.log.end) > before:
                self._on_high_watermark(appended.bytes)
        return appended

    def _on_high_watermark(self, added_bytes: int) -> None:
        if self._replicated:
            high_watermark = self.high_watermark
            waiting = self._replicated
            self._replicated = [entry for entry in waiting if entry[0] > high_watermark]
            for end, future in waiting:
                if end <= high_watermark and not future.done():
                    future.set_result(None)
        if self.watchers:
            for watcher in tuple(self.watchers):
                watcher.on_more(self, added_bytes)

    def needs_flush(self) -> bool:
        """Returns whether `flush.messages` requires an fsync before the append is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def check_enough_in_sync(self) -> None:
        """Refuses what was committed by fewer replicas than `min.insync.replicas`: the others left
        the in-sync set after the append."""
        leader = self.leader
        if leader is not None and leader.is_under_min_isr:
            raise self._not_enough(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, leader)

    def _not_enough(self, code: ErrorCode, leader: LeaderState) -> ApiError:
        return ApiError(
            code,
            f"{self.tp} has {len(leader.isr)} replicas in sync, "
            f"min.insync.replicas is {leader.min_isr}",
        )

    def replicated(self, end: int) -> asyncio.Future[None] | None:
        """Returns a future that is done when everything below `end` is on all in-sync replicas;
        None if it already is."""
        if self.high_watermark >= end:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._replicated.append((end, future))
        return future

    @property
    def is_flushing(self) -> bool:
        return self._flushing is not None

    async def flush(self) -> None:
        """Makes everything in the log durable. Concurrent callers share one fsync."""
        end = self.log.end
        while self.log.recovery_point < min(end, self.log.end):
            await self._flush_once()

    async def flush_closed(self) -> None:
        """Makes all segments except the active one durable, with their indexes."""
        base = self.log.segments.active.base
        while self.log.trusted_end < min(base, self.log.segments.active.base):
            await self._flush_once(base)

    async def _flush_once(self, upto: int | None = None) -> None:
        """Runs one flush at a time: a job that was made later does not include the work of an
        earlier one, and must not move the recovery point before it."""
        if self._flushing is None:
            self._flushing = asyncio.ensure_future(self._run_flush(upto))
        await asyncio.shield(self._flushing)

    async def _run_flush(self, upto: int | None) -> None:
        log = self.log
        try:
            job = log.flush_job(upto)
            if job is not None:
                try:
                    await self._workers.run(job.run)
                except ApiError:
                    log.not_flushed(job)
                    raise
                log.flushed(job)
        finally:
            self._flushing = None

    async def flush_ended(self) -> None:
        """Waits for a running flush, successful or not."""
        if self._flushing is not None:
            await asyncio.wait([self._flushing])

    # Changes of role and place

    def replace_log(self, log: Log) -> None:
        """Replaces the log by a copy in another directory."""
        assert log.end == self.log.end, f"{self.tp} ends at {self.log.end}, its copy at {log.end}"
        self.log = log

    def configure(self, config: TopicConfig) -> None:
        """Takes new settings of the topic."""
        self.log.configure(config)
        if self.leader is not None and self.leader.min_isr != config.min_insync_replicas:
            self.leader.on_min_isr(config.min_insync_replicas)
            self._on_high_watermark(0)

    def become_leader(
        self,
        *,
        epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        node_id: int,
        now: float,
    ) -> None:
        """Begins a leadership, or takes a change of replicas within it."""
        leader = self.leader
        if leader is not None and leader.epoch == epoch:
            if (leader.isr, leader.replicas) != (isr, replicas):
                leader.on_change(isr=isr, replicas=replicas)
                self._on_high_watermark(0)
            return
        self.log.assign_epoch(epoch, self.log.end)
        self.leader = LeaderState(
            node_id=node_id,
            epoch=epoch,
            isr=isr,
            replicas=replicas,
            log_end=self.log.end,
            high_watermark=self.high_watermark,
            min_isr=self.log.config.min_insync_replicas,
            now=now,
        )
        self.changed()

    def resign(self) -> None:
        """Ends the leadership: another broker leads now. Waiting produce requests fail."""
        if self.leader is None:
            return
        self._last_high_watermark = self.leader.high_watermark
        self.leader = None
        self._fail_waiting("has another leader now")
        self.changed()

    def changed(self) -> None:
        for watcher in tuple(self.watchers):
            watcher.on_changed(self)

    def close(self) -> None:
        """Removes the replica from this broker. Waiting requests fail."""
        if self.leader is not None:
            self._last_high_watermark = self.leader.high_watermark
        self.leader = None
        self._fail_waiting("left this broker")
        self.changed()

    def _fail_waiting(self, why: str) -> None:
        for _, future in self._replicated:
            if not future.done():
                future.set_exception(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} {why}"))
        self._replicated.clear()
