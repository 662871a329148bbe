"""Leader elections on request."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from headwater.client.admin.results import check, outcome
from headwater.client.errors import ClientError
from headwater.client.requests.routing import by_topic
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_KINDS = {"preferred": 0, "unclean": 1}
_UNCLEAN_SINCE = 1

Election = Literal["preferred", "unclean"]


async def elect_leaders(
    admin: Admin,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    kind: Election = "preferred",
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ClientError | None]:
    """Elects the first replica of each partition (`preferred`), or any live one where no in-sync
    replica is left (`unclean`: records that only other replicas have are lost). None for the
    partitions means all. Succeeds if the leader is already the right one."""
    topics = None if partitions is None else by_topic(partitions)
    deadline = admin._router.deadline(timeout_ms)
    request = ElectLeadersRequest(
        election_type=_KINDS[kind],
        topic_partitions=None
        if topics is None
        else [TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()],
        timeout_ms=admin._router.left_ms(deadline),
    )
    answer = await admin._router.controller(
        request, timeout_ms=timeout_ms, at_least=_UNCLEAN_SINCE if kind == "unclean" else None
    )
    check(answer.error_code, "election of leaders")
    results: dict[TopicPartition, ClientError | None] = {}
    for topic in answer.replica_election_results:
        for each in topic.partition_result:
            where = TopicPartition(topic.topic, each.partition_id)
            code = 0 if each.error_code == ErrorCode.ELECTION_NOT_NEEDED else each.error_code
            results[where] = outcome(code, f"leader of {where}", each.error_message)
    return results
