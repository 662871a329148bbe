"""The transactions of a streaming query, on its driver: one for each micro-batch.

A query is known by the id in its checkpoint, and so are its transactional id and the group with its
marker: how many batches it has committed. The marker is an offset of that group, which belongs to
the transaction of its batch. A driver first takes the transactional id over, which fences an
earlier driver and its tasks and aborts what they left open, and then reads the marker: nobody else
can change it any more. A batch that Spark repeats after it was committed is recognized by it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.admin import Admin
from headwater.client.config import AdminConfig
from headwater.client.errors import (
    ClientError,
    CommitOutcomeUnknown,
    ProducerFenced,
    TopicExists,
)
from headwater.client.producer.shared import TransactionHandle, TransactionOwner
from headwater.client.requests.offset_commit import OffsetAndMetadata
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.spark.errors import BatchTooLong, CheckpointError
from headwater.spark.pipeline_status import TOPIC, TOPIC_CONFIGS
from headwater.spark.sink import SinkOptions

PREFIX = "headwater-spark-"
# An offset needs a partition that exists. Nothing is written to this one.
_ANCHOR = TopicPartition(TOPIC, 0)
_COMMIT_ATTEMPTS = 5

_T = TypeVar("_T")
Offsets = Mapping[TopicPartition, int]


class QueryTransactions:
    """Connected until `close`. Any error is final: a new one takes over."""

    def __init__(self, options: SinkOptions, query_id: str) -> None:
        """Fences earlier drivers of the query, and reads what they have committed."""
        self._name = f"{PREFIX}{query_id}"
        self._options = options
        self._config = options.transactional_config(self._name)
        self._now = Host.system().clock.monotonic
        self._began = self._now()
        self._is_fenced = False
        self._owner = TransactionOwner(
            options.bootstrap, config={**options.transactional(), "transactional.id": self._name}
        )
        self._thread = LoopThread("headwater-transactions")
        try:
            self._call(self._owner.__aenter__)
            self._call(self._make_anchor)
            self._handle: TransactionHandle | None = self._call(self._owner.begin)
            found = self._call(lambda: self._owner.committed(self._name, [_ANCHOR]))
        except BaseException:
            self.close()
            raise
        marker = found.get(_ANCHOR)
        self._done = 0 if marker is None else marker.offset  # batches

    def _call(self, make: Callable[[], Awaitable[_T]]) -> _T:
        async def call() -> _T:
            return await make()

        return self._thread.call(call)

    async def _make_anchor(self) -> None:
        settings = {
            name: value for name, value in self._options.settings if name in AdminConfig.names()
        }
        async with Admin(self._options.bootstrap, config=settings) as admin:
            if all(each.name != TOPIC for each in await admin.list_topics(internal=True)):
                with suppress(TopicExists):
                    await admin.create_topic(TOPIC, partitions=1, configs=TOPIC_CONFIGS)

    def is_done(self, batch_id: int) -> bool:
        """Whether the batch was committed, maybe by an earlier driver."""
        if batch_id + 1 < self._done:
            # Spark repeats at most the last batch.
            raise CheckpointError(
                f"batch {batch_id} begins, but batch {self._done - 1} of this query is committed: "
                "the checkpoint was restored from a copy; give the query a new checkpoint"
            )
        return batch_id < self._done

    def begin(self) -> TransactionHandle:
        self._began = self._now()
        if self._handle is None:
            self._handle = self._call(self._owner.begin)
        return self._handle

    def commit(self, batch_id: int, group: str | None = None, offsets: Offsets = {}) -> None:  # noqa: B006  # a mapping: it is only read
        """Commits what tasks have written, the marker, and offsets of the group."""
        marker = OffsetAndMetadata(batch_id + 1, metadata=json.dumps({"batch": batch_id}))
        self._call(lambda: self._owner.send_offsets({_ANCHOR: marker}, self._name))
        if group is not None and offsets:
            self._call(lambda: self._owner.send_offsets(offsets, group))
        for left in reversed(range(_COMMIT_ATTEMPTS)):
            try:
                self._call(self._owner.commit)
                break
            except CommitOutcomeUnknown:
                # It may be committed. The next driver learns it from the marker.
                if not left:
                    raise
        self._handle = None
        self._done = batch_id + 1

    def explained(self, error: BaseException, batch_id: int) -> BaseException:
        """Returns the error, or what the user can do about it; after `close`."""
        if not isinstance(error, ClientError):
            return error
        limit_ms = self._config.transaction_timeout_ms
        seconds = self._now() - self._began
        if seconds * 1000 >= limit_ms:
            return BatchTooLong(
                f"batch {batch_id} took {seconds:.0f} s, longer than its transaction may be open: "
                f"raise kafka.transaction.timeout.ms={limit_ms}, for which the brokers' "
                "transaction.max.timeout.ms is the limit, or read less in a batch with "
                f"maxOffsetsPerTrigger or maxBytesPerTrigger ({error})"
            )
        if self._is_fenced or isinstance(error, ProducerFenced):
            return ProducerFenced(
                f"another driver has taken over this query; batch {batch_id} is left to it "
                f"({error})",
                code=error.code,
            )
        return error

    def close(self) -> None:
        """Aborts what is open, unless its commit was asked for, and disconnects."""

        async def end() -> None:
            try:
                await self._owner.abort()
            except ClientError as error:
                # Tasks are only told that their epoch is old; the coordinator knows why.
                self._is_fenced = isinstance(error, ProducerFenced)
            await self._owner.__aexit__(None, None, None)

        with suppress(ClientError):
            self._thread.close(end)
