"""A group as the cluster tells of it: its state, its members, and what each of them reads."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headwater.cli.connection import Cluster, code_name
from headwater.cli.errors import CommandError
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol import DecodeError, decode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages import consumer_group_describe, describe_groups
from headwater.protocol.records.membership import ConsumerProtocolAssignment
from headwater.protocol.signs import Signs, asks_for_signs, read_signs

Partitions = frozenset[TopicPartition]

_CONSUMER_PROTOCOL = "consumer"
_CLASSIC_MEMBER = 0  # in ConsumerGroupDescribe: a member that still speaks the classic protocol
_VERSION_BYTES = 2


@dataclass(frozen=True, slots=True)
class Member:
    """A member. `epoch` and `target` are of consumer groups only; `signs` are Headwater's alone."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assigned: Partitions = frozenset()
    epoch: int | None = None
    target: Partitions | None = None
    is_classic: bool = True
    signs: Signs | None = None

    @property
    def name(self) -> str:
        """How a person finds it: by instance id if it has one, and the host it is on."""
        return f"{self.instance_id or self.client_id or self.id} ({self.host.lstrip('/')})"


@dataclass(frozen=True, slots=True)
class Group:
    """A group that exists."""

    id: str
    kind: str  # classic or consumer
    state: str
    coordinator: str
    protocol_type: str = _CONSUMER_PROTOCOL
    assignor: str = ""
    epoch: int | None = None
    assignment_epoch: int | None = None
    members: tuple[Member, ...] = ()

    @property
    def is_empty(self) -> bool:
        return not self.members and self.state in ("Empty", "Dead")

    def owner(self, partition: TopicPartition) -> Member | None:
        return next((each for each in self.members if partition in each.assigned), None)


def find_group(cluster: Cluster, group_id: str) -> Group | None:
    """The group by either protocol, or None if there is none of this name."""
    node = cluster.coordinator(group_id)
    if node.version(ApiKey.CONSUMER_GROUP_DESCRIBE) is not None:
        found = _find_consumer_group(cluster, group_id)
        if found is not None:
            return found
    return _find_classic_group(cluster, group_id)


def require_group(cluster: Cluster, group_id: str) -> Group:
    group = find_group(cluster, group_id)
    if group is None:
        raise CommandError(
            f"there is no group {group_id}", then="`headwater group list` shows those there are"
        )
    return group


def _find_consumer_group(cluster: Cluster, group_id: str) -> Group | None:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=[group_id], include_authorized_operations=False, unknown_tags=asks_for_signs()
    )
    answer = cluster.ask_coordinator(group_id, request, lambda got: int(got.groups[0].error_code))
    about: consumer_group_describe.DescribedGroup = answer.groups[0]
    if about.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None
    _check(about.error_code, about.error_message, group_id)
    return Group(
        id=group_id,
        kind="consumer",
        state=about.group_state,
        coordinator=cluster.coordinator(group_id).address,
        assignor=about.assignor_name,
        epoch=about.group_epoch,
        assignment_epoch=about.assignment_epoch,
        members=tuple(
            Member(
                id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                instance_id=each.instance_id,
                assigned=_named(each.assignment),
                epoch=each.member_epoch,
                target=_named(each.target_assignment),
                is_classic=each.member_type == _CLASSIC_MEMBER,
                signs=read_signs(each.unknown_tags),
            )
            for each in about.members
        ),
    )


def _find_classic_group(cluster: Cluster, group_id: str) -> Group | None:
    request = describe_groups.DescribeGroupsRequest(groups=[group_id])
    if (cluster.coordinator(group_id).version(ApiKey.DESCRIBE_GROUPS) or 0) >= _TAGS_SINCE:
        request.unknown_tags = asks_for_signs()
    answer = cluster.ask_coordinator(group_id, request, lambda got: int(got.groups[0].error_code))
    about: describe_groups.DescribedGroup = answer.groups[0]
    if about.error_code == ErrorCode.GROUP_ID_NOT_FOUND or about.group_state == "Dead":
        return None
    _check(about.error_code, about.error_message, group_id)
    reads_topics = about.protocol_type == _CONSUMER_PROTOCOL
    return Group(
        id=group_id,
        kind="classic",
        state=about.group_state,
        coordinator=cluster.coordinator(group_id).address,
        protocol_type=about.protocol_type,
        assignor=about.protocol_data,
        members=tuple(
            Member(
                id=each.member_id,
                client_id=each.client_id,
                host=each.client_host,
                instance_id=each.group_instance_id,
                assigned=_embedded(each.member_assignment) if reads_topics else frozenset(),
                signs=read_signs(each.unknown_tags),
            )
            for each in about.members
        ),
    )


# From this version on DescribeGroups has tagged fields, and so a place for a question of our own.
_TAGS_SINCE = 5


def _check(code: int, message: str | None, group_id: str) -> None:
    if code:
        what = message or code_name(code)
        raise CommandError(f"group {group_id} cannot be described: {what}")


def _named(assignment: consumer_group_describe.Assignment) -> Partitions:
    return frozenset(
        TopicPartition(topic.topic_name, partition)
        for topic in assignment.topic_partitions
        for partition in topic.partitions
    )


def _embedded(assignment: bytes) -> Partitions:
    """What a classic consumer was assigned. Every version begins like version 0."""
    try:
        read = decode(ConsumerProtocolAssignment, assignment, 0, _VERSION_BYTES)
    except DecodeError:
        return frozenset()  # not in a generation yet, or in a language of its own
    return frozenset(
        TopicPartition(topic.topic, partition)
        for topic in read.assigned_partitions
        for partition in topic.partitions
    )


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """Partitions by topic, in order: `orders:0,1 clicks:3`."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items())
