"""The answers of a classic group."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from headwater.protocol.messages.sync_group import SyncGroupResponse

# From this version on the protocol's name is null in a refusal; before, it is empty.
_NULL_PROTOCOL_SINCE = 7


def join_refused(code: ErrorCode, member_id: str = "", *, version: int) -> JoinGroupResponse:
    no_protocol = None if version >= _NULL_PROTOCOL_SINCE else ""
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=no_protocol)


def joined(
    *,
    member_id: str,
    generation: int,
    protocol_type: str | None,
    protocol: str,
    leader: str,
    members: list[JoinGroupResponseMember],
    skip_assignment: bool = False,
) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=generation,
        protocol_type=protocol_type,
        protocol_name=protocol,
        leader=leader,
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=members,
    )


def sync_refused(code: ErrorCode) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=code)


def synced(
    *, protocol_type: str | None, protocol: str | None, assignment: bytes
) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=protocol_type, protocol_name=protocol, assignment=assignment
    )
