"""A member of a consumer group: what it has said of itself, and how far it has come.

A member is a value. What changes it is a record; `with_metadata` and `with_progress` read one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from headwater.protocol.records.group_consumer import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

# What a member holds: by topic id, each partition with the epoch in which it was assigned. Commits
# of an older epoch than that are refused (KIP-1251).
Held: TypeAlias = Mapping[bytes, Mapping[int, int]]

# Member epochs that are words: not a member any more, and a static member that will be back.
LEFT = -1
LEFT_FOR_A_WHILE = -2


class MemberState(IntEnum):
    """Where a member stands on its way to its target; the numbers are in the log."""

    STABLE = 0
    UNREVOKED = 1  # it still has to give partitions up
    UNRELEASED = 2  # others still have to give up partitions that it will get
    UNKNOWN = 127  # written by a newer coordinator

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ClassicProtocols:
    """What a member that speaks the classic protocol has sent with its JoinGroup."""

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
        """Its progress was deleted: it holds nothing, and is about to go."""
        return replace(self, epoch=LEFT, previous_epoch=LEFT, assigned={}, revoking={})


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
            # Written before assignment epochs were: the member's epoch is the best that is known.
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        held[bytes(topic.topic_id)] = dict(zip(topic.partitions, epochs, strict=True))
    return held
