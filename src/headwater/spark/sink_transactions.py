"""The sink with delivery=exactly_once, where Spark gives a writer nothing but the rows of a task.

A task of a stream has its own transactional id, by the query and its own number. It takes the id
over, which fences every other attempt of the task, of this driver or an earlier one, and reads the
marker of what was committed under that id: an offset of a group of the same name. A batch that is
committed is not written again. Otherwise the task writes its rows and the next marker, and leaves
the end of its transaction to the driver, which commits when all tasks are done. If a driver dies in
between, some tasks are committed and others are not, and Spark repeats the batch: the marker of
each tells which. So a task must get the same rows again; a batch whose tasks have changed is
refused.

A batch write is never repeated, so its part of a commit would stay. There the rows go
to the driver, as compressed record batches, and one transaction has them all.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from headwater._blocking.loop import LoopThread
from headwater.client.cluster import Cluster
from headwater.client.errors import ClientError, ProducerFenced, RetriableError
from headwater.client.producer.sealed import SealedBatch
from headwater.client.producer.shared import TransactionHandle
from headwater.client.requests.offset_commit import OffsetAndMetadata, commit_offsets
from headwater.client.requests.offset_fetch import fetch_offsets
from headwater.client.requests.routing import Router
from headwater.client.requests.transactions import end_transaction, init_producer
from headwater.errors import ErrorCode
from headwater.io import Host, process_id
from headwater.spark.errors import UNANSWERED, OptionError, TasksChanged, plainly, unanswered
from headwater.spark.sink import SinkOptions
from headwater.spark.transaction_tasks import seal
from headwater.spark.transactions import (
    ANCHOR,
    COMMIT_ATTEMPTS,
    PREFIX,
    OwnedTransactions,
    make_anchor,
    restored,
    too_long,
    write_sealed,
)

if TYPE_CHECKING:
    import pyarrow as pa

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_OF_PROCESS_MAX = 8
_AT_ONCE = 16
_FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)

_T = TypeVar("_T")


# Streams


@dataclass
class Part(WriterCommitMessage):
    """The part of a batch that one task has written. `handle` ends its transaction; None if the
    task had no rows, or if they were committed before."""

    query_id: str
    batch_id: int
    handle: TransactionHandle | None
    began_ms: int = 0


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Part:
        return write_part(self._options, iterator)

    @plainly
    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        parts = [message for message in messages if isinstance(message, Part)]
        if any(part.handle is not None for part in parts):
            _ends_of_process(self._options).commit(parts)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        handles = [part.handle for part in messages if isinstance(part, Part) and part.handle]
        if handles:
            # Whatever is not aborted here is aborted when its task takes the id over.
            with suppress(ClientError):
                _ends_of_process(self._options).abort(handles)


def write_part(options: SinkOptions, batches: Iterable[pa.RecordBatch]) -> Part:
    """Writes the rows of a task, in a transaction that stays open."""
    context = TaskContext.get()
    assert context is not None
    query_id, batch_id = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    if not query_id or not batch_id:
        raise OptionError("delivery=exactly_once of a stream needs a streaming query")
    task = _Task(query_id, int(batch_id), context.partitionId())
    try:
        transaction = _transaction_of_process(options, task.name)
        try:
            return transaction.write(task, batches)
        except BaseException as error:
            _discard(options, task.name)
            raise transaction.owned.explained(
                error, f"batch {batch_id}", _taken_over(task)
            ) from None
    except UNANSWERED as error:
        raise unanswered(error, f"topic {options.topic or '(by row)'}") from None


@dataclass(frozen=True, slots=True)
class _Task:
    query_id: str
    batch_id: int
    number: int

    @property
    def name(self) -> str:
        return _name(self.query_id, self.number)


def _name(query_id: str, number: int) -> str:
    """Returns the transactional id of a task, and its group."""
    return f"{PREFIX}{query_id}-{number}"


def _taken_over(task: _Task) -> str:
    return (
        f"another attempt of task {task.number} in batch {task.batch_id}, maybe of another driver, "
        "has taken over; the batch is left to it"
    )


class _TaskTransaction:
    """The transactional id of a task, and a producer, in one worker."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        self.owned = OwnedTransactions(options, name)
        self._name = name
        self._wall_ms = Host.system().clock.wall_ms
        try:
            self.owned.call(lambda: make_anchor(options))
        except BaseException:
            self.owned.close()
            raise

    def write(self, task: _Task, batches: Iterable[pa.RecordBatch]) -> Part:
        began_ms = self._wall_ms()
        self.owned.hand_over()  # what it had may be fenced
        handle = self.owned.begin()
        marker = self.owned.committed(self._name)
        if marker is not None and marker.offset >= task.batch_id:
            if marker.offset > task.batch_id:
                raise restored(task.batch_id, marker.offset)
            _check_repeated(task, marker, sum(rows.num_rows for rows in batches))
            return Part(task.query_id, task.batch_id, None)
        count = self.owned.write(batches)
        if not count:
            return Part(task.query_id, task.batch_id, None)
        told = OffsetAndMetadata(task.batch_id, metadata=json.dumps({"rows": count}))
        self.owned.send_offsets({ANCHOR: told}, self._name)
        self.owned.hand_over()
        return Part(task.query_id, task.batch_id, handle, began_ms)

    def close(self) -> None:
        self.owned.close()


