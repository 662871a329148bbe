"""How much goes through a node's metadata log, and how quickly it is committed."""

from __future__ import annotations

from headwater.observability.measures import Window


class MetadataMeter:
    """Counts of one metadata log, in windows of the last minute or so."""

    __slots__ = (
        "_appended",
        "_commits",
        "_election_since",
        "_elections",
        "_fetched",
        "applied_ms",
        "apply_errors",
    )

    def __init__(self) -> None:
        self._appended = Window()  # records, of each batch
        self._fetched = Window()
        self._commits = Window()  # milliseconds from the append to the commit
        self._elections = Window()  # milliseconds from the first vote to a leader
        self._election_since: float | None = None
        self.applied_ms = 0  # when the last record that is applied was written; 0: none yet
        self.apply_errors = 0  # changes that a part of the node failed to apply

    def on_appended(self, records: int, now: float) -> None:
        """Counts records that this node, as the leader, appended."""
        self._appended.note(records, now)

    def on_fetched(self, records: int, now: float) -> None:
        """Counts records that came from the leader."""
        self._fetched.note(records, now)

    def on_committed(self, milliseconds: float, now: float) -> None:
        self._commits.note(max(0.0, milliseconds), now)

    def appended_rate(self, now: float) -> float:
        """Returns the records appended each second."""
        return self._appended.rate(now)

    def fetched_rate(self, now: float) -> float:
        return self._fetched.rate(now)

    def commit_ms(self, now: float) -> tuple[float, float]:
        """Returns the mean and the longest time to a commit; 0 if there was none."""
        shown = self._commits.shown("commit", now)
        return shown["commit-avg"], shown["commit-max"]

    def on_step(self, *, is_electing: bool, has_leader: bool, now: float) -> None:
        """Measures elections in which this node asks for votes: from its first request to the
        moment when it knows the leader."""
        if is_electing:
            if self._election_since is None:
                self._election_since = now
        elif has_leader and self._election_since is not None:
            self._elections.note(1000 * (now - self._election_since), now)
            self._election_since = None

    def election_ms(self, now: float) -> tuple[float, float]:
        """Returns the mean and the longest time of an election; 0 if there was none."""
        shown = self._elections.shown("election", now)
        return shown["election-avg"], shown["election-max"]
