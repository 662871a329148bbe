"""The leader's state of a partition: how far each replica is, and so what is committed.

On the hot path of every produce request. Offsets are ends, exclusive. The high watermark never goes
back, and counts a replica only once it has fetched in this leader's epoch (KIP-320).

The in-sync set belongs to the controller; the leader proposes changes (AlterPartition). While a
proposal is under way nobody knows whether it was committed, so the high watermark waits for the
larger of the two sets (KIP-497): a replica that may be in sync already may be elected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from headwater.errors import ApiError, ErrorCode

UNKNOWN = -1
NO_BROKER_EPOCH = -1
_NEVER = float("-inf")

ActiveEpoch = Callable[[int], int | None]
"""Returns the epoch of a broker that is neither fenced nor shutting down; None for any other."""


class FetchClock:
    """The time of a follower's last fetch. One clock serves all partitions of its fetch session:
    a request repeats every position that it does not change."""

    __slots__ = ("at",)

    def __init__(self, at: float = _NEVER) -> None:
        self.at = at


class Follower:
    """The leader's knowledge of another replica."""

    __slots__ = (
        "broker_epoch",
        "caught_up_at",
        "clock",
        "last_fetch_at",
        "last_fetch_leader_end",
        "log_end",
        "log_start",
    )

    def __init__(self, caught_up_at: float = _NEVER) -> None:
        self.log_end = UNKNOWN
        self.log_start = UNKNOWN
        self.broker_epoch: int | None = None  # of its last fetch
        self.clock = FetchClock()
        # When it last had everything that the log had at its fetch before.
        self.caught_up_at = caught_up_at
        self.last_fetch_at = _NEVER
        self.last_fetch_leader_end = 0


