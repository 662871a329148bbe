"""The driver that all coordinators share: a state machine whose log is one partition.

The machine decides; the driver appends the records of a decision as one batch, applies them to the
machine, and answers a request once the high watermark has passed everything its reply is based on.
The effects of a decision are carried out at the same time. If an append fails, or the machine
breaks, the machine is dropped and loaded again from the log: nothing is rolled back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from enum import Enum
from functools import partial
from struct import Struct
from typing import Generic, Protocol, TypeVar

from headwater import _core
from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.coordination import NO_PRODUCER, Decision, Effect, Record, Token
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock, Workers
from headwater.observability import Log as Lines
from headwater.observability import printable
from headwater.observability.measures import Window
from headwater.protocol import Message
from headwater.storage import UNGUARDED, Origin, Verification

_LOAD_BYTES = 4 * 1024 * 1024
# A load that takes at least this long is logged at level info.
_SLOW_LOAD_SECONDS = 1.0
# The pause before a failed load is tried again.
_RETRY_SECONDS = 1.0
# Notes have ids that clients choose.
_NOTE_LENGTH_MAX = 500
# The most that a batch adds to its records, and a record to its key and value.
_BATCH_BYTES = 61
_RECORD_BYTES_MAX = 32
_Encoded = tuple[bytes, bytes | None, tuple[()], int]

# The key of a control record: its version and its type.
_CONTROL_KEY = Struct(">hh")
_ABORT, _COMMIT = 0, 1


class Machine(Protocol):
    """The state machine of a coordinator, as the driver needs it."""

    def apply(self, record: Record, *, offset: int, producer_id: int) -> None:
        """Applies a record of the log; `producer_id` names the transaction it belongs to."""

    def apply_marker(self, producer_id: int, *, commits: bool) -> None:
        """Applies the end of a producer's transaction."""

    def on_loaded(self, now: float) -> Decision: ...

    def on_unloaded(self) -> Decision: ...

    def next_deadline(self) -> float: ...

    def on_tick(self, now: float, now_ms: int) -> Decision: ...


class Codec(Protocol):
    """Encodes and decodes the records of a coordinator's topic."""

    def encode(self, record: Record) -> tuple[bytes, bytes | None]: ...

    def decode(self, key: bytes, value: bytes | None) -> Record | None:
        """Returns None for a record of an unknown type, which a newer node may have written."""


M = TypeVar("M", bound=Machine)
R = TypeVar("R")
S = TypeVar("S")


class State(Enum):
    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"  # the log could not be loaded; another leader epoch tries again
    CLOSED = "closed"


