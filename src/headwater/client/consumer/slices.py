"""Decoded records on their way to the user: who has got how far, without a cost for each record.

The user's loop runs over a list's own iterator. How many it has taken is what that iterator says is
left, so nothing is counted while it runs; positions are computed when somebody asks.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater._core import ConsumedRecord
from headwater.client.consumer.fetched import Piece
from headwater.client.consumer.partition import PartitionState


class Slice:
    """Records of one partition that are being handed out one by one."""

    __slots__ = (
        "_done",
        "_length",
        "_settled",
        "_start",
        "is_late",
        "iterator",
        "piece",
        "records",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        piece: Piece,
        records: list[ConsumedRecord],
        *,
        start: int,
        done: int,
    ) -> None:
        self.state = state
        self.piece = piece
        self.records = records
        self.iterator: Iterator[ConsumedRecord] = iter(records)
        self.is_late = False  # whoever loops over it should ask for the rest again
        self._length = len(records)
        self._start = start
        self._settled = 0  # so many had been taken when the user asked for more
        self._done = done

    @property
    def left(self) -> int:
        """How many records were not handed out."""
        return self.iterator.__length_hint__()  # type: ignore[attr-defined, no-any-return]

    @property
    def position(self) -> int:
        """Behind the last record that the user got."""
        taken = self._length - self.left
        if taken == self._length:
            return self.state.position
        return self._start if not taken else self.records[taken - 1].offset + 1

    @property
    def done(self) -> int:
        """Behind the last record that the user is done with: all but the one it got last, unless
        it has asked for more."""
        taken = self._length - self.left
        return self._done if taken == self._settled else self.records[taken - 1].offset

    def mark_late(self) -> None:
        self.is_late = True

    def settle(self) -> None:
        """The user asks for more: it is done with all it has got."""
        self._settled = self._length - self.left
        self._done = self.position

    @property
    def epoch(self) -> int:
        """The leader epoch of the last record that the user got; -1 if it got none."""
        taken = self._length - self.left
        return self.records[taken - 1].leader_epoch if taken else -1

    def cut(self) -> None:
        """Hands out nothing more, also to a loop that is over the iterator now. What it was asked
        before holds no longer."""
        self.records.clear()
