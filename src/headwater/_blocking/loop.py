"""An event loop in its own thread, which runs work for other threads.

A call passes a coroutine and waits for it. Ctrl-C in the calling thread cancels the coroutine and
raises KeyboardInterrupt. After `close` every call raises `ClientClosed`, those too that were
waiting; in a forked child, where the thread does not exist, it raises `Forked`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from headwater.client.errors import ClientClosed, Forked, RequestTimedOut, WrongLoop

T = TypeVar("T")

# How long a cancelled coroutine may take to end.
_CANCEL_SECONDS = 5.0


class LoopThread:
    """Starts at once. The thread is a daemon, so a program that forgets to close still ends."""

    def __init__(self, name: str = "headwater-client") -> None:
        self._process = os.getpid()
        self._closed = False
        self._jobs: set[Job[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._closed = True
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=_CANCEL_SECONDS))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            # Names were looked up in threads; they end here and not some time later.
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            # Jobs that came too late to begin must not wait forever.
            for job in list(self._jobs):
                job.give_up()

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_ours(self) -> bool:
        """Whether this is the process that has the thread, and not a fork of it."""
        return os.getpid() == self._process

    def check(self) -> None:
        if os.getpid() != self._process:
            raise Forked(
                f"the client was made in process {self._process} and this is its fork "
                f"{os.getpid()}; make a client in each process, after the fork"
            )
        if self._closed:
            raise ClientClosed("the client is closed; create a new one")
        if threading.current_thread() is self._thread:
            raise WrongLoop(
                "a callback of a blocking client may not call it: it would wait for itself"
            )

    def call(
        self, make: Callable[[], Coroutine[Any, Any, T]], *, timeout_ms: float | None = None
    ) -> T:
        """Runs a coroutine in the loop's thread and waits for its result.

        With `timeout_ms`, a coroutine that takes longer is cancelled: `RequestTimedOut`. Without,
        it must have its own deadline."""

        def begin(job: Job[T]) -> None:
            job.run(make)

        return self.ask(begin, timeout_ms=timeout_ms)

    def ask(self, begin: Callable[[Job[T]], None], *, timeout_ms: float | None = None) -> T:
        """Calls a function in the loop's thread and waits until it, or something it started, ends
        the job."""
        self.check()
        # An interrupt may come between any two steps: what is to be cancelled exists before it is
        # handed over, and from there on whatever happens cancels it.
        job = Job[T]()
        try:
            self._jobs.add(job)
            self._schedule(job.begin, begin)
            if not job.wait(timeout_ms):
                raise RequestTimedOut(f"not done within {timeout_ms:g} ms")
        except BaseException:
            if not job.is_done:
                with suppress(ClientClosed):
                    self._schedule(job.cancel)
            raise
        finally:
            self._jobs.discard(job)
        if job.was_cancelled and self._closed:
            raise ClientClosed("the client was closed")
        return job.result()

    def _schedule(self, callback: Callable[..., object], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop has ended in this very moment
            raise ClientClosed("the client was closed") from None

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Calls a function in the loop's thread without waiting for it."""
        self.check()
        self._schedule(callback, *args)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Runs `last` (the client's own close), then ends the loop and its thread. May be called
        twice, and in a forked child, where there is nothing to end."""
        if self._closed or os.getpid() != self._process:
            self._closed = True
            return
        try:
            if last is not None:
                self.call(last)
        finally:
            self._closed = True
            with suppress(ClientClosed):
                self._schedule(self._loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(_CANCEL_SECONDS)


class Job(Generic[T]):
    """Work in the loop's thread, and its result for the one waiting thread.

    Not a `concurrent.futures.Future`: that shares a lock between the two threads, and an interrupt
    at the moment when the waiting thread takes it leaves it locked, and the loop with it. Here the
    waiting thread only waits at a gate, which the loop's thread opens once.
    """

    def __init__(self) -> None:
        self.is_done = False
        self.was_cancelled = False
        self._task: asyncio.Task[T] | None = None
        self._value: T | None = None
        self._error: BaseException | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    # In the waiting thread

    def wait(self, timeout_ms: float | None) -> bool:
        return self._gate.acquire(timeout=-1 if timeout_ms is None else timeout_ms / 1000)

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._value  # type: ignore[return-value]  # None is a T wherever it comes out

    # In the loop's thread

    def begin(self, begin: Callable[[Self], None]) -> None:
        try:
            begin(self)
        except Exception as error:
            self.end(None, error)

    def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        """Runs a coroutine as the job."""
        self._task = asyncio.ensure_future(make())
        self._task.add_done_callback(self._on_done)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def give_up(self) -> None:
        self.end(None, asyncio.CancelledError())

    def _on_done(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.end(None, asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.end(None, error)
        else:
            self.end(task.result(), None)

    def end(self, value: T | None, error: BaseException | None) -> None:
        """Ends the job with a value or an error."""
        if self.is_done:
            return
        self.was_cancelled = isinstance(error, asyncio.CancelledError)
        self._value = value
        self._error = error
        self.is_done = True
        self._gate.release()
