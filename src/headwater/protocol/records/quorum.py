"""Control records of the metadata log, and the quorum's state file."""

from __future__ import annotations

from typing import Annotated

from headwater.model import ZERO_ID
from headwater.protocol.schema import (
    EMPTY,
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
    """A new leader of the quorum: the first record of its epoch."""

    version: Int16
    leader_id: Int32
    voters: list[LeaderChangeMessageVoter] = []
    granting_voters: list[LeaderChangeMessageVoter] = []


class LeaderChangeMessageVoter(Message):
    """A node that votes."""

    voter_id: Int32
    voter_directory_id: Annotated[Uuid, since(1)] = ZERO_ID


@message(versions=(0, 0), flexible=0)
class SnapshotHeaderRecord(Message):
    """The first record of a snapshot."""

    version: Int16
    last_contained_log_timestamp: Int64


@message(versions=(0, 0), flexible=0)
class SnapshotFooterRecord(Message):
    """The last record of a snapshot; one without it is not whole."""

    version: Int16


@message(versions=(0, 0), flexible=0)
class KRaftVersionRecord(Message):
    """The finalized version of the quorum's own protocol."""

    version: Int16
    kraft_version: Int16


@message(versions=(0, 0), flexible=0)
class VotersRecord(Message):
    """The voters of the quorum from here on."""

    version: Int16
    voters: list[VotersRecordVoter] = []


class VotersRecordVoter(Message):
    """A node that votes."""

    voter_id: Int32
    voter_directory_id: Uuid
    endpoints: list[Endpoint] = []
    kraft_version_feature: KRaftVersionFeature = EMPTY


class Endpoint(Message):
    """A host and a port."""

    name: str
    host: str
    port: UInt16


class KRaftVersionFeature(Message):
    """The versions of the quorum's protocol a node speaks."""

    min_supported_version: Int16
    max_supported_version: Int16


@message(versions=(0, 1), flexible=0)
class QuorumStateData(Message):
    """The file `quorum-state`: what a node must not forget about elections."""

    cluster_id: Annotated[str, until(0)] = ""
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: Annotated[Uuid, since(1)] = ZERO_ID
    applied_offset: Annotated[Int64, until(0)] = 0
    current_voters: Annotated[list[QuorumStateDataVoter] | None, until(0)] = []


class QuorumStateDataVoter(Message):
    """A node that votes."""

    voter_id: Int32
