"""Records of `__consumer_offsets` about committed offsets and classic groups."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    ZERO_UUID,
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
    """The message `LegacyOffsetCommitKey`."""

    group: str
    topic: str
    partition: Int32


@message(api=0, versions=(0, 0), flexible=None)
class LegacyOffsetCommitValue(Message):
    """The message `LegacyOffsetCommitValue`."""

    offset: Int64
    metadata: str
    commit_timestamp: Int64


@message(api=1, versions=(0, 0), flexible=None)
class OffsetCommitKey(Message):
    """The message `OffsetCommitKey`."""

    group: str
    topic: str
    partition: Int32


@message(api=1, versions=(0, 4), flexible=4)
class OffsetCommitValue(Message):
    """The message `OffsetCommitValue`."""

    offset: Int64
    leader_epoch: Annotated[Int32, since(3), ignorable] = -1
    metadata: str
    commit_timestamp: Int64
    expire_timestamp: Annotated[Int64, since(1), until(1), ignorable] = -1
    topic_id: Annotated[Uuid, tag(0, since=4), ignorable] = ZERO_UUID


@message(api=2, versions=(0, 0), flexible=None)
class GroupMetadataKey(Message):
    """The message `GroupMetadataKey`."""

    group: str


@message(api=2, versions=(0, 4), flexible=4)
class GroupMetadataValue(Message):
    """The message `GroupMetadataValue`."""

    protocol_type: str
    generation: Int32
    protocol: str | None
    leader: str | None
    current_state_timestamp: Annotated[Int64, since(2), ignorable] = -1
    members: list[MemberMetadata] = []


class MemberMetadata(Message):
    """A part of `GroupMetadataValue`."""

    member_id: str
    group_instance_id: Annotated[str | None, since(3), ignorable] = None
    client_id: str
    client_host: str
    rebalance_timeout: Annotated[Int32, since(1), ignorable] = -1
    session_timeout: Int32
    subscription: bytes
    assignment: bytes
