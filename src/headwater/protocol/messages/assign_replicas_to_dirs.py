"""Telling the controller in which log directory a replica lies."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int16, Int32, Int64, Message, Uuid, message


@message(api=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsRequest(Message):
    """These partitions lie in these directories."""

    broker_id: Int32
    broker_epoch: Int64 = -1
    directories: list[AssignReplicasToDirsRequestDirectoryData] = []


class AssignReplicasToDirsRequestDirectoryData(Message):
    """One of the `directories` of `AssignReplicasToDirsRequest`."""

    id: Uuid
    topics: list[AssignReplicasToDirsRequestTopicData] = []


class AssignReplicasToDirsRequestTopicData(Message):
    """One of the `topics` of `AssignReplicasToDirsRequestDirectoryData`."""

    topic_id: Uuid
    partitions: list[AssignReplicasToDirsRequestPartitionData] = []


class AssignReplicasToDirsRequestPartitionData(Message):
    """One of the `partitions` of `AssignReplicasToDirsRequestTopicData`."""

    partition_index: Int32


@message(api=73, versions=(0, 0), flexible=0)
class AssignReplicasToDirsResponse(Message):
    """The outcome for each partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    directories: list[AssignReplicasToDirsResponseDirectoryData] = []


class AssignReplicasToDirsResponseDirectoryData(Message):
    """One of the `directories` of `AssignReplicasToDirsResponse`."""

    id: Uuid = ZERO_ID
    topics: list[AssignReplicasToDirsResponseTopicData] = []


class AssignReplicasToDirsResponseTopicData(Message):
    """One of the `topics` of `AssignReplicasToDirsResponseDirectoryData`."""

    topic_id: Uuid = ZERO_ID
    partitions: list[AssignReplicasToDirsResponsePartitionData] = []


class AssignReplicasToDirsResponsePartitionData(Message):
    """One of the `partitions` of `AssignReplicasToDirsResponseTopicData`."""

    partition_index: Int32 = 0
    error_code: Int16 = 0
