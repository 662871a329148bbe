"""Groups of every kind: list, describe, delete, and removing members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headwater.client.admin.results import check, only, outcome
from headwater.client.errors import ClientError, GroupNotFound, error_for
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol import DecodeError, Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    read_assignment,
    read_topics,
)
from headwater.protocol.liveness import MemberLiveness, asks_for_liveness, read_liveness
from headwater.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headwater.protocol.messages.delete_groups import DeleteGroupsRequest
from headwater.protocol.messages.describe_groups import DescribeGroupsRequest
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.list_groups import ListGroupsRequest
from headwater.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from headwater.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from headwater.security.operations import operation_names

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection
    from headwater.protocol.messages import (
        consumer_group_describe,
        share_group_describe,
        streams_group_describe,
    )
    from headwater.protocol.messages import (
        describe_groups as describe_groups_messages,
    )

_TYPES_SINCE = 5  # from this version on ListGroups tells types, and filters by them
_LIVENESS_SINCE = 5  # from this version on DescribeGroups has tags, for a request of our own
_MANY_MEMBERS_SINCE = 3  # of LeaveGroup

# No group of this name and kind; another kind may have one.
_NOT_OF_THIS_KIND = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


Partitions = frozenset[TopicPartition]

_CLASSIC_MEMBER = 0  # in ConsumerGroupDescribe: a member that still uses the classic protocol


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group. Only the newer kinds have `epoch`, `rack` and `target` (the assignment
    that it is moving to); only Headwater has `liveness`."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assigned: Partitions = frozenset()
    epoch: int | None = None
    target: Partitions | None = None
    is_classic: bool = True
    liveness: MemberLiveness | None = None
    rack: str | None = None
    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def name(self) -> str:
        """A name for people: the instance id if there is one, and the host."""
        return f"{self.instance_id or self.client_id or self.id} ({self.host.lstrip('/')})"


@dataclass(frozen=True, slots=True)
class Group:
    """A group. `coordinator` is the address of the broker that coordinates it."""

    id: str
    kind: str  # classic, consumer, share or streams
    state: str
    coordinator: str
    protocol_type: str = PROTOCOL_TYPE
    assignor: str = ""
    epoch: int | None = None
    assignment_epoch: int | None = None
    members: tuple[Member, ...] = ()
    operations: frozenset[str] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.members and self.state in ("Empty", "Dead")

    def owner(self, partition: TopicPartition) -> Member | None:
        return next((each for each in self.members if partition in each.assigned), None)


@dataclass(frozen=True, slots=True)
class GroupListed:
    """An entry of a list of groups. Older brokers tell no state and no type."""

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
    """Returns all groups, or those in these states (`Stable`, `Empty`) and of these types
    (`classic`, `consumer`, `share`, `streams`). Older brokers tell neither, so a filter matches
    none of their groups."""
    wanted_states = {state.lower() for state in states}
    wanted_types = {kind.lower() for kind in types}
    answers = await admin._router.every_node(ListGroupsRequest(), timeout_ms=timeout_ms)
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
    """Returns a group with its members and their partitions. Raises GroupNotFound."""
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
    """Describes groups of any kind. A name does not tell the kind, so each is tried in turn, as
    Kafka's tools do: consumer, classic, share, streams."""
    deadline = admin._router.deadline(timeout_ms)
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
            unknown_tags=asks_for_liveness(),
        )

    return await _described(admin, group_ids, request, _consumer_group, deadline)


