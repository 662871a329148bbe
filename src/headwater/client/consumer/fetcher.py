"""Fetching in the background, from all nodes at once, within a bound of memory.

`drive` looks at all partitions and sends what can be sent; whatever changes something (an answer, a
seek, records handed out, news about leaders) has it look again. Answers come by callback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.connection import Connection
from headwater.client.consumer.fetched import Frame, Ledger, Piece
from headwater.client.consumer.metrics import FetchMetrics
from headwater.client.consumer.partition import PartitionState, Phase
from headwater.client.consumer.sessions import FetchSession, Want, all_have_ids
from headwater.client.consumer.tasks import Tasks
from headwater.client.errors import ClientError, RetriableError, error_for
from headwater.client.metadata import Broker
from headwater.client.nodes import DATA, FETCHING
from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import NO_NODE, ZERO_ID, TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData

_log = logging.getLogger("headwater.client")

_LAST_VERSION_WITH_NAMES = 12
# A partition is fetched ahead up to so many times what one fetch of it may bring.
_AHEAD = 4
# Not worth a line in the log the first time: the metadata is on its way.
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
class _Asked:
    """What a request asked of a partition, to be compared when the answer is there."""

    state: PartitionState
    changes: int
    offset: int


class _Line:
    """A connection to a node on which one fetch at a time is under way."""

    __slots__ = ("asked", "is_busy", "node_id", "reserved", "session", "use")

    def __init__(self, node_id: int, use: int, session: FetchSession) -> None:
        self.node_id = node_id
        self.use = use
        self.session = session
        self.is_busy = False
        self.asked: dict[TopicPartition, _Asked] = {}  # the last time
        self.reserved = 0

    def has_asked(self, each: _Asked) -> bool:
        return self.asked.get(each.state.tp) == each


class _Node:
    """A node has two lines. On the main one, with a session, fetches wait at the broker until
    there is something. What comes up meanwhile (a seek, a partition that was read down) must not
    wait for that: it is asked for once on the side, and taken up by the main line's next fetch."""

    __slots__ = ("main", "side")

    def __init__(self, node_id: int, partition_bytes_max: int) -> None:
        self.main = _Line(node_id, FETCHING, FetchSession(partition_bytes_max))
        self.side = _Line(node_id, DATA, FetchSession(partition_bytes_max, is_lasting=False))

    def line(self, each: _Asked) -> _Line | None:
        """Where this is to be asked for now, if anywhere."""
        main, side = self.main, self.side
        if not main.is_busy:
            return main
        if side.is_busy or main.has_asked(each) or side.has_asked(each) or not main.asked:
            return None
        return side


