"""The requests of a transaction: getting the producer's id, adding partitions and offsets, ending.

Each call retries until its deadline and then either succeeds or raises one of three kinds:

- `RetriableError`: no broker has answered in time, so the outcome is unknown; ask the same again;
- `AbortableError`: the transaction has to be aborted, its producer can go on;
- anything else: the producer can never continue, because it is fenced, say.

A `TransactionHandle` is all that a request needs, and it can be pickled: several processes may
write in one transaction, and another one may end it (`client.producer.shared`).

There are two generations (KIP-890). With `transaction.version` 2 a partition joins the transaction
with its first batch and a group with its offsets, and each transaction has its own epoch, which the
end of the one before brings. Before that, partitions and groups were added by requests of their own
and the epoch stayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster, Coordinator, CoordinatorKind
from headwater.client.connection import Connection
from headwater.client.errors import (
    AbortableError,
    ClientError,
    CommitFailed,
    FatalError,
    GroupForbidden,
    RequestTimedOut,
    RetriableError,
    UnsupportedVersion,
    code_of,
    error_for,
)
from headwater.client.requests.offset_commit import GroupMetadata, Offsets
from headwater.client.requests.routing import by_topic
from headwater.errors import RETRIABLE, ErrorCode
from headwater.model import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headwater.protocol.messages.end_txn import EndTxnRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

FEATURE = "transaction.version"
# The first versions of the second generation; the one before is the last of the first.
PRODUCE_V2 = 12
_END_V2 = 5
_OFFSETS_V2 = 5
# Later versions of these are for brokers among each other, and by topic id.
_ADD_PARTITIONS_MAX = 3
_OFFSETS_MAX = 5
_EXPECTED_SINCE = 3  # InitProducerId with the id and epoch that the caller has (KIP-360)
_TWO_PHASE_SINCE = 6  # KIP-939

# The transaction before is completed within milliseconds, and the next one waits for it.
CONCURRENT_BACKOFF = Backoff(first_ms=2, most_ms=100)


@dataclass(frozen=True, slots=True)
class TransactionHandle:
    """A producer of a transactional id: what its requests are signed with. `uses_v2` is the
    generation of its current transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    uses_v2: bool = True

    def __str__(self) -> str:
        return f"{self.transactional_id} (producer {self.producer_id}:{self.producer_epoch})"


