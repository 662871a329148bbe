"""The blocking face of `Producer`: the same calls, for scripts and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import finalize

from headwater._blocking.client import BlockingClient, waiting
from headwater._blocking.handing import Handing
from headwater._blocking.loop import Job, LoopThread
from headwater.client.errors import ClientClosed, ClientError, Forked, RequestTimedOut
from headwater.client.producer import Producer as AsyncProducer
from headwater.client.producer import ProducerRecord
from headwater.client.producer.transactions import not_there_yet

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.config import Bootstrap
    from headwater.client.producer.records import Headers, RecordMetadata
    from headwater.client.producer.settling import Delivered
    from headwater.client.settings import ProducerSettings
    from headwater.model import TopicPartition

R = TypeVar("R")


def time_left(timeout_ms: int | None) -> Callable[[], int | None]:
    """What is left of a time that two steps share, whenever it is asked for."""
    if timeout_ms is None:
        return lambda: None
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    return lambda: max(0, round((deadline - loop.time()) * 1000))


class Producer(BlockingClient):
    """Publishes records; see `headwater.Producer`. Threads may share one.

    with Producer("localhost:9092") as producer:
        producer.send("orders", key="alice", value=b"...")
    """

    asynchronous: AsyncProducer

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        super().__init__("headwater-producer")
        self.asynchronous = AsyncProducer(bootstrap, config=config, **settings)
        self._handing: Handing
        self._farewell: finalize[..., Producer] | None = None

    # Beginning and ending

    def close(self, timeout_ms: int | None = None) -> None:
        """Sends what is queued, then ends. With a timeout, what is not acknowledged by then fails
        with ClientClosed. Another thread that closes it waits, and may hurry it by a timeout."""

        async def close() -> None:
            left = time_left(timeout_ms)
            await self._handing.close(timeout_ms)
            await self.asynchronous.close(left())

        vars(self).pop("submit", None)
        if self._farewell is not None:
            self._farewell.detach()
        if self._is_closed and timeout_ms is not None:
            self._hurry(timeout_ms)
        self._end(close)

    def _hurry(self, timeout_ms: int) -> None:
        """Another thread may be closing it, and without a deadline."""
        if self._thread is not None:
            with suppress(ClientClosed, Forked):
                self._thread.call(lambda: self.asynchronous.close(timeout_ms))

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except ClientError:
            if kind is None:  # else the first problem is the one to be seen
                raise

    def _begin(self, thread: LoopThread) -> None:
        async def begin() -> Handing:
            await self.asynchronous.start()
            return Handing(self.asynchronous, thread)

        self._handing = thread.call(begin)
        self._farewell = finalize(self, self._handing.say_unclosed)
        if self.asynchronous.is_plain:
            # No call of ours stands between a plain record and the core.
            vars(self)["submit"] = self._handing.submit

    def run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Has a coroutine run where the producer lives, behind all that was submitted before."""

        async def behind() -> R:
            if not self._handing.is_idle:
                await self._handing.carry()
            return await make()

        return super().run(behind)

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
        """Sends a record and waits for its acknowledgement, behind all that was submitted before.
        If the buffer is full it waits in line for room, at most max_block_ms."""
        thread, asynchronous = self._started(), self.asynchronous

        async def in_line() -> RecordMetadata:
            await self._handing.carry()
            return await asynchronous.send(
                topic, value, key=key, headers=headers, timestamp=timestamp, partition=partition
            )

        def begin(job: Job[RecordMetadata]) -> None:
            # Without a task, if nothing has to be waited for but the answer: it is much quicker.
            record = (topic, value, key, headers, timestamp, partition, job.end)
            if not self._handing.is_idle or not asynchronous.send_now(record):
                job.run(in_line)

        return thread.ask(begin)

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
        asynchronous = self.asynchronous
        with asynchronous.refusals_told():
            topic, value, key, headers, timestamp, partition, on_delivery = asynchronous.prepared(
                ProducerRecord(topic, value, key, headers, timestamp, partition), on_delivery
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
        """See `headwater.Producer.flush`."""

        async def flush() -> None:
            left = time_left(timeout_ms)
            if not await self._handing.carry(timeout_ms):
                raise RequestTimedOut(
                    f"records still waited for room in the buffer after timeout_ms={timeout_ms}"
                )
            await self.asynchronous.flush(left())

        super().run(flush)

    # The rest

    partitions_for = waiting(AsyncProducer.partitions_for)

    def metrics(self) -> dict[str, float]:
        """See `headwater.Producer.metrics`. Does not wait for what was submitted before: it is
        when that is stuck that one wants to know."""

        async def measured() -> dict[str, float]:
            return self.asynchronous.metrics()

        return super().run(measured)

    def transaction(self) -> Any:
        """`with producer.transaction():` everything sent in it is written, or nothing."""
        not_there_yet()

    def send_offsets(self, offsets: Mapping[TopicPartition, int], group: str) -> None:
        """Commits a group's offsets as a part of the transaction."""
        not_there_yet()
