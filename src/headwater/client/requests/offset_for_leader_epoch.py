"""OffsetForLeaderEpoch: where a leader epoch ended, to find out whether a log was truncated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.client.connection import Connection
from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import Router, by_topic
from headwater.model import NO_NODE, TopicPartition
from headwater.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


@dataclass(frozen=True, slots=True)
class EpochEnd:
    """The last epoch at or before the one asked for, and the offset at which it ended."""

    epoch: int
    end_offset: int


EpochEndResults = dict[TopicPartition, EpochEnd | ClientError]


async def epoch_ends_once(
    router: Router, epochs: Mapping[TopicPartition, int], *, deadline: float
) -> EpochEndResults:
    """Asks the leaders already known where each epoch ended, without a retry. A broker older than
    this API gives UnsupportedVersion for its partitions."""

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> EpochEndResults:
        request = OffsetForLeaderEpochRequest(
            replica_id=NO_NODE,
            topics=[
                OffsetForLeaderTopic(
                    topic=topic,
                    partitions=[
                        OffsetForLeaderPartition(
                            partition=number,
                            current_leader_epoch=router.leader_epoch(TopicPartition(topic, number)),
                            leader_epoch=epochs[TopicPartition(topic, number)],
                        )
                        for number in numbers
                    ],
                )
                for topic, numbers in by_topic(asked).items()
            ],
        )
        response = await router.ask(node, request, deadline)
        results: EpochEndResults = {}
        for topic in response.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.topic, each.partition)
                results[tp] = (
                    error_for(each.error_code, f"end of an epoch of {tp}")
                    if each.error_code
                    else EpochEnd(each.leader_epoch, each.end_offset)
                )
        return results

    return await router.by_leader_once(epochs, ask, deadline=deadline)
