"""Measures usage, and computes how long a client that exceeds its quota has to wait.

`Meter` measures a rate over Kafka's windows. Until the rate exceeds its bound nobody waits, so that
a client may use at once what it did not use in the windows before. From then on it is paced: its
usage is paid for at the rate of its bound, until it has used less than that for a whole window. (A
wait that only brings the windows below the bound, as Kafka computes it, lets a client exceed its
bound by a tenth or more, and use ten seconds' worth at once again and again.)

`Bucket` is a bucket of tokens, for changes that come in bursts (KIP-599).
"""

from __future__ import annotations

from collections import deque
from math import inf
from typing import NamedTuple

from headwater.observability.measures import Window

_INSTANT = 0.001  # the shortest time over which a rate is computed
_PACED_FETCH = 0.25  # the part of a window that one fetch of a paced client may bring
_LATE_SECONDS = 0.25  # a client that returns later than this loses its turn
_LINE_MAX = 256


class Windows(NamedTuple):
    number: int  # quota.window.num
    seconds: float  # quota.window.size.seconds


class _Sample:
    """The usage in one window."""

    __slots__ = ("last", "start", "value")

    def __init__(self, start: float) -> None:
        self.start = start
        self.last = start
        self.value = 0.0


class _Turn:
    """The place of somebody in the line."""

    __slots__ = ("at", "seconds")

    def __init__(self, seconds: float) -> None:
        self.at = 0.0  # when to come back
        self.seconds = seconds  # for how long those behind wait for it


