"""Records of the metadata log about topics, partitions, configs and producer ids."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    Int8,
    Int32,
    Int64,
    Message,
    Uuid,
    message,
    sensitive,
    since,
    tag,
)


@message(api=2, versions=(0, 0), flexible=0)
class TopicRecord(Message):
    """A topic was created."""

    name: str
    topic_id: Uuid


@message(api=9, versions=(0, 0), flexible=0)
class RemoveTopicRecord(Message):
    """A topic was deleted."""

    topic_id: Uuid


@message(api=3, versions=(0, 2), flexible=0)
class PartitionRecord(Message):
    """A partition as a whole."""

    partition_id: Int32 = -1
    topic_id: Uuid
    replicas: list[Int32] = []
    isr: list[Int32] = []
    removing_replicas: list[Int32] = []
    adding_replicas: list[Int32] = []
    leader: Int32 = -1
    leader_recovery_state: Annotated[Int8, tag(0)] = 0
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[list[Uuid], since(1)] = []
    eligible_leader_replicas: Annotated[list[Int32] | None, tag(1, since=2)] = None
    last_known_elr: Annotated[list[Int32] | None, tag(2, since=2)] = None


@message(api=5, versions=(0, 2), flexible=0)
class PartitionChangeRecord(Message):
    """Changes of a partition; fields that are not set stay as they are."""

    partition_id: Int32 = -1
    topic_id: Uuid
    isr: Annotated[list[Int32] | None, tag(0)] = None
    leader: Annotated[Int32, tag(1)] = -2
    replicas: Annotated[list[Int32] | None, tag(2)] = None
    removing_replicas: Annotated[list[Int32] | None, tag(3)] = None
    adding_replicas: Annotated[list[Int32] | None, tag(4)] = None
    leader_recovery_state: Annotated[Int8, tag(5)] = -1
    directories: Annotated[list[Uuid] | None, tag(8, since=1)] = None
    eligible_leader_replicas: Annotated[list[Int32] | None, tag(6, since=2)] = None
    last_known_elr: Annotated[list[Int32] | None, tag(7, since=2)] = None


@message(api=28, versions=(0, 0), flexible=0)
class ClearElrRecord(Message):
    """Eligible leaders that are not in sync were forgotten, of one topic or of all."""

    topic_name: str


@message(api=4, versions=(0, 0), flexible=0)
class ConfigRecord(Message):
    """A config was set, or deleted if its value is None."""

    resource_type: Int8
    resource_name: str
    name: str
    value: Annotated[str | None, sensitive]


@message(api=15, versions=(0, 0), flexible=0)
class ProducerIdsRecord(Message):
    """Producer ids up to here have been given to a broker."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    next_producer_id: Int64
