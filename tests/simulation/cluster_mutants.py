"""Bugs planted in the quorum, the replication and the coordinators of a cluster.

Each says with which histories it is looked for: `quorum` (controllers alone) where they can see it,
because these are much quicker, else `cluster`, where `faults` limits what happens to what matters.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from headwater import _core
from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.coordinators.driver import CoordinatorDriver, State
from headwater.broker.handlers import fetch as fetch_handler
from headwater.broker.metadata_log import MetadataLog
from headwater.broker.partition import Done, Partition
from headwater.broker.partitions import Partitions
from headwater.broker.replica_fetchers import LeaderFetcher
from headwater.controller import brokers
from headwater.controller.decision import Decision
from headwater.controller.partition_change import _Change
from headwater.protocol.messages.fetch import FetchPartition
from headwater.quorum import Raft
from headwater.quorum.model import VoteRequest
from headwater.quorum.progress import Progress
from headwater.replication.follower import Cut, FollowerState
from headwater.replication.leader import LeaderState
from headwater.storage import Log, TruncationJob
from headwater.storage import log as storage_log
from headwater.storage.epochs import EpochCache
from headwater.storage.producer_state import ProducerStates
from tests.simulation.mutants import Mutant

Planted = AbstractContextManager[None]
CRASHES = ("kill", "fall behind", "power cut")
CUTS = ("block one way", "block both ways", "isolate", "pause")


@contextmanager
def planted(*places: tuple[object, str, object]) -> Iterator[None]:
    """Replaces attributes for a while: owner, name and what it becomes."""
    with ExitStack() as stack:
        for owner, name, value in places:
            stack.enter_context(patch.object(owner, name, value))
        yield


# The quorum


def votes_are_not_durable() -> Planted:
    """A voter that was restarted has forgotten its epoch and whom it voted for."""
    return planted((MetadataLog, "_write_state", lambda self, data: None))


def a_voter_votes_twice() -> Planted:
    original = Raft._may_grant

    def may_grant(self: Raft, request: VoteRequest) -> bool:
        before, self.voted = self.voted, None
        try:
            return original(self, request)
        finally:
            self.voted = before

    return planted((Raft, "_may_grant", may_grant))


def a_shorter_log_is_elected() -> Planted:
    return planted((Raft, "_is_up_to_date", lambda self, last: True))


def a_minority_commits() -> Planted:
    """One voter fewer than a majority is enough."""

    def advance(self: Progress) -> bool:
        offsets = sorted((each.offset for each in self._voters.values()), reverse=True)
        reached = offsets[max(0, len(offsets) // 2 - 1)]
        if reached <= self.epoch_start or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    return planted((Progress, "_advance", advance))


def the_metadata_log_is_not_synced() -> Planted:
    """Records count as durable when they are written."""

    async def flush(self: MetadataLog) -> None:
        try:
            while (job := self._log.flush_job()) is not None:
                self._log.flushed(job)
                self.carry_out(self.raft.on_flushed(job.upto, epoch=self.raft.epoch))
        finally:
            self._flushing = None

    return planted((MetadataLog, "_flush", flush))


def a_voter_fetches_on_before_it_has_synced() -> Planted:
    async def flushed(self: MetadataLog) -> None:
        self._flush_soon()

    return planted((MetadataLog, "flushed", flushed))


def a_commit_is_waited_for_by_offset_only() -> Planted:
    """Another leader's record at the same offset answers the command."""
    return planted((MetadataLog, "_leads", lambda self, epoch: True))


def a_command_is_answered_before_it_is_committed() -> Planted:
    async def committed(self: ControllerDriver) -> None:
        return None

    return planted((ControllerDriver, "committed", committed))


def metadata_logs_that_diverge_are_not_cut() -> Planted:
    return planted((Raft, "_divergence", lambda self, request: None))


def metadata_is_acted_on_before_it_has_caught_up() -> Planted:
    """A node that was restarted takes the roles of the past, and sets aside what it did not know
    then."""

    def has_caught_up(self: MetadataLog) -> bool:
        self.is_caught_up = True
        if self._catching_up is not None and not self._catching_up.done():
            self._catching_up.set_result(None)
        return True

    async def caught_up(self: MetadataLog) -> None:
        self._has_caught_up()

    return planted(
        (MetadataLog, "_has_caught_up", has_caught_up), (MetadataLog, "caught_up", caught_up)
    )


# The controller


def any_live_replica_is_elected() -> Planted:
    return planted((_Change, "_may_lead", lambda self, at: self.rules.is_acceptable_leader(at)))


def a_broker_that_crashed_stays_in_sync() -> Planted:
    """A replica may still be elected for records that it lost in a power cut."""
    return planted((brokers, "_end_incarnation", lambda *args, **kwargs: []))


