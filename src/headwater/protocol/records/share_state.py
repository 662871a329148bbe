"""Records of `__share_group_state`: what a share group has been given and has finished."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, Uuid, message, tag


@message(api=0, versions=(0, 0), flexible=None)
class ShareSnapshotKey(Message):
    """Identifies a snapshot of a share partition's state."""

    group_id: str
    topic_id: Uuid
    partition: Int32


@message(api=0, versions=(0, 0), flexible=0)
class ShareSnapshotValue(Message):
    """The whole state of a share partition."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareSnapshotValueStateBatch] = []


class ShareSnapshotValueStateBatch(Message):
    """A range of offsets in the same state."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(api=1, versions=(0, 0), flexible=None)
class ShareUpdateKey(Message):
    """Identifies a change of a share partition's state."""

    group_id: str
    topic_id: Uuid
    partition: Int32


@message(api=1, versions=(0, 0), flexible=0)
class ShareUpdateValue(Message):
    """Changes since the snapshot."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    state_batches: list[ShareUpdateValueStateBatch] = []


class ShareUpdateValueStateBatch(Message):
    """A range of offsets in the same state."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16
