"""Fetches in the background, from all nodes at once, within a bound of memory.

`send_fetches` looks at all partitions and sends what can be sent. It is called again whenever
something has changed: a response, a seek, data that was used up, a new leader. Responses arrive by
callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.connection import Connection
from headwater.client.connection_pool import DATA, FETCHING
from headwater.client.consumer.fetch_buffer import CompletedFetch, Frame, Ledger
from headwater.client.consumer.fetch_session import FetchSession, WantedPartition, all_have_ids
from headwater.client.consumer.metrics import FetchMetrics
from headwater.client.consumer.subscription import PartitionState, Phase, Spawn
from headwater.client.errors import ClientError, RetriableError, error_for
from headwater.client.metadata import Broker
from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import NO_NODE, ZERO_ID, TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

_log = logging.getLogger("headwater.client")

_LAST_VERSION_WITH_NAMES = 12
# A partition is fetched ahead up to this many times max_partition_fetch_bytes.
_AHEAD = 4
# The leader has changed or is not known to all brokers yet: fresh metadata is enough.
_NEEDS_METADATA = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


@dataclass(frozen=True, slots=True)
class _PartitionFetch:
    """One partition of a request, to be compared with its state when the response arrives."""

    state: PartitionState
    position_version: int
    offset: int


class _Channel:
    """A connection to a node, with at most one fetch in flight."""

    __slots__ = ("asked", "is_busy", "node_id", "reserved", "session", "use")

    def __init__(self, node_id: int, use: int, session: FetchSession) -> None:
        self.node_id = node_id
        self.use = use
        self.session = session
        self.is_busy = False
        self.asked: dict[TopicPartition, _PartitionFetch] = {}  # by the last request
        self.reserved = 0

    def has_asked(self, each: _PartitionFetch) -> bool:
        return self.asked.get(each.state.tp) == each


class _Node:
    """The two channels of a node. On the main channel, which has a session, fetches wait at the
    broker for new records. What comes up meanwhile (a seek, a partition whose data was used up)
    must not wait for that: it is requested once on the side channel, and joins the next fetch of
    the main channel."""

    __slots__ = ("main", "side")

    def __init__(self, node_id: int, partition_bytes_max: int) -> None:
        self.main = _Channel(node_id, FETCHING, FetchSession(partition_bytes_max))
        self.side = _Channel(node_id, DATA, FetchSession(partition_bytes_max, is_lasting=False))

    def channel(self, each: _PartitionFetch) -> _Channel | None:
        """Returns the channel on which to request this now, if any."""
        main, side = self.main, self.side
        if not main.is_busy:
            return main
        if side.is_busy or main.has_asked(each) or side.has_asked(each) or not main.asked:
            return None
        return side


class Fetcher:
    """The fetch requests in flight, and the memory reserved for their responses."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        partitions: dict[TopicPartition, PartitionState],
        spawn: Spawn,
        metrics: FetchMetrics,
        *,
        on_fetched: Callable[[PartitionState], None],
        on_out_of_range: Callable[[PartitionState], None],
        on_error: Callable[[ClientError], None],
        retry_after: Callable[[float], None],
    ) -> None:
        self.ledger = Ledger()
        self._metrics = metrics
        self._config = config
        self._cluster = cluster
        self._partitions = partitions
        self._spawn = spawn
        self._on_fetched = on_fetched  # a partition has data
        self._on_out_of_range = on_out_of_range  # its position is not in the leader's log
        self._on_error = on_error  # the user's next poll raises it
        self._retry_after = retry_after  # calls `send_fetches` after so many seconds
        self._nodes: dict[int, _Node] = {}
        self._reserved = 0
        self._isolation = int(config.isolation_level == "read_committed")
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._bytes_max = max(1, config.fetch_max_bytes)
        self._ahead_bytes = _AHEAD * max(1, config.max_partition_fetch_bytes)
        self._is_closed = False

    # Requests

    def send_fetches(self) -> None:
        """Sends a fetch to every node that has something to read and no fetch in flight."""
        room = self._free_bytes()
        if room <= 0 or self._is_closed:
            return
        now = self._cluster.now()
        metadata = self._cluster.metadata
        wants: dict[_Channel, list[_PartitionFetch]] = {}
        for state in self._partitions.values():
            if not state.is_fetchable(now, self._ahead_bytes):
                continue
            node_id = state.preferred_replica
            if node_id == NO_NODE or state.preferred_until <= now:
                leader = metadata.leader(state.tp)
                if leader is None:
                    self._back_off(state, state.tp.topic)
                    continue
                node_id = leader
            node = self._nodes.get(node_id)
            if node is None:
                node = _Node(node_id, self._config.max_partition_fetch_bytes)
                self._nodes[node_id] = node
            each = _PartitionFetch(state, state.position_version, state.fetch_offset)
            channel = node.channel(each)
            if channel is not None:
                wants.setdefault(channel, []).append(each)
        for channel, asked in wants.items():
            if room <= 0:
                return
            # A response that arrives before `post` returns may have sent this already.
            if not channel.is_busy:
                room -= self._send(channel, asked, room)

    def _free_bytes(self) -> int:
        """Returns how many bytes may be requested."""
        room = self._bytes_max - self.ledger.held - self._reserved
        if room > 0:
            return room
        # Paused partitions would keep all others from being fetched: rather fetch their data
        # once more.
        for state in self._partitions.values():
            if state.is_paused and state.fetches:
                state.evict()
        return self._bytes_max - self.ledger.held - self._reserved

    def _send(self, channel: _Channel, asked: list[_PartitionFetch], room: int) -> int:
        """Returns how many bytes the response may have."""
        channel.is_busy = True
        channel.asked = {}
        connection = self._cluster.ready(channel.node_id, channel.use)
        if connection is None:
            self._spawn(self._connect(channel, [each.state for each in asked]))
            return 0
        self._post(connection, channel, asked, room)
        return channel.reserved

    async def _connect(self, channel: _Channel, states: list[PartitionState]) -> None:
        try:
            await self._cluster.connection(channel.node_id, channel.use)
        except RetriableError as error:
            _log.debug("cannot fetch from node %s: %s", channel.node_id, error)
            self._cluster.need_update()
            for state in states:
                state.preferred_replica = NO_NODE
                self._back_off(state)
        except ClientError as error:
            self._on_error(error)
            for state in states:
                self._back_off(state)
        finally:
            channel.is_busy = False
        self.send_fetches()

    def _post(
        self,
        connection: Connection,
        channel: _Channel,
        asked: list[_PartitionFetch],
        room: int,
    ) -> None:
        wants = [self._want(each) for each in asked]
        with_ids = all_have_ids(wants)
        version = connection.version(
            ApiKey.FETCH, at_most=None if with_ids else _LAST_VERSION_WITH_NAMES
        )
        if version is None:
            what = f"fetch from node {connection.node_id}"
            self._on_error(error_for(ErrorCode.UNSUPPORTED_VERSION, what))
            for each in asked:
                self._back_off(each.state)
            channel.is_busy = False
            return
        session_request = channel.session.next_request(
            wants, with_ids=with_ids and version > _LAST_VERSION_WITH_NAMES
        )
        channel.asked = {each.state.tp: each for each in asked}
        channel.reserved = min(room, len(wants) * self._config.max_partition_fetch_bytes)
        self._reserved += channel.reserved
        self._metrics.requests += 1
        began = self._cluster.now()
        wait_ms = self._config.fetch_max_wait_ms if channel.session.is_lasting else 0
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=room,
            isolation_level=self._isolation,
            session_id=session_request.session_id,
            session_epoch=session_request.epoch,
            topics=session_request.topics,
            forgotten_topics_data=session_request.forgotten,
            rack_id=self._config.client_rack,
        )

        def on_end(response: FetchResponse | None, error: ClientError | None) -> None:
            if response is not None:
                now = self._cluster.now()
                self._metrics.latency.note(now - began, now)
                self._metrics.throttle_ms.note(response.throttle_time_ms, now)
            self._on_end(channel, response, error)

        connection.post(
            request, version, on_end, timeout_ms=self._config.request_timeout_ms + wait_ms
        )

    def _want(self, each: _PartitionFetch) -> WantedPartition:
        tp = each.state.tp
        topic = self._cluster.metadata.topics.get(tp.topic)
        topic_id = topic.topic_id if topic is not None else ZERO_ID
        return WantedPartition(tp, topic_id, each.offset, each.state.leader_epoch)

    # Responses

    def _on_end(
        self, channel: _Channel, response: FetchResponse | None, error: ClientError | None
    ) -> None:
        channel.is_busy = False
        self._reserved -= channel.reserved
        channel.reserved = 0
        asked = channel.asked
        if channel.session.is_lasting:
            channel.asked = {}
        if self._is_closed:
            return
        if response is None:
            channel.session.on_no_response()
            self._on_no_response(asked, error)
        elif channel.session.on_response(response):
            self._on_response(channel.session, asked, response)
        else:
            self._on_refusal(response.error_code, asked)
        self.send_fetches()

    def _on_no_response(
        self, asked: dict[TopicPartition, _PartitionFetch], error: ClientError | None
    ) -> None:
        self._metrics.failures += 1
        _log.debug("a fetch had no response: %s", error)
        if error is not None and not isinstance(error, RetriableError):
            self._on_error(error)
        self._cluster.need_update()
        for each in asked.values():
            each.state.preferred_replica = NO_NODE
            self._back_off(each.state)

    def _on_refusal(self, code: int, asked: dict[TopicPartition, _PartitionFetch]) -> None:
        """Handles an error of the whole request, mostly of a session that the broker dropped."""
        _log.debug("a fetch was refused with code %s", code)
        self._metrics.failures += 1
        if code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ):
            return  # the next request starts a new session, without delay
        for each in asked.values():
            self._back_off(each.state, each.state.tp.topic)

    def _on_response(
        self,
        session: FetchSession,
        asked: dict[TopicPartition, _PartitionFetch],
        response: FetchResponse,
    ) -> None:
        size = sum(
            len(data.records)
            for topic in response.responses
            for data in topic.partitions
            if data.records
        )
        if size:
            self._metrics.bytes += size
            self._metrics.responses += 1
            self._metrics.size.note(size, self._cluster.now())
        frame = Frame(self.ledger, size)
        endpoints = {
            each.node_id: Broker(each.node_id, Address(each.host, each.port), each.rack)
            for each in response.node_endpoints
        }
        for topic in response.responses:
            name = session.topic(topic.topic, topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                tp = TopicPartition(name, data.partition_index)
                each = asked.get(tp)
                if each is None or self._partitions.get(tp) is not each.state:
                    continue
                state = each.state
                if state.position_version != each.position_version:
                    continue  # the position has changed meanwhile
                if state.fetch_offset != each.offset:
                    continue  # the other channel was quicker
                if state.phase is not Phase.READING:
                    continue
                if data.error_code:
                    self._on_partition_error(each, data, endpoints)
                else:
                    self._on_data(state, data, frame)

    def _on_data(self, state: PartitionState, data: PartitionData, frame: Frame) -> None:
        state.on_fetched(
            high_watermark=data.high_watermark,
            last_stable_offset=data.last_stable_offset,
            log_start=data.log_start_offset,
        )
        if data.preferred_read_replica >= 0:
            until = self._cluster.deadline(self._config.metadata_max_age_ms)
            state.prefer_replica(data.preferred_read_replica, until)
        records = data.records
        if not records:
            return
        aborted = [
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ]
        fetch = CompletedFetch(
            records,
            frame,
            state.tp,
            from_offset=state.fetch_offset,
            aborted=aborted if self._isolation else (),
            check_crc=self._config.check_crcs,
        )
        state.add_fetch(fetch)
        self._on_fetched(state)

    def _on_partition_error(
        self, asked: _PartitionFetch, data: PartitionData, endpoints: dict[int, Broker]
    ) -> None:
        state = asked.state
        code = data.error_code
        self._metrics.failures += 1
        hint = data.current_leader
        if hint is not None and self._cluster.learn_leader(
            state.tp, hint.leader_id, hint.leader_epoch, endpoints.get(hint.leader_id)
        ):
            state.preferred_replica = NO_NODE
            return  # the next fetch goes to the new leader
        if state.preferred_replica != NO_NODE:
            # A follower may be behind: the leader has the last word.
            state.preferred_replica = NO_NODE
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # Data fetched before that offset is returned first; then it is requested again.
            state.is_out_of_range = True
            if not state.fetches:
                self._on_out_of_range(state)
        elif code in _NEEDS_METADATA:
            self._back_off(state, state.tp.topic)
        else:
            error = error_for(code, f"fetch of {state.tp} from offset {asked.offset}")
            if not isinstance(error, RetriableError):
                self._on_error(error)
            self._back_off(state, state.tp.topic)

    def _back_off(self, state: PartitionState, topic: str | None = None) -> None:
        wait = state.back_off(self._cluster.now(), self._backoff, self._cluster.host.random)
        if topic is not None:
            self._cluster.need_update(topic)
        self._retry_after(wait)

    # Closing

    def close(self) -> None:
        """Ends the sessions, so that brokers do not keep them; does not wait for responses."""
        self._is_closed = True
        for node_id, node in self._nodes.items():
            last = node.main.session.closing_request()
            connection = self._cluster.ready(node_id, FETCHING)
            if last is None or connection is None or node.main.is_busy:
                continue  # the broker drops the session when the connection ends
            version = connection.version(ApiKey.FETCH)
            if version is None:
                continue
            request = FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=0,
                session_id=last.session_id,
                session_epoch=last.epoch,
            )
            connection.post(request, version, lambda _response, _error: None, timeout_ms=1000)
        self._nodes.clear()
