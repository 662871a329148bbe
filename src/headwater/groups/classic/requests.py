"""The requests of a classic group's members: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Each is checked here and changes its `ClassicGroup`. The reply is part of the same decision, or of
the one that ends the rebalance.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from headwater.coordination import DecisionBuilder, Token
from headwater.errors import ErrorCode
from headwater.groups.classic.group import ClassicGroup, State, join_refused, sync_refused
from headwater.groups.classic.member import Member, Protocols, protocols_of
from headwater.groups.clients import ClientInfo, reason_given
from headwater.groups.settings import NEW_MEMBER_JOIN_TIMEOUT_MS
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headwater.protocol.messages.leave_group import MemberIdentity, MemberResponse
from headwater.protocol.messages.sync_group import SyncGroupRequest

# From this version on a dynamic member is first told its id, and joins with it (KIP-394).
_ID_REQUIRED_SINCE = 4
# From this version on a static leader that has come back is sent the members, and told to skip the
# assignment (KIP-814).
_SKIP_ASSIGNMENT_SINCE = 9


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request."""

    token: Token
    request: JoinGroupRequest
    version: int
    client: ClientInfo
    protocols: Protocols

    @classmethod
    def of(cls, token: Token, request: JoinGroupRequest, version: int, client: ClientInfo) -> Join:
        return cls(token, request, version, client, protocols_of(request.protocols))

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 has one timeout for both.
        request = self.request
        return request.session_timeout_ms if self.version == 0 else request.rebalance_timeout_ms

    @property
    def reason(self) -> str:
        """The reason that the client gave (KIP-800), to be appended to a line of the log."""
        return reason_given(self.request.reason)

    def refused(self, code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
        return join_refused(code, member_id, version=self.version)


def join(group: ClassicGroup, asked: Join, builder: DecisionBuilder, random: Random) -> None:
    """Replies now, or parks the request until the next generation is formed."""
    member_id = asked.request.member_id
    if not _has_room(group, member_id):
        group.remove(member_id, builder)
        builder.reply(asked.token, asked.refused(ErrorCode.GROUP_MAX_SIZE_REACHED))
    elif not group.supports(asked.request.protocol_type, asked.protocols):
        refused = asked.refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, member_id)
        builder.reply(asked.token, refused)
    elif not member_id:
        _join_new(group, asked, builder, random)
    elif member_id in group.pending:
        if asked.request.group_instance_id is not None:
            # Only a dynamic member is ever pending. Kafka fails here, too.
            builder.reply(asked.token, asked.refused(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            _add(group, asked, member_id, builder)
    else:
        _join_again(group, asked, builder)


def _has_room(group: ClassicGroup, member_id: str) -> bool:
    size_max = group.settings.group_size_max
    if group.state is State.PREPARING_REBALANCE:
        # Parked members count, not all members: a group that is too large because the limit was
        # lowered loses those that rejoin last.
        return member_id in group.joins or len(group.joins) < size_max
    if group.state in (State.COMPLETING_REBALANCE, State.STABLE):
        return member_id in group.members or len(group.members) < size_max
    return True


def _unique(random: Random) -> str:
    """Returns a random UUID as text, which makes member ids unique."""
    digits = f"{random.getrandbits(128):032x}"
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def _join_new(group: ClassicGroup, asked: Join, builder: DecisionBuilder, random: Random) -> None:
    instance_id = asked.request.group_instance_id
    name = asked.client.client_id if instance_id is None else instance_id
    new_id = f"{name}-{_unique(random)}"
    if instance_id is not None:
        holder = group.members.instances.get(instance_id)
        if holder is None:
            _add(group, asked, new_id, builder)
        else:
            _replace(group, asked, group.members[holder], new_id, builder)
    elif asked.version >= _ID_REQUIRED_SINCE:
        group.add_pending(new_id, asked.request.session_timeout_ms, builder.now)
        builder.reply(asked.token, asked.refused(ErrorCode.MEMBER_ID_REQUIRED, new_id))
    else:
        _add(group, asked, new_id, builder)


def _add(group: ClassicGroup, asked: Join, member_id: str, builder: DecisionBuilder) -> None:
    pending = group.pending.pop(member_id, None)
    if pending is not None:
        pending.cancel()
    member = group.new_member(member_id, asked.request.group_instance_id, asked.client)
    member.is_new = True
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    member.session_timeout_ms = asked.request.session_timeout_ms
    member.protocols = asked.protocols
    if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
        group.member_came = True  # more may be on their way
    if not len(group.members):
        group.protocol_type = asked.request.protocol_type
    group.members.add(member)
    group.wait_join(member_id, asked.token, asked.version, builder)
    # A connection that dies while its JoinGroup is parked goes unnoticed, and a client that retries
    # joins as a new member: without a timeout of their own the dead ones would pile up.
    group.timers.set(member.session, builder.now + NEW_MEMBER_JOIN_TIMEOUT_MS / 1000)
    group.rebalance(builder, f"{member_id} joins{asked.reason}")


def _join_again(group: ClassicGroup, asked: Join, builder: DecisionBuilder) -> None:
    member_id = asked.request.member_id
    code = group.members.check(member_id, asked.request.group_instance_id)
    if code is not ErrorCode.NONE:
        builder.reply(asked.token, asked.refused(code, member_id))
        return
    member = group.members[member_id]
    is_leader = group.members.leader == member_id
    unchanged = member.protocols == asked.protocols
    match group.state:
        case State.COMPLETING_REBALANCE if unchanged:
            # It may have missed the first response.
            answer = group.joined_answer(member_id, with_members=is_leader)
            builder.reply(asked.token, answer)
        case State.STABLE if unchanged and not is_leader:
            builder.reply(asked.token, group.joined_answer(member_id, with_members=False))
        case State.EMPTY:
            builder.reply(asked.token, asked.refused(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        case _:
            # A leader rejoins when something outside the group calls for a new assignment, such
            # as new partitions of a topic.
            _update(group, asked, member, builder)
            group.rebalance(builder, f"{member_id} joins again{asked.reason}")


def _update(group: ClassicGroup, asked: Join, member: Member, builder: DecisionBuilder) -> None:
    group.members.change_protocols(member, asked.protocols)
    member.rebalance_timeout_ms = asked.rebalance_timeout_ms
    member.session_timeout_ms = asked.request.session_timeout_ms
    group.wait_join(member.id, asked.token, asked.version, builder)


def _replace(
    group: ClassicGroup, asked: Join, old: Member, new_id: str, builder: DecisionBuilder
) -> None:
    """Lets a static member that has restarted take its place; its old member id is fenced."""
    leader_before = group.members.leader
    new = _take_place(group, old, new_id, builder)
    _update(group, asked, new, builder)
    if group.state is not State.STABLE:
        # An assignment that is being made now is for the old id.
        group.rebalance(builder, f"{new_id} takes the place of {old.id}{asked.reason}")
    elif group.protocol != group.members.vote():
        group.prepare_rebalance(builder, f"{new_id} speaks other protocols than {old.id}")
    else:
        group.refresh_subscription()
        group.record(builder)
        answer = _replaced_answer(group, asked, new_id, leader_before)
        group.answer_join(new_id, answer, builder)


def _take_place(group: ClassicGroup, old: Member, new_id: str, builder: DecisionBuilder) -> Member:
    fenced = ErrorCode.FENCED_INSTANCE_ID
    group.fence(old, fenced, builder)
    new = group.new_member(new_id, old.instance_id, old.client)
    new.rebalance_timeout_ms = old.rebalance_timeout_ms
    new.session_timeout_ms = old.session_timeout_ms
    new.protocols = old.protocols
    new.assignment = old.assignment
    group.members.rename(old, new)
    if old.id in group.unsynced:
        group.unsynced.remove(old.id)
        group.unsynced.add(new_id)
    group.renew(new, builder.now)
    return new


def _replaced_answer(
    group: ClassicGroup, asked: Join, new_id: str, leader_before: str | None
) -> JoinGroupResponse:
    is_leader = group.members.leader == new_id
    if asked.version >= _SKIP_ASSIGNMENT_SINCE:
        answer = group.joined_answer(new_id, with_members=is_leader)
        answer.skip_assignment = is_leader
        return answer
    # An older client would assign again if it led; it is told that the old id leads.
    answer = group.joined_answer(new_id, with_members=False)
    answer.leader = leader_before or ""
    return answer


def sync(
    group: ClassicGroup, token: Token, request: SyncGroupRequest, builder: DecisionBuilder
) -> None:
    """Parks a SyncGroup until the leader's, which has the assignments, is written."""
    code = _check_sync(group, request)
    if code is not ErrorCode.NONE:
        builder.reply(token, sync_refused(code))
        return
    member_id = request.member_id
    group.has_synced(member_id)
    if group.state is State.STABLE:
        builder.reply(token, group.synced_answer(group.members[member_id]))
        return
    group.answer_sync(member_id, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS), builder)
    group.syncs[member_id] = token
    if group.members.leader == member_id:
        assignments = {given.member_id: given.assignment for given in request.assignments}
        group.take_assignments(assignments, builder)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    code = group.members.check(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(
        request.protocol_name, group.protocol
    ):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def _differ(asked: str | None, ours: str | None) -> bool:
    return asked is not None and ours is not None and asked != ours


def heartbeat(group: ClassicGroup, request: HeartbeatRequest, now: float) -> ErrorCode:
    member = group.members.get(request.member_id)
    if member is None or request.group_instance_id is not None:
        code = group.members.check(request.member_id, request.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
        assert member is not None
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    group.renew(member, now)
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave(
    group: ClassicGroup, leaving: list[MemberIdentity], builder: DecisionBuilder
) -> list[MemberResponse]:
    answers = []
    left = []
    for member in leaving:
        code = _leave(group, member, builder)
        if code is ErrorCode.NONE:
            name = member.member_id or member.group_instance_id
            left.append(f"{name} leaves{reason_given(member.reason)}")
        answers.append(
            MemberResponse(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                error_code=code,
            )
        )
    if left:
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            others = f" and {len(left) - 1} more" if len(left) > 1 else ""
            group.prepare_rebalance(builder, left[0] + others)
        else:
            group.complete_if_joined(builder)
    return answers


def unknown(leaving: list[MemberIdentity]) -> list[MemberResponse]:
    """Returns the results for a group that does not exist."""
    return [
        MemberResponse(
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        for member in leaving
    ]


def _leave(group: ClassicGroup, member: MemberIdentity, builder: DecisionBuilder) -> ErrorCode:
    member_id = member.member_id
    if not member_id:
        # An administrator removes a static member by its instance id alone.
        holder = group.members.instances.get(member.group_instance_id or "")
        if member.group_instance_id is None or holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder
    elif member_id not in group.pending:
        code = group.members.check(member_id, member.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
    group.remove(member_id, builder)
    return ErrorCode.NONE
