"""A group as the cluster tells of it, whatever its kind: its state, its members, what they read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headwater.client.admin.operations import operations
from headwater.model import TopicPartition
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    assigned_partitions,
    read_assignment,
    read_topics,
)
from headwater.protocol.signs import Signs, read_signs

if TYPE_CHECKING:
    from headwater.protocol.messages import (
        consumer_group_describe,
        describe_groups,
        share_group_describe,
        streams_group_describe,
    )

Partitions = frozenset[TopicPartition]

_CLASSIC_MEMBER = 0  # in ConsumerGroupDescribe: a member that still speaks the classic protocol


@dataclass(frozen=True, slots=True)
class Member:
    """A member. `epoch`, `rack` and `target`, which it is on its way to, are of the newer kinds
    only; `signs` are Headwater's alone."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assigned: Partitions = frozenset()
    epoch: int | None = None
    target: Partitions | None = None
    is_classic: bool = True
    signs: Signs | None = None
    rack: str | None = None
    topics: frozenset[str] = frozenset()
    pattern: str | None = None

    @property
    def name(self) -> str:
        """How a person finds it: by instance id if it has one, and the host it is on."""
        return f"{self.instance_id or self.client_id or self.id} ({self.host.lstrip('/')})"


@dataclass(frozen=True, slots=True)
class Group:
    """A group that exists. `coordinator` is the address of the node that leads it."""

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


def consumer_group(about: consumer_group_describe.DescribedGroup, coordinator: str) -> Group:
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
                signs=read_signs(each.unknown_tags),
                rack=each.rack_id,
                topics=frozenset(each.subscribed_topic_names),
                pattern=each.subscribed_topic_regex or None,
            )
            for each in about.members
        ),
        operations=operations(about.authorized_operations),
    )


def classic_group(about: describe_groups.DescribedGroup, coordinator: str) -> Group:
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
                signs=read_signs(each.unknown_tags),
                topics=_subscribed(each.member_metadata) if reads_topics else frozenset(),
            )
            for each in about.members
        ),
        operations=operations(about.authorized_operations),
    )


def share_group(about: share_group_describe.DescribedGroup, coordinator: str) -> Group:
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
        operations=operations(about.authorized_operations),
    )


def streams_group(about: streams_group_describe.DescribedGroup, coordinator: str) -> Group:
    """Of Kafka Streams. A task reads its partition of every topic that its subtopology begins
    with."""
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
        operations=operations(about.authorized_operations),
    )


class _TopicPartitions(Protocol):
    """The same in the answers for both kinds of groups."""

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
