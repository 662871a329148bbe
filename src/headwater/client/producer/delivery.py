"""Reports the outcome of records: to futures, to callbacks, and to `flush`."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping

from headwater.client.errors import ClientError, InvalidRecord
from headwater.client.producer.accumulator import Batch
from headwater.client.producer.records import RecordMetadata
from headwater.model import NO_SEQUENCE, NO_TIMESTAMP

_log = logging.getLogger("headwater.client")

Delivered = Callable[[RecordMetadata | None, ClientError | None], None]
Waiter = asyncio.Future[RecordMetadata] | Delivered
# The error, and whether the records had been sent, under a sequence.
OnFailed = Callable[[ClientError, bool], None]


def tell(waiter: Waiter, metadata: RecordMetadata | None, error: ClientError | None) -> None:
    """Reports one record. An exception of the user's callback is logged."""
    if isinstance(waiter, asyncio.Future):
        if waiter.done():  # the `send` was cancelled
            return
        if error is not None:
            waiter.set_exception(error)
        else:
            assert metadata is not None
            waiter.set_result(metadata)
        return
    try:
        waiter(metadata, error)
    except Exception:
        _log.exception("on_delivery failed")


class DeliveryReports:
    """The batches without an outcome, the flushes that wait for them, and failures that nobody
    awaits."""

    def __init__(self, on_failed: OnFailed | None = None) -> None:
        """`on_failed` is told of every failure, before those who wait for it."""
        self._on_failed = on_failed
        self._unsettled: dict[int, Batch] = {}  # by serial
        self._serial = 0
        self._flushes: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._first_failure: ClientError | None = None
        self._failures = 0

    def __len__(self) -> int:
        return len(self._unsettled)

    def begin(self, batch: Batch) -> None:
        self._serial += 1
        batch.serial = self._serial
        self._unsettled[batch.serial] = batch

    def replaced(self, batch: Batch, parts: list[Batch]) -> None:
        """Makes flushes that wait for a batch wait for its parts instead."""
        for part in parts:
            self.begin(part)
        if self._flushes:
            latest = parts[-1].serial
            self._flushes = deque(
                (max(serial, latest) if serial >= batch.serial else serial, future)
                for serial, future in self._flushes
            )
        self._end(batch)

    def _end(self, batch: Batch) -> None:
        assert not batch.settled
        batch.settled = True
        del self._unsettled[batch.serial]
        if self._flushes:
            oldest = next(iter(self._unsettled), self._serial + 1)
            while self._flushes and self._flushes[0][0] < oldest:
                future = self._flushes.popleft()[1]
                if not future.done():
                    future.set_result(None)

    # Outcomes

    def acknowledged(self, batch: Batch, base_offset: int, log_append_time: int) -> None:
        outgoing = batch.outgoing
        if outgoing.awaited:
            topic, partition = batch.tp
            for waiter, index, timestamp, key_size, value_size in outgoing.waiters:
                metadata = RecordMetadata(
                    topic,
                    partition,
                    base_offset + index if base_offset >= 0 else -1,
                    timestamp if log_append_time == NO_TIMESTAMP else log_append_time,
                    key_size,
                    value_size,
                )
                tell(waiter, metadata, None)
        self._end(batch)

    def failed(
        self, batch: Batch, error: ClientError, own: Mapping[int, ClientError] | None = None
    ) -> None:
        """Reports a failed batch; `own` has the errors of single records, by index."""
        outgoing = batch.outgoing
        if self._on_failed is not None:
            self._on_failed(error, batch.base_sequence != NO_SEQUENCE)
        for waiter, index, _, _, _ in outgoing.waiters:
            reason = own.get(index) if own else None
            # Each raises its own: a shared exception would collect all their tracebacks.
            tell(waiter, None, reason or type(error)(str(error), code=error.code))
        self.unheard(error, batch.count - outgoing.awaited)
        self._end(batch)

    def unheard(self, error: ClientError, records: int = 1) -> None:
        """Keeps the error of records that nobody awaits, for `flush` to raise."""
        if records:
            self._first_failure = self._first_failure or error
            self._failures += records

    def rejected(self, waiter: Waiter | None, error: BaseException) -> None:
        """Reports a record that was refused after its `submit` had returned."""
        if not isinstance(error, ClientError):  # such as a buffer that was closed meanwhile
            error = InvalidRecord(f"the record was not taken in: {type(error).__name__}: {error}")
        if self._on_failed is not None:
            self._on_failed(error, False)
        if waiter is not None:
            tell(waiter, None, error)
        else:
            self.unheard(error)

    def heard(self, metadata: RecordMetadata | None, error: ClientError | None) -> None:
        """Reports a record whose only callback is an interceptor's."""
        if error is not None:
            self.unheard(error)

    def raise_unheard(self) -> None:
        """Raises the first error since the last call, once."""
        first, count = self._first_failure, self._failures
        self._first_failure, self._failures = None, 0
        if first is not None:
            what = "1 record was" if count == 1 else f"{count} records were"
            raise type(first)(f"{what} not delivered: {first}", code=first.code)

    def forget_unheard(self) -> None:
        """Drops the errors that `flush` would raise: an aborted transaction has told of them."""
        self._first_failure, self._failures = None, 0

    # Flushing

    def settled(self) -> asyncio.Future[None]:
        """Returns a future that is done when all current batches have their outcome."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._unsettled:
            future.set_result(None)
        else:
            self._flushes.append((self._serial, future))
        return future
