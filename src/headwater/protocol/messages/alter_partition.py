"""Changing the in-sync set of a partition."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    Uuid,
    ignorable,
    message,
    since,
    until,
)


@message(api=56, versions=(2, 3), flexible=0)
class AlterPartitionRequest(Message):
    """Proposes new in-sync sets; sent by leaders."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    topics: list[AlterPartitionRequestTopicData] = []


class AlterPartitionRequestTopicData(Message):
    """One of the `topics` of `AlterPartitionRequest`."""

    topic_id: Annotated[Uuid, ignorable]
    partitions: list[AlterPartitionRequestPartitionData] = []


class AlterPartitionRequestPartitionData(Message):
    """One of the `partitions` of `AlterPartitionRequestTopicData`."""

    partition_index: Int32
    leader_epoch: Int32
    new_isr: Annotated[list[Int32], until(2)] = []
    new_isr_with_epochs: Annotated[list[BrokerState], since(3)] = []
    leader_recovery_state: Int8 = 0
    partition_epoch: Int32


class BrokerState(Message):
    """One of the `new_isr_with_epochs` of `AlterPartitionRequestPartitionData`."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@message(api=56, versions=(2, 3), flexible=0)
class AlterPartitionResponse(Message):
    """The state of each partition after the change."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    topics: list[AlterPartitionResponseTopicData] = []


class AlterPartitionResponseTopicData(Message):
    """One of the `topics` of `AlterPartitionResponse`."""

    topic_id: Annotated[Uuid, ignorable] = ZERO_ID
    partitions: list[AlterPartitionResponsePartitionData] = []


class AlterPartitionResponsePartitionData(Message):
    """One of the `partitions` of `AlterPartitionResponseTopicData`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
    leader_id: Int32 = 0
    leader_epoch: Int32 = 0
    isr: list[Int32] = []
    leader_recovery_state: Annotated[Int8, ignorable] = 0
    partition_epoch: Int32 = 0
