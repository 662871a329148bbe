"""The quorum of the metadata log: its leader, its voters and observers, and changing the voters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.client.admin.results import check
from headwater.model import METADATA_TOPIC, ZERO_ID, id_from_text, id_text
from headwater.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from headwater.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    ReplicaState,
)
from headwater.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_ACK_SINCE = 1


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A node that replicates the metadata log. Times are milliseconds since 1970, None if never."""

    node_id: int
    log_end: int
    directory_id: str | None = None
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Quorum:
    """A quorum. Voters elect the leader, observers only replicate. `listeners` are the addresses of
    the voters' controller listeners, if the cluster reports them."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


async def describe_quorum(admin: Admin, *, timeout_ms: int | None = None) -> Quorum:
    """Returns the quorum as its leader sees it."""
    request = DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
            )
        ]
    )
    answer = await admin._router.anyone(request, timeout_ms=timeout_ms)
    check(answer.error_code, "the quorum", answer.error_message)
    about = answer.topics[0].partitions[0]
    check(about.error_code, "the quorum", about.error_message)
    return Quorum(
        leader_id=about.leader_id,
        leader_epoch=about.leader_epoch,
        high_watermark=about.high_watermark,
        voters=tuple(_replica(each) for each in about.current_voters),
        observers=tuple(_replica(each) for each in about.observers),
        listeners={
            node.node_id: {each.name: f"{each.host}:{each.port}" for each in node.listeners}
            for node in answer.nodes
        },
    )


def _replica(state: ReplicaState) -> QuorumReplica:
    directory_id = state.replica_directory_id
    return QuorumReplica(
        node_id=state.replica_id,
        log_end=state.log_end_offset,
        directory_id=None if directory_id == ZERO_ID else id_text(directory_id),
        last_fetch_ms=None if state.last_fetch_timestamp < 0 else state.last_fetch_timestamp,
        last_caught_up_ms=None
        if state.last_caught_up_timestamp < 0
        else state.last_caught_up_timestamp,
    )


async def add_voter(
    admin: Admin,
    node_id: int,
    directory_id: str,
    listeners: Mapping[str, tuple[str, int]],
    *,
    cluster_id: str | None = None,
    await_commit: bool = True,
    timeout_ms: int | None = None,
) -> None:
    """Makes a controller a voter. `listeners` are the host and port of its controller listeners, by
    name. With `cluster_id`, a cluster that has another id refuses. Without `await_commit`, returns
    as soon as the leader has written the change (KIP-1186)."""
    deadline = admin._router.deadline(timeout_ms)
    answer = await admin._router.controller(
        AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=admin._router.left_ms(deadline),
            voter_id=node_id,
            voter_directory_id=id_from_text(directory_id),
            listeners=[
                Listener(name=name, host=host, port=port)
                for name, (host, port) in listeners.items()
            ],
            ack_when_committed=await_commit,
        ),
        timeout_ms=timeout_ms,
        at_least=None if await_commit else _ACK_SINCE,
    )
    check(answer.error_code, f"voter {node_id}", answer.error_message)


async def remove_voter(
    admin: Admin,
    node_id: int,
    directory_id: str,
    *,
    cluster_id: str | None = None,
    timeout_ms: int | None = None,
) -> None:
    """Removes a controller from the voters."""
    answer = await admin._router.controller(
        RemoveRaftVoterRequest(
            cluster_id=cluster_id, voter_id=node_id, voter_directory_id=id_from_text(directory_id)
        ),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, f"voter {node_id}", answer.error_message)
