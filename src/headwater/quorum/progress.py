"""The leader's view of the replicas' progress, and the high watermark that follows from it.

The leader's own progress is what it has flushed; a follower's is the offset it fetches from, since
it flushes before it fetches again. The high watermark is the largest offset that a majority of
voters has reached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.model import NO_OFFSET
from headwater.quorum.model import ReplicaKey, VoterSet

# Observers that have not fetched for this long are forgotten (five minutes, as in Kafka).
_OBSERVER_SECONDS_MAX = 300.0
_OBSERVERS_MAX = 10_000


class ReplicaStatus(NamedTuple):
    """A replica in DescribeQuorum. Times are monotonic seconds; None means never."""

    key: ReplicaKey
    log_end: int
    last_fetch: float | None
    last_caught_up: float | None


@dataclass(slots=True)
class _Replica:
    key: ReplicaKey
    offset: int = NO_OFFSET
    last_fetch: float | None = None
    last_caught_up: float | None = None
    leader_end_at_last_fetch: int = NO_OFFSET
    acknowledged: bool = False


@dataclass(slots=True)
class Progress:
    me: ReplicaKey
    voters: VoterSet
    epoch_start: int
    began: float
    high_watermark: int = NO_OFFSET
    _voters: dict[int, _Replica] = field(default_factory=dict)
    _observers: dict[ReplicaKey, _Replica] = field(default_factory=dict)
    _fetched: set[int] = field(default_factory=set)  # voters that fetched since the last majority
    quorum_seen: float = 0.0

    def __post_init__(self) -> None:
        self.quorum_seen = self.began
        for voter in self.voters.voters.values():
            self._voters[voter.key.id] = _Replica(
                voter.key, acknowledged=voter.key.matches(self.me)
            )

    def on_flushed(self, offset: int) -> bool:
        """Notes that the leader's own log is durable up to `offset`; returns whether the high
        watermark moved."""
        mine = self._voters.get(self.me.id)
        if mine is None:
            return False
        assert offset >= mine.offset, f"flushed offset went from {mine.offset} back to {offset}"
        mine.offset = offset
        return self._advance()

    def on_fetch(self, replica: ReplicaKey, *, offset: int, log_end: int, now: float) -> bool:
        """Notes that a replica has everything below `offset`; returns whether the high watermark
        moved."""
        state = self._voters.get(replica.id)
        is_voter = state is not None and state.key.matches(replica)
        if state is None or not is_voter:
            self._forget_silent_observers(now)
            state = self._observers.setdefault(replica, _Replica(replica))
        # It has caught up now, or had caught up with our log end of its previous fetch.
        if offset >= log_end:
            state.last_caught_up = now
        elif state.last_fetch is not None and offset >= state.leader_end_at_last_fetch:
            state.last_caught_up = state.last_fetch
        state.offset = offset
        state.last_fetch = now
        state.leader_end_at_last_fetch = log_end
        if not is_voter:
            return False
        state.acknowledged = True
        self._fetched.add(replica.id)
        if len(self._fetched) + self.voters.has(self.me) >= self.voters.majority:
            self._fetched.clear()
            self.quorum_seen = now
        return self._advance()

    def on_voters(self, voters: VoterSet) -> bool:
        """Takes another set of voters, keeping what is known about each replica; returns whether
        the high watermark moved."""
        before, observers = self._voters, self._observers
        self.voters = voters
        self._voters = {}
        for voter in voters.voters.values():
            known = before.get(voter.key.id)
            if known is None or not known.key.matches(voter.key):
                known = observers.pop(voter.key, None) or _Replica(
                    voter.key, acknowledged=voter.key.matches(self.me)
                )
            # A voter may have had no directory id before. It counts only with this one now.
            known.key = voter.key
            self._voters[voter.key.id] = known
        for replica in before.values():
            is_gone = replica.last_fetch is None or replica.key.id == self.me.id
            if replica.key.id not in self._voters and not is_gone:
                observers[replica.key] = replica
        self._fetched.intersection_update(self._voters)
        return bool(self._voters) and self._advance()

    def log_end_of(self, replica: ReplicaKey) -> int | None:
        """Returns how far an observer or voter has fetched, None if it has not fetched."""
        found = self._voters.get(replica.id)
        if found is None or not found.key.matches(replica):
            found = self._observers.get(replica)
        return None if found is None or found.last_fetch is None else found.offset

    def on_acknowledged(self, voter: int) -> None:
        if voter in self._voters:
            self._voters[voter].acknowledged = True

    def unacknowledged(self) -> list[ReplicaKey]:
        return [replica.key for replica in self._voters.values() if not replica.acknowledged]

    def successors(self) -> tuple[int, ...]:
        others = [replica for replica in self._voters.values() if replica.key.id != self.me.id]
        return tuple(r.key.id for r in sorted(others, key=lambda r: -r.offset))

    def describe(
        self, *, log_end: int, now: float
    ) -> tuple[list[ReplicaStatus], list[ReplicaStatus]]:
        """Returns the voters and the observers."""
        self._forget_silent_observers(now)

        def status(replica: _Replica) -> ReplicaStatus:
            if replica.key.id == self.me.id:
                return ReplicaStatus(replica.key, log_end, now, now)
            return ReplicaStatus(
                replica.key, replica.offset, replica.last_fetch, replica.last_caught_up
            )

        return (
            [status(replica) for replica in self._voters.values()],
            [status(replica) for replica in self._observers.values()],
        )

    def _advance(self) -> bool:
        offsets = sorted((replica.offset for replica in self._voters.values()), reverse=True)
        reached = offsets[len(offsets) // 2]
        # Records of older epochs are committed only together with one of this epoch (Raft, section
        # 5.4.2): before that, a voter with a longer log of an older epoch could still win and
        # truncate them.
        if reached <= self.epoch_start or reached <= self.high_watermark:
            return False
        self.high_watermark = reached
        return True

    def _forget_silent_observers(self, now: float) -> None:
        silent = [
            key
            for key, replica in self._observers.items()
            if replica.last_fetch is not None and now - replica.last_fetch > _OBSERVER_SECONDS_MAX
        ]
        for key in silent:
            del self._observers[key]
        while len(self._observers) > _OBSERVERS_MAX:
            del self._observers[next(iter(self._observers))]
