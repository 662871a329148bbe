"""Asks the brokers about topics and offsets for a query, and commits its progress to a group.

Spark calls from a plain thread and waits, so each process has an event loop here that runs only
while a caller waits for an answer. Connections stay open between calls.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.errors import ClientError, UnknownTopic, error_for
from headwater.client.metadata import Topic
from headwater.client.requests.describe_log_dirs import describe_log_dirs
from headwater.client.requests.list_offsets import list_offsets
from headwater.client.requests.new_records import wait_for_records
from headwater.client.requests.offset_commit import OffsetAndMetadata, commit_offsets
from headwater.client.requests.routing import Router
from headwater.errors import ErrorCode
from headwater.io import Host, process_id
from headwater.model import ZERO_ID, TopicPartition
from headwater.spark.errors import UNANSWERED, DataLost, OptionError, unanswered
from headwater.spark.offsets import Offsets, SourceOffset
from headwater.spark.options import (
    EARLIEST,
    LATEST,
    Bound,
    ByOffset,
    ByTime,
    Place,
    SourceOptions,
    Subscription,
    client_config,
)

_log = logging.getLogger("headwater.spark")

_Answer = TypeVar("_Answer")

_COMMIT_TIMEOUT_MS = 10_000
# A fetch that waits names every partition. With more than these, polling is cheaper.
_WAITED_FOR_MAX = 500
_NAMED_MAX = 4


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The log directory of a partition on its leader, and the size of its log."""

    directory: str
    size_bytes: int


