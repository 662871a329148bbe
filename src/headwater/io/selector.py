"""How the node's loop waits: asleep, or for a moment awake.

A core that has gone to sleep takes longer to wake than a request takes to be served. Where one
peer sends, waits for the answer and sends again at once, the loop therefore looks for its next
request some times before it sleeps. It begins only after it has seen that pattern for a while and
goes on only while it pays: a node that is idle, that serves many at once, or whose core is wanted
by others sleeps like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from selectors import EpollSelector, SelectorKey
from time import perf_counter

Events = list[tuple[SelectorKey, int]]

_SHORT_SECONDS = 0.0003  # a wait that would have been much shorter without the sleep in it
_AWAKE_SECONDS = 0.00015  # how long a loop stays awake for the next request
_PREEMPTED_SECONDS = 0.00005  # between two looks: somebody else wants this core
_STREAK = 64  # short waits in a row, all ended by one peer, before it is tried
_CREDIT = 8  # with which it begins
_CREDIT_MAX = 64
_MISS = 8  # what a look in vain costs, in looks that found what they were for


class WatchfulSelector(EpollSelector):
    """An epoll that stays awake between the requests of a peer that sends again at once."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        super().__init__()
        self._now = now
        self._peer = -1  # the descriptor that ended the last wait
        self._streak = 0
        self._credit = 0

    @property
    def is_awake(self) -> bool:
        """Whether the next wait begins with a look."""
        return self._credit > 0

    def select(self, timeout: float | None = None) -> Events:
        if timeout is not None and timeout <= _AWAKE_SECONDS:
            return super().select(timeout)
        started = self._now()
        if self._credit > 0:
            events = self._look(started)
            if events:
                return events
        events = super().select(timeout)
        if not self._credit:
            self._note(events, self._now() - started)
        return events

    def _look(self, started: float) -> Events:
        """What happens within a moment, and what it says about going on like this."""
        select = super().select
        before = started
        while True:
            events = select(0)
            if events:
                if len(events) == 1 and events[0][0].fd == self._peer:
                    self._credit = min(self._credit + 1, _CREDIT_MAX)
                else:
                    self._credit -= 1
                return events
            now = self._now()
            if now - started > _AWAKE_SECONDS or now - before > _PREEMPTED_SECONDS:
                self._credit = max(0, self._credit - _MISS)
                return events
            before = now

    def _note(self, events: Events, waited: float) -> None:
        """Asleep, it counts how often one peer would have found it awake."""
        peer = events[0][0].fd if len(events) == 1 else -1
        if peer < 0 or peer != self._peer or waited > _SHORT_SECONDS:
            self._streak = 0
        else:
            self._streak += 1
            if self._streak >= _STREAK:
                self._streak, self._credit = 0, _CREDIT
        self._peer = peer
