"""Entering, staying in and leaving a share group (KIP-932)."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Message, Uuid, message


@message(api=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatRequest(Message):
    """A member's heartbeat: fields that have changed since the last one, None for the others."""

    group_id: str
    member_id: str
    member_epoch: Int32
    rack_id: str | None = None
    subscribed_topic_names: list[str] | None = None


@message(api=76, versions=(1, 1), flexible=0)
class ShareGroupHeartbeatResponse(Message):
    """The epoch of the member, and its assignment if that has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: Assignment | None = None


class Assignment(Message):
    """The assignment of a member."""

    topic_partitions: list[TopicPartitions] = []


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid = ZERO_ID
    partitions: list[Int32] = []
