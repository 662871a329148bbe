"""Records of `__share_group_state`: what a share group has been given and has finished."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, Uuid, message, tag


@message(api=0, versions=(0, 0), flexible=None)
class ShareSnapshotKey(Message):
    """The message `ShareSnapshotKey`."""

    group_id: str
    topic_id: Uuid
    partition: Int32


@message(api=0, versions=(0, 0), flexible=0)
class ShareSnapshotValue(Message):
    """The message `ShareSnapshotValue`."""

    snapshot_epoch: Int32
    state_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    create_timestamp: Int64
    write_timestamp: Int64
    state_batches: list[ShareSnapshotValueStateBatch] = []


class ShareSnapshotValueStateBatch(Message):
    """A part of `ShareSnapshotValue`."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16


@message(api=1, versions=(0, 0), flexible=None)
class ShareUpdateKey(Message):
    """The message `ShareUpdateKey`."""

    group_id: str
    topic_id: Uuid
    partition: Int32


@message(api=1, versions=(0, 0), flexible=0)
class ShareUpdateValue(Message):
    """The message `ShareUpdateValue`."""

    snapshot_epoch: Int32
    leader_epoch: Int32
    start_offset: Int64
    delivery_complete_count: Annotated[Int32, tag(0)] = -1
    state_batches: list[ShareUpdateValueStateBatch] = []


class ShareUpdateValueStateBatch(Message):
    """A part of `ShareUpdateValue`."""

    first_offset: Int64
    last_offset: Int64
    delivery_state: Int8
    delivery_count: Int16