class Meter:
    __slots__ = (
        "_carried",
        "_debt_seconds_max",
        "_due",
        "_line",
        "_samples",
        "_sum",
        "_usual",
        "_windows",
        "bound",
        "waits",
    )

    def __init__(self, bound: float, windows: Windows, *, debt_seconds_max: float = inf) -> None:
        """`debt_seconds_max` is the maximum time until everything is paid for."""
        self.bound = bound  # for each second
        self.waits = Window()  # seconds for which clients were told to wait
        self._debt_seconds_max = debt_seconds_max
        self._windows = windows
        self._samples: deque[_Sample] = deque()
        self._sum = 0.0
        self._carried = 0.0
        # While it is paced: the time when all usage is paid for.
        self._due: float | None = None
        self._line: dict[object, _Turn] = {}  # clients that wait for their turn, in order
        self._usual = windows.seconds * _PACED_FETCH  # the time in which the last one was paid for

    def rebind(self, bound: float, now: float) -> None:
        """Changes the bound; unpaid usage is paid for at the new one."""
        if self._due is not None:
            self._due = now + (self._due - now) * self.bound / bound
        self.bound = bound

    def take(self, value: float, now: float) -> float:
        """Counts what was taken; returns for how many seconds there should be no more."""
        value += self._carried
        self._carried = 0.0
        self._add(value, now)
        if self._due is not None and not self._is_paced(now):
            self._due = None
        if self._due is not None:
            self._due += value / self.bound
        elif self._sum > self.bound * self._elapsed(now):
            self._due = self._samples[0].start + self._sum / self.bound
        else:
            return 0.0
        self._due = min(self._due, now + self._debt_seconds_max)
        return max(0.0, self._due - now)

    def carry(self, value: float) -> None:
        """Counts something with what is taken next."""
        self._carried += value

    def offer(self, value: float, now: float, who: object = None) -> float:
        """Counts what `who` is about to take and returns 0; or counts nothing and returns after how
        many seconds to offer it again. Those who wait take turns."""
        wait = self.wait(now, who, value)
        if wait > 0:
            return wait
        if self._due is None:
            self._forget(now)
            if self._samples and self._sum + value > self.bound * self._elapsed(now):
                due = self._samples[0].start + self._sum / self.bound
                if due > now:
                    self._due = due
                    return self.wait(now, who)
        self._line.pop(who, None)
        self._usual = self._usual_seconds(value)
        self.take(value, now)
        return 0.0

    def wait(self, now: float, who: object = None, value: float | None = None) -> float:
        """Returns the seconds until the turn of `who`, which wants to use `value`; if that is not
        known yet, its last value counts."""
        due, line = self._due, self._line
        if due is None:
            return 0.0
        while line and next(iter(line.values())).at + _LATE_SECONDS < now:
            del line[next(iter(line))]
        ahead = 0.0
        for each, turn in line.items():
            if each == who:
                break
            ahead += turn.seconds
        at = max(due, now) + ahead
        if at <= now:
            return 0.0
        own = line.get(who)
        if own is None:
            if len(line) >= _LINE_MAX:
                return at - now
            own = line[who] = _Turn(self._usual)
        own.at = at
        if value is not None:
            own.seconds = self._usual_seconds(value)
        return at - now

    def room(self, now: float) -> float:
        """Returns how much may be taken at once."""
        least = self.bound * self._windows.seconds * _PACED_FETCH
        if self._is_paced(now):
            return least
        self._forget(now)
        return max(least, self.bound * self._elapsed(now) - self._sum)

    def _is_paced(self, now: float) -> bool:
        """Returns whether the windows do not count: it has been too much, and since then not less
        than it may be."""
        due = self._due
        return due is not None and (bool(self._line) or now - due <= self._windows.seconds)

    def _usual_seconds(self, value: float) -> float:
        # At most the time of one fetch: a client that returns too early keeps its place in line.
        return min(value / self.bound, self._windows.seconds * _PACED_FETCH)

    def rate(self, now: float) -> float:
        """Returns the usage per second, over the windows."""
        self._forget(now)
        return self._sum / self._elapsed(now)

    def is_idle(self, now: float) -> bool:
        """Returns whether a new meter would say the same from now on."""
        self._forget(now)
        return not self._samples and (self._due is None or self._due <= now)

    def _add(self, value: float, now: float) -> None:
        self._forget(now)
        samples = self._samples
        if not samples or now - samples[-1].start >= self._windows.seconds:
            samples.append(_Sample(now))
        current = samples[-1]
        current.value += value
        current.last = now
        self._sum += value

    def _forget(self, now: float) -> None:
        """Drops the windows that have passed."""
        samples = self._samples
        horizon = now - self._windows.number * self._windows.seconds
        if samples and samples[0].last <= horizon:
            while samples and samples[0].last <= horizon:
                samples.popleft()
            self._sum = sum(sample.value for sample in samples)

    def _elapsed(self, now: float) -> float:
        """Returns the time that the windows cover. As in Kafka all of them but the current one
        count from the start: a client that was quiet has used nothing of them."""
        full = (self._windows.number - 1) * self._windows.seconds
        since = now - self._samples[0].start if self._samples else 0.0
        return max(since, full, _INSTANT)


class Bucket:
    """Tokens that come back at a rate, and are there for a burst."""

    __slots__ = ("_since", "_tokens", "_windows", "bound", "waits")

    def __init__(self, bound: float, windows: Windows, now: float) -> None:
        self.bound = bound  # for each second
        self.waits = Window()  # seconds for which clients were told to wait
        self._windows = windows
        self._since = now
        self._tokens = self._burst

    @property
    def _burst(self) -> float:
        return self.bound * self._windows.number * self._windows.seconds

    def rebind(self, bound: float, now: float) -> None:
        self._refill(now)
        self.bound = bound

    def wait(self, now: float) -> float:
        """Returns for how many seconds nothing may be taken: the burst may be exceeded once, and
        what was too much comes back first."""
        self._refill(now)
        return max(0.0, -self._tokens / self.bound)

    def take(self, count: float, now: float) -> float:
        """Takes tokens, whether they are there or not; returns how long to wait."""
        self._refill(now)
        self._tokens -= count
        return max(0.0, -self._tokens / self.bound)

    def tokens(self, now: float) -> float:
        """Returns how many are there; less than none while some were taken in advance."""
        self._refill(now)
        return self._tokens

    def is_idle(self, now: float) -> bool:
        """Returns whether a new bucket would say the same from now on."""
        self._refill(now)
        return self._tokens >= self._burst

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self.bound)
        self._since = now
