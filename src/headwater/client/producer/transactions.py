"""Transactions of a producer: the driver of `transaction_state`.

A commit flushes and asks the coordinator, an abort drops what is not sent and asks the coordinator;
both in the task of the caller. In the second generation nothing else is asked: a transaction of one
record is one produce request and one request for its end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Protocol, Self

from headwater.client.cluster import Cluster
from headwater.client.config import ProducerConfig
from headwater.client.errors import (
    AbortableError,
    ClientError,
    CommitOutcomeUnknown,
    InvalidTransactionState,
    RequestTimedOut,
    RetriableError,
    TransactionAborted,
)
from headwater.client.producer.metrics import TransactionMetrics
from headwater.client.producer.transaction_state import EndStep, Phase, TransactionState
from headwater.client.requests.offset_commit import GroupMetadata, OffsetAndMetadata, Offsets
from headwater.client.requests.transactions import (
    PreparedTransaction,
    TransactionHandle,
    add_partitions,
    end_transaction,
    generation,
    init_producer,
    send_offsets,
)
from headwater.errors import ErrorCode
from headwater.io.tasks import background_task
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from types import TracebackType

    from headwater.client.producer.producer import Producer, Running

_log = logging.getLogger("headwater.client")


class OffsetSource(Protocol):
    """A consumer whose positions are committed in a transaction."""

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]: ...

    def group_metadata(self) -> GroupMetadata: ...


OffsetsToSend = OffsetSource | Mapping[TopicPartition, int | OffsetAndMetadata]


class Transactions:
    """The transactions of one started producer. `joined` is one that another process has begun."""

    def __init__(
        self, config: ProducerConfig, cluster: Cluster, joined: TransactionHandle | None
    ) -> None:
        assert config.transactional_id is not None
        self.state = TransactionState()
        self.metrics = TransactionMetrics()
        self._config = config
        self._cluster = cluster
        self._transactional_id = config.transactional_id
        self._joined = joined
        self._running: Running | None = None  # once it is made
        self._adding: asyncio.Task[None] | None = None
        self._call: str | None = None  # what is going on
        # Aborts what a loop of `exactly_once` has left open, until it has noticed that it was left.
        self.undo: Callable[[], Awaitable[None]] | None = None

    async def start(self, running: Running) -> None:
        """Gets the producer's id, which fences an earlier producer of the transactional id."""
        self._running = running
        if self._joined is not None:
            self.state.joined(self._joined)
        else:
            with self.metrics.measuring("init", self._cluster.now):
                found = await init_producer(
                    self._cluster,
                    self._transactional_id,
                    timeout_ms=self._config.transaction_timeout_ms,
                    deadline=self._deadline(),
                    two_phase=self._config.transaction_two_phase_commit_enable,
                    keep_prepared=self._config.transaction_keep_prepared,
                )
            self.state.initialized(found.handle, found.prepared)
        self._use_handle()

    @property
    def is_joined(self) -> bool:
        """Whether another process has begun the transaction, and ends it."""
        return self._joined is not None

    def rejoin(self, handle: TransactionHandle) -> None:
        """Takes part in the next transaction of another process, when nothing is in flight."""
        assert self.state.is_joined
        self.state.joined(handle)
        self._use_handle()

    def _deadline(self) -> float:
        return self._cluster.deadline(self._config.max_block_ms)

    def _parts(self) -> Running:
        assert self._running is not None, "started first"
        return self._running

    def _use_handle(self) -> None:
        handle = self.state.handle
        self._parts().sender.renew(
            handle.producer_id, handle.producer_epoch, uses_v2=handle.uses_v2
        )

    @asynccontextmanager
    async def _calling(self, call: str) -> AsyncIterator[None]:
        """Keeps a second task from beginning or ending a transaction at the same time."""
        if self._call is not None:
            raise InvalidTransactionState(f"cannot {call}: a call to {self._call} is going on")
        self._call = call
        try:
            with self.metrics.measuring(call, self._cluster.now):
                yield
        finally:
            self._call = None

    # From the parts that send records

    def check_writable(self, serial: int | None = None) -> None:
        """Raises unless a record may be added to the transaction."""
        self.state.check_writable(serial)

    def may_send(self, tp: TopicPartition) -> bool:
        return self.state.may_send(tp)

    def began(self, tp: TopicPartition) -> None:
        """Notes that a batch for a partition is begun."""
        if self.state.write(tp) and self._adding is None:
            self._adding = background_task(self._add())

    async def _add(self) -> None:
        """Adds partitions to a transaction of the first generation, all that are wanted at once."""
        state = self.state
        try:
            while state.phase in (Phase.ACTIVE, Phase.COMMITTING):
                wanted = state.take_wanted()
                if not wanted:
                    return
                deadline = self._cluster.deadline(self._config.delivery_timeout_ms)
                await add_partitions(self._cluster, state.handle, wanted, deadline=deadline)
                state.on_added(wanted)
                self._parts().sender.advance()
        except ClientError as error:
            state.on_failed(error)
            self._on_phase()
        finally:
            self._adding = None

    def on_record_failed(self, error: ClientError, was_sent: bool) -> None:
        self.state.on_record_failed(error, was_sent=was_sent)
        self._on_phase()

    def _on_phase(self) -> None:
        """Fails the records of a transaction that can only be aborted, or of a producer that cannot
        continue."""
        state = self.state
        if state.phase is Phase.FATAL:
            assert state.error is not None
            self._parts().sender.fail(state.error)
        elif state.phase is Phase.ABORTABLE:
            cause = f"the transaction has to be aborted: {state.error}"
            self._parts().sender.spoil(TransactionAborted(cause))

    # Calls of the user

    async def begin(self) -> None:
        async with self._calling("begin"):
            self.state.check_ready()
            if self.state.needs_epoch:
                await self._renew(self._deadline())
            self.state.begin()

    async def send_offsets(self, offsets: Offsets, group: GroupMetadata) -> None:
        state = self.state
        if not offsets:
            if state.phase is not Phase.ACTIVE:
                raise state.refusal("send offsets")
            return
        async with self._calling("send_offsets"):
            state.send_offsets()
            try:
                await send_offsets(
                    self._cluster, state.handle, offsets, group, deadline=self._deadline()
                )
            except ClientError as error:
                state.on_failed(error)
                self._on_phase()
                if isinstance(error, RetriableError):
                    raise state.refusal("send offsets") from error
                raise
            except BaseException:
                # A cancelled call leaves open whether the offsets belong to the transaction.
                state.on_failed(AbortableError("send_offsets was cancelled"))
                self._on_phase()
                raise
            state.on_offsets()

    async def commit(self) -> None:
        async with self._calling("commit"):
            await self._flush("commit")
            state = self.state
            if state.next_step() is EndStep.TELL:
                try:
                    await self._tell(commit=True, deadline=self._deadline())
                except RetriableError as error:
                    raise CommitOutcomeUnknown(
                        f"{error}; the outcome of the commit is unknown: commit again",
                        code=error.code,
                    ) from error
            self._finish()

    async def _flush(self, doing: str) -> None:
        """Sends all that was added and waits for its outcome; from then on no record is added."""
        state, running = self.state, self._parts()
        if state.phase is Phase.ACTIVE and not state.is_joined:
            await running.topics.settled()  # records of unknown topics are added until then
        if doing == "prepare" and state.phase is not Phase.ACTIVE:
            raise state.refusal("prepare the transaction")
        state.begin_commit()
        await running.settled()
        state.next_step()  # raises if a record failed

    async def _tell(self, *, commit: bool, deadline: float) -> None:
        """Ends the transaction at the coordinator."""
        state = self.state
        state.on_end_asked()
        try:
            handle = await end_transaction(
                self._cluster, state.handle, commit=commit, deadline=deadline
            )
        except RetriableError:
            raise
        except ClientError as error:
            if not commit and state.may_be_unknown and error.code == ErrorCode.INVALID_TXN_STATE:
                state.on_never_begun()
                return
            state.on_failed(error)
            self._on_phase()
            raise
        state.on_ended(handle)
        if not handle.uses_v2:
            # The coordinator has just answered, so this sends no request.
            with suppress(ClientError):
                name = handle.transactional_id
                if await generation(self._cluster, name, deadline=deadline):
                    state.on_upgrade()

    async def _renew(self, deadline: float) -> None:
        """Gets another epoch (KIP-360). What is open at the coordinator is aborted."""
        state = self.state
        try:
            found = await init_producer(
                self._cluster,
                self._transactional_id,
                timeout_ms=self._config.transaction_timeout_ms,
                deadline=deadline,
                current=state.handle,
                two_phase=self._config.transaction_two_phase_commit_enable,
            )
        except RetriableError:
            raise
        except ClientError as error:
            state.on_failed(error)
            self._on_phase()
            raise
        self._parts().outcomes.metrics.epochs_bumped += 1
        state.on_renewed(found.handle)
        self._use_handle()

    def _finish(self) -> None:
        self.state.finish()
        self._use_handle()

    async def abort(self) -> None:
        async with self._calling("abort"):
            state, running = self.state, self._parts()
            state.begin_abort()
            deadline = self._deadline()
            aborted = TransactionAborted("the transaction was aborted")
            running.topics.abandon_held(aborted)
            running.sender.drop_unsent(aborted)
            try:
                async with asyncio.timeout(max(0.0, deadline - self._cluster.now())):
                    if self._adding is not None:
                        await asyncio.wait((self._adding,))
                    # What is in flight could otherwise arrive after the end.
                    await running.sender.quiet()
            except TimeoutError:
                raise RequestTimedOut(
                    "abort: a broker has not answered yet; abort again, or close the producer"
                ) from None
            running.sender.drop_unsent(aborted)
            running.reports.forget_unheard()
            if state.phase is Phase.FATAL:
                raise state.refusal("abort")
            if state.next_step() is EndStep.TELL:
                await self._tell(commit=False, deadline=deadline)
            if state.next_step() is EndStep.RENEW:
                await self._renew(deadline)
            self._finish()

    async def prepare(self) -> PreparedTransaction:
        if not self._config.transaction_two_phase_commit_enable:
            raise InvalidTransactionState(
                "cannot prepare the transaction: the producer was made without "
                "transaction_two_phase_commit_enable=True"
            )
        async with self._calling("prepare"):
            await self._flush("prepare")
            return self.state.prepare()

    async def complete(self, prepared: PreparedTransaction) -> bool:
        """Commits the prepared transaction if it is this one, and aborts it otherwise; returns
        whether it was committed."""
        if self.state.phase is not Phase.PREPARED:
            raise self.state.refusal("complete a prepared transaction")
        commits = self.state.prepared == prepared
        await (self.commit() if commits else self.abort())
        return commits

    async def close(self) -> None:
        """Ends what is open: aborts it, unless its commit has been asked for. A prepared
        transaction stays."""
        state = self.state
        if state.is_commit_unknown:
            await self.commit()
        elif state.phase is Phase.ABORTING or (state.is_open and state.phase is not Phase.PREPARED):
            # The coordinator aborts it sooner or later in any case.
            with suppress(ClientError):
                await self.abort()

    async def stop(self) -> None:
        if self._adding is not None:
            self._adding.cancel()
            await asyncio.wait((self._adding,))


