"""What a member of a classic group asks between two joins: SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.groups.classic.answers import sync_refused
from headwater.groups.classic.group import ClassicGroup, State
from headwater.groups.decision import DecisionBuilder, Token, reason_given
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.leave_group import MemberIdentity, MemberResponse
from headwater.protocol.messages.sync_group import SyncGroupRequest


def sync(
    group: ClassicGroup, token: Token, request: SyncGroupRequest, builder: DecisionBuilder
) -> None:
    """The leader brings what it has assigned; everybody is answered when it is written."""
    code = _check_sync(group, request)
    if code is not ErrorCode.NONE:
        builder.reply(token, sync_refused(code))
        return
    member_id = request.member_id
    group.has_synced(member_id)
    if group.state is State.STABLE:
        builder.reply(token, group.synced_answer(group.roster[member_id]))
        return
    group.answer_sync(member_id, sync_refused(ErrorCode.REBALANCE_IN_PROGRESS), builder)
    group.syncs[member_id] = token
    if group.roster.leader == member_id:
        assignments = {given.member_id: given.assignment for given in request.assignments}
        group.take_assignments(assignments, builder)


def _check_sync(group: ClassicGroup, request: SyncGroupRequest) -> ErrorCode:
    code = group.roster.check(request.member_id, request.group_instance_id)
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
    member = group.roster.get(request.member_id)
    if member is None or request.group_instance_id is not None:
        code = group.roster.check(request.member_id, request.group_instance_id)
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
    """The answer of a group that is not there."""
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
        holder = group.roster.instances.get(member.group_instance_id or "")
        if member.group_instance_id is None or holder is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        member_id = holder
    elif member_id not in group.pending:
        code = group.roster.check(member_id, member.group_instance_id)
        if code is not ErrorCode.NONE:
            return code
    group.remove(member_id, builder)
    return ErrorCode.NONE
