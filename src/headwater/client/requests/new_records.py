"""Fetch as a long poll: waits at a leader for records, without reading them."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.client.cluster import Cluster
from headwater.client.connection_pool import FETCHING
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

# The last version that has the names of topics; later ones have their ids.
_NAMES_UNTIL = 12


async def wait_for_records(
    cluster: Cluster,
    leader: int,
    offsets: Mapping[TopicPartition, int],
    *,
    timeout_ms: int,
    read_committed: bool = False,
) -> None:
    """Waits until one of these partitions, all led by the same node, has a record at its offset or
    the timeout expires. Errors of partitions end the wait, too: the next question about them says
    what is wrong.

    A broker serves a connection in order, so the request has a connection of its own.
    """
    request = FetchRequest(
        max_wait_ms=timeout_ms,
        min_bytes=1,
        max_bytes=1,
        isolation_level=int(read_committed),
        topics=[
            FetchTopic(
                topic=topic,
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=offsets[TopicPartition(topic, number)],
                        partition_max_bytes=1,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    connection = await cluster.connection(leader, FETCHING)
    patience_ms = timeout_ms + cluster.config.request_timeout_ms
    await connection.ask(request, at_most=_NAMES_UNTIL, timeout_ms=patience_ms)
