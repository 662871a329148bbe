"""Looking at the groups of a shard, deleting them, and letting their offsets expire."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from headwater.errors import ErrorCode
from headwater.groups.classic.group import ClassicGroup, State
from headwater.groups.classic.roster import Member
from headwater.groups.decision import DecisionBuilder
from headwater.groups.modern import ModernGroup
from headwater.groups.offsets import Offsets
from headwater.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from headwater.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headwater.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from headwater.protocol.messages.list_groups import ListedGroup
from headwater.protocol.records.group_offsets import GroupMetadataKey

Groups = Mapping[str, ClassicGroup | ModernGroup]

_EXPIRED_MAX = 1000
# From this version on a group that is not there is an error, and not only dead (KIP-1043).
_NOT_FOUND_SINCE = 6


def describe(groups: Groups, group_ids: Iterable[str], *, version: int) -> list[DescribedGroup]:
    """Classic groups with their members; any other is not here, as this API cannot show it."""
    return [_describe(groups.get(group_id), group_id, version) for group_id in group_ids]


def _describe(
    group: ClassicGroup | ModernGroup | None, group_id: str, version: int
) -> DescribedGroup:
    if isinstance(group, ClassicGroup):
        is_stable = group.state is State.STABLE
        return DescribedGroup(
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.protocol_type or "",
            protocol_data=(group.protocol or "") if is_stable else "",
            members=[
                _describe_member(member, group.protocol if is_stable else None)
                for member in group.roster
            ],
        )
    missing = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
    if version >= _NOT_FOUND_SINCE:
        missing.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        missing.error_message = (
            f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a classic group."
        )
    return missing


def _describe_member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def consumer_describe(groups: Groups, group_ids: Iterable[str]) -> list[DescribedConsumerGroup]:
    described = []
    for group_id in group_ids:
        group = groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            missing = "not found." if group is None else "is not a consumer group."
            described.append(
                DescribedConsumerGroup(
                    group_id=group_id,
                    error_code=ErrorCode.GROUP_ID_NOT_FOUND,
                    error_message=f"Group {group_id} {missing}",
                )
            )
        else:
            described.append(group.describe())
    return described


def list_groups(
    groups: Groups, states: Collection[str], types: Collection[str]
) -> list[ListedGroup]:
    """Those in one of the states and of one of the types; none named means all."""
    in_states = {state.lower().strip() for state in states}
    of_types = {kind.lower() for kind in types}
    listed = []
    for group_id, group in groups.items():
        if isinstance(group, ClassicGroup):
            kind, state, protocol_type = "classic", group.state.value, group.protocol_type or ""
        else:
            kind, state, protocol_type = "consumer", group.state_name, "consumer"
        if (not in_states or state.lower() in in_states) and (not of_types or kind in of_types):
            listed.append(
                ListedGroup(
                    group_id=group_id,
                    protocol_type=protocol_type,
                    group_state=state,
                    group_type=kind,
                )
            )
    return listed


def delete_groups(
    groups: Groups, offsets: Offsets, group_ids: Iterable[str], builder: DecisionBuilder
) -> DeleteGroupsResponse:
    results = []
    builder.is_atomic = False
    for group_id in dict.fromkeys(group_ids):
        group = groups.get(group_id)
        if group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif not group.is_empty:
            code = ErrorCode.NON_EMPTY_GROUP
        else:
            code = ErrorCode.NONE
            builder.records.extend(offsets.tombstones(group_id))
            _bury(group_id, group, builder)
        results.append(DeletableGroupResult(group_id=group_id, error_code=code))
    return DeleteGroupsResponse(results=results)


def expire(
    groups: Groups, offsets: Offsets, builder: DecisionBuilder, *, retention_ms: int
) -> bool:
    """Forgets offsets that nobody has used for too long, and groups of which nothing is left.

    One turn is one batch, and forgets only so many; whether more may be left to forget."""
    for group_id, group in groups.items():
        expired, nothing_left = offsets.expired(
            group_id,
            now_ms=builder.now_ms,
            retention_ms=retention_ms,
            base_ms=group.expires_from_ms if isinstance(group, ClassicGroup) else _since_commit,
            is_subscribed=group.is_subscribed,
            count_max=_EXPIRED_MAX - len(builder.records),
        )
        builder.records.extend(expired)
        if len(builder.records) >= _EXPIRED_MAX:
            return True
        if nothing_left and group.is_empty:
            _bury(group_id, group, builder)
    return False


def _since_commit(commit_ms: int) -> int:
    """Offsets of a consumer group count from their commit, if nobody subscribes to the topic."""
    return commit_ms


def _bury(group_id: str, group: ClassicGroup | ModernGroup, builder: DecisionBuilder) -> None:
    if isinstance(group, ClassicGroup):
        builder.write(GroupMetadataKey(group=group_id), None)
    else:
        builder.records.extend(group.tombstones())
