"""The records of a consumer group, as Kafka writes them."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.coordination import Record
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.member import ClassicProtocols, Held, Member
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


def group_epoch_record(group: str, epoch: int, metadata_hash: int) -> Record:
    return Record(
        ConsumerGroupMetadataKey(group_id=group),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def member_record(group: str, member: Member) -> Record:
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


def target_epoch_record(group: str, epoch: int, timestamp_ms: int) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=timestamp_ms
        ),
    )


def target_record(group: str, member_id: str, partitions: Partitions) -> Record:
    return Record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic, partitions=sorted(numbers))
                for topic, numbers in partitions.items()
            ]
        ),
    )


def progress_record(group: str, member: Member) -> Record:
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


def regex_record(
    group: str, pattern: str, topics: Iterable[str], version: int, now_ms: int
) -> Record:
    return Record(
        ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(
            topics=sorted(topics), version=version, timestamp=now_ms
        ),
    )


def regex_tombstone(group: str, pattern: str) -> Record:
    key = ConsumerGroupRegularExpressionKey(group_id=group, regular_expression=pattern)
    return Record(key, None)


def member_tombstones(group: str, member_id: str) -> list[Record]:
    """Returns the tombstones in this order: a member's partitions go before the member."""
    return [
        _progress_tombstone(group, member_id),
        _target_tombstone(group, member_id),
        _member_tombstone(group, member_id),
    ]


def _progress_tombstone(group: str, member_id: str) -> Record:
    key = ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member_id)
    return Record(key, None)


def _target_tombstone(group: str, member_id: str) -> Record:
    key = ConsumerGroupTargetAssignmentMemberKey(group_id=group, member_id=member_id)
    return Record(key, None)


def _member_tombstone(group: str, member_id: str) -> Record:
    return Record(ConsumerGroupMemberMetadataKey(group_id=group, member_id=member_id), None)


def partition_metadata_tombstone(group: str) -> Record:
    """Kafka before 4.1 kept the partitions of topics in a record of their own."""
    return Record(ConsumerGroupPartitionMetadataKey(group_id=group), None)


def group_tombstones(group: str, members: Iterable[str], regexes: Iterable[str]) -> list[Record]:
    names = list(members)
    return [
        *(_progress_tombstone(group, member) for member in names),
        *(_target_tombstone(group, member) for member in names),
        Record(ConsumerGroupTargetAssignmentMetadataKey(group_id=group), None),
        *(_member_tombstone(group, member) for member in names),
        *(regex_tombstone(group, pattern) for pattern in regexes),
        partition_metadata_tombstone(group),
        Record(ConsumerGroupMetadataKey(group_id=group), None),
    ]
