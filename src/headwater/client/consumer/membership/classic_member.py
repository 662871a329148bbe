"""A member of a classic group as a machine: join, sync, heartbeat, leave; no I/O, no clock.

`poll` asks for `next_step` and carries it out, since callbacks must run inside the user's poll. The
coordinator's responses arrive through `on_*` at any time and change the next step. With an eager
assignor, a member gives up all partitions before it joins. If all assignors are cooperative,
members keep their partitions while they join, and give up only what the leader has taken from them;
then they join once more, so that it can be assigned to others.
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
from headwater.client.consumer.membership.member import (
    DONE,
    JOIN,
    WAIT,
    Assign,
    Lose,
    MembershipSettings,
    Revoke,
    Step,
)
from headwater.client.errors import (
    ClientError,
    CommitFailed,
    FatalError,
    RebalanceInProgress,
    error_for,
)
from headwater.client.requests.offset_commit import GroupMetadata
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
    OUTSIDE = "not a member"
    JOINING = "JoinGroup is in flight"
    SYNCING = "joined; the leader divides the partitions"
    SYNCED = "has an assignment that was not taken over"
    STABLE = "stable"


class Next(Enum):
    """The action that follows a response to JoinGroup, SyncGroup or Heartbeat."""

    SYNC = "send SyncGroup"
    AGAIN = "join again at once"
    LATER = "back off, then retry"
    ELSEWHERE = "find the coordinator, then retry"
    STOP = "nothing: poll continues"


class ClassicMember:
    """One consumer's place in a classic group."""

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
        self.fenced = False  # for good: another consumer has this instance id
        self.leads = False
        self._lost = False
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._joined_topics: frozenset[str] = frozenset()
        self._watched: Topics | None = None
        self._polled = 0.0
        self._heartbeat_sent = 0.0
        self._heartbeat_heard = 0.0
        self._heartbeat_failures = 0

    # Poll

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
            return Lose(sorted(self.owned))
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            return WAIT
        if self.phase is Phase.SYNCED:
            if gone := self.owned - self._assigned:
                return Revoke(sorted(gone))
            return Assign(sorted(self._assigned - self.owned))
        if self.rejoin_reason is None or not self.subscribed:
            return DONE
        if gone := self._to_revoke_before_joining():
            return Revoke(sorted(gone))
        return JOIN

    def _to_revoke_before_joining(self) -> frozenset[TopicPartition]:
        if not self.cooperative:
            return self.owned
        return frozenset(each for each in self.owned if not self._wants(each.topic))

    def on_given_up(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes partitions for which `lost` or `revoked` was called."""
        self.owned = self.owned.difference(partitions)
        if not self.owned:
            self._lost = False
        if self.phase is Phase.SYNCED:
            self.request_rejoin("need to revoke partitions and re-join")

    def take_over(self) -> None:
        """Makes the assigned partitions the owned ones."""
        assert self.phase is Phase.SYNCED, self.phase
        self.phase = Phase.STABLE
        self.owned = self._assigned
        self.last = LastAssignment(self._assigned, self.generation)

    def subscribe(self, topics: frozenset[str], pattern: re.Pattern[str] | None) -> None:
        """Sets the subscription; with a pattern, `topics` are those that match now."""
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
        """Returns the error to raise, once; that of a fenced member every time."""
        failure = self.failure
        if not self.fenced:
            self.failure = None
        return failure

    # Joining

    def on_join_sent(self) -> None:
        self.phase = Phase.JOINING
        self._joined_topics = self.topics
        self.leads = False
        self._watched = None

    def on_join_failed(self) -> None:
        """Ends a join that got no response; the next poll starts another."""
        if self.phase in (Phase.JOINING, Phase.SYNCING):
            self.phase = Phase.OUTSIDE
            self.rejoin_reason = self.rejoin_reason or ""

    def on_joined(self, response: JoinGroupResponse, now: float) -> Next:
        if self.phase is not Phase.JOINING:
            return Next.STOP  # the member has left meanwhile
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
        self.rejoin_reason = None  # reasons from now on are for the next generation
        self._heartbeat_sent = self._heartbeat_heard = now
        self._heartbeat_failures = 0
        return Next.SYNC

    def on_synced(self, response: SyncGroupResponse, generation: int) -> Next:
        if self.phase is not Phase.SYNCING or generation != self.generation:
            return Next.STOP  # a heartbeat has ended the membership, or the member has left
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
            # The subscription has changed since the join; this assignment is void.
            self.phase = Phase.STABLE
            self.request_rejoin(f"received assignment has topics not subscribed to: {unwanted[:3]}")
            return Next.STOP
        self._assigned = assigned
        if self.pattern is not None:
            # The leader may know a new topic that this client does not know yet.
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
            self._reset(code, f"rebalance failed: {request} returned {ErrorCode(code).name}")
            # Without owned partitions there is no callback to wait for.
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
        """Ends the membership; partitions that are still owned are lost. After ILLEGAL_GENERATION
        the member id is still valid, and keeping it saves the group a member that must time out."""
        if code != ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.generation = NO_EPOCH
        self.protocol_name = None
        self.phase = Phase.OUTSIDE
        self.leads = False
        self._watched = None
        self._lost = bool(self.owned)
        self.request_rejoin(reason)

    # Leading; `group_requests` divides the partitions

    def watch(self, topics: Topics) -> None:
        """Has the leader rebalance when these topics change."""
        self._watched = dict(topics)

    def on_topics(self, topics: Topics) -> None:
        """Applies the current state of the watched topics."""
        if self._watched is not None and self._watched != dict(topics):
            self._watched = dict(topics)
            self.request_rejoin("cached metadata has changed")

    # Heartbeats

    @property
    def keeps_alive(self) -> bool:
        """Returns whether heartbeats are sent: not while JoinGroup is in flight."""
        return self.phase in (Phase.SYNCING, Phase.SYNCED, Phase.STABLE)

    def polled(self, now: float) -> None:
        self._polled = now

    @property
    def poll_deadline(self) -> float:
        return self._polled + self.settings.max_poll_interval_ms / 1000

    def heartbeat_at(self, backoff: float) -> float:
        """Returns when the next heartbeat is due; `backoff` is the wait after failures."""
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
        """Applies the response to a heartbeat with this member id and generation. Returns STOP, or
        ELSEWHERE if the coordinator must be found again."""
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
    def identity(self) -> GroupMetadata:
        if self.fenced and self.failure is not None:
            raise self.failure.with_traceback(None)
        # A member that keeps partitions while it joins can commit them until all have joined,
        # with the generation before.
        keeps = self.phase is Phase.JOINING and self.owned and not self._lost
        if self.phase in (Phase.JOINING, Phase.SYNCING) and not keeps:
            raise RebalanceInProgress(
                f"group {self.settings.group_id!r} is rebalancing; poll, then commit again"
            )
        if self.phase is Phase.OUTSIDE or self._lost:
            raise CommitFailed(
                f"this consumer is not a member of group {self.settings.group_id!r} now, and its "
                "partitions may belong to others; poll to join again. If more than "
                f"max_poll_interval_ms={self.settings.max_poll_interval_ms} passed between polls, "
                "raise it or poll fewer records"
            )
        return GroupMetadata(
            self.settings.group_id, self.member_id, self.generation, self.settings.instance_id
        )

    def on_commit_refused(self, code: int, identity: GroupMetadata) -> None:
        if (identity.member_id, identity.generation_or_epoch) != (self.member_id, self.generation):
            return
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            if self.phase in (Phase.STABLE, Phase.SYNCED):
                self.request_rejoin("offset commit failed since group is already rebalancing")
        elif code in _NO_MEMBER:
            if self.phase is not Phase.JOINING:  # otherwise the join in flight will tell
                self._reset(code, f"offset commit failed: {ErrorCode(code).name}")
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self._fence()

    # Leaving

    def on_left(self, *, reason: str) -> None:
        """Ends the membership; partitions that are still owned are lost."""
        self._reset(ErrorCode.UNKNOWN_MEMBER_ID, reason)


def _advice(code: int, member: ClassicMember) -> str | None:
    match code:
        case ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            offered = ", ".join(assignor.name for assignor in member.assignors)
            return (
                f"its members share no assignor with partition_assignment_strategy={offered}, or "
                "it is not a group of consumers"
            )
        case ErrorCode.INVALID_SESSION_TIMEOUT:
            return (
                f"session_timeout_ms={member.settings.session_timeout_ms} is outside the broker's "
                "limits (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        case ErrorCode.GROUP_MAX_SIZE_REACHED:
            return "it has as many members as the broker allows (group.max.size)"
        case _:
            return None


def _assigned(assignment: bytes) -> frozenset[TopicPartition]:
    return frozenset(assigned_partitions(read_assignment(assignment)))
