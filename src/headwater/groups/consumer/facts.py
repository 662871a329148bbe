"""The records of a consumer group, as Kafka writes them."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.groups.consumer.assignment import Partitions
from headwater.groups.consumer.member import ClassicProtocols, Held, Member
from headwater.groups.decision import Record
from headwater.protocol.records.group_consumer import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)


def group_epoch(group: str, epoch: int, metadata_hash: int) -> Record:
    return Record(
        ConsumerGroupMetadataKey(group_id=group),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_metadata(group: str, member: Member) -> Record:
    return Record(
        ConsumerGroupMemberMetadataKey(group_id=group, member_id=member.id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=_classic(member.classic),
        ),
    )


def _classic(spoken: ClassicProtocols | None) -> ClassicMemberMetadata | None:
    if spoken is None:
        return None
    return ClassicMemberMetadata(
        session_timeout_ms=spoken.session_timeout_ms,
        supported_protocols=[
            ClassicProtocol(name=name, metadata=metadata) for name, metadata in spoken.protocols
        ],
    )


def target_epoch(group: str, epoch: int, timestamp_ms: int) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target(group: str, member_id: str, partitions: Partitions) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in partitions.items()
            ]
        ),
    )


def progress(group: str, member: Member) -> Record:
    return Record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member.id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.epoch,
            previous_member_epoch=member.previous_epoch,
            state=int(member.state),
            assigned_partitions=_topics(member.assigned),
            partitions_pending_revocation=_topics(member.revoking),
        ),
    )


def _topics(held: Held) -> list[TopicPartitions]:
    return [
        TopicPartitions(
            topic_id=topic,
            partitions=sorted(epochs),
            assignment_epochs=[epochs[partition] for partition in sorted(epochs)],
        )
        for topic, epochs in held.items()
    ]


def regex(group: str, pattern: str, topics: Iterable[str], version: int, now_ms: int) -> Record:
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=now_ms
        ),
    )


def regex_gone(group: str, pattern: str) -> Record:
    key = ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=pattern)
    return Record(key, None)


def member_gone(group: str, member_id: str) -> list[Record]:
    """In this order: what a member holds goes before the member does."""
    return [
        progress_gone(group, member_id),
        target_gone(group, member_id),
        metadata_gone(group, member_id),
    ]


def progress_gone(group: str, member_id: str) -> Record:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id)
    return Record(key, None)


def target_gone(group: str, member_id: str) -> Record:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id)
    return Record(key, None)


def metadata_gone(group: str, member_id: str) -> Record:
    return Record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id), None)


def partition_metadata_gone(group: str) -> Record:
    """Versions before 4.1 kept the topics' partitions in a record of their own."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group), None)


def group_gone(group: str, members: Iterable[str], regexes: Iterable[str]) -> list[Record]:
    names = list(members)
    return [
        *(progress_gone(group, member) for member in names),
        *(target_gone(group, member) for member in names),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), None),
        *(metadata_gone(group, member) for member in names),
        *(regex_gone(group, pattern) for pattern in regexes),
        partition_metadata_gone(group),
        Record(ConsumerGroupMetadataKey(group_id=group), None),
    ]
