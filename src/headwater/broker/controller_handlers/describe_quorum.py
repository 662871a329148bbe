"""DescribeQuorum: the leader of the metadata log, the voters, and the progress of every replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.model import METADATA_TOPIC, ZERO_ID
from headwater.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumResponsePartitionData,
    DescribeQuorumResponseTopicData,
    Listener,
    Node,
    ReplicaState,
)
from headwater.quorum.progress import ReplicaStatus
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: DescribeQuorumRequest
) -> DescribeQuorumResponse:
    try:
        check_cluster(role, context, Operation.DESCRIBE)
    except ApiError as refusal:
        return refuse(context, request, refusal)
    asked = [(t.topic_name, [p.partition_index for p in t.partitions]) for t in request.topics]
    if asked != [(METADATA_TOPIC, [0])]:
        return _refused(
            request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"only {METADATA_TOPIC}-0 has a quorum"
        )
    if not role.metadata.is_leader:
        if context.origin is not None:  # the broker that passed it on asks the next leader
            return DescribeQuorumResponse(error_code=ErrorCode.NOT_CONTROLLER)
        return _refused(
            request, ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node does not lead the quorum"
        )
    quorum = role.metadata.describe_quorum()
    shows_directories = context.version >= 2
    now, now_ms = role.clock.monotonic(), role.clock.wall_ms()

    def state(replica: ReplicaStatus) -> ReplicaState:
        return ReplicaState(
            replica_id=replica.key.id,
            replica_directory_id=replica.key.directory_id if shows_directories else ZERO_ID,
            log_end_offset=replica.log_end,
            last_fetch_timestamp=_wall_ms(replica.last_fetch, now, now_ms),
            last_caught_up_timestamp=_wall_ms(replica.last_caught_up, now, now_ms),
        )

    partition = DescribeQuorumResponsePartitionData(
        leader_id=quorum.leader_id,
        leader_epoch=quorum.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[state(replica) for replica in quorum.voters],
        observers=[state(replica) for replica in quorum.observers],
    )
    return DescribeQuorumResponse(
        topics=[DescribeQuorumResponseTopicData(topic_name=METADATA_TOPIC, partitions=[partition])],
        nodes=_nodes(role) if shows_directories else [],
    )


def _wall_ms(moment: float | None, now: float, now_ms: int) -> int:
    return -1 if moment is None else now_ms - int((now - moment) * 1000)


def _nodes(role: ControllerRole) -> list[Node]:
    return [
        Node(
            node_id=voter.key.id,
            listeners=[
                Listener(name=at.name, host=at.host, port=at.port) for at in voter.endpoints
            ],
        )
        for voter in role.metadata.raft.voters.voters.values()
    ]


def _refused(
    request: DescribeQuorumRequest, code: ErrorCode, message: str
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        topics=[
            DescribeQuorumResponseTopicData(
                topic_name=topic.topic_name,
                partitions=[
                    DescribeQuorumResponsePartitionData(
                        partition_index=asked.partition_index,
                        error_code=code,
                        error_message=message,
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def refuse(
    context: Context, request: DescribeQuorumRequest, refusal: ApiError
) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(error_code=refusal.code, error_message=refusal.message)