@dataclass(frozen=True, slots=True)
class PreparedTransaction:
    """A transaction that is ready to be committed (KIP-939), as text `producer id:epoch`: store it
    where the decision is stored, and compare it after a crash."""

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Returns what `str` has written; ValueError for anything else."""
        producer_id, separator, epoch = text.partition(":")
        if not separator:
            raise ValueError(f"a prepared transaction is written as id:epoch, not {text!r}")
        return cls(int(producer_id), int(epoch))


class Verdict(Enum):
    """The consequence of an error code for the transaction."""

    RETRY = auto()
    ABORT = auto()
    FAIL = auto()


_FATAL = frozenset(
    {
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)
# An epoch that a broker finds too old may be that of a transaction which timed out; the coordinator
# knows, and says so when the transaction is aborted (KIP-588).
_FATAL_FOR_RECORDS = _FATAL - {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
_FATAL_FOR_OFFSETS = (_FATAL - {ErrorCode.INVALID_TXN_STATE}) | {
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
}
_ABORTABLE_AT_END = frozenset({ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.TRANSACTION_ABORTABLE})
_ABORTABLE_FOR_GROUP = _ABORTABLE_AT_END | {ErrorCode.GROUP_AUTHORIZATION_FAILED}


def verdict(api: ApiKey, code: int, *, aborting: bool = False) -> Verdict:
    """Returns what an error in the response to this request means. Where only the coordinator could
    say more, the transaction is aborted: that is always safe, and asks it."""
    known = code_of(code)
    if known in RETRIABLE:
        return Verdict.RETRY
    match api:
        case ApiKey.PRODUCE:
            fails = known in _FATAL_FOR_RECORDS
        case ApiKey.TXN_OFFSET_COMMIT:
            fails = known in _FATAL_FOR_OFFSETS
        case ApiKey.ADD_PARTITIONS_TO_TXN:
            fails = known in _FATAL
        case ApiKey.ADD_OFFSETS_TO_TXN:
            fails = known not in _ABORTABLE_FOR_GROUP
        case ApiKey.END_TXN:
            # An abort that would have to be aborted would never end.
            fails = aborting or known not in _ABORTABLE_AT_END
        case _:
            fails = True
    return Verdict.FAIL if fails else Verdict.ABORT


def judged(api: ApiKey, error: ClientError, *, aborting: bool = False) -> ClientError:
    """Returns the error of a broker as one of the three kinds."""
    assert error.code is not None
    match verdict(api, error.code, aborting=aborting):
        case Verdict.RETRY:
            return (
                error
                if isinstance(error, RetriableError)
                else RetriableError(str(error), code=error.code)
            )
        case Verdict.ABORT:
            return abortable(error)
        case Verdict.FAIL:
            lasts = not isinstance(error, AbortableError | RetriableError)
            return error if lasts else FatalError(str(error), code=error.code)


def abortable(error: ClientError) -> AbortableError:
    """Returns the error after which a transaction has to be aborted."""
    if isinstance(error, AbortableError):
        return error
    made = AbortableError(f"{error}; the transaction has to be aborted", code=error.code)
    made.__cause__ = error
    return made


# The producer's id


@dataclass(frozen=True, slots=True)
class Initialized:
    """The outcome of `init_producer`. `prepared` is a transaction that was kept."""

    handle: TransactionHandle
    prepared: PreparedTransaction | None = None


async def init_producer(
    cluster: Cluster,
    transactional_id: str,
    *,
    timeout_ms: int,
    deadline: float,
    current: TransactionHandle | None = None,
    two_phase: bool = False,
    keep_prepared: bool = False,
) -> Initialized:
    """Takes a transactional id over: an earlier producer is fenced, and its open transaction is
    aborted, or kept with `keep_prepared`. With `current` it takes the next epoch of that producer,
    and is refused if another one has taken over."""
    least, most = 0, _TWO_PHASE_SINCE - 1
    if two_phase:
        least = most = _TWO_PHASE_SINCE
    elif current is not None:
        least = _EXPECTED_SINCE
    request = InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=NO_PRODUCER_ID if current is None else current.producer_id,
        producer_epoch=NO_PRODUCER_EPOCH if current is None else current.producer_epoch,
        enable_2pc=two_phase,
        keep_prepared_txn=keep_prepared,
    )
    what = f"transactional id {transactional_id}"
    answer, connection = await _ask(
        cluster, _coordinator(transactional_id), request, what, least, most, deadline, _code
    )
    prepared = None
    if answer.ongoing_txn_producer_id != NO_PRODUCER_ID:
        prepared = PreparedTransaction(
            answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch
        )
    handle = TransactionHandle(
        transactional_id, answer.producer_id, answer.producer_epoch, serves_v2(connection)
    )
    return Initialized(handle, prepared)


def serves_v2(connection: Connection) -> bool:
    """Returns whether a transaction can be of the second generation."""
    return (
        connection.features.get(FEATURE, 0) >= 2
        and (connection.version(ApiKey.END_TXN) or 0) >= _END_V2
        and (connection.version(ApiKey.PRODUCE) or 0) >= PRODUCE_V2
    )


# What belongs to the transaction


async def add_partitions(
    cluster: Cluster,
    handle: TransactionHandle,
    partitions: Iterable[TopicPartition],
    *,
    deadline: float,
) -> None:
    """Adds partitions to a transaction of the first generation, before anything is written to
    them. In the second, the first batch does it."""
    grouped = by_topic(partitions)
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=handle.transactional_id,
        v3_and_below_producer_id=handle.producer_id,
        v3_and_below_producer_epoch=handle.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in grouped.items()
        ],
    )
    shown = ", ".join(grouped)
    await _ask(
        cluster,
        _coordinator(handle.transactional_id),
        request,
        f"topics {shown} in the transaction of {handle}",
        0,
        _ADD_PARTITIONS_MAX,
        deadline,
        _code_of_partitions,
    )


async def send_offsets(
    cluster: Cluster,
    handle: TransactionHandle,
    offsets: Offsets,
    group: GroupMetadata,
    *,
    deadline: float,
) -> None:
    """Commits offsets of a group when the transaction is committed. They are refused if the group
    has gone on without the member that `group` names."""
    if not offsets:
        return
    what = f"offsets of group {group.group_id} in the transaction of {handle}"
    if not handle.uses_v2:
        adding = AddOffsetsToTxnRequest(
            transactional_id=handle.transactional_id,
            producer_id=handle.producer_id,
            producer_epoch=handle.producer_epoch,
            group_id=group.group_id,
        )
        to = _coordinator(handle.transactional_id)
        await _ask(cluster, to, adding, what, 0, None, deadline, _code)
    request = TxnOffsetCommitRequest(
        transactional_id=handle.transactional_id,
        group_id=group.group_id,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        generation_id_or_member_epoch=group.generation_or_epoch,
        member_id=group.member_id,
        group_instance_id=group.instance_id,
        topics=[
            TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=each.offset,
                        committed_leader_epoch=each.leader_epoch,
                        committed_metadata=each.metadata,
                    )
                    for number in numbers
                    for each in (offsets[TopicPartition(topic, number)],)
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )
    least, most = (_OFFSETS_V2, _OFFSETS_MAX) if handle.uses_v2 else (0, _OFFSETS_V2 - 1)
    to = Coordinator(group.group_id, CoordinatorKind.GROUP)
    try:
        await _ask(cluster, to, request, what, least, most, deadline, _code_of_offsets)
    except GroupForbidden as error:  # from the search for the coordinator
        raise abortable(error) from error
    except AbortableError as error:
        if isinstance(error.__cause__, CommitFailed):
            raise abortable(
                CommitFailed(
                    f"{what}: the group has been rebalanced and the partitions may belong to "
                    "another member",
                    code=error.code,
                )
            ) from error.__cause__
        raise


# The end


async def end_transaction(
    cluster: Cluster, handle: TransactionHandle, *, commit: bool, deadline: float
) -> TransactionHandle:
    """Commits or aborts, and returns the handle for the next transaction.

    If it raises a RetriableError the outcome is unknown, and only the same may be asked again."""
    request = EndTxnRequest(
        transactional_id=handle.transactional_id,
        producer_id=handle.producer_id,
        producer_epoch=handle.producer_epoch,
        committed=commit,
    )
    least, most = (_END_V2, None) if handle.uses_v2 else (0, _END_V2 - 1)
    try:
        answer, connection = await _ask(
            cluster,
            _coordinator(handle.transactional_id),
            request,
            f"{'commit' if commit else 'abort'} of the transaction of {handle}",
            least,
            most,
            deadline,
            _code,
            aborting=not commit,
        )
    except FatalError as error:
        # With an epoch for each transaction this one is known to be aborted, as it is after its
        # timeout; another producer would have fenced this one. An abort brings the next epoch.
        if commit and handle.uses_v2 and error.code == ErrorCode.INVALID_TXN_STATE:
            raise abortable(error) from error
        raise
    if answer.producer_id == NO_PRODUCER_ID:  # the first generation
        return handle
    return replace(
        handle,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        uses_v2=serves_v2(connection),
    )


async def generation(cluster: Cluster, transactional_id: str, *, deadline: float) -> bool:
    """Returns whether the coordinator serves the second generation, as far as its connection has
    told."""
    to = _coordinator(transactional_id)
    return serves_v2(await cluster.coordinator(to.key, to.kind, deadline=deadline))


# Requests


def _coordinator(transactional_id: str) -> Coordinator:
    return Coordinator(transactional_id, CoordinatorKind.TRANSACTION)


def _code(answer: Any) -> int:
    code: int = answer.error_code
    return code


def _code_of_partitions(answer: Any) -> int:
    return _worst(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        [
            each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        ],
    )


def _code_of_offsets(answer: Any) -> int:
    return _worst(
        ApiKey.TXN_OFFSET_COMMIT,
        [each.error_code for topic in answer.topics for each in topic.partitions],
    )


def _worst(api: ApiKey, codes: list[int]) -> int:
    """Returns the code that decides: one that fails, else one that aborts, else one to retry after.
    OPERATION_NOT_ATTEMPTED only says that another partition has the reason."""
    order = [Verdict.RETRY, Verdict.ABORT, Verdict.FAIL]

    def weight(code: int) -> tuple[int, bool]:
        return order.index(verdict(api, code)), code != ErrorCode.OPERATION_NOT_ATTEMPTED

    return max((code for code in codes if code), key=weight, default=0)


async def _ask(
    cluster: Cluster,
    to: Coordinator,
    request: Message,
    what: str,
    at_least: int,
    at_most: int | None,
    deadline: float,
    read_code: Callable[[Any], int],
    *,
    aborting: bool = False,
) -> tuple[Any, Connection]:
    """Asks the coordinator, wherever it moves to, until it answers with success or an error that is
    not transient; raises the transient one at the deadline."""
    api = type(request).API
    assert api is not None
    retries, concurrent = cluster.retries(deadline), 0
    while True:
        try:
            # The caller's deadline ends the wait, not the connection, which others use.
            async with asyncio.timeout(max(0.0, deadline - cluster.now())):
                connection = await cluster.coordinator(to.key, to.kind, deadline=deadline)
                _check_version(connection, ApiKey(api), at_least, at_most, what)
                answer = await connection.ask(request, at_most=at_most)
        except TimeoutError:
            raise RequestTimedOut(f"{what}: no answer from {to} within the timeout") from None
        except RetriableError as error:
            cluster.coordinator_lost(to.key, to.kind)
            problem: ClientError = error
            code = 0
        else:
            code = read_code(answer)
            if not code:
                return answer, connection
            problem = judged(ApiKey(api), error_for(code, what), aborting=aborting)
            if not isinstance(problem, RetriableError):
                raise problem
            if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                cluster.coordinator_lost(to.key, to.kind)
        cluster.check()
        if code == ErrorCode.CONCURRENT_TRANSACTIONS:
            concurrent += 1
            wait = CONCURRENT_BACKOFF.seconds(concurrent, cluster.host.random)
            if cluster.now() + wait >= deadline:
                raise problem
            await asyncio.sleep(wait)
        elif not await retries.pause():
            raise problem


def _check_version(
    connection: Connection, api: ApiKey, at_least: int, at_most: int | None, what: str
) -> None:
    version = connection.version(api, at_most=at_most)
    if version is None or version < at_least:
        raise UnsupportedVersion(
            f"{what}: {connection.address} does not serve {APIS[api].name} in version {at_least}"
        )
