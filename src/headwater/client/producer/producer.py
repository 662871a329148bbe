"""The producer as its users see it, and the parts of one that is started.

A record's way: `Producer.send` has the core append it to its partition's batch; `sender` decides
when that batch leaves and on which connection, by what `accumulator` knows of the partition;
`requests` makes the request; `outcomes` acts on the response and completes the futures of the
records. `submit` is the core's own method: it calls back (`intake_callbacks`) only for a batch,
never for a record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self
from weakref import ref

from headwater._core import HELD, NO_ROOM, Intake, Outgoing, submit_arrow
from headwater.client.cluster import Cluster
from headwater.client.config import Bootstrap, ProducerConfig
from headwater.client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
    InvalidTransactionState,
    RequestTimedOut,
    SerializationFailed,
)
from headwater.client.metadata import Partition
from headwater.client.producer.accumulator import Accumulator
from headwater.client.producer.buffer_memory import BufferWaiters
from headwater.client.producer.delivery import Delivered, Waiter, tell
from headwater.client.producer.intake_callbacks import IntakeCallbacks
from headwater.client.producer.outcomes import Outcomes
from headwater.client.producer.records import Headers, ProducerRecord, RecordMetadata
from headwater.client.producer.sender import Sender
from headwater.client.producer.sequences import Identity
from headwater.client.producer.serialization import Serialization
from headwater.client.producer.topics import Topics
from headwater.client.producer.transactions import OffsetsToSend, Transaction, Transactions
from headwater.client.requests.offset_commit import GroupMetadata, OffsetAndMetadata
from headwater.client.requests.transactions import PreparedTransaction, TransactionHandle
from headwater.client.telemetry import DOMAIN, Telemetry
from headwater.client.timestamps import Timestamp
from headwater.io import Host, watch_forks
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from typing import Unpack

    import pyarrow as pa

    from headwater.client.settings import ProducerSettings

Placed = tuple[int, bool]  # what `Intake.add` returns
_PIECE_RECORDS = 32_768  # so many are taken over before the loop may do something else

# topic, value, key, headers, timestamp, partition, on_delivery
Prepared = tuple[str, Any, Any, Headers | None, Timestamp | None, int | None, Delivered | None]


class Producer:
    """Publishes records to topics. For asyncio; `headwater.blocking.Producer` is for threads.

        async with Producer("localhost:9092") as producer:
            await producer.send("orders", key="alice", value=b"...")
            producer.submit("orders", value=b"...")

    Keys and values are bytes or text, or whatever `key_serializer` and `value_serializer` accept.
    Records with the same key go to the same partition, and each partition keeps their order.
    """

    _running: Running | None = None  # while it takes records

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        host: Host | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        """Takes Kafka's settings as keywords (`linger_ms=5`), in `config` (`{"linger.ms": 5}`), or
        both. Nothing is connected before `start`."""
        self._config = ProducerConfig.build(bootstrap, config=config, **settings)
        self._joined: TransactionHandle | None = None  # see `shared`
        self._cluster = Cluster(self._config, host if host is not None else Host.system())
        self._serialization = Serialization.of(self._config)  # None: records need none
        self._telemetry = _telemetry_of(self)
        self._closing = False
        self._closed = asyncio.Event()
        self._closing_time: asyncio.Timeout | None = None
        self._closing_ms: int | None = None  # the timeout of the call that closes it

    @property
    def config(self) -> ProducerConfig:
        """All settings, with their defaults."""
        return self._config

    # Start and close

    async def start(self) -> None:
        """Connects to the cluster; `async with` calls it. Raises BrokersUnavailable if no broker
        answers within start_timeout_ms."""
        was_closing = self._closing
        try:
            await self._cluster.start()
            running = Running(self._config, self._cluster, self._serialization, self._joined)
            try:
                await running.start()
                self._cluster.check()  # `close` may have come in between
            except BaseException:
                await running.stop("the producer could not start")
                raise
        except BaseException as error:
            closed_meanwhile = self._closing and not was_closing
            if self._cluster.is_closed:  # else this is a second call of start
                self._closing = True
                self._closed.set()
            if closed_meanwhile and isinstance(error, ClientError):
                raise ClientClosed("the producer was closed while it started") from None
            raise
        self._running = running
        self._telemetry.start()
        if self._serialization is None:
            # A plain record goes to the core without a Python call in between.
            vars(self)["submit"] = running.intake.submit
            watch_forks(self, Producer._unbind_submit)

    def _unbind_submit(self) -> None:
        """Makes `submit` check again where it is called; also in a forked child, whose first
        `submit` is to be refused."""
        vars(self).pop("submit", None)

    async def close(self, timeout_ms: int | None = None) -> None:
        """Sends all queued records, then disconnects. Records that are not acknowledged after
        `timeout_ms` fail with ClientClosed. Raises what `flush` would raise; the producer is closed
        all the same. A second call waits for the first to finish, and its timeout may end it
        earlier."""
        if self._cluster.is_closed or not self._cluster.is_started:
            return
        self._cluster.check()
        if self._closing:
            await self._close_again(timeout_ms)
            return
        self._closing = True
        running, self._running = self._running, None
        self._unbind_submit()
        if running is None:  # it is starting, which fails now
            await self._cluster.close()
            with suppress(TimeoutError):
                async with asyncio.timeout_at(_deadline(timeout_ms)):
                    await self._closed.wait()
            return
        self._closing_ms = timeout_ms
        ends_at = _deadline(timeout_ms)
        reason = "the producer was closed"
        try:
            async with asyncio.timeout_at(ends_at) as self._closing_time:
                if running.transactions is not None:
                    await running.transactions.close()
                await running.settled()
                if running.transactions is not None and not running.transactions.is_joined:
                    # What has failed is in no transaction that was committed.
                    running.reports.forget_unheard()
        except TimeoutError:
            reason = f"the producer was closed and timeout_ms={self._closing_ms} has passed"
        finally:
            try:
                left = inf if ends_at is None else ends_at - running.loop.time()
                await self._telemetry.close(self._measured(running), seconds=left)
                await running.stop(f"{reason}; a record that was sent may have been written")
            finally:
                self._closed.set()
        running.reports.raise_unheard()

    async def _close_again(self, timeout_ms: int | None) -> None:
        deadline, limit = _deadline(timeout_ms), self._closing_time
        if deadline is not None and limit is not None and deadline < (limit.when() or inf):
            with suppress(RuntimeError):  # all is settled already
                limit.reschedule(deadline)
                self._closing_ms = timeout_ms
        await self._closed.wait()

    def __del__(self) -> None:
        self._warn_unclosed("async with")

    def _warn_unclosed(self, block: str, *, waiting_bytes: int = 0) -> None:
        """Warns, once, that nobody closed the producer; `waiting_bytes` are records that have not
        even reached it."""
        running, self._running = self._running, None
        if running is None:
            return
        self._closing = True
        left = waiting_bytes + running.intake.used_bytes
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
        timestamp: Timestamp | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Sends a record, waits until it is acknowledged, and returns where it is stored.

        `timestamp` is a datetime (local time if it has no time zone) or milliseconds since 1970;
        by default, the current time. `headers` are a mapping or pairs of names and values.

        While the buffer is full it waits for room, first come, first served, at most max_block_ms;
        then it raises BufferFull. Cancelling a `send` stops the wait; a queued record is still
        sent."""
        running = self._running
        if running is None:
            raise self._not_open()
        self._cluster.check()
        if running.transactions is not None:
            running.transactions.check_writable()
        if self._serialization is not None:
            return await running.send_serialized(
                ProducerRecord(topic, value, key, headers, timestamp, partition)
            )
        future: asyncio.Future[RecordMetadata] = running.loop.create_future()
        at, opened = NO_ROOM, False
        if not running.waiters:
            at, opened = running.intake.add(
                topic, value, key, headers, timestamp, partition, future
            )
        if at == NO_ROOM:
            at, opened = await running.add_when_room(
                topic, value, key, headers, timestamp, partition, future
            )
        if at != HELD:
            running.sender.added(topic, at, opened=opened)
        return await future

    def submit(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        partition: int | None = None,
        on_delivery: Delivered | None = None,
    ) -> None:
        """Queues a record and returns. `on_delivery(metadata, error)` is called with the outcome;
        without it, `flush` and `close` raise the first error.

        If the buffer is full, `submit` itself sends batches until there is room, at most
        max_block_ms; then it raises BufferFull."""
        running = self._open()
        with running.reporting_refusals():
            topic, value, key, headers, timestamp, partition, on_delivery = running.serialized(
                ProducerRecord(topic, value, key, headers, timestamp, partition), on_delivery
            )
            running.intake.submit(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                on_delivery=on_delivery,
            )

    async def submit_arrow(self, rows: pa.RecordBatch, *, topic: str | None = None) -> None:
        """Queues the rows of a pyarrow.RecordBatch, one record each, from the columns key, value,
        topic, partition, headers and timestamp; others are ignored. `topic` applies to all rows.

        Waits while the buffer is full; `flush` raises later errors. Serializers are not applied."""
        await self._open().add_rows(rows, topic)

    async def flush(self, timeout_ms: int | None = None) -> None:
        """Sends all queued records and waits for their outcome. Raises the first error of records
        that were submitted without `on_delivery`, once; RequestTimedOut after `timeout_ms`."""
        running = self._open()
        try:
            async with asyncio.timeout_at(_deadline(timeout_ms)):
                await running.settled()
        except TimeoutError:
            left = len(running.reports)
            what = "1 batch was" if left == 1 else f"{left} batches were"
            raise RequestTimedOut(
                f"{what} not acknowledged within timeout_ms={timeout_ms}"
            ) from None
        running.reports.raise_unheard()

    # Information

    async def partitions_for(self, topic: str) -> tuple[Partition, ...]:
        """Returns the partitions of a topic, with their leaders and replicas."""
        return (await self._open().topics.get(topic)).partitions

    def metrics(self) -> dict[str, float]:
        """Returns metrics under Kafka's names: totals since the start, `-avg` and `-max` of about
        the last minute, and current values. Times are milliseconds unless the name says
        otherwise."""
        return self._measured(self._open())

    def _measured(self, running: Running) -> dict[str, float]:
        total = self._config.buffer_memory
        return {
            **self._cluster.measured(),
            **running.outcomes.metrics.shown(self._cluster.now()),
            "buffer-total-bytes": total,
            "buffer-available-bytes": total - running.intake.used_bytes,
            "batches-unsettled": len(running.reports),
            "waiting-threads": len(running.waiters),
            **({} if running.transactions is None else running.transactions.metrics.shown()),
        }

    async def client_instance_id(self, timeout_ms: int | None = None) -> str:
        """Returns the id under which brokers know the metrics that this producer pushes (KIP-714),
        as soon as one has given it. Raises RequestTimedOut after `timeout_ms`, max_block_ms by
        default, for instance where brokers take no metrics."""
        self._open()
        timeout_ms = self._config.max_block_ms if timeout_ms is None else timeout_ms
        return await self._telemetry.instance_id(timeout_ms)

    def register_metric(self, name: str, read: Callable[[], float]) -> None:
        """Has a metric of yours pushed together with the producer's (KIP-1076), as
        `org.apache.kafka.NAME` with dots for dashes. `read` returns its value; it is called on the
        event loop before each push. A name that ends in `-total` is a count that only grows."""
        self._telemetry.register(name, read)

    def unregister_metric(self, name: str) -> None:
        """Ends what `register_metric` began."""
        self._telemetry.unregister(name)

    # Transactions

    def transaction(self) -> Transaction:
        """Returns a transaction for `async with`: all records that are sent in the block, to any
        topics, and the offsets of `send_offsets` are committed together at its end. If the block
        raises they are aborted, and consumers with isolation_level="read_committed" never see them.

        If a record fails, the end of the block aborts and raises AbortableError; the next
        transaction may succeed. ProducerFenced and other errors are permanent."""
        return Transaction(self, self._transactions)

    async def begin_transaction(self) -> None:
        """Begins a transaction. Records can be sent until it is committed or aborted."""
        await self._transactions().begin()

    async def commit_transaction(self) -> None:
        """Sends all queued records, then commits them together. Raises AbortableError if one of
        them failed: abort, then begin again.

        Raises CommitOutcomeUnknown if the coordinator has not answered within max_block_ms. Then
        only this call can be made again, until it succeeds or the producer is closed."""
        await self._transactions().commit()

    async def abort_transaction(self) -> None:
        """Aborts the transaction. Queued records are dropped and fail with TransactionAborted."""
        await self._transactions().abort()

    async def send_offsets(
        self, offsets: OffsetsToSend, group: str | GroupMetadata | None = None
    ) -> None:
        """Commits offsets of a consumer group together with the transaction.

        `send_offsets(consumer)` sends the positions after all records that the consumer has
        returned; set its enable_auto_commit=False. Or give the offsets, as a mapping of partitions
        to offsets, and the group: `consumer.group_metadata()`, so that a member that the group has
        gone on without is refused, or the name of a group without members."""
        transactions = self._transactions()
        if isinstance(offsets, Mapping):
            if group is None:
                raise InvalidTransactionState("send_offsets needs the group of the offsets")
            member = GroupMetadata(group) if isinstance(group, str) else group
            given = {
                TopicPartition(*tp): each
                if isinstance(each, OffsetAndMetadata)
                else OffsetAndMetadata(each)
                for tp, each in offsets.items()
            }
            await transactions.send_offsets(given, member)
        else:
            await transactions.send_offsets(offsets.positions(), offsets.group_metadata())

    async def prepare_transaction(self) -> PreparedTransaction:
        """Sends all queued records and prepares the transaction to be committed (KIP-939): it stays
        open, without a timeout, also when the producer is closed. Store the result together with
        your own decision; `complete_transaction` ends the transaction.

        Needs transaction_two_phase_commit_enable=True and brokers that allow it."""
        return await self._transactions().prepare()

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """The prepared transaction: this producer's, or, with transaction_keep_prepared=True, the
        one that its predecessor left."""
        return self._transactions().state.prepared

    async def complete_transaction(self, prepared: PreparedTransaction) -> bool:
        """Commits the prepared transaction if it is the one given, which your store says is to be
        committed, and aborts it otherwise; returns whether it was committed."""
        return await self._transactions().complete(prepared)

    def _transactions(self) -> Transactions:
        transactions = self._open().transactions
        if transactions is None:
            raise InvalidTransactionState("transactions need a producer with a transactional_id")
        return transactions

    def _open(self) -> Running:
        """Returns the running producer, or raises what keeps it from being used here and now."""
        if self._running is None:
            raise self._not_open()
        self._cluster.check()
        return self._running

    def _not_open(self) -> ClientClosed:
        if self._closing:
            return ClientClosed("the producer is closed; create a new one")
        self._cluster.check()  # which raises if it is not even starting
        return ClientClosed("the producer is still starting: await start() first")


