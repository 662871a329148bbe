"""The blocking `Consumer`: the same calls, for scripts and threads.

The asyncio consumer runs on an event loop in a thread of its own, so that it fetches and sends
heartbeats while the user's thread works. A loop over it takes records slice by slice: the threads
do not communicate for each record.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Generic
from weakref import finalize

from headwater._blocking.client import BlockingClient, blocking_call, loop_call
from headwater._blocking.loop import LoopThread
from headwater.client.consumer import ConsumedRecord, arguments
from headwater.client.consumer import Consumer as AsyncConsumer
from headwater.client.consumer.bad_records import (
    BadRecordCallback,
    OnBadRecord,
    bad_record_callback,
    run_callback,
)
from headwater.client.consumer.consumer import next_slice, warn_unclosed
from headwater.client.consumer.listener import Event, RebalanceListener, tell
from headwater.client.deserializers import K, V
from headwater.client.errors import DeserializationFailed

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.config import Bootstrap
    from headwater.client.settings import ConsumerSettings
    from headwater.model import TopicPartition

_SLICE_RECORDS = 512

_this_thread = threading.local()


class _Listener(RebalanceListener):
    """Calls a user's listener in a thread where it may call the consumer."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = arguments.listener(listener)

    async def on_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._tell("on_assigned", partitions)

    async def on_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._tell("on_revoked", partitions)

    async def on_lost(self, partitions: list[TopicPartition]) -> None:
        await self._tell("on_lost", partitions)

    async def _tell(self, event: Event, partitions: list[TopicPartition]) -> None:
        await _run_in_thread(lambda: tell(self._listener, event, partitions))


def _in_thread(callback: BadRecordCallback) -> BadRecordCallback:
    """Calls a user's function in a thread where it may call the consumer and wait."""

    async def run(error: DeserializationFailed) -> None:
        await _run_in_thread(lambda: run_callback(callback, error))

    return run


async def _run_in_thread(call: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Runs a user's callback in another thread; the consumer's loop waits for it."""

    def run() -> None:
        _this_thread.is_in_callback = True
        try:
            asyncio.run(call())
        finally:
            _this_thread.is_in_callback = False

    await asyncio.get_running_loop().run_in_executor(None, run)


def _warn_unclosed(consumer: AsyncConsumer[Any, Any], thread: LoopThread) -> None:
    """The program ends, or has dropped the consumer, without `close`."""
    if not thread.is_closed and thread.is_ours:
        warn_unclosed(consumer, "with")


class Consumer(BlockingClient, Generic[K, V]):
    """Reads records from topics; see `headwater.Consumer`.

        with Consumer("localhost:9092", group="billing", topics=["orders"]) as consumer:
            for record in consumer:
                print(record.key, record.value)

    One thread at a time may poll the consumer or loop over it; other calls may come from any
    thread. Listeners and `on_bad_record` run in a thread in which they may call the consumer.
    """

    _asynchronous: AsyncConsumer[K, V]

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
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        super().__init__("headwater-consumer")
        self._unclosed: finalize[..., Consumer[K, V]] | None = None
        callback = bad_record_callback(on_bad_record, is_blocking=True)
        self._asynchronous = AsyncConsumer(
            bootstrap,
            group=group,
            topics=topics,
            pattern=pattern,
            listener=None if listener is None else _Listener(listener),
            on_bad_record="raise" if callback is None else _in_thread(callback),
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            config=config,
            **settings,
        )

    def _begin(self, thread: LoopThread) -> None:
        super()._begin(thread)
        self._unclosed = finalize(self, _warn_unclosed, self._asynchronous, thread)

    def _end(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        if getattr(_this_thread, "is_in_callback", False) and self._thread is not None:
            # The loop waits for this callback, so its thread must not be waited for here; the end
            # of the `with` block ends it. A close that is in progress is not waited for, either.
            if not self._is_closed:
                self._thread.call(last)
            return
        if self._unclosed is not None:
            self._unclosed.detach()
        super()._end(last)

    def close(self, timeout_ms: int = 30_000) -> None:
        """See `headwater.Consumer.close`."""
        self._end(lambda: self._asynchronous.close(timeout_ms))

    def __exit__(self, *failure: object) -> None:
        self._end(lambda: self._asynchronous.__aexit__(*failure))

    @property
    def is_closing(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def __iter__(self) -> Iterator[ConsumedRecord[K, V]]:
        consumer = self._asynchronous
        while (slice_ := self._run(lambda: next_slice(consumer, _SLICE_RECORDS))) is not None:
            for record in slice_.iterator:
                yield record
                if slice_.is_late:
                    break

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """See `headwater.Consumer.subscribe`."""
        threaded = None if listener is None else _Listener(listener)

        async def subscribe() -> None:
            self._asynchronous.subscribe(topics, pattern=pattern, listener=threaded)

        self._run(subscribe)

    def poll(
        self, timeout_ms: int = 1000, records_max: int | None = None
    ) -> list[ConsumedRecord[K, V]]:
        """See `headwater.Consumer.poll`."""
        return self._run(lambda: self._asynchronous.poll(timeout_ms, records_max))

    poll_arrow = blocking_call(AsyncConsumer.poll_arrow)

    unsubscribe = blocking_call(AsyncConsumer.unsubscribe)
    assign = loop_call(AsyncConsumer.assign)
    assignment = loop_call(AsyncConsumer.assignment)
    subscription = loop_call(AsyncConsumer.subscription)

    seek = loop_call(AsyncConsumer.seek)
    seek_to_beginning = blocking_call(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking_call(AsyncConsumer.seek_to_end)
    seek_to_time = blocking_call(AsyncConsumer.seek_to_time)
    position = blocking_call(AsyncConsumer.position)
    pause = loop_call(AsyncConsumer.pause)
    resume = loop_call(AsyncConsumer.resume)
    paused = loop_call(AsyncConsumer.paused)
    lag = loop_call(AsyncConsumer.lag)

    commit = blocking_call(AsyncConsumer.commit)
    commit_async = loop_call(AsyncConsumer.commit_async)
    committed = blocking_call(AsyncConsumer.committed)
    positions = loop_call(AsyncConsumer.positions)
    group_metadata = loop_call(AsyncConsumer.group_metadata)

    beginning_offsets = blocking_call(AsyncConsumer.beginning_offsets)
    end_offsets = blocking_call(AsyncConsumer.end_offsets)
    offsets_for_times = blocking_call(AsyncConsumer.offsets_for_times)
    partitions_for = blocking_call(AsyncConsumer.partitions_for)
    metrics = loop_call(AsyncConsumer.metrics)
    client_instance_id = blocking_call(AsyncConsumer.client_instance_id)
    register_metric = loop_call(AsyncConsumer.register_metric)
    unregister_metric = loop_call(AsyncConsumer.unregister_metric)
