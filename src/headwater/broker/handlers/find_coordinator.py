"""FindCoordinator: returns the broker that coordinates a group."""

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
_SHARE_SINCE = 6
_MANY_KEYS_SINCE = 4

# Kafka's words. Versions 1 to 3 have them for every code, 0 included; later ones only where the
# request itself is wrong.
_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the "
        "message was sent to an incompatible broker. See the broker logs for more details."
    ),
}


def handle(
    broker: Broker, context: Context, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.version >= _MANY_KEYS_SINCE:
        return FindCoordinatorResponse(
            coordinators=[
                _coordinator(broker, context, request.key_type, key)
                for key in request.coordinator_keys
            ]
        )
    found = _coordinator(broker, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message or _MESSAGES[ErrorCode(found.error_code)],
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
            error_message=refusal.message or "",
        )
    return Coordinator(key=key, node_id=at.id, host=at.host, port=at.port, error_message="")


def _find(broker: Broker, context: Context, key_type: int, key: str) -> Endpoint:
    if key_type not in (GROUP, TRANSACTION, SHARE):
        raise ApiError(ErrorCode.INVALID_REQUEST, _MESSAGES[ErrorCode.INVALID_REQUEST])
    if key_type == SHARE and context.version < _SHARE_SINCE:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    if key_type != GROUP:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION, f"coordinators of key type {key_type} are not supported"
        )
    index = broker.groups.partition_for(key)
    if index is None:
        broker.auto_topics.create([OFFSETS_TOPIC])
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = broker.partitions.leader_hint(OFFSETS_TOPIC, index)
    for endpoint in broker.endpoints(context):
        if leader is not None and endpoint.id == leader.node_id:
            return endpoint
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
