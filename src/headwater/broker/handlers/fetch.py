"""Fetch: slices of segment files, at once or when there is enough to read.

A request goes through four steps. The session selects its partitions (`FetchSessions.select`); each
is read (`read`); if the bytes found are fewer than `min_bytes` and nothing is wrong, the request
waits on its partitions (`start`, `on_more`) until there are enough, `max_wait_ms` has passed or the
peer sends another request, and reads again; the response is built from what was read (`_build`).

A consumer may read from any replica, up to the high watermark that is known there. The leader sends
one that says its rack to the closest replica if `replica.selector.class` is set (KIP-392).

Followers come the same way and differ in three places. The positions that a request names are taken
first (`_take_positions`): they may move high watermarks, so that producers are answered and the
response already has what is committed. Only partitions with news are read, which the session
collects (`Feed`). A wait watches the session instead of each partition, and ends for records, not
for a high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.authorization import is_allowed, unreadable_topics
from headwater.broker.context import Context, Later
from headwater.broker.fetch_sessions import Feed, Selection, Wanted
from headwater.broker.partition import Partition
from headwater.config.node import RACK_AWARE_SELECTOR
from headwater.errors import ApiError, ErrorCode
from headwater.io import FileSlice, close_slices
from headwater.model import NO_NODE
from headwater.observability.traffic import Traffic
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headwater.replication.closest import closest_replica
from headwater.replication.leader import NO_BROKER_EPOCH, LeaderState
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.storage import Log

if TYPE_CHECKING:
    from headwater.broker.broker import Broker

READ_COMMITTED = 1
_ISOLATION_LEVELS = (0, READ_COMMITTED)
_ANY_REPLICA = -2  # the replica id of a reader that compares replicas (ReplicaVerificationTool)
_CLOSEST_SINCE = 11  # KIP-392: consumers may read from followers, and say in which rack they are
_TOPIC_IDS_SINCE = 13
# What a response and each of its partitions take, besides records.
_RESPONSE_BYTES = 20
_PARTITION_BYTES = 60
_COPIED_BYTES_MAX = 64 * 1024
# Where a batch says how many bytes follow.
_LENGTH_AT = 8
_LENGTH_BYTES = 4
_CUT_BATCHES_MAX = 100
_NOT_FOUND = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
_ANOTHER_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
# What readers may cause: not counted as failures of the broker, as in Kafka.
_EXPECTED = frozenset(
    (
        *_NOT_FOUND,
        *_ANOTHER_LEADER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_OUT_OF_RANGE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


class _Cold(NamedTuple):
    """A slice that may have to come from the device, and whose it is."""

    slice: FileSlice
    log: Log
    wanted: Wanted
    data: PartitionData


class _Read:
    """The result of one pass over the selected partitions."""

    __slots__ = ("bytes", "cold", "results", "sent", "urgent")

    def __init__(self) -> None:
        self.results: list[tuple[Wanted, PartitionData]] = []
        self.bytes = 0
        self.urgent = False  # an error, or something else that must not wait
        self.cold: list[_Cold] = []
        self.sent: list[tuple[Traffic, int]] = []  # bytes of each partition that has any


class _Fetch:
    """One fetch request, from its selection to its response. Watches its partitions while it
    waits."""

    __slots__ = (
        "_broker",
        "_broker_epoch",
        "_bytes_max",
        "_bytes_min",
        "_context",
        "_denied",
        "_done",
        "_feed",
        "_found_bytes",
        "_incremental",
        "_metered",
        "_partitions",
        "_racks",
        "_replica_id",
        "_request",
        "_session",
        "_stable",
        "_taken",
        "_timer",
        "_wanted",
    )

    def __init__(
        self,
        broker: Broker,
        context: Context,
        request: FetchRequest,
        selection: Selection,
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._wanted, self._session, self._incremental, self._feed = selection
        state = request.replica_state
        self._replica_id = _replica_id(request)
        self._broker_epoch = state.replica_epoch if state is not None else NO_BROKER_EPOCH
        self._bytes_max = min(request.max_bytes, broker.config.fetch_max_bytes)
        self._bytes_min = min(request.min_bytes, self._bytes_max)
        self._done: Later | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._partitions: list[Partition] = []
        self._found_bytes = 0
        self._metered = context.metered if self._replica_id < 0 else None
        # For readers of committed records: the last stable offset of each partition that is waited
        # for, and how many bytes were appended since it last moved.
        self._stable: dict[Partition, tuple[int, int]] | None = None
        # The partitions of a follower's positions that were found good in this turn of the loop.
        self._taken: dict[Wanted, Partition] = {}
        self._denied = None if broker.authorizer is None else self._denied_topics()
        # The brokers that the client can reach, with their racks: the closest one may serve it.
        self._racks: dict[int, str | None] | None = None
        if (
            request.rack_id
            and self._replica_id < 0
            and broker.config.replica_selector_class == RACK_AWARE_SELECTOR
        ):
            self._racks = {node.id: node.rack for node in broker.endpoints(context)}

    # Rights

    def _denied_topics(self) -> frozenset[str]:
        """Returns the topics that the client may not read. A follower needs another right, for all
        of them."""
        broker, context = self._broker, self._context
        of_session = self._session.wanted.values() if self._session is not None else self._wanted
        names = [self._name(wanted) for wanted in of_session]
        if self._replica_id < 0:
            return unreadable_topics(broker, context, names)
        if is_allowed(broker, context, Operation.CLUSTER_ACTION, AclResource.CLUSTER):
            return frozenset()
        return frozenset(name for name in names if name is not None)

    def _name(self, wanted: Wanted) -> str | None:
        if self._context.version < _TOPIC_IDS_SINCE:
            return wanted.topic
        return self._broker.partitions.name_of(wanted.topic_id)

    # Followers' positions

    def _take_positions(self, feed: Feed) -> None:
        """Takes the offsets that a follower names: it has everything below them."""
        now = self._broker.clock.monotonic()
        feed.clock.at = now
        for wanted in self._wanted:
            feed.ready[wanted] = None
            try:
                partition = self._find(wanted)
                self._check_follower(partition.lead(wanted.current_epoch), wanted)
                wanted.subscribe(partition)
                log = partition.log
                if not log.start <= wanted.offset <= log.end:
                    continue
                if wanted.last_fetched_epoch >= 0 and self._divergence(partition, wanted):
                    continue
            except ApiError:
                continue  # the response will say so
            partition.on_follower_fetch(
                self._replica_id,
                offset=wanted.offset,
                log_start=wanted.log_start,
                broker_epoch=self._broker_epoch,
                clock=feed.clock,
                now=now,
            )
            self._taken[wanted] = partition

    def _check_follower(self, leader: LeaderState, wanted: Wanted) -> None:
        leader.check_fetch(
            self._replica_id,
            broker_epoch=self._broker_epoch,
            knows_epoch=wanted.current_epoch >= 0,
        )

    # Reading

    def read(self) -> _Read:
        read = _Read()
        left = self._bytes_max
        if self._metered is not None:
            left = min(left, self._metered.fetch_bytes_max())
        self._partitions.clear()
        if self._feed is not None and self._incremental:
            self._wanted = list(self._feed.ready)
        for wanted in self._wanted:
            data = PartitionData(partition_index=wanted.partition, high_watermark=-1, records=b"")
            read.results.append((wanted, data))
            try:
                partition = self._taken.get(wanted) or self._find(wanted)
                self._partitions.append(partition)
                size = self._read_partition(partition, wanted, data, left, not read.bytes)
            except ApiError as refusal:
                self._refuse(wanted, data, refusal)
                read.urgent = True
                continue
            if size:
                read.bytes += size
                left -= size
                read.sent.append((partition.traffic, size))
                slice_ = data.records
                if isinstance(slice_, FileSlice) and not _is_at_hand(slice_, data, read.bytes):
                    read.cold.append(_Cold(slice_, partition.log, wanted, data))
            elif data.diverging_epoch is not None or data.preferred_read_replica != NO_NODE:
                read.urgent = True
        return read

    def _find(self, wanted: Wanted) -> Partition:
        name = self._name(wanted)
        if name is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
        if self._denied is not None and name in self._denied:
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return self._broker.partitions.get(name, wanted.partition)

    def _read_partition(
        self,
        partition: Partition,
        wanted: Wanted,
        data: PartitionData,
        left: int,
        first: bool,
    ) -> int:
        """Fills in one partition's part of the response; returns its bytes of records."""
        is_taken = wanted in self._taken
        if self._may_read_followers():
            high_watermark = partition.lead_or_follow(wanted.current_epoch).high_watermark
        else:
            leader = partition.lead(wanted.current_epoch)
            if self._replica_id >= 0 and not is_taken:
                self._check_follower(leader, wanted)
            high_watermark = leader.high_watermark
        partition.traffic.on_read()
        log = partition.log
        committed = self._request.isolation_level == READ_COMMITTED
        stable = partition.last_stable_offset
        end = stable if committed else high_watermark
        if self._replica_id >= 0:
            end = log.end
        data.high_watermark = high_watermark
        data.last_stable_offset = stable
        data.log_start_offset = log.start
        if not committed:
            data.aborted_transactions = None
        if self._racks is not None and partition.leader is not None:
            closest = closest_replica(
                partition.leader, self._racks, rack=self._request.rack_id, offset=wanted.offset
            )
            if closest is not None:
                data.preferred_read_replica = closest
                data.aborted_transactions = None
                return 0
        if wanted.last_fetched_epoch >= 0 and not is_taken:
            data.diverging_epoch = self._divergence(partition, wanted)
            if data.diverging_epoch is not None:
                return 0
        if not log.start <= wanted.offset <= log.end:
            raise log.out_of_range(wanted.offset)
        if wanted.bytes_max < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"partition_max_bytes {wanted.bytes_max}")
        if wanted.offset >= end:
            # Above the high watermark there is nothing to read yet, but the offset is good: that of
            # a new leader lags, and consumers that have read further must not reset.
            return 0
        found = log.read(
            wanted.offset,
            bytes_max=max(0, min(wanted.bytes_max, left)),
            upto=end,
            at_least_one=first,
        )
        if found.slice is None:
            return 0
        data.records = found.slice
        if self._metered is not None and len(found.slice) == left:
            _cut_at_batch(found.slice)
        if committed:
            # Those after the slice come with the slices they concern.
            upto = min(end, log.offset_bound(found))
            data.aborted_transactions = [
                AbortedTransaction(producer_id=a.producer_id, first_offset=a.first_offset)
                for a in log.aborted(wanted.offset, upto)
            ]
        return len(found.slice)

    def _may_read_followers(self) -> bool:
        if self._replica_id >= 0:
            return False
        return self._context.version >= _CLOSEST_SINCE or self._replica_id == _ANY_REPLICA

    def _divergence(self, partition: Partition, wanted: Wanted) -> EpochEndOffset | None:
        """Returns the end of the reader's last epoch, or of the one before it, if the reader's log
        ends elsewhere (KIP-595): it must truncate first."""
        log = partition.log
        if wanted.last_fetched_epoch == log.latest_epoch and wanted.offset <= log.end:
            return None
        known = log.epoch_end(wanted.last_fetched_epoch)
        if known.epoch < 0 or known.offset < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"epoch {wanted.last_fetched_epoch} is not known for {partition.tp}",
            )
        if known.epoch < wanted.last_fetched_epoch or known.offset < wanted.offset:
            return EpochEndOffset(epoch=known.epoch, end_offset=known.offset)
        return None

    def _refuse(self, wanted: Wanted, data: PartitionData, refusal: ApiError) -> None:
        data.error_code = refusal.code
        if refusal.code not in _EXPECTED:
            traffic = self._broker.partitions.traffic.topics.get(self._name(wanted) or "")
            if traffic is not None:
                traffic.on_failed_read()
        data.high_watermark = data.last_stable_offset = data.log_start_offset = -1
        data.aborted_transactions = [] if refusal.code in _NOT_FOUND else None
        if self._context.version >= 16 and refusal.code in _ANOTHER_LEADER:
            name = wanted.topic or self._broker.partitions.name_of(wanted.topic_id)
            leader = self._broker.partitions.leader_hint(name, wanted.partition) if name else None
            if leader is not None:
                data.current_leader = LeaderIdAndEpoch(
                    leader_id=leader.node_id, leader_epoch=leader.epoch
                )

    # Waiting

    def start(self) -> FetchResponse | Awaitable[FetchResponse | None]:
        feed = self._feed
        if feed is not None:
            if not self._incremental:
                self._context.connection.stream.put_first()
            self._take_positions(feed)
        if self._metered is not None:
            if self._metered.holds_fetch():
                return self._throttled()
            # A fetch that waited for more than its quota allows would wait for nothing.
            self._bytes_min = min(self._bytes_min, self._metered.fetch_bytes_max())
        if feed is not None and self._has_all(feed):
            return self._wait(_Read())
        read = self.read()
        if (
            read.bytes >= self._bytes_min
            or read.urgent
            or self._request.max_wait_ms <= 0
            or not (self._wanted or feed)
        ):
            return self._respond(read)
        return self._wait(read)

    def _has_all(self, feed: Feed) -> bool:
        """Returns whether a follower is to wait because all partitions that it could be told of are
        those whose positions were just taken, and there is nothing behind these positions."""
        if not self._incremental or self._request.max_wait_ms <= 0 or self._bytes_min <= 0:
            return False
        taken = self._taken
        if len(taken) != len(feed.ready):
            return False
        return all(wanted.offset >= partition.log.end for wanted, partition in taken.items())

    def _wait(self, read: _Read) -> Later:
        feed = self._feed
        self._taken.clear()  # anything may happen before the next read
        loop = asyncio.get_running_loop()
        self._found_bytes = read.bytes
        self._done = Later()
        if feed is not None:
            feed.parked = self
        else:
            for partition in self._partitions:
                partition.watchers[self] = None
        if self._request.isolation_level == READ_COMMITTED:
            self._stable = {each: (each.last_stable_offset, 0) for each in self._partitions}
        self._context.connection.on_gone[self._cancel] = None
        self._context.connection.on_next = self._on_next
        self._timer = loop.call_later(self._request.max_wait_ms / 1000, self._finish)
        return self._done

    def on_more(self, partition: Partition, added_bytes: int) -> None:
        if self._stable is not None:
            stable, held_bytes = self._stable[partition]
            added_bytes += held_bytes
            if partition.last_stable_offset == stable:
                # A transaction is open: an answer now would bring nothing, and the peer would
                # ask again with each append until it ends.
                self._stable[partition] = stable, added_bytes
                return
            self._stable[partition] = partition.last_stable_offset, 0
        self._found_bytes += added_bytes
        if (
            self._found_bytes >= self._bytes_min > 1
            and partition.high_watermark < partition.log.end
        ):
            # Some of these bytes are not on all in-sync replicas yet.
            self._found_bytes = self.read().bytes
        if self._found_bytes >= self._bytes_min:
            self.wake()

    def on_changed(self, partition: Partition) -> None:
        self.wake()

    def on_bytes(self, added_bytes: int) -> None:
        """Takes note of records for a follower."""
        self._found_bytes += added_bytes
        if self._found_bytes >= self._bytes_min:
            self.wake()

    def _on_next(self, api: int) -> None:
        """Ends the wait for a request that came behind this one: responses go out in order, and the
        peer needs that answer now. (Java's consumer asks for offsets on the connection on which its
        next fetch waits already; so does each task of Spark's Kafka connector.) A client that sends
        one fetch behind another wants both to wait."""
        if api != ApiKey.FETCH:
            self.wake()

    def wake(self) -> None:
        self._stop_waiting()
        # Not at once: this may run inside the produce request that brought the records, and its
        # response goes first.
        asyncio.get_running_loop().call_soon(self._answer)

    def _stop_waiting(self) -> None:
        if self._feed is None:
            for partition in self._partitions:
                partition.watchers.pop(self, None)
        elif self._feed.parked is self:
            self._feed.parked = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._context.connection.on_gone.pop(self._cancel, None)
        self._context.connection.on_next = None

    def _finish(self) -> None:
        self._stop_waiting()
        self._answer()

    def _answer(self) -> None:
        assert self._done is not None
        if self._done.is_answered:
            return
        if self._metered is None:
            response = self._respond(self.read())
        else:
            self._metered.enter()
            response = self._respond(self.read())
            self._metered.leave()
        if isinstance(response, FetchResponse):
            self._done.answer(response)
        else:
            task = asyncio.ensure_future(response)
            task.add_done_callback(self._pass_on)

    def _pass_on(self, task: asyncio.Future[FetchResponse]) -> None:
        assert self._done is not None
        if self._done.is_answered or task.cancelled():
            return
        failure = task.exception()
        if isinstance(failure, Exception):
            self._done.fail(failure)
        else:
            self._done.answer(task.result())

    def _cancel(self) -> None:
        self._stop_waiting()
        if self._done is not None and not self._done.is_answered:
            self._done.answer(None)

    # Responding

    def _respond(self, read: _Read) -> FetchResponse | Awaitable[FetchResponse]:
        if read.cold:
            return self._respond_warm(read)
        return self._build(read)

    async def _respond_warm(self, read: _Read) -> FetchResponse:
        """Reads cold slices in a worker first: one reader far behind must not stall the loop."""
        for cold in read.cold:
            try:
                await self._broker.workers.run(partial(cold.log.load, cold.slice))
            except ApiError as refusal:  # the device failed; other partitions may be on another
                cold.slice.close()
                cold.data.records = b""
                self._refuse(cold.wanted, cold.data, refusal)
        return self._build(read)

    def _throttled(self) -> FetchResponse:
        """Returns the response to a consumer that has had too much: nothing. What its session knows
        stays as it is; one that the request was to begin does not begin."""
        session = self._session
        if session is not None and not self._incremental:
            self._broker.fetch_sessions.remove(session.id)
            session = None
        return FetchResponse(session_id=session.id if session is not None else 0, responses=[])

    def _build(self, read: _Read) -> FetchResponse:
        if self._metered is not None and self._metered.holds_fetch(_size(read)):
            for _, data in read.results:
                close_slices((data.records,))
            return self._throttled()
        session = self._session
        if self._feed is not None:
            self._keep_unfinished(self._feed, read)
        for traffic, size in read.sent:
            traffic.on_sent(size, to_follower=self._replica_id >= 0)
        response = FetchResponse(session_id=session.id if session is not None else 0, responses=[])
        by_id = self._context.version >= 13
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        leaders: set[int] = set()
        for wanted, data in read.results:
            if session is not None:
                news = wanted.is_news(
                    error=data.error_code,
                    has_records=len(data.records) > 0
                    or data.diverging_epoch is not None
                    or data.preferred_read_replica != NO_NODE,
                    high_watermark=data.high_watermark,
                    log_start=data.log_start_offset,
                )
                if self._incremental and not news:
                    continue
            key = wanted.topic_id if by_id else wanted.topic
            topic = topics.get(key)
            if topic is None:
                topic = topics[key] = FetchableTopicResponse(
                    topic=wanted.topic, topic_id=wanted.topic_id, partitions=[]
                )
                response.responses.append(topic)
            topic.partitions.append(data)
            if data.current_leader is not None:
                leaders.add(data.current_leader.leader_id)
        if leaders and self._replica_id < 0:
            response.node_endpoints = [
                NodeEndpoint(node_id=node.id, host=node.host, port=node.port, rack=node.rack)
                for node in self._broker.endpoints(self._context)
                if node.id in leaders
            ]
        if session is not None and self._incremental and self._feed is None:
            session.rotate(wanted for wanted, data in read.results if len(data.records))
        return response

    def _keep_unfinished(self, feed: Feed, read: _Read) -> None:
        """Forgets what this response settles. What it sends is looked at again unless the follower
        names another offset: it may have got only a part of a batch."""
        for wanted, data in read.results:
            source = wanted.source
            if (
                source is not None
                and not data.error_code
                and data.diverging_epoch is None
                and data.high_watermark == source.high_watermark
                and wanted.offset >= source.log.end
            ):
                feed.ready.pop(wanted, None)


