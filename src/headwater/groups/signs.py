"""Which members a group waits for, and how long each has been silent. Soft, and read only."""

from __future__ import annotations

from math import inf

from headwater.groups.classic.group import ClassicGroup, State
from headwater.groups.classic.roster import Member
from headwater.groups.modern import ModernGroup
from headwater.protocol.signs import Signs


def signs(group: ClassicGroup | ModernGroup, now: float) -> dict[str, Signs]:
    """By member id."""
    if isinstance(group, ClassicGroup):
        return {
            member.id: Signs(
                _is_awaited(group, member),
                silent_ms(member.session.deadline, member.session_timeout_ms, now),
                member.session_timeout_ms,
            )
            for member in group.roster
        }
    return {
        member_id: Signs(
            session.is_awaited,
            silent_ms(session.deadline, session.timeout_ms, now),
            session.timeout_ms,
        )
        for member_id, session in group.sessions().items()
    }


def _is_awaited(group: ClassicGroup, member: Member) -> bool:
    """While members gather, whoever has no JoinGroup here; after that, the leader, who assigns."""
    if group.state is State.PREPARING_REBALANCE:
        return member.id not in group.joins
    return group.state is State.COMPLETING_REBALANCE and member.id == group.roster.leader


def silent_ms(deadline: float, timeout_ms: int, now: float) -> int | None:
    """How long ago a session was put off to this deadline; None if it does not run."""
    if deadline == inf:
        return None
    return max(0, timeout_ms - round((deadline - now) * 1000))
