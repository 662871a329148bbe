"""Taking a voter out of the quorum."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, Uuid, ignorable, message


@message(api=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterRequest(Message):
    """Removes a node from the voters."""

    cluster_id: str | None
    voter_id: Int32
    voter_directory_id: Uuid


@message(api=81, versions=(0, 0), flexible=0)
class RemoveRaftVoterResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, ignorable] = ""
