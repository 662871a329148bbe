"""Groups that move between the classic and the consumer protocol while their members go on working.

A classic group of consumers becomes a consumer group when the first member joins that speaks the
newer protocol: what its leader last handed out is the first target assignment, and all its members
hold theirs. While a group has members of both kinds, a classic one reconciles like the others, but
has to be told to rejoin for each step: it says in JoinGroup what it owns, and hears in SyncGroup
what it has been given. When the last member of the newer kind has gone, the group becomes a classic
one again. `group.consumer.migration.policy` says which ways are open.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headwater.coordination import Decision, DecisionBuilder, Record, Token, reply
from headwater.errors import ApiError, ErrorCode
from headwater.groups.classic.group import ClassicGroup, join_refused, sync_refused
from headwater.groups.classic.member import Member as ClassicMember
from headwater.groups.classic.member import protocols_of
from headwater.groups.clients import ClientInfo
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.member import ClassicProtocols, Member, MemberState
from headwater.groups.consumer.records import (
    group_epoch_record,
    group_tombstones,
    member_record,
    progress_record,
    target_epoch_record,
    target_record,
)
from headwater.groups.consumer.state import GroupState
from headwater.groups.consumer.topics import Topics
from headwater.groups.settings import GroupSettings
from headwater.groups.timers import Timer, Timers
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    owned_partitions,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from headwater.protocol.messages.leave_group import (
    MemberIdentity,
    MemberResponse,
)
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from headwater.protocol.records.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
)
from headwater.protocol.records.membership import ConsumerProtocolSubscription

if TYPE_CHECKING:
    from headwater.groups.consumer.group import ConsumerGroup

# From this version on JoinGroup is sent twice, the second time with the id given the first time.
_MEMBER_ID_REQUIRED_SINCE = 4


def upgrade(classic: ClassicGroup, group: ConsumerGroup, builder: DecisionBuilder) -> None:
    """Fills the new, empty `group` from `classic`; raises ApiError if it cannot be migrated.

    `classic` stays as it is, for the request may still be refused. The records are added to the
    decision and applied to `group` at once, because the same decision goes on in it; applying them
    once more when they are in the log changes nothing.
    """
    _check_upgrade(classic, group.settings)
    builder.write(GroupMetadataKey(group=classic.id), None)
    members: list[tuple[Member, Partitions]] = []
    for old in classic.members:
        try:
            members.append(_upgraded_member(old, classic, group.topics))
        except DecodeError:
            raise _refusal(
                classic.id, "because the embedded consumer protocol is malformed."
            ) from None
        group.deadlines.renew_session(old.id, builder.now + old.session_timeout_ms / 1000)
    hashed = group.topics.hash({name for member, _ in members for name in member.topic_names})
    generation = classic.generation
    records = [
        *(member_record(group.id, member) for member, _ in members),
        group_epoch_record(group.id, generation, hashed),
        *(target_record(group.id, member.id, target) for member, target in members),
        target_epoch_record(group.id, generation, 0),
        *(progress_record(group.id, member) for member, _ in members),
    ]
    for record in records:
        group.apply(record)
    builder.records.extend(records)


def _check_upgrade(classic: ClassicGroup, settings: GroupSettings) -> None:
    if settings.consumer_migration_policy not in ("bidirectional", "upgrade"):
        raise _refusal(classic.id, "because online upgrade is disabled.")
    if not classic.uses_consumer_protocol:
        raise _refusal(classic.id, "because the group does not use the consumer embedded protocol.")
    if len(classic.members) > settings.consumer_group_size_max:
        raise _refusal(
            classic.id, "because the group size exceeds the consumer group maximum size."
        )


def _refusal(group_id: str, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group {reason}",
    )


def _upgraded_member(
    old: ClassicMember, classic: ClassicGroup, topics: Topics
) -> tuple[Member, Partitions]:
    """Returns a classic member as one of a consumer group, and its assignment as its target."""
    target: Partitions = {}
    if old.assignment:
        assignment = read_assignment(old.assignment)
        if assignment.user_data:
            # A custom assignor of the users passes its own data to members here.
            raise _refusal(
                classic.id,
                "because an unsupported custom assignor is in use. Please refer to the "
                "documentation or switch to a default assignor before re-attempting the upgrade.",
            )
        target = topics.by_id(assigned_partitions(assignment))
    # Before the first generation the members have not agreed on a protocol yet.
    metadata = old.protocols[0][1] if classic.protocol is None else old.metadata(classic.protocol)
    subscription = read_subscription(metadata)
    member = Member(
        old.id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=old.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        client_id=old.client.client_id,
        client_host=old.client.host,
        topic_names=frozenset(subscription.topics),
        assigned={
            topic: dict.fromkeys(numbers, classic.generation) for topic, numbers in target.items()
        },
        classic=ClassicProtocols(
            old.session_timeout_ms,
            tuple((name, bytes(spoken)) for name, spoken in old.protocols),
        ),
    )
    return member, target


def start_downgraded(classic: ClassicGroup, timers: Timers, *, rebalances: bool) -> None:
    """Starts a downgraded group in a decision of its own, after its record has been applied."""

    def begin(builder: DecisionBuilder) -> None:
        for member in classic.members:
            classic.renew(member, builder.now)
        if rebalances:
            classic.prepare_rebalance(builder, "the last consumer member left")

    timers.set(Timer(begin), float("-inf"))


class Downgraded(NamedTuple):
    """The state of a classic successor that its record does not have."""

    # A member has left, or the assignments of members are out of date.
    rebalances: bool


def may_downgrade(
    state: GroupState,
    settings: GroupSettings,
    *,
    leaving: Collection[Member] = (),
    replaced: Member | None = None,
) -> bool:
    """Returns whether only classic members would be left, and the policy allows a downgrade."""
    if replaced is not None:
        left = len(state.members)
        all_classic = replaced.classic is None and state.classic_members == left - 1
    else:
        left = len(state.members) - len(leaving)
        gone = sum(member.classic is not None for member in leaving)
        all_classic = state.classic_members - gone == left
    return (
        all_classic
        and left > 0
        and settings.consumer_migration_policy in ("bidirectional", "downgrade")
        and left <= settings.group_size_max
    )


def downgrade_records(
    state: GroupState,
    topics: Topics,
    leaving: frozenset[str],
    joining: Member | None,
    *,
    now_ms: int,
) -> list[Record]:
    """Returns the tombstones of the consumer group, and the classic group with its targets.

    `joining` is a classic static member that replaces the last consumer member; earlier records of
    the same decision have been written under its own id.
    """
    replaced = state.static_member(joining.instance_id) if joining is not None else None
    members: list[tuple[Member, str]] = []  # each with the id of its target
    ids: list[str] = []
    for member in state.members.values():
        if replaced is not None and joining is not None and member.id == replaced.id:
            ids.append(joining.id)
            continue
        ids.append(member.id)
        if member.id not in leaving:
            members.append((member, member.id))
    if replaced is not None and joining is not None:
        members.append((joining, replaced.id))  # the last, so that it does not lead
    protocol = _protocol([member for member, _ in members])
    written = [
        _classic_member(member, protocol, _assignment(state, topics, member, target_id, protocol))
        for member, target_id in members
    ]
    value = GroupMetadataValue(
        protocol_type=PROTOCOL_TYPE,
        generation=state.epoch,
        protocol=protocol,
        leader=written[0].member_id,
        current_state_timestamp=now_ms,
        members=written,
    )
    return [
        *group_tombstones(state.id, ids, state.resolved),
        Record(GroupMetadataKey(group=state.id), value),
    ]


def _protocol(members: list[Member]) -> str:
    """Returns the protocol that most members prefer, among those that all of them share."""
    spoken = [member.classic.protocols for member in members if member.classic is not None]
    assert len(spoken) == len(members), "a member that is not classic"
    shared = set.intersection(*({name for name, _ in protocols} for protocols in spoken))
    votes: dict[str, int] = {}
    for protocols in spoken:
        best = next(name for name, _ in protocols if name in shared)
        votes[best] = votes.get(best, 0) + 1
    return max(votes, key=votes.__getitem__)


def _metadata(member: Member, protocol: str) -> bytes:
    assert member.classic is not None
    return dict(member.classic.protocols)[protocol]


def _assignment(
    state: GroupState, topics: Topics, member: Member, target_id: str, protocol: str
) -> bytes:
    try:
        version = version_of(_metadata(member, protocol))
    except DecodeError:
        version = 0  # cannot be: JoinGroup would have been refused
    return write_assignment(topics.by_name(state.target.get(target_id, {})), version=version)


def _classic_member(member: Member, protocol: str, assignment: bytes) -> MemberMetadata:
    assert member.classic is not None
    return MemberMetadata(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.classic.session_timeout_ms,
        subscription=_metadata(member, protocol),
        assignment=assignment,
    )


def decide_join(
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
    response = JoinGroupResponse(
        generation_id=updated.epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
        member_id=updated.id,
    )
    return Decision(records, ((token, response),))


def _check_protocols(
    group: ConsumerGroup, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]
) -> None:
    """Checks that all classic members share a protocol, which they need after a downgrade."""
    known = group.state.classic_protocols
    total = group.state.classic_members
    if protocol_type != PROTOCOL_TYPE or not any(
        known.get(name, 0) == total for name, _ in protocols
    ):
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    try:
        return read_subscription(metadata)
    except DecodeError as error:
        # Kafka has no better code for it either.
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


def decide_sync(
    group: ConsumerGroup, token: Token, request: SyncGroupRequest, *, now: float
) -> Decision:
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
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment,
        ),
    )


def decide_heartbeat(
    group: ConsumerGroup, token: Token, request: HeartbeatRequest, *, now: float
) -> Decision:
    """Extends a session. REBALANCE_IN_PROGRESS tells a classic member to join again for its next
    step."""
    code = ErrorCode.NONE
    try:
        member, spoken = _classic(group, request.member_id, request.group_instance_id)
        _check_generation(member, request.generation_id)
        group.deadlines.renew_session(member.id, now + spoken.session_timeout_ms / 1000)
        if (
            member.epoch < group.state.target_epoch
            or member.state is MemberState.UNREVOKED
            or (member.state is MemberState.UNRELEASED and not _waits(group, member))
            or _is_target_stuck(group)
        ):
            _await_join(group, member, now)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except ApiError as refusal:
        code = refusal.code
    return reply(token, HeartbeatResponse(error_code=code))


def _is_target_stuck(group: ConsumerGroup) -> bool:
    """Returns whether no heartbeat of a consumer member will compute the target that is due.

    Kafka leaves such a group stuck, which happens if the policy forbids a downgrade. The JoinGroup
    that follows computes the target.
    """
    state = group.state
    return state.epoch > state.target_epoch and state.classic_members == len(state.members)


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Returns whether others still hold partitions of the member's target."""
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


def decide_leave(
    group: ConsumerGroup, identities: Iterable[MemberIdentity], *, now_ms: int
) -> tuple[list[MemberResponse], Decision]:
    """Removes members by LeaveGroup, which an administrator may also send for consumer members."""
    leaving: list[Member] = []
    results: list[MemberResponse] = []
    for identity in identities:
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
    return results, group.remove(leaving, now_ms)


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> Member:
    if identity.group_instance_id is None:
        return group.known_member(identity.member_id, create=False)
    holder = group.state.static_member(identity.group_instance_id)
    if not identity.member_id and holder is not None:
        return holder
    return group.holder(identity.member_id, identity.group_instance_id)
