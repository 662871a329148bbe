"""A follower's state of a partition: whose log it copies, from where, and up to where it is
committed.

The fetch itself finds where the logs part (KIP-595): it says the last epoch of this log, and a
leader whose log has another end of that epoch answers with its own, instead of records. The
follower cuts its log back to what both have and fetches again, as often as necessary (KIP-101,
KIP-279). Nothing is taken from a leader before that, because the same request fetches and compares,
and every request is fenced by the leader epoch (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.model import NO_EPOCH, NO_OFFSET, OffsetAndEpoch

EpochEnd = Callable[[int], OffsetAndEpoch]
"""Returns the largest epoch of a log at or below the given one, and where it ends."""


class Cut(NamedTuple):
    """A truncation that must be durable before the follower fetches on."""

    offset: int  # everything from here on goes
    begins_anew: bool = False  # everything goes, and the log begins here


class FollowerState:
    """The state of one leader's follower, which lasts for one leader epoch."""

    __slots__ = ("epoch", "high_watermark", "leader_id")

    def __init__(self, *, leader_id: int, epoch: int, high_watermark: int) -> None:
        self.leader_id = leader_id  # -1: there is none, nothing is fetched
        self.epoch = epoch
        self.high_watermark = high_watermark

    def decide_start(self, *, log_end: int, latest_epoch: int) -> Cut | None:
        """Returns what must be cut before the first fetch. A log without epochs cannot be compared:
        only what is known to be committed is kept."""
        if latest_epoch == NO_EPOCH and self.high_watermark < log_end:
            return Cut(self.high_watermark)
        return None

    def decide_divergence(self, leaders: OffsetAndEpoch, *, log_end: int, own: EpochEnd) -> Cut:
        """Returns the cut for the epoch and its end with which the leader has answered."""
        if leaders.offset == NO_OFFSET:
            return Cut(min(self.high_watermark, log_end))
        if leaders.epoch == NO_EPOCH:
            return Cut(min(leaders.offset, log_end))
        known = own(leaders.epoch)
        if known.epoch == NO_EPOCH:
            return Cut(min(leaders.offset, log_end))
        if known.epoch != leaders.epoch:
            # This log has nothing of that epoch: it goes back to its own last one before that, and
            # the next fetch compares again (KIP-279).
            return Cut(min(known.offset, log_end))
        return Cut(min(known.offset, leaders.offset, log_end))

    def decide_out_of_range(
        self, *, log_end: int, leader_start: int, leader_end: int
    ) -> Cut | None:
        """Returns the cut for an offset that the leader does not have; None if the ranges overlap
        after all and the same offset may be fetched again."""
        if leader_end < log_end:
            # Another replica was elected although it had less (unclean election).
            return Cut(leader_end)
        if leader_start > log_end:
            # The leader has deleted what comes next.
            return Cut(leader_start, begins_anew=True)
        return None

    def on_cut(self, cut: Cut) -> None:
        """Takes note of a truncation."""
        if cut.begins_anew:
            self.high_watermark = cut.offset
        else:
            self.high_watermark = min(self.high_watermark, cut.offset)

    def on_fetched(self, *, leader_high_watermark: int, log_end: int) -> bool:
        """Takes the leader's high watermark, as far as this log reaches; returns whether it moved.
        It does not go back: that of a new leader may lag, but what was committed stays so."""
        reached = min(leader_high_watermark, log_end)
        if reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def log_start(self, *, leader_start: int, log_start: int) -> int:
        """Returns where this log is to begin: where the leader's does, within what is committed."""
        return max(log_start, min(leader_start, self.high_watermark))
