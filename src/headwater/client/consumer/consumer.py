"""The public consumer and its poll loop.

Records are fetched in the background and returned by `async for`, by `poll`, or as columns by
`poll_arrow`; the three may be mixed. Rebalances happen inside these calls and nowhere else, so that
the partitions a listener sees are those that the user has.
"""

from __future__ import annotations

import asyncio
import logging
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from weakref import ref

from headwater._core import ConsumedRecord
from headwater.client.cluster import Cluster
from headwater.client.config import Bootstrap, ConsumerConfig
from headwater.client.consumer import arguments
from headwater.client.consumer.arguments import OffsetsArgument
from headwater.client.consumer.bad_records import (
    BadRecordCallback,
    OnBadRecord,
    bad_record_callback,
    run_callback,
)
from headwater.client.consumer.commits import CommitCallback, Commits
from headwater.client.consumer.fetch_buffer import RecordIterator
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.metrics import distances, pushed_as
from headwater.client.consumer.runtime import ConsumerRuntime
from headwater.client.consumer.subscription import PartitionState, Slice, SubscriptionState
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
from headwater.client.requests.offset_commit import GroupMetadata, OffsetAndMetadata
from headwater.client.telemetry import Telemetry
from headwater.client.timestamps import Timestamp
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
    """Reads records from topics.

        async with Consumer("localhost:9092", group="billing", topics=["orders"]) as consumer:
            async for record in consumer:
                print(record.key, record.value)

    With a `group`, the partitions of the topics are divided among the members of the group, which
    stores how far they have read. Without one, this consumer reads all partitions of its topics, or
    those given to `assign`.

    Settings have Kafka's names: give them as keyword arguments with underscores, or in a dict
    `config` with Kafka's own spelling.

    `key_deserializer` and `value_deserializer` are functions of bytes; type checkers take the types
    of keys and values from them. `on_bad_record` says what happens to a record that one of them
    does not accept: "raise" raises `DeserializationFailed` and stays at the record; a function
    (plain or `async`) is called with that error, and the record is skipped when it returns; a
    `DeadLetter` sends the record to another topic before it is skipped.

    A consumer belongs to the event loop on which it was started, and one task may poll it at a
    time.
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
        if "partition.assignment.strategy" in self.config.explicit:
            from headwater.client.consumer.membership.assignors import assignors_of

            assignors_of(self.config.partition_assignment_strategy)  # raises for an unknown one
        self._cluster = Cluster(self.config, host if host is not None else Host.system())
        self._telemetry = _telemetry_of(self)
        self._subscription = SubscriptionState()
        self._listener = arguments.listener(listener)
        self._on_bad_record = bad_record_callback(on_bad_record, is_blocking=False)
        self._runtime: ConsumerRuntime | None = None
        self._is_polling = False
        self._closing = False
        self._close_task: asyncio.Task[Any] | None = None
        self._closed = asyncio.Event()
        if topics is not None or pattern is not None:
            self._set_subscription(topics, pattern)

    # Start and close

    async def start(self) -> None:
        """Connects to a first broker; `async with` does this. The first poll joins the group."""
        await self._cluster.start()
        self._runtime = ConsumerRuntime(
            self.config, self._cluster, self._subscription, self._listener
        )
        if self._subscription.is_subscribed:
            self._runtime.on_subscription_changed()
        self._telemetry.start()

    async def close(self, timeout_ms: int = _CLOSE_TIMEOUT_MS) -> None:
        """Commits what the user has finished with (with auto commit), leaves the group and
        disconnects, all within the timeout. A loop over the consumer ends. A second call waits for
        the first to finish."""
        arguments.milliseconds(timeout_ms)
        if self._runtime is not None and not self._closing:
            self._runtime.buffer.mark_consumed()
        await self._close(timeout_ms)

    async def _close(self, timeout_ms: int) -> None:
        if self._closing:
            await self._wait_closed(timeout_ms)
            return
        self._closing = True
        self._close_task = asyncio.current_task()
        runtime = self._runtime
        try:
            if runtime is not None:
                self._cluster.check()
                deadline = self._cluster.deadline(timeout_ms)
                async with asyncio.timeout(timeout_ms / 1000):
                    metrics = self.metrics()  # of its partitions, too
                    await runtime.close(deadline)
                    await self._telemetry.close(metrics)
        except TimeoutError:
            _log.warning("close() did not finish within timeout_ms=%s", timeout_ms)
        except ClientError as error:
            _log.warning("close(): %s", error)
        finally:
            await self._telemetry.close(None)
            await self._cluster.close()
            if runtime is not None:
                runtime.wake()
            self._closed.set()

    async def _wait_closed(self, timeout_ms: int) -> None:
        if asyncio.current_task() is self._close_task:
            return  # a listener that is called by the close itself
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                await self._closed.wait()

    def __del__(self) -> None:
        if "_closing" in vars(self) and self._cluster.is_open_here:
            warn_unclosed(self, "async with")

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: object, error: object, traceback: object) -> None:
        # After an exception the record at hand was not processed, and must not be committed.
        if error is None:
            await self.close()
        else:
            await self._close(_CLOSE_TIMEOUT_MS)

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._closing

    def _started(self) -> ConsumerRuntime:
        """Returns the runtime; raises unless the consumer is started. A listener may call the
        consumer while it is being closed."""
        self._cluster.check()
        if self._runtime is None:
            raise ClientClosed("the consumer is still being started")
        return self._runtime

    def _open(self) -> ConsumerRuntime:
        """Returns the runtime; raises unless the consumer is started and not closed."""
        if self._closing:
            raise ClientClosed("the consumer was closed; create a new one")
        return self._started()

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Replaces the topics to read. A pattern must match the whole name of a topic; with
        group_protocol="consumer", a pattern that is a string is matched by the brokers (RE2)."""
        runtime = self._started()
        arguments.listener(listener)
        self._set_subscription(topics, pattern)
        if listener is not None:
            runtime.listener = listener
        runtime.on_subscription_changed()

    def _set_subscription(
        self, topics: Iterable[str] | None, pattern: str | re.Pattern[str] | None
    ) -> None:
        names = arguments.topics(topics)
        by_broker = self.config.group_protocol == "consumer" and self.config.group_id is not None
        if isinstance(pattern, str) and by_broker:
            self._subscription.subscribe(topics=names, regex=pattern)
        else:
            self._subscription.subscribe(topics=names, pattern=arguments.pattern(pattern))

    async def unsubscribe(self) -> None:
        """Stops reading and leaves the group."""
        runtime = self._started()
        runtime.buffer.mark_consumed()
        try:
            if runtime.membership is not None:
                deadline = self._cluster.deadline(self.config.default_api_timeout_ms)
                await runtime.membership.leave(deadline, reason="the consumer unsubscribed")
        finally:  # even if a listener raises
            runtime.membership = None
            runtime.remove(list(self._subscription.partitions))
            self._subscription.unsubscribe()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Reads exactly these partitions, without joining a group. Partitions that were assigned
        before keep their positions."""
        runtime = self._started()
        wanted = arguments.partitions(partitions)
        if self._subscription.is_subscribed:
            self._subscription.assign(wanted)  # raises
        runtime.release([tp for tp in self._subscription.partitions if tp not in wanted])
        self._subscription.assign(wanted)
        runtime.follow(wanted)
        runtime.schedule_update()

    def assignment(self) -> set[TopicPartition]:
        """Returns the partitions that this consumer reads now."""
        return set(self._subscription.partitions)

    def subscription(self) -> set[str]:
        """Returns the topics that were subscribed to by name."""
        return set(self._subscription.topics)

    # Records

    def __aiter__(self) -> AsyncIterator[ConsumedRecord[K, V]]:
        self._open()
        return RecordIterator(self._next_slice, self._cluster.now)

    async def poll(
        self, timeout_ms: int = 1000, records_max: int | None = None
    ) -> list[ConsumedRecord[K, V]]:
        """Returns records as soon as there are some, at most `records_max` (max_poll_records by
        default); an empty list after the timeout."""
        most = self.config.max_poll_records if records_max is None else records_max
        arguments.integer("records_max=", most, least=1)
        deadline = self._cluster.deadline(arguments.milliseconds(timeout_ms))
        return await self._poll(lambda runtime: runtime.buffer.take(most), deadline) or []

    async def poll_arrow(self, rows_max: int = 100_000, timeout_ms: int = 1000) -> pa.Table:
        """Returns records as a table (topic, partition, offset, timestamp, key, value, headers) as
        soon as there are some, at most `rows_max`; an empty table after the timeout. No Python
        object is made for a record, and deserializers and interceptors are not called."""
        try:
            from headwater.client.consumer.arrow import table
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            raise ModuleNotFoundError(
                "poll_arrow needs pyarrow: pip install 'pyarrow>=18'", name="pyarrow"
            ) from None
        arguments.integer("rows_max=", rows_max, least=1)
        deadline = self._cluster.deadline(arguments.milliseconds(timeout_ms))
        taken = await self._poll(lambda runtime: runtime.buffer.take_arrow(rows_max), deadline)
        return table(taken or [])

    async def _next_slice(self, records_max: int) -> Slice | None:
        """Returns the next records of one partition, for a loop; None when closed."""
        try:
            return await self._poll(lambda runtime: runtime.next_slice(records_max), None)
        except ClientClosed:
            if self._closing and self._runtime is not None:
                return None
            raise

    async def _poll(
        self, take: Callable[[ConsumerRuntime], T | None], deadline: float | None
    ) -> T | None:
        """Returns what `take` finds, waiting for it until the deadline. The user, who asks for
        more, has finished with all records that it got before."""
        runtime = self._open()
        if not (self._subscription.is_subscribed or self._subscription.by_user):
            raise ClientError(
                "the consumer has nothing to read; call subscribe() or assign() first"
            )
        if self._is_polling:
            raise ClientError("two tasks poll the consumer at once; each needs its own consumer")
        self._is_polling = True
        try:
            runtime.buffer.mark_consumed()
            runtime.metrics.poll.polled(self._cluster.now())
            # A user who finds records at every call would keep the event loop from fetching more.
            await asyncio.sleep(0)
            is_waiting = False
            while True:
                now = self._cluster.now()
                until = deadline if deadline is not None else now + _JOIN_SECONDS
                await runtime.prepare_poll(until, is_waiting=is_waiting)
                self._open()
                try:
                    taken = take(runtime)
                except DeserializationFailed as error:
                    if self._on_bad_record is None:
                        raise
                    await self._skip_bad_record(runtime, self._on_bad_record, error)
                    self._open()
                    if deadline is not None and self._cluster.now() >= deadline:
                        return None
                    continue
                if taken:
                    return taken
                if is_waiting and deadline is not None and self._cluster.now() >= deadline:
                    return None
                if is_waiting:
                    await runtime.wait(deadline)
                    self._open()
                is_waiting = True
        finally:
            self._is_polling = False
            runtime.metrics.poll.ended(self._cluster.now())

    async def _skip_bad_record(
        self, runtime: ConsumerRuntime, callback: BadRecordCallback, error: DeserializationFailed
    ) -> None:
        """Moves past a record when the callback has returned, unless the position has changed
        meanwhile: the callback may seek."""
        state = self._subscription.state(TopicPartition(error.topic, error.partition))
        version = state.position_version
        await run_callback(callback, error)
        if state.position_version == version:
            runtime.buffer.skip(state, error.offset)

    # Positions

    def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Moves to an offset: the next record of the partition is the one there."""
        runtime = self._started()
        state = self._subscription.state(arguments.partition(partition))
        runtime.seek(state, arguments.integer(f"seek in {state.tp} to offset ", offset))

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Moves to the first record of these partitions, or of all assigned ones."""
        await self._seek_to(partitions, OffsetSpec.EARLIEST)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Moves behind the last record of these partitions, or of all assigned ones; with
        isolation_level="read_committed", to the first open transaction."""
        await self._seek_to(partitions, OffsetSpec.LATEST)

    async def seek_to_time(self, timestamp: Timestamp, *partitions: tuple[str, int]) -> None:
        """Moves to the first record at or after a time (a datetime, or milliseconds since 1970), or
        to the end if there is none."""
        await self._seek_to(partitions, arguments.timestamp("seek to time ", timestamp))

    async def _seek_to(self, partitions: tuple[tuple[str, int], ...], timestamp: int) -> None:
        runtime = self._started()
        wanted = self._states(partitions)
        deadline = self._cluster.deadline(self.config.default_api_timeout_ms)
        targets = {state.tp: timestamp for state in wanted}
        found = await self._list_offsets(runtime, targets, deadline)
        late = [tp for tp, each in found.items() if each.offset < 0]
        if late:
            ends = dict.fromkeys(late, OffsetSpec.LATEST)
            found |= await self._list_offsets(runtime, ends, deadline)
        for state in wanted:
            if self._subscription.partitions.get(state.tp) is state:
                self.seek(state.tp, found[state.tp].offset)

    def _states(self, partitions: tuple[tuple[str, int], ...]) -> list[PartitionState]:
        if not partitions:
            return list(self._subscription.partitions.values())
        return [self._subscription.state(arguments.partition(each)) for each in partitions]

    async def position(self, partition: tuple[str, int], *, timeout_ms: int | None = None) -> int:
        """Returns the offset after the last record that the user got, or where reading begins."""
        runtime = self._started()
        state = self._subscription.state(arguments.partition(partition))
        deadline = self._deadline(timeout_ms)
        while not state.has_position:
            error = runtime.positions.errors.get(state.tp)
            if error is not None:
                raise error.with_traceback(None)
            if self._cluster.now() >= deadline:
                raise RequestTimedOut(f"the position of {state.tp} was not found in time")
            runtime.schedule_update()
            await runtime.wait(deadline)
            self._started()
        return state.position

    def pause(self, *partitions: tuple[str, int]) -> None:
        """Returns no records of these partitions, or of all assigned ones, until `resume`."""
        runtime = self._started()
        for state in self._states(partitions):
            state.is_paused = True
            runtime.buffer.stop(state)
        runtime.schedule_update()

    def resume(self, *partitions: tuple[str, int]) -> None:
        """Continues with these partitions, or with all that are paused."""
        runtime = self._started()
        for state in self._states(partitions):
            state.is_paused = False
            runtime.buffer.add(state)
        runtime.schedule_update()

    def paused(self) -> set[TopicPartition]:
        """Returns the partitions that are paused."""
        return {tp for tp, state in self._subscription.partitions.items() if state.is_paused}

    def lag(self, partition: tuple[str, int]) -> int | None:
        """Returns how many offsets the position is behind the end of the log, as of the last
        fetch; None before the first."""
        self._started()
        state = self._subscription.state(arguments.partition(partition))
        committed_only = self.config.isolation_level == "read_committed"
        end = state.last_stable_offset if committed_only else state.high_watermark
        if end < 0 or not state.has_position:
            return None
        return max(0, end - state.position)

    # Committed offsets

    async def commit(
        self, offsets: OffsetsArgument | None = None, *, timeout_ms: int | None = None
    ) -> None:
        """Commits these offsets, or the positions after all records that the user got, and waits
        until the group has stored them."""
        await self._commits().commit(offsets, self._deadline(timeout_ms))

    def commit_async(
        self, offsets: OffsetsArgument | None = None, callback: CommitCallback | None = None
    ) -> None:
        """Commits in the background. The callback gets the offsets, and the error or None."""
        self._commits().commit_in_background(offsets, callback)

    async def committed(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the group's committed offsets of these partitions, or of all assigned ones; None
        where nothing was committed."""
        commits = self._commits()
        wanted = [arguments.partition(each) for each in partitions]
        return await commits.fetch(
            wanted or list(self._subscription.partitions), deadline=self._deadline(timeout_ms)
        )

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions after all records that the user got, of the partitions that have
        one: what `commit` would commit, for a transaction."""
        return self._commits().positions()

    def group_metadata(self) -> GroupMetadata:
        """Returns this consumer's identity in its group, with which a producer commits offsets in a
        transaction. Raises CommitFailed if the group has gone on without this consumer."""
        return self._commits().identity()

    def _commits(self) -> Commits:
        commits = self._started().commits
        if commits is None:
            raise ClientError("the consumer has no group to commit in; create it with group=...")
        return commits

    def _deadline(self, timeout_ms: int | None) -> float:
        most = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return self._cluster.deadline(arguments.milliseconds(most))

    # Offsets of logs

    async def beginning_offsets(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the first offset of each partition; they need not be assigned."""
        return await self._edges(partitions, OffsetSpec.EARLIEST, timeout_ms)

    async def end_offsets(
        self, *partitions: tuple[str, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int]:
        """Returns the offset that the next record of each partition will have; with
        isolation_level="read_committed", the offset of the first open transaction."""
        return await self._edges(partitions, OffsetSpec.LATEST, timeout_ms)

    async def _edges(
        self, partitions: tuple[tuple[str, int], ...], spec: OffsetSpec, timeout_ms: int | None
    ) -> dict[TopicPartition, int]:
        runtime = self._started()
        targets = {arguments.partition(each): spec for each in partitions}
        found = await self._list_offsets(runtime, targets, self._deadline(timeout_ms))
        return {tp: each.offset for tp, each in found.items()}

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], Timestamp], *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Returns the first record at or after a time (a datetime, or milliseconds since 1970) of
        each partition; None where there is none."""
        runtime = self._started()
        targets = {
            arguments.partition(tp): arguments.timestamp(f"time for {tp}: ", time)
            for tp, time in times.items()
        }
        found = await self._list_offsets(runtime, targets, self._deadline(timeout_ms))
        return {tp: each if each.offset >= 0 else None for tp, each in found.items()}

    async def _list_offsets(
        self, runtime: ConsumerRuntime, timestamps: Mapping[TopicPartition, int], deadline: float
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        """Looks up offsets until the deadline; raises the error of the first that failed."""
        # A topic that does not exist yet is waited for until then, as in Kafka.
        await self._cluster.topics({tp.topic for tp in timestamps}, deadline=deadline)
        results = await list_offsets(
            runtime.router,
            timestamps,
            read_committed=self.config.isolation_level == "read_committed",
            deadline=deadline,
        )
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        for tp, result in results.items():
            if isinstance(result, RetriableError) and result.code is None:
                raise RequestTimedOut(f"offset of {tp}: no response within the timeout: {result}")
            if isinstance(result, ClientError):
                raise result
            found[tp] = result
        return found

    async def partitions_for(
        self, topic: str, *, timeout_ms: int | None = None
    ) -> list[TopicPartition]:
        """Returns the partitions of a topic; raises UnknownTopic if it does not exist when the
        timeout expires."""
        self._started()
        arguments.topic(topic)
        found = await self._cluster.topics([topic], deadline=self._deadline(timeout_ms))
        return [TopicPartition(topic, each.index) for each in found[topic].partitions]

    async def client_instance_id(self, timeout_ms: int | None = None) -> str:
        """Returns the id under which brokers know the metrics that this consumer pushes (KIP-714),
        as soon as one has given it. Raises RequestTimedOut after `timeout_ms`,
        default_api_timeout_ms by default, for instance where brokers take no metrics."""
        self._open()
        if timeout_ms is None:
            timeout_ms = self.config.default_api_timeout_ms
        return await self._telemetry.instance_id(timeout_ms)

    def register_metric(self, name: str, read: Callable[[], float]) -> None:
        """Has a metric of yours pushed together with the consumer's (KIP-1076), as
        `org.apache.kafka.NAME` with dots for dashes. `read` returns its value; it is called on the
        event loop before each push. A name that ends in `-total` is a count that only grows."""
        self._telemetry.register(name, read)

    def unregister_metric(self, name: str) -> None:
        """Ends what `register_metric` began."""
        self._telemetry.unregister(name)

    def metrics(self) -> dict[str, float]:
        """Returns the metrics of this consumer under Kafka's names: totals since the start, `-avg`
        and `-max` of about the last minute, and current values. Times are in milliseconds unless
        the name says otherwise."""
        runtime = self._started()
        now = self._cluster.now()
        partitions = self._subscription.partitions
        lags = [(tp, self.lag(tp)) for tp in partitions]
        leads = [(tp, _lead(state)) for tp, state in partitions.items()]
        return {
            **self._cluster.measured(),
            **runtime.metrics.fetch.shown(now, records=runtime.buffer.records_returned),
            **runtime.metrics.poll.shown(now),
            **runtime.metrics.group.shown(now),
            "buffered-bytes": runtime.fetcher.ledger.held,
            "assigned-partitions": len(partitions),
            "records-lag-max": max((lag for _, lag in lags if lag is not None), default=0),
            "records-lead-min": min((lead for _, lead in leads if lead is not None), default=0),
            **distances("records-lag", lags),
            **distances("records-lead", leads),
        }


def _telemetry_of(consumer: Consumer[Any, Any]) -> Telemetry:
    known = ref(consumer)  # the pushes do not keep a consumer that nobody closed

    def measured() -> dict[str, float] | None:
        found = known()
        return None if found is None or found._closing else found.metrics()

    def labels() -> dict[str, str | None]:
        member_id = None
        if config.group_id is not None and (found := known()) is not None:
            with suppress(ClientError):  # it is not a member
                member_id = found.group_metadata().member_id
        return {
            "client_rack": config.client_rack,
            "group_id": config.group_id,
            "group_instance_id": config.group_instance_id,
            "group_member_id": member_id,
        }

    config = consumer.config
    return Telemetry(consumer._cluster, measured=measured, prefix_of=pushed_as, labels=labels)


def _lead(state: PartitionState) -> int | None:
    """Returns how many offsets the position is after the start of the log; at 0, records may be
    deleted before they are read."""
    if state.log_start < 0 or not state.has_position:
        return None
    return max(0, state.position - state.log_start)


async def next_slice(consumer: Consumer[Any, Any], records_max: int) -> Slice | None:
    """Returns the next records for a loop in another thread; None when the consumer is closed."""
    return await consumer._next_slice(records_max)


def warn_unclosed(consumer: Consumer[Any, Any], block: str) -> None:
    """Warns, once, that a started consumer was dropped without `close`."""
    if consumer._closing or consumer._runtime is None:
        return
    consumer._closing = True
    text = f"a consumer was not closed: use it in `{block}`, or call close() at the end"
    warnings.warn(text, ResourceWarning, source=consumer, stacklevel=2)
    if (group := consumer.config.group_id) is not None:  # few programs show such warnings
        _log.warning("%s; it may still be a member of group %s", text, group)
