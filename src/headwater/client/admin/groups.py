"""Groups of every kind: list, describe, delete, and putting members out of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.client.admin.group_answers import (
    Group,
    classic_group,
    consumer_group,
    share_group,
    streams_group,
)
from headwater.client.admin.results import check, only, outcome
from headwater.client.errors import ClientError, GroupNotFound, error_for
from headwater.errors import ErrorCode
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headwater.protocol.messages.delete_groups import DeleteGroupsRequest
from headwater.protocol.messages.describe_groups import DescribeGroupsRequest
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.list_groups import ListGroupsRequest
from headwater.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from headwater.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from headwater.protocol.signs import asks_for_signs

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

_STATES_SINCE = 4  # from these versions on ListGroups tells states and types, and filters by them
_TYPES_SINCE = 5
_SIGNS_SINCE = 5  # from this one on DescribeGroups has tags, and so a place for our own question
_MANY_MEMBERS_SINCE = 3  # of LeaveGroup

# There is none of this name and kind; another kind may have one.
_NOT_OF_THIS_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


@dataclass(frozen=True, slots=True)
class GroupListed:
    """A group in a list. An older broker tells no state and no type."""

    id: str
    type: str | None
    state: str | None
    protocol_type: str


async def list_groups(
    admin: Admin,
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    timeout_ms: int | None = None,
) -> list[GroupListed]:
    """Every group, or those in these states (`Stable`, `Empty`) and of these types (`classic`,
    `consumer`, `share`, `streams`). In a list of older brokers, which tell neither, no filter finds
    any."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    answers = await admin.router.every_node(ListGroupsRequest(), timeout_ms=timeout_ms)
    found: dict[str, GroupListed] = {}
    for node_id, answer in answers.items():
        if isinstance(answer, ClientError):
            raise answer
        check(answer.error_code, f"the groups of node {node_id}")
        # Filtered here: older brokers cannot, and newer ones differ in how they spell the states.
        for each in answer.groups:
            if (not wanted_states or each.group_state.lower() in wanted_states) and (
                not wanted_types or each.group_type.lower() in wanted_types
            ):
                found[each.group_id] = GroupListed(
                    id=each.group_id,
                    type=each.group_type.lower() or None,
                    state=each.group_state or None,
                    protocol_type=each.protocol_type,
                )
    return [found[group_id] for group_id in sorted(found)]


async def describe_group(
    admin: Admin, group_id: str, *, operations: bool = False, timeout_ms: int | None = None
) -> Group:
    """A group with its members and what each of them reads; `GroupNotFound` if there is none."""
    return only(
        await describe_groups(admin, [group_id], operations=operations, timeout_ms=timeout_ms)
    )


async def describe_groups(
    admin: Admin,
    group_ids: Iterable[str],
    *,
    operations: bool = False,
    timeout_ms: int | None = None,
) -> dict[str, Group | ClientError]:
    """Groups of any kind. A name says nothing of the kind, so it is asked for as each in turn, as
    Kafka's own tools do: with the consumer protocol, the classic one, as a share group, as one of
    Kafka Streams."""
    deadline = admin.router.deadline(timeout_ms)
    wanted = list(dict.fromkeys(group_ids))
    found: dict[str, Group | ClientError] = {}
    for describe in (_describe_consumer, _describe_classic, _describe_share, _describe_streams):
        missing = [each for each in wanted if each not in found or _may_be_another(found[each])]
        if missing:
            found |= {
                key: result
                for key, result in (await describe(admin, missing, operations, deadline)).items()
                if key not in found or not isinstance(result, GroupNotFound)
            }
    return {key: found[key] for key in wanted}


def _may_be_another(result: Group | ClientError) -> bool:
    return isinstance(result, ClientError) and result.code in _NOT_OF_THIS_KIND


