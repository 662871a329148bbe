"""The consumer as users meet it.

Records are fetched in the background and handed out by `async for`, by `poll`, or as columns by
`poll_arrow`; the three may take turns. Whatever has to do with the group (partitions come and go,
listeners are called) happens inside these calls and nowhere else, so what a listener sees is true.
"""

from __future__ import annotations

import asyncio
import logging
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from headwater._core import ConsumedRecord
from headwater.client.cluster import Cluster
from headwater.client.config import Bootstrap, ConsumerConfig
from headwater.client.consumer import given
from headwater.client.consumer.bad_records import (
    BadRecordCallback,
    OnBadRecord,
    bad_record_callback,
    run_callback,
)
from headwater.client.consumer.committer import Committed, Committer
from headwater.client.consumer.given import GivenOffsets
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.loops import Records
from headwater.client.consumer.metrics import distances
from headwater.client.consumer.partition import PartitionState
from headwater.client.consumer.reading import Reading
from headwater.client.consumer.slices import Slice
from headwater.client.consumer.subscription import Subscriptions
from headwater.client.deserializers import K, V
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    ConfigError,
    DeserializationFailed,
    RequestTimedOut,
    RetriableError,
)
from headwater.client.requests.list_offsets import OffsetAndTimestamp, OffsetSpec, list_offsets
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.io import Host
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from headwater.client.settings import ConsumerSettings

_log = logging.getLogger("headwater.client")

_CLOSE_TIMEOUT_MS = 30_000
_JOIN_SECONDS = 60.0

T = TypeVar("T")