class Submitted(Protocol):
    """Records that other threads have submitted; see `Handover`."""

    def pass_on(
        self, intake: Intake, records_max: int, /
    ) -> tuple[int, list[tuple[Waiter | None, BaseException]]]: ...

    def pop(self) -> Prepared | None: ...


class Running:
    """The parts of a started producer, and what `headwater.blocking` needs of them."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        serialization: Serialization | None,
        joined: TransactionHandle | None = None,
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._serialization = serialization
        self.loop = asyncio.get_running_loop()
        self.waiters = BufferWaiters()
        self.transactions: Transactions | None = None
        if config.transactional_id is not None:
            self.transactions = Transactions(config, cluster, joined)
        transactions = self.transactions
        self._callbacks = IntakeCallbacks(config, cluster.host.clock, self)
        self.intake = self._callbacks.intake
        accumulator = Accumulator(
            linger=config.linger_ms / 1000,
            delivery_timeout=config.delivery_timeout_ms / 1000,
            identity=Identity() if config.enable_idempotence else None,
            # A linger that the user set is kept; the default one does not delay awaited records.
            sends_awaited_at_once="linger.ms" not in config.explicit or config.linger_ms == 0,
            may_send=None if transactions is None else transactions.may_send,
        )
        self.outcomes = Outcomes(
            config,
            cluster,
            self.intake,
            accumulator,
            self.waiters,
            None if transactions is None else transactions.on_record_failed,
        )
        self.reports = self.outcomes.reports
        self.sender = Sender(
            config,
            cluster,
            self.intake,
            accumulator,
            self.outcomes,
            None if transactions is None else transactions.began,
        )
        self.topics = Topics(config, cluster, self.intake, accumulator, self.reports, self.waiters)

    @property
    def cluster(self) -> Cluster:
        return self._cluster

    @property
    def is_plain(self) -> bool:
        """Whether records need no serializers and no interceptors."""
        return self._serialization is None

    async def start(self) -> None:
        """Obtains the producer's id and connects to the brokers."""
        if self.transactions is not None:
            await self.transactions.start(self)
        await self.sender.start()

    async def stop(self, reason: str) -> None:
        """Fails all records that have no outcome yet, and disconnects."""
        error = ClientClosed(reason)
        self.waiters.close(reason)
        try:
            if self.transactions is not None:
                await self.transactions.stop()
            await self.topics.stop(error)
            await self.sender.stop(error)
            await self._cluster.close()
        finally:
            self._callbacks.end()

    async def settled(self) -> None:
        """Sends all that is queued, and waits until each of these records has its outcome."""
        await self.topics.settled()
        self.sender.close_open()
        settled = self.reports.settled()
        self.sender.advance()
        await settled

    # Serializers and interceptors

    def serialized(self, record: ProducerRecord, on_delivery: Delivered | None) -> Prepared:
        """Returns the record as interceptors and serializers make it. Any thread may call this."""
        serialization = self._serialization
        if serialization is not None:
            record = serialization.prepare(record)
            if serialization.is_watched:
                on_delivery = serialization.watched(on_delivery or self.reports.heard)
        return (
            record.topic,
            record.value,
            record.key,
            record.headers,
            record.timestamp,
            record.partition,
            on_delivery,
        )

    def reporting_refusals(self) -> AbstractContextManager[None]:
        """A context in which a refused record is also reported to the interceptors."""
        serialization = self._serialization
        return nullcontext() if serialization is None else serialization.reporting_refusals()

    async def send_serialized(self, given: ProducerRecord) -> RecordMetadata:
        """`Producer.send` with serializers or interceptors."""
        future: asyncio.Future[RecordMetadata] = self.loop.create_future()
        with self.reporting_refusals():
            # A cancelled `send` does not stop the record, and interceptors see its outcome.
            record = self.serialized(given, partial(tell, future))
            partition, opened = await self.add_when_room(*record)
        if partition != HELD:
            self.sender.added(record[0], partition, opened=opened)
        return await future

    # Waiting for room in the buffer

    async def add_when_room(self, *record: Any) -> Placed:
        """Adds a record, first come, first served; returns what `Intake.add` does."""
        placed: Placed = (NO_ROOM, False)
        check = self._check_in_transaction()

        def attempt() -> bool:
            nonlocal placed
            check()
            placed = self.intake.add(*record)
            return placed[0] != NO_ROOM

        if not self.waiters and attempt():
            return placed
        await self._wait_for_room(attempt)
        return placed

    def _check_in_transaction(self) -> Callable[[], None]:
        """Returns a function that raises once the transaction has ended which is open now."""
        transactions = self.transactions
        if transactions is None:
            return _no_check
        return partial(transactions.check_writable, transactions.state.serial)

    async def _wait_for_room(self, attempt: Callable[[], bool]) -> None:
        """Waits until it is the caller's turn and the attempt succeeds; BufferFull after
        max_block_ms."""
        config = self._config
        self.sender.close_open()
        self.sender.advance()
        with self.outcomes.measuring_wait():
            try:
                async with asyncio.timeout(config.max_block_ms / 1000):
                    await self.waiters.take(attempt)
            except TimeoutError:
                raise BufferFull(
                    f"the buffer stayed full (buffer_memory={config.buffer_memory}) for "
                    f"max_block_ms={config.max_block_ms}"
                ) from None

    async def add_rows(self, rows: pa.RecordBatch, topic: str | None) -> None:
        """Adds all rows in order, as many at a time as there is room for. The core does the work;
        learning of topics and waiting for room happen between its calls."""
        at, unknown = 0, None
        check = self._check_in_transaction()

        def attempt() -> bool:
            """Adds what fits; returns whether that was anything."""
            nonlocal at, unknown
            check()
            before = at
            try:
                at, unknown = submit_arrow(self.intake, rows, topic=topic, start=at)
            except (TypeError, ValueError) as error:
                raise SerializationFailed(str(error)) from error
            return at > before or unknown is not None or at == rows.num_rows

        while True:
            if self.waiters or not attempt():
                await self._wait_for_room(attempt)
            if at == rows.num_rows:
                return
            if unknown is not None:
                await self.topics.learn(unknown)

    async def add_sealed(self, topic: str, partition: int, records: bytes) -> None:
        """Adds a batch that another process has sealed, when there is room for it."""
        outgoing = Outgoing.resumed(topic, partition, records)
        check = self._check_in_transaction()

        def attempt() -> bool:
            check()
            if not self.sender.has_room(outgoing.cost):
                return False
            self.sender.take_sealed(outgoing)
            return True

        await self.topics.get(topic)
        if self.waiters or not attempt():
            await self._wait_for_room(attempt)

    # Records of other threads

    def send_now(self, record: Prepared) -> bool:
        """Sends a record as `Producer.send` does and reports to its last element. Returns False,
        and does nothing, if something has to be awaited first."""
        if self._serialization is not None or self.waiters:
            return False
        if self.transactions is not None:
            self.transactions.check_writable()
        partition, opened = self.intake.add(*record)
        if partition == NO_ROOM:
            return False
        if partition != HELD:
            self.sender.added(record[0], partition, opened=opened)
        return True

    async def submit_when_room(self, record: Prepared) -> None:
        """Queues a record as `Producer.submit` does, but waits for room as `send` does."""
        partition, opened = await self.add_when_room(*record)
        if opened:
            self.sender.opened(record[0], partition)

    async def take_over(self, submitted: Submitted, moved: Callable[[], None]) -> None:
        """Takes the records of other threads, in order, until none is left; calls `moved` after
        each piece. An invalid record is reported as if it had failed later; the others go on."""
        rejected = self.reports.rejected
        while True:
            taken = 0
            if not self.waiters:
                taken, failed = submitted.pass_on(self.intake, _PIECE_RECORDS)
                for waiter, error in failed:
                    rejected(waiter, error)
            if not taken:
                record = submitted.pop()
                if record is None:
                    return
                try:
                    await self.submit_when_room(record)
                except ClientError as error:
                    rejected(record[-1], error)
                except asyncio.CancelledError:
                    rejected(record[-1], ClientClosed("the producer was closed; not sent"))
                    raise
            moved()
            await asyncio.sleep(0)

    def reject(self, submitted: Submitted, error: ClientError) -> None:
        """Fails the records of other threads that were not taken."""
        while (record := submitted.pop()) is not None:
            self.reports.rejected(record[-1], error)


def _no_check() -> None:
    """For producers without transactions."""


def _deadline(timeout_ms: int | None) -> float | None:
    """Returns the end of a timeout by the loop's clock; None for no timeout."""
    return None if timeout_ms is None else asyncio.get_running_loop().time() + timeout_ms / 1000


def _telemetry_of(producer: Producer) -> Telemetry:
    known = ref(producer)  # the pushes do not keep a producer that nobody closed

    def measured() -> dict[str, float] | None:
        found = known()
        running = None if found is None else found._running
        return None if found is None or running is None else found._measured(running)

    prefix = f"{DOMAIN}.producer."
    labels = {"transactional_id": producer.config.transactional_id}
    return Telemetry(
        producer._cluster, measured=measured, prefix_of=lambda name: prefix, labels=lambda: labels
    )