class IsrProposal(NamedTuple):
    """A change of the in-sync set that was proposed to the controller."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]  # of the same brokers; -1 where it is not known
    leader_epoch: int
    partition_epoch: int


class LeaderState:
    """The state of one leadership, which lasts for one leader epoch."""

    __slots__ = (
        "_active_epoch",
        "_commits_alone",
        "_maximal_isr",
        "_now",
        "epoch",
        "epoch_start",
        "followers",
        "high_watermark",
        "isr",
        "lag_seconds_max",
        "log_end",
        "min_isr",
        "node_id",
        "partition_epoch",
        "pending",
        "replicas",
    )

    def __init__(
        self,
        *,
        node_id: int,
        epoch: int,
        partition_epoch: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        log_end: int,
        high_watermark: int,
        min_isr: int,
        lag_seconds_max: float,
        active_epoch: ActiveEpoch,
        now: float,
    ) -> None:
        assert node_id in replicas, f"node {node_id} leads a partition it has no replica of"
        self.node_id = node_id
        self.epoch = epoch
        self.epoch_start = log_end
        self.partition_epoch = partition_epoch
        self.isr = isr  # as the controller has committed it
        self.pending: IsrProposal | None = None
        self.replicas = replicas
        self.min_isr = min_isr  # `min.insync.replicas`
        self.lag_seconds_max = lag_seconds_max  # `replica.lag.time.max.ms`
        self.log_end = log_end
        self.high_watermark = min(high_watermark, log_end)
        self._active_epoch = active_epoch
        self._now = now  # the time of the last event
        # In-sync replicas count as caught up now: they had no time to fetch in this epoch yet.
        self.followers = {
            replica: Follower(now if replica in isr else _NEVER)
            for replica in replicas
            if replica != node_id
        }
        self._commits_alone = False
        self._maximal_isr = isr
        self._on_isr()

    # Events

    def on_append(self, log_end: int) -> int:
        """Follows the end of the log; returns the high watermark."""
        if self._commits_alone:
            self.log_end = self.high_watermark = log_end
            return log_end
        before, self.log_end = self.log_end, log_end
        for follower in self.followers.values():
            if follower.log_end == before and follower.clock.at > follower.caught_up_at:
                follower.caught_up_at = follower.clock.at
        if len(self._maximal_isr) == 1:
            self._advance()
        return self.high_watermark

    def check_fetch(self, replica: int, *, broker_epoch: int, knows_epoch: bool) -> Follower:
        """Returns the follower whose fetch this is. Raises ApiError if it is not assigned, or if a
        later incarnation of its broker has fetched already (KIP-903)."""
        follower = self.followers.get(replica)
        if follower is None:
            # The replica may know a newer assignment than this leader; it tries again.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if knows_epoch:
                code = ErrorCode.UNKNOWN_LEADER_EPOCH
            raise ApiError(code, f"{replica} is not one of the replicas {self.replicas}")
        known = follower.broker_epoch
        if known is not None and NO_BROKER_EPOCH < broker_epoch < known:
            raise ApiError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica} fetched with epoch {broker_epoch}, before with {known}",
            )
        return follower

    def on_fetch(
        self,
        replica: int,
        *,
        offset: int,
        log_start: int,
        now: float,
        broker_epoch: int = NO_BROKER_EPOCH,
        clock: FetchClock | None = None,
    ) -> int:
        """Takes a fetch at `offset`, which means that the follower has everything below; returns
        the high watermark. The position must have been compared with the log: a replica whose log
        diverges has nothing yet."""
        self._now = now
        follower = self.followers[replica]
        if offset >= self.log_end:
            follower.caught_up_at = now
        elif offset >= follower.last_fetch_leader_end:
            follower.caught_up_at = max(follower.caught_up_at, follower.last_fetch_at)
        follower.last_fetch_at = now
        follower.last_fetch_leader_end = self.log_end
        follower.log_end = offset
        follower.log_start = log_start
        follower.broker_epoch = broker_epoch
        if clock is not None:
            follower.clock = clock
        follower.clock.at = now
        self._advance()
        return self.high_watermark

    def on_change(
        self, *, isr: tuple[int, ...], replicas: tuple[int, ...], partition_epoch: int
    ) -> int:
        """Takes the replicas and the in-sync set that the controller has committed, within this
        epoch; returns the high watermark."""
        if partition_epoch < self.partition_epoch:
            return self.high_watermark  # the answer to a proposal was faster than the metadata
        if self.pending is not None and self.pending.partition_epoch < partition_epoch:
            # The proposal is part of this state, or the controller will refuse it.
            self.pending = None
        self.partition_epoch = partition_epoch
        self.isr = isr
        self.replicas = replicas
        self.followers = {
            replica: self.followers.get(replica) or Follower()
            for replica in replicas
            if replica != self.node_id
        }
        self._on_isr()
        return self.high_watermark

    def on_min_isr(self, min_isr: int) -> int:
        """Takes another `min.insync.replicas`; returns the high watermark."""
        self.min_isr = min_isr
        self._on_isr()
        return self.high_watermark

    def on_tick(self, now: float) -> int:
        """Lets time pass: a replica that stopped fetching is no longer waited for to join. Returns
        the high watermark."""
        self._now = now
        self._advance()
        return self.high_watermark

    # What is committed

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas`, or than there are."""
        return len(self.isr) < min(self.min_isr, len(self.replicas))

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The in-sync set, and the replica that joins it if a proposal was accepted."""
        return self._maximal_isr

    def _on_isr(self) -> None:
        self._maximal_isr = self.isr
        if self.pending is not None:
            joining = (replica for replica in self.pending.isr if replica not in self.isr)
            self._maximal_isr = (*self.isr, *joining)
        self._commits_alone = not self.followers and not self.is_under_min_isr
        self._advance()

    def _advance(self) -> None:
        # KIP-966: below min.insync.replicas nothing is committed, or an unclean election could lose
        # what was read.
        if self.is_under_min_isr:
            return
        end = self.log_end
        for replica, follower in self.followers.items():
            if follower.log_end < end and (
                replica in self._maximal_isr or self._is_about_to_join(replica, follower)
            ):
                end = follower.log_end
        if end > self.high_watermark:
            self.high_watermark = end

    def _is_about_to_join(self, replica: int, follower: Follower) -> bool:
        """Returns whether a replica outside the in-sync set keeps up. The high watermark waits for
        it: a leader that is alone would otherwise stay ahead of it, and it could never join."""
        is_recent = self._now - follower.caught_up_at <= self.lag_seconds_max
        return is_recent and self._is_eligible(replica, follower)

    def low_watermark(self, log_start: int) -> int:
        """Returns the smallest log start of the live replicas, -1 while one is not known."""
        starts = (
            follower.log_start
            for replica, follower in self.followers.items()
            if self._active_epoch(replica) is not None
        )
        return min((log_start, *starts))

    # The in-sync set

    def lagging(self, now: float) -> tuple[int, ...]:
        """Returns the in-sync replicas that have not been caught up for too long."""
        return tuple(
            replica
            for replica in self.isr
            if (follower := self.followers.get(replica)) is not None
            and follower.log_end != self.log_end
            and now - follower.caught_up_at > self.lag_seconds_max
        )

    def may_join(self, replica: int) -> bool:
        """Returns whether a follower may join the in-sync set: it has everything that is committed
        and the log up to where this epoch began, and its broker is active in the incarnation that
        fetched (KIP-841, KIP-903)."""
        follower = self.followers.get(replica)
        return (
            follower is not None
            and replica not in self.isr
            and follower.log_end >= max(self.high_watermark, self.epoch_start)
            and self._is_eligible(replica, follower)
        )

    def _is_eligible(self, replica: int, follower: Follower) -> bool:
        active = self._active_epoch(replica)
        return active is not None and follower.broker_epoch in (active, NO_BROKER_EPOCH)

    def propose_join(self, replica: int) -> IsrProposal | None:
        """Begins to add a replica to the in-sync set, if it may join and no other proposal is under
        way."""
        if self.pending is not None or replica in self.isr or not self.may_join(replica):
            return None
        return self._propose((*self.isr, replica))

    def propose_shrink(self, now: float) -> IsrProposal | None:
        """Begins to remove lagging replicas from the in-sync set, if there are any and no other
        proposal is under way."""
        if self.pending is not None:
            return None
        lagging = self.lagging(now)
        if not lagging:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in lagging))

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        self.pending = IsrProposal(
            isr, tuple(map(self._known_epoch, isr)), self.epoch, self.partition_epoch
        )
        self._on_isr()
        return self.pending

    def _known_epoch(self, replica: int) -> int:
        if replica == self.node_id:
            own = self._active_epoch(replica)
            return NO_BROKER_EPOCH if own is None else own
        epoch = self.followers[replica].broker_epoch
        return NO_BROKER_EPOCH if epoch is None else epoch

    def on_refused(self, proposal: IsrProposal) -> int:
        """Drops a proposal that the controller has refused and will never commit; returns the high
        watermark."""
        if self.pending is proposal:
            self.pending = None
            self._on_isr()
        return self.high_watermark