def producer_ids_are_handed_out_twice() -> Planted:
    original = brokers.allocate_producer_ids

    def allocate(state: Any, **kwargs: Any) -> Decision[Any]:
        return Decision((), original(state, **kwargs).reply)

    return planted((brokers, "allocate_producer_ids", allocate))


# Replication


def the_high_watermark_counts_one_replica_too_few() -> Planted:
    def advance(self: LeaderState) -> None:
        if self.is_under_min_isr:
            return
        behind = sorted(self.followers[each].log_end for each in self.isr if each != self.node_id)
        end = min([self.log_end, *behind[1:]])
        self.high_watermark = max(self.high_watermark, end)

    return planted((LeaderState, "_advance", advance))


def acknowledged_before_it_is_replicated() -> Planted:
    def when_replicated(self: Partition, end: int, done: Done) -> None:
        asyncio.get_running_loop().call_soon(done, None)

    return planted((Partition, "when_replicated", when_replicated))


def waits_succeed_when_leadership_is_lost() -> Planted:
    """Nobody knows whether the next leader has what was waited for."""

    def end_waiting(self: Partition, why: str) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(None)

    return planted((Partition, "_fail_waiting", end_waiting))


def min_insync_replicas_is_not_heeded() -> Planted:
    return planted(
        (LeaderState, "is_under_min_isr", property(lambda self: False)),
        (Partition, "check_enough_in_sync", lambda self: None),
    )


def replicas_join_before_they_have_caught_up() -> Planted:
    def may_join(self: LeaderState, replica: int) -> bool:
        follower = self.followers.get(replica)
        return (
            follower is not None
            and replica not in self.isr
            and follower.log_end >= 0
            and self._is_eligible(replica, follower)
        )

    return planted(
        (LeaderState, "may_join", may_join),
        (LeaderState, "_is_about_to_join", lambda self, replica, follower: False),
    )


def followers_cut_to_the_high_watermark() -> Planted:
    """As before KIP-101: a follower's high watermark lags, so that committed records go."""

    def decide_start(self: FollowerState, *, log_end: int, latest_epoch: int) -> Cut | None:
        return Cut(self.high_watermark) if self.high_watermark < log_end else None

    return planted((FollowerState, "decide_start", decide_start))


def logs_that_diverge_are_not_cut() -> Planted:
    return planted((fetch_handler._Fetch, "_divergence", lambda self, partition, wanted: None))


def fetches_are_not_fenced() -> Planted:
    """Followers do not tell their epochs, so that nobody sees where logs part (KIP-320)."""
    original = LeaderFetcher._named

    def named(self: LeaderFetcher) -> Iterator[tuple[bytes, FetchPartition]]:
        for topic_id, asked in original(self):
            asked.current_leader_epoch = asked.last_fetched_epoch = -1
            yield topic_id, asked

    return planted((LeaderFetcher, "_named", named))


def roles_are_taken_before_the_registration() -> Planted:
    """A broker that lost records in a crash leads again as the old metadata says."""
    return planted((Partitions, "wait_for_registration", lambda self, incarnation_id: None))


def consumers_read_what_is_not_committed() -> Planted:
    original = fetch_handler._Fetch._read_partition

    def read_partition(self: Any, partition: Partition, *args: Any) -> int:
        before, self._replica_id = self._replica_id, max(0, self._replica_id)
        check, self_class = fetch_handler._Fetch._check_follower, fetch_handler._Fetch
        try:
            if before < 0:
                self_class._check_follower = lambda *args: None  # type: ignore[method-assign]
            return original(self, partition, *args)
        finally:
            self_class._check_follower = check  # type: ignore[method-assign]
            self._replica_id = before

    return planted((fetch_handler._Fetch, "_read_partition", read_partition))


def followers_do_not_learn_of_producers() -> Planted:
    """A new leader takes a repeated batch for a new one."""
    original = Log._append_stamped

    def append_stamped(self: Log, data: Any, batches: list[_core.Batch], **kwargs: Any) -> Any:
        with patch.object(storage_log, "note_batch", lambda *args: None):
            return original(self, data, batches, **kwargs)

    return planted(
        (Log, "_append_stamped", append_stamped),
        (ProducerStates, "check", lambda *args, **kwargs: None),
    )


def epochs_stay_after_a_cut() -> Planted:
    """Truncation leaves the epochs of what it has cut."""
    return planted(
        (EpochCache, "truncate_from_end", lambda self, offset: None),
        (TruncationJob, "_write_epochs", lambda self: None),
    )


# Coordinators


def coordinators_answer_before_the_commit() -> Planted:
    """A committed offset, or what a member was told, goes with the leader."""
    return planted((CoordinatorDriver, "_is_committed", lambda self: True))


