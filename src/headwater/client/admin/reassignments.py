"""Partition reassignments: moving partitions to other brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.results import check, outcome
from headwater.client.errors import ClientError
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from headwater.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_FIXED_FACTOR_SINCE = 1


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A running reassignment: the current replicas, those being added, and those to be removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


async def reassign_partitions(
    admin: Admin,
    partitions: Mapping[TopicPartition, Sequence[int] | None],
    *,
    allow_replication_change: bool = True,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Starts moving each partition to these brokers, of which the first is the preferred leader;
    None cancels a running reassignment. Returns the error of each, or None."""
    wanted = {TopicPartition(*where): to for where, to in partitions.items()}

    async def round_of(
        keys: list[TopicPartition], deadline: float
    ) -> dict[TopicPartition, ClientError | None]:
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=admin._router.left_ms(deadline),
            allow_replication_factor_change=allow_replication_change,
            topics=[
                ReassignableTopic(
                    name=topic,
                    partitions=[
                        ReassignablePartition(partition_index=number, replicas=_replicas(to))
                        for number in numbers
                        for to in (wanted[TopicPartition(topic, number)],)
                    ],
                )
                for topic, numbers in by_topic(keys).items()
            ],
        )
        answer = await admin._router.controller(
            request, deadline, at_least=None if allow_replication_change else _FIXED_FACTOR_SINCE
        )
        check(answer.error_code, "reassignment of partitions", answer.error_message)
        results: dict[TopicPartition, ClientError | None] = {}
        for topic in answer.responses:
            for each in topic.partitions:
                where = TopicPartition(topic.name, each.partition_index)
                results[where] = outcome(each.error_code, str(where), each.error_message)
        return results

    return await admin._router.retry_pending(wanted, round_of, timeout_ms=timeout_ms)


def _replicas(to: Sequence[int] | None) -> list[int] | None:
    return None if to is None else list(to)


async def list_reassignments(
    admin: Admin,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Reassignment]:
    """Returns the running reassignments, of these partitions or of all."""
    topics = None if partitions is None else by_topic(partitions)
    deadline = admin._router.deadline(timeout_ms)
    answer = await admin._router.controller(
        ListPartitionReassignmentsRequest(
            timeout_ms=admin._router.left_ms(deadline),
            topics=None
            if topics is None
            else [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
                for name, numbers in topics.items()
            ],
        ),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, "the reassignments", answer.error_message)
    return {
        TopicPartition(topic.name, each.partition_index): Reassignment(
            tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
        )
        for topic in answer.topics
        for each in topic.partitions
    }
