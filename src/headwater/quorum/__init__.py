"""The metadata quorum: KRaft as a state machine."""

from headwater.quorum.model import ElectionState, ReplicaKey, Voter, VoterEndpoint, VoterSet
from headwater.quorum.progress import ReplicaStatus
from headwater.quorum.raft import Envelope, QuorumDescription, Raft, Ready, Role, Timeouts

__all__ = [
    "ElectionState",
    "Envelope",
    "QuorumDescription",
    "Raft",
    "Ready",
    "ReplicaKey",
    "ReplicaStatus",
    "Role",
    "Timeouts",
    "Voter",
    "VoterEndpoint",
    "VoterSet",
]
