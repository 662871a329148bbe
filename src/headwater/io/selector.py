"""How the node's loop waits: asleep, or for a moment awake.

A core that has gone to sleep takes longer to wake than a request takes to be served. Where one
peer sends, waits for the answer and sends again at once, the loop therefore looks for its next
request some times before it sleeps. It does so only after it has seen that pattern for a while, and
a wrong guess costs a moment and makes the next one rarer; a node that is idle, or that has
requests of many to serve, never spins.
"""

from __future__ import annotations

from collections.abc import Callable
from selectors import EpollSelector, SelectorKey
from time import perf_counter

Events = list[tuple[SelectorKey, int]]

_SHORT_SECONDS = 0.0002  # a wait that would have been much shorter without the sleep in it
_AWAKE_SECONDS = 0.0001  # how long a loop stays awake for the next request
_PREEMPTED_SECONDS = 0.00005  # between two looks: somebody else wants this core
_STREAK = 16  # short waits in a row before it is tried
_STREAK_MAX = 4096  # ... when it was in vain again and again


class WatchfulSelector(EpollSelector):
    """An epoll that stays awake between the requests of a peer that answers at once."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        super().__init__()
        self._now = now
        self._streak = 0  # short waits in a row, all ended by the same peer
        self._needed = _STREAK
        self._peer = -1

    @property
    def is_awake(self) -> bool:
        """Whether the next wait begins with a look."""
        return self._streak >= self._needed

    def select(self, timeout: float | None = None) -> Events:
        if timeout is not None and timeout <= _AWAKE_SECONDS:
            return super().select(timeout)
        started = self._now()
        if self.is_awake:
            events = self._look(started)
            if events:
                self._note(events)
                return events
        events = super().select(timeout)
        if self._now() - started < _SHORT_SECONDS:
            self._note(events)
        else:
            self._streak = 0
        return events

    def _look(self, started: float) -> Events:
        """What happens within a moment. If nothing does, the pattern has ended."""
        select = super().select
        before = started
        while True:
            events = select(0)
            now = self._now()
            if events:
                self._needed = max(_STREAK, self._needed - 1)
                return events
            if now - started > _AWAKE_SECONDS or now - before > _PREEMPTED_SECONDS:
                self._streak = 0
                self._needed = min(2 * self._needed, _STREAK_MAX)
                return events
            before = now

    def _note(self, events: Events) -> None:
        if len(events) == 1 and events[0][0].fd == self._peer:
            self._streak += 1
        else:
            self._streak = 0
            self._peer = events[0][0].fd if events else -1
