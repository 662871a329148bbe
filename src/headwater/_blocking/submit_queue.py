"""Carries records from plain threads to a producer on a loop in its own thread.

`submit` puts them into a queue of the core, which the loop's thread takes over in large pieces, so
that nothing passes between the threads for a single record. A thread that waits loses the
interpreter to the other, for milliseconds if that one is busy: so the pieces are large, and a
thread that finds the queue full waits until half of it is gone.
"""

from __future__ import annotations

import asyncio
from threading import TIMEOUT_MAX, Condition
from typing import Any, NamedTuple

from headwater._blocking.loop import LoopThread
from headwater._core import Handover, Intake
from headwater.client.errors import BufferFull, ClientClosed
from headwater.client.producer import Producer
from headwater.client.producer.producer import Prepared, Running

# The queue is not part of the producer's buffer, and has its own bound.
_QUEUE_BYTES_MAX = 4 * 1024 * 1024
_RECORD_BYTES_MIN = 100  # what the smallest record counts for there
# Up to here a record fits whatever the settings are, unless they are below this themselves.
_SMALL_BYTES = 16 * 1024


class _CarryWaiter(NamedTuple):
    """A call that waits until so much is taken."""

    bytes: int
    records: int
    taken: asyncio.Future[None]


class SubmitQueue:
    """Made in the loop's thread. `submit` is for all other threads."""

    def __init__(self, producer: Producer, running: Running, thread: LoopThread) -> None:
        self.running = running
        small_bytes = min(_SMALL_BYTES, producer.config.max_request_size // 2)
        self._producer = producer
        self._thread = thread
        self._moved = Condition()
        self._carrier: asyncio.Task[None] | None = None
        self._taken_bytes = 0  # since the beginning, at least
        self._taken_records = 0
        self._waiters: list[_CarryWaiter] = []
        self._handover = Handover(self, bytes_max=_QUEUE_BYTES_MAX, small_bytes=small_bytes)
        self.submit = self._handover.submit

    # In the loop's thread

    @property
    def is_idle(self) -> bool:
        """Whether the producer has taken all that was submitted."""
        return not self._handover.waiting_bytes and (self._carrier is None or self._carrier.done())

    async def carry(self, timeout_ms: int | None = None) -> bool:
        """Waits until the producer has taken all that is in the queue now, and not for what comes
        later; returns whether that was done in time. After a timeout or a cancellation the carrier
        goes on all the same: a record on its way must not get lost."""
        ahead = self._handover.waiting_bytes
        waiter = _CarryWaiter(
            self._taken_bytes + ahead,
            self._taken_records + ahead // _RECORD_BYTES_MIN + 1,  # one may wait for room
            asyncio.get_running_loop().create_future(),
        )
        self._waiters.append(waiter)
        self._start_carrier()
        timeout = None if timeout_ms is None else timeout_ms / 1000
        done, _ = await asyncio.wait((waiter.taken,), timeout=timeout)
        for each in done:
            each.result()
        return bool(done)

    def _start_carrier(self) -> None:
        if self._carrier is None or self._carrier.done():
            self._carrier = asyncio.get_running_loop().create_task(self._take_over())
            self._carrier.add_done_callback(self._note_end)

    async def _take_over(self) -> None:
        await self._producer._open().take_over(self, self._note_move)

    def pass_on(self, intake: Intake, records_max: int, /) -> tuple[int, list[Any]]:
        """See `Handover`."""
        before = self._handover.waiting_bytes
        taken, failed = self._handover.pass_on(intake, records_max)
        self._note_taken(taken, before)
        return taken, failed

    def pop(self) -> Prepared | None:
        """See `Handover`."""
        before = self._handover.waiting_bytes
        record = self._handover.pop()
        self._note_taken(int(record is not None), before)
        return record

    def _note_taken(self, records: int, before: int) -> None:
        # Records that came meanwhile hide some of the bytes, so more may have been taken; and the
        # number of records is an upper bound. Whichever count is reached first is right.
        self._taken_bytes += max(0, before - self._handover.waiting_bytes)
        self._taken_records += records

    def _note_move(self) -> None:
        """Wakes those who waited for what is now in the producer's buffer, or refused."""
        for waiter in self._waiters[:]:
            if waiter.bytes <= self._taken_bytes or waiter.records <= self._taken_records:
                self._waiters.remove(waiter)
                _tell(waiter.taken, None)
        if self._has_room():
            with self._moved:
                self._moved.notify_all()

    def _note_end(self, carrier: asyncio.Task[None]) -> None:
        """Wakes all waiters: the queue is empty, or the producer takes no more records."""
        waiters, self._waiters = self._waiters, []
        error = carrier.exception() if waiters and not carrier.cancelled() else None
        for waiter in waiters:
            _tell(waiter.taken, error)

    def _has_room(self) -> bool:
        return self._handover.waiting_bytes <= _QUEUE_BYTES_MAX // 2

    async def close(self, timeout_ms: int | None) -> None:
        """Refuses new records and has the rest taken; those that find no room in time fail."""
        self._handover.close()
        if await self.carry(timeout_ms):
            return
        if self._carrier is not None:
            self._carrier.cancel()
            await asyncio.wait((self._carrier,))
        self.running.reject(
            self,
            ClientClosed(
                f"the producer was closed and timeout_ms={timeout_ms} has passed; not sent"
            ),
        )

    # Called by the core, in the thread that submits

    def first(self) -> None:
        self._thread.soon(self._start_carrier)

    def full(self) -> None:
        timeout_ms = self._producer.config.max_block_ms
        with self._moved:
            # Kafka's value for "wait forever" exceeds what a lock accepts.
            if not self._moved.wait_for(self._has_room, min(timeout_ms / 1000, TIMEOUT_MAX)):
                raise BufferFull(f"the buffer stayed full for max_block_ms={timeout_ms}")

    def apart(self, record: Prepared) -> None:
        """Adds a record that may be refused before `submit` returns, so that `submit` raises."""

        async def behind() -> None:
            await self.carry()
            await self._producer._open().submit_when_room(record)

        self._thread.call(behind)

    def refused(self) -> None:
        """Raises why this thread may not submit."""
        self._thread.check()
        raise ClientClosed("the producer is closed; create a new one")

    # At the end

    def warn_unclosed(self) -> None:
        """Warns that the program ended or dropped the producer without closing it."""
        if not self._thread.is_closed and self._thread.is_ours:
            waiting_bytes = self._handover.waiting_bytes
            self._producer._warn_unclosed("with", waiting_bytes=waiting_bytes)


def _tell(taken: asyncio.Future[None], error: BaseException | None) -> None:
    if taken.done():  # the call that waited was cancelled
        return
    if error is None:
        taken.set_result(None)
    else:
        taken.set_exception(error)
