"""Records of `__consumer_offsets` about committed offsets and classic groups."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
    tag,
    until,
)


@message(api=0, versions=(0, 0), flexible=None)
class LegacyOffsetCommitKey(Message):
    """Key of an offset committed before Kafka 0.9; not written any more."""

    group: str
    topic: str
    partition: Int32


@message(api=0, versions=(0, 0), flexible=None)
class LegacyOffsetCommitValue(Message):
    """An offset committed before Kafka 0.9."""

    offset: Int64
    metadata: str
    commit_timestamp: Int64


@message(api=1, versions=(0, 0), flexible=None)
class OffsetCommitKey(Message):
    """Identifies the offset of a group in a partition."""

    group: str
    topic: str
    partition: Int32


@message(api=1, versions=(0, 4), flexible=4)
class OffsetCommitValue(Message):
    """The committed offset."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3), ignorable] = -1
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, since(1), until(1), ignorable] = -1
    topic_id: Annotated[Uuid, tag(0, since=4), ignorable] = ZERO_ID


@message(api=2, versions=(0, 0), flexible=None)
class GroupMetadataKey(Message):
    """Identifies a classic group."""

    group: str


@message(api=2, versions=(0, 4), flexible=4)
class GroupMetadataValue(Message):
    """A classic group with its members and their assignment."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Annotated[Int64, since(2), ignorable] = -1
    members: list[MemberMetadata] = []


class MemberMetadata(Message):
    """One of the `members` of `GroupMetadataValue`."""

    member_id: str
    group_instance_id: Annotated[str | None, since(3), ignorable] = None
    client_id: str
    client_host: str
    rebalance_timeout: Annotated[Int32, since(1), ignorable] = -1
    session_timeout: Int32
    subscription: bytes
    assignment: bytes
