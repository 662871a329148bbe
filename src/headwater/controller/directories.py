"""Log directories of replicas: where a broker keeps each of them (KIP-858).

A broker with one directory needs no assignment. With several, it tells the controller where it has
put a replica, so that the failure of a directory takes the right replicas offline.
"""

from __future__ import annotations

from headwater.controller.decision import Decision
from headwater.controller.elections import updates_for
from headwater.controller.partition_change import change
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import PartitionState, Topic
from headwater.metadata.features import LEVEL_DIRECTORIES
from headwater.protocol import Message
from headwater.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


def assign_replicas_to_dirs(
    state: ControllerState, request: AssignReplicasToDirsRequest
) -> Decision[list[AssignReplicasToDirsResponseDirectoryData]]:
    if state.image.metadata_version < LEVEL_DIRECTORIES:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"replicas are assigned to directories from metadata.version {LEVEL_DIRECTORIES} on",
        )
    registration = state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[Message] = []
    answers: list[AssignReplicasToDirsResponseDirectoryData] = []
    offline: list[tuple[bytes, int]] = []
    for asked in request.directories:
        is_online = asked.id in registration.log_dirs
        directory = AssignReplicasToDirsResponseDirectoryData(id=asked.id, topics=[])
        answers.append(directory)
        for topic in asked.topics:
            answer = AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=[])
            directory.topics.append(answer)
            for index in (partition.partition_index for partition in topic.partitions):
                result = AssignReplicasToDirsResponsePartitionData(partition_index=index)
                answer.partitions.append(result)
                try:
                    found, partition = _replica(state, topic.topic_id, index, registration.id)
                except ApiError as refusal:
                    result.error_code = refusal.code
                    continue
                # Where the directory is online, a replica that was lost may lead again.
                moved = partition.moved(registration.id, asked.id) if is_online else partition
                record = change(
                    found.id,
                    index,
                    partition,
                    state.rules(found, moved),
                    directories={registration.id: asked.id},
                )
                if record is not None:
                    records.append(record)
                if not is_online:
                    offline.append((found.id, index))
    # The directory failed meanwhile: the broker cannot lead these, nor be in sync.
    records += updates_for(state, offline, leaves=registration.id)
    return Decision(records, answers, in_parts=True)


def _replica(
    state: ControllerState, topic_id: bytes, index: int, broker_id: int
) -> tuple[Topic, PartitionState]:
    topic = state.image.topics_by_id.get(topic_id)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    partition = topic.partitions.get(index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if broker_id not in partition.replicas:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return topic, partition
