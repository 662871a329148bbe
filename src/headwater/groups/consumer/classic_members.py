"""Members of a consumer group that still speak the classic protocol.

While a group is moved from one protocol to the other it has both kinds. To the coordinator they are
the same: a classic member reconciles too, only that it must be told to rejoin for each step, and
says in JoinGroup what it owns and hears in SyncGroup what it has been given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headwater.errors import ApiError, ErrorCode
from headwater.groups.classic.answers import join_refused, joined, sync_refused, synced
from headwater.groups.classic.roster import protocols_of
from headwater.groups.consumer.member import ClassicProtocols, Member, MemberState
from headwater.groups.decision import ClientInfo, Decision, Record, Token, reply
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    owned_partitions,
    read_subscription,
    version_of,
    write_assignment,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.join_group import JoinGroupRequest
from headwater.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from headwater.protocol.messages.sync_group import SyncGroupRequest
from headwater.protocol.records.membership import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from headwater.groups.consumer.group import ConsumerGroup

# From this version on JoinGroup is sent twice, the second time with the id given the first time.
_MEMBER_ID_REQUIRED_SINCE = 4
# From this version on LeaveGroup names many members and is answered for each.
_LEAVE_MANY_SINCE = 3


def join(
    group: ConsumerGroup,
    token: Token,
    request: JoinGroupRequest,
    *,
    client: ClientInfo,
    version: int,
    now: float,
    now_ms: int,
) -> Decision:
    try:
        return _join(group, token, request, client, version, now, now_ms)
    except ApiError as refusal:
        return reply(token, join_refused(refusal.code, version=version))


def _join(
    group: ConsumerGroup,
    token: Token,
    request: JoinGroupRequest,
    client: ClientInfo,
    version: int,
    now: float,
    now_ms: int,
) -> Decision:
    if group.settings.consumer_migration_policy == "disabled":
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    is_unknown, instance_id = not request.member_id, request.group_instance_id
    member_id = request.member_id or group.new_member_id()
    group.check_size(member_id)
    protocols = protocols_of(request.protocols)
    _check_protocols(group, request.protocol_type, protocols)
    if is_unknown and instance_id is None and version >= _MEMBER_ID_REQUIRED_SINCE:
        required = join_refused(ErrorCode.MEMBER_ID_REQUIRED, member_id, version=version)
        return reply(token, required)

    subscription = _subscription(protocols[0][1])
    records: list[Record] = []
    if instance_id is None:
        member = group.known_member(member_id, create=True)
    else:
        member = group.static_member(
            member_id, instance_id, records, create=is_unknown, speaks_classic=True
        )
    updated = _updated(member, request, subscription, protocols, client)
    changed = group.note_member(member, updated, records)
    regex = group.regexes.changed(member, updated, records)
    changed = changed or regex.is_changed
    epoch, homogeneous = group.note_topics(member, updated, records, now, changed=changed)
    downgrades = group.downgrades_by_replacing(instance_id)
    if downgrades:
        target_epoch, target = group.state.target_epoch, group.last_target(updated)
    else:
        target_epoch, target = group.target_for(
            member, updated, records, now_ms, epoch=epoch, homogeneous=homogeneous
        )
    is_behind = downgrades and target_epoch < epoch
    if not is_behind:
        updated = group.reconcile(
            updated,
            records,
            now,
            target_epoch=target_epoch,
            target=target,
            owned=group.topics.by_id(owned_partitions(subscription)),
            subscription_changed=changed,
        )
    if downgrades:
        records += group.downgrade((), updated, now_ms=now_ms, rebalances=is_behind)
    else:
        timeout_ms = max(updated.rebalance_timeout_ms, request.session_timeout_ms)
        group.deadlines.end_join(updated.id)
        group.deadlines.renew_session(updated.id, now + request.session_timeout_ms / 1000)
        group.deadlines.await_sync(updated.id, now + timeout_ms / 1000)
    answer = joined(
        member_id=updated.id,
        generation=updated.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol=protocols[0][0],
        leader="",
        members=[],
    )
    return Decision(records, ((token, answer),))


def _check_protocols(
    group: ConsumerGroup, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    """One protocol must be known to all classic members, for the day they are alone again."""
    known = group.state.classic_protocols
    everybody = group.state.classic_members
    if protocol_type != PROTOCOL_TYPE or not any(
        known.get(name, 0) == everybody for name, _ in protocols
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(metadata)
    except DecodeError as error:
        # Kafka has no better word for it either.
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from None


def _updated(
    member: Member,
    request: JoinGroupRequest,
    subscription: ConsumerProtocolSubscription,
    protocols: tuple[tuple[str, bytes], ...],
    client: ClientInfo,
) -> Member:
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.group_instance_id or member.instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=client.client_id,
        client_host=client.host,
        classic=ClassicProtocols(
            request.session_timeout_ms,
            tuple((name, bytes(metadata)) for name, metadata in protocols),
        ),
    )


def sync(group: ConsumerGroup, token: Token, request: SyncGroupRequest, *, now: float) -> Decision:
    try:
        member, spoken = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        protocol = spoken.protocols[0]
        if request.protocol_type not in (None, PROTOCOL_TYPE):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if request.protocol_name not in (None, protocol[0]):
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group.state.target_epoch > member.epoch and member.state is not MemberState.UNREVOKED:
            _await_join(group, member, now)
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
    except ApiError as refusal:
        return reply(token, sync_refused(refusal.code))
    group.deadlines.end_sync(member.id)
    group.deadlines.renew_session(member.id, now + spoken.session_timeout_ms / 1000)
    assignment = write_assignment(
        group.topics.by_name(member.assigned), version=version_of(protocol[1])
    )
    return reply(
        token,
        synced(
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignment=assignment,
        ),
    )


def heartbeat(
    group: ConsumerGroup, token: Token, request: HeartbeatRequest, *, now: float
) -> Decision:
    """REBALANCE_IN_PROGRESS is how a classic member hears that there is a step to do."""
    code = ErrorCode.NONE
    try:
        member, spoken = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        group.deadlines.renew_session(member.id, now + spoken.session_timeout_ms / 1000)
        if (
            member.epoch < group.state.target_epoch
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and not _waits(group, member))
            or _nobody_assigns(group)
        ):
            _await_join(group, member, now)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except ApiError as refusal:
        code = refusal.code
    return reply(token, HeartbeatResponse(error_code=code))


def _nobody_assigns(group: ConsumerGroup) -> bool:
    """The group has moved on, and nobody is left whose heartbeat would bring a new target.

    Kafka lets such a group stand still, which can be if the policy forbids to downgrade it. The
    JoinGroup that follows from this works the target out.
    """
    state = group.state
    return state.epoch > state.target_epoch and state.classic_members == len(state.members)


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Is something that it will get still held by others? Else it may come for it."""
    return any(
        partition not in member.assigned.get(topic, {}) and group.state.is_held(topic, partition)
        for topic, partitions in group.state.target.get(member.id, {}).items()
        for partition in partitions
    )


