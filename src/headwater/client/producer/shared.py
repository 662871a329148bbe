"""A transaction that several processes share: one owns it, others write in it.

The owner begins it and passes its `TransactionHandle`, which can be pickled, to the writers. Each
writer sends its records with a producer of `joining`, and tells the owner when `flush` has
returned; the owner adds offsets and commits. If a writer fails, or is not heard of, the owner
aborts. A writer that is late is refused by its epoch, once the transaction has ended.

    async with TransactionOwner("localhost:9092", transactional_id="orders-sink") as owner:
        handle = await owner.begin()
        ...  # in each writer:
        async with joining(handle, "localhost:9092") as producer:
            await producer.submit_arrow(rows, topic="orders")
            await producer.flush()
        ...  # in the owner, when all have flushed:
        await owner.send_offsets({TopicPartition("input", 0): 42}, "orders-sink")
        await owner.commit()

Only one writer may write to a partition in one transaction, because the batches of a partition are
numbered; a second attempt of a writer whose first may have sent something needs a new transaction.

This is for code such as the sink of Spark and not part of the public API.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headwater.client.cluster import Cluster
from headwater.client.config import Bootstrap, ProducerConfig
from headwater.client.errors import (
    AbortableError,
    ClientError,
    CommitOutcomeUnknown,
    ConfigError,
    InvalidTransactionState,
    RetriableError,
)
from headwater.client.producer.producer import Producer
from headwater.client.producer.sealed import SealedBatch
from headwater.client.requests.offset_commit import GroupMetadata, OffsetAndMetadata
from headwater.client.requests.offset_fetch import GroupOffsets, fetch_offsets
from headwater.client.requests.routing import Router
from headwater.client.requests.transactions import (
    TransactionHandle,
    add_partitions,
    end_transaction,
    init_producer,
    send_offsets,
)
from headwater.io import Host
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from headwater.client.settings import ProducerSettings

__all__ = ["TransactionHandle", "TransactionOwner", "joining", "rejoin", "submit_sealed"]


def joining(
    transaction: TransactionHandle,
    bootstrap: Bootstrap | None = None,
    *,
    config: Mapping[str, Any] | None = None,
    host: Host | None = None,
    **settings: Unpack[ProducerSettings],
) -> Producer:
    """Returns a producer that writes in a transaction which another process has begun and will end.
    `flush` and `close` raise if a record failed: then the transaction must be aborted."""
    settings["transactional_id"] = transaction.transactional_id
    producer = Producer(bootstrap, config=config, host=host, **settings)
    producer._joined = transaction
    return producer


def rejoin(producer: Producer, transaction: TransactionHandle) -> None:
    """Has a producer of `joining` take part in the next transaction. All that it was given for the
    one before must be flushed."""
    transactions = producer._open().transactions
    assert transactions is not None
    transactions.rejoin(transaction)


async def submit_sealed(producer: Producer, batch: SealedBatch) -> None:
    """Queues a batch of `sealed.BatchMaker`, maybe of another process. Waits while the buffer is
    full; `flush` raises later errors."""
    await producer._open().add_sealed(batch.topic, batch.partition, batch.records)


class TransactionOwner:
    """Begins and ends the transactions of a transactional id; others write in them.

    `begin` may be called at any time: it fences all that was begun before, by this process or
    another one, and aborts it.
    """

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        host: Host | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        self._config = ProducerConfig.build(bootstrap, config=config, **settings)
        if self._config.transactional_id is None:
            raise ConfigError("the owner of a transaction needs a transactional_id")
        self._transactional_id = self._config.transactional_id
        self._cluster = Cluster(self._config, host if host is not None else Host.system())
        self._open: TransactionHandle | None = None
        self._ends: bool | None = None  # how, once the coordinator was asked
        self._next: TransactionHandle | None = None  # granted by the end of the one before

    async def __aenter__(self) -> Self:
        await self._cluster.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnects. A transaction that is open stays so: it may be ended by its handle."""
        await self._cluster.close()

    def _deadline(self) -> float:
        return self._cluster.deadline(self._config.max_block_ms)

    async def begin(self) -> TransactionHandle:
        """Begins a transaction. After a commit of version 2 this sends no request."""
        if self._next is not None:
            self._open, self._next, self._ends = self._next, None, None
            return self._open
        found = await init_producer(
            self._cluster,
            self._transactional_id,
            timeout_ms=self._config.transaction_timeout_ms,
            deadline=self._deadline(),
        )
        self._open, self._ends = found.handle, None
        return found.handle

    def resume(self, handle: TransactionHandle) -> None:
        """Takes over a transaction that another process has begun, to end it."""
        self._open, self._next, self._ends = handle, None, None

    def hand_over(self) -> None:
        """Leaves the transaction to another process, which ends it by its handle."""
        self._open, self._next, self._ends = None, None, None

    async def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Adds partitions before they are written to. Writers do this by themselves; in the first
        generation one request for all of them is cheaper than one for each writer."""
        handle = self._handle()
        if not handle.uses_v2:
            await add_partitions(self._cluster, handle, partitions, deadline=self._deadline())

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, int | OffsetAndMetadata],
        group: str | GroupMetadata,
    ) -> None:
        """Commits offsets of a group, which may have no members, together with the transaction."""
        given = {
            tp: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
            for tp, each in offsets.items()
        }
        member = GroupMetadata(group) if isinstance(group, str) else group
        deadline = self._deadline()
        await send_offsets(self._cluster, self._handle(), given, member, deadline=deadline)

    async def committed(self, group: str, partitions: Iterable[TopicPartition]) -> GroupOffsets:
        """Returns the committed offsets of a group. Waits for the end of transactions, of any
        owner, that commit some."""
        router = Router(self._cluster, default_timeout_ms=self._config.max_block_ms)
        found = await fetch_offsets(router, {group: partitions}, require_stable=True)
        answer = found[group]
        if isinstance(answer, ClientError):
            raise answer
        return answer

    async def commit(self) -> None:
        """Commits. CommitOutcomeUnknown: commit again, and nothing else."""
        try:
            await self._end(commit=True)
        except RetriableError as error:
            raise CommitOutcomeUnknown(str(error), code=error.code) from error

    async def abort(self) -> None:
        """Aborts, including records of writers that have not reported them."""
        await self._end(commit=False)

    def _handle(self) -> TransactionHandle:
        if self._open is None:
            raise InvalidTransactionState("no transaction is open")
        return self._open

    async def _end(self, *, commit: bool) -> None:
        handle = self._handle()
        if self._ends is not None and self._ends != commit:
            asked = "commit" if self._ends else "abort"
            raise InvalidTransactionState(f"the outcome of the {asked} is unknown; {asked} again")
        self._ends = commit
        try:
            ended = await end_transaction(
                self._cluster, handle, commit=commit, deadline=self._deadline()
            )
        except AbortableError:
            self._ends = None  # it is known not to be committed
            raise
        self._open, self._ends = None, None
        if handle.uses_v2 and ended.uses_v2:
            self._next = ended
