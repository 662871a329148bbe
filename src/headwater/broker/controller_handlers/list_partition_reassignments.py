"""ListPartitionReassignments: the partitions whose replicas are being moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError
from headwater.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headwater.broker.controller_role import ControllerRole


def handle(
    role: ControllerRole, context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    try:
        check_cluster(role, context, Operation.DESCRIBE)
        role.check_active()
    except ApiError as refusal:
        return refuse(context, request, refusal)
    topics = role.image.topics
    if request.topics is None:
        wanted = {name: set(topic.partitions) for name, topic in topics.items()}
    else:
        wanted = {
            asked.name: topics[asked.name].partitions.keys() & set(asked.partition_indexes)
            for asked in request.topics
            if asked.name in topics
        }
    moving = [
        OngoingTopicReassignment(name=name, partitions=partitions)
        for name, indexes in wanted.items()
        if (partitions := _moving(role, name, indexes))
    ]
    return ListPartitionReassignmentsResponse(error_message=None, topics=moving)


def _moving(
    role: ControllerRole, topic: str, indexes: Iterable[int]
) -> list[OngoingPartitionReassignment]:
    partitions = role.image.topics[topic].partitions
    return [
        OngoingPartitionReassignment(
            partition_index=index,
            replicas=list(state.replicas),
            adding_replicas=list(state.adding),
            removing_replicas=list(state.removing),
        )
        for index in sorted(indexes)
        if (state := partitions[index]).is_reassigning
    ]


def refuse(
    context: Context, request: ListPartitionReassignmentsRequest, refusal: ApiError
) -> ListPartitionReassignmentsResponse:
    return ListPartitionReassignmentsResponse(
        error_code=refusal.code, error_message=refusal.message
    )
