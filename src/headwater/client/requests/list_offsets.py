"""ListOffsets: the first and the last offset of partitions, and offsets by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headwater.client.connection import Connection
from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import AskNode, Router, by_topic
from headwater.model import NO_EPOCH, NO_NODE, TopicPartition
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)


class OffsetSpec(IntEnum):
    """An offset named by its place in the log instead of by time."""

    LATEST = -1  # the end: the next record will have it
    EARLIEST = -2
    MAX_TIMESTAMP = -3  # of the record with the latest timestamp
    EARLIEST_LOCAL = -4  # the first that is on the broker's own disk
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


# The first version of ListOffsets that knows them.
_SINCE = {
    OffsetSpec.MAX_TIMESTAMP: 7,
    OffsetSpec.EARLIEST_LOCAL: 8,
    OffsetSpec.LATEST_TIERED: 9,
    OffsetSpec.EARLIEST_PENDING_UPLOAD: 11,
}
_ISOLATION_SINCE = 2


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset and the timestamp of its record; both are -1 if there is no such record, as for a
    time after the last one."""

    offset: int
    timestamp: int
    leader_epoch: int = NO_EPOCH


OffsetResults = dict[TopicPartition, OffsetAndTimestamp | ClientError]


async def list_offsets(
    router: Router,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: int | None = None,
    deadline: float | None = None,
) -> OffsetResults:
    """Looks up the first offset at or after each timestamp (milliseconds, or an `OffsetSpec`), and
    retries until the deadline."""
    ask = _asking(router, timestamps, read_committed)
    return await router.by_leader(timestamps, ask, timeout_ms=timeout_ms, deadline=deadline)


async def list_offsets_once(
    router: Router,
    timestamps: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    deadline: float,
) -> OffsetResults:
    """Looks up offsets at the leaders already known, without a retry (see `by_leader_once`)."""
    ask = _asking(router, timestamps, read_committed)
    return await router.by_leader_once(timestamps, ask, deadline=deadline)


def _asking(
    router: Router, timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> AskNode[TopicPartition, OffsetAndTimestamp]:
    specs = {OffsetSpec(at) for at in timestamps.values() if at < 0}
    at_least = max((_SINCE.get(spec, 0) for spec in specs), default=0)
    if read_committed:
        at_least = max(at_least, _ISOLATION_SINCE)

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> OffsetResults:
        request = ListOffsetsRequest(
            replica_id=NO_NODE,
            isolation_level=int(read_committed),
            topics=[
                ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(
                            partition_index=number,
                            current_leader_epoch=router.leader_epoch(TopicPartition(topic, number)),
                            timestamp=timestamps[TopicPartition(topic, number)],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(asked).items()
            ],
            timeout_ms=router.left_ms(deadline),
        )
        response = await router.ask(node, request, deadline, at_least=at_least)
        results: OffsetResults = {}
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                results[tp] = (
                    error_for(each.error_code, f"offset of {tp}")
                    if each.error_code
                    else OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                )
        return results

    return ask
