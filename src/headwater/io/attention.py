"""How a loop waits: asleep, or for a moment awake.

A core that has gone to sleep takes longer to wake than a small request takes to be served. Where
one peer sends such a request, waits for the answer and sends again at once, the node's loop
therefore looks for the next one some times before it sleeps. It begins only after it has seen that
pattern for a while and goes on only while it pays: a node that is idle, that serves many at once,
whose peers send more before they are answered, or whose core is wanted by others sleeps like any
other. A client that awaits one answer after the other does the same on its side (`Lookout`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from selectors import EpollSelector, SelectorKey
from time import perf_counter

Events = list[tuple[SelectorKey, int]]

_AT_ONCE_SECONDS = 0.00001  # in less nobody has read an answer: the peer does not wait for any
_SHORT_SECONDS = 0.0003  # a wait that would have been much shorter without the sleep in it
_AWAKE_SECONDS = 0.00015  # how long a loop stays awake for the next request
_PREEMPTED_SECONDS = 0.00005  # between two looks: somebody else wants this core
_STREAK = 64  # short waits in a row for one and the same peer before it is tried
_CREDIT = 8  # with which it begins
_CREDIT_MAX = 64
_MISS = 8  # what a look in vain costs, in looks that found what they were for
_NOBODY = -1


class WatchfulSelector(EpollSelector):
    """An epoll that stays awake between the requests of a peer that sends again at once."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        super().__init__()
        self._now = now
        self._expected = _NOBODY
        self._streak = 0
        self._credit = 0

    @property
    def is_awake(self) -> bool:
        """Whether a wait for a peer that is expected begins with a look."""
        return self._credit > 0

    def expect(self, fd: int) -> None:
        """A small request of this peer was just served; it may be that its next one follows."""
        self._expected = fd

    def select(self, timeout: float | None = None) -> Events:
        if timeout is not None and timeout <= _AWAKE_SECONDS:
            return super().select(timeout)
        expected, self._expected = self._expected, _NOBODY
        if expected == _NOBODY:
            self._streak = 0
            self._credit = max(0, self._credit - 1)
            return super().select(timeout)
        started = self._now()
        if self._credit > 0:
            return self._look(expected, started) or super().select(timeout)
        events = super().select(timeout)
        waited = self._now() - started
        if _is_from(expected, events) and _AT_ONCE_SECONDS < waited < _SHORT_SECONDS:
            self._streak += 1
            if self._streak >= _STREAK:
                self._streak, self._credit = 0, _CREDIT
        else:
            self._streak = 0
        return events

    def _look(self, expected: int, started: float) -> Events:
        """What happens within a moment, and what it says about going on like this."""
        select = super().select
        before = started
        while True:
            events = select(0)
            now = self._now()
            if events:
                is_it = _is_from(expected, events) and now - started > _AT_ONCE_SECONDS
                self._credit = min(self._credit + (1 if is_it else -1), _CREDIT_MAX)
                return events
            if now - started > _AWAKE_SECONDS or now - before > _PREEMPTED_SECONDS:
                self._credit = max(0, self._credit - _MISS)
                return events
            before = now


def _is_from(peer: int, events: Events) -> bool:
    return len(events) == 1 and events[0][0].fd == peer


class Lookout:
    """Keeps the loop of a client awake for an answer that is awaited.

    The loop is the user's: it goes round once more with nothing to do, and whatever else becomes
    ready runs as it would. A loop that has other work is not held up, and needs no keeping awake.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = loop.call_soon
        self._now = now
        self._asked = 0.0
        self._before = 0.0  # when it last looked
        self._is_waiting = False
        self._is_looking = False
        self._streak = 0
        self._credit = 0

    @property
    def is_awake(self) -> bool:
        """Whether the next wait begins with a look."""
        return self._credit > 0

    def expect(self) -> None:
        """A small request is about to be sent, and somebody waits for the answer to it alone."""
        self._asked = self._before = self._now()
        self._is_waiting = True
        if self._credit > 0 and not self._is_looking:
            self._is_looking = True
            self._call_soon(self._look)

    def _look(self) -> None:
        if self._is_waiting:
            now = self._now()
            if now - self._asked <= _AWAKE_SECONDS and now - self._before <= _PREEMPTED_SECONDS:
                self._before = now
                self._call_soon(self._look)
                return
            self._credit = max(0, self._credit - _MISS)
        self._is_looking = False

    def came(self) -> None:
        """Something came from the peer."""
        if not self._is_waiting:
            return
        self._is_waiting = False
        if self._is_looking:
            self._credit = min(self._credit + 1, _CREDIT_MAX)
        elif self._now() - self._asked < _SHORT_SECONDS:
            self._streak += 1
            if self._streak >= _STREAK:
                self._streak, self._credit = 0, _CREDIT
        else:
            self._streak = 0


class WatchfulLoop(asyncio.SelectorEventLoop):
    """A loop whose streams say which peers to expect."""

    def __init__(self) -> None:
        self.attention = WatchfulSelector()
        super().__init__(self.attention)
