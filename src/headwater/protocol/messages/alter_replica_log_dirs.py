"""Moving replicas between the log directories of a broker."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, message


@message(api=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsRequest(Message):
    """Keep these partitions in these directories."""

    dirs: list[AlterReplicaLogDir] = []


class AlterReplicaLogDir(Message):
    """One of the `dirs` of `AlterReplicaLogDirsRequest`."""

    path: str
    topics: list[AlterReplicaLogDirTopic] = []


class AlterReplicaLogDirTopic(Message):
    """One of the `topics` of `AlterReplicaLogDir`."""

    name: str
    partitions: list[Int32] = []


@message(api=34, versions=(1, 2), flexible=2)
class AlterReplicaLogDirsResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult] = []


class AlterReplicaLogDirTopicResult(Message):
    """One of the `results` of `AlterReplicaLogDirsResponse`."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = []


class AlterReplicaLogDirPartitionResult(Message):
    """One of the `partitions` of `AlterReplicaLogDirTopicResult`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
