"""The metrics of a node: its registry, what is measured all the time, and the HTTP server.

Made only for a node that is scraped or that exports. The server starts before anything else, so
that `/healthz` answers also during a long recovery; collectors are added as the parts are built.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING

from headwater import __version__
from headwater.broker.collectors.cluster import ClusterCollector
from headwater.broker.collectors.connections import ConnectionCollector
from headwater.broker.collectors.process import LoopMeter, ProcessCollector
from headwater.broker.collectors.quotas import QuotaCollector
from headwater.broker.collectors.requests import RequestCollector
from headwater.broker.request_meters import RequestMeters
from headwater.io import Address, Host
from headwater.net import Server
from headwater.net.metrics_server import MetricsServer
from headwater.observability.naming import CONFLUENT
from headwater.observability.registry import Registry

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.broker_channel import BrokerChannel
    from headwater.broker.cleaning import Cleaning
    from headwater.broker.controller_driver import ControllerDriver
    from headwater.broker.lifecycle import BrokerState
    from headwater.broker.metadata_log import MetadataLog
    from headwater.config.otlp import OtlpSettings
    from headwater.observability import Log
    from headwater.observability.measures import Traffic
    from headwater.quotas.clients import ClientQuotas

Run = Callable[[str, Coroutine[object, object, None]], None]


class NodeMetrics:
    def __init__(self, host: Host, *, node_id: int) -> None:
        self.registry = Registry()
        self.requests = RequestMeters()
        self.why_not_ready: Callable[[], str | None] = lambda: "starting"
        self.has_failed: Callable[[], bool] = lambda: False
        self._host = host
        self._node_id = node_id
        self._loop = LoopMeter(host.clock, host.workers)
        self._server: MetricsServer | None = None

    # Parts, as they are built

    def serve(self, host: str, port: int) -> Address:
        """Serves the registry by HTTP. Raises OSError, with the address."""
        server = self._server = MetricsServer(
            self._host,
            self.registry,
            why_not_ready=lambda: self.why_not_ready(),
            has_failed=lambda: self.has_failed(),
        )
        return server.start(host, port)

    def add_node(self, cluster_id: str, quotas: ClientQuotas, *servers: Server) -> None:
        collector = ProcessCollector(self._loop, node_id=self._node_id, cluster_id=cluster_id)
        self.registry.register(collector.collect)
        self.registry.register(RequestCollector(self.requests, self._host.clock.monotonic).collect)
        connections = ConnectionCollector(self._host.clock.monotonic, *servers)
        self.registry.register(connections.collect)
        self.registry.register(connections.collect_rates, naming=CONFLUENT)
        clients = QuotaCollector(quotas, self._host.clock.monotonic)
        self.registry.register(clients.collect)
        self.registry.register(clients.collect_by_type, naming=CONFLUENT)

    def add_cluster(
        self, metadata: MetadataLog, controller: ControllerDriver | None, quorum: Traffic
    ) -> None:
        """`controller` is None on a node that is only a broker; `quorum` counts what this node asks
        of the others."""
        collector = ClusterCollector(
            metadata, controller, self._host.clock, quorum=quorum, idle=lambda: self._loop.idle
        )
        self.registry.register(collector.collect)
        metadata.subscribe(collector.elections.follow)

    def add_broker(
        self,
        broker: Broker,
        cleaning: Cleaning,
        channel: BrokerChannel,
        run: Run,
        *,
        state: Callable[[], BrokerState],
        fetch_rate: Callable[[], float],
    ) -> None:
        """`channel` reaches other brokers, `run` starts a task of the node; `fetch_rate` tells how
        often it gets records from leaders."""
        from headwater.broker.collectors.broker import BrokerCollector
        from headwater.broker.collectors.groups import GroupCollector, TransactionCollector
        from headwater.broker.collectors.partitions import PartitionCollector
        from headwater.broker.log_ends import LogEnds

        clock = self._host.clock
        ends = LogEnds(broker.groups, broker.partitions, channel, lambda: broker.image, clock)
        for collector in (
            PartitionCollector(
                broker.partitions,
                broker.log_dirs,
                lambda: broker.image,
                sessions=broker.fetch_sessions,
                fetch_rate=fetch_rate,
                node_id=self._node_id,
            ),
            GroupCollector(broker.groups, ends, clock),
            TransactionCollector(broker.transactions, clock),
            BrokerCollector(state, broker.fetch_sessions, cleaning, broker.log_dirs),
        ):
            self.registry.register(collector.collect)
        broker.telemetry.export(self.registry)
        run("the lag of groups", ends.run())

    # Running

    async def export(self, settings: OtlpSettings, cluster_id: str, lines: Log) -> None:
        """Exports the registry until it is cancelled."""
        from headwater.broker.otlp_export import OtlpExport

        resource = {
            "service.name": "headwater",
            "service.namespace": cluster_id,
            "service.instance.id": str(self._node_id),
            "service.version": __version__,
        }
        await OtlpExport(self._host, self.registry, settings, lines, resource=resource).run()

    async def run(self) -> None:
        await self._loop.run()

    def stop(self) -> list[asyncio.Task[None]]:
        return self._server.stop() if self._server is not None else []