class Transaction:
    """`async with producer.transaction():` commits at the end; if the block raises, or a record
    failed, it aborts and raises."""

    def __init__(self, producer: Producer, transactions: Callable[[], Transactions]) -> None:
        self._producer = producer
        self._transactions = transactions
        self._serial = 0

    async def __aenter__(self) -> Self:
        await self._producer.begin_transaction()
        self._serial = self._transactions().state.serial
        return self

    async def send_offsets(
        self, offsets: OffsetsToSend, group: str | GroupMetadata | None = None
    ) -> None:
        """Commits offsets with the transaction; see `Producer.send_offsets`."""
        await self._producer.send_offsets(offsets, group)

    async def commit(self) -> None:
        """Commits now, before the end of the block."""
        await self._producer.commit_transaction()

    async def abort(self) -> None:
        """Aborts without raising; the rest of the block has no transaction."""
        await self._producer.abort_transaction()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        state = self._transactions().state
        if state.serial != self._serial or state.phase is Phase.READY:
            return  # it was ended in the block
        if error is None:
            try:
                await self._producer.commit_transaction()
            except AbortableError as reason:
                await self._abort(reason)
                raise
        elif not state.is_commit_unknown:
            await self._abort(error)

    async def _abort(self, reason: BaseException) -> None:
        """Aborts because of an error, which is raised next. If the abort shows that this was only a
        sign of something permanent, such as another producer, that is raised instead."""
        if not self._transactions().state.is_open:
            return
        try:
            await self._producer.abort_transaction()
        except ClientError as error:
            if isinstance(reason, AbortableError) and not isinstance(error, RetriableError):
                raise error from reason
            _log.warning("a transaction could not be aborted: %s", error)
