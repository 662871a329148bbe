"""Proposals of other in-sync sets on their way to the controller (AlterPartition).

One request is in flight at a time, with all partitions that have a proposal: after a broker was
lost, or has come back, these are thousands. A partition has at most one proposal
(`LeaderState.pending`), which stays until the controller has committed or refused it, or the
metadata shows what became of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock
from headwater.metadata.model import RECOVERED
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from headwater.replication.leader import IsrProposal

_RETRY_SECONDS = 0.05
_RETRY_SECONDS_MAX = 1.0
_TIMEOUT_MS = 30_000

# The controller has refused and will not commit: a replica was not ready after all.
_REFUSED = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
# The metadata that explains them is on its way; until then the proposal counts as possible.
_EXPLAINED_BY_METADATA = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)

Key = tuple[bytes, int]


class Channel(Protocol):
    """The way to the active controller."""

    async def ask(self, request: Message, *, timeout_ms: int) -> Message: ...


class IsrChanges:
    def __init__(
        self,
        config: NodeConfig,
        partitions: Partitions,
        channel: Channel,
        clock: Clock,
        lines: Lines,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._channel = channel
        self._clock = clock
        self._lines = lines
        self._broker_epoch = broker_epoch
        self._proposed: dict[Key, tuple[Partition, IsrProposal]] = {}
        self._sending: asyncio.Task[None] | None = None

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Takes the proposal of a partition, which replaces an older one."""
        self._proposed[partition.topic_id, partition.tp.partition] = partition, proposal
        if self._sending is None:
            self._sending = asyncio.ensure_future(self._send_all())

    async def run(self) -> None:
        """Looks for replicas that lag, until it is cancelled."""
        while True:
            await asyncio.sleep(self._config.replica_lag_time_max_ms / 2000)
            self.shrink()

    def shrink(self) -> None:
        now = self._clock.monotonic()
        for partition in self._partitions.all():
            partition.shrink(now)

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends the request in flight; returns its task."""
        if self._sending is None:
            return []
        self._sending.cancel()
        return [self._sending]

    async def _send_all(self) -> None:
        failures = 0
        try:
            while self._proposed:
                # Proposals of the same turn, such as those of one fetch, go together.
                await asyncio.sleep(min(_RETRY_SECONDS_MAX, _RETRY_SECONDS * failures))
                sent, self._proposed = self._proposed, {}
                again = await self._send(sent)
                for key, unsettled in again.items():
                    self._proposed.setdefault(key, unsettled)
                failures = failures + 1 if again else 0
        except Exception as error:
            self._lines.failure("in-sync replicas cannot be changed", error)
        finally:
            self._sending = None

    async def _send(
        self, proposed: dict[Key, tuple[Partition, IsrProposal]]
    ) -> dict[Key, tuple[Partition, IsrProposal]]:
        """Sends proposals; returns those to be sent again."""
        current = {
            key: (partition, proposal)
            for key, (partition, proposal) in proposed.items()
            if partition.leader is not None and partition.leader.pending is proposal
        }
        if not current:
            return {}
        try:
            response = await self._channel.ask(self._request(current), timeout_ms=_TIMEOUT_MS)
        except ApiError as failure:
            self._lines.debug(f"in-sync replicas cannot be changed yet: {failure}")
            return current
        assert isinstance(response, AlterPartitionResponse), f"{response} answers AlterPartition"
        if response.error_code:
            self._lines.debug(
                f"the controller refused in-sync replicas: {ErrorCode(response.error_code).name}"
            )
            return current
        return self._settle(current, response)

    def _request(self, proposed: dict[Key, tuple[Partition, IsrProposal]]) -> AlterPartitionRequest:
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for (topic_id, index), (_, proposal) in proposed.items():
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = AlterPartitionRequestTopicData(
                    topic_id=topic_id, partitions=[]
                )
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker, broker_epoch=epoch)
                        for broker, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                    # A leader that was elected uncleanly has recovered when it leads.
                    leader_recovery_state=RECOVERED,
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return AlterPartitionRequest(
            broker_id=self._config.node_id,
            broker_epoch=self._broker_epoch(),
            topics=list(topics.values()),
        )

    def _settle(
        self,
        proposed: dict[Key, tuple[Partition, IsrProposal]],
        response: AlterPartitionResponse,
    ) -> dict[Key, tuple[Partition, IsrProposal]]:
        again = dict(proposed)
        for topic in response.topics:
            for answer in topic.partitions:
                key = topic.topic_id, answer.partition_index
                if key in again and self._settle_one(*again[key], answer):
                    del again[key]
        return again

    def _settle_one(
        self,
        partition: Partition,
        proposal: IsrProposal,
        answer: AlterPartitionResponsePartitionData,
    ) -> bool:
        """Takes the answer to one proposal; returns whether that settles it."""
        if not answer.error_code:
            self._lines.debug(f"{partition.tp}: in sync are {answer.isr}")
            partition.on_altered(
                proposal,
                leader_epoch=answer.leader_epoch,
                isr=tuple(answer.isr),
                partition_epoch=answer.partition_epoch,
            )
            return True
        name = ErrorCode(answer.error_code).name
        self._lines.debug(f"{partition.tp}: {proposal.isr} is not in sync: {name}")
        partition.traffic.on_failed_isr_update()
        if answer.error_code in _REFUSED:
            partition.on_refused(proposal)
            return True
        return answer.error_code in _EXPLAINED_BY_METADATA
