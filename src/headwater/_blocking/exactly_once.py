"""The blocking `exactly_once`: consume, transform, produce, for scripts and threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from random import Random
from typing import Any

from headwater._blocking.consumer import Consumer
from headwater._blocking.producer import Producer
from headwater.client.backoff import Backoff
from headwater.client.consumer import ConsumedRecord
from headwater.client.deserializers import K, V
from headwater.client.errors import ClientClosed, ClientError, RetriableError
from headwater.client.exactly_once import (
    Positions,
    check_consumer,
    first_offsets,
    may_succeed,
    new_positions,
)
from headwater.model import TopicPartition

_POLL_MS = 1000


class TransactionBatch(list[ConsumedRecord[K, V]]):
    """The records of one transaction."""

    def __init__(self, records: Iterable[ConsumedRecord[K, V]], commit: Callable[[], None]) -> None:
        super().__init__(records)
        self._commit = commit

    def commit(self) -> None:
        """Commits now, before the body ends: then the loop may be left without doing the batch
        again. Raises AbortableError if the group was rebalanced, for one: a loop that goes on gets
        the batch again."""
        self._commit()


def exactly_once(
    consumer: Consumer[K, V], producer: Producer, *, records_max: int | None = None
) -> Generator[TransactionBatch[K, V]]:
    """Yields batches of records, each in a transaction of the producer; see
    `headwater.exactly_once`."""
    config = consumer.config
    check_consumer(config)
    backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
    random, failures = Random(), 0
    committed: Positions = {}
    while True:
        try:
            records = consumer.poll(_POLL_MS, records_max)
        except ClientClosed:
            if consumer.is_closing:
                return
            raise
        if not records:
            continue
        work = _Work(consumer, producer, first_offsets(records), committed)
        producer.begin_transaction()
        batch = TransactionBatch(records, work.commit)
        try:
            yield batch
        except BaseException:  # the loop was left
            with suppress(ClientError):
                work.undo()
            raise
        try:
            if not work.is_done:
                work.commit()
            failures = 0
        except ClientError as error:
            if isinstance(error, RetriableError):
                raise  # its outcome is unknown
            work.undo()
            if not may_succeed(error):
                raise
            failures += 1
            time.sleep(backoff.seconds(failures, random))


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

    def commit(self) -> None:
        offsets = new_positions(self._consumer.positions(), self._committed)
        if offsets:
            self._producer.send_offsets(offsets, self._consumer.group_metadata())
        self._producer.commit_transaction()
        self._committed |= offsets
        self.is_done = True

    def undo(self) -> None:
        """Goes back to where the batch began, and aborts."""
        if self.is_done:
            return
        self.is_done = True
        owned = self._consumer.assignment()
        for tp, offset in self._starts.items():
            if tp in owned:
                self._consumer.seek(tp, offset)
        self._producer.abort_transaction()
