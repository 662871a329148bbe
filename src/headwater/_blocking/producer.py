"""The blocking face of `Producer`: the same calls, for scripts and threads.

The producer lives on a loop in a thread of its own. `submit` puts a record on a heap that this
thread takes as a whole, so nothing passes between the threads for a single record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.errors import BufferFull, ClientError
from headwater.client.producer import Producer as AsyncProducer
from headwater.client.producer import RecordMetadata
from headwater.client.producer.producer import Prepared
from headwater.client.producer.transactions import not_there_yet

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.config import Bootstrap
    from headwater.client.metadata import Partition
    from headwater.client.producer.records import Headers
    from headwater.client.producer.settling import Delivered
    from headwater.client.settings import ProducerSettings
    from headwater.model import TopicPartition

R = TypeVar("R")

# What is on the heap is not in the producer's buffer yet, and bounded by itself.
_HEAP_BYTES_MAX = 4 * 1024 * 1024
_RECORD_BYTES = 100  # what any record counts for, besides key and value
# Up to here a record fits whatever the settings are, unless they are below this themselves.
_SMALL_BYTES = 16 * 1024
_PLAIN = (bytes, str, type(None))


class Producer:
    """Publishes records; see `headwater.Producer`. Threads may share one.

    with Producer("localhost:9092") as producer:
        producer.send("orders", key="alice", value=b"...")
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self.asynchronous = AsyncProducer(bootstrap, config=config, **settings)
        self._thread: LoopThread | None = None
        self._starting = Lock()
        self._changed = Condition(Lock())  # guards what follows
        self._heap: list[Prepared] = []
        self._heap_bytes = 0
        self._is_carried = False  # the loop's thread is at it, or will be
        self._turn = asyncio.Lock()
        self._carrier: asyncio.Task[None] | None = None
        self._small_bytes = min(_SMALL_BYTES, self.asynchronous.config.max_request_size // 2)

    # Beginning and ending

    def start(self) -> Self:
        """Connects; `with` does it, and so does the first call."""
        self._started()
        return self

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends what is queued, then ends. With a timeout, what is not acknowledged by then fails
        with ClientClosed."""
        thread = self._thread
        if thread is None or thread.is_closed:
            return

        async def close() -> None:
            await self._carry()
            await self.asynchronous.close(timeout_ms)

        thread.close(close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:  # else the first problem is the one to be seen
                raise

    def _started(self) -> LoopThread:
        thread = self._thread
        if thread is not None:
            return thread
        with self._starting:
            if self._thread is None:
                thread = LoopThread("headwater-producer")
                try:
                    thread.call(self.asynchronous.start)
                except BaseException:
                    thread.close()
                    raise
                self._thread = thread
            return self._thread

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Has a coroutine run where the producer lives, behind all that was submitted before."""

        async def behind() -> R:
            await self._carry()
            return await make()

        return self._started().call(behind)

    # Records

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
    ) -> RecordMetadata:
        """Sends a record and waits for its acknowledgement."""
        return self._run(
            lambda: self.asynchronous.send(
                topic,
                value,
                key=key,
                headers=headers,
                timestamp=timestamp,
                partition=partition,
            )
        )

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
        """Queues a record and returns. What goes wrong later is given to `on_delivery`, in the
        producer's thread, or else raised by `flush`. While the buffer is full this waits, at most
        max_block_ms."""
        thread = self._started()
        record = self.asynchronous.prepared(
            topic, value, key, headers, timestamp, partition, on_delivery
        )
        _, value, key, headers, timestamp, _, _ = record
        if type(value) in _PLAIN and type(key) in _PLAIN:
            size = _RECORD_BYTES
            size += (len(value) if value is not None else 0) + (len(key) if key is not None else 0)
        else:
            size = _SMALL_BYTES
        if size >= self._small_bytes or headers is not None or timestamp is not None:
            # What may be refused is taken in before this returns, so that it is said here.
            self._run(lambda: self.asynchronous.submit_in_line(record))
            return
        with self._changed:
            if self._heap_bytes > _HEAP_BYTES_MAX:
                self._wait_for_heap()
            thread.check()
            self._heap.append(record)
            self._heap_bytes += size
            if self._is_carried:
                return
            self._is_carried = True
        thread.soon(self._carry_soon)

    def _wait_for_heap(self) -> None:
        timeout_ms = self.asynchronous.config.max_block_ms
        if not self._changed.wait_for(
            lambda: self._heap_bytes <= _HEAP_BYTES_MAX, timeout_ms / 1000
        ):
            raise BufferFull(f"the buffer stayed full for max_block_ms={timeout_ms}")

    def _carry_soon(self) -> None:
        self._carrier = asyncio.get_running_loop().create_task(self._carry())

    async def _carry(self) -> None:
        """Takes the heap in, until it is empty. Runs in the loop's thread, one at a time."""
        async with self._turn:
            while True:
                with self._changed:
                    heap, self._heap = self._heap, []
                    self._heap_bytes = 0
                    self._is_carried = bool(heap)
                    self._changed.notify_all()
                if not heap:
                    return
                await self.asynchronous.submit_many(heap)

    def flush(self, timeout_ms: int | None = None) -> None:
        """Sends all that is queued and waits until it is settled. Raises the first error of records
        that nobody waited for, once."""
        self._run(lambda: self.asynchronous.flush(timeout_ms))

    # The rest

    def partitions_for(self, topic: str) -> tuple[Partition, ...]:
        """The partitions of a topic, with their leaders and replicas."""
        return self._run(lambda: self.asynchronous.partitions_for(topic))

    def metrics(self) -> dict[str, float]:
        """Counts and means since the start, under Kafka's names."""

        async def metrics() -> dict[str, float]:
            return self.asynchronous.metrics()

        return self._run(metrics)

    def transaction(self) -> Any:
        """`with producer.transaction():` everything sent in it is written, or nothing."""
        not_there_yet()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Commits a group's offsets as a part of the transaction."""
        not_there_yet()
