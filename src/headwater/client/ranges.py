"""Reading given offsets of a partition from the broker that leads it, as raw batches.

For whoever knows what to read and needs no group: tasks of Spark, tools. The next piece is asked
for before the one that has come is handed out, so that the broker works while the reader does.
Leaders that move, brokers that restart and answers that are late are waited out until nothing has
come for `patience_ms`; an offset that is not in the log is an error that says what is.
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
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

# From this version on a fetch names topics by their ids.
_IDS_SINCE = 13
_WAIT_MS = 500
_LATEST, _EARLIEST = -1, -2
_FETCH_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches as they lie in the log, for `_core.decode_arrow` or `_core.decode`. The first
    and the last may reach over the edges of what was asked for."""

    data: Buffer
    from_offset: int
    next_offset: int
    timestamp_types: int  # as `_core.extent` has them
    aborted: list[tuple[int, int]]  # (producer id, first offset), to leave out


class TopicMadeAnew(Refused):
    """The topic was deleted, and another one has its name."""


class RangeReader:
    """Reads ranges one after the other. Belongs to the loop of its cluster."""

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
        self._nearer: dict[TopicPartition, int] = {}  # replicas that brokers preferred for us
        self._backoff = Backoff(
            cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms
        )

    async def chunks(
        self, tp: TopicPartition, start: int, end: int, *, topic_id: bytes = ZERO_ID
    ) -> AsyncIterator[Chunk]:
        """What the log has from `start` up to but not including `end`. With `topic_id`, a topic of
        the same name that was made anew is not read: TopicMadeAnew."""
        offset = start
        size = self._fetch_bytes
        progress_at = self._cluster.now()
        failures = 0
        asked: asyncio.Future[Any] | None = None
        while offset < end:
            try:
                if asked is None:
                    asked = await self._ask(tp, offset, size, topic_id)
                answer, asked = asked, None
                found = self._found(tp, offset, await answer)
            except OffsetOutOfRange:
                self._nearer.pop(tp, None)
                raise await self._out_of_range(tp, offset) from None
            except RetriableError as error:
                self._nearer.pop(tp, None)
                failures += 1
                wait = self._backoff.seconds(failures, self._cluster.host.random)
                if self._cluster.now() + wait - progress_at > self._patience:
                    raise self._given_up(tp, offset, error) from error
                self._cluster.need_update(tp.topic)
                await asyncio.sleep(wait)
                continue
            if found is None:  # a replica that is nearer, or nothing has come yet
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
                # A batch that is larger than what was asked for comes cut short from old brokers.
                if size >= _FETCH_BYTES_MAX:
                    raise InvalidRecord(f"{tp} at offset {offset}: a batch is above {size} bytes")
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

    # Asking

    async def _ask(
        self, tp: TopicPartition, offset: int, size: int, topic_id: bytes
    ) -> asyncio.Future[Any]:
        cluster = self._cluster
        if tp.topic not in cluster.metadata.topics:
            await cluster.topics([tp.topic], deadline=cluster.deadline(self._patience * 1000))
        known = cluster.metadata.topics[tp.topic]
        if _are_other(topic_id, known.topic_id):
            # It may be us who are behind: who told us what to read knew the topic then.
            cluster.need_update(tp.topic)
            await cluster.updated(cluster.deadline(self._patience * 1000))
            known = cluster.metadata.topics.get(tp.topic, known)
        if _are_other(topic_id, known.topic_id):
            raise _made_anew(tp, offset, topic_id, known.topic_id)
        node_id = self._nearer.get(tp, cluster.metadata.leader(tp))
        if node_id is None:
            raise NotLeader(f"{tp} has no leader now")
        connection = await cluster.connection(node_id)
        return self._post(connection, tp, offset, size)

    def _ask_now(
        self, tp: TopicPartition, offset: int, size: int, topic_id: bytes
    ) -> asyncio.Future[Any] | None:
        """The same, if it can be done without waiting for anything."""
        known = self._cluster.metadata.topics.get(tp.topic)
        if known is None or _are_other(topic_id, known.topic_id):
            return None
        node_id = self._nearer.get(tp, self._cluster.metadata.leader(tp))
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
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(message: Any, error: ClientError | None) -> None:
            if answer.done():
                return
            if error is not None:
                answer.set_exception(error)
                answer.exception()  # if nobody comes for it, that is no news
            else:
                answer.set_result(message)

        timeout_ms = self._cluster.config.request_timeout_ms
        connection.post(request, version, done, timeout_ms=timeout_ms)
        return answer

    # Understanding

    def _found(
        self, tp: TopicPartition, offset: int, answer: FetchResponse
    ) -> PartitionData | None:
        """The partition's part of an answer; None if it is to be asked again."""
        what = f"{tp} at offset {offset}"
        if answer.error_code:
            raise error_for(answer.error_code, what)
        if not answer.responses or not answer.responses[0].partitions:
            return None
        found = answer.responses[0].partitions[0]
        if found.error_code:
            self._learn(tp, found, answer)
            raise error_for(found.error_code, what)
        if found.preferred_read_replica != NO_NODE:
            self._nearer[tp] = found.preferred_read_replica
        return found if found.records else None

    def _learn(self, tp: TopicPartition, found: PartitionData, answer: FetchResponse) -> None:
        """Takes the hint of a broker that does not lead any more (KIP-951)."""
        now = found.current_leader
        if now is None or now.leader_id == NO_NODE:
            return
        endpoints = {
            each.node_id: Broker(each.node_id, Address(each.host, each.port), each.rack)
            for each in answer.node_endpoints
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
        return RequestTimedOut(f"{tp} at offset {offset}: nothing came for {seconds}{why}")

    async def _out_of_range(self, tp: TopicPartition, offset: int) -> OffsetOutOfRange:
        has = "what it has could not be found out"
        try:
            first = await self._edge(tp, _EARLIEST)
            last = await self._edge(tp, _LATEST)
            has = f"it has {first} up to {last}" if last > first else f"it is empty at {last}"
        except ClientError:
            pass
        return OffsetOutOfRange(
            f"{tp}: offset {offset} is not in the log; {has}",
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
        )

    async def _edge(self, tp: TopicPartition, which: int) -> int:
        leader = self._cluster.metadata.leader(tp)
        if leader is None:
            raise NotLeader(f"{tp} has no leader now")
        partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=which)
        request = ListOffsetsRequest(
            replica_id=NO_NODE,
            isolation_level=int(self._read_committed),
            topics=[ListOffsetsTopic(name=tp.topic, partitions=[partition])],
        )
        answer = await self._cluster.ask(
            request, to=leader, deadline=self._cluster.deadline(10_000)
        )
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise error_for(found.error_code, str(tp))
        return int(found.offset)


def _are_other(wanted: bytes, known: bytes) -> bool:
    """Whether two ids are of two topics. Old brokers say none."""
    return ZERO_ID not in (wanted, known) and wanted != known


def _made_anew(tp: TopicPartition, offset: int, wanted: bytes, now: bytes) -> TopicMadeAnew:
    return TopicMadeAnew(
        f"{tp} at offset {offset}: topic {tp.topic} was deleted and made anew; its id was "
        f"{id_text(wanted)} and is {id_text(now)}",
        code=ErrorCode.INCONSISTENT_TOPIC_ID,
    )