async def _describe_share(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    def request(keys: list[str]) -> ShareGroupDescribeRequest:
        return ShareGroupDescribeRequest(group_ids=keys, include_authorized_operations=operations)

    return await _described(admin, group_ids, request, _share_group, deadline)


async def _describe_streams(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    def request(keys: list[str]) -> StreamsGroupDescribeRequest:
        return StreamsGroupDescribeRequest(group_ids=keys, include_authorized_operations=operations)

    return await _described(admin, group_ids, request, _streams_group, deadline)


async def _described(
    admin: Admin,
    group_ids: Sequence[str],
    request: Callable[[list[str]], Message],
    read: Callable[[Any, str], Group],
    deadline: float,
) -> Mapping[str, Group | ClientError]:
    """Describes groups of one of the newer kinds; returns none if the brokers do not know it."""
    api = type(request([])).API
    assert api is not None
    if not await admin._router.serves(ApiKey(api), deadline):
        return {}

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, Group | ClientError]:
        answer = await admin._router.ask(node, request(list(keys)), deadline)
        return {
            each.group_id: error_for(each.error_code, f"group {each.group_id}", each.error_message)
            if each.error_code
            else read(each, str(node.address))
            for each in answer.groups
        }

    return await admin._router.by_coordinator(group_ids, ask, deadline=deadline)


async def _describe_classic(
    admin: Admin, group_ids: Sequence[str], operations: bool, deadline: float
) -> Mapping[str, Group | ClientError]:
    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, Group | ClientError]:
        request = DescribeGroupsRequest(groups=list(keys))
        version = node.version(ApiKey.DESCRIBE_GROUPS)
        if version is not None and version >= _LIVENESS_SINCE:
            request.unknown_tags = asks_for_liveness()
            request.include_authorized_operations = operations
        answer = await admin._router.ask(node, request, deadline)
        results: dict[str, Group | ClientError] = {}
        for each in answer.groups:
            # Before version 6 a group that does not exist is reported as dead.
            code = each.error_code
            if not code and each.group_state == "Dead":
                code = ErrorCode.GROUP_ID_NOT_FOUND
            what = f"group {each.group_id}"
            results[each.group_id] = (
                error_for(code, what, each.error_message)
                if code
                else _classic_group(each, str(node.address))
            )
        return results

    return await admin._router.by_coordinator(group_ids, ask, deadline=deadline)


async def delete_group(admin: Admin, group_id: str, *, timeout_ms: int | None = None) -> None:
    """Deletes a group that has no members, with its offsets."""
    only(await delete_groups(admin, [group_id], timeout_ms=timeout_ms))


