"""The ends of the logs that groups read, for their lag: a group's coordinator knows its offsets,
and the logs may be on other brokers.

Ends are looked up every few seconds: here where this broker has a replica, else at the leader. Only
on a broker that is scraped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from headwater.broker.broker_channel import BrokerChannel
from headwater.broker.coordinators.groups import GroupCoordinator
from headwater.broker.partitions import Partitions
from headwater.groups.offsets import Committed
from headwater.io import Clock
from headwater.metadata import NO_LEADER, Image
from headwater.model import TopicPartition
from headwater.net.peer import PeerError
from headwater.observability.lag import EndHistory
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_SAMPLE_SECONDS = 5.0
_ASKED_AT_ONCE = 1000
_STEPS = 200  # partitions before others are served
_LATEST = -1
_CLIENT = -1


class LogEnds:
    def __init__(
        self,
        groups: GroupCoordinator,
        partitions: Partitions,
        channel: BrokerChannel,
        image: Callable[[], Image],
        clock: Clock,
    ) -> None:
        self._groups = groups
        self._partitions = partitions
        self._channel = channel
        self._image = image
        self._clock = clock
        self._known: dict[TopicPartition, EndHistory] = {}

    async def run(self) -> None:
        while True:
            await self.sample()
            await asyncio.sleep(_SAMPLE_SECONDS)

    def find(self, tp: TopicPartition) -> EndHistory | None:
        return self._known.get(tp)

    def end(self, tp: TopicPartition) -> int | None:
        """Returns the end of what consumers may read of a log; None if it is not known."""
        partition = self._partitions.find(tp)
        if partition is not None:
            return partition.high_watermark
        known = self._known.get(tp)
        return known.end if known is not None else None

    async def sample(self) -> None:
        """Notes the ends of all logs for which a group of this broker has committed an offset."""
        before, self._known = self._known, {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for step, (_, tp, _) in enumerate(self.committed()):
            if step % _STEPS == 0:
                await asyncio.sleep(0)
            if tp in self._known:
                continue
            history = self._known[tp] = before.get(tp) or EndHistory()
            partition = self._partitions.find(tp)
            if partition is not None:
                history.note(self._clock.monotonic(), partition.high_watermark)
                continue
            state = self._image().partition(*tp)
            if state is not None and state.leader != NO_LEADER:
                elsewhere.setdefault(state.leader, []).append(tp)
        for leader, asked in elsewhere.items():
            for first in range(0, len(asked), _ASKED_AT_ONCE):
                await self._ask(leader, asked[first : first + _ASKED_AT_ONCE])

    def committed(self) -> Iterator[tuple[str, TopicPartition, Committed]]:
        """Yields the offsets of the groups that this broker coordinates. They may change between
        two steps."""
        for shard in self._groups.loaded():
            for group, topics in tuple(shard.committed.groups()):
                for topic, offsets in tuple(topics.items()):
                    for index, committed in tuple(offsets.items()):
                        yield group, TopicPartition(topic, index), committed

    async def _ask(self, leader: int, asked: list[TopicPartition]) -> None:
        topics: dict[str, ListOffsetsTopic] = {}
        for topic, index in asked:
            found = topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[]))
            found.partitions.append(ListOffsetsPartition(partition_index=index, timestamp=_LATEST))
        request = ListOffsetsRequest(replica_id=_CLIENT, topics=list(topics.values()))
        try:
            response: ListOffsetsResponse = await self._channel.ask(leader, request)
        except PeerError:
            return  # the lag stays what it was until the broker can be reached
        now = self._clock.monotonic()
        for answer in response.topics:
            for each in answer.partitions:
                history = self._known.get(TopicPartition(answer.name, each.partition_index))
                if history is not None and not each.error_code and each.offset >= 0:
                    history.note(now, each.offset)
