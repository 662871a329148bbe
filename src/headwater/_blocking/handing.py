"""How records of plain threads come to a producer that lives on a loop in a thread of its own.

`submit` puts them into a queue of the core, which the loop's thread takes over in large pieces, so
that nothing passes between the threads for a single record. Whenever a thread waits for something
it loses the interpreter to the other, for milliseconds if that one is busy: so the pieces are
large, and who finds the queue full waits until half of it is gone.
"""

from __future__ import annotations

import asyncio
from threading import TIMEOUT_MAX, Condition
from typing import Any, NamedTuple

from headwater._blocking.loop import LoopThread
from headwater._core import Handover, Intake
from headwater.client.errors import BufferFull, ClientClosed
from headwater.client.producer import Producer
from headwater.client.producer.producer import Prepared

# What is in the queue is not in the producer's buffer yet, and bounded by itself.
_QUEUE_BYTES_MAX = 4 * 1024 * 1024
_RECORD_BYTES_MIN = 100  # what the smallest record counts for there
# Up to here a record fits whatever the settings are, unless they are below this themselves.
_SMALL_BYTES = 16 * 1024


class _Place(NamedTuple):
    """Somebody waits until so much is taken."""

    bytes: int
    records: int
    taken: asyncio.Future[None]


class Handing:
    """Made in the loop's thread. `submit` is for all others."""

    def __init__(self, producer: Producer, thread: LoopThread) -> None:
        small_bytes = min(_SMALL_BYTES, producer.config.max_request_size // 2)
        self._producer = producer
        self._thread = thread
        self._moved = Condition()
        self._carrier: asyncio.Task[None] | None = None
        self._taken_bytes = 0  # since the beginning, at least
        self._taken_records = 0
        self._line: list[_Place] = []
        self._handover = Handover(self, bytes_max=_QUEUE_BYTES_MAX, small_bytes=small_bytes)
        self.submit = self._handover.submit

    # In the loop's thread

    @property
    def is_idle(self) -> bool:
        """Whether nothing was submitted that is not taken over."""
        return not self._handover.waiting_bytes and (self._carrier is None or self._carrier.done())

    async def carry(self, timeout_ms: int | None = None) -> bool:
        """Waits until all that is in the queue now is taken over, and not for what comes all the
        time; whether that was done in time. If not, or if who waits is cancelled, it goes on all
        the same: a record that is in somebody's hands then must not get lost."""
        ahead = self._handover.waiting_bytes
        place = _Place(
            self._taken_bytes + ahead,
            self._taken_records + ahead // _RECORD_BYTES_MIN + 1,  # one may wait for room
            asyncio.get_running_loop().create_future(),
        )
        self._line.append(place)
        self._start_carrier()
        timeout = None if timeout_ms is None else timeout_ms / 1000
        done, _ = await asyncio.wait((place.taken,), timeout=timeout)
        for each in done:
            each.result()
        return bool(done)

    def _start_carrier(self) -> None:
        if self._carrier is None or self._carrier.done():
            carrier = self._producer.take_over(self, self._note_move)
            self._carrier = asyncio.get_running_loop().create_task(carrier)
            self._carrier.add_done_callback(self._note_end)

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
        # What has come meanwhile hides some of the bytes, so there may be more of them; and of
        # records there are at most so many. Whichever says first that it is done is right.
        self._taken_bytes += max(0, before - self._handover.waiting_bytes)
        self._taken_records += records

    def _note_move(self) -> None:
        """What was taken is in the producer's buffer now, or refused."""
        for place in self._line[:]:
            if place.bytes <= self._taken_bytes or place.records <= self._taken_records:
                self._line.remove(place)
                _tell(place.taken, None)
        if self._has_room():
            with self._moved:
                self._moved.notify_all()

    def _note_end(self, carrier: asyncio.Task[None]) -> None:
        """The queue is empty, or the producer takes nothing any more."""
        line, self._line = self._line, []
        error = carrier.exception() if line and not carrier.cancelled() else None
        for place in line:
            _tell(place.taken, error)

    def _has_room(self) -> bool:
        return self._handover.waiting_bytes <= _QUEUE_BYTES_MAX // 2

    async def close(self, timeout_ms: int | None) -> None:
        """Takes over what is there; nothing comes any more. What finds no room in time fails."""
        self._handover.close()
        if await self.carry(timeout_ms):
            return
        if self._carrier is not None:
            self._carrier.cancel()
            await asyncio.wait((self._carrier,))
        self._producer.reject(
            self,
            ClientClosed(f"the producer was closed and timeout_ms={timeout_ms} is over; not sent"),
        )

    # What the core calls, in the thread that submits

    def first(self) -> None:
        self._thread.soon(self._start_carrier)

    def full(self) -> None:
        timeout_ms = self._producer.config.max_block_ms
        with self._moved:
            # Kafka's way to wait for ever is more than a lock can be told.
            if not self._moved.wait_for(self._has_room, min(timeout_ms / 1000, TIMEOUT_MAX)):
                raise BufferFull(f"the buffer stayed full for max_block_ms={timeout_ms}")

    def apart(self, record: Prepared) -> None:
        """What may be refused is taken in before `submit` returns, so that it is said there."""

        async def behind() -> None:
            await self.carry()
            await self._producer.submit_in_line(record)

        self._thread.call(behind)

    def refused(self) -> None:
        """This thread may not submit, or none may any more."""
        self._thread.check()
        raise ClientClosed("the producer was closed; make a new one")

    # At the end

    def say_unclosed(self) -> None:
        """The program ends, or has dropped the producer, and nobody has closed it."""
        if not self._thread.is_closed and self._thread.is_ours:
            waiting_bytes = self._handover.waiting_bytes
            self._producer.say_unclosed("with", waiting_bytes=waiting_bytes)


def _tell(taken: asyncio.Future[None], error: BaseException | None) -> None:
    if taken.done():  # whoever waited has gone
        return
    if error is None:
        taken.set_result(None)
    else:
        taken.set_exception(error)
