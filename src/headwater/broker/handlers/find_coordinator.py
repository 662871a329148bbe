"""FindCoordinator: returns the broker that coordinates a group or a transactional id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.broker.authorization import check, is_allowed
from headwater.broker.context import Context
from headwater.broker.coordinators.groups import OFFSETS_TOPIC
from headwater.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker, Endpoint

GROUP = 0
TRANSACTION = 1
SHARE = 2
_SHARE_SINCE = 6
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}(==)?")
_INT = re.compile(r"[+-]?[0-9]{1,10}")
_MANY_KEYS_SINCE = 4

# Kafka's words. Versions 1 to 3 have them for every code, 0 included; later ones only where the
# request itself is wrong.
_MESSAGES = {
    ErrorCode.NONE: "NONE",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
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
            error_message=(refusal.code is ErrorCode.INVALID_REQUEST and refusal.message) or "",
        )
    return Coordinator(key=key, node_id=at.id, host=at.host, port=at.port, error_message="")


def _find(broker: Broker, context: Context, key_type: int, key: str) -> Endpoint:
    if key_type == GROUP:
        check(broker, context, Operation.DESCRIBE, AclResource.GROUP, key)
        topic, index = OFFSETS_TOPIC, broker.groups.partition_for(key)
    elif key_type == TRANSACTION:
        check(broker, context, Operation.DESCRIBE, AclResource.TRANSACTIONAL_ID, key)
        topic, index = TRANSACTIONS_TOPIC, broker.transactions.partition_for(key)
    elif key_type != SHARE:
        raise ApiError(ErrorCode.INVALID_REQUEST, _MESSAGES[ErrorCode.INVALID_REQUEST])
    elif not is_allowed(broker, context, Operation.CLUSTER_ACTION, AclResource.CLUSTER):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    elif context.version < _SHARE_SINCE or not _is_share_key(key):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    else:  # no broker of this cluster keeps the state of share groups
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if index is None:
        broker.auto_topics.create([topic])
        raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    leader = broker.partitions.leader_hint(topic, index)
    for endpoint in broker.endpoints(context):
        if leader is not None and endpoint.id == leader.node_id:
            return endpoint
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _is_share_key(key: str) -> bool:
    """Returns whether a key is a group, which may contain colons, a topic id and a partition."""
    group, _, rest = key.rpartition(":")[0].rpartition(":")
    index = key.rpartition(":")[2]
    return bool(group.strip() and _TOPIC_ID.fullmatch(rest) and _INT.fullmatch(index))
