"""Producers: those active in a partition, and fencing those of a transactional id."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    PartitionResponse,
    ProducerState,
    TopicRequest,
)
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

# Nobody begins a transaction with the epoch that fences, and every broker allows this timeout.
_FENCING_TIMEOUT_MS = 1


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer that a partition remembers. `transaction_start` is the first offset of its open
    transaction there, or None."""

    producer_id: int
    producer_epoch: int
    last_sequence: int | None
    last_timestamp: int | None
    coordinator_epoch: int | None = None
    transaction_start: int | None = None


@dataclass(frozen=True, slots=True)
class ProducerFence:
    """The new epoch of a transactional id; producers with an older one are fenced."""

    producer_id: int
    producer_epoch: int


async def describe_producers(
    admin: Admin,
    partitions: Iterable[TopicPartition],
    *,
    node_id: int | None = None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, tuple[ActiveProducer, ...] | ClientError]:
    """Returns the active producers of each partition, as reported by its leader or by the replica
    `node_id`."""

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, tuple[ActiveProducer, ...] | ClientError]:
        request = DescribeProducersRequest(
            topics=[
                TopicRequest(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(asked).items()
            ]
        )
        answer = await admin._router.ask(node, request, deadline)
        return {
            TopicPartition(topic.name, each.partition_index): _producers(topic.name, each)
            for topic in answer.topics
            for each in topic.partitions
        }

    wanted = [TopicPartition(*where) for where in partitions]
    if node_id is not None:
        return await admin._router.by_node(wanted, lambda _: node_id, ask, timeout_ms=timeout_ms)
    return await admin._router.by_leader(wanted, ask, timeout_ms=timeout_ms)


def _producers(topic: str, each: PartitionResponse) -> tuple[ActiveProducer, ...] | ClientError:
    if each.error_code:
        return error_for(each.error_code, f"{topic}-{each.partition_index}", each.error_message)
    return tuple(_producer(state) for state in each.active_producers)


def _producer(state: ProducerState) -> ActiveProducer:
    def known(number: int) -> int | None:
        return None if number < 0 else number

    return ActiveProducer(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=known(state.last_sequence),
        last_timestamp=known(state.last_timestamp),
        coordinator_epoch=known(state.coordinator_epoch),
        transaction_start=known(state.current_txn_start_offset),
    )


async def fence_producers(
    admin: Admin, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, ProducerFence | ClientError]:
    """Fences the producers with these transactional ids; an open transaction is aborted."""

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, ProducerFence | ClientError]:
        results: dict[str, ProducerFence | ClientError] = {}
        for key in keys:
            request = InitProducerIdRequest(
                transactional_id=key, transaction_timeout_ms=_FENCING_TIMEOUT_MS
            )
            answer = await admin._router.ask(node, request, deadline)
            results[key] = (
                error_for(answer.error_code, f"transactional id {key}")
                if answer.error_code
                else ProducerFence(answer.producer_id, answer.producer_epoch)
            )
        return results

    return await admin._router.by_coordinator(
        list(dict.fromkeys(transactional_ids)), ask, transactions=True, timeout_ms=timeout_ms
    )
