"""Resources that a broker requests from the controller on demand: producer ids and new topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from headwater.broker.context import Context
from headwater.broker.controller_channel import ControllerChannel
from headwater.broker.coordinators.groups import OFFSETS_TOPIC
from headwater.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from headwater.broker.lifecycle import Lifecycle
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.observability import Log as Lines
from headwater.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from headwater.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_IN_FLIGHT_MAX = 1000
_PRODUCER_ID_TIMEOUT_MS = 5000
_CREATED = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class ProducerIds:
    """Hands out producer ids from blocks. No id is given twice: what is left of a block at a stop
    is lost."""

    def __init__(self, channel: ControllerChannel, lifecycle: Lifecycle, node_id: int) -> None:
        self._channel = channel
        self._lifecycle = lifecycle
        self._node_id = node_id
        self._next = 0
        self._end = 0

    def take(self) -> int | None:
        """Returns an id if one is left of the block."""
        if self._next >= self._end:
            return None
        self._next += 1
        return self._next - 1

    async def next(self) -> int:
        while (taken := self.take()) is None:
            request = AllocateProducerIdsRequest(
                broker_id=self._node_id, broker_epoch=self._lifecycle.broker_epoch
            )
            block = await self._channel.ask(request, timeout_ms=_PRODUCER_ID_TIMEOUT_MS)
            if block.error_code:
                # As in Kafka: the client tries again, and finds the next block or a new epoch.
                raise ApiError(
                    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                    f"no producer ids: {ErrorCode(block.error_code).name}",
                )
            # Several callers may have waited: the block that came last wins, the rest is skipped.
            self._next = block.producer_id_start
            self._end = block.producer_id_start + block.producer_id_len
        return taken


class AutoTopics:
    """Creates topics in the background, each once at a time; clients ask again anyway."""

    def __init__(
        self, channel: ControllerChannel, config: Callable[[], NodeConfig], lines: Lines
    ) -> None:
        self._channel = channel
        self._config = config
        self._lines = lines
        self._under_way: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def create(self, names: Iterable[str], context: Context | None = None) -> None:
        """Creates topics for a client, whose rights the controller checks, or for this node."""
        wanted = [name for name in names if name not in self._under_way]
        room = _IN_FLIGHT_MAX - len(self._under_way)
        if not wanted or room <= 0:
            return
        wanted = wanted[:room]
        self._under_way.update(wanted)
        task = asyncio.ensure_future(self._create(wanted, context))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create(self, names: list[str], context: Context | None) -> None:
        config = self._config()
        request = CreateTopicsRequest(
            topics=[_topic_to_create(name, config) for name in names],
            timeout_ms=config.request_timeout_ms,
        )
        try:
            response = await self._ask(request, context, config.request_timeout_ms)
            for topic in response.topics:
                if topic.error_code not in _CREATED:
                    code = ErrorCode(topic.error_code).name
                    self._lines.bounded.warn(
                        f"topic {topic.name} cannot be created: {code}: {topic.error_message}"
                    )
        except ApiError as refusal:
            self._lines.bounded.warn(f"topics {', '.join(names)} cannot be created: {refusal}")
        finally:
            self._under_way.difference_update(names)

    async def _ask(
        self, request: CreateTopicsRequest, context: Context | None, timeout_ms: int
    ) -> CreateTopicsResponse:
        if context is None:
            response = await self._channel.ask(request, timeout_ms=timeout_ms)
        else:
            response = await self._channel.forward(context, request)
        assert isinstance(response, CreateTopicsResponse)
        return response

    def stop(self) -> list[asyncio.Task[None]]:
        """Cancels what is under way; returns the tasks to wait for."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)


def _topic_to_create(name: str, config: NodeConfig) -> CreatableTopic:
    if name == OFFSETS_TOPIC:
        return _internal_topic(
            name,
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "compression.type": "producer",
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTIONS_TOPIC:
        return _internal_topic(
            name,
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                # Half of a transaction must not be forgotten, whatever the cluster's default is.
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        )
    return CreatableTopic(name=name, num_partitions=-1, replication_factor=-1)


def _internal_topic(
    name: str, partitions: int, replication_factor: int, configs: Mapping[str, str]
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=text) for key, text in configs.items()],
    )
