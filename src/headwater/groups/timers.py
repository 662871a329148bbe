"""Deadlines of many things in one heap, made so that putting one off costs next to nothing.

A member's session is put off by every heartbeat. Moving its entry in the heap each time would be
most of the cost of a heartbeat; instead the entry stays where it is, and when it comes due and the
deadline has moved on, it is queued again. The driver may so be woken for nothing, at most once a
session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import count
from math import inf

from headwater.groups.decision import DecisionBuilder


class Timer:
    """One thing that may come due; `deadline` is infinite while it is not set."""

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
        """Those whose deadline has come, each unset before it is handed out."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            queued, _, timer = heappop(heap)
            if queued != timer.queued:
                continue  # an entry for an earlier deadline was queued after this one
            timer.queued = inf
            if timer.deadline <= now:
                timer.deadline = inf
                yield timer
            elif timer.deadline != inf:
                self._queue(timer)

    def next_deadline(self) -> float:
        """When to look again; never later than the first deadline."""
        return self._heap[0][0] if self._heap else inf