def coordinators_load_up_to_the_high_watermark() -> Planted:
    """The high watermark of a new leader lags behind what its predecessor has acknowledged."""
    original = CoordinatorDriver._replay

    def replay(
        self: CoordinatorDriver[Any],
        machine: Any,
        data: bytes,
        batches: Sequence[_core.Batch],
        from_offset: int,
    ) -> int:
        known = [each for each in batches if each.last_offset < self._partition.high_watermark]
        if not known:
            return 0
        if len(known) < len(batches):
            data = data[: batches[len(known)].position]
        return original(self, machine, data, known, from_offset)

    return planted((CoordinatorDriver, "_replay", replay))


def coordinators_serve_before_they_are_loaded() -> Planted:
    original = CoordinatorDriver.check

    def check(self: CoordinatorDriver[Any]) -> None:
        if self.state is not State.LOADING:
            original(self)

    return planted((CoordinatorDriver, "check", check))


def coordinators_forget_what_followers_had() -> Planted:
    """A coordinator that moves begins empty."""

    async def load(self: CoordinatorDriver[Any]) -> None:
        machine = self._make()
        self._on_loaded(machine)
        self.machine = machine
        self._append(machine.on_loaded(self._clock.monotonic()))
        self.state = State.ACTIVE

    return planted((CoordinatorDriver, "load", load))


def metadata_is_applied_in_part() -> Planted:
    """A broker misses a change of a partition now and then: its image is not that of its log."""
    original = MetadataLog._apply
    count = 0

    def apply(self: MetadataLog, committed: int) -> None:
        nonlocal count
        batch = self._uncommitted[0] if self._uncommitted else None
        if batch is not None and batch.end.offset <= committed and len(batch.records) > 1:
            count += 1
            if count % 7 == 0:
                self._uncommitted[0] = batch._replace(records=batch.records[:-1])
        original(self, committed)

    return planted((MetadataLog, "_apply", apply))


@dataclass(frozen=True, slots=True)
class Wanted:
    """A planted bug and the histories that are to find it."""

    plant: Mutant
    kind: str = "cluster"
    faults: tuple[str, ...] = ()
    seeds: range = range(60)
    is_quick: bool = False  # so quick that every change has to face it


# Those that every change has to face; `make mutants` prints the seed that finds each.
QUICK = (
    a_voter_votes_twice,
    a_broker_that_crashed_stays_in_sync,
    producer_ids_are_handed_out_twice,
    coordinators_forget_what_followers_had,
)

CLUSTER_MUTANTS: dict[str, Wanted] = {
    plant.__name__.replace("_", " "): Wanted(plant, kind, faults, is_quick=plant in QUICK)
    for plant, kind, faults in (
        (votes_are_not_durable, "quorum", ()),
        (a_voter_votes_twice, "quorum", ()),
        (a_shorter_log_is_elected, "quorum", ()),
        (a_minority_commits, "quorum", ()),
        (the_metadata_log_is_not_synced, "quorum", ()),
        (a_voter_fetches_on_before_it_has_synced, "quorum", ()),
        (a_commit_is_waited_for_by_offset_only, "quorum", ()),
        (a_command_is_answered_before_it_is_committed, "quorum", ()),
        (metadata_logs_that_diverge_are_not_cut, "quorum", ()),
        (metadata_is_acted_on_before_it_has_caught_up, "cluster", CRASHES),
        (metadata_is_applied_in_part, "cluster", ("kill",)),
        (any_live_replica_is_elected, "cluster", CRASHES),
        (a_broker_that_crashed_stays_in_sync, "cluster", ("power cut", "stop")),
        (producer_ids_are_handed_out_twice, "cluster", ("kill",)),
        (the_high_watermark_counts_one_replica_too_few, "cluster", CRASHES),
        (acknowledged_before_it_is_replicated, "cluster", CRASHES),
        (waits_succeed_when_leadership_is_lost, "cluster", CUTS),
        (min_insync_replicas_is_not_heeded, "cluster", ("power cut", "isolate")),
        (replicas_join_before_they_have_caught_up, "cluster", CRASHES),
        (followers_cut_to_the_high_watermark, "cluster", CRASHES),
        (logs_that_diverge_are_not_cut, "cluster", (*CRASHES, "isolate")),
        (fetches_are_not_fenced, "cluster", (*CRASHES, "isolate", "pause")),
        (roles_are_taken_before_the_registration, "cluster", ("power cut",)),
        (consumers_read_what_is_not_committed, "cluster", (*CRASHES, "isolate")),
        (followers_do_not_learn_of_producers, "cluster", (*CRASHES, "isolate")),
        (epochs_stay_after_a_cut, "cluster", (*CRASHES, "isolate")),
        (coordinators_answer_before_the_commit, "cluster", CRASHES),
        (coordinators_load_up_to_the_high_watermark, "cluster", ("kill", "stop")),
        (coordinators_serve_before_they_are_loaded, "cluster", ("kill", "slow disk")),
        (coordinators_forget_what_followers_had, "cluster", ("kill", "stop")),
    )
}
