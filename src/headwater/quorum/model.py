"""The vocabulary of the quorum: its voters, and the messages between nodes.

KRaft is pull-based Raft: followers fetch, and the leader learns their progress from the offsets
they ask for. The messages here stand for Vote, BeginQuorumEpoch, EndQuorumEpoch and Fetch; drivers
convert them to protocol messages and back.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater.model import NO_NODE, ZERO_ID, OffsetAndEpoch
from headwater.protocol.records.quorum import (
    Endpoint,
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)


class ReplicaKey(NamedTuple):
    """A voter's id and directory: a node that lost its disk must not vote under its old
    identity."""

    id: int
    directory_id: bytes = ZERO_ID

    def matches(self, other: ReplicaKey) -> bool:
        """Returns whether `other` is the replica that is known under this key. One that is known
        with its directory must name it: a node that does not may have lost the disk."""
        return self.id == other.id and self.directory_id in (ZERO_ID, other.directory_id)


class VoterEndpoint(NamedTuple):
    name: str
    host: str
    port: int


class Voter(NamedTuple):
    key: ReplicaKey
    endpoints: tuple[VoterEndpoint, ...] = ()
    kraft_versions: tuple[int, int] = (0, 1)


class VoterSet(NamedTuple):
    voters: dict[int, Voter]

    @classmethod
    def of(cls, *voters: Voter) -> VoterSet:
        return cls({voter.key.id: voter for voter in voters})

    @property
    def majority(self) -> int:
        return len(self.voters) // 2 + 1

    def has(self, key: ReplicaKey) -> bool:
        voter = self.voters.get(key.id)
        return voter is not None and voter.key.matches(key)

    def others(self, me: int) -> list[ReplicaKey]:
        return [voter.key for voter in self.voters.values() if voter.key.id != me]

    @classmethod
    def from_record(cls, record: VotersRecord) -> VoterSet:
        return cls.of(
            *(
                Voter(
                    ReplicaKey(voter.voter_id, voter.voter_directory_id),
                    tuple(VoterEndpoint(end.name, end.host, end.port) for end in voter.endpoints),
                    (
                        voter.kraft_version_feature.min_supported_version,
                        voter.kraft_version_feature.max_supported_version,
                    ),
                )
                for voter in record.voters
            )
        )

    def to_record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.key.id,
                    voter_directory_id=voter.key.directory_id,
                    endpoints=[
                        Endpoint(name=end.name, host=end.host, port=end.port)
                        for end in voter.endpoints
                    ],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0],
                        max_supported_version=voter.kraft_versions[1],
                    ),
                )
                for voter in self.voters.values()
            ],
        )


class ElectionState(NamedTuple):
    """The durable state of a voter: the epoch, and whom it voted for or follows in it."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted: ReplicaKey | None = None


class VoteRequest(NamedTuple):
    epoch: int
    candidate: ReplicaKey
    last: OffsetAndEpoch  # end of the candidate's log, and the epoch of its last record
    pre_vote: bool


class VoteReply(NamedTuple):
    epoch: int
    leader_id: int
    granted: bool
    pre_vote: bool


class BeginEpoch(NamedTuple):
    epoch: int
    leader_id: int


class BeginEpochReply(NamedTuple):
    epoch: int
    leader_id: int


class EndEpoch(NamedTuple):
    epoch: int
    leader_id: int
    successors: tuple[int, ...]  # the most caught up first


class FetchRequest(NamedTuple):
    replica: ReplicaKey
    epoch: int
    offset: int
    last_epoch: int  # of the record before `offset`


class FetchReply(NamedTuple):
    """`records_from` is set where records may follow, `diverging` where the follower must truncate
    its log, `snapshot` where the leader's log does not reach back so far and the follower must
    fetch a snapshot first, `error` where the peer does not lead the epoch of the request."""

    epoch: int
    leader_id: int
    high_watermark: int = -1
    records_from: int | None = None
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    error: ErrorCode = ErrorCode.NONE


Message = (
    VoteRequest | VoteReply | BeginEpoch | BeginEpochReply | EndEpoch | FetchRequest | FetchReply
)
