"""The base of the blocking clients: a thread that starts with the first call; calls that wait."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from threading import Lock
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.errors import ClientClosed

C = TypeVar("C")
P = ParamSpec("P")
R = TypeVar("R")


class BlockingClient:
    """A client that runs on an event loop in its own thread."""

    _asynchronous: Any
    _thread: LoopThread | None = None  # from the start on

    def __init__(self, thread_name: str) -> None:
        self._thread_name = thread_name
        self._starting = Lock()
        self._is_closed = False

    def start(self) -> Self:
        """Connects to the cluster; `with` and the first call do it, too."""
        self._started()
        return self

    @property
    def config(self) -> Any:
        """All settings, with their defaults."""
        return self._asynchronous.config

    def __enter__(self) -> Self:
        return self.start()

    def _run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Runs a coroutine on the client's loop and waits for its result."""
        return self._started().call(make)

    def _started(self) -> LoopThread:
        thread = self._thread
        if thread is not None:
            return thread  # which raises if it is closed
        with self._starting:
            if self._is_closed:
                raise ClientClosed("the client is closed; create a new one")
            if self._thread is None:
                thread = LoopThread(self._thread_name)
                try:
                    self._begin(thread)
                except BaseException:
                    thread.close()
                    raise
                self._thread = thread
            return self._thread

    def _begin(self, thread: LoopThread) -> None:
        thread.call(self._asynchronous.start)

    def _end(self, last: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Runs the client's own close and ends the thread; does nothing the second time."""
        with self._starting:
            self._is_closed = True
            if self._thread is not None:
                self._thread.close(last)


def blocking_call(
    method: Callable[Concatenate[C, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[BlockingClient, P], R]:
    """Returns a blocking version of an asynchronous method, with its signature and docstring."""

    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._run(lambda: method(self._asynchronous, *args, **kwargs))

    return call


def loop_call(
    method: Callable[Concatenate[C, P], R],
) -> Callable[Concatenate[BlockingClient, P], R]:
    """Returns a version of a plain method that is called on the client's loop."""

    @wraps(method)
    def call(self: BlockingClient, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def on_loop() -> R:
            return method(self._asynchronous, *args, **kwargs)

        return self._run(on_loop)

    return call