def _is_at_hand(found: FileSlice, data: PartitionData, read_bytes: int) -> bool:
    """Returns whether a slice can be sent without waiting for the device. The first ones of a
    response, if they are small, are copied for it: that is cheaper than to ask the kernel whether
    it has their pages and to send each by itself."""
    if read_bytes > _COPIED_BYTES_MAX:
        return found.file.is_warm(found.position, found.count)
    copy = found.file.read_now(found.count, found.position)
    if copy is None:
        return False
    found.close()
    data.records = copy
    return True


def _cut_at_batch(found: FileSlice) -> None:
    """Drops the beginning of a batch at the end of a slice that a quota has made short: the client
    would pay for it twice. Many small batches are left alone, for there is little to save."""
    file, position, end = found.file, found.position, found.position + found.count
    if not file.is_warm(position, found.count):
        return
    for _ in range(_CUT_BATCHES_MAX):
        length = file.pread(_LENGTH_BYTES, position + _LENGTH_AT)
        after = position + _LENGTH_AT + _LENGTH_BYTES + int.from_bytes(length, "big")
        if after > end:
            break
        position = after
    else:
        return
    if position > found.position:
        found.count = position - found.position


def _size(read: _Read) -> int:
    """Returns the size of the response in bytes, about: exact but for what is not records."""
    overhead = _PARTITION_BYTES * sum(1 for _, data in read.results if len(data.records))
    return _RESPONSE_BYTES + overhead + sum(len(data.records) for _, data in read.results)


