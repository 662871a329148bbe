"""Adding a voter to the quorum."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Message, UInt16, Uuid, ignorable, message, since


@message(api=80, versions=(0, 1), flexible=0)
class AddRaftVoterRequest(Message):
    """Adds a node to the voters."""

    cluster_id: str | None
    timeout_ms: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener] = []
    ack_when_committed: Annotated[bool, since(1)] = True


class Listener(Message):
    """A listener: its name, and where it is."""

    name: str
    host: str
    port: UInt16


@message(api=80, versions=(0, 1), flexible=0)
class AddRaftVoterResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: Annotated[str | None, ignorable] = ""
