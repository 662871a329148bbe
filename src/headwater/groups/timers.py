"""A timer heap in which extending a deadline is nearly free.

Every heartbeat extends a session. Moving its entry in the heap each time would be most of the cost
of a heartbeat; instead the entry stays where it is, and when it comes due and the deadline has
moved on, it is queued again. The driver may wake for nothing, at most once per session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf

from headwater.coordination import DecisionBuilder


class Timer:
    """One deadline and what to do then; `deadline` is infinite while it is not set."""

    __slots__ = ("deadline", "fire", "queued")

    def __init__(self, fire: Callable[[DecisionBuilder], None]) -> None:
        self.deadline = inf
        self.queued = inf
        self.fire = fire

    def cancel(self) -> None:
        self.deadline = inf


class Timers:
    """The deadlines of a shard."""

    __slots__ = ("_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Timer]] = []
        self._sequence = count()

    def set(self, timer: Timer, deadline: float) -> None:
        timer.deadline = deadline
        if deadline < timer.queued:
            self._queue(timer)

    def _queue(self, timer: Timer) -> None:
        timer.queued = timer.deadline
        heappush(self._heap, (timer.deadline, next(self._sequence), timer))

    def due(self, now: float) -> Iterator[Timer]:
        """Yields the timers that are due, each unset before it is yielded."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            queued, _, timer = heappop(heap)
            if queued != timer.queued:
                continue  # outdated: the timer was queued again for an earlier deadline
            timer.queued = inf
            if timer.deadline <= now:
                timer.deadline = inf
                yield timer
            elif timer.deadline != inf:
                self._queue(timer)

    def next_deadline(self) -> float:
        """Returns when to check again, which is never later than the first deadline."""
        return self._heap[0][0] if self._heap else inf
