"""The transactions of a driver: one for each micro-batch of a query, or one for a single write.

A query is known by the id in its checkpoint, and so are its transactional id and the group with its
marker: how many batches it has committed. The marker is an offset of that group, which belongs to
the transaction of its batch. A driver first takes the transactional id over, which fences an
earlier driver and its tasks and aborts what they left open, and then reads the marker: nobody else
can change it any more. A batch that Spark repeats after it was committed is recognized by it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.admin import Admin
from headwater.client.config import AdminConfig
from headwater.client.errors import (
    ClientError,
    CommitOutcomeUnknown,
    ProducerFenced,
    TopicExists,
)
from headwater.client.producer import Producer
from headwater.client.producer.sealed import SealedBatch
from headwater.client.producer.shared import (
    TransactionHandle,
    TransactionOwner,
    joining,
    rejoin,
    submit_sealed,
)
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.spark.errors import BatchTooLong, CheckpointError
from headwater.spark.pipeline_status import TOPIC, TOPIC_CONFIGS
from headwater.spark.sink import SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

PREFIX = "headwater-spark-"
# An offset needs a partition that exists. Nothing is written to this one.
ANCHOR = TopicPartition(TOPIC, 0)
COMMIT_ATTEMPTS = 5

_T = TypeVar("_T")
Offsets = Mapping[TopicPartition, int]


class OwnedTransactions:
    """A transactional id and its transactions, one after the other. Connected until `close`. Any
    error is final: a new one takes over."""

    def __init__(self, options: SinkOptions, name: str) -> None:
        self._options = options
        self._limit_ms = options.transactional_config(name).transaction_timeout_ms
        self._now = Host.system().clock.monotonic
        self._began = self._now()
        self._is_fenced = False
        self._owner = TransactionOwner(
            options.bootstrap, config={**options.transactional(), "transactional.id": name}
        )
        self._handle: TransactionHandle | None = None
        self._producer: Producer | None = None
        self._thread = LoopThread("headwater-transactions")
        try:
            self.call(self._owner.__aenter__)
        except BaseException:
            self.close()
            raise

    def call(self, make: Callable[[], Awaitable[_T]]) -> _T:
        async def call() -> _T:
            return await make()

        return self._thread.call(call)

    def begin(self) -> TransactionHandle:
        """Begins a transaction, or goes on with one in which nothing was written. The first one
        fences earlier owners of the id."""
        self._began = self._now()
        if self._handle is None:
            self._handle = self.call(self._owner.begin)
        return self._handle

    def hand_over(self) -> None:
        """Leaves the transaction to another process, which ends it by its handle. The next one
        takes the id over again."""
        self._owner.hand_over()
        self._handle = None

    def committed(self, group: str) -> OffsetAndMetadata | None:
        """Returns the marker in a group."""
        return self.call(lambda: self._owner.committed(group, [ANCHOR])).get(ANCHOR)

    def send_offsets(
        self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata], group: str
    ) -> None:
        self.call(lambda: self._owner.send_offsets(offsets, group))

    def write(self, batches: Iterable[pa.RecordBatch]) -> int:
        """Writes rows in the transaction, from this process, and waits until they are acknowledged;
        nobody else may write to their partitions in it. Returns their number."""
        count = 0
        for rows in batches:
            if not rows.num_rows:
                continue
            producer = self._joined() if not count else self._producer
            assert producer is not None
            self.call(lambda: producer.submit_arrow(rows, topic=self._options.topic))  # noqa: B023  # called at once
            count += rows.num_rows
        if self._producer is not None and count:
            self.call(self._producer.flush)
        return count

    def _joined(self) -> Producer:
        handle = self._handle
        assert handle is not None, "no transaction is open"
        config = self._options.transactional()

        async def join() -> Producer:
            if self._producer is not None:
                rejoin(self._producer, handle)
                return self._producer
            producer = joining(handle, self._options.bootstrap, config=config)
            await producer.start()
            return producer

        self._producer = self.call(join)
        return self._producer

    def commit(self) -> None:
        for left in reversed(range(COMMIT_ATTEMPTS)):
            try:
                self.call(self._owner.commit)
                break
            except CommitOutcomeUnknown:
                # It may be committed, so nothing but the commit may be asked for again.
                if not left:
                    raise
        self._handle = None

    def explained(self, error: BaseException, what: str, fenced: str) -> BaseException:
        """Returns the error, or what the user can do about it; after `close`."""
        if not isinstance(error, ClientError):
            return error
        seconds = self._now() - self._began
        if seconds * 1000 >= self._limit_ms:
            return too_long(what, seconds, self._limit_ms, error)
        if self._is_fenced or isinstance(error, ProducerFenced):
            return ProducerFenced(f"{fenced} ({error})", code=error.code)
        return error

    def close(self) -> None:
        """Aborts what is open, unless its commit was asked for, and disconnects."""

        async def end() -> None:
            if self._producer is not None:
                with suppress(ClientError):  # its last write has raised the error already
                    await self._producer.close(0)
            try:
                await self._owner.abort()
            except ClientError as error:
                # Tasks are only told that their epoch is old; the coordinator knows why.
                self._is_fenced = isinstance(error, ProducerFenced)
            await self._owner.__aexit__(None, None, None)

        with suppress(ClientError):
            self._thread.close(end)


class QueryTransactions:
    """Those of a streaming query, of which each has a whole micro-batch."""

    def __init__(self, options: SinkOptions, query_id: str) -> None:
        """Fences earlier drivers of the query, and reads what they have committed."""
        self._name = f"{PREFIX}{query_id}"
        self._owned = OwnedTransactions(options, self._name)
        try:
            self._owned.call(lambda: make_anchor(options))
            self._owned.begin()
            marker = self._owned.committed(self._name)
        except BaseException:
            self.close()
            raise
        self._done = 0 if marker is None else marker.offset  # batches

    def is_done(self, batch_id: int) -> bool:
        """Whether the batch was committed, maybe by an earlier driver."""
        if batch_id + 1 < self._done:
            # Spark repeats at most the last batch.
            raise restored(batch_id, self._done - 1)
        return batch_id < self._done

    def begin(self) -> TransactionHandle:
        return self._owned.begin()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Writes rows from this process, in a transaction in which nobody else writes."""
        self._owned.begin()
        self._owned.write(batches)

    def commit(self, batch_id: int, group: str | None = None, offsets: Offsets = {}) -> None:  # noqa: B006  # a mapping: it is only read
        """Commits what tasks have written, the marker, and offsets of the group."""
        marker = OffsetAndMetadata(batch_id + 1, metadata=json.dumps({"batch": batch_id}))
        self._owned.send_offsets({ANCHOR: marker}, self._name)
        if group is not None and offsets:
            self._owned.send_offsets(offsets, group)
        self._owned.commit()
        self._done = batch_id + 1

    def explained(self, error: BaseException, batch_id: int) -> BaseException:
        """Returns the error, or what the user can do about it; after `close`."""
        return self._owned.explained(
            error,
            f"batch {batch_id}",
            f"another driver has taken over this query; batch {batch_id} is left to it",
        )

    def close(self) -> None:
        """Aborts what is open, unless its commit was asked for, and disconnects."""
        self._owned.close()


