"""A member of a consumer group, and its way to its target assignment.

A member is an immutable value: `with_metadata` and `with_progress` apply a record to it, and
`reconciled` is one step towards its target.

A partition goes from one member to another in three steps: the first member is told to revoke it, a
heartbeat of that member says that it has, and only then is the second member told to take it. A
member keeps its old epoch while it has partitions to revoke, so that it can still commit offsets of
them. It takes the epoch of the target as soon as it has revoked everything, even if others still
hold partitions that it is waiting for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer.assignors import Partitions
from headwater.protocol.records.group_consumer import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

# The partitions of a member by topic id, each with the epoch in which it was assigned. Commits of
# an older epoch are refused (KIP-1251).
Held: TypeAlias = Mapping[bytes, Mapping[int, int]]

# Member epochs with a meaning: has left, and is a static member that will be back.
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class MemberState(IntEnum):
    """A member's progress towards its target assignment; the numbers are those of the log."""

    STABLE = 0
    UNREVOKED = 1  # it has partitions to revoke
    UNRELEASED = 2  # others have yet to release partitions of its target
    UNKNOWN = 127  # written by a newer coordinator

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """The parts of a classic member's JoinGroup that must survive."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Member:
    id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Held = field(default_factory=dict)
    revoking: Held = field(default_factory=dict)
    classic: ClassicProtocols | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            topic_regex=value.subscribed_topic_regex,
            server_assignor=value.server_assignor,
            classic=_classic(value.classic_member_metadata),
        )

    def with_progress(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )

    def without_progress(self) -> Member:
        """Returns the member after the tombstone of its progress, without partitions."""
        return replace(
            self, epoch=LEAVE_EPOCH, previous_epoch=LEAVE_EPOCH, assigned={}, revoking={}
        )


def _classic(metadata: ClassicMemberMetadata | None) -> ClassicProtocols | None:
    if metadata is None:
        return None
    return ClassicProtocols(
        metadata.session_timeout_ms,
        tuple(
            (protocol.name, bytes(protocol.metadata)) for protocol in metadata.supported_protocols
        ),
    )


def _held(topics: list[TopicPartitions], member_epoch: int) -> Held:
    held: dict[bytes, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            # Written before there were assignment epochs: the member's epoch is the best guess.
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        held[bytes(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return held


@dataclass(frozen=True, slots=True)
class Goal:
    """The target of a member, and the partitions that it owns (None if it did not say)."""

    epoch: int
    partitions: Partitions
    topics: Set[bytes]
    owned: Partitions | None
    subscription_changed: bool
    # Whether a member holds a partition or has yet to revoke it.
    is_held: Callable[[bytes, int], bool]


def reconciled(member: Member, goal: Goal) -> Member:
    """Returns the member after one step; the same one if there is nothing to do."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.epoch:
                return _towards(member, goal, member.epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNREVOKED:
            if not _still_owns(goal, member.revoking):
                return _towards(member, goal, member.epoch)
            return _without_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNRELEASED:
            return _towards(member, goal, member.epoch)
        case MemberState.UNKNOWN:
            if goal.owned is None or goal.owned:
                raise ApiError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _towards(member, goal, goal.epoch)


def _still_owns(goal: Goal, revoking: Held) -> bool:
    """Returns whether the member still owns one of these, as far as it has said."""
    if goal.owned is None:
        return True
    return any(
        partition in revoking[topic]
        for topic, partitions in goal.owned.items()
        if topic in revoking
        for partition in partitions
    )


def _towards(member: Member, goal: Goal, epoch: int) -> Member:
    keep: dict[bytes, dict[int, int]] = {}
    revoke: dict[bytes, dict[int, int]] = {}
    for topic, held in member.assigned.items():
        wanted = goal.partitions.get(topic, frozenset()) if topic in goal.topics else frozenset()
        kept = {partition: at for partition, at in held.items() if partition in wanted}
        if kept:
            keep[topic] = kept
        if len(kept) < len(held):
            revoke[topic] = {one: at for one, at in held.items() if one not in kept}
    if revoke and _still_owns(goal, revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=keep,
            revoking=revoke,
        )

    waits = False
    for topic, wanted in goal.partitions.items():
        if topic not in goal.topics:
            continue
        own = member.revoking.get(topic, {})
        for partition in sorted(wanted.difference(keep.get(topic, ()))):
            # A partition that the member itself was revoking is free for it.
            if partition not in own and goal.is_held(topic, partition):
                waits = True
            else:
                keep.setdefault(topic, {})[partition] = goal.epoch
    return replace(
        member,
        state=MemberState.UNRELEASED if waits else MemberState.STABLE,
        epoch=goal.epoch,
        previous_epoch=member.epoch,
        assigned=keep,
        revoking={},
    )


def _without_unsubscribed(member: Member, goal: Goal) -> Member:
    """Revokes partitions of topics that are no longer subscribed to, whatever the target says."""
    dropped = {topic: held for topic, held in member.assigned.items() if topic not in goal.topics}
    if not dropped:
        return member
    keep = {topic: held for topic, held in member.assigned.items() if topic in goal.topics}
    revoke = {
        topic: {**member.revoking.get(topic, {}), **dropped.get(topic, {})}
        for topic in (*member.revoking, *dropped)
    }
    if _still_owns(goal, revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED,
            previous_epoch=member.epoch,
            assigned=keep,
            revoking=revoke,
        )
    return replace(member, previous_epoch=member.epoch, assigned=keep)
