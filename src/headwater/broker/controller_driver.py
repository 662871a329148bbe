"""The driver of the controller: appends decisions to the metadata log and awaits their commit.

Deciding, appending and applying happen without a break in the event loop, so the next command sees
the changes of this one; only the wait for the commit lets others in. A reply leaves only when
everything it is based on is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from headwater.broker.broker_probes import BrokerProbes
from headwater.broker.metadata_log import MetadataLog
from headwater.broker.node_log import change_lines
from headwater.config import NodeConfig
from headwater.config.listeners import SECURITY_PROTOCOLS
from headwater.config.listeners import Listener as At
from headwater.controller import Controller, Decision
from headwater.controller.policies import Policies
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.metadata import BrokerRegistration, Image
from headwater.metadata.features import LEVEL_CONTROLLER_REGISTRATION, supported_features
from headwater.model import OffsetAndEpoch
from headwater.net import Connection
from headwater.observability import Log
from headwater.observability.histogram import Histogram
from headwater.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from headwater.storage import StorageFailed

R = TypeVar("R")

_FULL_DISK_SECONDS = 5.0


class ControllerDriver:
    """Becomes the active controller when this node leads the quorum and ends when it does not, any
    number of times. `run` must be running."""

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataLog,
        log: Log,
        *,
        cluster_id: str,
        policies: Policies = Policies(),  # noqa: B008  # immutable
    ) -> None:
        self._host = host
        self._config = config
        self._metadata = metadata
        self._log = log
        self._cluster_id = cluster_id
        self._policies = policies
        self.incarnation_id = host.random_id()
        self.endpoints: Sequence[At] = config.controller_endpoints  # as other nodes reach them
        self._machine = Controller(cluster_id, config, host.random, policies)
        self._seen: OffsetAndEpoch | None = None  # the end of all that was decided, once active
        self._turned = asyncio.Event()  # set when leadership, or the next thing to do, has changed
        self._wake_at = 0.0
        self._watched: dict[int, Connection] = {}  # by broker
        self._probes = BrokerProbes(host, config.node_id, self._fence_gone)
        self._activated = asyncio.Event()
        self.processing = Histogram()  # seconds for each command, without the wait for its commit
        metadata.on_leader_changed(self._turned.set)

    @property
    def image(self) -> Image:
        """The image with all decisions, committed or not: for deciding, never for responses."""
        return self._machine.image

    @property
    def is_active(self) -> bool:
        """Whether this node still leads the epoch in which it became the controller."""
        seen, metadata = self._seen, self._metadata
        return seen is not None and metadata.is_leader and metadata.epoch == seen.epoch

    async def run(self) -> None:
        """Is the active controller whenever this node leads the quorum."""
        while True:
            self._turned.clear()
            if not self._metadata.is_leader:
                await self._turned.wait()
                continue
            try:
                await self._activate()
                await self._do_chores()
            except StorageFailed:
                return  # the node stops: its metadata log, or its directory, has failed
            except ApiError as refusal:
                if refusal.code is ErrorCode.KAFKA_STORAGE_ERROR:
                    await self._on_full_disk(refusal)
                elif refusal.code is not ErrorCode.NOT_CONTROLLER:
                    raise
            finally:
                self._seen = None
                self._activated.clear()
                self._probes.stop()
            self._log.info("no longer the active controller")

    async def _on_full_disk(self, refusal: ApiError) -> None:
        """Leaves the quorum to voters whose disks have space; a sole voter waits until it has."""
        is_sole = len(self._metadata.describe_quorum().voters) == 1
        what = "waits for space" if is_sole else "resigns in favour of another voter"
        self._log.warn(f"the controller cannot write and {what}: {refusal.message}")
        if is_sole:
            await asyncio.sleep(_FULL_DISK_SECONDS)
        else:
            self._metadata.resign()

    async def _activate(self) -> None:
        """Loads what is committed, and writes the first records of a new cluster. Does not wait for
        their commit: the first reply does."""
        metadata = self._metadata
        end = OffsetAndEpoch(metadata.log_end, metadata.epoch)
        await metadata.committed(end)
        machine = self._machine = Controller(
            self._cluster_id, self._config, self._host.random, self._policies
        )
        machine.load(metadata.replayed(), dict(metadata.registration_offsets), end.offset)
        machine.on_loaded(self._host.clock.monotonic())
        self._seen = end
        self._log.debug(f"active in epoch {end.epoch} from offset {end.offset}")
        self._do(machine.decide_activate(metadata.bootstrap, log_is_empty=metadata.is_new))
        known = machine.image.controllers.get(self._config.node_id)
        can_register = machine.image.metadata_version >= LEVEL_CONTROLLER_REGISTRATION
        if can_register and (known is None or known.incarnation_id != self.incarnation_id):
            self._do(machine.decide_register_controller(self.registration()))
        self._activated.set()
        if len(metadata.describe_quorum().voters) > 1:
            self._log.info(f"the active controller in epoch {end.epoch}")
        for broker in machine.image.brokers.values():
            self._probes.probe(broker)

    def watch(self, broker_id: int, connection: Connection) -> None:
        """Watches the connection on which a broker sends its heartbeats: when it ends, the broker
        is fenced if nothing listens there."""
        if self._watched.get(broker_id) is not connection:
            self._watched[broker_id] = connection
            connection.on_gone[lambda: self._on_gone(broker_id, connection)] = None

    def probe(self, broker_id: int) -> None:
        """Fences a broker, in the background, if nothing listens at its addresses."""
        broker = self.image.brokers.get(broker_id)
        if self.is_active and broker is not None:
            self._probes.probe(broker)

    def _on_gone(self, broker_id: int, connection: Connection) -> None:
        if self._watched.get(broker_id) is not connection:
            return
        del self._watched[broker_id]
        self.probe(broker_id)

    async def _fence_gone(self, broker: BrokerRegistration) -> None:
        with contextlib.suppress(ApiError):  # no longer the controller: the next one probes again
            await self.ask(lambda machine: machine.decide_fence_gone(broker.id, broker.epoch))

    async def activated(self) -> None:
        """Returns when this node is the active controller."""
        await self._activated.wait()

    def registration(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=False,
            listeners=[
                Listener(
                    name=at.name,
                    host=at.host or "localhost",
                    port=at.port,
                    security_protocol=SECURITY_PROTOCOLS.index(at.protocol),
                )
                for at in self.endpoints
            ],
            features=[
                Feature(
                    name=name,
                    min_supported_version=levels.low,
                    max_supported_version=levels.high,
                )
                for name, levels in supported_features().items()
            ],
        )

    async def ask(self, decide: Callable[[Controller], Decision[R]]) -> R:
        """Returns the reply to a command once everything it is based on is committed; raises
        ApiError if the command is refused."""
        if not self.is_active:
            raise ApiError(ErrorCode.NOT_CONTROLLER, "this node does not lead the quorum")
        clock = self._host.clock
        began = clock.monotonic()
        decision = decide(self._machine)
        lines = list(change_lines(decision.records, self._machine.image))
        self._do(decision)
        self.processing.note(clock.monotonic() - began)
        if self._machine.next_fencing() < self._wake_at:
            self._turned.set()
        await self.committed()
        for line in lines:
            self._log.info(line)
        return decision.reply

    def _do(self, decision: Decision[R]) -> None:
        for records in decision.batches():
            end = self._metadata.append(
                records, metadata_version=self._machine.image.metadata_version
            )
            self._machine.apply(records, end.offset - len(records))
            self._seen = end
            if self._log.is_debug:
                kinds = ", ".join(dict.fromkeys(type(record).__name__ for record in records))
                self._log.debug(f"{len(records)} records up to offset {end.offset}: {kinds}")

    async def committed(self) -> None:
        """Waits until everything decided so far is committed and in the broker's image."""
        if self._seen is not None:
            await self._metadata.committed(self._seen)

    async def _do_chores(self) -> None:
        """Runs the periodic tasks while this node is active: fences silent brokers, returns
        leadership to preferred replicas, elects unclean leaders where that is allowed, and removes
        expired delegation tokens.

        Kafka's controller also writes a NoOpRecord every `metadata.max.idle.interval.ms`, so that
        others can tell an idle leader from a lost one. An idle node should not write to its disk,
        so this one does that only while somebody follows.
        """
        clock = self._host.clock
        config = self._config
        balance = config.leader_imbalance_check_interval_seconds
        unclean = config.unclean_leader_election_interval_ms / 1000
        idle = config.metadata_max_idle_interval_ms / 1000
        sweep = _token_sweep_seconds(config)
        started = clock.monotonic()
        next_balance, next_unclean, next_no_op, next_sweep = (
            started + balance,
            started + unclean,
            started + idle,
            started + sweep,
        )
        while True:
            wakes = [next_balance, next_unclean, next_sweep, self._machine.next_fencing() + 0.001]
            if idle and self._has_followers():
                wakes.append(next_no_op)
            self._wake_at = min(wakes)
            self._turned.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, self._wake_at - clock.monotonic())):
                    await self._turned.wait()
            now = clock.monotonic()
            if not self.is_active:
                return
            if now > self._machine.next_fencing():
                await self.ask(lambda machine, now=now: machine.decide_fence_stale(now))  # type: ignore[misc]
            if now >= next_unclean:
                next_unclean = now + unclean
                await self.ask(lambda machine: machine.decide_elect_unclean())
            if now >= next_balance:
                next_balance = now + balance
                if config.auto_leader_rebalance_enable:
                    await self.ask(lambda machine: machine.decide_balance_leaders())
            if now >= next_sweep:
                next_sweep = now + sweep
                await self.ask(self._remove_expired_tokens)
            if idle and now >= next_no_op:
                next_no_op = now + idle
                if self._has_followers():
                    await self.ask(lambda machine: machine.decide_no_op())

    def _remove_expired_tokens(self, machine: Controller) -> Decision[None]:
        return machine.decide_remove_expired_tokens(now_ms=self._host.clock.wall_ms())

    def _has_followers(self) -> bool:
        quorum = self._metadata.describe_quorum()
        return len(quorum.voters) > 1 or bool(quorum.observers)


def _token_sweep_seconds(config: NodeConfig) -> float:
    """Returns how often to look for expired tokens; never where there are none."""
    if not config.value("delegation.token.secret.key"):
        return math.inf
    interval_ms = config.value("delegation.token.expiry.check.interval.ms")
    assert isinstance(interval_ms, int)
    return interval_ms / 1000