async def _describe_consumer(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    def request(keys: list[str]) -> ConsumerGroupDescribeRequest:
        return ConsumerGroupDescribeRequest(
            group_ids=keys,
            include_authorized_operations=operations,
            unknown_tags=asks_for_signs(),
        )

    return await _described(admin, group_ids, request, consumer_group, deadline)


async def _describe_share(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    def request(keys: list[str]) -> ShareGroupDescribeRequest:
        return ShareGroupDescribeRequest(group_ids=keys, include_authorized_operations=operations)

    return await _described(admin, group_ids, request, share_group, deadline)


async def _describe_streams(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    def request(keys: list[str]) -> StreamsGroupDescribeRequest:
        return StreamsGroupDescribeRequest(group_ids=keys, include_authorized_operations=operations)

    return await _described(admin, group_ids, request, streams_group, deadline)


async def _described(
    admin: Admin,
    group_ids: Sequence[str],
    request: Callable[[list[str]], Message],
    read: Callable[[Any, str], Group],
    deadline: float,
) -> Mapping[str, Group | ClientError]:
    """Groups of one of the newer kinds; none where brokers do not know that kind."""
    api = type(request([])).API
    assert api is not None
    if not await admin.router.serves(ApiKey(api), deadline):
        return {}

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, Group | ClientError]:
        answer = await admin.router.ask(node, request(list(keys)), deadline)
        return {
            each.group_id: error_for(each.error_code, f"group {each.group_id}", each.error_message)
            if each.error_code
            else read(each, str(node.address))
            for each in answer.groups
        }

    return await admin.router.by_coordinator(group_ids, ask, deadline=deadline)


async def _describe_classic(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, Group | ClientError]:
        request = DescribeGroupsRequest(groups=list(keys))
        version = node.version(ApiKey.DESCRIBE_GROUPS)
        if version is not None and version >= _SIGNS_SINCE:
            request.unknown_tags = asks_for_signs()
            request.include_authorized_operations = operations
        answer = await admin.router.ask(node, request, deadline)
        results: dict[str, Group | ClientError] = {}
        for each in answer.groups:
            # Before version 6 a group that is not there is said to be dead.
            code = each.error_code
            if not code and each.group_state == "Dead":
                code = ErrorCode.GROUP_ID_NOT_FOUND
            what = f"group {each.group_id}"
            results[each.group_id] = (
                error_for(code, what, each.error_message)
                if code
                else classic_group(each, str(node.address))
            )
        return results

    return await admin.router.by_coordinator(group_ids, ask, deadline=deadline)


async def delete_group(admin: Admin, group_id: str, *, timeout_ms: int | None = None) -> None:
    """Deletes a group that has no members, with its offsets."""
    only(await delete_groups(admin, [group_id], timeout_ms=timeout_ms))


async def delete_groups(
    admin: Admin, group_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    """Deletes groups that have no members, with their offsets; None stands for one that is gone."""

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, ClientError | None]:
        answer = await admin.router.ask(
            node, DeleteGroupsRequest(groups_names=list(keys)), deadline
        )
        return {
            each.group_id: outcome(each.error_code, f"group {each.group_id}", each.error_message)
            for each in answer.results
        }

    return await admin.router.by_coordinator(
        list(dict.fromkeys(group_ids)), ask, timeout_ms=timeout_ms
    )


async def remove_members(
    admin: Admin,
    group_id: str,
    *,
    instance_ids: Iterable[str] = (),
    member_ids: Iterable[str] = (),
    all_members: bool = False,
    reason: str | None = None,
    timeout_ms: int | None = None,
) -> dict[str, ClientError | None]:
    """Puts members out of a group, so that others need not wait for their sessions to end: static
    ones by `instance_ids`, others by `member_ids`, or `all_members`. A member that lives comes
    back by itself."""
    deadline = admin.router.deadline(timeout_ms)
    wanted = {each: MemberIdentity(member_id="", group_instance_id=each) for each in instance_ids}
    wanted |= {each: MemberIdentity(member_id=each) for each in member_ids}
    if all_members:
        group = await describe_group(admin, group_id, timeout_ms=timeout_ms)
        for member in group.members:
            if member.instance_id is None:
                wanted[member.id] = MemberIdentity(member_id=member.id)
            else:
                wanted[member.instance_id] = MemberIdentity(
                    member_id="", group_instance_id=member.instance_id
                )
    if not wanted:
        return {}
    for identity in wanted.values():
        identity.reason = reason

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, dict[str, ClientError | None] | ClientError]:
        request = LeaveGroupRequest(group_id=group_id, members=list(wanted.values()))
        answer = await admin.router.ask(node, request, deadline, at_least=_MANY_MEMBERS_SINCE)
        if answer.error_code:
            return {group_id: error_for(answer.error_code, f"group {group_id}")}
        results = {}
        for each in answer.members:
            name = each.group_instance_id or each.member_id
            what = f"member {name} of group {group_id}"
            results[name] = outcome(each.error_code, what, _why_it_stays(each.error_code))
        return {group_id: results}

    return only(await admin.router.by_coordinator([group_id], ask, deadline=deadline))


def _why_it_stays(code: int) -> str | None:
    """The code means something else to the member itself."""
    return "it is not in the group" if code == ErrorCode.UNKNOWN_MEMBER_ID else None
