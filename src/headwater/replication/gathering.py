"""Gathering: whether new records wait for more before a follower gets them.

A fetch costs both brokers about as much as a batch of records. A follower that fetches as fast as
it can finds one produce request at a time; if it gets several at once, the same records cost less,
and under load they are replicated sooner. So the leader lets the records of bulk producers wait for
a moment. That must not hold up a producer that waits for its acknowledgement, so the wait ends with
as many appends as came the last time that a wait lasted to its end: when all producers that write
have written, nobody is waited for. If nobody else writes, nothing waits for a long while.
"""

from __future__ import annotations

WAIT_SECONDS = 0.002
_ENOUGH_BYTES = 128 * 1024
_BULK_BYTES = 8 * 1024  # mean size of an append; smaller ones are not those of bulk producers
_UNKNOWN = 2**31
_LEARN_AFTER = 16  # waits that had enough: then one lasts to its end
_IN_VAIN_MAX = 4  # waits in a row for nothing
_REST = 64  # answers without a wait, after that; twice as many after each wait in vain that follows
_REST_MAX = 4096


class Gathering:
    """What was appended since a follower's last answer, and whether it waits for more."""

    __slots__ = (
        "_appends",
        "_begun",
        "_bytes",
        "_enough",
        "_had_enough",
        "_in_vain",
        "_next_rest",
        "_rest",
    )

    def __init__(self) -> None:
        self._appends = 0
        self._bytes = 0
        self._enough = _UNKNOWN  # appends to wait for
        self._had_enough = 0  # waits since that was learnt
        self._begun = 0  # the appends with which the wait began
        self._in_vain = 0
        self._rest = 0
        self._next_rest = _REST

    @property
    def bytes(self) -> int:
        """What was appended since the last answer."""
        return self._bytes

    @property
    def is_worth_while(self) -> bool:
        """Whether what was appended should wait for more."""
        appends = self._appends
        return (
            0 < appends < self._enough
            and not self._rest
            and appends * _BULK_BYTES <= self._bytes < _ENOUGH_BYTES
        )

    def on_append(self, size: int) -> None:
        self._appends += 1
        self._bytes += size

    def on_wait(self) -> None:
        """A wait begins, of at most `WAIT_SECONDS`."""
        self._begun = self._appends

    def on_timeout(self) -> None:
        """The wait has lasted to its end."""
        if self._appends > self._begun:
            self._enough, self._had_enough = self._appends, 0
            self._in_vain, self._next_rest = 0, _REST
            return
        self._enough = _UNKNOWN
        self._in_vain += 1
        if self._in_vain >= _IN_VAIN_MAX:
            self._rest, self._next_rest = self._next_rest, min(2 * self._next_rest, _REST_MAX)

    def on_answer(self) -> None:
        """The follower gets what was appended."""
        if not self._appends:
            return
        if self._rest:
            self._rest -= 1
        elif self._appends >= self._enough:
            self._had_enough += 1
            if self._had_enough >= _LEARN_AFTER:
                self._enough = _UNKNOWN
        self._appends = self._bytes = 0
