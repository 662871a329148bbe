"""Asking leaders about offsets: by time, the ends of logs, and where an epoch ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.errors import (
    ClientError,
    NotLeader,
    RequestTimedOut,
    RetriableError,
    UnknownTopic,
    UnsupportedVersion,
    error_for,
)
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol import Message
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

_CONSUMER = -1  # who asks: no replica

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OffsetAndTimestamp:
    """An offset that was looked for; -1 if there is none, as for a time after the last record."""

    offset: int
    timestamp: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class EpochEnd:
    epoch: int
    end_offset: int


Answers = dict[TopicPartition, T | ClientError]


class OffsetLookup:
    def __init__(self, config: ConsumerConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster
        self._isolation = int(config.isolation_level == "read_committed")
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)

    async def by_time(
        self, wanted: Mapping[TopicPartition, int], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The offset of each timestamp (-2 the first, -1 the end), asked for until the deadline."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        left = dict(wanted)
        failures = 0
        await self._cluster.topics({tp.topic for tp in wanted}, deadline=deadline)
        while left:
            last: ClientError | None = None
            for tp, answer in (await self.by_time_once(left, deadline=deadline)).items():
                if isinstance(answer, ClientError):
                    if not isinstance(answer, RetriableError):
                        raise answer
                    last = answer
                else:
                    found[tp] = answer
                    del left[tp]
            if last is not None:
                failures += 1
                wait = self._backoff.seconds(failures, self._cluster.host.random)
                if self._cluster.now() + wait >= deadline:
                    raise last
                await asyncio.sleep(wait)
        return found

    async def by_time_once(
        self, wanted: Mapping[TopicPartition, int], *, deadline: float
    ) -> Answers[OffsetAndTimestamp]:
        """One try, to all leaders at once. Whatever fails is an answer, too."""

        async def ask(node_id: int, group: list[TopicPartition]) -> Answers[OffsetAndTimestamp]:
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=self._isolation,
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=tp.partition,
                                current_leader_epoch=self._leader_epoch(tp),
                                timestamp=wanted[tp],
                            )
                            for tp in members
                        ],
                    )
                    for topic, members in _by_topic(group).items()
                ],
                timeout_ms=self._config.request_timeout_ms,
            )
            answer = await self._ask(node_id, request, deadline)
            return {
                TopicPartition(topic.name, each.partition_index): (
                    OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
                    if not each.error_code
                    else self._refused(topic.name, each.partition_index, each.error_code)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._all_leaders(wanted, ask, deadline)

    async def epoch_ends_once(
        self, wanted: Mapping[TopicPartition, int], *, deadline: float
    ) -> Answers[EpochEnd]:
        """Where each epoch ended in the log of the partition's leader."""

        async def ask(node_id: int, group: list[TopicPartition]) -> Answers[EpochEnd]:
            request = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[
                    OffsetForLeaderTopic(
                        topic=topic,
                        partitions=[
                            OffsetForLeaderPartition(
                                partition=tp.partition,
                                current_leader_epoch=self._leader_epoch(tp),
                                leader_epoch=wanted[tp],
                            )
                            for tp in members
                        ],
                    )
                    for topic, members in _by_topic(group).items()
                ],
            )
            answer = await self._ask(node_id, request, deadline)
            return {
                TopicPartition(topic.topic, each.partition): (
                    EpochEnd(each.leader_epoch, each.end_offset)
                    if not each.error_code
                    else self._refused(topic.topic, each.partition, each.error_code)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self._all_leaders(wanted, ask, deadline)

    def _leader_epoch(self, tp: TopicPartition) -> int:
        partition = self._cluster.metadata.partition(tp)
        return -1 if partition is None else partition.leader_epoch

    async def _ask(self, node_id: int, request: Message, deadline: float) -> Any:
        connection = await self._cluster.connection(node_id)
        left_ms = max(1, round((deadline - self._cluster.now()) * 1000))
        timeout_ms = min(self._config.request_timeout_ms, left_ms)
        return await connection.ask(request, timeout_ms=timeout_ms)

    def _refused(self, topic: str, partition: int, code: int) -> ClientError:
        self._cluster.need_update(topic)
        what = f"offset of {TopicPartition(topic, partition)}"
        if code in (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.LEADER_NOT_AVAILABLE):
            return NotLeader(f"{what}: the leader is new and not ready yet", code=ErrorCode(code))
        return error_for(code, what)

    def _missing(self, tp: TopicPartition) -> ClientError:
        topic = self._cluster.metadata.topics.get(tp.topic)
        if topic is None:
            return error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {tp.topic}")
        last = len(topic.partitions) - 1
        return UnknownTopic(f"{tp} does not exist: the topic has partitions 0 to {last}")

    async def _all_leaders(
        self,
        wanted: Iterable[TopicPartition],
        ask: Callable[[int, list[TopicPartition]], Awaitable[Answers[T]]],
        deadline: float,
    ) -> Answers[T]:
        answers: Answers[T] = {}
        groups: dict[int, list[TopicPartition]] = {}
        for tp in wanted:
            leader = self._cluster.metadata.leader(tp)
            if leader is not None:
                groups.setdefault(leader, []).append(tp)
                continue
            self._cluster.need_update(tp.topic)
            known = self._cluster.metadata.partition(tp) is not None
            answers[tp] = NotLeader(f"{tp} has no leader now") if known else self._missing(tp)

        left = max(0.0, deadline - self._cluster.now())

        async def one(node_id: int, group: list[TopicPartition]) -> Answers[T]:
            try:
                # To be connected may take longer than the caller wants to wait.
                async with asyncio.timeout(min(left, self._config.request_timeout_ms / 1000)):
                    found = await ask(node_id, group)
            except (RetriableError, UnsupportedVersion) as error:
                self._cluster.need_update()
                return dict.fromkeys(group, error)
            except TimeoutError:
                names = ", ".join(map(str, group[:3]))
                problem = RequestTimedOut(
                    f"offsets of {names}: node {node_id} gave no answer in time"
                )
                return dict.fromkeys(group, problem)
            missing = NotLeader(f"node {node_id} did not answer for all partitions")
            return {tp: found.get(tp, missing) for tp in group}

        for found in await asyncio.gather(*(one(node, group) for node, group in groups.items())):
            answers |= found
        return answers


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp)
    return topics
