"""An event loop in a thread of its own, and how other threads have work done there.

A call hands a coroutine over and waits for it. Ctrl-C in the calling thread cancels that coroutine
and comes out as KeyboardInterrupt. After `close` every call is `ClientClosed`; in a forked child,
where the thread does not exist, it is `Forked`.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar

from headwater.client.errors import ClientClosed, Forked, RequestTimedOut, WrongLoop

T = TypeVar("T")

# How long a coroutine that was cancelled may take to notice.
_CANCEL_SECONDS = 5.0


class LoopThread:
    """Starts at once; a daemon, so that a program which forgets to close still ends."""

    def __init__(self, name: str = "headwater-client") -> None:
        self._process = os.getpid()
        self._closed = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            if left:
                self._loop.run_until_complete(asyncio.wait(left, timeout=_CANCEL_SECONDS))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def check(self) -> None:
        if os.getpid() != self._process:
            raise Forked(
                f"the client was made in process {self._process} and this is its fork "
                f"{os.getpid()}; make a client in each process, after the fork"
            )
        if self._closed:
            raise ClientClosed("the client was closed; make a new one")
        if threading.current_thread() is self._thread:
            raise WrongLoop(
                "a callback of a blocking client may not call it: it would wait for itself"
            )

    def call(
        self, make: Callable[[], Coroutine[Any, Any, T]], *, timeout_ms: float | None = None
    ) -> T:
        """Makes a coroutine in the loop's thread and waits for what it returns or raises.

        With `timeout_ms`, a coroutine that takes longer is cancelled: `RequestTimedOut`. Without,
        it has to have a deadline of its own.
        """
        self.check()
        future = asyncio.run_coroutine_threadsafe(_awaited(make), self._loop)
        try:
            return future.result(None if timeout_ms is None else timeout_ms / 1000)
        except FutureTimeout:
            if future.done():
                raise  # its own, not ours
            future.cancel()
            raise RequestTimedOut(f"not done within {timeout_ms:g} ms") from None
        except BaseException:  # KeyboardInterrupt comes out of the wait in the main thread
            future.cancel()
            raise

    def soon(self, callback: Callable[..., object], *args: object) -> None:
        """Has a plain function called in the loop's thread; does not wait for it."""
        self.check()
        self._loop.call_soon_threadsafe(callback, *args)

    def close(self, last: Callable[[], Coroutine[Any, Any, object]] | None = None) -> None:
        """Runs `last` (the client's own close), ends the loop and its thread. May be called twice,
        and in a forked child, where there is nothing to end."""
        if self._closed or os.getpid() != self._process:
            self._closed = True
            return
        try:
            if last is not None:
                self.call(last)
        finally:
            self._closed = True
            self._loop.call_soon_threadsafe(self._loop.stop)
            if threading.current_thread() is not self._thread:
                self._thread.join(_CANCEL_SECONDS)


async def _awaited(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    return await make()
