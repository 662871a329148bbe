"""Entering, staying in and leaving a consumer group (KIP-848)."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Message, Uuid, message, since


@message(api=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest(Message):
    """A member's heartbeat: fields that have changed since the last one, None for the others."""

    group_id: str
    member_id: str
    member_epoch: Int32
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[str] | None = None
    subscribed_topic_regex: Annotated[str | None, since(1)] = None
    server_assignor: str | None = None
    topic_partitions: list[ConsumerGroupHeartbeatRequestTopicPartitions] | None = None


class ConsumerGroupHeartbeatRequestTopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32] = []


@message(api=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse(Message):
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

    topic_partitions: list[ConsumerGroupHeartbeatResponseTopicPartitions] = []


class ConsumerGroupHeartbeatResponseTopicPartitions(Message):
    """Partitions of one topic."""

    topic_id: Uuid = ZERO_ID
    partitions: list[Int32] = []
