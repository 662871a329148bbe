"""Log directories of brokers: their space, their replicas, and moving replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.admin.results import outcome
from headwater.client.errors import ClientError
from headwater.client.requests.describe_log_dirs import LogDir
from headwater.client.requests.describe_log_dirs import describe_log_dirs as describe
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection


class Replica(NamedTuple):
    """A partition on one broker."""

    topic: str
    partition: int
    node_id: int


async def describe_log_dirs(
    admin: Admin,
    nodes: Iterable[int] | None = None,
    *,
    partitions: Iterable[TopicPartition] | None = None,
    timeout_ms: int | None = None,
) -> dict[int, dict[str, LogDir] | ClientError]:
    """Returns the directories of these brokers, or of all, by path, with their replicas of all
    partitions or of these."""
    return await describe(admin._router, nodes, partitions=partitions, timeout_ms=timeout_ms)


async def alter_replica_log_dirs(
    admin: Admin, moves: Mapping[Replica, str], *, timeout_ms: int | None = None
) -> dict[Replica, ClientError | None]:
    """Moves replicas to other directories of their brokers, in the background. A replica that does
    not exist yet will be created there."""
    wanted = {Replica(*replica): path for replica, path in moves.items()}

    async def ask(
        node: Connection, asked: Sequence[Replica], deadline: float
    ) -> dict[Replica, ClientError | None]:
        by_path: dict[str, list[TopicPartition]] = {}
        for each in asked:
            by_path.setdefault(wanted[each], []).append(TopicPartition(each.topic, each.partition))
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=name, partitions=numbers)
                        for name, numbers in by_topic(partitions).items()
                    ],
                )
                for path, partitions in by_path.items()
            ]
        )
        answer = await admin._router.ask(node, request, deadline)
        results: dict[Replica, ClientError | None] = {}
        for topic in answer.results:
            for each in topic.partitions:
                replica = Replica(topic.topic_name, each.partition_index, asked[0].node_id)
                what = f"{topic.topic_name}-{each.partition_index} to {wanted.get(replica)}"
                results[replica] = outcome(each.error_code, what)
        return results

    return await admin._router.by_node(
        list(wanted), lambda replica: replica.node_id, ask, timeout_ms=timeout_ms
    )
