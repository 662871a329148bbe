"""FindCoordinator: which broker looks after a group, a transaction or a share partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.broker.coordinators.groups import OFFSETS_TOPIC
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker, Endpoint

GROUP = 0
TRANSACTION = 1
SHARE = 2


def handle(
    broker: Broker, context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= 4:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(broker, context, request.key_type, key)
                for key in request.coordinator_keys
            ]
        )
    found = _coordinator(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(broker: Broker, context: Context, key_type: int, key: str) -> Coordinator:
    try:
        at = _find(broker, context, key_type, key)
    except ApiError as refusal:
        return Coordinator(
            key=key,
            node_id=-1,
            port=-1,
            error_code=refusal.code,
            error_message=refusal.message,
        )
    return Coordinator(key=key, node_id=at.id, host=at.host, port=at.port, error_message="")


def _find(broker: Broker, context: Context, key_type: int, key: str) -> Endpoint:
    if key_type in (TRANSACTION, SHARE):
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"no node coordinates keys of type {key_type}"
        )
    if key_type != GROUP:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type}; 0 is a group")
    index = broker.groups.partition_for(key)
    if index is None:
        broker.auto_topics.create([OFFSETS_TOPIC])
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC} is being created")
    leader = broker.partitions.leader_hint(OFFSETS_TOPIC, index)
    for endpoint in broker.endpoints(context):
        if leader is not None and endpoint.id == leader.node_id:
            return endpoint
    raise ApiError(
        ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{OFFSETS_TOPIC}-{index} has no leader here"
    )