async def delete_groups(
    admin: Admin, group_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ClientError | None]:
    """Deletes groups that have no members, with offsets; returns the error of each, or None."""

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, ClientError | None]:
        answer = await admin._router.ask(
            node, DeleteGroupsRequest(groups_names=list(keys)), deadline
        )
        return {
            each.group_id: outcome(each.error_code, f"group {each.group_id}", each.error_message)
            for each in answer.results
        }

    return await admin._router.by_coordinator(
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
    """Removes members from a group, so that it need not wait for their sessions to end: static
    members by `instance_ids`, others by `member_ids`, or `all_members`. A member that is alive
    rejoins. Returns the error of each, or None."""
    deadline = admin._router.deadline(timeout_ms)
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
        answer = await admin._router.ask(node, request, deadline, at_least=_MANY_MEMBERS_SINCE)
        if answer.error_code:
            return {group_id: error_for(answer.error_code, f"group {group_id}")}
        results = {}
        for each in answer.members:
            name = each.group_instance_id or each.member_id
            what = f"member {name} of group {group_id}"
            results[name] = outcome(each.error_code, what, _why_it_stays(each.error_code))
        return {group_id: results}

    return only(await admin._router.by_coordinator([group_id], ask, deadline=deadline))


def _why_it_stays(code: int) -> str | None:
    """Explains a code that means something else to the member itself."""
    return "it is not in the group" if code == ErrorCode.UNKNOWN_MEMBER_ID else None


# Reading descriptions


def _consumer_group(about: consumer_group_describe.DescribedGroup, coordinator: str) -> Group:
    return Group(
        id=about.group_id,
        kind="consumer",
        state=about.group_state,
        coordinator=coordinator,
        assignor=about.assignor_name,
        epoch=about.group_epoch,
        assignment_epoch=about.assignment_epoch,
        members=tuple(
            Member(
                id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                instance_id=each.instance_id,
                assigned=_named(each.assignment.topic_partitions),
                epoch=each.member_epoch,
                target=_named(each.target_assignment.topic_partitions),
                is_classic=each.member_type == _CLASSIC_MEMBER,
                liveness=read_liveness(each.unknown_tags),
                rack=each.rack_id,
                topics=frozenset(each.subscribed_topic_names),
                pattern=each.subscribed_topic_regex or None,
            )
            for each in about.members
        ),
        operations=operation_names(about.authorized_operations),
    )


def _classic_group(about: describe_groups_messages.DescribedGroup, coordinator: str) -> Group:
    reads_topics = about.protocol_type == PROTOCOL_TYPE
    return Group(
        id=about.group_id,
        kind="classic",
        state=about.group_state,
        coordinator=coordinator,
        protocol_type=about.protocol_type,
        assignor=about.protocol_data,
        members=tuple(
            Member(
                id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                instance_id=each.group_instance_id,
                assigned=_assigned(each.member_assignment) if reads_topics else frozenset(),
                liveness=read_liveness(each.unknown_tags),
                topics=_subscribed(each.member_metadata) if reads_topics else frozenset(),
            )
            for each in about.members
        ),
        operations=operation_names(about.authorized_operations),
    )


def _share_group(about: share_group_describe.DescribedGroup, coordinator: str) -> Group:
    return Group(
        id=about.group_id,
        kind="share",
        state=about.group_state,
        coordinator=coordinator,
        protocol_type="share",
        assignor=about.assignor_name,
        epoch=about.group_epoch,
        assignment_epoch=about.assignment_epoch,
        members=tuple(
            Member(
                id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                assigned=_named(each.assignment.topic_partitions),
                epoch=each.member_epoch,
                is_classic=False,
                rack=each.rack_id,
                topics=frozenset(each.subscribed_topic_names),
            )
            for each in about.members
        ),
        operations=operation_names(about.authorized_operations),
    )


def _streams_group(about: streams_group_describe.DescribedGroup, coordinator: str) -> Group:
    """Reads a group of Kafka Streams. A task reads its partition of every source topic of its
    subtopology."""
    sources: dict[str, list[str]] = {}
    if about.topology is not None:
        for each in about.topology.subtopologies or ():
            repartitioned = [topic.name for topic in each.repartition_source_topics]
            sources[each.subtopology_id] = [*each.source_topics, *repartitioned]

    def reads(given: streams_group_describe.Assignment) -> Partitions:
        return frozenset(
            TopicPartition(topic, number)
            for tasks in given.active_tasks
            for topic in sources.get(tasks.subtopology_id, ())
            for number in tasks.partitions
        )

    return Group(
        id=about.group_id,
        kind="streams",
        state=about.group_state,
        coordinator=coordinator,
        protocol_type="streams",
        assignor=about.assignor_name or "",
        epoch=about.group_epoch,
        assignment_epoch=about.assignment_epoch,
        members=tuple(
            Member(
                id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                instance_id=each.instance_id,
                assigned=reads(each.assignment),
                epoch=each.member_epoch,
                target=reads(each.target_assignment),
                is_classic=each.is_classic,
                rack=each.rack_id,
                topics=frozenset(topic for topics in sources.values() for topic in topics),
            )
            for each in about.members
        ),
        operations=operation_names(about.authorized_operations),
    )


class _TopicPartitions(Protocol):
    """The part that is alike in the responses for all kinds of groups."""

    topic_name: str
    partitions: list[int]


def _named(topics: Iterable[_TopicPartitions]) -> Partitions:
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in topics
        for partition in topic.partitions
    )


def _assigned(assignment: bytes) -> Partitions:
    """Returns the partitions that a classic consumer was assigned."""
    try:
        return frozenset(assigned_partitions(read_assignment(assignment)))
    except DecodeError:
        return frozenset()  # not in a generation yet, or not a consumer


def _subscribed(metadata: bytes) -> frozenset[str]:
    try:
        return frozenset(read_topics(metadata))
    except DecodeError:
        return frozenset()
