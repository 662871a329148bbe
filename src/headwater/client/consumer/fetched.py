"""Fetched bytes that wait to be handed out, and how much memory they hold.

Bytes stay raw until they are asked for. A piece is a view into the frame that the answer came in,
so a frame lives until all of its pieces are used up, and is counted whole until then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater._core import FetchedRecords
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Ledger:
    """How many bytes of frames are held."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        self.held = 0


class Frame:
    """One answer's bytes, held by its pieces."""

    __slots__ = ("_holders", "_ledger", "size")

    def __init__(self, ledger: Ledger, size: int) -> None:
        self.size = size
        self._ledger = ledger
        self._holders = 0

    def hold(self) -> None:
        if not self._holders:
            self._ledger.held += self.size
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        assert self._holders >= 0, "a frame was released twice"
        if not self._holders:
            self._ledger.held -= self.size


class Piece:
    """What one answer brought of one partition, read from the front."""

    __slots__ = ("_aborted", "_check_crc", "_data", "_frame", "_tp", "end_offset", "records")

    def __init__(
        self,
        data: Buffer,
        frame: Frame,
        tp: TopicPartition,
        *,
        from_offset: int,
        aborted: Sequence[tuple[int, int]] = (),
        check_crc: bool = True,
    ) -> None:
        self._data = memoryview(data)
        self._frame = frame
        self._tp = tp
        self._aborted = aborted
        self._check_crc = check_crc
        self.records = self._open(from_offset)
        self.end_offset = self.records.end_offset
        frame.hold()

    def __len__(self) -> int:
        return len(self._data)

    def _open(self, from_offset: int) -> FetchedRecords:
        return FetchedRecords(
            self._data,
            topic=self._tp.topic,
            partition=self._tp.partition,
            from_offset=from_offset,
            aborted=self._aborted,
            check_crc=self._check_crc,
        )

    def rewind(self, offset: int) -> None:
        """Reads on from an earlier offset: what was decoded beyond it was not handed out."""
        self.records = self._open(offset)

    def release(self) -> None:
        self._frame.release()
