"""A broker's membership in the cluster: registration, heartbeats, controlled shutdown.

The requests are those that a broker on another host would send; here they are calls of the
controller's driver.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.metadata_log import MetadataLog
from headwater.config import NodeConfig
from headwater.config.listeners import SECURITY_PROTOCOLS
from headwater.controller.brokers import HeartbeatReply
from headwater.errors import ApiError
from headwater.io import Address, Clock
from headwater.metadata.features import supported_features
from headwater.observability import Log as Lines
from headwater.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from headwater.storage import LogDirs

_SHUTDOWN_ATTEMPTS = 20


class Lifecycle:
    def __init__(
        self,
        config: NodeConfig,
        controller: ControllerDriver,
        metadata: MetadataLog,
        log_dirs: LogDirs,
        clock: Clock,
        lines: Lines,
    ) -> None:
        self._config = config
        self._controller = controller
        self._metadata = metadata
        self._log_dirs = log_dirs
        self._clock = clock
        self._lines = lines
        self.broker_epoch = -1
        self._leaving = False

    async def register(
        self, addresses: dict[str, Address], *, cluster_id: str, incarnation_id: bytes
    ) -> None:
        """Registers the broker with the addresses for clients, and gets it unfenced."""
        request = BrokerRegistrationRequest(
            broker_id=self._config.node_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation_id,
            listeners=list(self._listeners(addresses)),
            features=[
                Feature(
                    name=name, min_supported_version=levels.low, max_supported_version=levels.high
                )
                for name, levels in supported_features().items()
            ],
            rack=self._config.broker_rack,
            log_dirs=sorted(d.id for d in self._log_dirs.directories if d.health.is_online),
            previous_broker_epoch=self._previous_epoch(),
        )
        now = self._clock.monotonic()
        self.broker_epoch = await self._controller.ask(
            lambda machine: machine.decide_register_broker(request, now)
        )
        reply = await self._heartbeat()
        assert not reply.is_fenced, "a broker that has applied its own registration is unfenced"

    def _listeners(self, addresses: dict[str, Address]) -> Iterable[Listener]:
        advertised = {at.name: at for at in self._config.advertised_listeners}
        for at in self._config.broker_listeners:
            bound = addresses[at.name]
            told = advertised.get(at.name)
            yield Listener(
                name=at.name,
                # Without advertised listeners each client is told the address it connected to; what
                # is registered is for tools that read the metadata log.
                host=told.host if told else at.host or "localhost",
                port=told.port if told and told.port else bound.port,
                security_protocol=SECURITY_PROTOCOLS.index(at.protocol),
            )

    def _previous_epoch(self) -> int:
        """Returns the broker epoch of the last run if it stopped cleanly in every directory, or
        -1."""
        epochs = {d.broker_epoch_at_stop if d.was_clean else -1 for d in self._log_dirs.directories}
        return epochs.pop() if len(epochs) == 1 else -1

    async def _heartbeat(self, *, want_shut_down: bool = False) -> HeartbeatReply:
        request = BrokerHeartbeatRequest(
            broker_id=self._config.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata.applied - 1,
            want_fence=False,
            want_shut_down=want_shut_down,
            offline_log_dirs=sorted(d.id for d in self._log_dirs.offline()),
        )
        now = self._clock.monotonic()
        return await self._controller.ask(lambda machine: machine.decide_heartbeat(request, now))

    async def run(self) -> None:
        """Sends heartbeats until it is cancelled."""
        while True:
            await asyncio.sleep(self._config.broker_heartbeat_interval_ms / 1000)
            try:
                reply = await self._heartbeat()
            except ApiError as refusal:
                self._lines.warn(f"the controller rejected a heartbeat: {refusal}")
                continue
            if reply.is_fenced and not self._leaving:
                self._lines.warn("the controller has fenced this broker")

    async def shut_down(self) -> None:
        """Requests a controlled shutdown: leadership moves to other brokers first, where there are
        any."""
        self._leaving = True
        for _ in range(_SHUTDOWN_ATTEMPTS):
            if (await self._heartbeat(want_shut_down=True)).should_shut_down:
                return
        self._lines.warn("the controller did not confirm the shutdown; stopping anyway")
