"""Workers of a simulated machine: each job runs whole, at some later moment.

Eight threads keep no order among jobs, so neither does this: what was handed over first may well
end last. A job takes effect at one moment and its answer comes at a later one, so a crash can fall
between the two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar

from headwater.testing.sim.disk import SimDisk
from headwater.testing.sim.loop import SimLoop

T = TypeVar("T")


class SimWorkers:
    __slots__ = ("_disk", "_loop", "_queued", "_random", "closed", "seconds_max")

    def __init__(self, loop: SimLoop, random: Random, disk: SimDisk) -> None:
        self._loop = loop
        self._random = random
        self._disk = disk
        self.seconds_max = 0.01
        self.closed = False
        self._queued: dict[asyncio.Future[Any], asyncio.TimerHandle] = {}

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: asyncio.Future[T] = self._loop.create_future()
        self._queued[future] = self._loop.call_later(self._delay(), self._work, work, future)
        return future

    def _delay(self) -> float:
        # Mostly at once, now and then late: the long tail is where orders change.
        return self._random.random() ** 4 * self.seconds_max

    def _work(self, work: Callable[[], T], future: asyncio.Future[T]) -> None:
        del self._queued[future]
        if future.cancelled():
            return  # never started, as a pool drops what is still in its queue
        self._disk.waited_seconds = 0.0
        try:
            result = work()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            self._later(_fail, future, error)
        else:
            self._later(_succeed, future, result)

    def _later(self, end: Callable[..., None], future: asyncio.Future[T], outcome: object) -> None:
        self._loop.call_later(self._delay() + self._disk.waited_seconds, end, future, outcome)

    def close(self) -> None:
        """Drops jobs that have not begun, as a pool does that shuts down."""
        self.closed = True
        for future, timer in self._queued.items():
            timer.cancel()
            future.cancel()
        self._queued.clear()


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