class Consumer(Generic[K, V]):
    """Reads records. `async with Consumer("localhost:9092", group="g", topics=["t"]) as consumer:`

    With a group, the partitions of the topics are shared among its members; without one, this
    consumer reads all of them, or those given to `assign`. Settings are Kafka's, spelled with
    underscores, or a dict `config` with Kafka's names.

    `on_bad_record` says what happens to a record that a deserializer does not take: "raise"
    raises `DeserializationFailed` and stays at the record; a function (plain or `async`) is called
    with that error and the record is skipped when it returns; a `DeadLetter` sends the record to
    another topic first.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        on_bad_record: OnBadRecord = "raise",
        key_deserializer: Callable[[bytes], K] | None = None,
        value_deserializer: Callable[[bytes], V] | None = None,
        config: Mapping[str, Any] | None = None,
        host: Host | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        wanted: dict[str, Any] = dict(settings)
        if group is not None:
            if "group_id" in wanted:
                raise ConfigError(f"group={group!r} and group_id={wanted['group_id']!r}: give one")
            wanted["group_id"] = group
        if key_deserializer is not None:
            wanted["key_deserializer"] = key_deserializer
        if value_deserializer is not None:
            wanted["value_deserializer"] = value_deserializer
        self.config = ConsumerConfig.build(bootstrap, config=config, **wanted)
        if "partition.assignment.strategy" in self.config.given:
            from headwater.client.consumer.membership.assignors import assignors_of

            assignors_of(self.config.partition_assignment_strategy)  # says which is unknown
        self._host = host if host is not None else Host.system()
        self._cluster = Cluster(self.config, self._host)
        self._subscriptions = Subscriptions()
        self._listener = given.listener(listener)
        self._on_bad_record = bad_record_callback(on_bad_record, is_blocking=False)
        self._reading: Reading | None = None
        self._is_polling = False
        self._closing = False
        if topics is not None or pattern is not None:
            self._want(topics, pattern)

    # Beginning and ending

    async def start(self) -> None:
        """Finds a broker. The group is joined by the first poll."""
        await self._cluster.start()
        self._reading = Reading(
            self.config, self._cluster, self._host, self._subscriptions, self._listener
        )
        if self._subscriptions.is_subscribed:
            self._reading.subscribed()

    async def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Commits what the user got (with auto commit), leaves the group and disconnects, all
        within the time given. A loop over the consumer ends."""
        given.milliseconds(timeout_ms)
        if self._reading is not None and not self._closing:
            self._reading.handing.settle()
        await self._close(timeout_ms)

    async def _close(self, timeout_ms: int) -> None:
        if self._closing:
            return
        self._closing = True
        reading = self._reading
        try:
            if reading is not None:
                self._cluster.check()
                deadline = self._cluster.deadline(timeout_ms)
                async with asyncio.timeout(timeout_ms / 1000):
                    await reading.end(deadline)
        except TimeoutError:
            _log.warning("close() left things undone: they took longer than %s ms", timeout_ms)
        except ClientError as error:
            _log.warning("close(): %s", error)
        finally:
            await self._cluster.close()
            if reading is not None:
                reading.wake()

    def __del__(self) -> None:
        if "_closing" in vars(self) and self._cluster.is_open_here:
            warn_unclosed(self, "async with")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        # After an exception the record that was being processed is not done.
        if error is None:
            await self.close()
        else:
            await self._close(_CLOSE_TIMEOUT_MS)

    def _checked(self) -> Reading:
        """Where a call enters. A listener may still call while the consumer is being closed."""
        self._cluster.check()
        if self._reading is None:
            raise ClientClosed("the consumer is still being started")
        return self._reading

    def _polled(self) -> Reading:
        if self._closing:
            raise ClientClosed("the consumer was closed; make a new one")
        return self._checked()

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Reads these topics instead of those before. A pattern is matched with whole names;
        with group_protocol="consumer", one given as text is matched by the brokers (RE2)."""
        reading = self._checked()
        given.listener(listener)
        self._want(topics, pattern)
        if listener is not None:
            reading.listener = listener
        reading.subscribed()

    def _want(self, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None) -> None:
        names = given.topics(topics)
        by_broker = self.config.group_protocol == "consumer" and self.config.group_id is not None
        if isinstance(pattern, str) and by_broker:
            self._subscriptions.subscribe(topics=names, regex=pattern)
        else:
            self._subscriptions.subscribe(topics=names, pattern=given.pattern(pattern))

    async def unsubscribe(self) -> None:
        """Reads nothing any more, and leaves the group."""
        reading = self._checked()
        reading.handing.settle()
        try:
            if reading.membership is not None:
                deadline = self._cluster.deadline(self.config.default_api_timeout_ms)
                await reading.membership.leave(deadline, reason="the consumer unsubscribed")
        finally:  # whatever a listener says to it
            reading.membership = None
            reading.drop(list(self._subscriptions.partitions))
            self._subscriptions.unsubscribe()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads exactly these partitions, without the group's protocol."""
        reading = self._checked()
        wanted = given.partitions(partitions)
        if self._subscriptions.is_subscribed:
            self._subscriptions.assign(wanted)  # says why not
        reading.let_go([tp for tp in self._subscriptions.partitions if tp not in wanted])
        self._subscriptions.assign(wanted)
        reading.follow(wanted)
        reading.changed()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer has now."""
        return set(self._subscriptions.partitions)

    def subscription(self) -> set[str]:
        """The topics that were subscribed to by name."""
        return set(self._subscriptions.topics)

    # Records

    def __aiter__(self) -> AsyncIterator[ConsumedRecord[K, V]]:
        self._polled()
        return Records(self.next_slice, self._cluster.now)

    async def poll(
        self, timeout_ms: int = 1000, records_max: int | None = None
    ) -> list[ConsumedRecord[K, V]]:
        """Records, as soon as there are some; none after the time given."""
        most = self.config.max_poll_records if records_max is None else records_max
        given.whole("records_max=", most, least=1)
        deadline = self._cluster.deadline(given.milliseconds(timeout_ms))
        return await self._taken(lambda reading: reading.handing.take(most), deadline) or []

    async def poll_arrow(self, rows_max: int = 100_000, timeout_ms: int = 1000) -> pa.Table:
        """Records as a table (topic, partition, offset, timestamp, key, value, headers), without
        an object for any of them; as soon as there are some, at most `rows_max`. Deserializers
        and interceptors do not see them."""
        from headwater.client.consumer.tables import table  # only who wants tables has pyarrow

        given.whole("rows_max=", rows_max, least=1)
        deadline = self._cluster.deadline(given.milliseconds(timeout_ms))
        taken = await self._taken(lambda reading: reading.handing.take_arrow(rows_max), deadline)
        return table(taken or [])

    async def next_slice(self, records_max: int) -> Slice | None:
        """For loops: the next records of one partition; None when the consumer is closed."""
        try:
            return await self._taken(lambda reading: reading.next_slice(records_max), None)
        except ClientClosed:
            if self._closing and self._reading is not None:
                return None
            raise

    async def _taken(self, take: Callable[[Reading], T | None], deadline: float | None) -> T | None:
        """What `take` gives, waiting for it until the deadline; the user is done with all that
        it got before."""
        reading = self._polled()
        if not (self._subscriptions.is_subscribed or self._subscriptions.by_user):
            raise ClientError(
                "the consumer has nothing to read; call subscribe() or assign() first"
            )
        if self._is_polling:
            raise ClientError("the consumer is polled by two tasks at once; give each its own")
        self._is_polling = True
        try:
            reading.handing.settle()
            reading.metrics.poll.polled(self._cluster.now())
            # A user who finds records ready each time would keep the loop from fetching more.
            await asyncio.sleep(0)
            is_waiting = False
            while True:
                now = self._cluster.now()
                until = deadline if deadline is not None else now + _JOIN_SECONDS
                await reading.turn(until, is_waiting=is_waiting)
                self._polled()
                try:
                    taken = take(reading)
                except DeserializationFailed as error:
                    if self._on_bad_record is None:
                        raise
                    await self._pass_bad_record(reading, self._on_bad_record, error)
                    if deadline is not None and self._cluster.now() >= deadline:
                        return None
                    continue
                if taken:
                    return taken
                if is_waiting and deadline is not None and self._cluster.now() >= deadline:
                    return None
                if is_waiting:
                    await reading.wait(deadline)
                    self._polled()
                is_waiting = True
        finally:
            self._is_polling = False

    async def _pass_bad_record(
        self, reading: Reading, callback: BadRecordCallback, error: DeserializationFailed
    ) -> None:
        """Moves past a record when the callback has returned, unless somebody has moved the
        partition meanwhile; the callback itself may have."""
        state = self._subscriptions.state(TopicPartition(error.topic, error.partition))
        before = state.changes
        await run_callback(callback, error)
        if state.changes == before:
            reading.handing.skip(state, error.offset)

    # Where to read

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """The next record of the partition is the one at this offset."""
        reading = self._checked()
        state = self._subscriptions.state(given.partition(partition))
        offset = given.whole(f"seek in {state.tp} to offset ", offset)
        reading.handing.forget(state)
        reading.positions.solved(state)
        state.seek(offset)
        reading.changed()

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """To the first record of these partitions, or of all that are assigned."""
        await self._seek_to(partitions, OffsetSpec.EARLIEST)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Behind the last record; with read_committed, of those that are decided."""
        await self._seek_to(partitions, OffsetSpec.LATEST)

    async def seek_to_time(self, timestamp_ms: int, *partitions: tuple[str, int]) -> None:
        """To the first record that is not older than this; to the end if there is none."""
        time_ms = given.whole("seek to the time in milliseconds ", timestamp_ms)
        await self._seek_to(partitions, time_ms)

    async def _seek_to(self, partitions: tuple[tuple[str, int], ...], timestamp: int) -> None:
        reading = self._checked()
        wanted = self._chosen(partitions)
        deadline = self._cluster.deadline(self.config.default_api_timeout_ms)
        targets = {state.tp: timestamp for state in wanted}
        found = await self._list_offsets(reading, targets, deadline)
        late = [tp for tp, each in found.items() if each.offset < 0]
        if late:
            ends = dict.fromkeys(late, OffsetSpec.LATEST)
            found |= await self._list_offsets(reading, ends, deadline)
        for state in wanted:
            if self._subscriptions.partitions.get(state.tp) is state:
                self.seek(state.tp, found[state.tp].offset)

    def _chosen(self, partitions: tuple[tuple[str, int], ...]) -> list[PartitionState]:
        if not partitions:
            return list(self._subscriptions.partitions.values())
        return [self._subscriptions.state(given.partition(each)) for each in partitions]

    async def position(self, partition: tuple[str, int], *, timeout_ms: int | None = None) -> int:
        """The offset behind the last record that the user got."""
        reading = self._checked()
        state = self._subscriptions.state(given.partition(partition))
        deadline = self._deadline(timeout_ms)
        while not state.has_position:
            problem = reading.positions.problems.get(state.tp)
            if problem is not None:
                raise problem.with_traceback(None)
            if self._cluster.now() >= deadline:
                raise RequestTimedOut(f"the position of {state.tp} could not be found in time")
            reading.changed()
            await reading.wait(deadline)
            self._checked()
        return reading.handing.position(state)

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Hands out nothing of these partitions (of all, if none is named) until `resume`."""
        reading = self._checked()
        for state in self._chosen(partitions):
            state.is_paused = True
            reading.handing.stop(state)
        reading.changed()

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Goes on with these partitions, or with all that are paused."""
        reading = self._checked()
        for state in self._chosen(partitions):
            state.is_paused = False
            reading.handing.arrived(state)
        reading.changed()

    def paused(self) -> set[TopicPartition]:
        """Those that `pause` holds back."""
        return {tp for tp, state in self._subscriptions.partitions.items() if state.is_paused}

    def lag(self, partition: tuple[str, int]) -> int | None:
        """How many offsets the user is behind the end, by the last fetch; None before it."""
        reading = self._checked()
        state = self._subscriptions.state(given.partition(partition))
        committed_only = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end < 0 or not state.has_position:
            return None
        return max(0, end - reading.handing.position(state))

    # The group's offsets

    async def commit(
        self, offsets: GivenOffsets | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Stores the offsets (of all that the user got, if none are given) in the group, and
        returns when they are stored."""
        await self._committer().commit(offsets, self._deadline(timeout_ms))

    def commit_async(
        self, offsets: GivenOffsets | None = None, callback: Committed | None = None
    ) -> None:
        """The same in the background; the callback gets the offsets and the error, if any."""
        self._committer().commit_soon(offsets, callback)

    async def committed(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has stored for these partitions, or for all that are assigned."""
        reading = self._checked()
        if reading.commits is None:
            raise ClientError("the consumer has no group, so nothing is committed")
        wanted = [given.partition(each) for each in partitions]
        return await reading.commits.fetch(
            wanted or list(self._subscriptions.partitions), deadline=self._deadline(timeout_ms)
        )

    def _committer(self) -> Committer:
        committer = self._checked().committer
        if committer is None:
            raise ClientError("the consumer has no group to commit in; give it one: group=...")
        return committer

    def _deadline(self, timeout_ms: int | None) -> float:
        most = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._cluster.deadline(given.milliseconds(most))

    # Offsets of logs

    async def beginning_offsets(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset of each; the partitions need not be assigned."""
        return await self._ends(partitions, OffsetSpec.EARLIEST, timeout_ms)

    async def end_offsets(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """The offset that the next record will have; with read_committed, the first that is not
        decided yet."""
        return await self._ends(partitions, OffsetSpec.LATEST, timeout_ms)

    async def _ends(
        self, partitions: tuple[tuple[str, int], ...], timestamp: int, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        reading = self._checked()
        targets = {given.partition(each): timestamp for each in partitions}
        found = await self._list_offsets(reading, targets, self._deadline(timeout_ms))
        return {tp: each.offset for tp, each in found.items()}

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], int], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time in ms; None where there is none."""
        reading = self._checked()
        targets = {
            given.partition(tp): given.whole(f"the time in milliseconds for {tp} ", time)
            for tp, time in times.items()
        }
        found = await self._list_offsets(reading, targets, self._deadline(timeout_ms))
        return {tp: each if each.offset >= 0 else None for tp, each in found.items()}

    async def _list_offsets(
        self, reading: Reading, timestamps: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Looks up offsets until the deadline; raises the error of the first that failed."""
        # A topic that does not exist yet is waited for until then, as in Kafka.
        await self._cluster.topics({tp.topic for tp in timestamps}, deadline=deadline)
        results = await list_offsets(
            reading.router,
            timestamps,
            read_committed=self.config.isolation_level == "read_committed",
            deadline=deadline,
        )
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for tp, result in results.items():
            if isinstance(result, RetriableError) and result.code is None:
                raise RequestTimedOut(f"offset of {tp}: no answer within the timeout: {result}")
            if isinstance(result, ClientError):
                raise result
            found[tp] = result
        return found

    async def partitions_for(
        self, topic: str, *, timeout_ms: int | None = None
    ) -> list[TopicPartition]:
        """The partitions of a topic; UnknownTopic if there is none after the time given."""
        self._checked()
        given.topic(topic)
        found = await self._cluster.topics([topic], deadline=self._deadline(timeout_ms))
        return [TopicPartition(topic, each.index) for each in found[topic].partitions]

    def metrics(self) -> dict[str, float]:
        """Under Kafka's names: totals since the start, `-avg` and `-max` of the last minute or so,
        and what is the case now. Times are milliseconds unless the name says otherwise."""
        reading = self._checked()
        now = self._cluster.now()
        partitions = self._subscriptions.partitions
        lags = [(tp, self.lag(tp)) for tp in partitions]
        leads = [(tp, self._lead(reading, state)) for tp, state in partitions.items()]
        return {
            **self._cluster.measured(),
            **reading.metrics.fetch.shown(now, records=reading.handing.records),
            **reading.metrics.poll.shown(now),
            **reading.metrics.group.shown(now),
            "buffered-bytes": reading.fetcher.ledger.held,
            "assigned-partitions": len(partitions),
            "records-lag-max": max((lag for _, lag in lags if lag is not None), default=0),
            "records-lead-min": min((lead for _, lead in leads if lead is not None), default=0),
            **distances("records-lag", lags),
            **distances("records-lead", leads),
        }

    def _lead(self, reading: Reading, state: PartitionState) -> int | None:
        """How many offsets the log begins before the user: at 0 records are deleted unread."""
        if state.log_start < 0 or not state.has_position:
            return None
        return max(0, reading.handing.position(state) - state.log_start)


def warn_unclosed(consumer: Consumer[Any, Any], block: str) -> None:
    """Warns, once, that a started consumer was dropped without `close`."""
    if consumer._closing or consumer._reading is None:
        return
    consumer._closing = True
    text = f"a consumer was not closed: use it in `{block}`, or call close() at the end"
    warnings.warn(text, ResourceWarning, source=consumer, stacklevel=2)
    if (group := consumer.config.group_id) is not None:  # few programs show such warnings
        _log.warning("%s; it may still be a member of group %s", text, group)