class Fetcher:
    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        partitions: dict[TopicPartition, PartitionState],
        tasks: Tasks,
        metrics: FetchMetrics,
        *,
        arrived: Callable[[PartitionState], None],
        out_of_range: Callable[[PartitionState], None],
        failed: Callable[[ClientError], None],
        look_again: Callable[[float], None],
    ) -> None:
        self.ledger = Ledger()
        self._metrics = metrics
        self._config = config
        self._cluster = cluster
        self._partitions = partitions
        self._tasks = tasks
        self._arrived = arrived  # a partition has something to hand out
        self._out_of_range = out_of_range  # its position is not in the leader's log
        self._failed = failed  # the user must hear of it
        self._look_again = look_again  # after so many seconds
        self._nodes: dict[int, _Node] = {}
        self._reserved = 0
        self._isolation = int(config.isolation_level == "read_committed")
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._bytes_max = max(1, config.fetch_max_bytes)
        self._ahead_bytes = _AHEAD * max(1, config.max_partition_fetch_bytes)
        self._is_closed = False

    # Requests out

    def drive(self) -> None:
        """Sends what can be sent now."""
        room = self._room()
        if room <= 0 or self._is_closed:
            return
        now = self._cluster.now()
        metadata = self._cluster.metadata
        wants: dict[_Line, list[_Asked]] = {}
        for state in self._partitions.values():
            if not state.is_fetchable(now, self._ahead_bytes):
                continue
            node_id = state.preferred
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
            each = _Asked(state, state.changes, state.fetch_offset)
            line = node.line(each)
            if line is not None:
                wants.setdefault(line, []).append(each)
        for line, asked in wants.items():
            if room <= 0:
                return
            # An answer that is there before `post` returns has us look from the start again.
            if not line.is_busy:
                room -= self._send(line, asked, room)

    def _room(self) -> int:
        """How many bytes may be asked for."""
        room = self._bytes_max - self.ledger.held - self._reserved
        if room > 0:
            return room
        # Partitions that are paused would hold the memory for as long as they are: rather fetch
        # what they have once more than stop all others.
        for state in self._partitions.values():
            if state.is_paused and state.pieces:
                state.evict()
        return self._bytes_max - self.ledger.held - self._reserved

    def _send(self, line: _Line, asked: list[_Asked], room: int) -> int:
        """Gives how many bytes the answer may have."""
        line.is_busy = True
        line.asked = {}
        connection = self._cluster.ready(line.node_id, line.use)
        if connection is None:
            self._tasks.spawn(self._connect(line, [each.state for each in asked]))
            return 0
        self._post(connection, line, asked, room)
        return line.reserved

    async def _connect(self, line: _Line, states: list[PartitionState]) -> None:
        try:
            await self._cluster.connection(line.node_id, line.use)
        except RetriableError as error:
            _log.debug("fetching from node %s: %s", line.node_id, error)
            self._cluster.need_update()
            for state in states:
                state.preferred = NO_NODE
                self._back_off(state)
        except ClientError as error:
            self._failed(error)
            for state in states:
                self._back_off(state)
        finally:
            line.is_busy = False
        self.drive()

    def _post(self, connection: Connection, line: _Line, asked: list[_Asked], room: int) -> None:
        wants = [self._want(each) for each in asked]
        with_ids = all_have_ids(wants)
        version = connection.version(
            ApiKey.FETCH, at_most=None if with_ids else _LAST_VERSION_WITH_NAMES
        )
        if version is None:
            what = f"fetch from node {connection.node_id}"
            self._failed(error_for(ErrorCode.UNSUPPORTED_VERSION, what))
            for each in asked:
                self._back_off(each.state)
            line.is_busy = False
            return
        ask = line.session.ask(wants, with_ids=with_ids and version > _LAST_VERSION_WITH_NAMES)
        line.asked = {each.state.tp: each for each in asked}
        line.reserved = min(room, len(wants) * self._config.max_partition_fetch_bytes)
        self._reserved += line.reserved
        self._metrics.requests += 1
        began = self._cluster.now()
        wait_ms = self._config.fetch_max_wait_ms if line.session.is_lasting else 0
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=room,
            isolation_level=self._isolation,
            session_id=ask.session_id,
            session_epoch=ask.epoch,
            topics=ask.topics,
            forgotten_topics_data=ask.forgotten,
            rack_id=self._config.client_rack,
        )

        def done(response: FetchResponse | None, error: ClientError | None) -> None:
            if response is not None:
                now = self._cluster.now()
                self._metrics.latency.note(now - began, now)
                self._metrics.throttle_ms.note(response.throttle_time_ms, now)
            self._done(line, response, error)

        connection.post(
            request, version, done, timeout_ms=self._config.request_timeout_ms + wait_ms
        )

    def _want(self, each: _Asked) -> Want:
        tp = each.state.tp
        topic = self._cluster.metadata.topics.get(tp.topic)
        topic_id = topic.topic_id if topic is not None else ZERO_ID
        return Want(tp, topic_id, each.offset, each.state.leader_epoch)

    # Answers in

    def _done(self, line: _Line, response: FetchResponse | None, error: ClientError | None) -> None:
        line.is_busy = False
        self._reserved -= line.reserved
        line.reserved = 0
        asked = line.asked
        if line.session.is_lasting:
            line.asked = {}
        if self._is_closed:
            return
        if response is None:
            line.session.lost()
            self._unanswered(asked, error)
        elif line.session.answered(response):
            self._take(line.session, asked, response)
        else:
            self._refused(response.error_code, asked)
        self.drive()

    def _unanswered(self, asked: dict[TopicPartition, _Asked], error: ClientError | None) -> None:
        self._metrics.failures += 1
        _log.debug("a fetch had no answer: %s", error)
        if error is not None and not isinstance(error, RetriableError):
            self._failed(error)
        self._cluster.need_update()
        for each in asked.values():
            each.state.preferred = NO_NODE
            self._back_off(each.state)

    def _refused(self, code: int, asked: dict[TopicPartition, _Asked]) -> None:
        """The request as a whole was refused: mostly the session is not known any more."""
        _log.debug("a fetch was refused with code %s", code)
        self._metrics.failures += 1
        if code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ):
            return  # the next one starts afresh, now
        for each in asked.values():
            self._back_off(each.state, each.state.tp.topic)

    def _take(
        self, session: FetchSession, asked: dict[TopicPartition, _Asked], response: FetchResponse
    ) -> None:
        size = sum(
            len(data.records)
            for topic in response.responses
            for data in topic.partitions
            if data.records
        )
        if size:
            self._metrics.bytes += size
            self._metrics.answers += 1
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
                if state.changes != each.changes or state.fetch_offset != each.offset:
                    continue  # the user has moved on meanwhile
                if state.phase is not Phase.READING:
                    continue
                if data.error_code:
                    self._on_error(each, data, endpoints)
                else:
                    self._on_data(state, data, frame)

    def _on_data(self, state: PartitionState, data: PartitionData, frame: Frame) -> None:
        state.failures = 0
        state.is_spent = False
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start = data.log_start_offset
        if data.preferred_read_replica >= 0:
            state.preferred = data.preferred_read_replica
            age = self._config.metadata_max_age_ms / 1000
            state.preferred_until = self._cluster.now() + age
        records = data.records
        if not records:
            return
        aborted = [
            (each.producer_id, each.first_offset) for each in data.aborted_transactions or ()
        ]
        piece = Piece(
            records,
            frame,
            state.tp,
            from_offset=state.fetch_offset,
            aborted=aborted if self._isolation else (),
            check_crc=self._config.check_crcs,
        )
        state.add(piece)
        self._arrived(state)

    def _on_error(self, asked: _Asked, data: PartitionData, endpoints: dict[int, Broker]) -> None:
        state = asked.state
        code = data.error_code
        self._metrics.failures += 1
        hint = data.current_leader
        if hint is not None and self._cluster.learn_leader(
            state.tp, hint.leader_id, hint.leader_epoch, endpoints.get(hint.leader_id)
        ):
            state.preferred = NO_NODE
            return  # the new leader is asked next
        if state.preferred != NO_NODE:
            # Whatever is wrong with that replica, the leader knows better.
            state.preferred = NO_NODE
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # What was fetched before that offset is handed out first; then it is asked for again.
            state.is_spent = True
            if not state.pieces:
                self._out_of_range(state)
        elif code in _NEEDS_METADATA:
            self._back_off(state, state.tp.topic)
        else:
            error = error_for(code, f"fetch of {state.tp} from offset {asked.offset}")
            if not isinstance(error, RetriableError):
                self._failed(error)
            self._back_off(state, state.tp.topic)

    def _back_off(self, state: PartitionState, topic: str | None = None) -> None:
        state.failures += 1
        wait = self._backoff.seconds(state.failures, self._cluster.host.random)
        state.retry_at = self._cluster.now() + wait
        if topic is not None:
            self._cluster.need_update(topic)
        self._look_again(wait)

    # Ending

    async def close(self, deadline: float) -> None:
        """Ends the sessions, so that the brokers need not keep them; waits for no answer."""
        self._is_closed = True
        for node_id, node in self._nodes.items():
            last = node.main.session.last()
            connection = self._cluster.ready(node_id, FETCHING)
            if last is None or connection is None or node.main.is_busy:
                continue  # a broker drops the session of a connection that ended by itself
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
            connection.post(request, version, lambda _answer, _error: None, timeout_ms=1000)
        self._nodes.clear()
