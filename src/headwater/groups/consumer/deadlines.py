"""When members of a consumer group are out: their sessions, and what they owe the group."""

from __future__ import annotations

from math import inf

from headwater.groups.decision import DecisionBuilder
from headwater.groups.timers import Timer, Timers


def _unused(builder: DecisionBuilder) -> None:
    raise AssertionError("overdue members are found by their names")


class Deadlines:
    """Soft: set afresh when a group is loaded."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._sessions: dict[str, Timer] = {}
        # Members that must give partitions up, with the epoch they are stuck in meanwhile.
        self._revocations: dict[str, tuple[Timer, int]] = {}
        # Classic members that must come with a JoinGroup, or after that with a SyncGroup.
        self._joins: dict[str, Timer] = {}
        self._syncs: dict[str, Timer] = {}
        self._owners: dict[Timer, tuple[str, int | None]] = {}

    def _set(
        self, timers: dict[str, Timer], member_id: str, deadline: float, epoch: int | None = None
    ) -> Timer:
        timer = timers.get(member_id)
        if timer is None:
            timer = timers[member_id] = Timer(_unused)
            self._owners[timer] = (member_id, epoch)
        self._timers.set(timer, deadline)
        return timer

    def _end(self, timer: Timer | None) -> None:
        if timer is not None:
            timer.cancel()
            del self._owners[timer]

    def renew_session(self, member_id: str, deadline: float) -> None:
        timer = self._sessions.get(member_id)
        if timer is None:
            self._set(self._sessions, member_id, deadline)
        else:
            self._timers.set(timer, deadline)

    def session(self, member_id: str) -> float:
        timer = self._sessions.get(member_id)
        return inf if timer is None else timer.deadline

    def await_revocation(self, member_id: str, epoch: int, deadline: float) -> None:
        """Counts only as long as the member stays in this epoch."""
        self.end_revocation(member_id)
        timer = self._set({}, member_id, deadline, epoch)
        self._revocations[member_id] = (timer, epoch)

    def end_revocation(self, member_id: str) -> None:
        timer, _ = self._revocations.pop(member_id, (None, 0))
        self._end(timer)

    def await_join(self, member_id: str, deadline: float) -> None:
        if member_id not in self._joins:
            self._set(self._joins, member_id, deadline)

    def end_join(self, member_id: str) -> None:
        self._end(self._joins.pop(member_id, None))

    def await_sync(self, member_id: str, deadline: float) -> None:
        self._set(self._syncs, member_id, deadline)

    def end_sync(self, member_id: str) -> None:
        self._end(self._syncs.pop(member_id, None))

    def forget(self, member_id: str) -> None:
        self._end(self._sessions.pop(member_id, None))
        self.end_revocation(member_id)
        self.end_join(member_id)
        self.end_sync(member_id)

    def next_deadline(self) -> float:
        return self._timers.next_deadline()

    def overdue(self, now: float) -> list[tuple[str, int | None]]:
        """Members whose time is up, with the epoch in which they must still be if it matters."""
        overdue = [self._owners[timer] for timer in self._timers.due(now)]
        for member_id, epoch in overdue:
            if epoch is not None:
                self.end_revocation(member_id)
        return overdue
