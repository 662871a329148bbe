"""A member of a classic group, as a machine: join, sync, heartbeat, leave; no I/O, no clock.

Two sides meet here. `poll` asks `next_step` and does it, for callbacks belong to the user's turn.
The answers of the coordinator come in through `on_*` at any time and change what the next step is.
With eager assignors everything is given back before joining; if all are cooperative, members keep
their partitions while they join, and give back only what the leader has taken from them; then they
join once more, so that it can be given to others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum

from headwater.client.consumer.membership.assignors.model import (
    Assignor,
    LastAssignment,
    Topics,
)
from headwater.client.consumer.membership.settings import MembershipSettings
from headwater.client.consumer.membership.steps import (
    DONE,
    JOIN,
    WAIT,
    Assign,
    Lose,
    Revoke,
    Step,
    in_order,
)
from headwater.client.errors import (
    ClientError,
    CommitFailed,
    FatalError,
    RebalanceInProgress,
    error_for,
)
from headwater.client.requests.offset_commit import CommitIdentity
from headwater.errors import ErrorCode
from headwater.model import NO_EPOCH, TopicPartition
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    read_assignment,
)
from headwater.protocol.messages.join_group import JoinGroupResponse
from headwater.protocol.messages.sync_group import SyncGroupResponse

_COORDINATOR_GONE = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
_NO_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


class Phase(Enum):
    OUTSIDE = "outside the group"
    JOINING = "JoinGroup is under way"
    SYNCING = "joined; the leader divides"
    SYNCED = "an assignment waits to be taken over"
    STABLE = "stable"


class Next(Enum):
    """What the driver of a join does after an answer."""

    SYNC = "send SyncGroup"
    AGAIN = "join again at once"
    LATER = "try again after a while"
    ELSEWHERE = "find the coordinator, then try again"
    STOP = "it is the turn of poll"


class ClassicMember:
    def __init__(self, settings: MembershipSettings, assignors: tuple[Assignor, ...]) -> None:
        self.settings = settings
        self.assignors = assignors
        self.cooperative = all(assignor.cooperative for assignor in assignors)
        self.phase = Phase.OUTSIDE
        self.member_id = ""
        self.generation = NO_EPOCH
        self.protocol_name: str | None = None
        self.owned: frozenset[TopicPartition] = frozenset()
        self.last: LastAssignment | None = None
        self.topics: frozenset[str] = frozenset()
        self.pattern: re.Pattern[str] | None = None
        self.rejoin_reason: str | None = None
        self.failure: Exception | None = None
        self.fenced = False  # for good: another consumer has our instance id
        self.leads = False
        self._lost = False
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._watched: Topics | None = None
        self._polled = 0.0
        self._heartbeat_sent = 0.0
        self._heartbeat_heard = 0.0
        self._heartbeat_failures = 0

    # What poll asks and does.

    @property
    def needs_poll(self) -> bool:
        if self.failure is not None or (self._lost and self.owned):
            return True
        if self.phase is Phase.SYNCED:
            return True
        due = self.rejoin_reason is not None and self.subscribed
        return due and self.phase in (Phase.OUTSIDE, Phase.STABLE)

    @property
    def subscribed(self) -> bool:
        return bool(self.topics) or self.pattern is not None

    def next_step(self) -> Step:
        if self._lost and self.owned:
            return Lose(in_order(self.owned))
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            return WAIT
        if self.phase is Phase.SYNCED:
            if gone := self.owned - self._assigned:
                return Revoke(in_order(gone))
            return Assign(in_order(self._assigned - self.owned))
        if self.rejoin_reason is None or not self.subscribed:
            return DONE
        if gone := self._to_revoke_before_joining():
            return Revoke(in_order(gone))
        return JOIN

    def _to_revoke_before_joining(self) -> frozenset[TopicPartition]:
        if not self.cooperative:
            return self.owned
        return frozenset(each for each in self.owned if not self._wants(each.topic))

    def given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """`lost` or `revoked` was called for these."""
        self.owned = self.owned.difference(partitions)
        if not self.owned:
            self._lost = False
        if self.phase is Phase.SYNCED:
            self.request_rejoin("need to revoke partitions and re-join")

    def take_over(self) -> None:
        """What was assigned is ours from here on."""
        assert self.phase is Phase.SYNCED, self.phase
        self.phase = Phase.STABLE
        self.owned = self._assigned
        self.last = LastAssignment(self._assigned, self.generation)

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """What the user wants; with a pattern, `topics` are those that match now."""
        self.topics, self.pattern = topics, pattern
        if self.phase is Phase.OUTSIDE:
            self.rejoin_reason = self.rejoin_reason or ""
        elif topics != self._joined_topics:
            self.request_rejoin("subscription has changed")

    def _wants(self, topic: str) -> bool:
        if topic in self.topics:
            return True
        return self.pattern is not None and self.pattern.fullmatch(topic) is not None

    def request_rejoin(self, reason: str) -> None:
        self.rejoin_reason = reason

    def take_failure(self) -> Exception | None:
        """The error that the user has not heard yet. To be fenced is said every time."""
        failure = self.failure
        if not self.fenced:
            self.failure = None
        return failure

    # Joining.

    def on_join_sent(self) -> None:
        self.phase = Phase.JOINING
        self._joined_topics = self.topics
        self.leads = False
        self._watched = None

    def on_join_failed(self) -> None:
        """No answer came, and nobody asks any more: the next poll begins again."""
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            self.phase = Phase.OUTSIDE
            self.rejoin_reason = self.rejoin_reason or ""

    def on_joined(self, response: JoinGroupResponse, now: float) -> Next:
        if self.phase is not Phase.JOINING:
            return Next.STOP  # we left meanwhile
        code = response.error_code
        if code == ErrorCode.NONE:
            return self._on_generation(response, now)
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.request_rejoin(f"need to re-join with the given member-id: {self.member_id}")
            return Next.AGAIN
        return self._on_refusal(code, "JoinGroup")

    def _on_generation(self, response: JoinGroupResponse, now: float) -> Next:
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            return self._fail(
                FatalError(
                    f"group {self.settings.group_id!r} is for {response.protocol_type!r}, not for "
                    "consumers; use another group_id",
                    code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                )
            )
        self.member_id = response.member_id
        self.generation = response.generation_id
        self.protocol_name = response.protocol_name
        self.leads = response.leader == response.member_id
        self.phase = Phase.SYNCING
        self.rejoin_reason = None  # what becomes one from here on is for the next generation
        self._heartbeat_sent = self._heartbeat_heard = now
        self._heartbeat_failures = 0
        return Next.SYNC

    def on_synced(self, response: SyncGroupResponse, generation: int) -> Next:
        if self.phase is not Phase.SYNCING or generation != self.generation:
            return Next.STOP  # a heartbeat was told that we are no member, or we left
        code = response.error_code
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            self.phase = Phase.JOINING
            self.request_rejoin("group is already rebalancing")
            return Next.AGAIN
        if code != ErrorCode.NONE:
            return self._on_refusal(code, "SyncGroup")
        try:
            assigned = _assigned(response.assignment) if response.assignment else frozenset()
        except DecodeError as error:
            return self._fail(
                FatalError(f"group {self.settings.group_id!r}: unreadable assignment: {error}")
            )
        return self._on_assignment(assigned)

    def _on_assignment(self, assigned: frozenset[TopicPartition]) -> Next:
        topics = {each.topic for each in assigned}
        if unwanted := sorted(topic for topic in topics if not self._wants(topic)):
            # The subscription has changed since we joined; nothing of this is taken over.
            self.phase = Phase.STABLE
            self.request_rejoin(f"received assignment has topics not subscribed to: {unwanted[:3]}")
            return Next.STOP
        self._assigned = assigned
        if self.pattern is not None:
            # The leader may have seen a topic before we did; its word is taken.
            self.topics |= topics
            self._joined_topics |= topics
        self.phase = Phase.SYNCED
        if self.topics != self._joined_topics:
            self.request_rejoin("subscription has changed")
        return Next.STOP

    def _on_refusal(self, code: int, request: str) -> Next:
        if code in _COORDINATOR_GONE:
            return Next.ELSEWHERE
        if code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REBALANCE_IN_PROGRESS):
            return Next.LATER
        if code in _NO_MEMBER:
            self._reset(code, f"rebalance failed: {request} said {ErrorCode(code).name}")
            # If nothing was owned there is nothing to call back, and no reason to wait for poll.
            if self._lost and self.owned:
                return Next.STOP
            self.phase = Phase.JOINING
            return Next.AGAIN
        if code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
            return Next.STOP
        return self._fail(error_for(code, f"group {self.settings.group_id!r}", _advice(code, self)))

    def _fail(self, error: ClientError) -> Next:
        self.failure = error
        self.phase = Phase.OUTSIDE
        self.rejoin_reason = self.rejoin_reason or ""
        return Next.STOP

    def _fence(self) -> None:
        self._reset(ErrorCode.FENCED_INSTANCE_ID, "fenced")
        self.fenced = True
        self.failure = error_for(
            ErrorCode.FENCED_INSTANCE_ID,
            f"group {self.settings.group_id!r}, group_instance_id {self.settings.instance_id!r}",
        )

    def _reset(self, code: int, reason: str) -> None:
        """We are no member any more; what we own is not ours. After ILLEGAL_GENERATION the member
        id is still good, and keeping it saves the group a ghost that must time out."""
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = NO_EPOCH
        self.protocol_name = None
        self.phase = Phase.OUTSIDE
        self.leads = False
        self._watched = None
        self._lost = bool(self.owned)
        self.request_rejoin(reason)

    # Leading: see `leading.py` for how partitions are divided.

    def watch(self, topics: Topics) -> None:
        """As leader: a change of these is a reason to divide again."""
        self._watched = dict(topics)

    def on_topics(self, topics: Topics) -> None:
        """How the topics that are watched look now."""
        if self._watched is not None and self._watched != dict(topics):
            self._watched = dict(topics)
            self.request_rejoin("cached metadata has changed")

    # Staying.

    @property
    def keeps_alive(self) -> bool:
        """Whether heartbeats are sent. While JoinGroup waits on the coordinator, none are."""
        return self.phase in (Phase.SYNCING, Phase.SYNCED, Phase.STABLE)

    def polled(self, now: float) -> None:
        self._polled = now

    @property
    def poll_deadline(self) -> float:
        return self._polled + self.settings.max_poll_interval_ms / 1000

    def heartbeat_at(self, backoff: float) -> float:
        """When the next one is due; `backoff` is how long to wait after failures, if any."""
        wait = backoff if self._heartbeat_failures else self.settings.heartbeat_interval_ms / 1000
        return self._heartbeat_sent + wait

    @property
    def heartbeat_failures(self) -> int:
        return self._heartbeat_failures

    @property
    def session_deadline(self) -> float:
        return self._heartbeat_heard + self.settings.session_timeout_ms / 1000

    def on_heartbeat_sent(self, now: float) -> None:
        self._heartbeat_sent = now

    def on_heartbeat_failed(self, now: float) -> None:
        self._heartbeat_sent = now
        self._heartbeat_failures += 1

    def on_heartbeat(self, code: int, sent: tuple[str, int], now: float) -> Next:
        """The answer to a heartbeat with that member id and generation. STOP: all is well, or it is
        poll's turn; ELSEWHERE: the coordinator is to be found again."""
        if sent != (self.member_id, self.generation):
            return Next.STOP
        if code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._heartbeat_heard = now
            self._heartbeat_failures = 0
            if code and self.phase in (Phase.STABLE, Phase.SYNCED):
                self.request_rejoin("group is already rebalancing")
        elif code in _COORDINATOR_GONE:
            self._heartbeat_failures += 1
            return Next.ELSEWHERE
        elif code in _NO_MEMBER:
            self._reset(code, f"heartbeat failed: {ErrorCode(code).name}")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence()
        elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._heartbeat_failures += 1
        else:
            self._heartbeat_failures += 1
            self.failure = error_for(code, f"group {self.settings.group_id!r}")
        return Next.STOP

    @property
    def identity(self) -> CommitIdentity:
        if self.fenced and self.failure is not None:
            raise self.failure.with_traceback(None)
        # Who keeps partitions while it joins can commit them for as long as the others join, too:
        # the generation is that of before.
        keeps = self.phase is Phase.JOINING and self.owned and not self._lost
        if self.phase in (Phase.JOINING, Phase.SYNCING) and not keeps:
            raise RebalanceInProgress(
                f"group {self.settings.group_id!r} is being rebalanced; poll, then commit again"
            )
        if self.phase is Phase.OUTSIDE or self._lost:
            raise CommitFailed(
                f"this consumer is no member of group {self.settings.group_id!r} now: its "
                "partitions may belong to others; poll, which joins again. If it took longer "
                f"than max_poll_interval_ms={self.settings.max_poll_interval_ms} between polls, "
                "raise it or poll fewer records"
            )
        return CommitIdentity(
            self.settings.group_id, self.member_id, self.generation, self.settings.instance_id
        )

    def on_commit_refused(self, code: int, identity: CommitIdentity) -> None:
        if (identity.member_id, identity.generation_or_epoch) != (self.member_id, self.generation):
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase in (Phase.STABLE, Phase.SYNCED):
                self.request_rejoin("offset commit failed since group is already rebalancing")
        elif code in _NO_MEMBER:
            if self.phase is not Phase.JOINING:  # otherwise the join that is under way will tell
                self._reset(code, f"offset commit failed: {ErrorCode(code).name}")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence()

    # Leaving.

    def on_left(self, *, reason: str) -> None:
        """We have left, or leave now; whatever is still owned is lost."""
        self._reset(ErrorCode.UNKNOWN_MEMBER_ID, reason)


def _advice(code: int, member: ClassicMember) -> str | None:
    match code:
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            offered = ", ".join(assignor.name for assignor in member.assignors)
            return (
                f"its members share no assignor with partition_assignment_strategy={offered}, or "
                "it is no group of consumers"
            )
        case ErrorCode.INVALID_SESSION_TIMEOUT:
            return (
                f"session_timeout_ms={member.settings.session_timeout_ms} is outside of what the "
                "broker allows (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            return "it has as many members as the broker allows (group.max.size)"
        case _:
            return None


def _assigned(assignment: bytes) -> frozenset[TopicPartition]:
    return frozenset(assigned_partitions(read_assignment(assignment)))
