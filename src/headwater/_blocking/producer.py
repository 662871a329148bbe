"""The blocking face of `Producer`: the same calls, for scripts and threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Self, TypeVar

from headwater._blocking.handing import Handing
from headwater._blocking.loop import LoopThread
from headwater.client.errors import ClientError
from headwater.client.producer import Producer as AsyncProducer
from headwater.client.producer import RecordMetadata
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
        self._handing: Handing

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
            await self._handing.close()
            await self.asynchronous.close(timeout_ms)

        vars(self).pop("submit", None)
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
                    self._handing = thread.call(lambda: self._start(thread))
                except BaseException:
                    thread.close()
                    raise
                if self.asynchronous.is_plain:
                    # No call of ours stands between a plain record and the core.
                    vars(self)["submit"] = self._handing.submit
                self._thread = thread
            return self._thread

    async def _start(self, thread: LoopThread) -> Handing:
        await self.asynchronous.start()
        return Handing(self.asynchronous, thread)

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Has a coroutine run where the producer lives, behind all that was submitted before."""

        async def behind() -> R:
            await self._handing.carry()
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
        self._started().check()
        topic, value, key, headers, timestamp, partition, on_delivery = self.asynchronous.prepared(
            topic, value, key, headers, timestamp, partition, on_delivery
        )
        self._handing.submit(
            topic,
            value,
            key=key,
            headers=headers,
            timestamp=timestamp,
            partition=partition,
            on_delivery=on_delivery,
        )

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
