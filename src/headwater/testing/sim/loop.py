"""Virtual time: an asyncio loop that never waits.

When nothing is ready it jumps to the next timer. Everything that asyncio offers works on it, save
what reaches out of the process: sockets, threads and signals are refused.

Every callback belongs to a `Life`, the time from a machine's start to its crash; it is found
through the callback's context, which asyncio hands on from task to task. Nothing that belongs to a
life that has ended is ever run again: no `finally`, no timer, no answer. That is a crash. What a
paused life should run is held and runs when the pause ends, as after SIGSTOP and SIGCONT.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context, ContextVar, copy_context
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_START_SECONDS = 1_000.0


class Life:
    """A machine from its start to its crash."""

    __slots__ = ("alive", "held", "name", "paused", "remains")

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.paused = False
        self.held: list[asyncio.Handle] = []  # due while paused, in this order
        # What a crash leaves behind is kept until the world ends: Python closes a coroutine that
        # nobody refers to any more, and would run its `finally` blocks as if it were alive.
        self.remains: list[object] = []

    def context(self) -> Context:
        """A fresh context for what this life starts."""
        context = copy_context()
        context.run(_life.set, self)
        return context


_life: ContextVar[Life | None] = ContextVar("life", default=None)


class Stuck(RuntimeError):
    """Raised when nothing is ready and no timer is set: the wait would never end."""


class SimTask(asyncio.Task[T]):
    """Hashed by its number, so that a set of tasks has the same order in every run."""

    def __init__(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        loop: SimLoop,
        context: Context | None,
    ) -> None:
        self.number = loop.next_number()
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self.number


class SimFuture(asyncio.Future[T]):
    def __init__(self, loop: SimLoop) -> None:
        self.number = loop.next_number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self.number


class SimLoop(asyncio.BaseEventLoop):
    """The loop of a world. Anything that goes wrong in a callback lands in `failures`."""

    _ready: Any
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def __init__(self) -> None:
        super().__init__()
        self._now = _START_SECONDS
        self._numbers = 0
        self._tasks: dict[SimTask[Any], Life | None] = {}
        self._tasks_sweep_at = 256
        self.steps = 0
        self.failures: list[dict[str, Any]] = []
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._on_failure)

    def time(self) -> float:
        return self._now

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Tasks and futures

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        context: Context | None = None,
    ) -> SimTask[T]:
        task = SimTask(coro, loop=self, context=context)
        self._tasks[task] = _life.get() if context is None else context.get(_life)
        if len(self._tasks) > self._tasks_sweep_at:
            self._tasks = {t: life for t, life in self._tasks.items() if not t.done()}
            self._tasks_sweep_at = 256 + 2 * len(self._tasks)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(self)

    def _on_failure(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(context)

    def end_life(self, life: Life) -> None:
        """From here on nothing of this life runs. Its tasks are kept, and never closed."""
        life.alive = False
        for task, owner in self._tasks.items():
            if owner is life and not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                life.remains.append(task)
        self._tasks = {t: owner for t, owner in self._tasks.items() if owner is not life}
        # The handles hold what the tasks wait for.
        dead = [h for h in (*self._ready, *self._scheduled) if h._context.get(_life) is life]
        dead += life.held
        life.held = []
        life.remains.extend(dead)
        for handle in dead:
            life.remains.append((handle._callback, handle._args))

    def resume_life(self, life: Life) -> None:
        """Runs what a pause has held: first what came from outside, then the timers that are due,
        as a selector does after a long wait."""
        life.paused = False
        held, life.held = life.held, []
        timers = [handle for handle in held if isinstance(handle, asyncio.TimerHandle)]
        self._ready.extend(h for h in held if not isinstance(h, asyncio.TimerHandle))
        self._ready.extend(timers)

    # Running

    def _run_once(self) -> None:
        scheduled = self._scheduled
        ready = self._ready
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1
            heapq.heappop(scheduled)._scheduled = False
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not scheduled:
                raise Stuck(f"nothing left to do at {self._now:.6f}")
            self._now = max(self._now, scheduled[0]._when)
        now = self._now
        while scheduled and scheduled[0]._when <= now:
            handle = heapq.heappop(scheduled)
            handle._scheduled = False
            ready.append(handle)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            life = handle._context.get(_life)
            if life is None or life.alive:
                if life is not None and life.paused:
                    life.held.append(handle)
                    continue
                self.steps += 1
                handle._run()

    def run_for_world(self, main: Coroutine[Any, Any, T]) -> T:
        """Runs until `main` is done."""
        before = asyncio._get_running_loop()
        assert before is None, "a world inside a running loop"
        events.set_event_loop(self)
        try:
            return self.run_until_complete(main)
        finally:
            events.set_event_loop(None)

    # What does not exist here

    def _write_to_self(self) -> None: ...

    def _process_events(self, event_list: object) -> None: ...

    def call_soon_threadsafe(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("there are no threads in a simulated world")

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: object) -> NoReturn:
        raise RuntimeError("there are no threads in a simulated world; use Workers")

    async def getaddrinfo(self, *args: object, **kwargs: object) -> NoReturn:
        raise RuntimeError("there are no names in a simulated world; use Network")
