"""AssignReplicasToDirs (key 73)."""

from __future__ import annotations

from headwater.protocol.schema import ZERO_UUID, Int16, Int32, Int64, Message, Uuid, message


@message(api=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest(Message):
    """The message `AssignReplicasToDirsRequest`."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData] = []


class AssignReplicasToDirsRequestDirectoryData(Message):
    """A part of `AssignReplicasToDirsRequest`."""

    id: Uuid
    topics: list[AssignReplicasToDirsRequestTopicData] = []


class AssignReplicasToDirsRequestTopicData(Message):
    """A part of `AssignReplicasToDirsRequest`."""

    topic_id: Uuid
    partitions: list[AssignReplicasToDirsRequestPartitionData] = []


class AssignReplicasToDirsRequestPartitionData(Message):
    """A part of `AssignReplicasToDirsRequest`."""

    partition_index: Int32


@message(api=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse(Message):
    """The message `AssignReplicasToDirsResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[AssignReplicasToDirsResponseDirectoryData] = []


class AssignReplicasToDirsResponseDirectoryData(Message):
    """A part of `AssignReplicasToDirsResponse`."""

    id: Uuid = ZERO_UUID
    topics: list[AssignReplicasToDirsResponseTopicData] = []


class AssignReplicasToDirsResponseTopicData(Message):
    """A part of `AssignReplicasToDirsResponse`."""

    topic_id: Uuid = ZERO_UUID
    partitions: list[AssignReplicasToDirsResponsePartitionData] = []


class AssignReplicasToDirsResponsePartitionData(Message):
    """A part of `AssignReplicasToDirsResponse`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
