"""The brokers, topics and leaders of a cluster."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int16,
    Int32,
    Message,
    Uuid,
    ignorable,
    message,
    nullable,
    since,
    until,
)


@message(api=3, versions=(0, 13), flexible=9)
class MetadataRequest(Message):
    """Describe these topics; all of them if `topics` is None."""

    topics: Annotated[list[MetadataRequestTopic] | None, nullable(1)] = []
    allow_auto_topic_creation: Annotated[bool, since(4)] = True
    include_cluster_authorized_operations: Annotated[bool, since(8), until(10)] = False
    include_topic_authorized_operations: Annotated[bool, since(8)] = False


class MetadataRequestTopic(Message):
    """One of the `topics` of `MetadataRequest`."""

    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_ID
    name: Annotated[str | None, nullable(10)]


@message(api=3, versions=(0, 13), flexible=9)
class MetadataResponse(Message):
    """The brokers, the topics, and who leads which partition."""

    throttle_time_ms: Annotated[Int32, since(3), ignorable] = 0
    brokers: list[MetadataResponseBroker] = []
    cluster_id: Annotated[str | None, since(2), ignorable] = None
    controller_id: Annotated[Int32, since(1), ignorable] = -1
    topics: list[MetadataResponseTopic] = []
    cluster_authorized_operations: Annotated[Int32, since(8), until(10)] = -2147483648
    error_code: Annotated[Int16, since(13), ignorable] = 0


class MetadataResponseBroker(Message):
    """A broker that clients can reach."""

    node_id: Int32 = 0
    host: str = ""
    port: Int32 = 0
    rack: Annotated[str | None, since(1), ignorable] = None


class MetadataResponseTopic(Message):
    """One of the `topics` of `MetadataResponse`."""

    error_code: Int16 = 0
    name: Annotated[str | None, nullable(12)] = ""
    topic_id: Annotated[Uuid, since(10), ignorable] = ZERO_ID
    is_internal: Annotated[bool, since(1), ignorable] = False
    partitions: list[MetadataResponsePartition] = []
    topic_authorized_operations: Annotated[Int32, since(8)] = -2147483648


class MetadataResponsePartition(Message):
    """A partition: its leader, its replicas, and those in sync."""

    error_code: Int16 = 0
    partition_index: Int32 = 0
    leader_id: Int32 = 0
    leader_epoch: Annotated[Int32, since(7), ignorable] = -1
    replica_nodes: list[Int32] = []
    isr_nodes: list[Int32] = []
    offline_replicas: Annotated[list[Int32], since(5), ignorable] = []
