"""Transactions: listing, describing, and aborting one that hangs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.results import check, only, outcome
from headwater.client.errors import ClientError, error_for
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from headwater.protocol.messages.list_transactions import ListTransactionsRequest
from headwater.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.connection import Connection

_DURATION_SINCE = 1
_PATTERN_SINCE = 2
_ANY_DURATION = -1


@dataclass(frozen=True, slots=True)
class TransactionListed:
    """An entry of a list of transactions; `state` is `Ongoing`, `Empty`, `CompleteCommit` and so
    on."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class Transaction:
    """A transactional id. `start_ms` (since 1970) and `partitions` are of its open transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    start_ms: int | None
    partitions: frozenset[TopicPartition]
    coordinator: str


async def list_transactions(
    admin: Admin,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    longer_than_ms: int | None = None,
    pattern: str | None = None,
    timeout_ms: int | None = None,
) -> list[TransactionListed]:
    """Returns the transactional ids of all coordinators. Filters: states, producer ids, minimum
    duration, and `pattern` (RE2) for the id."""
    least = None
    if longer_than_ms is not None:
        least = _DURATION_SINCE
    if pattern is not None:
        least = _PATTERN_SINCE
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=_ANY_DURATION if longer_than_ms is None else longer_than_ms,
        transactional_id_pattern=pattern,
    )
    answers = await admin._router.every_node(request, at_least=least, timeout_ms=timeout_ms)
    found = []
    for node_id, answer in answers.items():
        if isinstance(answer, ClientError):
            raise answer
        check(answer.error_code, f"the transactions of node {node_id}")
        found += [
            TransactionListed(each.transactional_id, each.producer_id, each.transaction_state)
            for each in answer.transaction_states
        ]
    return sorted(found, key=lambda each: each.transactional_id)


async def describe_transaction(
    admin: Admin, transactional_id: str, *, timeout_ms: int | None = None
) -> Transaction:
    """Returns what the coordinator of a transactional id knows about it."""
    return only(await describe_transactions(admin, [transactional_id], timeout_ms=timeout_ms))


async def describe_transactions(
    admin: Admin, transactional_ids: Iterable[str], *, timeout_ms: int | None = None
) -> dict[str, Transaction | ClientError]:
    """Returns the same for many transactional ids."""
    deadline = admin._router.deadline(timeout_ms)
    await admin._router.require(ApiKey.DESCRIBE_TRANSACTIONS, deadline)

    async def ask(
        node: Connection, keys: Sequence[str], deadline: float
    ) -> dict[str, Transaction | ClientError]:
        request = DescribeTransactionsRequest(transactional_ids=list(keys))
        answer = await admin._router.ask(node, request, deadline)
        return {
            each.transactional_id: error_for(
                each.error_code, f"transactional id {each.transactional_id}"
            )
            if each.error_code
            else _transaction(each, str(node.address))
            for each in answer.transaction_states
        }

    return await admin._router.by_coordinator(
        list(dict.fromkeys(transactional_ids)), ask, transactions=True, deadline=deadline
    )


def _transaction(state: TransactionState, coordinator: str) -> Transaction:
    return Transaction(
        transactional_id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=None if state.transaction_start_time_ms < 0 else state.transaction_start_time_ms,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in state.topics
            for number in topic.partitions
        ),
        coordinator=coordinator,
    )


async def abort_transaction(
    admin: Admin,
    partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int | None,
    timeout_ms: int | None = None,
) -> None:
    """Aborts a transaction that hangs in a partition, as its coordinator would:
    `describe_producers` tells the three numbers. Consumers with read_committed never see what it
    wrote there."""

    async def ask(
        node: Connection, asked: Sequence[TopicPartition], deadline: float
    ) -> dict[TopicPartition, ClientError | None]:
        marker = WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transaction_result=False,
            # No marker of its coordinator has come here yet: then any epoch will do.
            coordinator_epoch=coordinator_epoch or 0,
            topics=[
                WritableTxnMarkerTopic(
                    name=partition.topic, partition_indexes=[partition.partition]
                )
            ],
        )
        answer = await admin._router.ask(node, WriteTxnMarkersRequest(markers=[marker]), deadline)
        what = f"transaction of producer {producer_id} in {partition}"
        return {
            TopicPartition(topic.name, each.partition_index): outcome(each.error_code, what)
            for written in answer.markers
            for topic in written.topics
            for each in topic.partitions
        }

    only(await admin._router.by_leader([partition], ask, timeout_ms=timeout_ms))