@contextmanager
def one_transaction(options: SinkOptions) -> Iterator[OwnedTransactions]:
    """Commits at the end of the block, or aborts if it raises."""
    owned = OwnedTransactions(options, _new_name())
    try:
        yield owned
        owned.commit()
    except BaseException as error:
        owned.close()
        raise owned.explained(error, "the write", "the write was fenced") from None
    owned.close()


def _new_name() -> str:
    """Returns a transactional id for a write that is never repeated."""
    return f"{PREFIX}write-{Host.system().random.getrandbits(64):016x}"


def write_sealed(options: SinkOptions, batches: Iterable[SealedBatch]) -> None:
    """Writes batches in one transaction."""

    async def send(handle: TransactionHandle) -> None:
        config = options.transactional()
        async with joining(handle, options.bootstrap, config=config) as producer:
            for batch in batches:
                await submit_sealed(producer, batch)
            await producer.flush()

    with one_transaction(options) as owned:
        handle = owned.begin()
        owned.call(lambda: send(handle))


async def make_anchor(options: SinkOptions) -> None:
    """Creates the topic of the anchor if there is none."""
    settings = {name: value for name, value in options.settings if name in AdminConfig.names()}
    async with Admin(options.bootstrap, config=settings) as admin:
        if all(each.name != TOPIC for each in await admin.list_topics(internal=True)):
            with suppress(TopicExists):
                await admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)


def too_long(what: str, seconds: float, limit_ms: int, error: ClientError) -> BatchTooLong:
    return BatchTooLong(
        f"{what} took {seconds:.0f} s, longer than its transaction may be open: raise "
        f"kafka.transaction.timeout.ms={limit_ms}, for which the brokers' "
        "transaction.max.timeout.ms is the limit, or read less in a batch with "
        f"maxOffsetsPerTrigger or maxBytesPerTrigger ({error})"
    )


def restored(batch_id: int, later: int, state: str = "is committed") -> CheckpointError:
    return CheckpointError(
        f"batch {batch_id} begins, but batch {later} of this query {state}: another "
        "driver runs it, or the checkpoint was restored from a copy; then give the query a new "
        "checkpoint"
    )