def _replica_id(request: FetchRequest) -> int:
    state = request.replica_state
    return state.replica_id if state is not None else request.replica_id


def handle(
    broker: Broker, context: Context, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse | None]:
    if request.isolation_level not in _ISOLATION_LEVELS:
        return _refused(context, request, ErrorCode.INVALID_REQUEST)
    replica_id = _replica_id(request)
    if replica_id >= 0 and not is_allowed(
        broker, context, Operation.CLUSTER_ACTION, AclResource.CLUSTER, quiet=True
    ):
        replica_id = NO_NODE  # all is denied below; no session of a follower, no precedence
    if replica_id >= 0 and context.metered is not None:
        context.metered.exempt()
    try:
        selection = broker.fetch_sessions.select(
            request,
            by_id=context.version >= 13,
            now=broker.clock.monotonic(),
            replica_id=replica_id,
        )
    except ApiError as refusal:
        return FetchResponse(error_code=refusal.code, responses=[])
    return _Fetch(broker, context, request, selection).start()


def _refused(context: Context, request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Refuses a whole request. Clients that name topics hear it for each partition, too."""
    response = FetchResponse(error_code=code, responses=[])
    if context.version < _TOPIC_IDS_SINCE:
        response.responses = [
            FetchableTopicResponse(
                topic=topic.topic,
                partitions=[
                    PartitionData(
                        partition_index=partition.partition,
                        error_code=code,
                        high_watermark=-1,
                        aborted_transactions=[],
                        records=b"",
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return response
