"""AlterReplicaLogDirs: a replica moves to another log directory of this broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import is_allowed
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

# `TOPIC-PARTITION.ID-future` must be a name that a file system takes.
_DIR_NAME_MAX = 255
_FUTURE_SUFFIX_LENGTH = len(".") + 32 + len("-future")


def handle(
    broker: Broker, context: Context, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    may_alter = is_allowed(broker, context, Operation.ALTER, AclResource.CLUSTER)
    # A partition that is named twice goes where it was named last.
    wanted = {
        TopicPartition(topic.name, index): asked.path
        for asked in request.dirs
        for topic in asked.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for tp, path in wanted.items():
        result = AlterReplicaLogDirPartitionResult(partition_index=tp.partition)
        results.setdefault(tp.topic, []).append(result)
        try:
            if not may_alter:
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            _move(broker, tp, path)
        except ApiError as refusal:
            result.error_code = refusal.code
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=partitions)
            for name, partitions in results.items()
        ]
    )


def _move(broker: Broker, tp: TopicPartition, path: str) -> None:
    if len(str(tp)) + _FUTURE_SUFFIX_LENGTH > _DIR_NAME_MAX:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{tp} is too long a name to be moved")
    directory = next((d for d in broker.log_dirs.directories if d.path == path), None)
    if directory is None:
        raise ApiError(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is not a log directory of this node")
    if not directory.health.is_online:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline")
    try:
        partition = broker.partitions.get(tp.topic, tp.partition)
    except ApiError as refusal:
        if refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise ApiError(ErrorCode.REPLICA_NOT_AVAILABLE, refusal.message) from None
        raise
    broker.log_moves.start(partition, directory)
