"""CreatePartitions (key 37)."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, message


@message(api=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest(Message):
    """The message `CreatePartitionsRequest`."""

    topics: list[CreatePartitionsTopic] = []
    timeout_ms: Int32
    validate_only: bool


class CreatePartitionsTopic(Message):
    """A part of `CreatePartitionsRequest`."""

    name: str
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = []


class CreatePartitionsAssignment(Message):
    """A part of `CreatePartitionsRequest`."""

    broker_ids: list[Int32] = []


@message(api=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse(Message):
    """The message `CreatePartitionsResponse`."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult] = []


class CreatePartitionsTopicResult(Message):
    """A part of `CreatePartitionsResponse`."""

    name: str = ""
    error_code: Int16 = 0
    error_message: str | None = None
