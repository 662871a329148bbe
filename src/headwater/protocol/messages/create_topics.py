"""Creating topics."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Message,
    Uuid,
    ignorable,
    message,
    sensitive,
    since,
    tag,
)


@message(api=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest(Message):
    """Create these topics."""

    topics: list[CreatableTopic] = []
    timeout_ms: Int32 = 60000
    validate_only: bool = False


class CreatableTopic(Message):
    """One of the `topics` of `CreateTopicsRequest`."""

    name: str
    num_partitions: Int32
    replication_factor: Int16
    assignments: list[CreatableReplicaAssignment] = []
    configs: list[CreatableTopicConfig] = []


class CreatableReplicaAssignment(Message):
    """One of the `assignments` of `CreatableTopic`."""

    partition_index: Int32
    broker_ids: list[Int32] = []


class CreatableTopicConfig(Message):
    """One of the `configs` of `CreatableTopic`."""

    name: str
    value: Annotated[str | None, sensitive]


@message(api=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse(Message):
    """The outcome for each topic, and its settings."""

    throttle_time_ms: Annotated[Int32, ignorable] = 0
    topics: list[CreatableTopicResult] = []


class CreatableTopicResult(Message):
    """One of the `topics` of `CreateTopicsResponse`."""

    name: str = ""
    topic_id: Annotated[Uuid, since(7), ignorable] = ZERO_ID
    error_code: Int16 = 0
    error_message: Annotated[str | None, ignorable] = ""
    topic_config_error_code: Annotated[Int16, tag(0, since=5), ignorable] = 0
    num_partitions: Annotated[Int32, since(5), ignorable] = -1
    replication_factor: Annotated[Int16, since(5), ignorable] = -1
    configs: Annotated[list[CreatableTopicConfigs] | None, since(5), ignorable] = []


class CreatableTopicConfigs(Message):
    """One of the `configs` of `CreatableTopicResult`."""

    name: str = ""
    value: Annotated[str | None, sensitive] = ""
    read_only: bool = False
    config_source: Annotated[Int8, ignorable] = -1
    is_sensitive: bool = False
