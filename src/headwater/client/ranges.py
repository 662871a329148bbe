"""Reads a range of offsets of a partition from its leader, as raw batches.

For callers that know what to read and need no group: Spark tasks and tools. The next chunk is
requested before the current one is returned, so that the broker and the caller work at the same
time. Leader changes, restarting brokers and late responses are retried until nothing has arrived
for `patience_ms`; the error for an offset that is not in the log names the offsets that are.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater import _core
from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.errors import (
    ClientError,
    CorruptRecord,
    InvalidRecord,
    NotLeader,
    OffsetOutOfRange,
    Refused,
    RequestTimedOut,
    RetriableError,
    UnknownTopic,
    error_for,
)
from headwater.client.metadata import Broker
from headwater.client.requests.list_offsets import OffsetSpec, list_offsets
from headwater.client.requests.routing import Router
from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import NO_EPOCH, NO_NODE, ZERO_ID, TopicPartition, id_text
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# From this version on a fetch names topics by their ids.
_IDS_SINCE = 13
_WAIT_MS = 500
_RANGE_TIMEOUT_MS = 10_000
_FETCH_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches as stored in the log, for `_core.decode_arrow` or `_core.decode`. The first and
    the last batch may have records outside of the range."""

    data: Buffer
    from_offset: int
    next_offset: int
    timestamp_types: int  # as `_core.extent` has them
    aborted: list[tuple[int, int]]  # aborted transactions as (producer id, first offset)


class TopicRecreated(Refused):
    """The topic was deleted, and another topic has its name."""


