"""The parts of a controller, as the handlers of its listeners use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from headwater.broker.context import Context
from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.dispatch import Routes, served_versions
from headwater.broker.metadata_log import MetadataLog
from headwater.broker.quorum_driver import QuorumDriver
from headwater.broker.throttling import Throttling
from headwater.broker.voter_changes import VoterChanges
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock, Workers
from headwater.metadata import Image
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey, Versions
from headwater.security.authorizer import Authorizer

HANDLERS = "headwater.broker.controller_handlers"

# What the controller listener serves (KIP-919).
SERVED = (
    # The quorum.
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
    ApiKey.DESCRIBE_QUORUM,
    # Requests of nodes.
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ALTER_PARTITION,
    ApiKey.ALLOCATE_PRODUCER_IDS,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ENVELOPE,
    # Administration, forwarded by brokers or sent to the controller itself.
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_CLIENT_QUOTAS,
)


def controller_routes() -> Routes:
    return Routes(served_versions(SERVED), HANDLERS)


@dataclass(slots=True)
class ControllerRole:
    config: NodeConfig
    cluster_id: str
    clock: Clock
    workers: Workers
    log: Lines
    routes: Routes
    metadata: MetadataLog
    controller: ControllerDriver
    quorum: QuorumDriver
    voter_changes: VoterChanges
    authorizer: Authorizer | None  # None: everything is allowed
    throttling: Throttling

    @property
    def served(self) -> dict[int, Versions]:
        return self.routes.served

    @property
    def image(self) -> Image:
        return self.metadata.image

    async def answer(self, context: Context, request: Message) -> Message:
        """Answers a request that did not come in a frame of its own: from this node, or enclosed in
        an envelope."""
        assert request.API is not None
        handled = self.routes.find(request.API, context.version).handle(self, context, request)
        response = handled if isinstance(handled, Message) else await cast(Any, handled)
        assert isinstance(response, Message)
        return response

    def check_active(self) -> None:
        """Refuses a question that only the active controller may answer."""
        if not self.controller.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node does not lead the quorum")
