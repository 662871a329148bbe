"""Consume, transform, produce: each record is processed exactly once.

    async for batch in exactly_once(consumer, producer):
        for record in batch:
            producer.submit("results", transform(record.value))

Each batch is a transaction: what the body sends and the offsets of the batch are committed together
when the loop asks for the next one. No transaction is open while the loop waits for records, and
rebalances happen only there, so partitions are never given up with work half done. A member that
the group has gone on without cannot commit: its offsets are refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

from headwater._core import ConsumedRecord
from headwater.client.backoff import Backoff
from headwater.client.config import ConsumerConfig
from headwater.client.consumer import Consumer
from headwater.client.deserializers import K, V
from headwater.client.errors import (
    AbortableError,
    ClientClosed,
    ClientError,
    CommitFailed,
    ConfigError,
    RebalanceInProgress,
    RetriableError,
)
from headwater.client.producer import Producer
from headwater.client.producer.transaction_state import Phase
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.errors import ErrorCode
from headwater.model import TopicPartition

_POLL_MS = 1000

Positions = dict[TopicPartition, OffsetAndMetadata]


class TransactionBatch(list[ConsumedRecord[K, V]]):
    """The records of one transaction."""

    def __init__(
        self, records: Iterable[ConsumedRecord[K, V]], commit: Callable[[], Awaitable[None]]
    ) -> None:
        super().__init__(records)
        self._commit = commit

    async def commit(self) -> None:
        """Commits now, before the body ends: then the loop may be left without doing the batch
        again. Raises AbortableError, for example if the group was rebalanced: a loop that goes on
        gets the batch again."""
        await self._commit()


async def exactly_once(
    consumer: Consumer[K, V], producer: Producer, *, records_max: int | None = None
) -> AsyncGenerator[TransactionBatch[K, V]]:
    """Yields batches of records, each in a transaction of the producer.

    A batch is committed when the body has ended and the next one is asked for. If the body raises,
    or leaves the loop by `break` or `return`, its batch is aborted and the consumer goes back to
    where it began; `await batch.commit()` commits before that. If the commit fails because the
    group was rebalanced, or because a broker was too slow, the batch is aborted and read again; any
    other failure is aborted and raised. A commit whose outcome is unknown raises
    CommitOutcomeUnknown: close both clients and start again, and the group knows where to go on.

    The consumer needs a group, enable_auto_commit=False, and isolation_level="read_committed" (or
    "read_uncommitted", said explicitly); the producer needs a transactional_id that no other
    producer has. At most `records_max` records are in a batch (max_poll_records by default)."""
    check_consumer(consumer.config)
    transactions = producer._transactions()
    if transactions.undo is not None:  # a loop that was left, whose end has not been noticed yet
        await transactions.undo()
    config = consumer.config
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
    failures = 0
    committed: Positions = {}
    while True:
        try:
            records = await consumer.poll(_POLL_MS, records_max)
        except ClientClosed:
            if consumer.is_closing:
                return
            raise
        if not records:
            continue
        work = _Work(consumer, producer, first_offsets(records), committed)
        await work.begin()
        batch = TransactionBatch(records, work.commit)
        try:
            yield batch
        except BaseException:  # the loop was left
            with suppress(ClientError):
                await work.undo()
            raise
        try:
            if not work.is_done:
                await work.commit()
            failures = 0
        except ClientError as error:
            if isinstance(error, RetriableError):
                raise  # its outcome is unknown
            await work.undo()
            if not may_succeed(error):
                raise
            failures += 1
            await asyncio.sleep(backoff.seconds(failures, producer._cluster.host.random))


class _Work:
    """The transaction of one batch."""

    def __init__(
        self,
        consumer: Consumer[Any, Any],
        producer: Producer,
        starts: dict[TopicPartition, int],
        committed: Positions,
    ) -> None:
        self.is_done = False
        self._consumer = consumer
        self._producer = producer
        self._starts = starts
        self._committed = committed
        self._serial = 0
        self._turn = asyncio.Lock()

    async def begin(self) -> None:
        await self._producer.begin_transaction()
        transactions = self._producer._transactions()
        transactions.undo = self.undo
        self._serial = transactions.state.serial

    async def commit(self) -> None:
        offsets = new_positions(self._consumer.positions(), self._committed)
        if offsets:
            await self._producer.send_offsets(offsets, self._consumer.group_metadata())
        await self._producer.commit_transaction()
        self._committed |= offsets
        self._end()

    def _end(self) -> None:
        self.is_done = True
        self._producer._transactions().undo = None

    async def undo(self) -> None:
        """Goes back to where the batch began, and aborts. A second call waits for the first."""
        async with self._turn:
            if self.is_done:
                return
            owned = self._consumer.assignment()
            for tp, offset in self._starts.items():
                if tp in owned:
                    self._consumer.seek(tp, offset)
            state = self._producer._transactions().state
            if state.serial == self._serial and (state.is_open or state.phase is Phase.ABORTING):
                await self._producer.abort_transaction()
            self._end()


# What the loop of `headwater.blocking` needs as well


def check_consumer(config: ConsumerConfig) -> None:
    """Raises ConfigError if a consumer's settings would break the promise."""
    if config.group_id is None:
        raise ConfigError("exactly_once needs a consumer with a group, which keeps its offsets")
    if config.enable_auto_commit:
        raise ConfigError(
            "exactly_once commits the offsets in its transactions: create the consumer with "
            "enable_auto_commit=False"
        )
    if "isolation.level" not in config.explicit:
        raise ConfigError(
            "exactly_once should not read aborted records: create the consumer with "
            'isolation_level="read_committed", or say "read_uncommitted" if nobody writes '
            "transactions to its topics"
        )


def first_offsets(records: Iterable[ConsumedRecord[Any, Any]]) -> dict[TopicPartition, int]:
    """Returns the first offset of each partition."""
    starts: dict[TopicPartition, int] = {}
    for record in records:
        starts.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return starts


def new_positions(positions: Positions, committed: Positions) -> Positions:
    """Returns the positions that are not committed yet."""
    return {tp: each for tp, each in positions.items() if committed.get(tp) != each}


def may_succeed(error: ClientError) -> bool:
    """Returns whether the same batch may be committed in another transaction."""
    reason = error.__cause__ if isinstance(error, AbortableError) else error
    if isinstance(reason, CommitFailed | RebalanceInProgress | RetriableError):
        return True
    return error.code == ErrorCode.TRANSACTION_ABORTABLE