def _check_repeated(task: _Task, marker: OffsetAndMetadata, rows: int) -> None:
    before = json.loads(marker.metadata or "{}").get("rows")
    if before != rows:
        raise TasksChanged(
            f"task {task.number} of batch {task.batch_id} had {before} rows, which are committed, "
            f"and has {rows} now: {_ADVICE}"
        )


_ADVICE = (
    "a batch that is repeated needs the same rows in the same tasks; run it again with the code "
    "and the settings that it had, or give the query a new checkpoint. foreachBatch with "
    "exactly_once_writer does not depend on tasks"
)

# Spark keeps Python workers, so that a micro-batch costs no connection. Keyed by process, because a
# fork must not use its parent's sockets.
_transactions: dict[tuple[int, SinkOptions, str], _TaskTransaction] = {}


def _transaction_of_process(options: SinkOptions, name: str) -> _TaskTransaction:
    key = (process_id(), options, name)
    found = _transactions.pop(key, None) or _TaskTransaction(options, name)
    _transactions[key] = found  # in the order of their last use
    while len(_transactions) > _OF_PROCESS_MAX:
        _transactions.pop(next(iter(_transactions))).close()
    return found


def _discard(options: SinkOptions, name: str) -> None:
    found = _transactions.pop((process_id(), options, name), None)
    if found is not None:
        found.close()


