"""Raft as a state machine: elections of the metadata quorum, and what of its log is committed.

Events come in (`tick`, `on_*`), a `Ready` goes out. The machine does no I/O and has no clock. There
is no special case for one voter: a sole voter is a majority of itself and elects itself at the
start.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater.model import NO_NODE, OffsetAndEpoch
from headwater.protocol.records.quorum import LeaderChangeMessage, LeaderChangeMessageVoter
from headwater.quorum.model import (
    BeginEpoch,
    BeginEpochReply,
    ElectionState,
    EndEpoch,
    FetchReply,
    FetchRequest,
    Message,
    ReplicaKey,
    VoteReply,
    VoteRequest,
    VoterSet,
)
from headwater.quorum.progress import Progress, ReplicaStatus

_NEVER = float("inf")
_CHECK_QUORUM_FACTOR = 1.5
# Voters that see at the same time that their leader is gone begin within this time of each other.
_GONE_SECONDS = 0.1


class Role(Enum):
    UNATTACHED = "unattached"  # knows the epoch, not its leader
    PROSPECTIVE = "prospective"  # asks for pre-votes before it starts an election
    CANDIDATE = "candidate"
    LEADER = "leader"
    FOLLOWER = "follower"
    RESIGNED = "resigned"  # led this epoch and gave up


class Timeouts(NamedTuple):
    """Timeouts in seconds, from `controller.quorum.election.timeout.ms` and related settings."""

    election: float = 1.0
    fetch: float = 2.0
    backoff_max: float = 1.0


class Envelope(NamedTuple):
    to: int
    message: Message


@dataclass(slots=True)
class Ready:
    """Instructions for the driver, in this order: make `vote` durable; truncate the log to
    `truncate_to`; append `leader_change` as a control batch of the new epoch; send `messages`. A
    message sent before the vote is on disk could lead to two leaders in one epoch."""

    vote: ElectionState | None = None
    truncate_to: int | None = None
    fetch_snapshot: OffsetAndEpoch | None = None  # then call `on_snapshot_installed`
    leader_change: LeaderChangeMessage | None = None
    messages: list[Envelope] = field(default_factory=list)
    committed: int | None = None  # the high watermark, if it moved


class QuorumDescription(NamedTuple):
    leader_id: int
    epoch: int
    high_watermark: int
    voters: list[ReplicaStatus]
    observers: list[ReplicaStatus]


class Raft:
    """One node's part in the quorum.

    The driver reports the state of its log: `epochs` (where each epoch starts), `log_start` and
    `log_end` at first, then through `on_appended`, `on_flushed`, `on_truncated` and `on_snapshot`.

    A node that is not among the voters is an observer: it follows the log and never campaigns.
    """

    def __init__(
        self,
        me: ReplicaKey,
        voters: VoterSet,
        random: Random,
        *,
        state: ElectionState,
        log_end: int,
        epochs: list[OffsetAndEpoch],
        log_start: int = 0,
        snapshot: OffsetAndEpoch | None = None,
        timeouts: Timeouts | None = None,
    ) -> None:
        self.me = me
        self.voters = voters
        self.epoch = state.epoch
        self.leader_id = state.leader_id
        self.voted = state.voted
        self.role = Role.UNATTACHED
        self.high_watermark = -1
        self.log_start = log_start
        self.log_end = log_end
        self.snapshot = snapshot  # the newest, whose end is not below the log start
        self.progress: Progress | None = None
        self._random = random
        self._timeouts = timeouts or Timeouts()
        self._epochs = list(epochs)
        self._deadline = _NEVER
        self._granted: set[int] = set()
        self._rejected: set[int] = set()
        self._has_fetched = False  # from the leader of this epoch, so it is alive
        self._next_begin = _NEVER

    # Time

    def start(self, now: float) -> Ready:
        """Starts the machine. A known leader is followed. A former leader resigns: the others may
        have elected a new one meanwhile."""
        ready = Ready()
        if self._is_sole_voter():
            self._campaign(ready, now)
        elif self.leader_id == self.me.id:
            self._set_role(Role.RESIGNED, now)
        elif self.leader_id != NO_NODE:
            self._set_role(Role.FOLLOWER, now)
        else:
            self._set_role(Role.UNATTACHED, now)
        return ready

    def next_deadline(self) -> float:
        return min(self._deadline, self._next_begin)

    def tick(self, now: float) -> Ready:
        ready = Ready()
        match self.role:
            case Role.LEADER:
                self._tick_leader(ready, now)
            case _ if now < self._deadline:
                pass
            case _ if not self.voters.has(self.me):
                self._set_role(Role.UNATTACHED, now)
            case Role.PROSPECTIVE if self._knows_leader():
                self._set_role(Role.FOLLOWER, now)
            case _:
                self._become_prospective(ready, now)
        return ready

    def _tick_leader(self, ready: Ready, now: float) -> None:
        assert self.progress is not None
        if now >= self._deadline:
            self._resign(ready, now)
            return
        if now >= self._next_begin:
            for key in self.progress.unacknowledged():
                ready.messages.append(Envelope(key.id, BeginEpoch(self.epoch, self.me.id)))
            self._next_begin = now + self._timeouts.fetch / 2

    # Elections

    def on_vote(self, request: VoteRequest, now: float) -> Ready:
        ready = Ready()
        if request.epoch > self.epoch:
            # Also for a pre-vote, which asks in the epoch that the voter is in: it has voted there
            # already, so it can never follow the leader of an earlier one.
            self._enter_epoch(ready, request.epoch, now)
        granted = self._may_grant(request)
        if granted and not request.pre_vote:
            self.voted = request.candidate
            self._save(ready)
            self._set_role(Role.UNATTACHED, now)
        reply = VoteReply(self.epoch, self.leader_id, granted, request.pre_vote)
        ready.messages.append(Envelope(request.candidate.id, reply))
        return ready

    def _may_grant(self, request: VoteRequest) -> bool:
        if request.epoch < self.epoch or not self._is_up_to_date(request.last):
            return False
        if request.pre_vote:
            # A leader, or a follower that hears from one, needs no election (KIP-996).
            return self.role is not Role.LEADER and not (
                self.role is Role.FOLLOWER and self._has_fetched
            )
        if self.leader_id != NO_NODE or self.role in (Role.CANDIDATE, Role.LEADER):
            return False
        # Static voters have no directory ids: `quorum-state` then keeps only the node id of a vote.
        return self.voted is None or self.voted.matches(request.candidate)

    def _is_up_to_date(self, last: OffsetAndEpoch) -> bool:
        mine = self.last_epoch
        return last.epoch > mine or (last.epoch == mine and last.offset >= self.log_end)

    def on_vote_reply(self, sender: int, reply: VoteReply, now: float) -> Ready:
        ready = Ready()
        if self._is_news(ready, reply.epoch, reply.leader_id, now):
            return ready
        expected = Role.PROSPECTIVE if reply.pre_vote else Role.CANDIDATE
        if reply.epoch != self.epoch and not reply.pre_vote:
            return ready
        if self.role is not expected or sender not in self.voters.voters:
            return ready
        (self._granted if reply.granted else self._rejected).add(sender)
        if len(self._granted) >= self.voters.majority:
            if self.role is Role.PROSPECTIVE:
                self._campaign(ready, now)
            else:
                self._become_leader(ready, now)
        elif len(self._rejected) > len(self.voters.voters) - self.voters.majority:
            if self.role is Role.PROSPECTIVE and self._knows_leader():
                # The others hear from the leader: fetch from it again. It has no reason to remind a
                # voter that has acknowledged it, so nobody else would bring this one back.
                self._set_role(Role.FOLLOWER, now)
                return ready
            # This round is lost. Retry after a random pause, so that two candidates that lost to
            # each other do not collide again.
            self._deadline = min(
                self._deadline, now + self._random.uniform(0, self._timeouts.backoff_max)
            )
        return ready

    def _become_prospective(self, ready: Ready, now: float) -> None:
        self._set_role(Role.PROSPECTIVE, now)
        self._granted = {self.me.id}
        self._rejected = set()
        if len(self._granted) >= self.voters.majority:
            self._campaign(ready, now)
            return
        self._ask_votes(ready, pre_vote=True)

    def _campaign(self, ready: Ready, now: float) -> None:
        self.epoch += 1
        self.leader_id = NO_NODE
        self.voted = self.me
        self._save(ready)
        self._set_role(Role.CANDIDATE, now)
        self._granted = {self.me.id}
        self._rejected = set()
        if len(self._granted) >= self.voters.majority:
            self._become_leader(ready, now)
            return
        self._ask_votes(ready, pre_vote=False)

    def _ask_votes(self, ready: Ready, *, pre_vote: bool) -> None:
        last = OffsetAndEpoch(self.log_end, self.last_epoch)
        for key in self.voters.others(self.me.id):
            request = VoteRequest(self.epoch, self.me, last, pre_vote)
            ready.messages.append(Envelope(key.id, request))

    def _become_leader(self, ready: Ready, now: float) -> None:
        granting = sorted(self._granted)
        self.leader_id = self.me.id
        self._save(ready)
        self.role = Role.LEADER
        self.progress = Progress(self.me, self.voters, epoch_start=self.log_end, began=now)
        self._deadline = self._quorum_deadline()
        ready.leader_change = LeaderChangeMessage(
            version=0,
            leader_id=self.me.id,
            voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in self.voters.voters],
            granting_voters=[LeaderChangeMessageVoter(voter_id=voter) for voter in granting],
        )
        for key in self.voters.others(self.me.id):
            ready.messages.append(Envelope(key.id, BeginEpoch(self.epoch, self.me.id)))
        if not self._is_sole_voter():
            self._next_begin = now + self._timeouts.fetch / 2

    # Epochs

    def on_begin_epoch(self, message: BeginEpoch, now: float) -> Ready:
        ready = Ready()
        if message.epoch >= self.epoch:
            self._follow(ready, message.epoch, message.leader_id, now)
        reply = BeginEpochReply(self.epoch, self.leader_id)
        ready.messages.append(Envelope(message.leader_id, reply))
        return ready

    def on_begin_epoch_reply(self, sender: int, reply: BeginEpochReply, now: float) -> Ready:
        ready = Ready()
        if not self._is_news(ready, reply.epoch, reply.leader_id, now) and self.progress:
            self.progress.on_acknowledged(sender)
        return ready

    def on_end_epoch(self, message: EndEpoch, now: float) -> Ready:
        """Handles a resigning leader: its first successor starts an election at once, the others a
        little later."""
        ready = Ready()
        if message.epoch < self.epoch or not self.voters.has(self.me):
            return ready
        if message.epoch > self.epoch:
            self._enter_epoch(ready, message.epoch, now)
        if self.role is not Role.FOLLOWER and self.role is not Role.UNATTACHED:
            return ready
        self._has_fetched = False
        if message.successors[:1] == (self.me.id,):
            self._become_prospective(ready, now)
        else:
            place = message.successors.index(self.me.id) if self.me.id in message.successors else 1
            pause = min(self._timeouts.backoff_max, self._timeouts.election * place / 4)
            self._deadline = now + self._random.uniform(pause / 2, pause)
        return ready

    def on_leader_gone(self, now: float) -> Ready:
        """Handles a leader whose node refuses connections: nothing listens there any more. A voter
        asks for pre-votes soon instead of waiting for its fetch timeout. A wrong guess does no
        harm: voters that still hear from the leader do not grant any. An observer asks others who
        leads now."""
        ready = Ready()
        if self.role is not Role.FOLLOWER:
            return ready
        if not self.voters.has(self.me):
            self._set_role(Role.UNATTACHED, now)
            return ready
        self._has_fetched = False
        pause = self._random.uniform(0.0, min(_GONE_SECONDS, self._timeouts.election / 4))
        self._deadline = min(self._deadline, now + pause)
        return ready

    def resign(self, now: float) -> Ready:
        ready = Ready()
        if self.role is Role.LEADER:
            self._resign(ready, now)
        return ready

    def _resign(self, ready: Ready, now: float) -> None:
        assert self.progress is not None
        farewell = EndEpoch(self.epoch, self.me.id, self.progress.successors())
        for key in self.voters.others(self.me.id):
            ready.messages.append(Envelope(key.id, farewell))
        self._set_role(Role.RESIGNED, now)

    def _enter_epoch(self, ready: Ready, epoch: int, now: float) -> None:
        self.epoch = epoch
        self.leader_id = NO_NODE
        self.voted = None
        self._save(ready)
        self._set_role(Role.UNATTACHED, now)

    def _follow(self, ready: Ready, epoch: int, leader_id: int, now: float) -> None:
        if epoch == self.epoch and self.leader_id == leader_id:
            if self.role not in (Role.LEADER, Role.RESIGNED, Role.FOLLOWER):
                self._set_role(Role.FOLLOWER, now)
            return
        assert epoch > self.epoch or self.leader_id == NO_NODE, (
            f"epoch {epoch} has leaders {self.leader_id} and {leader_id}"
        )
        self.epoch = epoch
        self.leader_id = leader_id
        self.voted = None
        self._save(ready)
        self._set_role(Role.FOLLOWER, now)

    def _is_news(self, ready: Ready, epoch: int, leader_id: int, now: float) -> bool:
        """Adopts a later epoch, or the leader of this one, from a peer; returns whether it was
        new."""
        if epoch < self.epoch or leader_id == self.me.id:
            return False
        if leader_id != NO_NODE and (epoch > self.epoch or self.leader_id == NO_NODE):
            self._follow(ready, epoch, leader_id, now)
            return True
        if epoch > self.epoch:
            self._enter_epoch(ready, epoch, now)
            return True
        return False

    # Fetching

    def on_fetch(self, request: FetchRequest, now: float) -> Ready:
        ready = Ready()
        refusal = self._fetch_refusal(request)
        if refusal is not ErrorCode.NONE:
            answer = FetchReply(self.epoch, self.leader_id, error=refusal)
            ready.messages.append(Envelope(request.replica.id, answer))
            return ready
        assert self.progress is not None
        answer = self._fetch_answer(request)
        if answer.records_from is not None:
            moved = self.progress.on_fetch(
                request.replica, offset=request.offset, log_end=self.log_end, now=now
            )
            self._deadline = self._quorum_deadline()
            if moved:
                self.high_watermark = self.progress.high_watermark
                ready.committed = self.high_watermark
                answer = answer._replace(high_watermark=self.high_watermark)
        ready.messages.append(Envelope(request.replica.id, answer))
        return ready

    def answer_fetch(self, request: FetchRequest) -> FetchReply:
        """Returns the answer to a fetch that has waited. It says nothing new about the replica."""
        refusal = self._fetch_refusal(request)
        if refusal is not ErrorCode.NONE:
            return FetchReply(self.epoch, self.leader_id, error=refusal)
        return self._fetch_answer(request)

    def _fetch_answer(self, request: FetchRequest) -> FetchReply:
        answer = FetchReply(self.epoch, self.me.id, self.high_watermark)
        if request.offset < self.log_start or self._is_before_epochs(request):
            assert self.snapshot is not None, f"the log starts at {self.log_start}, no snapshot"
            return answer._replace(snapshot=self.snapshot)
        diverging = self._divergence(request)
        if diverging is None:
            return answer._replace(records_from=request.offset)
        return answer._replace(diverging=diverging)

    def _is_before_epochs(self, request: FetchRequest) -> bool:
        """Returns whether the log has nothing of the replica's last epoch or an earlier one, so
        that only a snapshot can tell where it diverges."""
        return bool(
            self.log_start
            and self._epochs
            and request.last_epoch < self._epochs[0].epoch
            and self.snapshot is not None
            and (request.offset, request.last_epoch) != tuple(self.snapshot)
        )

    def _fetch_refusal(self, request: FetchRequest) -> ErrorCode:
        if request.epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > self.epoch:
            # A fetch proves nothing about an election: anybody may send one. Only a vote or the
            # new leader itself ends a leadership.
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if self.role is Role.LEADER else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _divergence(self, request: FetchRequest) -> OffsetAndEpoch | None:
        """Returns where the follower's log diverges from ours, or None if it does not."""
        if request.offset == 0:
            return None
        end = self.epoch_end(request.last_epoch)
        if end.epoch == request.last_epoch and request.offset <= end.offset:
            return None
        return end

    def fetch_request(self) -> FetchRequest | None:
        """Returns the next request, or None while this node does not fetch. A follower asks its
        leader. An unattached node may ask any other: the answer tells who leads."""
        if self.role is not Role.FOLLOWER and self.role is not Role.UNATTACHED:
            return None
        return FetchRequest(self.me, self.epoch, self.log_end, self.last_epoch)

    def on_fetch_reply(self, request: FetchRequest, reply: FetchReply, now: float) -> Ready:
        """Handles a fetch response. The driver appends and flushes its records, then calls
        `on_appended`. A response to anything but the current request is outdated and must not
        truncate the log."""
        ready = Ready()
        if self._is_news(ready, reply.epoch, reply.leader_id, now):
            return ready
        if request != self.fetch_request() or reply.epoch != self.epoch:
            return ready
        if self.role is Role.UNATTACHED:
            if self._knows_leader() and reply.leader_id == self.leader_id:
                self._set_role(Role.FOLLOWER, now)  # an observer that lost sight of it
            return ready
        if reply.records_from is None and reply.diverging is None and reply.snapshot is None:
            # The peer is in this epoch but no longer leads it: no sign of a live leader.
            return ready
        self._has_fetched = True
        self._deadline = now + self._timeouts.fetch
        if reply.snapshot is not None:
            ready.fetch_snapshot = reply.snapshot
        elif reply.diverging is not None:
            mine = self.epoch_end(reply.diverging.epoch)
            ready.truncate_to = min(reply.diverging.offset, mine.offset)
            assert ready.truncate_to >= self.high_watermark, (
                f"truncation to {ready.truncate_to}, below the high watermark {self.high_watermark}"
            )
        return ready

    def on_snapshot_progress(self, now: float) -> None:
        """Notes that the leader has sent a part of a snapshot: it is alive."""
        if self.role is Role.FOLLOWER:
            self._has_fetched = True
            self._deadline = now + self._timeouts.fetch

    def on_high_watermark(self, high_watermark: int) -> Ready:
        """Advances a follower's high watermark to the leader's, as far as its log reaches."""
        ready = Ready()
        reached = min(high_watermark, self.log_end)
        if reached > self.high_watermark:
            self.high_watermark = ready.committed = reached
        return ready

    # The log

    @property
    def last_epoch(self) -> int:
        return self._epochs[-1].epoch if self._epochs else 0

    def epoch_end(self, epoch: int) -> OffsetAndEpoch:
        """Returns the largest epoch not above this one in our log, and the offset where it ends."""
        position = bisect_right(self._epochs, epoch, key=lambda entry: entry.epoch)
        if position == 0:
            return OffsetAndEpoch(self._epochs[0].offset if self._epochs else self.log_end, 0)
        after = self._epochs[position : position + 1]
        end = after[0].offset if after else self.log_end
        return OffsetAndEpoch(end, self._epochs[position - 1].epoch)

    def on_appended(self, *, log_end: int, epoch: int) -> None:
        assert log_end > self.log_end
        if not self._epochs or epoch > self.last_epoch:
            self._epochs.append(OffsetAndEpoch(self.log_end, epoch))
        self.log_end = log_end

    def on_flushed(self, offset: int, *, epoch: int) -> Ready:
        """Notes that the log is durable up to `offset`, by a sync that began in `epoch`.

        A sync of an earlier epoch counts for nothing: the log may have been truncated and written
        again meanwhile. The first record of each leadership makes sure that another one follows.
        """
        ready = Ready()
        if self.role is Role.LEADER and epoch == self.epoch:
            assert self.progress is not None
            if self.progress.on_flushed(offset):
                self.high_watermark = ready.committed = self.progress.high_watermark
        return ready

    def on_truncated(self, log_end: int) -> None:
        self.log_end = log_end
        while self._epochs and self._epochs[-1].offset >= log_end:
            self._epochs.pop()

    def on_snapshot(self, *, snapshot: OffsetAndEpoch, log_start: int) -> None:
        """Notes a newer snapshot, and that the log may have been trimmed below it."""
        assert snapshot.offset >= log_start, f"log start {log_start} above snapshot {snapshot}"
        self.snapshot = snapshot
        self.log_start = log_start
        kept = bisect_right(self._epochs, log_start, key=lambda entry: entry.offset)
        if kept > 1:  # the epoch in which the log starts stays
            del self._epochs[: kept - 1]

    def on_snapshot_installed(self, snapshot: OffsetAndEpoch) -> None:
        """Notes that a snapshot from the leader has replaced the log."""
        self.snapshot = snapshot
        self.log_start = self.log_end = snapshot.offset
        self._epochs = [OffsetAndEpoch(snapshot.offset, snapshot.epoch)]
        self.high_watermark = max(self.high_watermark, snapshot.offset)

    def on_voters(self, voters: VoterSet, now: float) -> Ready:
        """Takes the voters that the log lists from here on, committed or not (KIP-853)."""
        ready = Ready()
        was_sole_voter = self._is_sole_voter()
        self.voters = voters
        if self.progress is not None:
            if was_sole_voter:
                self.progress.quorum_seen = now  # it was the majority until now
            if self.progress.on_voters(voters):
                self.high_watermark = ready.committed = self.progress.high_watermark
            self._deadline = self._quorum_deadline()
            if self._next_begin == _NEVER and not self._is_sole_voter():
                self._next_begin = now
        elif not voters.has(self.me) and self.role in (Role.PROSPECTIVE, Role.CANDIDATE):
            self._set_role(Role.UNATTACHED, now)
        return ready

    # Queries

    def describe(self, now: float) -> QuorumDescription:
        """Describes the quorum for DescribeQuorum; only the leader knows the other replicas."""
        voters: list[ReplicaStatus] = []
        observers: list[ReplicaStatus] = []
        if self.progress is not None:
            voters, observers = self.progress.describe(log_end=self.log_end, now=now)
        return QuorumDescription(self.leader_id, self.epoch, self.high_watermark, voters, observers)

    # Helpers

    def _knows_leader(self) -> bool:
        return self.leader_id not in (NO_NODE, self.me.id)

    def _is_sole_voter(self) -> bool:
        return len(self.voters.voters) == 1 and self.voters.has(self.me)

    def _quorum_deadline(self) -> float:
        """Returns when a leader that hears from no majority must resign: it may be partitioned."""
        assert self.progress is not None
        if self._is_sole_voter():
            return _NEVER
        return self.progress.quorum_seen + self._timeouts.fetch * _CHECK_QUORUM_FACTOR

    def _set_role(self, role: Role, now: float) -> None:
        self.role = role
        self._next_begin = _NEVER
        self._has_fetched = False
        if role is not Role.LEADER:
            self.progress = None
        if role is Role.FOLLOWER:
            self._deadline = now + self._timeouts.fetch
        else:
            self._deadline = now + self._timeouts.election * self._random.uniform(1.0, 2.0)

    def _save(self, ready: Ready) -> None:
        ready.vote = ElectionState(self.epoch, self.leader_id, self.voted)
