"""The blocking `Producer`: the same calls, for scripts and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import finalize

from headwater._blocking.client import BlockingClient, blocking_call, loop_call
from headwater._blocking.loop import Job, LoopThread
from headwater._blocking.submit_queue import SubmitQueue
from headwater.client.errors import ClientClosed, ClientError, Forked, RequestTimedOut
from headwater.client.producer import Producer as AsyncProducer
from headwater.client.producer import ProducerRecord

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Unpack

    import pyarrow as pa

    from headwater.client.config import Bootstrap
    from headwater.client.producer.delivery import Delivered
    from headwater.client.producer.records import Headers, RecordMetadata
    from headwater.client.producer.transactions import OffsetsToSend
    from headwater.client.requests.offset_commit import GroupMetadata
    from headwater.client.requests.transactions import PreparedTransaction
    from headwater.client.settings import ProducerSettings
    from headwater.client.timestamps import Timestamp

R = TypeVar("R")


def time_left(timeout_ms: int | None) -> Callable[[], int | None]:
    """Returns a function that tells how much is left of a timeout that two steps share."""
    if timeout_ms is None:
        return lambda: None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    return lambda: max(0, round((deadline - loop.time()) * 1000))


class Producer(BlockingClient):
    """Publishes records; see `headwater.Producer`. Threads may share one producer.

    with Producer("localhost:9092") as producer:
        producer.send("orders", key="alice", value=b"...")
    """

    _asynchronous: AsyncProducer

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__("headwater-producer")
        self._asynchronous = AsyncProducer(bootstrap, config=config, **settings)
        self._queue: SubmitQueue | None = None  # from the start on
        self._unclosed: finalize[..., Producer] | None = None

    # Beginning and ending

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends all queued records, then disconnects. Records that are not acknowledged after
        `timeout_ms` fail with ClientClosed. A second call waits for the first to finish, and its
        timeout may end it earlier."""

        async def close() -> None:
            left = time_left(timeout_ms)
            await self._submitted().close(timeout_ms)
            await self._asynchronous.close(left())

        vars(self).pop("submit", None)
        if self._unclosed is not None:
            self._unclosed.detach()
        if self._is_closed and timeout_ms is not None:
            self._hurry(timeout_ms)
        self._end(close)

    def _hurry(self, timeout_ms: int) -> None:
        """Shortens the deadline of another thread's `close`."""
        if self._thread is not None:
            with suppress(ClientClosed, Forked):
                self._thread.call(lambda: self._asynchronous.close(timeout_ms))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:  # else the first problem is the one to be seen
                raise

    def _begin(self, thread: LoopThread) -> None:
        async def begin() -> SubmitQueue:
            await self._asynchronous.start()
            return SubmitQueue(self._asynchronous, self._asynchronous._open(), thread)

        self._queue = queue = thread.call(begin)
        self._unclosed = finalize(self, queue.warn_unclosed)
        if queue.running.is_plain:
            # A plain record goes to the core without a Python call in between.
            vars(self)["submit"] = queue.submit

    def _submitted(self) -> SubmitQueue:
        assert self._queue is not None, "started first"
        return self._queue

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Runs a coroutine on the producer's loop, after all that was submitted before."""

        async def behind() -> R:
            queue = self._submitted()
            if not queue.is_idle:
                await queue.carry()
            return await make()

        return super()._run(behind)

    # Records

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: Timestamp | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Sends a record, after all that was submitted before, waits until it is acknowledged, and
        returns where it is stored. While the buffer is full it waits for room, at most
        max_block_ms; then it raises BufferFull."""
        thread = self._started()
        queue = self._submitted()

        async def in_turn() -> RecordMetadata:
            await queue.carry()
            return await self._asynchronous.send(
                topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition
            )

        def begin(job: Job[RecordMetadata]) -> None:
            # Without a task if there is nothing to wait for but the response: much quicker.
            record = (topic, value, key, headers, timestamp, partition, job.end)
            if not queue.is_idle or not self._asynchronous._open().send_now(record):
                job.run(in_turn)

        return thread.ask(begin)

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
        """Queues a record and returns. `on_delivery(metadata, error)` is called with the outcome,
        in the producer's thread; without it, `flush` and `close` raise the first error. While the
        buffer is full it waits for room, at most max_block_ms; then it raises BufferFull."""
        self._started().check()
        queue = self._submitted()
        with queue.running.reporting_refusals():
            record = ProducerRecord(topic, value, key, headers, timestamp, partition)
            topic, value, key, headers, timestamp, partition, on_delivery = (
                queue.running.serialized(record, on_delivery)
            )
            queue.submit(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
                on_delivery=on_delivery,
            )

    def submit_arrow(self, rows: pa.RecordBatch, *, topic: str | None = None) -> None:
        """Queues the rows of a pyarrow.RecordBatch, after all that was submitted before; see
        `headwater.Producer.submit_arrow`. Waits while the buffer is full, at most max_block_ms;
        then it raises BufferFull."""
        self._run(lambda: self._asynchronous.submit_arrow(rows, topic=topic))

    def flush(self, timeout_ms: int | None = None) -> None:
        """See `headwater.Producer.flush`."""

        async def flush() -> None:
            left = time_left(timeout_ms)
            if not await self._submitted().carry(timeout_ms):
                raise RequestTimedOut(
                    f"records still waited for room in the buffer after timeout_ms={timeout_ms}"
                )
            await self._asynchronous.flush(left())

        super()._run(flush)

    # The rest

    partitions_for = blocking_call(AsyncProducer.partitions_for)

    def metrics(self) -> dict[str, float]:
        """See `headwater.Producer.metrics`. Does not wait for submitted records: metrics are most
        wanted when those are stuck."""

        async def measured() -> dict[str, float]:
            return self._asynchronous.metrics()

        return super()._run(measured)

    client_instance_id = blocking_call(AsyncProducer.client_instance_id)
    register_metric = loop_call(AsyncProducer.register_metric)
    unregister_metric = loop_call(AsyncProducer.unregister_metric)

    # Transactions

    def transaction(self) -> Transaction:
        """Returns a transaction for `with`; see `headwater.Producer.transaction`. Threads that
        share the producer share its transaction."""
        return Transaction(self)

    begin_transaction = blocking_call(AsyncProducer.begin_transaction)
    commit_transaction = blocking_call(AsyncProducer.commit_transaction)
    abort_transaction = blocking_call(AsyncProducer.abort_transaction)
    prepare_transaction = blocking_call(AsyncProducer.prepare_transaction)
    complete_transaction = blocking_call(AsyncProducer.complete_transaction)

    @property
    def prepared_transaction(self) -> PreparedTransaction | None:
        """See `headwater.Producer.prepared_transaction`."""

        async def prepared() -> PreparedTransaction | None:
            return self._asynchronous.prepared_transaction

        return self._run(prepared)

    def send_offsets(
        self, offsets: OffsetsToSend, group: str | GroupMetadata | None = None
    ) -> None:
        """See `headwater.Producer.send_offsets`; the consumer is a blocking one."""
        if not isinstance(offsets, Mapping):
            # On the consumer's own loop, which is another one.
            group = offsets.group_metadata()
            offsets = offsets.positions()
        self._run(lambda: self._asynchronous.send_offsets(offsets, group))


class Transaction:
    """`with producer.transaction():` commits at the end; if the block raises, or a record failed,
    it aborts and raises."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._inner = producer._asynchronous.transaction()

    def __enter__(self) -> Self:
        self._producer._run(self._inner.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._producer._run(lambda: self._inner.__aexit__(kind, error, trace))

    def send_offsets(
        self, offsets: OffsetsToSend, group: str | GroupMetadata | None = None
    ) -> None:
        """Commits offsets with the transaction; see `Producer.send_offsets`."""
        self._producer.send_offsets(offsets, group)

    def commit(self) -> None:
        """Commits now, before the end of the block."""
        self._producer.commit_transaction()

    def abort(self) -> None:
        """Aborts without raising; the rest of the block has no transaction."""
        self._producer.abort_transaction()
