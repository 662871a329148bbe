"""Checks that requests between members of the quorum share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import NO_NODE, ZERO_ID

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def is_other_cluster(role: ControllerRole, cluster_id: str | None) -> bool:
    """Returns whether the sender says that it belongs to another cluster."""
    return cluster_id is not None and cluster_id != role.cluster_id


def is_other_voter(role: ControllerRole, voter_id: int, directory_id: bytes) -> bool:
    """Returns whether the sender means another node than this, or this node with a directory that
    it no longer has (KIP-853): it must not vote under an identity whose votes it may have lost."""
    me = role.quorum.me
    if voter_id not in (NO_NODE, me.id):
        return True
    return directory_id not in (ZERO_ID, me.directory_id)


def epoch_refusal(role: ControllerRole, epoch: int) -> ErrorCode:
    return ErrorCode.FENCED_LEADER_EPOCH if epoch < role.metadata.raft.epoch else ErrorCode.NONE


def node_endpoints(role: ControllerRole) -> list[Address]:
    """Returns the address of the leader, if it is known."""
    leader_id = role.metadata.raft.leader_id
    address = None if leader_id == NO_NODE else role.metadata.address_of(leader_id)
    return [] if address is None else [address]
