"""What the quorum writes about itself: control records of the metadata log, and its state file."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    EMPTY,
    ZERO_UUID,
    Int16,
    Int32,
    Int64,
    Message,
    UInt16,
    Uuid,
    message,
    since,
    until,
)


@message(versions=(0, 1), flexible=0)
class LeaderChangeMessage(Message):
    """The message `LeaderChangeMessage`."""

    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter] = []
    granting_voters: list[LeaderChangeMessageVoter] = []


class LeaderChangeMessageVoter(Message):
    """A part of `LeaderChangeMessage`."""

    voter_id: Int32
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord(Message):
    """The message `SnapshotHeaderRecord`."""

    version: Int16
    last_contained_log_timestamp: Int64


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord(Message):
    """The message `SnapshotFooterRecord`."""

    version: Int16


@message(versions=(0, 0), flexible=0)
class KRaftVersionRecord(Message):
    """The message `KRaftVersionRecord`."""

    version: Int16
    kraft_version: Int16


@message(versions=(0, 0), flexible=0)
class VotersRecord(Message):
    """The message `VotersRecord`."""

    version: Int16
    voters: list[VotersRecordVoter] = []


class VotersRecordVoter(Message):
    """A part of `VotersRecord`."""

    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint] = []
    kraft_version_feature: KRaftVersionFeature = EMPTY


class Endpoint(Message):
    """A part of `VotersRecord`."""

    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Message):
    """A part of `VotersRecord`."""

    min_supported_version: Int16
    max_supported_version: Int16


@message(versions=(0, 1), flexible=0)
class QuorumStateData(Message):
    """The message `QuorumStateData`."""

    cluster_id: Annotated[str, until(0)] = ""
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: Annotated[Uuid, since(1)] = ZERO_UUID
    applied_offset: Annotated[Int64, until(0)] = 0
    current_voters: Annotated[list[QuorumStateDataVoter] | None, until(0)] = []


class QuorumStateDataVoter(Message):
    """A part of `QuorumStateData`."""

    voter_id: Int32
