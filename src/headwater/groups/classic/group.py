"""A classic group: its state, and its way from one generation to the next.

The log knows a group only as it was when its leader last handed out assignments, when it last
became empty, or when a static member was last replaced: `durable`, which nothing but `apply` sets.
All else is soft. After a crash the last written generation lives again, and members that joined
since find themselves unknown and join anew.
"""

from __future__ import annotations

from enum import Enum

from headwater.coordination import DecisionBuilder, Token
from headwater.errors import ErrorCode
from headwater.groups.classic.member import Member, Members, read_member, write_member
from headwater.groups.clients import ClientInfo, removed
from headwater.groups.settings import GroupSettings
from headwater.groups.timers import Timer, Timers
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import PROTOCOL_TYPE, read_topics
from headwater.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headwater.protocol.messages.sync_group import SyncGroupResponse
from headwater.protocol.records.group_offsets import GroupMetadataKey, GroupMetadataValue

UNKNOWN_TIME = -1

# From this version on the protocol's name is null in a refusal; before, it is empty.
_NULL_PROTOCOL_SINCE = 7

# The shortest wait before checking again whether a member has rejoined; members may ask for 0.
_RETRY_MS_MIN = 100


class State(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class ClassicGroup:
    """One classic group. `requests` checks what members send; the consequences are decided here."""

    def __init__(self, group_id: str, settings: GroupSettings, timers: Timers) -> None:
        self.id = group_id
        self.settings = settings
        self.timers = timers
        self.durable: GroupMetadataValue | None = None

        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.state_since_ms = UNKNOWN_TIME
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.subscribed: frozenset[str] | None = None
        self.members = Members()
        # Members that were told their id and have not joined with it yet, each with its timer.
        self.pending: dict[str, Timer] = {}
        # Parked requests by member: a JoinGroup with its version, and a SyncGroup.
        self.joins: dict[str, tuple[Token, int]] = {}
        self.syncs: dict[str, Token] = {}
        # Members of this generation that have not sent SyncGroup yet.
        self.unsynced: set[str] = set()
        self.member_came = False
        self._join_timer = Timer(self._on_join_deadline)
        self._sync_timer = Timer(self._on_sync_deadline)
        # While the first members gather: the current delay, and how much of it may still be added.
        self._initial_delay_ms = 0
        self._initial_left_ms = 0

    # The record

    def record(self, builder: DecisionBuilder) -> None:
        """Writes the group as it is, with its members' assignments."""
        builder.write(
            GroupMetadataKey(group=self.id),
            GroupMetadataValue(
                protocol_type=self.protocol_type or "",
                generation=self.generation,
                protocol=self.protocol,
                leader=self.members.leader,
                current_state_timestamp=self.state_since_ms,
                members=[write_member(member, self.protocol) for member in self.members],
            ),
        )

    def apply(self, value: GroupMetadataValue) -> None:
        self.durable = value

    def restore(self) -> None:
        """Becomes what the log says, with no parked requests and no running sessions."""
        value = self.durable
        self.members = Members()
        if value is None:
            return
        self.state = State.STABLE if value.members else State.EMPTY
        self.state_since_ms = value.current_state_timestamp
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        for written in value.members:
            member = self.new_member(
                written.member_id,
                written.group_instance_id,
                ClientInfo(written.client_id, written.client_host),
            )
            read_member(member, written, value.protocol)
            self.members.add(member)
        if value.leader is not None and value.leader in self.members:
            self.members.leader = value.leader
        self.subscribed = self._subscribed_topics()

    def on_loaded(self, builder: DecisionBuilder) -> None:
        """Starts after a load: every member has a whole session to show itself."""
        self.restore()
        for member in self.members:
            self.renew(member, builder.now)
        if len(self.members) > self.settings.group_size_max:
            # The limit was lowered. A rebalance lets members commit before some are removed.
            too_many = f"more than {self.settings.group_size_max} members"
            builder.note(
                f"group {self.id} has {too_many} (group.max.size): the last to rejoin are removed"
            )
            self.prepare_rebalance(builder, too_many)

    # Questions

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == PROTOCOL_TYPE

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """Returns whether a member with these protocols can be in one group with all others."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        return self.protocol_type == protocol_type and self.members.shares_protocol(protocols)

    def is_subscribed(self, topic: str) -> bool:
        if self.subscribed is None:
            return self.uses_consumer_protocol  # possibly: its subscription could not be read
        return topic in self.subscribed

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool
    ) -> ErrorCode:
        """Checks that a member, or a sender without membership, may commit offsets."""
        if generation < 0 and self.state is State.EMPTY:
            return ErrorCode.NONE  # a consumer with manual assignment, or an administrator
        if generation >= 0 or member_id or instance_id is not None:
            code = self.members.check(member_id, instance_id)
            if code is not ErrorCode.NONE:
                return code
            if generation != self.generation:
                return ErrorCode.ILLEGAL_GENERATION
        elif not transactional and self.state is not State.EMPTY:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def on_commit(self, member_id: str, now: float) -> None:
        """Extends the session of a member that has committed."""
        if self.state in (State.STABLE, State.PREPARING_REBALANCE):
            member = self.members.get(member_id)
            if member is not None:
                self.renew(member, now)

    def expires_from_ms(self, commit_ms: int) -> int | None:
        """Returns when the retention of an offset began that was committed at this time, or None if
        it has not begun."""
        if self.protocol_type is None:
            return commit_ms
        if self.state is State.EMPTY:
            return commit_ms if self.state_since_ms == UNKNOWN_TIME else self.state_since_ms
        if (
            self.state is State.STABLE
            and self.uses_consumer_protocol
            and self.subscribed is not None
        ):
            return commit_ms
        return None

    # Members

    def new_member(self, member_id: str, instance_id: str | None, client: ClientInfo) -> Member:
        return Member(
            id=member_id,
            instance_id=instance_id,
            client=client,
            rebalance_timeout_ms=0,
            session_timeout_ms=0,
            protocols=(),
            session=Timer(lambda builder: self._on_session_end(member_id, builder)),
        )

    def renew(self, member: Member, now: float) -> None:
        self.timers.set(member.session, now + member.session_timeout_ms / 1000)

    def add_pending(self, member_id: str, session_timeout_ms: int, now: float) -> None:
        timer = Timer(lambda builder: self._on_pending_end(member_id, builder))
        self.pending[member_id] = timer
        self.timers.set(timer, now + session_timeout_ms / 1000)

    def wait_join(
        self, member_id: str, token: Token, version: int, builder: DecisionBuilder
    ) -> None:
        """Parks a JoinGroup. The connection of one that is parked already is most likely gone."""
        before = self.joins.get(member_id)
        if before is not None:
            code = ErrorCode.REBALANCE_IN_PROGRESS
            builder.reply(before[0], join_refused(code, member_id, version=before[1]))
        self.joins[member_id] = (token, version)

    def answer_join(
        self, member_id: str, answer: JoinGroupResponse, builder: DecisionBuilder
    ) -> None:
        waiting = self.joins.pop(member_id, None)
        if waiting is not None:
            builder.reply(waiting[0], answer)

    def answer_sync(
        self, member_id: str, answer: SyncGroupResponse, builder: DecisionBuilder
    ) -> bool:
        token = self.syncs.pop(member_id, None)
        if token is not None:
            builder.reply(token, answer)
        return token is not None

    def remove(self, member_id: str, builder: DecisionBuilder) -> None:
        """Removes a member, known or pending. Its parked requests are refused with
        UNKNOWN_MEMBER_ID, so that it joins again if it is still alive."""
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        if member_id in self.joins:
            version = self.joins[member_id][1]
            self.answer_join(member_id, join_refused(unknown, version=version), builder)
        self.answer_sync(member_id, sync_refused(unknown), builder)
        member = self.members.remove(member_id)
        if member is not None:
            member.session.cancel()
        pending = self.pending.pop(member_id, None)
        if pending is not None:
            pending.cancel()
        self.unsynced.discard(member_id)

    def fence(self, old: Member, code: ErrorCode, builder: DecisionBuilder) -> None:
        """Refuses the parked requests of a member whose place is taken by another."""
        if old.id in self.joins:
            version = self.joins[old.id][1]
            refused = join_refused(code, old.id, version=version)
            self.answer_join(old.id, refused, builder)
        self.answer_sync(old.id, sync_refused(code), builder)
        old.session.cancel()

    @property
    def all_joined(self) -> bool:
        return len(self.joins) == len(self.members) and not self.pending

    def members_for_leader(self) -> list[JoinGroupResponseMember]:
        assert self.protocol is not None
        return [
            JoinGroupResponseMember(
                member_id=member.id,
                group_instance_id=member.instance_id,
                metadata=member.metadata(self.protocol),
            )
            for member in self.members
        ]

    def joined_answer(self, member_id: str, *, with_members: bool) -> JoinGroupResponse:
        assert self.protocol is not None
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.members.leader or "",
            member_id=member_id,
            members=self.members_for_leader() if with_members else [],
        )

    # Rebalances

    def rebalance(self, builder: DecisionBuilder, why: str) -> None:
        """Starts a rebalance, or completes the running one if all members have joined."""
        if self.state is State.PREPARING_REBALANCE:
            self.complete_if_joined(builder)
        elif self.state is not State.DEAD:
            self.prepare_rebalance(builder, why)

    def prepare_rebalance(self, builder: DecisionBuilder, why: str) -> None:
        what = f"group {self.id}: rebalance to generation {self.generation + 1}: {why}"
        builder.note(what, is_routine=True)
        if self.state is State.COMPLETING_REBALANCE:
            self._send_back_syncs(builder)
        self.unsynced.clear()
        self._sync_timer.cancel()
        is_initial = self.state is State.EMPTY
        self._move_to(State.PREPARING_REBALANCE, builder)
        if is_initial:
            # The first members of a group mostly start together; a short delay saves them a
            # rebalance each.
            self.member_came = False
            delay_ms = self.settings.initial_rebalance_delay_ms
            self._initial_delay_ms = delay_ms
            self._initial_left_ms = max(self.members.rebalance_timeout_ms() - delay_ms, 0)
            self.timers.set(self._join_timer, builder.now + delay_ms / 1000)
        elif self.all_joined:
            self.complete_join(builder)
        else:
            timeout_ms = self.members.rebalance_timeout_ms()
            self.timers.set(self._join_timer, builder.now + timeout_ms / 1000)

    def complete_if_joined(self, builder: DecisionBuilder) -> None:
        if (
            self.state is State.PREPARING_REBALANCE
            and self.previous_state is not State.EMPTY
            and self.all_joined
        ):
            self.complete_join(builder)

    def complete_join(self, builder: DecisionBuilder) -> None:
        """Forms the next generation. Dynamic members that have not rejoined are removed; static
        ones keep their place until their session expires."""
        self._join_timer.cancel()
        late = [
            member.id
            for member in self.members
            if member.id not in self.joins and member.instance_id is None
        ]
        for member_id in late:
            self.remove(member_id, builder)
        self._note_removed(late, "did not rejoin within the rebalance timeout", builder)
        if len(self.members) and not self._elect_leader():
            timeout_ms = max(self.members.rebalance_timeout_ms(), _RETRY_MS_MIN)
            self.timers.set(self._join_timer, builder.now + timeout_ms / 1000)
            return
        self.generation += 1
        self.unsynced.clear()
        if not len(self.members):
            self.protocol = None
            self.subscribed = self._subscribed_topics()
            self._move_to(State.EMPTY, builder)
            self.record(builder)
            return
        self.protocol = self.members.vote()
        self.subscribed = self._subscribed_topics()
        self._move_to(State.COMPLETING_REBALANCE, builder)
        for member in self.members:
            is_leader = member.id == self.members.leader
            if member.id in self.joins:
                answer = self.joined_answer(member.id, with_members=is_leader)
                self.answer_join(member.id, answer, builder)
            self.renew(member, builder.now)
            member.is_new = False
            self.unsynced.add(member.id)
        self.timers.set(self._sync_timer, builder.now + self.members.rebalance_timeout_ms() / 1000)

    def take_assignments(self, assignments: dict[str, bytes], builder: DecisionBuilder) -> None:
        """Takes the assignments of the leader, which make the group stable. A member without one
        gets nothing."""
        assert self.state is State.COMPLETING_REBALANCE
        for member in self.members:
            member.assignment = assignments.get(member.id, b"")
        self.record(builder)
        self._move_to(State.STABLE, builder)
        for member in self.members:
            answer = self.synced_answer(member)
            if self.answer_sync(member.id, answer, builder):
                self.renew(member, builder.now)

    def synced_answer(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            assignment=member.assignment,
        )

    def has_synced(self, member_id: str) -> None:
        self.unsynced.discard(member_id)
        if not self.unsynced:
            self._sync_timer.cancel()

    def close(self, builder: DecisionBuilder | None) -> None:
        """Ends the group here: it was deleted or migrated, or is coordinated elsewhere now."""
        self._move_to(State.DEAD, builder)
        self._join_timer.cancel()
        self._sync_timer.cancel()
        for member in self.members:
            member.session.cancel()
        for timer in self.pending.values():
            timer.cancel()

    def refuse_waiting(self, code: ErrorCode, builder: DecisionBuilder) -> None:
        """Refuses all parked requests with the same error."""
        for member_id, (_, version) in list(self.joins.items()):
            self.answer_join(member_id, join_refused(code, member_id, version=version), builder)
        for member_id in list(self.syncs):
            self.answer_sync(member_id, sync_refused(code), builder)

    def _move_to(self, state: State, builder: DecisionBuilder | None) -> None:
        self.previous_state = self.state
        self.state = state
        if builder is not None:
            self.state_since_ms = builder.now_ms

    def _send_back_syncs(self, builder: DecisionBuilder) -> None:
        for member in self.members:
            member.assignment = b""
            if self.answer_sync(member.id, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS), builder):
                self.renew(member, builder.now)

    def _elect_leader(self) -> bool:
        """Elects a leader among those that have rejoined, the current one if it has."""
        if self.members.leader in self.joins:
            return True
        rejoined = next((member.id for member in self.members if member.id in self.joins), None)
        if rejoined is None:
            return False
        self.members.leader = rejoined
        return True

    def refresh_subscription(self) -> None:
        self.subscribed = self._subscribed_topics()

    def _subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics that members subscribe to; None if that cannot be read."""
        if not self.uses_consumer_protocol:
            return None
        if not len(self.members):
            return frozenset()
        if self.protocol is None:
            return None
        topics: set[str] = set()
        try:
            for member in self.members:
                topics.update(read_topics(bytes(member.metadata(self.protocol))))
        except DecodeError:
            return None
        return frozenset(topics)

    # Timeouts

    def _on_join_deadline(self, builder: DecisionBuilder) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            return
        if self.previous_state is State.EMPTY and self.member_came and self._initial_left_ms:
            self.member_came = False
            left_ms = self._initial_left_ms
            self._initial_left_ms = max(left_ms - self._initial_delay_ms, 0)
            self._initial_delay_ms = min(self.settings.initial_rebalance_delay_ms, left_ms)
            self.timers.set(self._join_timer, builder.now + self._initial_delay_ms / 1000)
            return
        self.complete_join(builder)

    def _on_sync_deadline(self, builder: DecisionBuilder) -> None:
        """Removes members that joined the generation and did not send SyncGroup."""
        if self.unsynced and self.state in (State.COMPLETING_REBALANCE, State.STABLE):
            late = list(self.unsynced)
            for member_id in late:
                self.remove(member_id, builder)
            self._note_removed(late, "sent no SyncGroup within the rebalance timeout", builder)
            self.prepare_rebalance(builder, f"{late[0]} was removed")

    def _on_pending_end(self, member_id: str, builder: DecisionBuilder) -> None:
        self.remove(member_id, builder)
        if self.state is State.PREPARING_REBALANCE and self.all_joined:
            self.complete_join(builder)

    def _on_session_end(self, member_id: str, builder: DecisionBuilder) -> None:
        member = self.members.get(member_id)
        if member is None:
            return
        waits = member_id in self.joins or member_id in self.syncs
        if waits and not member.is_new:
            return  # it cannot send heartbeats while its request is parked
        self.remove(member_id, builder)
        why = f"sent no heartbeat for {member.session_timeout_ms} ms"
        self._note_removed([member_id], why, builder)
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(builder, f"{member_id} was removed")
        elif self.state is State.PREPARING_REBALANCE and self.all_joined:
            self.complete_join(builder)

    def _note_removed(self, member_ids: list[str], why: str, builder: DecisionBuilder) -> None:
        if member_ids:
            builder.note(removed(self.id, member_ids, why))


def join_refused(code: ErrorCode, member_id: str = "", *, version: int) -> JoinGroupResponse:
    no_protocol = None if version >= _NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=no_protocol)


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)
