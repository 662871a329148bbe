"""Log directories of brokers: their space, their replicas, and moving replicas between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headwater.client.admin.results import outcome
from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headwater.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica in a directory. A future replica is being moved there from another directory."""

    size_bytes: int
    lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker; `error` tells why it is offline. What older brokers do not report is
    None."""

    path: str
    replicas: Mapping[TopicPartition, ReplicaLog] = field(default_factory=dict)
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False
    error: ClientError | None = None

    @property
    def size_bytes(self) -> int:
        """The size of all replicas in it."""
        return sum(replica.size_bytes for replica in self.replicas.values())


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
    topics = None if partitions is None else by_topic(partitions)
    request = DescribeLogDirsRequest(
        topics=None
        if topics is None
        else [
            DescribableLogDirTopic(topic=name, partitions=numbers)
            for name, numbers in topics.items()
        ]
    )
    answers = await admin.router.every_node(request, nodes=nodes, timeout_ms=timeout_ms)
    results: dict[int, dict[str, LogDir] | ClientError] = {}
    for node_id, answer in answers.items():
        if isinstance(answer, ClientError):
            results[node_id] = answer
        elif answer.error_code:
            results[node_id] = error_for(answer.error_code, f"the directories of node {node_id}")
        else:
            results[node_id] = {each.log_dir: _log_dir(each) for each in answer.results}
    return results


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=result.log_dir,
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaLog(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in result.topics
            for each in topic.partitions
        },
        total_bytes=None if result.total_bytes < 0 else result.total_bytes,
        usable_bytes=None if result.usable_bytes < 0 else result.usable_bytes,
        is_cordoned=result.is_cordoned,
        error=outcome(result.error_code, f"directory {result.log_dir}"),
    )


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
        answer = await admin.router.ask(node, request, deadline)
        results: dict[Replica, ClientError | None] = {}
        for topic in answer.results:
            for each in topic.partitions:
                replica = Replica(topic.topic_name, each.partition_index, asked[0].node_id)
                what = f"{topic.topic_name}-{each.partition_index} to {wanted.get(replica)}"
                results[replica] = outcome(each.error_code, what)
        return results

    return await admin.router.by_node(
        list(wanted), lambda replica: replica.node_id, ask, timeout_ms=timeout_ms
    )
