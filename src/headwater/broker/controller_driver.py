"""The driver of the controller: appends decisions to the metadata log and awaits their commit.

Deciding, appending and applying happen without a break in the event loop, so the next command sees
the changes of this one; only the wait for the commit lets others in. A reply leaves only when
everything it is based on is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headwater.broker.metadata_log import MetadataLog
from headwater.broker.node_log import change_lines
from headwater.config import NodeConfig
from headwater.config.listeners import SECURITY_PROTOCOLS
from headwater.controller import Controller, Decision
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.metadata import Image
from headwater.metadata.features import supported_features
from headwater.model import OffsetAndEpoch
from headwater.observability import Log
from headwater.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

R = TypeVar("R")


class ControllerDriver:
    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataLog,
        log: Log,
        *,
        cluster_id: str,
    ) -> None:
        self._host = host
        self._config = config
        self._metadata = metadata
        self._log = log
        self._machine = Controller(cluster_id, config, host.random)
        self._seen: OffsetAndEpoch | None = None  # the end of all that was decided, once active

    @property
    def image(self) -> Image:
        """The image with all decisions, committed or not: for deciding, never for responses."""
        return self._machine.image

    @property
    def is_active(self) -> bool:
        """Whether this node still leads the epoch in which it became the controller."""
        seen, metadata = self._seen, self._metadata
        return seen is not None and metadata.is_leader and metadata.epoch == seen.epoch

    async def start(self) -> None:
        """Becomes the active controller if this node leads the log, and writes the first records of
        a new cluster. Does not wait for their commit: the first reply does."""
        if not self._metadata.is_leader:
            return
        now = self._host.clock.monotonic()
        machine = self._machine
        machine.load(
            self._metadata.replayed(), self._metadata.registration_offsets, self._metadata.log_end
        )
        machine.on_loaded(now)
        self._seen = OffsetAndEpoch(self._metadata.log_end, self._metadata.epoch)
        self._log.debug(f"active in epoch {self._seen.epoch} from offset {self._seen.offset}")
        self._do(
            machine.decide_activate(self._metadata.bootstrap, log_is_empty=self._metadata.is_new)
        )
        self._do(machine.decide_register_controller(self._registration()))

    def _registration(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._config.node_id,
            incarnation_id=self._host.random_id(),
            zk_migration_ready=False,
            listeners=[
                Listener(
                    name=at.name,
                    host=at.host or "localhost",
                    port=at.port,
                    security_protocol=SECURITY_PROTOCOLS.index(at.protocol),
                )
                for at in self._config.controller_endpoints
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
        decision = decide(self._machine)
        lines = list(change_lines(decision.records, self._machine.image))
        self._do(decision)
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

    async def run(self) -> None:
        """Runs the periodic tasks: fences silent brokers, returns leadership to preferred replicas,
        and elects unclean leaders where that is allowed.

        Kafka's controller also writes a NoOpRecord every `metadata.max.idle.interval.ms`, so that
        others can tell an idle leader from a lost one. An idle node should not write to its disk,
        so this one does that only while somebody follows.
        """
        clock = self._host.clock
        config = self._config
        balance = config.leader_imbalance_check_interval_seconds
        unclean = config.unclean_leader_election_interval_ms / 1000
        idle = config.metadata_max_idle_interval_ms / 1000
        started = clock.monotonic()
        next_balance, next_unclean, next_no_op = (
            started + balance,
            started + unclean,
            started + idle,
        )
        while True:
            wakes = [next_balance, next_unclean, self._machine.next_fencing() + 0.001]
            if idle and self._has_followers():
                wakes.append(next_no_op)
            await asyncio.sleep(max(0.0, min(wakes) - clock.monotonic()))
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
            if idle and now >= next_no_op:
                next_no_op = now + idle
                if self._has_followers():
                    await self.ask(lambda machine: machine.decide_no_op())

    def _has_followers(self) -> bool:
        quorum = self._metadata.describe_quorum()
        return len(quorum.voters) > 1 or bool(quorum.observers)
