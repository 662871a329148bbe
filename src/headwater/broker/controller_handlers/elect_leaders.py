"""ElectLeaders: preferred replicas lead again, or any replica where none in sync is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context, check_timeout
from headwater.errors import ApiError
from headwater.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.controller_role import ControllerRole


async def handle(
    role: ControllerRole, context: Context, request: ElectLeadersRequest
) -> ElectLeadersResponse:
    try:
        check_cluster(role, context, Operation.ALTER)
        check_timeout(request.timeout_ms)
        results = await role.controller.ask(
            lambda controller: controller.decide_elect_leaders(request)
        )
    except ApiError as refusal:
        return refuse(context, request, refusal)
    return ElectLeadersResponse(replica_election_results=results)


def refuse(
    context: Context, request: ElectLeadersRequest, refusal: ApiError
) -> ElectLeadersResponse:
    results = [
        ReplicaElectionResult(
            topic=asked.topic,
            partition_result=[
                PartitionResult(
                    partition_id=index, error_code=refusal.code, error_message=refusal.message
                )
                for index in asked.partitions
            ],
        )
        for asked in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(
        # Version 0 has no code for the whole.
        error_code=refusal.code if context.version >= 1 else 0,
        replica_election_results=results,
    )
