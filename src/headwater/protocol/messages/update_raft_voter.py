"""A voter telling the leader its endpoints and versions."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    EMPTY,
    Int16,
    Int32,
    Message,
    UInt16,
    Uuid,
    message,
    never_null,
    tag,
)


@message(api=82, versions=(0, 0), flexible=0)
class UpdateRaftVoterRequest(Message):
    """This is where I am now."""

    cluster_id: str | None
    current_leader_epoch: Int32
    voter_id: Int32
    voter_directory_id: Uuid
    listeners: list[Listener] = []
    kraft_version_feature: KRaftVersionFeature = EMPTY


class Listener(Message):
    """A listener: its name, and where it is."""

    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Message):
    """The versions of the quorum's protocol a node speaks."""

    min_supported_version: Int16
    max_supported_version: Int16


@message(api=82, versions=(0, 0), flexible=0)
class UpdateRaftVoterResponse(Message):
    """The outcome, and the leader."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    current_leader: Annotated[CurrentLeader | None, tag(0), never_null] = None


class CurrentLeader(Message):
    """The `current_leader` of `UpdateRaftVoterResponse`."""

    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    host: str = ""
    port: Int32 = 0
