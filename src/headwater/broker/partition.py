"""One replica of a partition on this broker: its log, its role, and the requests that wait for it.

Produce and fetch meet here. Everything is plain calls on the loop; a request that has to wait
leaves a callback and costs nothing until it is called.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol

from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import PartitionState
from headwater.model import TopicPartition
from headwater.observability.traffic import Traffic
from headwater.replication.follower import Cut, FollowerState
from headwater.replication.leader import ActiveEpoch, FetchClock, IsrProposal, LeaderState
from headwater.storage import Appended, Log, Origin, TruncationJob, Verification

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from headwater.io import Workers

ALL_IN_SYNC = -1
_NO_EPOCH = -1
_BASE_OFFSET_BYTES = 8

Done = Callable[[ApiError | None], None]
"""Called once, when an append is on all in-sync replicas or cannot be."""


class Watcher(Protocol):
    """A request that waits for more to read."""

    def on_more(self, partition: Partition, added_bytes: int) -> None: ...

    def on_changed(self, partition: Partition) -> None:
        """Leadership, log start or existence changed: read again now."""


class Subscriber(Protocol):
    """A follower's fetch session, as one of its partitions sees it. It stays subscribed between
    fetches, so that a fetch costs only what has news."""

    def on_more(self, added_bytes: int) -> None: ...

    def on_news(self) -> None:
        """The high watermark moved: the next answer says so, and nobody is woken for it."""

    def on_changed(self) -> None:
        """Leadership, log start or existence changed: read again now."""


class Partition:
    __slots__ = (
        "_deleting",
        "_flushing",
        "_held_bytes",
        "_last_high_watermark",
        "_told_high_watermark",
        "_waiting",
        "_workers",
        "follower",
        "is_being_cut",
        "leader",
        "log",
        "on_proposal",
        "partition_epoch",
        "subscribers",
        "topic_id",
        "tp",
        "traffic",
        "watchers",
    )

    def __init__(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        log: Log,
        workers: Workers,
        high_watermark: int,
        traffic: Traffic | None = None,
    ) -> None:
        """`traffic` counts what goes through all partitions of the topic."""
        self.traffic = Traffic() if traffic is None else traffic
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader: LeaderState | None = None
        self.follower: FollowerState | None = None
        self.partition_epoch = _NO_EPOCH  # of the metadata that it follows
        self.is_being_cut = False  # a truncation is not durable yet: the role may not change
        # Takes proposals of another in-sync set, which are then `leader.pending`.
        self.on_proposal: Callable[[Partition, IsrProposal], None] = _drop_proposal
        # At least the log's start: what was deleted had been committed.
        self._last_high_watermark = min(max(high_watermark, log.start), log.end)  # without a role
        # What watchers know: how far they may read, and the bytes appended since that they may not.
        self._told_high_watermark = self._last_high_watermark
        self._held_bytes = 0
        self.watchers: dict[Watcher, None] = {}  # ordered, so that the simulator can replay a run
        self.subscribers: dict[int, Subscriber] = {}  # by replica
        # Appends that are not yet on all in-sync replicas, in the order of their ends.
        self._waiting: deque[tuple[int, Done]] = deque()
        # Deletions of records that not all live replicas have carried out.
        self._deleting: list[tuple[int, Done]] = []
        self._workers = workers
        self._flushing: asyncio.Future[None] | None = None

    # Offsets that readers may see

    @property
    def high_watermark(self) -> int:
        if self.leader is not None:
            return self.leader.high_watermark
        if self.follower is not None:
            return self.follower.high_watermark
        return self._last_high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end (exclusive) of what a read_committed reader may see."""
        return self.log.last_stable_offset(self.high_watermark)

    def lead(self, epoch: int) -> LeaderState:
        """Returns the leader's state after checking the epoch that the caller knows."""
        leader = self.leader
        if leader is None:
            raise self.not_leader()
        if epoch != -1 and epoch != leader.epoch:
            raise self._another_epoch(epoch, leader.epoch)
        return leader

    def lead_or_follow(self, epoch: int) -> LeaderState | FollowerState:
        """The same for a reader that may read any replica."""
        follower = self.follower
        if follower is None:
            return self.lead(epoch)
        if epoch not in (-1, follower.epoch):
            raise self._another_epoch(epoch, follower.epoch)
        return follower

    def _another_epoch(self, epoch: int, own: int) -> ApiError:
        code = ErrorCode.FENCED_LEADER_EPOCH if epoch < own else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ApiError(code, f"epoch {epoch}; the leader epoch of {self.tp} is {own}")

    # Writing

    def append(
        self,
        data: Buffer,
        *,
        acks: int,
        now_ms: int,
        origin: Origin,
        guard: Verification | None = None,
    ) -> Appended:
        leader = self.leader
        if leader is None:
            raise self.not_leader()
        if acks == ALL_IN_SYNC and len(leader.isr) < leader.min_isr and leader.is_under_min_isr:
            raise self._not_enough(ErrorCode.NOT_ENOUGH_REPLICAS, leader)
        appended = self.log.append_as_leader(
            data, epoch=leader.epoch, now_ms=now_ms, origin=origin, guard=guard
        )
        if not appended.duplicate:
            size = appended.bytes
            messages = appended.last_offset - appended.base_offset + 1
            self.traffic.on_append(messages=messages, size=size)
            self._on_append(leader, size)
        return appended

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int,
        transaction_version: int,
        now_ms: int,
    ) -> Appended:
        """Appends the end of a producer's transaction. Markers of the groups' topic go through the
        group coordinator, which has to know of them."""
        leader = self.leader
        if leader is None:
            raise self.not_leader()
        self.check_writable()
        # Nobody may ever read here and have ended transactions forgotten.
        self.log.producers.high_watermark_at(leader.high_watermark)
        appended = self.log.append_marker(
            producer_id,
            producer_epoch,
            commits=commits,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
            epoch=leader.epoch,
            now_ms=now_ms,
        )
        self._on_append(leader, appended.bytes)
        return appended

    def begin_verification(
        self, producer_id: int, *, epoch: int, sequence: int, bumps_epoch: bool, now_ms: int
    ) -> Verification | None:
        """Returns the guard for the first batch of a transaction; None if it is open already."""
        if self.leader is None:
            raise self.not_leader()
        return self.log.producers.begin_verification(
            producer_id, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch, now_ms=now_ms
        )

    def _on_append(self, leader: LeaderState, added_bytes: int) -> None:
        before = leader.high_watermark
        self._held_bytes += added_bytes
        if leader.on_append(self.log.end) > before:
            self._on_high_watermark()
        if self.subscribers:
            for subscriber in self.subscribers.values():
                subscriber.on_more(added_bytes)

    def not_leader(self) -> ApiError:
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} has its leader on another broker"
        )

    def _on_high_watermark(self) -> None:
        high_watermark = self.high_watermark
        waiting = self._waiting
        if waiting:
            while waiting and waiting[0][0] <= high_watermark:
                waiting.popleft()[1](None)
        if self.subscribers:
            for subscriber in self.subscribers.values():
                subscriber.on_news()
        if high_watermark > self._told_high_watermark:
            # Some of the bytes may still be on their way to replicas, and those that another leader
            # wrote were never counted.
            added_bytes = max(self._held_bytes, 1)
            self._told_high_watermark, self._held_bytes = high_watermark, 0
            for watcher in tuple(self.watchers):
                watcher.on_more(self, added_bytes)

    def needs_flush(self) -> bool:
        """Returns whether `flush.messages` requires an fsync before the append is acknowledged."""
        return self.log.unflushed_messages >= self.log.config.flush_messages

    def check_enough_in_sync(self) -> None:
        """Refuses what was committed by fewer replicas than `min.insync.replicas`: the others left
        the in-sync set after the append."""
        leader = self.leader
        if leader is not None:
            required = min(leader.min_isr, len(leader.replicas))
            if len(leader.maximal_isr) < required:
                raise self._not_enough(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, leader)

    def check_writable(self) -> None:
        """Refuses, before anything is decided, what an append with acks=all would refuse."""
        leader = self.leader
        if leader is not None and leader.is_under_min_isr:
            raise self._not_enough(ErrorCode.NOT_ENOUGH_REPLICAS, leader)

    def _not_enough(self, code: ErrorCode, leader: LeaderState) -> ApiError:
        return ApiError(
            code,
            f"{self.tp} has {len(leader.isr)} replicas in sync, "
            f"min.insync.replicas is {leader.min_isr}",
        )

    def when_replicated(self, end: int, done: Done) -> None:
        """Calls `done` when everything below `end`, which is not committed yet, is on all in-sync
        replicas, or when this broker no longer leads the partition."""
        if self.leader is None:
            done(self.not_leader())
            return
        waiting = self._waiting
        if waiting and end < waiting[-1][0]:
            # A repeated batch waits for the end of its first copy.
            ordered = list(waiting)
            insort(ordered, (end, done), key=itemgetter(0))
            self._waiting = deque(ordered)
        else:
            waiting.append((end, done))

    @property
    def waiting_appends(self) -> int:
        """How many wait for `when_replicated`."""
        return len(self._waiting)

    @property
    def waiting_deletions(self) -> int:
        return len(self._deleting)

    def forget(self, end: int, done: Done) -> None:
        """Ends a wait that took too long."""
        if (end, done) in self._waiting:
            self._waiting.remove((end, done))

    def replicated(self, end: int) -> asyncio.Future[None] | None:
        """Returns a future that is done when everything below `end` is on all in-sync replicas;
        None if it already is."""
        if self.high_watermark >= end:
            return None
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(failure: ApiError | None) -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(None)

        self.when_replicated(end, done)
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

    # Followers of this leader

    def on_follower_fetch(
        self,
        replica: int,
        *,
        offset: int,
        log_start: int,
        broker_epoch: int,
        clock: FetchClock,
        now: float,
    ) -> None:
        """Takes a follower's position, which was compared with the log."""
        leader = self.leader
        assert leader is not None, f"{self.tp} is not led here"
        before = leader.high_watermark
        leader.on_fetch(
            replica,
            offset=offset,
            log_start=log_start,
            now=now,
            broker_epoch=broker_epoch,
            clock=clock,
        )
        if replica not in leader.isr:
            self.try_to_join(replica)
        if leader.high_watermark > before:
            self._on_high_watermark()
        if self._deleting:
            self.check_deleted()

    def try_to_join(self, replica: int) -> None:
        """Proposes a replica for the in-sync set, if it may join."""
        proposal = self.leader.propose_join(replica) if self.leader is not None else None
        if proposal is not None:
            self.on_proposal(self, proposal)

    def _try_all_to_join(self) -> None:
        leader = self.leader
        if leader is not None and len(leader.isr) < len(leader.replicas):
            for replica in leader.replicas:
                self.try_to_join(replica)

    def shrink(self, now: float) -> None:
        """Proposes to remove the replicas that lag."""
        leader = self.leader
        if leader is None or not leader.followers:
            return
        before = leader.high_watermark
        if leader.on_tick(now) > before:
            self._on_high_watermark()
        proposal = leader.propose_shrink(now)
        if proposal is not None:
            self.on_proposal(self, proposal)

    def on_altered(
        self,
        proposal: IsrProposal,
        *,
        leader_epoch: int,
        isr: tuple[int, ...],
        partition_epoch: int,
    ) -> None:
        """Takes the controller's answer to a proposal, which may be ahead of the metadata."""
        leader = self.leader
        if leader is None or leader.pending is not proposal or leader.epoch != leader_epoch:
            return  # the metadata was faster
        if partition_epoch == proposal.partition_epoch:
            leader.on_refused(proposal)  # it was so already
        self.partition_epoch = max(self.partition_epoch, partition_epoch)
        self._on_isr(leader, isr, leader.replicas, partition_epoch)

    def on_refused(self, proposal: IsrProposal) -> None:
        """Drops a proposal that the controller will never commit."""
        leader = self.leader
        if leader is not None and leader.pending is proposal:
            before = leader.high_watermark
            if leader.on_refused(proposal) > before:
                self._on_high_watermark()

    def _on_isr(
        self,
        leader: LeaderState,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        partition_epoch: int,
    ) -> None:
        before = len(leader.isr)
        leader.on_change(isr=isr, replicas=replicas, partition_epoch=partition_epoch)
        self.traffic.on_in_sync(before=before, after=len(leader.isr))
        for gone in [replica for replica in self.subscribers if replica not in replicas]:
            del self.subscribers[gone]
        self._on_high_watermark()
        self._try_all_to_join()
        self.check_deleted()

    # Deleting records

    @property
    def low_watermark(self) -> int:
        """The offset below which all live replicas have deleted records."""
        leader = self.leader
        return self.log.start if leader is None else leader.low_watermark(self.log.start)

    def when_deleted(self, offset: int, done: Done) -> None:
        """Calls `done` when all live replicas have deleted what is below `offset`, or when this
        broker no longer leads the partition."""
        self._deleting.append((offset, done))
        self.check_deleted()

    def stop_deleting(self, offset: int, done: Done) -> None:
        """Ends a wait that took too long."""
        if (offset, done) in self._deleting:
            self._deleting.remove((offset, done))

    def check_deleted(self) -> None:
        if not self._deleting:
            return
        low_watermark = self.low_watermark
        deleting, self._deleting = self._deleting, []
        for offset, done in deleting:
            if offset <= low_watermark:
                done(None)
            else:
                self._deleting.append((offset, done))

    # Following another leader

    def append_as_follower(
        self, data: Buffer, *, high_watermark: int, leader_start: int, now_ms: int
    ) -> int:
        """Takes the records and offsets that the leader has sent; returns the bytes appended."""
        follower, log = self.follower, self.log
        assert follower is not None, f"{self.tp} does not follow"
        if log.start == log.end:
            self._begin_within(data)
        count = log.append_as_follower(data, now_ms=now_ms).bytes if len(memoryview(data)) else 0
        self._held_bytes += count
        has_moved = follower.on_fetched(leader_high_watermark=high_watermark, log_end=log.end)
        log.producers.high_watermark_at(follower.high_watermark)
        if has_moved:
            self._on_high_watermark()
        self.traffic.on_copied(count)
        if leader_start > log.start:
            start = follower.log_start(leader_start=leader_start, log_start=log.start)
            log.delete_records_before(start)
        return count

    def _begin_within(self, data: Buffer) -> None:
        """Lets an empty log begin with the first batch of the leader's, whose start may lie within
        it."""
        view = memoryview(data).cast("B")
        base = int.from_bytes(view[:_BASE_OFFSET_BYTES], "big") if len(view) else self.log.end
        if base < self.log.end:
            self.log.truncate_and_start_at(base)

    def begin_cut(self, cut: Cut) -> TruncationJob | None:
        """Cuts the log; returns the job that makes it durable, after which `cut_ended` is called.
        None if nothing has to be made durable."""
        follower = self.follower
        assert follower is not None, f"{self.tp} does not follow"
        job = self.log.begin_anew(cut.offset) if cut.begins_anew else self.log.cut_at(cut.offset)
        follower.on_cut(cut)
        self.is_being_cut = job is not None
        return job

    def cut_ended(self, job: TruncationJob) -> None:
        self.log.cut_ended(job)
        self.is_being_cut = False
        self._told_high_watermark, self._held_bytes = self.high_watermark, 0
        self.changed()

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
            self._on_high_watermark()

    def become_leader(
        self,
        state: PartitionState,
        *,
        node_id: int,
        lag_seconds_max: float,
        active_epoch: ActiveEpoch,
        now: float,
    ) -> None:
        """Begins a leadership, or takes a change of replicas within it."""
        if state.partition_epoch < self.partition_epoch:
            return  # a proposal was answered before the metadata came
        assert not self.is_being_cut, f"{self.tp} is being truncated"
        self.partition_epoch = state.partition_epoch
        leader = self.leader
        if leader is not None and leader.epoch == state.leader_epoch:
            if state.partition_epoch > leader.partition_epoch or leader.replicas != state.replicas:
                self._on_isr(leader, state.isr, state.replicas, state.partition_epoch)
            return
        # Requests that wait since an earlier epoch of this leader go on: the log is the same.
        high_watermark = self.high_watermark
        self.follower = None
        self.log.assign_epoch(state.leader_epoch, self.log.end)
        self.leader = LeaderState(
            node_id=node_id,
            epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            isr=state.isr,
            replicas=state.replicas,
            log_end=self.log.end,
            high_watermark=high_watermark,
            min_isr=self.log.config.min_insync_replicas,
            lag_seconds_max=lag_seconds_max,
            active_epoch=active_epoch,
            now=now,
        )
        self._told_high_watermark, self._held_bytes = self.leader.high_watermark, 0
        self.changed()

    def become_follower(self, state: PartitionState) -> None:
        """Follows another leader, or none. Waiting produce requests fail."""
        if state.partition_epoch < self.partition_epoch:
            return
        assert not self.is_being_cut, f"{self.tp} is being truncated"
        self.partition_epoch = state.partition_epoch
        follower = self.follower
        if follower is not None and follower.epoch == state.leader_epoch:
            return
        high_watermark = self.high_watermark
        self._resign("has another leader now")
        # An epoch without records is not one that this log has.
        self.log.cut_at(self.log.end)
        self.follower = FollowerState(
            leader_id=state.leader,
            epoch=state.leader_epoch,
            high_watermark=high_watermark,
        )
        self._told_high_watermark, self._held_bytes = high_watermark, 0
        self.changed()

    def changed(self) -> None:
        for watcher in tuple(self.watchers):
            watcher.on_changed(self)
        for subscriber in tuple(self.subscribers.values()):
            subscriber.on_changed()

    def close(self) -> None:
        """Removes the replica from this broker. Waiting requests fail."""
        self._last_high_watermark = self.high_watermark
        self._resign("left this broker")
        self.follower = None
        self.changed()

    def _resign(self, why: str) -> None:
        self.leader = None
        self._fail_waiting(why)

    def _fail_waiting(self, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        deleting, self._deleting = self._deleting, []
        for _, done in (*waiting, *deleting):
            done(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.tp} {why}"))


def _drop_proposal(partition: Partition, proposal: IsrProposal) -> None:
    partition.on_refused(proposal)
