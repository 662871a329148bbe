"""Deleting records from the beginning of partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import by_topic
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

HIGH_WATERMARK = -1  # in `delete_records`: all committed records


async def delete_records(
    admin: Admin, before: Mapping[TopicPartition, int], *, timeout_ms: int | None = None
) -> dict[TopicPartition, int | ClientError]:
    """Deletes the records before an offset in each partition, with `HIGH_WATERMARK` all of them.
    Returns the new first offset of each."""
    offsets = {TopicPartition(*where): offset for where, offset in before.items()}

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, int | ClientError]:
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=topic,
                    partitions=[
                        DeleteRecordsPartition(
                            partition_index=number, offset=offsets[TopicPartition(topic, number)]
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(asked).items()
            ],
            timeout_ms=admin._router.left_ms(deadline),
        )
        answer = await admin._router.ask(node, request, deadline)
        results: dict[TopicPartition, int | ClientError] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    what = f"{where}, records before {offsets.get(where)}"
                    results[where] = error_for(each.error_code, what, _why(each.error_code))
                else:
                    results[where] = each.low_watermark
        return results

    return await admin._router.by_leader(offsets, ask, timeout_ms=timeout_ms)


def _why(code: int) -> str | None:
    """Explains a code that brokers send without a message."""
    if code == ErrorCode.POLICY_VIOLATION:
        return "its cleanup.policy is compact, which keeps the newest record of each key"
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return "no such offset is in the log"
    return None
