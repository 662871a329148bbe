"""Waiting for events: asleep, or polling for a moment first.

A sleeping core takes longer to wake than a small request takes to be served. Where one peer sends
such a request, waits for the response and sends again at once, the node's loop therefore polls for
a moment before it sleeps. It does so only after it has seen that pattern for a while, and only
while it pays: a node that is idle, that serves many peers at once, or whose peers send more before
they are answered sleeps like any other.

Whether it pays is measured, not assumed. A loop that polls takes a core, and a peer on the same
machine may need that core: Java's producer hands each record from one thread to another, and with
two cores a loop that never sleeps makes it wait for a time slice of the scheduler now and then,
which costs milliseconds. So the loop tries both ways in turn, compares how long the peer's next
request takes, and keeps to the better one for some thousand requests (`_Trial`).

What other nodes of the cluster send is served before what clients send (`put_first`).

A client that awaits one response after the other does the same on its side (`Lookout`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from selectors import EpollSelector, SelectorKey
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Events = list[tuple[SelectorKey, int]]

_AT_ONCE_SECONDS = 0.00001  # too short to have read a response: the peer does not wait for any
_SHORT_SECONDS = 0.0003  # a wait that would have been much shorter without the sleep in it
_AWAKE_SECONDS = 0.00015  # how long a loop polls for the next request
_PREEMPTED_SECONDS = 0.00005  # between two polls: another thread wants this core
_STREAK = 64  # short waits in a row for the same peer before polling is tried
_CREDIT = 8  # with which it begins
_CREDIT_MAX = 64
_MISS = 8  # the price of polling in vain, in polls that found what they were for
_PREEMPTED_MISS = 32  # and of holding a core that another thread wants
_NOBODY = -1

_BLOCK = 32  # waits of one kind in a row, in a trial
_TRIAL = 16 * _BLOCK
_PAUSE_SECONDS = 0.02  # a longer wait is a pause of the peer
_COUNTED_SECONDS_MAX = 0.001  # more of a wait is not counted, or chance would decide
_WORTH = 0.85  # of the mean wait asleep: polling must make it at least this much shorter
_TERM = 8192  # waits until the next trial, after one that was won
_REST = 2048  # and after one that was lost; twice as many after each that follows
_REST_MAX = 128 * 1024


class _Trial:
    """Compares waits that begin with polling to waits asleep, in alternating blocks."""

    __slots__ = ("_counts", "_done", "_totals")

    def __init__(self) -> None:
        self._done = 0
        self._counts = [0, 0]  # asleep, awake
        self._totals = [0.0, 0.0]

    @property
    def is_awake(self) -> bool:
        """Whether the next wait begins with polling."""
        return self._done // _BLOCK % 2 == 1

    @property
    def is_over(self) -> bool:
        return self._done >= _TRIAL

    def note(self, waited: float) -> None:
        kind = self._done // _BLOCK % 2
        self._done += 1
        if waited < _PAUSE_SECONDS:
            self._counts[kind] += 1
            self._totals[kind] += min(waited, _COUNTED_SECONDS_MAX)

    def is_worth_while(self) -> bool:
        asleep, awake = (
            total / count if count else _COUNTED_SECONDS_MAX
            for total, count in zip(self._totals, self._counts, strict=True)
        )
        return awake <= _WORTH * asleep


class WatchfulSelector(EpollSelector):
    """An epoll that polls between the requests of a peer that sends again at once, and that names
    the nodes of the cluster before clients."""

    def __init__(self, now: Callable[[], float] = perf_counter) -> None:
        super().__init__()
        self._now = now
        # Takes the seconds between two waits, while somebody measures the loop.
        self._on_turn: Callable[[float], None] | None = None
        self._awake_since = 0.0
        self._first: set[int] = set()
        self._expected = _NOBODY
        self._streak = 0
        self._credit = 0
        self._trial: _Trial | None = None
        self._term = 0  # waits until the next trial
        self._peer = _NOBODY  # for which polling was found not to be worth while
        self._rest = 0  # waits for it until that is tried again
        self._next_rest = _REST

    @property
    def is_awake(self) -> bool:
        """Whether the next wait for an expected peer begins with polling."""
        return self._credit > 0 and (self._trial is None or self._trial.is_awake)

    def expect(self, fd: int) -> None:
        """Notes that a small request of this peer was just served; its next one may follow."""
        self._expected = fd

    def put_first(self, fd: int) -> None:
        """Serves this peer before others that are ready at the same time, until `forget`."""
        self._first.add(fd)

    def forget(self, fd: int) -> None:
        """Ends `put_first`: the next peer with this number is another one."""
        self._first.discard(fd)

    def measure(self, on_turn: Callable[[float], None] | None) -> None:
        """Has each turn of the loop told: the seconds from the end of a wait to the next."""
        self._on_turn = on_turn
        self._awake_since = self._now()

    def select(self, timeout: float | None = None) -> Events:
        on_turn = self._on_turn
        if on_turn is not None:
            on_turn(self._now() - self._awake_since)
        events = self._wait(timeout)
        if on_turn is not None:
            self._awake_since = self._now()
        if self._first and len(events) > 1:
            return self._by_rank(events)
        return events

    def _by_rank(self, events: Events) -> Events:
        first = self._first
        ours = [event for event in events if event[0].fd in first]
        if not ours or len(ours) == len(events):
            return events
        return ours + [event for event in events if event[0].fd not in first]

    def _wait(self, timeout: float | None) -> Events:
        if timeout is not None and timeout <= _AWAKE_SECONDS:
            return super().select(timeout)
        expected, self._expected = self._expected, _NOBODY
        if expected == _NOBODY:
            self._streak = 0
            self._credit = max(0, self._credit - 1)
            return super().select(timeout)
        if self._rest and expected == self._peer:
            self._rest -= 1
            return super().select(timeout)
        started = self._now()
        if self._credit > 0:
            return self._wait_on_trial(expected, started, timeout)
        events = super().select(timeout)
        waited = self._now() - started
        if _is_from(expected, events) and _AT_ONCE_SECONDS < waited < _SHORT_SECONDS:
            self._streak += 1
            if self._streak >= _STREAK:
                self._streak, self._credit = 0, _CREDIT
                self._trial = _Trial()
        else:
            self._streak = 0
        return events

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        key = super().unregister(fileobj)
        if key.fd == self._peer:  # the next peer with this number is another one
            self._peer, self._rest = _NOBODY, 0
        return key

    def _wait_on_trial(self, expected: int, started: float, timeout: float | None) -> Events:
        """Waits for a peer for which polling has been worth while, or is being tried."""
        trial = self._trial
        if trial is None:
            self._term -= 1
            if self._term <= 0:
                self._trial = _Trial()
            return self._poll(expected, started) or super().select(timeout)
        events: Events = []
        if trial.is_awake:
            events = self._poll(expected, started)
        if not events:
            events = super().select(timeout)
        trial.note(self._now() - started)
        self._credit = _CREDIT  # the trial counts what a wait takes; that is all that matters now
        if trial.is_over:
            self._trial = None
            self._judge(expected, is_worth_while=trial.is_worth_while())
        return events

    def _judge(self, peer: int, *, is_worth_while: bool) -> None:
        if is_worth_while:
            self._term = _TERM
            self._peer = _NOBODY
            return
        self._credit = 0
        self._next_rest = min(2 * self._next_rest, _REST_MAX) if peer == self._peer else _REST
        self._peer, self._rest = peer, self._next_rest

    def _poll(self, expected: int, started: float) -> Events:
        """Returns the events of a moment, and notes what they say about going on like this."""
        select = super().select
        before = started
        while True:
            events = select(0)
            now = self._now()
            if events:
                is_it = _is_from(expected, events) and now - started > _AT_ONCE_SECONDS
                self._credit = min(self._credit + (1 if is_it else -1), _CREDIT_MAX)
                return events
            if now - before > _PREEMPTED_SECONDS:
                self._credit = max(0, self._credit - _PREEMPTED_MISS)
                return events
            if now - started > _AWAKE_SECONDS:
                self._credit = max(0, self._credit - _MISS)
                return events
            before = now


def _is_from(peer: int, events: Events) -> bool:
    return len(events) == 1 and events[0][0].fd == peer


class Lookout:
    """Keeps the loop of a client awake for a response that is awaited.

    The loop belongs to the user: it only runs additional empty iterations, and other callbacks run
    as usual. A loop that has other work is not held up, and does not sleep anyway.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = perf_counter
    ) -> None:
        self._call_soon = loop.call_soon
        self._now = now
        self._asked = 0.0
        self._before = 0.0  # when it last polled
        self._is_waiting = False
        self._is_looking = False
        self._streak = 0
        self._credit = 0

    @property
    def is_awake(self) -> bool:
        """Whether the next wait begins with polling."""
        return self._credit > 0

    def expect(self) -> None:
        """Notes that a small request is about to be sent whose response is awaited alone."""
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
            is_preempted = now - self._before > _PREEMPTED_SECONDS
            self._credit = max(0, self._credit - (_PREEMPTED_MISS if is_preempted else _MISS))
        self._is_looking = False

    def came(self) -> None:
        """Notes that data has arrived."""
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
    """A loop whose streams announce which peers they expect."""

    def __init__(self) -> None:
        self.attention = WatchfulSelector()
        super().__init__(self.attention)
