"""The driver that all log-backed coordinators share.

A machine decides; its records are appended as one batch and applied; whoever asked is answered
when the high watermark has passed all that was decided before. If an append fails, the machine is
dropped and loaded again from the log: nothing is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar

from headwater import _core
from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.errors import ApiError, ErrorCode
from headwater.groups.decision import Decision, Record, Token
from headwater.io import Clock, Workers
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.storage import Origin

_LOAD_BYTES = 4 * 1024 * 1024
# What a batch has around its records, and a record around its key and value, at the most.
_BATCH_BYTES = 61
_RECORD_BYTES_MAX = 32
_Encoded = tuple[bytes, bytes | None, tuple[()], int]


class Machine(Protocol):
    """What a coordinator's machine must be able to do for its driver."""

    def apply(self, record: Record, *, offset: int) -> None: ...

    def on_loaded(self, now: float) -> Decision: ...

    def on_unloaded(self) -> Decision: ...

    def next_deadline(self) -> float: ...

    def on_tick(self, now: float, now_ms: int) -> Decision: ...


class Codec(Protocol):
    """How records of a coordinator's topic become bytes and come back."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """None for records of a kind that is not known here, which newer nodes may write."""


M = TypeVar("M", bound=Machine)


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Shard(Generic[M]):
    """One partition of a coordinator's topic, while this broker leads it in one epoch."""

    def __init__(
        self,
        partition: Partition,
        make: Callable[[], M],
        on_loaded: Callable[[M], None],
        codec: Codec,
        clock: Clock,
        workers: Workers,
        lines: Lines,
    ) -> None:
        assert partition.leader is not None
        self.epoch = partition.leader.epoch
        self.state = State.LOADING
        self.machine: M = make()
        self._partition = partition
        self._make = make
        self._on_loaded = on_loaded
        self._codec = codec
        self._clock = clock
        self._workers = workers
        self._lines = lines
        self._next_token = 0
        self._waiting: dict[Token, asyncio.Future[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    # Loading

    async def load(self) -> None:
        """Replays the partition. What it holds beyond the high watermark counts too: a leader's
        log is the truth, and nothing is answered before it is committed."""
        started = self._clock.monotonic()
        machine = self._make()
        log = self._partition.log
        offset, count = log.start, 0
        while offset < log.end:
            found = log.read(offset, bytes_max=_LOAD_BYTES, upto=log.end)
            if found.slice is None:
                break
            data = await self._workers.run(found.slice.read)
            batches, _, _ = _core.scan(data, check_crc=False)
            if not batches:
                break
            control = {batch.base_offset for batch in batches if batch.is_control}
            for record in _core.decode(data, from_offset=offset, check_crc=False):
                if record.key is None or record.offset in control:
                    continue
                known = self._codec.decode(record.key, record.value)
                if known is not None:
                    machine.apply(known, offset=record.offset)
                    count += 1
            offset = batches[-1].last_offset + 1
        if self.state is State.CLOSED:
            return
        self._on_loaded(machine)
        self.machine = machine
        self.state = State.ACTIVE
        self._do(machine.on_loaded(self._clock.monotonic()))
        seconds = self._clock.monotonic() - started
        if count:
            self._lines.info(f"{self._partition.tp} loaded: {count} records in {seconds:.2f} s")

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def start(self) -> None:
        """Begins to load; requests are put off meanwhile."""
        self._spawn(self.load())

    # Asking

    def ask(self, call: Callable[[M, Token], Decision]) -> Message | Awaitable[Message]:
        """The answer to a request, at once where nothing has to be waited for."""
        self.check()
        token = self._next_token
        self._next_token += 1
        decision = call(self.machine, token)
        now_due = self._commit(decision)
        if now_due is not None and len(now_due) == 1 and now_due[0][0] == token:
            self._arm()
            return now_due[0][1]
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        if now_due is not None:
            self._answer(now_due)
        else:
            self._spawn(self._answer_later(decision.replies))
        self._arm()
        return future

    def look(self, call: Callable[[M], Message]) -> Message:
        """An answer that changes nothing."""
        self.check()
        return call(self.machine)

    def check(self) -> None:
        if self.state is State.LOADING:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._partition.tp} is being loaded"
            )
        if self.state is State.CLOSED or self._partition.leader is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR, f"{self._partition.tp} is led elsewhere")

    def do(self, call: Callable[[M], Decision]) -> None:
        """Something happened that nobody asked about."""
        if self.state is State.ACTIVE and self._partition.leader is not None:
            self._do(call(self.machine))

    def _do(self, decision: Decision) -> None:
        due = self._commit(decision)
        if due is not None:
            self._answer(due)
        else:
            self._spawn(self._answer_later(decision.replies))
        self._arm()

    def _commit(self, decision: Decision) -> Sequence[tuple[Token, Message]] | None:
        """Appends and applies; the replies if they may go out now, None if they have to wait."""
        for note in decision.notes:
            self._lines.info(note)
        if decision.records:
            self._append(decision)
        partition = self._partition
        if partition.high_watermark >= partition.log.end:
            return decision.replies
        return None

    def _append(self, decision: Decision) -> None:
        now_ms = self._clock.wall_ms()
        bytes_max = self._partition.log.config.max_message_bytes - _BATCH_BYTES
        records: list[Record] = []
        encoded: list[_Encoded] = []
        size = 0
        for record in decision.records:
            key, value = self._codec.encode(record)
            size += _RECORD_BYTES_MAX + len(key) + len(value or b"")
            if size > bytes_max and encoded and not decision.is_atomic:
                self._append_batch(records, encoded, now_ms)
                records, encoded = [], []
                size = _RECORD_BYTES_MAX + len(key) + len(value or b"")
            records.append(record)
            encoded.append((key, value, (), now_ms))
        self._append_batch(records, encoded, now_ms)

    def _append_batch(
        self, records: Sequence[Record], encoded: Sequence[_Encoded], now_ms: int
    ) -> None:
        batch = bytearray(_core.encode(encoded))
        try:
            appended = self._partition.append(
                batch, acks=ALL_IN_SYNC, now_ms=now_ms, origin=Origin.COORDINATOR
            )
        except ApiError as failure:
            self._start_again(failure)
            raise
        for number, record in enumerate(records):
            self.machine.apply(record, offset=appended.base_offset + number)

    def _start_again(self, failure: ApiError) -> None:
        self._lines.warn(f"{self._partition.tp} is loaded again, an append failed: {failure}")
        self._fail_waiting(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.state = State.LOADING
        self._spawn(self.load())

    async def _answer_later(self, replies: Sequence[tuple[Token, Message]]) -> None:
        try:
            wait = self._partition.replicated(self._partition.log.end)
            if wait is not None:
                await wait
        except ApiError as failure:
            for token, _ in replies:
                future = self._waiting.pop(token, None)
                if future is not None and not future.done():
                    future.set_exception(failure)
            return
        self._answer(replies)

    def _answer(self, replies: Sequence[tuple[Token, Message]]) -> None:
        for token, message in replies:
            future = self._waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(message)

    # Time

    def _arm(self) -> None:
        """One timer, for the next thing that the machine wants to do by itself."""
        deadline = self.machine.next_deadline()
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline != float("inf"):
            delay = max(0.0, deadline - self._clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        if self.state is not State.ACTIVE:
            return
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        try:
            self.do(lambda machine: machine.on_tick(now, now_ms))
        except ApiError as failure:
            self._lines.warn(f"{self._partition.tp}: {failure}")

    # Ending

    def close(self) -> list[asyncio.Task[None]]:
        """Leadership has gone, or the broker stops: whoever waits asks elsewhere. Gives the tasks
        that end with it."""
        if self.state is State.ACTIVE:
            self._answer(self.machine.on_unloaded().replies)
        self.state = State.CLOSED
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting(ErrorCode.NOT_COORDINATOR)
        return list(self._tasks)

    def _fail_waiting(self, code: ErrorCode) -> None:
        waiting = self._waiting
        self._waiting = {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(
                    ApiError(code, f"{self._partition.tp} is not coordinated here")
                )
