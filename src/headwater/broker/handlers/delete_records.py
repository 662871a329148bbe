"""DeleteRecords: moves the start of a log forward."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.authorization import denied
from headwater.broker.context import Context, Later
from headwater.broker.partition import Done, Partition
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.topic_names import is_internal
from headwater.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

TO_HIGH_WATERMARK = -1


def handle(
    broker: Broker, context: Context, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Later:
    # If a partition is named twice, the last one counts.
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        for partition in topic.partitions:
            offsets = wanted.setdefault(topic.name, {})
            offsets[partition.partition_index] = partition.offset
    not_deletable = denied(broker, context, Operation.DELETE, AclResource.TOPIC, wanted)
    response = DeleteRecordsResponse(topics=[])
    waits: list[_Wait] = []
    for name, offsets in wanted.items():
        results: list[DeleteRecordsPartitionResult] = []
        response.topics.append(DeleteRecordsTopicResult(name=name, partitions=results))
        for index, offset in offsets.items():
            result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
            results.append(result)
            try:
                if name in not_deletable:
                    raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                found = _delete(broker, name, index, offset)
            except ApiError as refusal:
                result.error_code = refusal.code
                continue
            result.low_watermark = found.low_watermark
            if result.low_watermark < found.log.start:
                waits.append(_Wait(found, found.log.start, result))
    if not waits:
        return response
    return _Deletion(response, waits).start(request.timeout_ms)


def _delete(broker: Broker, topic: str, index: int, offset: int) -> Partition:
    """Moves the start of the log here; followers do the same with their next fetch."""
    if topic not in broker.image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic} does not exist")
    if is_internal(topic):
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is an internal topic")
    partition = broker.partitions.get(topic, index)
    partition.lead(-1)
    log = partition.log
    if log.config.compact and not log.config.delete:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {topic} does not include delete"
        )
    before = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if before < 0 or before > partition.high_watermark:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset}, the high watermark of {partition.tp} is {partition.high_watermark}",
        )
    if before > log.start:
        log.delete_records_before(before)
        partition.changed()
    return partition


class _Wait:
    """A partition whose followers have not deleted the records yet."""

    __slots__ = ("offset", "partition", "result")

    def __init__(
        self, partition: Partition, offset: int, result: DeleteRecordsPartitionResult
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.result = result


class _Deletion:
    """A request that waits until all live replicas have deleted the records."""

    __slots__ = ("_done", "_response", "_timer", "_waiting")

    def __init__(self, response: DeleteRecordsResponse, waits: list[_Wait]) -> None:
        self._response = response
        self._waiting: dict[_Wait, Done] = {wait: partial(self._on_deleted, wait) for wait in waits}
        self._done = Later()
        self._timer: asyncio.TimerHandle | None = None

    def start(self, timeout_ms: int) -> Later:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(max(0, timeout_ms) / 1000, self._on_timeout)
        for wait, done in list(self._waiting.items()):
            wait.partition.when_deleted(wait.offset, done)
        return self._done

    def _on_deleted(self, wait: _Wait, failure: ApiError | None) -> None:
        if self._waiting.pop(wait, None) is None:
            return
        if failure is None:
            wait.result.low_watermark = wait.partition.low_watermark
        else:
            wait.result.low_watermark = -1
            wait.result.error_code = failure.code
        if not self._waiting:
            self._finish()

    def _on_timeout(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for wait, done in waiting.items():
            wait.partition.stop_deleting(wait.offset, done)
            wait.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        self._finish()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._done.answer(self._response)