class _Ends:
    """Ends the transactions of tasks, on the driver."""

    def __init__(self, options: SinkOptions) -> None:
        config = options.transactional_config(f"{PREFIX}driver")
        self._limit_ms = config.transaction_timeout_ms
        self._block_ms = config.max_block_ms
        self._wall_ms = Host.system().clock.wall_ms
        self._cluster = Cluster(config, Host.system())
        self._router = Router(self._cluster, default_timeout_ms=config.max_block_ms)
        self._thread = LoopThread("headwater-transactions")
        try:
            self._thread.call(self._cluster.start)
        except BaseException:
            self._thread.close()
            raise

    def _call(self, make: Callable[[], Awaitable[_T]]) -> _T:
        async def call() -> _T:
            return await make()

        return self._thread.call(call)

    def close(self) -> None:
        with suppress(ClientError):
            self._thread.close(self._cluster.close)

    def commit(self, parts: Sequence[Part]) -> None:
        query_id, batch_id = parts[0].query_id, parts[0].batch_id
        self._call(lambda: self._claim(query_id, batch_id, len(parts)))
        handles = [part.handle for part in parts if part.handle is not None]
        try:
            self._call(lambda: self._end(handles, commit=True))
        except ClientError as error:
            began_ms = min(part.began_ms for part in parts if part.handle is not None)
            seconds = (self._wall_ms() - began_ms) / 1000
            if seconds * 1000 >= self._limit_ms:
                raise too_long(f"batch {batch_id}", seconds, self._limit_ms, error) from None
            if error.code in _FENCED:
                raise ProducerFenced(
                    f"another driver has taken over this query, or Spark has run a task twice: "
                    f"batch {batch_id} is repeated, except for what is committed ({error})",
                    code=error.code,
                ) from None
            raise

    def abort(self, handles: Sequence[TransactionHandle]) -> None:
        self._call(lambda: self._end(handles, commit=False))

    async def _claim(self, query_id: str, batch_id: int, tasks: int) -> None:
        """Notes how many tasks a batch has before any of them is committed, and refuses the batch
        if other tasks have committed a part of it, or if a later batch has begun to commit."""
        group = f"{PREFIX}{query_id}-tasks"
        claim = (await self._markers([group]))[group]
        if claim is not None:
            if claim.offset > batch_id:
                raise restored(batch_id, claim.offset, "has begun to commit")
            before = json.loads(claim.metadata or "{}").get("tasks") or 0
            is_repeated = claim.offset == batch_id
            if is_repeated and before == tasks:
                return
            # Tasks that the batch does not have any more may have left a transaction open, which
            # nobody else would end. Fenced before their markers are read, and before the claim
            # that no longer names them.
            surplus = [_name(query_id, number) for number in range(tasks, before)]
            await _for_all(surplus, self._fence)
            if is_repeated and batch_id in await self._committed(query_id, tasks, surplus):
                raise TasksChanged(
                    f"batch {batch_id} had {before} tasks, some of which are committed, and has "
                    f"{tasks} now: {_ADVICE}"
                )
        told = OffsetAndMetadata(batch_id, metadata=json.dumps({"tasks": tasks}))
        for error in (await commit_offsets(self._router, group, {ANCHOR: told})).values():
            if error is not None:
                raise error

    async def _committed(self, query_id: str, tasks: int, surplus: Sequence[str]) -> set[int]:
        """Returns the batches in the markers of a batch's tasks, and of `surplus`, now fenced."""
        # Tasks that wait for their commit have taken over from earlier ones, so that their markers
        # are right; a stable read would wait for that commit.
        markers = await self._markers([_name(query_id, number) for number in range(tasks)])
        markers |= await self._markers(surplus, require_stable=True)
        return {marker.offset for marker in markers.values() if marker is not None}

    async def _markers(
        self, groups: Sequence[str], *, require_stable: bool = False
    ) -> dict[str, OffsetAndMetadata | None]:
        found = await fetch_offsets(
            self._router, {group: [ANCHOR] for group in groups}, require_stable=require_stable
        )
        markers: dict[str, OffsetAndMetadata | None] = {}
        for group, answer in found.items():
            if isinstance(answer, ClientError):
                raise answer
            markers[group] = answer.get(ANCHOR)
        return markers

    async def _fence(self, name: str) -> None:
        """Aborts what was left open under a transactional id."""
        deadline = self._cluster.deadline(self._block_ms)
        await init_producer(self._cluster, name, timeout_ms=self._limit_ms, deadline=deadline)

    async def _end(self, handles: Sequence[TransactionHandle], *, commit: bool) -> None:
        """Ends all of them, and raises if one of them fails."""

        async def end(handle: TransactionHandle) -> None:
            for left in reversed(range(COMMIT_ATTEMPTS if commit else 1)):
                try:
                    deadline = self._cluster.deadline(self._block_ms)
                    await end_transaction(self._cluster, handle, commit=commit, deadline=deadline)
                    return
                except RetriableError:
                    # It may be committed. If nobody can say, the marker will.
                    if not left:
                        raise

        await _for_all(handles, end)


async def _for_all(items: Iterable[_T], do: Callable[[_T], Awaitable[None]]) -> None:
    """Does something for all of them, many at once, and raises if it fails for one of them."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(item: _T) -> None:
        async with slots:
            await do(item)

    for error in await asyncio.gather(*map(one, items), return_exceptions=True):
        if error is not None:
            raise error


_ends: dict[tuple[int, SinkOptions], _Ends] = {}


def _ends_of_process(options: SinkOptions) -> _Ends:
    key = (process_id(), options)
    found = _ends.pop(key, None) or _Ends(options)
    _ends[key] = found
    while len(_ends) > _OF_PROCESS_MAX:
        _ends.pop(next(iter(_ends))).close()
    return found


# Other writes


@dataclass
class Sealed(WriterCommitMessage):
    """The rows of a task."""

    batches: list[SealedBatch]


class WholeWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    @plainly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sealed:
        return Sealed([batch for piece in seal(self._options, iterator) for batch in piece])

    @plainly
    def commit(self, messages: Sequence[Any]) -> None:
        batches = [each for message in messages for each in message.batches]
        if batches:
            write_sealed(self._options, batches)
