"""The leader's state of a partition: how far each replica is, and so what is committed.

On the hot path of every produce request. Offsets are ends, exclusive. The high watermark never goes
back, and counts a replica only once it has fetched in this leader's epoch (KIP-320).
"""

from __future__ import annotations

from dataclasses import dataclass

UNKNOWN = -1


@dataclass(slots=True)
class Follower:
    log_end: int = UNKNOWN
    log_start: int = UNKNOWN
    caught_up_at: float = float(
        "-inf"
    )  # when it last had everything that the log had at its fetch before
    last_fetch_at: float = float("-inf")
    last_fetch_leader_end: int = 0


class LeaderState:
    """The state of one leadership, which lasts for one leader epoch."""

    __slots__ = (
        "_commits_alone",
        "epoch",
        "epoch_start",
        "followers",
        "high_watermark",
        "isr",
        "log_end",
        "min_isr",
        "node_id",
        "replicas",
    )

    def __init__(
        self,
        *,
        node_id: int,
        epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        log_end: int,
        high_watermark: int,
        min_isr: int,
        now: float,
    ) -> None:
        assert node_id in replicas, f"node {node_id} leads a partition it has no replica of"
        self.node_id = node_id
        self.epoch = epoch
        self.epoch_start = log_end
        self.isr = isr
        self.replicas = replicas
        self.min_isr = min_isr  # `min.insync.replicas`
        self.log_end = log_end
        self.high_watermark = min(high_watermark, log_end)
        # In-sync replicas count as caught up now: they had no time to fetch in this epoch yet.
        self.followers = {
            replica: Follower(caught_up_at=now if replica in isr else float("-inf"))
            for replica in replicas
            if replica != node_id
        }
        self._commits_alone = False
        self._advance()

    def on_append(self, log_end: int) -> int:
        """Follows the end of the log; returns the high watermark."""
        self.log_end = log_end
        if self._commits_alone:
            self.high_watermark = log_end
        return self.high_watermark

    def on_fetch(self, replica: int, *, offset: int, log_start: int, now: float) -> int:
        """Takes a fetch at `offset`, which means that the follower has everything below; returns
        the high watermark."""
        follower = self.followers[replica]
        if offset >= self.log_end:
            follower.caught_up_at = now
        elif offset >= follower.last_fetch_leader_end:
            follower.caught_up_at = max(follower.caught_up_at, follower.last_fetch_at)
        follower.last_fetch_at = now
        follower.last_fetch_leader_end = self.log_end
        follower.log_end = offset
        follower.log_start = log_start
        self._advance()
        return self.high_watermark

    def on_change(self, *, isr: tuple[int, ...], replicas: tuple[int, ...]) -> int:
        """Takes the replicas and the in-sync set that the controller has committed, within this
        epoch; returns the high watermark."""
        self.isr = isr
        self.replicas = replicas
        self.followers = {
            replica: self.followers.get(replica) or Follower()
            for replica in replicas
            if replica != self.node_id
        }
        self._advance()
        return self.high_watermark

    def on_min_isr(self, min_isr: int) -> int:
        """Takes another `min.insync.replicas`; returns the high watermark."""
        self.min_isr = min_isr
        self._advance()
        return self.high_watermark

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas`, or than there are."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    def _advance(self) -> None:
        # KIP-966: below min.insync.replicas nothing is committed, or an unclean election could lose
        # what was read.
        under_min_isr = self.is_under_min_isr
        self._commits_alone = self.isr == (self.node_id,) and not under_min_isr
        if under_min_isr:
            return
        end = self.log_end
        for replica in self.isr:
            if replica != self.node_id:
                end = min(end, self.followers[replica].log_end)
        self.high_watermark = max(self.high_watermark, end)

    def lagging(self, *, now: float, lag_seconds_max: float) -> tuple[int, ...]:
        """Returns the in-sync replicas that have not been caught up for too long."""
        return tuple(
            replica
            for replica in self.isr
            if replica != self.node_id
            and self.followers[replica].log_end < self.log_end
            and now - self.followers[replica].caught_up_at > lag_seconds_max
        )

    def may_join(self, replica: int) -> bool:
        """Returns whether a follower may join the in-sync set: it has everything that is committed,
        and the log up to where this epoch began."""
        if replica in self.isr or replica not in self.followers:
            return False
        follower = self.followers[replica]
        return follower.log_end >= max(self.high_watermark, self.epoch_start)