class CoordinatorDriver(Generic[M]):
    """Runs one machine while this broker leads its partition in one leader epoch."""

    def __init__(
        self,
        partition: Partition,
        make: Callable[[], M],
        on_loaded: Callable[[M], None],
        codec: Codec,
        clock: Clock,
        workers: Workers,
        lines: Lines,
        *,
        commit_timeout_ms: int,
        load_bytes: int = _LOAD_BYTES,
        on_effects: Callable[[Sequence[Effect]], None] | None = None,
        loads: Window | None = None,
    ) -> None:
        """`loads` gets the seconds of each load."""
        assert partition.leader is not None
        self.epoch = partition.leader.epoch
        self.topic_id = partition.topic_id
        self.state = State.LOADING
        self.machine: M = make()
        self._partition = partition
        self._make = make
        self._on_loaded = on_loaded
        self._codec = codec
        self._clock = clock
        self._workers = workers
        self._lines = lines
        self._on_effects = on_effects
        self._loads = loads
        self._commit_seconds = commit_timeout_ms / 1000
        self._load_bytes = load_bytes
        self._next_token = 0
        self._waiting: dict[Token, asyncio.Future[Message]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")

    # Loading

    def start(self) -> None:
        """Starts to load; requests are refused with COORDINATOR_LOAD_IN_PROGRESS meanwhile."""
        self._spawn(self._load())

    async def _load(self) -> None:
        tp = self._partition.tp
        try:
            while self.state is State.LOADING:
                try:
                    await self.load()
                except ApiError as failure:
                    self._lines.warn(f"{tp} cannot be loaded yet: {failure}")
                    await asyncio.sleep(_RETRY_SECONDS)
        except Exception as error:
            # As in Kafka, such a partition has no coordinator; the others go on.
            self._lines.failure(f"{tp} cannot be loaded", error)
            self.state = State.FAILED

    async def load(self) -> None:
        """Replays the partition up to its log end. Records above the high watermark count too: the
        leader's log is the truth, and no reply leaves before what it is based on is committed."""
        started = self._clock.monotonic()
        machine = self._make()
        log = self._partition.log
        offset, count = log.start, 0
        while offset < log.end:
            found = log.read(offset, bytes_max=self._load_bytes, upto=log.end)
            if found.slice is None:
                break
            data = await self._workers.run(partial(log.load, found.slice))
            batches, _, _ = _core.scan(data, check_crc=False)
            if not batches:
                break
            count += self._replay(machine, data, batches, offset)
            offset = batches[-1].last_offset + 1
        if self.state is State.CLOSED:
            return
        self._on_loaded(machine)
        self.machine = machine
        decision = machine.on_loaded(self._clock.monotonic())
        self._append(decision)
        self.state = State.ACTIVE
        self._answer_when_committed(decision)
        now = self._clock.monotonic()
        seconds = now - started
        if self._loads is not None:
            self._loads.note(seconds, now)
        write = self._lines.info if seconds >= _SLOW_LOAD_SECONDS else self._lines.debug
        write(f"{self._partition.tp} loaded: {count} records in {seconds:.2f} s")

    def _replay(
        self, machine: M, data: bytes, batches: Sequence[_core.Batch], from_offset: int
    ) -> int:
        """Applies the records and markers of these batches; returns how many records."""
        count = 0
        remaining = iter(batches)
        batch = next(remaining)
        for record in _core.decode(data, from_offset=from_offset, check_crc=False):
            while record.offset > batch.last_offset:
                batch = next(remaining)
            if record.key is None:
                continue
            if batch.is_control:
                self._replay_marker(machine, batch.producer_id, record.key)
                continue
            known = self._codec.decode(record.key, record.value)
            if known is not None:
                machine.apply(known, offset=record.offset, producer_id=batch.producer_id)
                count += 1
        return count

    def _replay_marker(self, machine: M, producer_id: int, key: bytes) -> None:
        kind = _CONTROL_KEY.unpack_from(key)[1]
        if kind in (_ABORT, _COMMIT):  # other control records do not end a transaction
            machine.apply_marker(producer_id, commits=kind == _COMMIT)

    def _reload(self) -> None:
        self._fail_waiting(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.state = State.LOADING
        self.start()

    # Requests

    def ask(
        self, decide: Callable[[M, Token], Decision], *, often_writes: bool = True
    ) -> Message | Awaitable[Message]:
        """Returns the reply to a request: at once if it is known and committed, else an awaitable
        for the reply, which a later decision may bring.

        While too few replicas are in sync, requests are refused before anything is decided, for
        after a failed append the whole shard is loaded again. Only those that seldom write, as
        heartbeats do, are tried all the same: members must not expire meanwhile.
        """
        self.check()
        if often_writes:
            self._check_writable()
        token = self._next_token
        self._next_token += 1
        decision = self._decide(decide, token)
        replies = decision.replies
        if self._is_committed() and len(replies) == 1 and replies[0][0] == token:
            self._carry_out(decision.effects)
            self._arm()
            return replies[0][1]
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[token] = future
        self._answer_when_committed(decision)
        return future

    def ask_in_transaction(
        self,
        decide: Callable[[M, Token], Decision],
        *,
        producer_id: int,
        producer_epoch: int,
        guard: Verification | None,
    ) -> Message | Awaitable[Message]:
        """Returns the reply to a request whose records are part of a producer's transaction. The
        log's refusal comes before the decision: after a failed append the shard, which belongs to
        others, too, would be loaded again."""
        self.check()
        self._partition.log.producers.check_verified(producer_id, producer_epoch, guard)
        return self.ask(decide)

    def write_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Awaitable[None] | None:
        """Ends a producer's transaction, in the log and in the machine. Returns None if that is
        committed, else an awaitable."""
        self.check()
        try:
            self._partition.append_marker(
                producer_id,
                producer_epoch,
                commits=commits,
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction_version,
                now_ms=self._clock.wall_ms(),
            )
        except ApiError as refusal:
            raise _as_coordinator(refusal) from None
        try:
            self.machine.apply_marker(producer_id, commits=commits)
        except Exception:
            self._reload()
            raise
        return None if self._is_committed() else self._when_committed(None)

    def read(self, look: Callable[[M], R]) -> R | Awaitable[R]:
        """Returns what `look` finds in the machine, once it is committed: an offset that was read
        must not go back after a change of leader."""
        self.check()
        seen = look(self.machine)
        return seen if self._is_committed() else self._when_committed(seen)

    def _when_committed(self, seen: R) -> Awaitable[R]:
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()

        def then(failure: ApiError | None) -> None:
            if future.done():
                return
            if failure is not None:
                future.set_exception(failure)
            else:
                future.set_result(seen)

        self._after_commit(then)
        return future

    @property
    def is_writable(self) -> bool:
        """Whether enough replicas are in sync for a record to be appended."""
        try:
            self._partition.check_writable()
        except ApiError:
            return False
        return True

    def _check_writable(self) -> None:
        try:
            self._partition.check_writable()
        except ApiError as refusal:
            raise _as_coordinator(refusal) from None

    def check(self) -> None:
        """Raises ApiError if requests cannot be served now."""
        if self.state is State.LOADING:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{self._partition.tp} is being loaded"
            )
        if self.state is not State.ACTIVE or self._partition.leader is None:
            raise ApiError(
                ErrorCode.NOT_COORDINATOR, f"{self._partition.tp} is not coordinated here"
            )

    def run(self, decide: Callable[[M], Decision]) -> None:
        """Carries out a decision that no request waits for. Never raises: a failure is logged and
        the machine is loaded again, so that callers that report an event are not affected."""
        if self.state is not State.ACTIVE or self._partition.leader is None:
            return
        try:
            self._answer_when_committed(self._decide(decide))
        except ApiError as failure:
            self._lines.warn(f"{self._partition.tp}: {failure}")
        except Exception as error:
            self._lines.failure(f"{self._partition.tp}: the coordinator failed", error)

    # Decisions

    def _decide(self, decide: Callable[..., Decision], *arguments: Token) -> Decision:
        """Lets the machine decide, and appends and applies its records. An ApiError of the machine
        is a refusal; after any other error it may differ from its log, and is loaded again."""
        try:
            decision = decide(self.machine, *arguments)
        except ApiError:
            raise
        except Exception:
            self._reload()
            raise
        if decision.records or decision.notes:
            try:
                self._append(decision)
            except ApiError as failure:
                if decision.may_be_refused and failure.code in _TOO_LARGE:
                    raise _as_coordinator(failure) from None
                self._lines.warn(f"{self._partition.tp} is loaded again: append failed: {failure}")
                self._reload()
                raise _as_coordinator(failure) from None
            except Exception:
                self._reload()
                raise
        return decision

    def _append(self, decision: Decision) -> None:
        """Appends and applies the records of a decision, as one batch if it is atomic."""
        for note in decision.notes:
            write = self._lines.debug if note.is_routine else self._lines.info
            write(printable(note.text, _NOTE_LENGTH_MAX))
        if not decision.records:
            return
        now_ms = self._clock.wall_ms()
        bytes_max = self._partition.log.config.max_message_bytes - _BATCH_BYTES
        records: list[Record] = []
        encoded: list[_Encoded] = []
        size = 0
        for record in decision.records:
            key, value = self._codec.encode(record)
            size += _RECORD_BYTES_MAX + len(key) + len(value or b"")
            if size > bytes_max and encoded and not decision.is_atomic:
                self._append_batch(decision, records, encoded, now_ms)
                records, encoded = [], []
                size = _RECORD_BYTES_MAX + len(key) + len(value or b"")
            records.append(record)
            encoded.append((key, value, (), now_ms))
        self._append_batch(decision, records, encoded, now_ms)

    def _append_batch(
        self,
        decision: Decision,
        records: Sequence[Record],
        encoded: Sequence[_Encoded],
        now_ms: int,
    ) -> None:
        producer_id = decision.producer_id
        batch = bytearray(
            _core.encode(
                encoded,
                producer_id=producer_id,
                producer_epoch=decision.producer_epoch,
                transactional=producer_id != NO_PRODUCER,
            )
        )
        appended = self._partition.append(
            batch,
            acks=ALL_IN_SYNC,
            now_ms=now_ms,
            origin=Origin.COORDINATOR,
            guard=UNGUARDED,  # `ask_in_transaction` has looked at it
        )
        for number, record in enumerate(records):
            self.machine.apply(
                record, offset=appended.base_offset + number, producer_id=producer_id
            )

    # Replies

    def _is_committed(self) -> bool:
        partition = self._partition
        return partition.high_watermark >= partition.log.end

    def _answer_when_committed(self, decision: Decision) -> None:
        if self._is_committed():
            self._carry_out(decision.effects)
            self._answer(decision.replies)
        else:
            if decision.effects:
                self._carry_out_when_committed(decision.effects)
            if decision.replies:
                self._after_commit(lambda failure: self._answer_all(decision.replies, failure))
        self._arm()

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        if effects:
            assert self._on_effects is not None, f"nobody carries out {effects}"
            self._on_effects(effects)

    def _carry_out_when_committed(self, effects: Sequence[Effect]) -> None:
        """Unlike replies, effects wait for the commit as long as it takes: nobody asks for them
        again. A machine that was loaded again has decided anew what is under way."""
        machine = self.machine

        def done(failure: ApiError | None) -> None:
            if failure is None and self.state is State.ACTIVE and self.machine is machine:
                self._carry_out(effects)

        self._partition.when_replicated(self._partition.log.end, done)

    def _after_commit(self, then: Callable[[ApiError | None], None]) -> None:
        """Calls `then` when everything in the log is committed, or with the reason why it is not
        known to be within `offsets.commit.timeout.ms`."""
        partition, end = self._partition, self._partition.log.end

        def done(failure: ApiError | None) -> None:
            timer.cancel()
            then(None if failure is None else _as_coordinator(failure))

        def expire() -> None:
            partition.forget(end, done)
            text = f"{partition.tp}: not replicated within {self._commit_seconds:g} s"
            then(_as_coordinator(ApiError(ErrorCode.REQUEST_TIMED_OUT, text)))

        timer = asyncio.get_running_loop().call_later(self._commit_seconds, expire)
        partition.when_replicated(end, done)

    def _answer_all(
        self, replies: Sequence[tuple[Token, Message]], failure: ApiError | None
    ) -> None:
        if failure is None:
            self._answer(replies)
            return
        for token, _ in replies:
            future = self._waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_exception(failure)

    def _answer(self, replies: Sequence[tuple[Token, Message]]) -> None:
        for token, message in replies:
            future = self._waiting.pop(token, None)
            if future is not None and not future.done():
                future.set_result(message)

    def _fail_waiting(self, code: ErrorCode) -> None:
        waiting = self._waiting
        self._waiting = {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(
                    ApiError(code, f"{self._partition.tp} is not coordinated here")
                )

    # Time

    def _arm(self) -> None:
        """Sets the one timer to the machine's next deadline."""
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
        if not self.is_writable:  # what is due has to wait until it can be written
            self._timer = asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._on_timer)
            return
        now, now_ms = self._clock.monotonic(), self._clock.wall_ms()
        self.run(lambda machine: machine.on_tick(now, now_ms))

    # Tasks

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> list[asyncio.Task[None]]:
        """Ends the driver when leadership is lost or the broker stops: waiting requests are refused
        with NOT_COORDINATOR. Returns the tasks that are still ending."""
        if self.state is State.ACTIVE:
            self._answer(self.machine.on_unloaded().replies)
        self.state = State.CLOSED
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting(ErrorCode.NOT_COORDINATOR)
        return list(self._tasks)


# The log looks at the size of a batch before it writes any of it.
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

# Errors of the log, as clients of a coordinator know them.
_CODES = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def _as_coordinator(failure: ApiError) -> ApiError:
    return ApiError(_CODES.get(failure.code, failure.code), failure.message)


def gathered(parts: Sequence[R | Awaitable[R]], build: Callable[[list[R]], S]) -> S | Awaitable[S]:
    """Builds one response from what several reads returned, now if all of it is there."""
    if any(isinstance(part, Awaitable) for part in parts):
        return _gathered(parts, build)
    return build([part for part in parts if not isinstance(part, Awaitable)])


async def _gathered(parts: Sequence[R | Awaitable[R]], build: Callable[[list[R]], S]) -> S:
    return build([await part if isinstance(part, Awaitable) else part for part in parts])
