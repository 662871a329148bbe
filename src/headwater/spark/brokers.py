"""What a query asks of the brokers: topics, edges of logs, times, sizes; and what it tells a group.

Spark calls from a plain thread and waits, so each process has an event loop of its own here that
runs only while somebody waits for an answer. Connections stay open between calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster, Coordinator
from headwater.client.config import ConsumerConfig
from headwater.client.errors import (
    ClientError,
    NotLeader,
    RetriableError,
    UnknownTopic,
    error_for,
)
from headwater.client.metadata import Topic
from headwater.errors import ErrorCode
from headwater.io import Host, process_id
from headwater.model import NO_NODE, ZERO_ID, TopicPartition
from headwater.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from headwater.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.spark.errors import UNANSWERED, unanswered
from headwater.spark.offsets import Offsets, Position
from headwater.spark.options import EARLIEST, LATEST, SourceOptions, Subscription, client_config

_log = logging.getLogger("headwater.spark")

_Answer = TypeVar("_Answer")

# From the next version on, topics have ids in the request; names work with every broker.
_NAMES_COMMIT_MAX = 9
_NAMES_FETCH_MAX = 12
_COMMIT_SECONDS = 10.0
# A fetch that waits names every partition. For more than these, looking again is cheaper.
_WAITED_FOR_MAX = 500
_NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class LogPlace:
    """Where a broker keeps a partition, and how much of it there is."""

    directory: str
    size_bytes: int


class Brokers:
    """What all queries of a process with the same settings share."""

    def __init__(self, config: ConsumerConfig, *, read_committed: bool) -> None:
        self.host = Host.system()
        self._config = config
        self._isolation = int(read_committed)
        self._loop = asyncio.new_event_loop()
        self._backoff = Backoff(self._config.retry_backoff_ms, self._config.retry_backoff_max_ms)
        self._cluster: Cluster | None = None
        # A broker answers a connection in order: a fetch that waits would hold up what we ask
        # next. So waiting has connections of its own.
        self._waiting: Cluster | None = None
        self._waits: dict[int, asyncio.Task[Any]] = {}

    def run(self, coroutine: Coroutine[Any, Any, _Answer], about: object = None) -> _Answer:
        """Waits for something that is to be done on our loop. If nobody answers, the error says
        what it was `about`."""
        try:
            return self._loop.run_until_complete(coroutine)
        except UNANSWERED as error:
            if about is None:
                raise
            raise unanswered(error, about) from None

    async def cluster(self) -> Cluster:
        if self._cluster is None:
            cluster = Cluster(self._config, self.host)
            await cluster.start()
            self._cluster = cluster
        return self._cluster

    def close(self) -> None:
        async def end() -> None:
            for wait in self._waits.values():
                wait.cancel()
            for cluster in (self._cluster, self._waiting):
                if cluster is not None:
                    await cluster.close()

        self.run(end())
        self._loop.close()

    # Topics

    def topics(self, options: SourceOptions) -> dict[str, Topic]:
        """The topics of the subscription as they are now. UnknownTopic if one is not there."""
        return self.run(self._topics(options), about=options.subscription)

    async def _topics(self, options: SourceOptions) -> dict[str, Topic]:
        subscription = options.subscription
        names: list[str] | None = None
        if subscription.pattern is None:
            names = list(subscription.topics or {tp.topic: None for tp in subscription.assigned})
        tries = 0
        while True:
            found = await self._ask_topics(names)
            missing = [name for name in names or () if name not in found]
            if not missing:
                break
            tries += 1
            if tries > options.offset_retries:
                raise _unknown(missing, options.bootstrap)
            await asyncio.sleep(options.offset_retry_ms / 1000)
        if names is None:
            return {
                name: topic
                for name, topic in sorted(found.items())
                if not topic.is_internal and subscription.wants(TopicPartition(name, 0))
            }
        return found

    async def _ask_topics(self, names: list[str] | None) -> dict[str, Topic]:
        cluster = await self.cluster()
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        answer = await cluster.ask(request, deadline=self._deadline(cluster))
        cluster.metadata.update(answer, is_all=names is None)
        for each in answer.topics:
            if each.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED and names is not None:
                raise error_for(each.error_code, f"topic {each.name}")
        known = cluster.metadata.topics
        return {each.name: known[each.name] for each in answer.topics if each.name in known}

    # Offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        found = self.at(dict.fromkeys(partitions, EARLIEST))
        return {tp: offset for tp, (offset, _) in found.items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The ends: of all records, or of those that are decided if only these are read."""
        found = self.at(dict.fromkeys(partitions, LATEST))
        return {tp: offset for tp, (offset, _) in found.items()}

    def log_start(self, tp: TopicPartition) -> int:
        """Where one log starts now; for tasks, which know of no topic yet."""

        async def ask() -> int:
            cluster = await self.cluster()
            if tp.topic not in cluster.metadata.topics:
                await self._ask_topics([tp.topic])
            return (await self._at({tp: EARLIEST}))[tp][0]

        return self.run(ask(), about=tp)

    def at(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) of the first record at or after a time, -1 if there is none; or of
        an edge of the log."""
        return self.run(self._at(times), about=_named(times)) if times else {}

    async def _at(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int]]:
        cluster = await self.cluster()
        deadline = self._deadline(cluster)
        found: dict[TopicPartition, tuple[int, int]] = {}
        failures = 0
        while True:
            left = {tp: time for tp, time in times.items() if tp not in found}
            problem: ClientError | None = None
            by_leader: dict[int, list[TopicPartition]] = {}
            for tp in left:
                leader = cluster.metadata.leader(tp)
                if leader is None:
                    problem = NotLeader(f"{tp} has no leader now")
                else:
                    by_leader.setdefault(leader, []).append(tp)
            for leader, asked in by_leader.items():
                try:
                    await self._ask_offsets(cluster, leader, asked, left, found)
                except RetriableError as error:
                    problem = error
            if problem is None:
                return found
            failures += 1
            wait = self._backoff.seconds(failures, self.host.random)
            if cluster.now() + wait >= deadline:
                raise problem
            await asyncio.sleep(wait)
            await self._ask_topics(sorted({tp.topic for tp in left}))

    async def _ask_offsets(
        self,
        cluster: Cluster,
        leader: int,
        asked: list[TopicPartition],
        times: Mapping[TopicPartition, int],
        found: dict[TopicPartition, tuple[int, int]],
    ) -> None:
        request = ListOffsetsRequest(
            replica_id=NO_NODE,
            isolation_level=self._isolation,
            topics=_by_topic(
                asked,
                lambda topic, parts: ListOffsetsTopic(
                    name=topic,
                    partitions=[
                        ListOffsetsPartition(partition_index=tp.partition, timestamp=times[tp])
                        for tp in parts
                    ],
                ),
            ),
            timeout_ms=self._config.request_timeout_ms,
        )
        connection = await cluster.connection(leader)
        answer = await connection.ask(request, timeout_ms=self._config.request_timeout_ms)
        problem = None
        for topic in answer.topics:
            for each in topic.partitions:
                tp = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    problem = error_for(each.error_code, str(tp))
                else:
                    found[tp] = (each.offset, each.timestamp)
        if problem is not None:
            raise problem

    def _deadline(self, cluster: Cluster) -> float:
        return cluster.deadline(self._config.default_api_timeout_ms)

    # Waiting for something new

    def wait(self, position: Position, timeout_ms: int) -> None:
        """Until a partition has more than was read of it, or the time is over."""
        self.run(self._wait(position, timeout_ms))

    def pause(self, timeout_ms: int) -> None:
        """Waits without asking anybody."""
        self.run(asyncio.sleep(timeout_ms / 1000))

    async def _wait(self, position: Position, timeout_ms: int) -> None:
        metadata = (await self.cluster()).metadata
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in position.offsets:
            leader = metadata.leader(tp)
            if leader is not None:
                by_leader.setdefault(leader, []).append(tp)
        if not by_leader or len(position.offsets) > _WAITED_FOR_MAX:
            await asyncio.sleep(timeout_ms / 1000)
            return
        if self._waiting is None:
            waiting = Cluster(self._config, self.host)
            await waiting.start()
            self._waiting = waiting
        for leader, parts in by_leader.items():
            if leader not in self._waits or self._waits[leader].done():
                self._waits[leader] = self._loop.create_task(
                    self._wait_at(self._waiting, leader, parts, position.offsets, timeout_ms)
                )
        await asyncio.wait(
            list(self._waits.values()),
            timeout=timeout_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def _wait_at(
        self,
        cluster: Cluster,
        leader: int,
        parts: list[TopicPartition],
        offsets: Offsets,
        timeout_ms: int,
    ) -> None:
        request = FetchRequest(
            max_wait_ms=timeout_ms,
            min_bytes=1,
            max_bytes=1,
            isolation_level=self._isolation,
            topics=_by_topic(
                parts,
                lambda topic, named: FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(
                            partition=tp.partition,
                            fetch_offset=offsets[tp],
                            partition_max_bytes=1,
                        )
                        for tp in named
                    ],
                ),
            ),
        )
        try:
            connection = await cluster.connection(leader)
            await connection.ask(
                request,
                at_most=_NAMES_FETCH_MAX,
                timeout_ms=timeout_ms + self._config.request_timeout_ms,
            )
        except ClientError:
            # The look that follows says what is wrong, if it still is.
            await asyncio.sleep(timeout_ms / 1000)

    # Directories

    def places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogPlace]:
        """Where the leaders keep these, as far as they tell."""
        named = list(partitions)
        return self.run(self._places(named), about=_named(named))

    async def _places(self, partitions: list[TopicPartition]) -> dict[TopicPartition, LogPlace]:
        cluster = await self.cluster()
        found: dict[TopicPartition, LogPlace] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = cluster.metadata.leader(tp)
            if leader is not None:
                by_leader.setdefault(leader, []).append(tp)
        for leader, parts in by_leader.items():
            request = DescribeLogDirsRequest(
                topics=_by_topic(
                    parts,
                    lambda topic, named: DescribableLogDirTopic(
                        topic=topic, partitions=[tp.partition for tp in named]
                    ),
                )
            )
            answer = await cluster.ask(request, to=leader, deadline=self._deadline(cluster))
            if answer.error_code:
                raise error_for(answer.error_code, f"log directories of node {leader}")
            for result in answer.results:
                for topic in result.topics:
                    for each in topic.partitions:
                        if not each.is_future_key:
                            tp = TopicPartition(topic.name, each.partition_index)
                            found[tp] = LogPlace(result.log_dir, each.partition_size)
        return found

    # Groups

    def commit(self, group: str, position: Position) -> None:
        """Notes progress for tools that show lag. A query never fails for it: Spark's checkpoint
        is what counts."""
        try:
            self.run(self._commit(group, position))
        except ClientError as error:
            _log.warning("group %s: progress was not committed: %s", group, error)

    async def _commit(self, group: str, position: Position) -> None:
        cluster = await self.cluster()
        request = OffsetCommitRequest(
            group_id=group,
            member_id="",
            topics=_by_topic(
                position.offsets,
                lambda topic, parts: OffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=tp.partition,
                            committed_offset=position.offsets[tp],
                            committed_metadata="",
                        )
                        for tp in parts
                    ],
                ),
            ),
        )
        answer = await cluster.ask(
            request,
            to=Coordinator(group),
            code_of=lambda answer: next(_codes(answer), 0),
            deadline=cluster.now() + _COMMIT_SECONDS,
            at_most=_NAMES_COMMIT_MAX,
        )
        for code in _codes(answer):
            if code == ErrorCode.UNKNOWN_MEMBER_ID:
                raise error_for(code, group, "consumers are in it; give the query one of its own")
            raise error_for(code, group)


def _unknown(names: list[str], bootstrap: str) -> UnknownTopic:
    word = "topic" if len(names) == 1 else "topics"
    return UnknownTopic(
        f"{word} {', '.join(names)}: not on {bootstrap}; create it first, or look at the name",
        code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def _named(partitions: Collection[TopicPartition]) -> str:
    """The first of them by name; a line has no room for a thousand."""
    names = ", ".join(map(str, sorted(partitions)[:_NAMED_MAX]))
    more = len(partitions) - _NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names


def _codes(answer: Any) -> Any:
    return (
        each.error_code for topic in answer.topics for each in topic.partitions if each.error_code
    )


def _by_topic(
    partitions: Iterable[TopicPartition], make: Callable[[str, list[TopicPartition]], _Answer]
) -> list[_Answer]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(tp)
    return [make(topic, parts) for topic, parts in topics.items()]


def ids_of(topics: Mapping[str, Topic]) -> dict[str, bytes]:
    return {name: each.topic_id for name, each in topics.items() if each.topic_id != ZERO_ID}


def partitions_of(topics: Mapping[str, Topic], subscription: Subscription) -> list[TopicPartition]:
    """What is to be read of these topics. UnknownTopic if a partition that was named is not."""
    if not subscription.assigned:
        return [
            TopicPartition(name, each.index)
            for name, topic in sorted(topics.items())
            for each in topic.partitions
        ]
    for tp in subscription.assigned:
        count = len(topics[tp.topic].partitions)
        if tp.partition >= count:
            raise UnknownTopic(
                f"assign has {tp}: topic {tp.topic} has {count} partitions, counted from 0",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
    return list(subscription.assigned)


# Spark keeps Python workers and gives them one task after the other; each task would connect anew
# if what it opened ended with it. Keyed by process: a fork must not use its parent's sockets.
_of_process: dict[tuple[Any, ...], Brokers] = {}
_OF_PROCESS_MAX = 8


def brokers_of_process(options: SourceOptions) -> Brokers:
    """The one for these settings in this process."""
    key = (
        process_id(),
        options.bootstrap,
        tuple(sorted(options.settings.items())),
        options.read_committed,
    )
    found = _of_process.pop(key, None)
    if found is None:
        found = Brokers(client_config(options), read_committed=options.read_committed)
    _of_process[key] = found  # the one that was used last is last
    while len(_of_process) > _OF_PROCESS_MAX:
        oldest = next(iter(_of_process))
        brokers = _of_process.pop(oldest)
        if oldest[0] == process_id():
            brokers.close()
    return found
