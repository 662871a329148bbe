"""The producer: what a user holds. It puts the parts together and guards the entrance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from headwater._core import Intake
from headwater.client.cluster import Cluster
from headwater.client.config import Bootstrap, ProducerConfig
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    RequestTimedOut,
)
from headwater.client.metadata import Partition
from headwater.client.producer.lanes import Lanes
from headwater.client.producer.memory import Room
from headwater.client.producer.outcomes import Outcomes
from headwater.client.producer.records import Headers, ProducerRecord, RecordMetadata
from headwater.client.producer.rows import Rows
from headwater.client.producer.sender import Sender
from headwater.client.producer.sequences import Identity
from headwater.client.producer.serializing import Serializing
from headwater.client.producer.settling import Delivered, Waiter, tell
from headwater.client.producer.taking import Taking
from headwater.client.producer.topics import Topics
from headwater.client.producer.transactions import Transaction, not_there_yet
from headwater.client.producer.waiting import Waiting
from headwater.io import Host, watch_forks
from headwater.io.clock import SystemClock
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from headwater.client.settings import ProducerSettings

_NO_ROOM = -2  # what `Intake.add` answers then
_PIECE_RECORDS = 32_768  # so many are taken over before the loop may do something else

# topic, value, key, headers, timestamp, partition, on_delivery
Prepared = tuple[str, Any, Any, Headers | None, int | None, int | None, Delivered | None]


class Given(Protocol):
    """Records that other threads have given; see `Handover`."""

    def pass_on(
        self, intake: Intake, records_max: int, /
    ) -> tuple[int, list[tuple[Waiter | None, BaseException]]]: ...

    def pop(self) -> Prepared | None: ...


class Producer:
    """Publishes records.

        async with Producer("localhost:9092") as producer:
            await producer.send("orders", key="alice", value=b"...")
            producer.submit("orders", value=b"...")

    Keys and values are bytes or text, or whatever `key_serializer` and `value_serializer` take.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        host: Host | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Settings are Kafka's, as keywords (`linger_ms=5`) or in `config` (`{"linger.ms": 5}`)."""
        self._config = ProducerConfig.build(bootstrap, config=config, **settings)
        if self._config.transactional_id is not None:
            not_there_yet()
        self._host = host if host is not None else Host.system()
        self._cluster = Cluster(self._config, self._host)
        serializing = Serializing(
            key=self._config.key_serializer,
            value=self._config.value_serializer,
            interceptors=self._config.interceptors,
        )
        self._serializing = None if serializing.is_plain else serializing
        self._room = Room()
        self._is_open = False  # it takes records
        self._closing = False
        self._closed = asyncio.Event()
        self._closing_time: asyncio.Timeout | None = None
        self._closing_ms: int | None = None  # what was given for that
        self._intake: Intake
        self._sender: Sender
        self._topics: Topics
        self._outcomes: Outcomes
        self._rows: Rows
        self._taking: Taking
        self._waiting: Waiting

    @property
    def config(self) -> ProducerConfig:
        """All settings, with their defaults."""
        return self._config

    @property
    def is_plain(self) -> bool:
        """Whether records are taken as they are: no serializers, no interceptors."""
        return self._serializing is None

    @property
    def queued_bytes(self) -> int:
        """What records that are not acknowledged take of the buffer."""
        return self._intake.used_bytes if "_intake" in vars(self) else 0

    # Beginning and ending

    async def start(self) -> None:
        """Connects. Raises BrokersUnavailable if no broker answers within start_timeout_ms."""
        await self._first_contact()
        config, cluster = self._config, self._cluster
        self._loop = asyncio.get_running_loop()
        taking = Taking(config, cluster)
        clock = self._host.clock
        self._intake = intake = Intake(
            taking,
            batch_bytes=config.batch_size,
            buffer_bytes=config.buffer_memory,
            record_bytes_max=config.max_request_size,
            ignore_keys=config.partitioner_ignore_keys,
            choose=None if config.partitioner is None else taking.choose,
            # The core reads the machine's clock itself; any other is asked for each record.
            wall_ms=None if isinstance(clock, SystemClock) else clock.wall_ms,
        )
        lanes = Lanes(
            linger=config.linger_ms / 1000,
            delivery_timeout=config.delivery_timeout_ms / 1000,
            identity=Identity() if config.enable_idempotence else None,
            # A linger that was asked for is kept. The default one is not imposed on who awaits.
            hurries="linger.ms" not in config.given or config.linger_ms == 0,
        )
        self._outcomes = Outcomes(config, cluster, intake, lanes, self._room)
        self._sender = Sender(config, cluster, intake, lanes, self._outcomes)
        self._topics = Topics(config, cluster, intake, lanes, self._outcomes.settling, self._room)
        self._waiting = Waiting(config, self._sender, self._room)
        self._rows = Rows(intake, self._topics, self._room, self._waiting)
        taking.connect(intake, self._sender, self._topics)
        self._taking = taking
        self._is_open = True
        try:
            await self._sender.start()
        except BaseException:
            await self._stop("the producer could not start")
            raise
        if self._serializing is None:
            # No call of ours stands between a plain record and the core.
            vars(self)["submit"] = intake.submit
            watch_forks(self)

    async def _first_contact(self) -> None:
        try:
            await self._cluster.start()
            if self._closing:
                await self._cluster.close()
                raise ClientClosed("the producer was closed while it started")
        except BaseException:
            if self._cluster.is_closed:  # else somebody starts it a second time
                self._closed.set()
            raise

    def on_fork(self) -> None:
        """In a child process: from now on each `submit` is refused, the first one, too."""
        vars(self).pop("submit", None)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Sends what is queued, then ends. With a timeout, what is not acknowledged by then fails
        with ClientClosed. Raises what `flush` would; in any case the producer is closed. Who
        closes it a second time waits for the first one, and may hurry it by a timeout."""
        if self._cluster.is_closed or not self._cluster.is_started:
            return
        self._cluster.check()
        if not hasattr(self, "_sender"):
            self._closing = True  # it is starting, and ends when it has
            with suppress(TimeoutError):
                async with asyncio.timeout_at(_deadline(timeout_ms)):
                    await self._closed.wait()
            return
        if self._closing:
            await self._close_again(timeout_ms)
            return
        self._is_open, self._closing = False, True
        vars(self).pop("submit", None)
        self._closing_ms = timeout_ms
        unsent = "the producer was closed"
        try:
            async with asyncio.timeout_at(_deadline(timeout_ms)) as self._closing_time:
                await self._settled()
        except TimeoutError:
            unsent = f"the producer was closed and timeout_ms={self._closing_ms} is over"
        finally:
            await self._stop(f"{unsent}; a record that was sent may have been written")
        self._outcomes.settling.raise_unheard()

    async def _close_again(self, timeout_ms: int | None) -> None:
        deadline, limit = _deadline(timeout_ms), self._closing_time
        if deadline is not None and limit is not None and deadline < (limit.when() or inf):
            with suppress(RuntimeError):  # all is settled already
                limit.reschedule(deadline)
                self._closing_ms = timeout_ms
        await self._closed.wait()

    async def _stop(self, reason: str) -> None:
        error = ClientClosed(reason)
        self._is_open, self._closing = False, True
        self._room.close(reason)
        try:
            await self._topics.stop(error)
            await self._sender.stop(error)
            await self._cluster.close()
        finally:
            self._taking.end()
            self._closed.set()

    def __del__(self) -> None:
        if "_closing" in vars(self) and self._cluster.is_open_here:
            self.say_unclosed("async with")

    def say_unclosed(self, block: str, *, waiting_bytes: int = 0) -> None:
        """Nobody holds the producer any more, and nobody has closed it. `block` is how one does
        that; so many bytes have not even come in. Says it once."""
        if self._closing or "_intake" not in vars(self):
            return
        self._is_open, self._closing = False, True
        left = waiting_bytes + self.queued_bytes
        details = f", and {left} bytes of its records are not acknowledged" if left else ""
        self._cluster.warn_unclosed(self, "a producer", block=block, details=details)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await self.close()
        except ClientError:
            if error is None:  # else the first problem is the one to be seen
                raise

    # Records

    async def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and awaits its acknowledgement. If the buffer is full it waits in line
        for room, at most max_block_ms."""
        self._check()
        if self._serializing is not None:
            return await self._send_prepared(
                ProducerRecord(topic, value, key, headers, timestamp, partition)
            )
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        placed = _NO_ROOM
        if not self._room:
            placed = self._intake.add(topic, value, key, headers, timestamp, partition, future)
        if placed == _NO_ROOM:
            placed = await self._in_line(topic, value, key, headers, timestamp, partition, future)
        if placed >= 0:
            self._sender.added(topic, placed)
        return await future

    def send_now(self, record: Prepared) -> bool:
        """Has a plain record on its way as `send` does, and its last part called with what became
        of it. Not if there is something to wait for first; then it says so and does nothing."""
        self._check()
        if self._serializing is not None or self._room:
            return False
        placed = self._intake.add(*record)
        if placed == _NO_ROOM:
            return False
        if placed >= 0:
            self._sender.added(record[0], placed)
        return True

    async def _send_prepared(self, given: ProducerRecord) -> RecordMetadata:
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        with self.refusals_told():
            # Whoever awaits may be cancelled; the record goes on, and interceptors see its end.
            record = self.prepared(given, partial(tell, future))
            placed = await self._in_line(*record)
        if placed >= 0:
            self._sender.added(record[0], placed)
        return await future

    async def _in_line(self, *record: Any) -> int:
        """Waits for room, first come first served, and takes the record in."""
        placed = _NO_ROOM

        def attempt() -> bool:
            nonlocal placed
            placed = self._intake.add(*record)
            return placed != _NO_ROOM

        if not self._room and attempt():
            return placed
        await self._waiting.take(attempt)
        return placed

    def submit(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        """Queues a record and returns. What goes wrong later is given to `on_delivery`, or else
        raised by `flush`. If the buffer is full, this sends on the spot until there is room, at
        most max_block_ms; then BufferFull."""
        self._check()
        with self.refusals_told():
            topic, value, key, headers, timestamp, partition, on_delivery = self.prepared(
                ProducerRecord(topic, value, key, headers, timestamp, partition), on_delivery
            )
            self._intake.submit(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                on_delivery=on_delivery,
            )

    def refusals_told(self) -> AbstractContextManager[None]:
        """Around taking a record in: what is raised there is also told to the interceptors."""
        serializing = self._serializing
        return nullcontext() if serializing is None else serializing.refusals_told()

    def prepared(self, record: ProducerRecord, on_delivery: Delivered | None) -> Prepared:
        """The record as the interceptors and serializers make it. Any thread may do this."""
        serializing = self._serializing
        if serializing is not None:
            record = serializing.prepare(record)
            if serializing.is_watched:
                on_delivery = serializing.watched(on_delivery or self._outcomes.settling.heard)
        return (
            record.topic,
            record.value,
            record.key,
            record.headers,
            record.timestamp,
            record.partition,
            on_delivery,
        )

    async def submit_arrow(self, rows: pa.RecordBatch, *, topic: str | None = None) -> None:
        """Queues the rows of a pyarrow.RecordBatch, each a record, by its columns: key, value,
        topic, partition, headers, timestamp. `topic` is for all rows. Waits while the buffer is
        full; what goes wrong later is raised by `flush`. Serializers are not asked."""
        self._check()
        await self._rows.take(rows, topic)

    async def submit_in_line(self, record: Prepared) -> None:
        """As `submit`, but while the buffer is full this waits in line with those who `send`."""
        self._check()
        placed = await self._in_line(*record)
        if placed >= 0 and placed & 1:
            self._sender.opened(record[0], placed >> 1)

    async def take_over(self, given: Given, moved: Callable[[], None]) -> None:
        """Takes in what other threads have given, in order, until nothing is left; calls `moved`
        after each piece. What is wrong with a record is said as if it had failed later: the others
        go on."""
        self._check()
        rejected = self._outcomes.settling.rejected
        while True:
            taken = 0
            if not self._room:
                taken, failed = given.pass_on(self._intake, _PIECE_RECORDS)
                for waiter, error in failed:
                    rejected(waiter, error)
            if not taken:
                record = given.pop()
                if record is None:
                    return
                try:
                    await self.submit_in_line(record)
                except ClientError as error:
                    rejected(record[-1], error)
                except asyncio.CancelledError:
                    rejected(record[-1], ClientClosed("the producer was closed; not sent"))
                    raise
            moved()
            await asyncio.sleep(0)

    def reject(self, given: Given, error: ClientError) -> None:
        """What other threads have given and nobody took in fails."""
        while (record := given.pop()) is not None:
            self._outcomes.settling.rejected(record[-1], error)

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Sends all that is queued and waits until it is settled. Raises the first error of records
        that nobody awaited, once."""
        self._check()
        try:
            async with asyncio.timeout_at(_deadline(timeout_ms)):
                await self._settled()
        except TimeoutError:
            left = len(self._outcomes.settling)
            what = "1 batch was" if left == 1 else f"{left} batches were"
            raise RequestTimedOut(
                f"{what} not acknowledged within timeout_ms={timeout_ms}"
            ) from None
        self._outcomes.settling.raise_unheard()

    async def _settled(self) -> None:
        """Sends all that is queued, and waits until nothing of it is open any more."""
        await self._topics.settled()
        self._sender.close_open()
        settled = self._outcomes.settling.settled()
        self._sender.advance()
        await settled

    # The rest

    async def partitions_for(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic, with their leaders and replicas."""
        self._check()
        return (await self._topics.get(topic)).partitions

    def metrics(self) -> dict[str, float]:
        """Under Kafka's names: totals since the start, `-avg` and `-max` of the last minute or so,
        and what is the case now. Times are milliseconds unless the name says otherwise."""
        self._check()
        total = self._config.buffer_memory
        return {
            **self._cluster.measured(),
            **self._outcomes.metrics.shown(self._cluster.now()),
            "buffer-total-bytes": total,
            "buffer-available-bytes": total - self._intake.used_bytes,
            "batches-unsettled": len(self._outcomes.settling),
            "waiting-threads": len(self._room),
        }

    def transaction(self) -> Transaction:
        """`async with producer.transaction():` everything sent in it is written, or nothing."""
        return Transaction()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Commits a group's offsets as a part of the transaction."""
        not_there_yet()

    def _check(self) -> None:
        if self._is_open:
            self._cluster.check()
        elif self._closing:
            raise ClientClosed("the producer was closed; make a new one")
        else:
            self._cluster.check()  # which says what is wrong if it is not even starting
            raise ClientClosed("the producer is still starting: await start() first")


def _deadline(timeout_ms: int | None) -> float | None:
    """The moment, by the loop's clock, when so much time is over; None for never."""
    return None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1000
