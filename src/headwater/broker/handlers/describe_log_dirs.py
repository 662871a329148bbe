"""DescribeLogDirs: the log directories of this broker, and how large what lies in them is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import is_allowed
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.storage import Log

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.storage.log_dirs import LogDirectory


_ERROR_SINCE = 3


async def handle(
    broker: Broker, context: Context, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if not is_allowed(broker, context, Operation.DESCRIBE, AclResource.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED if context.version >= _ERROR_SINCE else 0
        return DescribeLogDirsResponse(error_code=code, results=[])
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = {TopicPartition(t.topic, index) for t in request.topics for index in t.partitions}
    results = [
        await _describe(broker, directory, wanted) for directory in broker.log_dirs.directories
    ]
    return DescribeLogDirsResponse(results=results)


async def _describe(
    broker: Broker, directory: LogDirectory, wanted: set[TopicPartition] | None
) -> DescribeLogDirsResult:
    result = DescribeLogDirsResult(log_dir=directory.path)
    if not directory.health.is_online:
        result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        return result
    try:
        result.total_bytes, result.usable_bytes = await broker.workers.run(
            lambda: broker.log_dirs.space(directory)
        )
    except ApiError as failure:
        result.error_code = failure.code
        return result
    result.is_cordoned = broker.log_dirs.is_cordoned(directory)
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for future in (False, True):
        for log in broker.log_dirs.logs_in(directory, future=future):
            if wanted is None or log.tp in wanted:
                entry = DescribeLogDirsPartition(
                    partition_index=log.tp.partition,
                    partition_size=log.size,
                    offset_lag=_lag(broker, log, future=future),
                    is_future_key=future,
                )
                topics.setdefault(log.tp.topic, []).append(entry)
    result.topics = [
        DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    return result


def _lag(broker: Broker, log: Log, *, future: bool) -> int:
    """The lag of a copy behind the log it will replace, or of a replica behind the leader."""
    if future:
        current = broker.log_dirs.get(log.tp)
        return current.end - log.end if current is not None else -1
    try:
        partition = broker.partitions.get(log.tp.topic, log.tp.partition)
    except ApiError:
        return -1
    return max(partition.high_watermark - log.end, 0)
