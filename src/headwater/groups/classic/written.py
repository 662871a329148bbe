"""A member of a classic group as the log holds it."""

from __future__ import annotations

from headwater.groups.classic.roster import Member
from headwater.protocol.records.group_offsets import MemberMetadata

# Records of before Kafka 0.10.1 have one timeout for both.
_NO_TIMEOUT = -1


def write_member(member: Member, protocol: str | None) -> MemberMetadata:
    """Only what it says under the protocol of its generation is kept."""
    assert protocol is not None, "members are written with the protocol they agreed on"
    return MemberMetadata(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata(protocol),
        assignment=member.assignment,
    )


def read_member(member: Member, written: MemberMetadata, protocol: str | None) -> None:
    """Gives a new member what was written of it."""
    timeout_ms = written.rebalance_timeout
    member.session_timeout_ms = written.session_timeout
    member.rebalance_timeout_ms = (
        written.session_timeout if timeout_ms == _NO_TIMEOUT else timeout_ms
    )
    member.protocols = ((protocol or "", written.subscription),)
    member.assignment = written.assignment
