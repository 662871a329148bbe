"""Transactions: listing, describing, and aborting one that hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.producers import describe_producers, fence_producers
from headwater.client.admin.results import check, only, or_raise, outcome
from headwater.client.errors import ClientError, Refused, error_for
from headwater.errors import ErrorCode
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
# The states of a transaction that holds up readers: it is open, or its markers are on their way.
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")
_HANGING_AFTER_MS = 900_000  # transaction.max.timeout.ms by default


@dataclass(frozen=True, slots=True)
class TransactionListed:
    """An entry of a list of transactions; `state` is `Ongoing`, `Empty`, `CompleteCommit` and so
    on."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class HangingTransaction:
    """A transaction that is open in a partition and that no coordinator will ever end. Consumers
    with read_committed wait for it at `start`. `transactional_id` tells whose it is, if the
    producer still has that id."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int | None
    start: int
    last_timestamp: int | None
    transactional_id: str | None


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
    duration, and `pattern` (RE2) for the id. Raises Refused for a state that no broker knows."""
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
    unknown = set(request.state_filters)
    for node_id, answer in answers.items():
        if isinstance(answer, ClientError):
            raise answer
        check(answer.error_code, f"the transactions of node {node_id}")
        unknown.intersection_update(answer.unknown_state_filters)
        found += [
            TransactionListed(
                each.transactional_id, each.producer_id, each.transaction_state, node_id
            )
            for each in answer.transaction_states
        ]
    if unknown:
        raise Refused(
            f"no transaction is ever in state {', '.join(sorted(unknown))}: the states are Empty, "
            "Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort"
        )
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
    # Brokers keep the start of a transaction that has ended.
    is_open = state.transaction_state in OPEN_STATES
    return Transaction(
        transactional_id=state.transactional_id,
        state=state.transaction_state,
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        timeout_ms=state.transaction_timeout_ms,
        start_ms=state.transaction_start_time_ms if is_open else None,
        partitions=frozenset(
            TopicPartition(topic.topic, number)
            for topic in state.topics
            for number in topic.partitions
        ),
        coordinator=coordinator,
    )


async def force_terminate_transaction(
    admin: Admin, transactional_id: str, *, timeout_ms: int | None = None
) -> None:
    """Aborts the open transaction of a transactional id, also one that is prepared (KIP-939), and
    fences its producer."""
    only(await fence_producers(admin, [transactional_id], timeout_ms=timeout_ms))


async def find_hanging_transactions(
    admin: Admin,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    older_than_ms: int = _HANGING_AFTER_MS,
    timeout_ms: int | None = None,
) -> list[HangingTransaction]:
    """Returns the transactions that are open in these partitions, or in all, and that their
    coordinators do not know. Only those count that have written nothing for `older_than_ms`, by
    default the longest timeout that brokers allow a transaction."""
    deadline = admin._router.deadline(timeout_ms)

    def left_ms() -> int:
        return admin._router.left_ms(deadline)

    if partitions is None:
        partitions = [
            TopicPartition(topic.name, number)
            for topic in await admin.list_topics(internal=True, timeout_ms=left_ms())
            for number in range(topic.partitions)
        ]
    before = admin._router.cluster.host.clock.wall_ms() - older_than_ms
    found = await describe_producers(admin, partitions, timeout_ms=left_ms())
    open_ones = [
        (tp, each, each.transaction_start)
        for tp, producers in or_raise(found).items()
        for each in producers
        if each.transaction_start is not None and (each.last_timestamp or 0) <= before
    ]
    owners, known = await _known(admin, {each.producer_id for _, each, _ in open_ones}, left_ms)
    return [
        HangingTransaction(
            tp,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            start,
            each.last_timestamp,
            owners.get(each.producer_id),
        )
        for tp, each, start in open_ones
        if (each.producer_id, tp) not in known
    ]


async def _known(
    admin: Admin, producer_ids: set[int], left_ms: Callable[[], int]
) -> tuple[dict[int, str], set[tuple[int, TopicPartition]]]:
    """Returns what coordinators know of these producers: their transactional ids, and the
    partitions of their transactions."""
    if not producer_ids:
        return {}, set()
    listed = await list_transactions(admin, producer_ids=sorted(producer_ids), timeout_ms=left_ms())
    described = await describe_transactions(
        admin, [each.transactional_id for each in listed], timeout_ms=left_ms()
    )
    owners = {each.producer_id: each.transactional_id for each in listed}
    known: set[tuple[int, TopicPartition]] = set()
    for each in listed:
        transaction = described[each.transactional_id]
        if not isinstance(transaction, ClientError):
            known |= {(each.producer_id, tp) for tp in transaction.partitions}
        elif transaction.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise transaction
    return owners, known


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
