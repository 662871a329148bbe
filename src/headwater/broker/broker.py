"""The parts of a broker, as handlers use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.client_telemetry import ClientTelemetry
from headwater.broker.context import Context
from headwater.broker.controller_channel import ControllerChannel
from headwater.broker.coordinators.groups import GroupCoordinator
from headwater.broker.coordinators.transactions import TransactionCoordinator
from headwater.broker.dispatch import Routes, served_versions
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.log_moves import LogMoves
from headwater.broker.marker_writer import MarkerWriter
from headwater.broker.metadata_log import MetadataLog
from headwater.broker.on_demand import AutoTopics, ProducerIds
from headwater.broker.partitions import Partitions
from headwater.broker.producer_id_pace import ProducerIdPace
from headwater.broker.request_trace import RequestTraces
from headwater.broker.transaction_verification import TransactionVerification
from headwater.config import NodeConfig
from headwater.io import Clock, Workers
from headwater.metadata import Image
from headwater.model import NO_NODE
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey, Versions
from headwater.security.authorizer import Authorizer
from headwater.storage import LogDirs

if TYPE_CHECKING:
    from collections.abc import Sequence


# Advertised while pushed metrics can be exported. Requests are answered in any case.
_TELEMETRY = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


class Endpoint(NamedTuple):
    """A broker as clients of one listener reach it."""

    id: int
    host: str
    port: int
    rack: str | None
    fenced: bool = False


def broker_routes(config: NodeConfig) -> Routes:
    served = served_versions(unstable=config.unstable_api_versions_enable)
    return Routes(served, forward=_forward)


async def _forward(broker: Broker, context: Context, request: Message) -> Message:
    """Handles the APIs that a broker forwards to the active controller unseen."""
    return await broker.channel.forward(context, request)


def _common(ours: Versions, theirs: Versions | None) -> Versions | None:
    if theirs is None:
        return None
    low, high = max(ours[0], theirs[0]), min(ours[1], theirs[1])
    return (low, high) if low <= high else None


@dataclass(slots=True)
class Broker:
    config: NodeConfig
    cluster_id: str
    clock: Clock
    workers: Workers
    log: Lines
    routes: Routes
    metadata: MetadataLog
    channel: ControllerChannel
    log_dirs: LogDirs
    partitions: Partitions
    log_moves: LogMoves
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    auto_topics: AutoTopics
    groups: GroupCoordinator
    marker_writer: MarkerWriter
    transactions: TransactionCoordinator
    verification: TransactionVerification
    telemetry: ClientTelemetry
    traces: RequestTraces
    authorizer: Authorizer | None  # None: everything is allowed
    # Raises ConfigError for settings that this node cannot change to while it runs.
    check_change: Callable[[NodeConfig], None] = lambda config: None
    producer_id_pace: ProducerIdPace = field(default_factory=ProducerIdPace)

    @property
    def served(self) -> dict[int, Versions]:
        """The APIs and versions to advertise. Those of forwarded APIs must be known to the active
        controller, too."""
        served, known = self.routes.served, self.channel.controller_versions
        if not self.telemetry.is_exported:
            served = {key: each for key, each in served.items() if key not in _TELEMETRY}
        if known is None:
            return served
        return {
            key: common
            for key, versions in served.items()
            if (common := _common(versions, known.get(key)) if APIS[key].forwardable else versions)
        }

    @property
    def image(self) -> Image:
        return self.metadata.image

    def endpoints(self, context: Context, *, fenced: bool = False) -> list[Endpoint]:
        """Returns the brokers of the cluster at addresses that this client can reach.

        A node without advertised listeners returns the address that the client connected to, which
        works wherever the client is.
        """
        listener = context.connection.listener
        advertised = {at.name for at in self.config.advertised_listeners}
        found: list[Endpoint] = []
        for broker in self.image.brokers.values():
            if broker.fenced and not fenced:
                continue
            at = broker.endpoint(listener)
            if broker.id == self.config.node_id and listener not in advertised:
                local = context.connection.stream.local
                host, port = local.host, local.port
            elif at is not None:
                host, port = at.host, at.port
            else:
                continue
            found.append(Endpoint(broker.id, host, port, broker.rack, broker.fenced))
        return found

    def controller_id(self, endpoints: Sequence[Endpoint]) -> int:
        """Returns the broker to name as controller: any that is alive passes requests on, and the
        one that was asked is the best."""
        node_id = self.config.node_id
        if not endpoints:
            return NO_NODE
        return node_id if any(at.id == node_id for at in endpoints) else endpoints[0].id
