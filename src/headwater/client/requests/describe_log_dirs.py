"""DescribeLogDirs: the directories of brokers, and the replicas in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from headwater.client.errors import ClientError, error_for
from headwater.client.requests.routing import Router, by_topic
from headwater.model import TopicPartition
from headwater.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResult,
)


@dataclass(frozen=True, slots=True)
class ReplicaLog:
    """A replica in a directory. A future one is being moved there from another directory."""

    size_bytes: int
    lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker; `error` says why it is offline. Sizes that older brokers do not
    report are None."""

    path: str
    replicas: Mapping[TopicPartition, ReplicaLog] = field(default_factory=dict)
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False
    error: ClientError | None = None

    @property
    def size_bytes(self) -> int:
        """Returns the size of all the replicas in it."""
        return sum(replica.size_bytes for replica in self.replicas.values())


async def describe_log_dirs(
    router: Router,
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
    answers = await router.every_node(request, nodes=nodes, timeout_ms=timeout_ms)
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
        error=error_for(result.error_code, f"directory {result.log_dir}")
        if result.error_code
        else None,
    )
