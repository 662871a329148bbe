"""The durable state of a consumer group, which is what its log says.

Only `apply` changes it, and sees nothing but records. The second block of attributes is derived
from the first, and kept so that a heartbeat need not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from headwater.coordination import Record
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.member import LEAVE_EPOCH, Held, Member
from headwater.protocol.records.group_consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)


class Resolved(NamedTuple):
    """The topics that a pattern matched, and when, in which version of the metadata."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Subscribers(NamedTuple):
    """The number of members that name a topic, and of patterns that match it."""

    by_name: int = 0
    by_regex: int = 0


class GroupState:
    """The durable state of a group. A new group is at epoch 1 and has no members."""

    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 1
        self.metadata_hash = 0
        self.members: dict[str, Member] = {}
        self.target: dict[str, Partitions] = {}
        self.target_epoch = 1
        self.target_timestamp_ms = 0
        self.resolved: dict[str, Resolved] = {}
        # A record from before Kafka 4.1 is still in the log; it is deleted with the next epoch.
        self.has_partition_metadata = False
        # The tombstone of the group has been applied.
        self.is_gone = False

        self.instances: dict[str, str] = {}
        self.topics: dict[str, Subscribers] = {}
        self.regexes: dict[str, int] = {}
        self.assignors: dict[str, int] = {}
        self.holders: dict[bytes, dict[int, int]] = {}
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}

    def durable(self) -> dict[str, Any]:
        """Returns everything that must survive, for comparison."""
        return {
            "epoch": self.epoch,
            "metadata_hash": self.metadata_hash,
            "members": dict(self.members),
            "target": dict(self.target),
            "target_epoch": (self.target_epoch, self.target_timestamp_ms),
            "resolved": dict(self.resolved),
            "has_partition_metadata": self.has_partition_metadata,
            "derived": (
                dict(self.instances),
                dict(self.topics),
                dict(self.regexes),
                dict(self.assignors),
                {topic: dict(epochs) for topic, epochs in self.holders.items()},
                self.classic_members,
                dict(self.classic_protocols),
            ),
        }

    @property
    def name(self) -> str:
        """The name of the state, as clients see it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        target_epoch = self.target_epoch
        if all(member.is_reconciled_to(target_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def static_member(self, instance_id: str | None) -> Member | None:
        holder = self.instances.get(instance_id) if instance_id is not None else None
        return None if holder is None else self.members[holder]

    def is_held(self, topic: bytes, partition: int) -> bool:
        epochs = self.holders.get(topic)
        return epochs is not None and partition in epochs

    def subscribed(self, member: Member) -> Iterable[str]:
        """Returns the topics that a member subscribes to, by name or pattern, existing or not."""
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    # Records

    def apply(self, record: Record) -> None:
        _APPLY[type(record.key)](self, record.key, record.value)

    def _apply_epoch(self, _: Any, value: ConsumerGroupMetadataValue | None) -> None:
        if value is None:
            self.is_gone = True
        else:
            self.epoch, self.metadata_hash = value.epoch, value.metadata_hash

    def _apply_partitions(self, _: Any, value: ConsumerGroupPartitionMetadataValue | None) -> None:
        self.has_partition_metadata = value is not None

    def _apply_member(
        self,
        key: ConsumerGroupMemberMetadataKey,
        value: ConsumerGroupMemberMetadataValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is None:
            if old is not None:
                assert old.epoch == LEAVE_EPOCH, f"{old.id} is deleted while it is at {old.epoch}"
                assert old.id not in self.target, f"{old.id} is deleted before its target"
                self._replace(old, None)
        else:
            self._replace(old, (old or Member(key.member_id)).with_metadata(value))

    def _apply_progress(
        self,
        key: ConsumerGroupCurrentMemberAssignmentKey,
        value: ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            self._replace(old, (old or Member(key.member_id)).with_progress(value))
        elif old is not None:
            self._replace(old, old.without_progress())

    def _apply_target_epoch(
        self, _: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None
    ) -> None:
        if value is None:
            assert not self.target, f"the target of {self.id} goes before those of its members"
            self.target_epoch, self.target_timestamp_ms = -1, 0
        else:
            self.target_epoch = value.assignment_epoch
            self.target_timestamp_ms = value.assignment_timestamp

    def _apply_target(
        self,
        key: ConsumerGroupTargetAssignmentMemberKey,
        value: ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {
                bytes(topic.topic_id): frozenset(topic.partitions)
                for topic in value.topic_partitions
            }

    def _apply_regex(
        self,
        key: ConsumerGroupRegularExpressionKey,
        value: ConsumerGroupRegularExpressionValue | None,
    ) -> None:
        old = self.resolved.pop(key.regular_expression, None)
        if old is not None:
            count_regex(self.topics, old.topics, -1)
        if value is not None:
            new = Resolved(frozenset(value.topics), value.version, value.timestamp)
            self.resolved[key.regular_expression] = new
            count_regex(self.topics, new.topics, 1)

    # Derived state

    def _replace(self, old: Member | None, new: Member | None) -> None:
        count_members(self.topics, old, new)
        self.regexes = self.regexes_after(old, new)
        self.assignors = self.assignors_after(old, new)
        if old is not None:
            self._release(old.assigned, old.epoch)
            self._release(old.revoking, old.epoch)
            self._count_classic(old, -1)
        if new is not None:
            self._hold(new.assigned, new.epoch)
            self._hold(new.revoking, new.epoch)
            self._count_classic(new, 1)
            self.members[new.id] = new
            if new.instance_id is not None:
                self.instances[new.instance_id] = new.id
        elif old is not None:
            del self.members[old.id]
            if old.instance_id is not None and self.instances.get(old.instance_id) == old.id:
                del self.instances[old.instance_id]

    def _hold(self, held: Held, epoch: int) -> None:
        for topic, partitions in held.items():
            epochs = self.holders.setdefault(topic, {})
            for partition in partitions:
                # In a compacted log the release of a former owner may be gone. The later owner
                # has the partition.
                if epochs.get(partition, LEFT_BEHIND) < epoch:
                    epochs[partition] = epoch

    def _release(self, held: Held, epoch: int) -> None:
        for topic, partitions in held.items():
            epochs = self.holders.get(topic)
            if epochs is None:
                continue
            for partition in partitions:
                if epochs.get(partition) == epoch:
                    del epochs[partition]
            if not epochs:
                del self.holders[topic]

    def _count_classic(self, member: Member, change: int) -> None:
        if member.classic is not None:
            self.classic_members += change
            for name, _ in member.classic.protocols:
                _add(self.classic_protocols, name, change)

    # The derived state if a member changed

    def topics_after(self, old: Member | None, new: Member | None) -> dict[str, Subscribers]:
        """Returns the subscriptions of the group with `new` in the place of `old`."""
        topics = dict(self.topics)
        count_members(topics, old, new)
        pattern = old.topic_regex if old is not None else None
        if (
            pattern
            and pattern != (new.topic_regex if new is not None else None)
            and self.regexes.get(pattern) == 1
            and pattern in self.resolved
        ):
            count_regex(topics, self.resolved[pattern].topics, -1)
        return topics

    def topics_without(
        self, members: Iterable[Member], patterns: Iterable[str]
    ) -> dict[str, Subscribers]:
        topics = dict(self.topics)
        for member in members:
            count_members(topics, member, None)
        for pattern in patterns:
            if pattern in self.resolved:
                count_regex(topics, self.resolved[pattern].topics, -1)
        return topics

    def regexes_after(self, old: Member | None, new: Member | None) -> dict[str, int]:
        before = old.topic_regex if old is not None else None
        after = new.topic_regex if new is not None else None
        if before == after:
            return self.regexes
        regexes = dict(self.regexes)
        if before:
            _add(regexes, before, -1)
        if after:
            _add(regexes, after, 1)
        return regexes

    def assignors_after(self, old: Member | None, new: Member | None) -> dict[str, int]:
        before = old.server_assignor if old is not None else None
        after = new.server_assignor if new is not None else None
        if before == after:
            return self.assignors
        votes = dict(self.assignors)
        if before is not None:
            _add(votes, before, -1)
        if after is not None:
            _add(votes, after, 1)
        return votes


# Lower than any epoch a member can have.
LEFT_BEHIND = -(2**31)


def _add(counts: dict[str, int], name: str, change: int) -> None:
    left = counts.get(name, 0) + change
    if left > 0:
        counts[name] = left
    else:
        counts.pop(name, None)


def _count(
    topics: dict[str, Subscribers], names: Iterable[str], by_name: int, by_regex: int
) -> None:
    for name in names:
        before = topics.get(name, Subscribers())
        after = Subscribers(before.by_name + by_name, before.by_regex + by_regex)
        if after.by_name > 0 or after.by_regex > 0:
            topics[name] = after
        else:
            topics.pop(name, None)


def count_members(topics: dict[str, Subscribers], old: Member | None, new: Member | None) -> None:
    before = old.topic_names if old is not None else frozenset()
    after = new.topic_names if new is not None else frozenset()
    if before is not after and before != after:
        _count(topics, before - after, -1, 0)
        _count(topics, after - before, 1, 0)


def count_regex(topics: dict[str, Subscribers], names: Iterable[str], change: int) -> None:
    _count(topics, names, 0, change)


def is_homogeneous(
    topics: Mapping[str, Subscribers], regexes: Mapping[str, int], members: int
) -> bool:
    """Returns whether all members subscribe to the same topics; may be False although they do."""
    if not regexes:
        return all(count.by_name == members for count in topics.values())
    if next(iter(regexes.values())) != members:
        return False
    return all(count == (0, 1) for count in topics.values())


_APPLY: Mapping[type, Callable[[GroupState, Any, Any], None]] = {
    ConsumerGroupMetadataKey: GroupState._apply_epoch,
    ConsumerGroupPartitionMetadataKey: GroupState._apply_partitions,
    ConsumerGroupMemberMetadataKey: GroupState._apply_member,
    ConsumerGroupTargetAssignmentMetadataKey: GroupState._apply_target_epoch,
    ConsumerGroupTargetAssignmentMemberKey: GroupState._apply_target,
    ConsumerGroupCurrentMemberAssignmentKey: GroupState._apply_progress,
    ConsumerGroupRegularExpressionKey: GroupState._apply_regex,
}
