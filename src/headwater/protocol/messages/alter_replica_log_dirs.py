"""AlterReplicaLogDirs (key 34)."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, message


@message(api=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest(Message):
    """The message `AlterReplicaLogDirsRequest`."""

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDir(Message):
    """A part of `AlterReplicaLogDirsRequest`."""

    path: str
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirTopic(Message):
    """A part of `AlterReplicaLogDirsRequest`."""

    name: str
    partitions: list[Int32] = []


@message(api=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse(Message):
    """The message `AlterReplicaLogDirsResponse`."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class AlterReplicaLogDirTopicResult(Message):
    """A part of `AlterReplicaLogDirsResponse`."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirPartitionResult(Message):
    """A part of `AlterReplicaLogDirsResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