def _await_join(group: ConsumerGroup, member: Member, now: float) -> None:
    group.deadlines.await_join(member.id, now + member.rebalance_timeout_ms / 1000)


def _classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[Member, ClassicProtocols]:
    if instance_id is None:
        member = group.known_member(member_id, create=False)
    else:
        member = group.holder(member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
    return member, member.classic


def _check_generation(member: Member, generation: int) -> None:
    if member.epoch != generation:
        raise ApiError(ErrorCode.ILLEGAL_GENERATION)


def leave(
    group: ConsumerGroup, token: Token, request: LeaveGroupRequest, *, version: int, now_ms: int
) -> Decision:
    leaving: list[Member] = []
    results: list[MemberResponse] = []
    for identity in request.members:
        code = ErrorCode.NONE
        try:
            leaving.append(_leaving(group, identity))
        except ApiError as refusal:
            code = refusal.code
        results.append(
            MemberResponse(
                member_id=identity.member_id,
                group_instance_id=identity.group_instance_id,
                error_code=code,
            )
        )
    answer = LeaveGroupResponse(members=results)
    if version < _LEAVE_MANY_SINCE:
        answer = LeaveGroupResponse(error_code=results[0].error_code)
    return group.remove(leaving, now_ms, ((token, answer),))


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    """Also an administrator may ask this, for members of any kind."""
    if identity.group_instance_id is None:
        return group.known_member(identity.member_id, create=False)
    holder = group.state.static_member(identity.group_instance_id)
    if not identity.member_id and holder is not None:
        return holder
    return group.holder(identity.member_id, identity.group_instance_id)
