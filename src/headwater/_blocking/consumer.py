"""The blocking face of `Consumer`: the same calls, for scripts and threads.

The consumer lives on a loop in a thread of its own, so it fetches and heartbeats while the user's
thread works. A loop over it takes records slice by slice; nothing passes between the threads for a
single record.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.consumer import ConsumedRecord
from headwater.client.consumer import Consumer as AsyncConsumer
from headwater.client.consumer.listener import tell

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.config import Bootstrap
    from headwater.client.settings import ConsumerSettings
    from headwater.model import TopicPartition

P = ParamSpec("P")
R = TypeVar("R")

_SLICE_RECORDS = 512


def _waiting(
    method: Callable[Concatenate[AsyncConsumer, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Consumer, P], R]:
    """The same call, which waits. It has the arguments and the words of the other."""

    @wraps(method)
    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(lambda: method(self.asynchronous, *args, **kwargs))

    return call


def _there(
    method: Callable[Concatenate[AsyncConsumer, P], R],
) -> Callable[Concatenate[Consumer, P], R]:
    """The same call, made where the consumer lives."""

    @wraps(method)
    def call(self: Consumer, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def there() -> R:
            return method(self.asynchronous, *args, **kwargs)

        return self.run(there)

    return call


class _Listener:
    """Calls a user's listener in a thread where it may call the consumer."""

    def __init__(self, listener: object) -> None:
        self._listener = listener

    async def on_assigned(self, partitions: list[TopicPartition]) -> None:
        await self._tell("on_assigned", partitions)

    async def on_revoked(self, partitions: list[TopicPartition]) -> None:
        await self._tell("on_revoked", partitions)

    async def on_lost(self, partitions: list[TopicPartition]) -> None:
        await self._tell("on_lost", partitions)

    async def _tell(self, event: str, partitions: list[TopicPartition]) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(
            None, lambda: asyncio.run(tell(self._listener, event, partitions))
        )


class Consumer:
    """Reads records; see `headwater.Consumer`. One thread at a time may poll it or loop over it;
    the other calls may come from any thread."""

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self.asynchronous = AsyncConsumer(
            bootstrap,
            group=group,
            topics=topics,
            pattern=pattern,
            listener=None if listener is None else _Listener(listener),
            config=config,
            **settings,
        )
        self._thread: LoopThread | None = None

    def start(self) -> Self:
        """Finds a first broker; `with` does it, and so does the first call."""
        self._started()
        return self

    def close(self, timeout_ms: int = 30_000) -> None:
        """See `headwater.Consumer.close`."""
        if self._thread is not None:
            self._thread.close(lambda: self.asynchronous.close(timeout_ms))

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *failure: object) -> None:
        if self._thread is not None:
            kind, error, traceback = failure
            self._thread.close(lambda: self.asynchronous.__aexit__(kind, error, traceback))

    def run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Has a coroutine run where the consumer lives, and waits for it."""
        return self._started().call(make)

    def _started(self) -> LoopThread:
        if self._thread is None:
            thread = LoopThread("headwater-consumer")
            try:
                thread.call(self.asynchronous.start)
            except BaseException:
                thread.close()
                raise
            self._thread = thread
        return self._thread

    def __iter__(self) -> Iterator[ConsumedRecord]:
        consumer = self.asynchronous
        while (slice_ := self.run(lambda: consumer.next_slice(_SLICE_RECORDS))) is not None:
            yield from slice_.iterator

    def subscribe(
        self,
        topics: Iterable[str] | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: object | None = None,
    ) -> None:
        """See `headwater.Consumer.subscribe`."""
        threaded = None if listener is None else _Listener(listener)

        async def there() -> None:
            self.asynchronous.subscribe(topics, pattern=pattern, listener=threaded)

        self.run(there)

    poll = _waiting(AsyncConsumer.poll)
    poll_arrow = _waiting(AsyncConsumer.poll_arrow)

    unsubscribe = _waiting(AsyncConsumer.unsubscribe)
    assign = _there(AsyncConsumer.assign)
    assignment = _there(AsyncConsumer.assignment)
    subscription = _there(AsyncConsumer.subscription)

    seek = _there(AsyncConsumer.seek)
    seek_to_beginning = _waiting(AsyncConsumer.seek_to_beginning)
    seek_to_end = _waiting(AsyncConsumer.seek_to_end)
    seek_to_time = _waiting(AsyncConsumer.seek_to_time)
    position = _waiting(AsyncConsumer.position)
    pause = _there(AsyncConsumer.pause)
    resume = _there(AsyncConsumer.resume)
    paused = _there(AsyncConsumer.paused)
    lag = _there(AsyncConsumer.lag)

    commit = _waiting(AsyncConsumer.commit)
    commit_async = _there(AsyncConsumer.commit_async)
    committed = _waiting(AsyncConsumer.committed)

    beginning_offsets = _waiting(AsyncConsumer.beginning_offsets)
    end_offsets = _waiting(AsyncConsumer.end_offsets)
    offsets_for_times = _waiting(AsyncConsumer.offsets_for_times)
    partitions_for = _waiting(AsyncConsumer.partitions_for)
    metrics = _there(AsyncConsumer.metrics)