class RangeReader:
    """Reads ranges one after the other, on the event loop of its cluster."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        fetch_bytes: int = 8 * 1024 * 1024,
        read_committed: bool = False,
        patience_ms: int = 120_000,
        rack: str = "",
    ) -> None:
        self._cluster = cluster
        self._fetch_bytes = fetch_bytes
        self._read_committed = read_committed
        self._patience = patience_ms / 1000
        self._rack = rack
        self._preferred: dict[TopicPartition, int] = {}  # replicas named by leaders (KIP-392)
        self._router = Router(cluster, default_timeout_ms=_RANGE_TIMEOUT_MS)
        self._backoff = Backoff(
            cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms
        )

    async def chunks(
        self, tp: TopicPartition, start: int, end: int, *, topic_id: bytes = ZERO_ID
    ) -> AsyncIterator[Chunk]:
        """Yields the log from `start` up to, and not including, `end`. With `topic_id`, a topic
        that was deleted and created again raises TopicRecreated."""
        offset = start
        size = self._fetch_bytes
        progress_at = self._cluster.now()
        failures = 0
        asked: asyncio.Future[Any] | None = None
        while offset < end:
            try:
                if asked is None:
                    asked = await self._ask(tp, offset, size, topic_id)
                response, asked = asked, None
                found = self._found(tp, offset, await response)
            except OffsetOutOfRange:
                self._preferred.pop(tp, None)
                raise await self._out_of_range(tp, offset) from None
            except RetriableError as error:
                self._preferred.pop(tp, None)
                failures += 1
                wait = self._backoff.seconds(failures, self._cluster.host.random)
                if self._cluster.now() + wait - progress_at > self._patience:
                    raise self._given_up(tp, offset, error) from error
                self._cluster.need_update(tp.topic)
                await asyncio.sleep(wait)
                continue
            if found is None:  # another replica is to be asked, or there is no data yet
                if self._cluster.now() - progress_at > self._patience:
                    raise self._given_up(tp, offset, None)
                continue
            try:
                whole, next_offset, types = _core.extent(found.records, from_offset=offset)
            except _core.CorruptBatch as error:
                raise CorruptRecord(
                    f"{tp}: the batch at offset {offset} is corrupt ({error})",
                    topic=tp.topic,
                    partition=tp.partition,
                    offset=offset,
                ) from None
            if whole == 0:
                # Old brokers cut a batch that is larger than the request allows.
                if size >= _FETCH_BYTES_MAX:
                    raise InvalidRecord(f"{tp}: the batch at offset {offset} exceeds {size} bytes")
                size *= 2
                continue
            if next_offset < end:
                asked = self._ask_now(tp, next_offset, size, topic_id)
            aborted = [
                (each.producer_id, each.first_offset) for each in (found.aborted_transactions or [])
            ]
            chunk = Chunk(found.records, offset, next_offset, types, aborted)
            offset = next_offset
            failures = 0
            yield chunk
            progress_at = self._cluster.now()

    # Requests

    async def _ask(
        self, tp: TopicPartition, offset: int, size: int, topic_id: bytes
    ) -> asyncio.Future[Any]:
        cluster = self._cluster
        if tp.topic not in cluster.metadata.topics:
            await cluster.topics([tp.topic], deadline=cluster.deadline(self._patience * 1000))
        known = cluster.metadata.topics[tp.topic]
        if _are_other(topic_id, known.topic_id):
            # This client's metadata may be older than that of the caller.
            cluster.need_update(tp.topic)
            await cluster.updated(cluster.deadline(self._patience * 1000))
            known = cluster.metadata.topics.get(tp.topic, known)
        if _are_other(topic_id, known.topic_id):
            raise _recreated(tp, offset, topic_id, known.topic_id)
        node_id = self._preferred.get(tp, cluster.metadata.leader(tp))
        if node_id is None:
            raise NotLeader(f"{tp} has no leader now")
        connection = await cluster.connection(node_id)
        return self._post(connection, tp, offset, size)

    def _ask_now(
        self, tp: TopicPartition, offset: int, size: int, topic_id: bytes
    ) -> asyncio.Future[Any] | None:
        """Sends the request if that is possible without waiting."""
        known = self._cluster.metadata.topics.get(tp.topic)
        if known is None or _are_other(topic_id, known.topic_id):
            return None
        node_id = self._preferred.get(tp, self._cluster.metadata.leader(tp))
        connection = None if node_id is None else self._cluster.ready(node_id)
        return None if connection is None else self._post(connection, tp, offset, size)

    def _post(
        self, connection: Connection, tp: TopicPartition, offset: int, size: int
    ) -> asyncio.Future[Any]:
        metadata = self._cluster.metadata
        partition = metadata.partition(tp)
        topic_id = metadata.topics[tp.topic].topic_id
        version = connection.version(
            ApiKey.FETCH, at_most=None if topic_id != ZERO_ID else _IDS_SINCE - 1
        )
        assert version is not None, f"{connection} cannot be fetched from"
        is_leader = partition is not None and connection.node_id == partition.leader
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(self._read_committed),
            topics=[
                FetchTopic(
                    topic=tp.topic,
                    topic_id=topic_id,
                    partitions=[
                        FetchPartition(
                            partition=tp.partition,
                            current_leader_epoch=partition.leader_epoch
                            if partition is not None and is_leader
                            else NO_EPOCH,
                            fetch_offset=offset,
                            partition_max_bytes=size,
                        )
                    ],
                )
            ],
            rack_id=self._rack,
        )
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(message: Any, error: ClientError | None) -> None:
            if response.done():
                return
            if error is not None:
                response.set_exception(error)
                response.exception()  # a reader that was dropped never retrieves it
            else:
                response.set_result(message)

        timeout_ms = self._cluster.config.request_timeout_ms
        connection.post(request, version, done, timeout_ms=timeout_ms)
        return response

    # Responses

    def _found(
        self, tp: TopicPartition, offset: int, response: FetchResponse
    ) -> PartitionData | None:
        """Returns the partition's part of a response; None if it must be asked again."""
        what = f"{tp} at offset {offset}"
        if response.error_code:
            raise error_for(response.error_code, what)
        if not response.responses or not response.responses[0].partitions:
            return None
        found = response.responses[0].partitions[0]
        if found.error_code:
            self._learn(tp, found, response)
            raise error_for(found.error_code, what)
        if found.preferred_read_replica != NO_NODE:
            self._preferred[tp] = found.preferred_read_replica
        return found if found.records else None

    def _learn(self, tp: TopicPartition, found: PartitionData, response: FetchResponse) -> None:
        """Applies the hint of a broker that is not the leader any more (KIP-951)."""
        now = found.current_leader
        if now is None or now.leader_id == NO_NODE:
            return
        endpoints = {
            each.node_id: Broker(each.node_id, Address(each.host, each.port), each.rack)
            for each in response.node_endpoints
        }
        self._cluster.learn_leader(
            tp, now.leader_id, now.leader_epoch, endpoints.get(now.leader_id)
        )

    def _given_up(
        self, tp: TopicPartition, offset: int, error: RetriableError | None
    ) -> ClientError:
        seconds = f"{self._patience:g} seconds"
        if isinstance(error, UnknownTopic):
            return error
        why = "" if error is None else f": {error}"
        return RequestTimedOut(f"{tp} at offset {offset}: no data for {seconds}{why}")

    async def _out_of_range(self, tp: TopicPartition, offset: int) -> OffsetOutOfRange:
        try:
            first = await self._edge(tp, OffsetSpec.EARLIEST)
            end = await self._edge(tp, OffsetSpec.LATEST)
        except ClientError as error:
            has = f"its range is unknown: {error}"
        else:
            has = f"it has {first} up to {end}" if end > first else f"it is empty at {end}"
        return OffsetOutOfRange(
            f"{tp}: offset {offset} is not in the log; {has}",
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
        )

    async def _edge(self, tp: TopicPartition, spec: OffsetSpec) -> int:
        results = await list_offsets(self._router, {tp: spec}, read_committed=self._read_committed)
        result = results[tp]
        if isinstance(result, ClientError):
            raise result
        return result.offset


def _are_other(wanted: bytes, known: bytes) -> bool:
    """Returns whether the ids belong to two topics; old brokers have none."""
    return ZERO_ID not in (wanted, known) and wanted != known


def _recreated(tp: TopicPartition, offset: int, wanted: bytes, known: bytes) -> TopicRecreated:
    return TopicRecreated(
        f"{tp} at offset {offset}: topic {tp.topic} was deleted and created again; its id was "
        f"{id_text(wanted)} and is {id_text(known)}",
        code=ErrorCode.INCONSISTENT_TOPIC_ID,
    )
