"""One assigned partition: where the consumer stands in it, and what must happen before it reads.

A machine. A partition comes without a position; it gets one from the group's committed offset, or
by the reset policy, or from the user. When its leader changes, the position is checked against the
new leader's history (KIP-320) before reading goes on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from headwater.client.consumer.fetched import Piece
from headwater.client.requests.list_offsets import OffsetSpec
from headwater.model import NO_EPOCH, NO_NODE, NO_OFFSET, TopicPartition


class Phase(Enum):
    """What the partition waits for."""

    COMMITTED = "the group's offset"
    RESET = "an offset by time"
    VALIDATING = "the leader's word that the position is in its log"
    READING = "records"
    FAILED = "the user, who must seek"


@dataclass(slots=True, eq=False)
class PartitionState:
    tp: TopicPartition
    phase: Phase = Phase.COMMITTED
    reset_to: int = OffsetSpec.LATEST  # the timestamp that RESET looks for
    position: int = NO_OFFSET  # the first record that was not handed out
    epoch: int = NO_EPOCH  # leader epoch of the record before it, if known
    leader_epoch: int = NO_EPOCH  # of the leader that the position was checked with
    done: int = NO_OFFSET  # the first record that the user is not done with: what is committed
    committed: int = NO_OFFSET  # what the group has, as far as we know
    fetch_offset: int = NO_OFFSET  # where the next fetch reads
    pieces: deque[Piece] = field(default_factory=deque)
    piece_bytes: int = 0
    is_paused: bool = False
    is_queued: bool = False  # stands in line to be handed out
    is_stuck: bool = False  # what the broker has there is corrupt: fetching it again is no use
    is_spent: bool = False  # the log has nothing where the next fetch would read
    is_busy: bool = False  # a request about its position is under way
    retry_at: float = 0.0  # after a failure: not before
    failures: int = 0
    changes: int = 0  # grows when the position jumps: answers to older questions are void
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start: int = NO_OFFSET
    preferred: int = NO_NODE  # a replica that the leader wants us to read from (KIP-392)
    preferred_until: float = 0.0

    @property
    def has_position(self) -> bool:
        return self.position >= 0 and self.phase not in (Phase.COMMITTED, Phase.RESET)

    def is_fetchable(self, now: float, bytes_max: int) -> bool:
        return (
            self.phase is Phase.READING
            and not self.is_paused
            and not self.is_stuck
            and not (self.is_spent and self.pieces)
            and self.retry_at <= now
            and self.piece_bytes < bytes_max
        )

    # Where to read

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Reads from here next."""
        assert offset >= 0, f"offset {offset}"
        self.drop_pieces()
        self.position = self.done = self.fetch_offset = offset
        self.epoch = epoch
        self.phase = Phase.READING
        self._jumped()

    def reset(self, timestamp: int) -> None:
        """Reads from the offset of a time, once it is found."""
        self.drop_pieces()
        self.phase = Phase.RESET
        self.reset_to = timestamp
        self.position = self.fetch_offset = self.done = NO_OFFSET
        self.epoch = NO_EPOCH
        self._jumped()

    def fail(self) -> None:
        """Reads nothing until the user seeks."""
        self.drop_pieces()
        self.phase = Phase.FAILED
        self._jumped()

    def _jumped(self) -> None:
        self.changes += 1
        self.is_stuck = self.is_spent = False
        self.is_busy = False
        self.retry_at = 0.0
        self.failures = 0
        self.preferred = NO_NODE

    # Leaders

    def on_leader_epoch(self, leader_epoch: int) -> bool:
        """The partition's leader has this epoch now; whether the position must be checked."""
        if leader_epoch == NO_EPOCH or leader_epoch <= self.leader_epoch:
            return False
        if self.phase not in (Phase.READING, Phase.VALIDATING):
            return False
        known = self.leader_epoch != NO_EPOCH
        self.leader_epoch = leader_epoch
        self.preferred = NO_NODE
        if self.epoch == NO_EPOCH or (not known and self.epoch == leader_epoch):
            return False  # nothing to compare with, or it is of this very leader
        self.drop_pieces()
        self.fetch_offset = self.position
        self.phase = Phase.VALIDATING
        self._jumped()
        return True

    def on_validated(self, end_epoch: int, end_offset: int) -> int | None:
        """The leader's log has this end for the position's epoch. None if the position is in it,
        otherwise the first offset where the logs part; -1 if the leader knows of no such epoch."""
        assert self.phase is Phase.VALIDATING
        if end_offset < 0 or end_epoch < 0:
            return NO_OFFSET
        if end_epoch < self.epoch or end_offset < self.position:
            return min(end_offset, self.position)
        self.phase = Phase.READING
        self.is_busy = False
        return None

    # What was fetched

    def add(self, piece: Piece) -> None:
        self.pieces.append(piece)
        self.piece_bytes += len(piece)
        if piece.end_offset <= self.fetch_offset:
            self.is_stuck = True
        self.fetch_offset = max(self.fetch_offset, piece.end_offset)

    def drop_piece(self) -> None:
        """The first piece is used up."""
        piece = self.pieces.popleft()
        self.piece_bytes -= len(piece)
        piece.release()

    def drop_pieces(self) -> None:
        while self.pieces:
            self.drop_piece()

    def give_back(self, piece: Piece, offset: int) -> None:
        """Records from here on were decoded out of this piece and not handed out."""
        if offset == self.position or self.phase not in (Phase.READING, Phase.VALIDATING):
            return
        self.position = offset
        if self.pieces and self.pieces[0] is piece:
            piece.rewind(offset)
        else:
            self.evict()

    def evict(self) -> None:
        """Gives the memory of fetched bytes back; they are fetched again when they are wanted. What
        is being asked about the partition is void, and asked again."""
        self.drop_pieces()
        self.fetch_offset = self.position
        self.is_stuck = self.is_spent = False
        self.is_busy = False
        self.changes += 1
