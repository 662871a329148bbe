"""ShareGroupHeartbeat (key 76)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int16, Int32, Message, Uuid, message


@message(api=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Message):
    """The message `ShareGroupHeartbeatRequest`."""

    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@message(api=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse(Message):
    """The message `ShareGroupHeartbeatResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class Assignment(Message):
    """A part of `ShareGroupHeartbeatResponse`."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Message):
    """A part of `ShareGroupHeartbeatResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[Int32] = []