class OffsetReader:
    """Shared by all queries of a process that have the same settings."""

    def __init__(self, config: ConsumerConfig, *, read_committed: bool) -> None:
        self.host = Host.system()
        self._config = config
        self._read_committed = read_committed
        self._loop = asyncio.new_event_loop()
        self._started: Cluster | None = None
        self._router: Router | None = None
        self._waits: dict[int, asyncio.Task[None]] = {}

    def run(self, coroutine: Coroutine[Any, Any, _Answer], about: object = None) -> _Answer:
        """Runs a coroutine to its end. If no broker answers, the error names what it was about."""
        try:
            return self._loop.run_until_complete(coroutine)
        except UNANSWERED as error:
            if about is None:
                raise
            raise unanswered(error, about) from None

    async def cluster(self) -> Cluster:
        """Returns the connections to the brokers, which are opened at the first call."""
        return (await self._routed()).cluster

    async def _routed(self) -> Router:
        if self._router is None:
            cluster = Cluster(self._config, self.host)
            await cluster.start()
            self._started = cluster
            self._router = Router(
                cluster,
                default_timeout_ms=self._config.default_api_timeout_ms,
                trusts_metadata=True,
            )
        return self._router

    def close(self) -> None:
        async def end() -> None:
            for wait in self._waits.values():
                wait.cancel()
            if self._started is not None:
                await self._started.close()

        self.run(end())
        self._loop.close()

    # Topics

    def topics(self, options: SourceOptions) -> dict[str, Topic]:
        """Returns the topics of the subscription as of now. UnknownTopic if one is missing."""
        return self.run(self._topics(options), about=options.subscription)

    async def _topics(self, options: SourceOptions) -> dict[str, Topic]:
        subscription = options.subscription
        if subscription.pattern is not None:
            every = await self._learn(None)
            return {
                name: topic
                for name, topic in sorted(every.items())
                if not topic.is_internal and subscription.wants(TopicPartition(name, 0))
            }
        names = list(subscription.topics or {tp.topic: None for tp in subscription.assigned})
        tries = 0
        while True:
            known = await self._learn(names)
            missing = [name for name in names if name not in known]
            if not missing:
                return {name: known[name] for name in names}
            tries += 1
            if tries > options.offset_retries:
                raise _unknown(missing, options.bootstrap)
            await asyncio.sleep(options.offset_retry_ms / 1000)

    async def _learn(self, names: list[str] | None) -> Mapping[str, Topic]:
        router = await self._routed()
        refused = await router.learn(names, router.deadline(None))
        for name in names or ():
            if refused.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise error_for(refused[name], f"topic {name}")
        return router.cluster.metadata.topics

    # Offsets

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self.at(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Returns the ends of the logs, or with read_committed their last stable offsets."""
        return self.at(dict.fromkeys(partitions, LATEST))

    def log_start(self, tp: TopicPartition) -> int:
        return self.earliest([tp])[tp]

    def at(self, times: Mapping[TopicPartition, int]) -> Offsets:
        """Returns the offset of the first record at or after each time, -1 if there is none."""
        return self.run(self._at(times), about=_named(times)) if times else {}

    async def _at(self, times: Mapping[TopicPartition, int]) -> Offsets:
        router = await self._routed()
        results = await list_offsets(router, times, read_committed=self._read_committed)
        found = {}
        for tp, result in results.items():
            if isinstance(result, ClientError):
                raise result
            found[tp] = result.offset
        return found

    # Where a query starts and ends

    def resolve(
        self,
        bound: Bound,
        partitions: Sequence[TopicPartition],
        options: SourceOptions,
        *,
        option: str,
    ) -> Offsets:
        """Returns an offset for each partition, as the options say. OptionError if they do not name
        every partition; DataLost for an offset that is not in the log."""
        match bound:
            case Place.EARLIEST:
                return self.earliest(partitions)
            case Place.LATEST:
                return self.latest(partitions)
            case ByOffset(offsets):
                return self._by_offset(offsets, partitions, options, option=option)
            case ByTime():
                return self._by_time(bound, partitions)
        raise AssertionError(bound)

    def _by_offset(
        self,
        offsets: Mapping[TopicPartition, int],
        partitions: Sequence[TopicPartition],
        options: SourceOptions,
        *,
        option: str,
    ) -> Offsets:
        _check_names_all(option, offsets, partitions)
        earliest, latest = self.earliest(partitions), self.latest(partitions)
        found = {}
        for tp in partitions:
            offset = offsets[tp]
            if offset in (EARLIEST, LATEST):
                found[tp] = earliest[tp] if offset == EARLIEST else latest[tp]
                continue
            found[tp] = min(max(offset, earliest[tp]), latest[tp])
            if found[tp] != offset:
                text = (
                    f"{tp}: {option} has offset {offset}, which is not in the log; it has "
                    f"{earliest[tp]} up to {latest[tp]}"
                )
                if options.fail_on_data_loss:
                    raise DataLost(f"{text}; failOnDataLoss=false takes the nearest instead")
                _log.warning("%s; taking %d", text, found[tp])
        return found

    def _by_time(self, bound: ByTime, partitions: Sequence[TopicPartition]) -> Offsets:
        if bound.each_ms:
            _check_names_all(bound.option, bound.each_ms, partitions)
            times = {tp: bound.each_ms[tp] for tp in partitions}
        else:
            moment = bound.everywhere_ms
            if moment is None:
                assert bound.ago_ms is not None
                moment = max(0, self.host.clock.wall_ms() - bound.ago_ms)
            times = dict.fromkeys(partitions, moment)
        found = self.at(times)
        missing = [tp for tp in partitions if found[tp] < 0]
        if missing and not bound.latest_if_none:
            raise OptionError(
                f"{missing[0]}: {bound.option} is {times[missing[0]]}, and there is no record of "
                "that time or later; startingOffsetsByTimestampStrategy=latest starts at the end"
            )
        return {**found, **self.latest(missing)}

    # Waiting for records

    def wait(self, position: SourceOffset, timeout_ms: int) -> None:
        """Waits until a partition has records that were not read, or the timeout expires."""
        self.run(self._wait(position, timeout_ms))

    def pause(self, timeout_ms: int) -> None:
        """Waits without a request."""
        self.run(asyncio.sleep(timeout_ms / 1000))

    async def _wait(self, position: SourceOffset, timeout_ms: int) -> None:
        cluster = await self.cluster()
        led: dict[int, dict[TopicPartition, int]] = {}
        for tp, offset in position.offsets.items():
            leader = cluster.metadata.leader(tp)
            if leader is not None:
                led.setdefault(leader, {})[tp] = offset
        if not led or len(position.offsets) > _WAITED_FOR_MAX:
            await asyncio.sleep(timeout_ms / 1000)
            return
        for leader, offsets in led.items():
            # A request that still waits at its leader is not sent again.
            if leader not in self._waits or self._waits[leader].done():
                wait = self._wait_at(cluster, leader, offsets, timeout_ms)
                self._waits[leader] = self._loop.create_task(wait)
        await asyncio.wait(
            list(self._waits.values()),
            timeout=timeout_ms / 1000,
            return_when=asyncio.FIRST_COMPLETED,
        )

    async def _wait_at(
        self, cluster: Cluster, leader: int, offsets: Offsets, timeout_ms: int
    ) -> None:
        try:
            await wait_for_records(
                cluster,
                leader,
                offsets,
                timeout_ms=timeout_ms,
                read_committed=self._read_committed,
            )
        except ClientError:
            # The next request for offsets says what is wrong, if it still is.
            await asyncio.sleep(timeout_ms / 1000)

    # Log directories

    def places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LogPlace]:
        """Returns where leaders keep these partitions. ClientError if a leader does not tell."""
        named = list(partitions)
        return self.run(self._places(named), about=_named(named))

    async def _places(self, partitions: list[TopicPartition]) -> dict[TopicPartition, LogPlace]:
        router = await self._routed()
        metadata = router.cluster.metadata
        leaders = {tp: leader for tp in partitions if (leader := metadata.leader(tp)) is not None}
        answers = await describe_log_dirs(
            router, sorted(set(leaders.values())), partitions=partitions
        )
        found: dict[TopicPartition, LogPlace] = {}
        for leader, directories in answers.items():
            if isinstance(directories, ClientError):
                raise directories
            for path, directory in directories.items():
                for tp, replica in directory.replicas.items():
                    if leaders.get(tp) == leader and not replica.is_future:
                        found[tp] = LogPlace(path, replica.size_bytes)
        return found

    # Groups

    def commit(self, group: str, position: SourceOffset) -> None:
        """Commits progress for tools that show lag. Errors are logged: Spark's checkpoint is what
        counts, and a query does not fail for its group."""
        try:
            self.run(self._commit(group, position))
        except ClientError as error:
            _log.warning("group %s: progress was not committed: %s", group, error)

    async def _commit(self, group: str, position: SourceOffset) -> None:
        offsets = {tp: OffsetAndMetadata(offset) for tp, offset in position.offsets.items()}
        router = await self._routed()
        results = await commit_offsets(router, group, offsets, timeout_ms=_COMMIT_TIMEOUT_MS)
        for error in results.values():
            if error is not None:
                raise error


def _check_names_all(
    option: str, named: Mapping[TopicPartition, int], partitions: Sequence[TopicPartition]
) -> None:
    missing = [str(tp) for tp in partitions if tp not in named]
    if missing:
        raise OptionError(
            f"{option} does not name {', '.join(missing[:_NAMED_MAX])}: it must name every "
            "partition that is read; -1 is the latest offset, -2 the earliest"
        )
    strangers = [str(tp) for tp in sorted(named) if tp not in set(partitions)]
    if strangers:
        names = ", ".join(strangers[:_NAMED_MAX])
        raise OptionError(f"{option} names {names}, which is not read by this query")


def _unknown(names: list[str], bootstrap: str) -> UnknownTopic:
    word = "topic" if len(names) == 1 else "topics"
    return UnknownTopic(
        f"{word} {', '.join(names)}: not on {bootstrap}; create it first, or check the name",
        code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


def _named(partitions: Collection[TopicPartition]) -> str:
    """Returns the names of the first few partitions; a line has no room for a thousand."""
    names = ", ".join(map(str, sorted(partitions)[:_NAMED_MAX]))
    more = len(partitions) - _NAMED_MAX
    return f"{names} and {more} more" if more > 0 else names


def ids_of(topics: Mapping[str, Topic]) -> dict[str, bytes]:
    return {name: each.topic_id for name, each in topics.items() if each.topic_id != ZERO_ID}


def partitions_of(topics: Mapping[str, Topic], subscription: Subscription) -> list[TopicPartition]:
    """Returns the partitions to read. UnknownTopic if one that `assign` names does not exist."""
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
                f"assign has {tp}, and topic {tp.topic} has the partitions 0 to {count - 1}",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
    return list(subscription.assigned)


# Spark keeps Python workers and gives them one task after the other; without this each task would
# open its own connections. Keyed by process: a fork must not use its parent's sockets.
_of_process: dict[tuple[Any, ...], OffsetReader] = {}
_OF_PROCESS_MAX = 8


def offset_reader_of_process(options: SourceOptions) -> OffsetReader:
    """Returns this process's reader for these settings."""
    key = (
        process_id(),
        options.bootstrap,
        tuple(sorted(options.settings.items())),
        options.read_committed,
    )
    found = _of_process.pop(key, None)
    if found is None:
        found = OffsetReader(client_config(options), read_committed=options.read_committed)
    _of_process[key] = found  # in the order of their last use
    while len(_of_process) > _OF_PROCESS_MAX:
        oldest = next(iter(_of_process))
        reader = _of_process.pop(oldest)
        if oldest[0] == process_id():
            reader.close()
    return found
