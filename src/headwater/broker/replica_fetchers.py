"""Followers: copies the logs of partitions that other brokers lead.

There is one connection and one request in flight for each leader. A fetch names what has changed
since the one before (KIP-227), its records are appended straight from the frame, and the next fetch
leaves at once: what arrives at the leader meanwhile is the next batch. `FollowerState` decides
where a log has to be cut; `Truncations` makes cuts durable, many at a time, before a replica
fetches on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Host
from headwater.io.workers import run_to_completion
from headwater.metadata import Delta, Image
from headwater.model import OffsetAndEpoch
from headwater.net.peer import (
    PeerConnection,
    PeerError,
    PeerSource,
    as_is,
    connect,
    no_security,
)
from headwater.observability import Log as Lines
from headwater.observability.measures import Window
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.replication.follower import Cut, FollowerState
from headwater.storage import LogDirs, TruncationJob

_TURN_SECONDS = 0.005  # then the loop serves others before the rest of a response
_CUTS_AT_ONCE = 4  # in as many workers
_FIRST_RETRY_SECONDS = 0.02
_LATEST, _EARLIEST = -1, -2
# The versions of Fetch and ListOffsets from each level of metadata.version on.
_FETCH_VERSIONS = ((27, 18), (21, 17), (19, 16), (10, 15), (9, 14), (0, 13))
_LIST_OFFSETS_VERSIONS = ((29, 11), (25, 10), (21, 9), (9, 8), (0, 7))
_STATE_VERSION = 15  # since when a request has `replica_state`
_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
# The leader may not have seen the metadata yet that this broker follows, or the other way round.
_SOON_OVER = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)

Key = tuple[bytes, int]
Retire = Callable[[Callable[[], None], float], None]
"""Runs a deletion in a worker, after a delay in seconds."""


class Truncations:
    """Makes cuts durable: a failover may need hundreds at once, so they share workers and the
    checkpoints of their directories."""

    def __init__(
        self,
        host: Host,
        partitions: Partitions,
        log_dirs: LogDirs,
        retire: Retire,
        backoff_seconds: float,
        lines: Lines,
    ) -> None:
        self._host = host
        self._partitions = partitions
        self._log_dirs = log_dirs
        self._retire = retire
        self._backoff_seconds = backoff_seconds
        self._lines = lines
        self._queued: list[tuple[Partition, TruncationJob]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def cut(self, partition: Partition, cut: Cut) -> bool:
        """Cuts a log; returns whether that is complete. Otherwise the partition's role is given
        again (`Partitions.cut_ended`) when it is durable."""
        end = partition.log.end
        job = partition.begin_cut(cut)
        self._lines.info(f"{partition.tp}: truncated from {end} to {cut.offset}")
        if job is None:
            return True
        self._queued.append((partition, job))
        if self._task is None:
            self._task = asyncio.ensure_future(self._run())
        return False

    def stop(self) -> list[asyncio.Task[None]]:
        """Returns the task that ends what was begun: a log must know its producers again before it
        is closed."""
        self._is_stopped = True
        return [self._task] if self._task is not None else []

    async def _run(self) -> None:
        try:
            while self._queued:
                cuts, self._queued = self._queued, []
                await self._make_durable(cuts)
        except Exception as error:
            self._lines.failure("truncation failed", error)
        finally:
            self._task = None

    async def _make_durable(self, cuts: list[tuple[Partition, TruncationJob]]) -> None:
        durable: list[tuple[Partition, TruncationJob]] = []
        for first in range(0, len(cuts), _CUTS_AT_ONCE):
            some = cuts[first : first + _CUTS_AT_ONCE]
            runs = (run_to_completion(self._host.workers, job.run) for _, job in some)
            for cut, failure in zip(
                some, await asyncio.gather(*runs, return_exceptions=True), strict=True
            ):
                if failure is None:
                    durable.append(cut)
                else:  # its directory is offline
                    self._lines.error(f"{cut[0].tp} cannot be truncated: {failure}")
        await self._write_ends([partition for partition, _ in durable])
        for partition, job in durable:
            self._partitions.cut_ended(partition, job)
            delay = partition.log.config.file_delete_delay_ms / 1000
            for segment in job.retired:
                self._retire(segment.delete, delay)

    async def _write_ends(self, cut: list[Partition]) -> None:
        """Writes the checkpoints before anything is appended: a recovery point above a cut would
        leave it unchecked."""
        while not self._is_stopped:
            here = [partition.log for partition in cut if self._partitions.has(partition)]
            try:
                await run_to_completion(self._host.workers, self._log_dirs.ends_job(here).run)
                return
            except ApiError as failure:  # the disk is full
                self._lines.warn(f"a checkpoint cannot be written yet: {failure}")
                await asyncio.sleep(self._backoff_seconds)


class _Position(NamedTuple):
    """A partition as a fetch names it. A tuple, since messages are slow to compare."""

    epoch: int  # of its leader
    end: int
    latest_epoch: int  # of a record in the log
    start: int
    bytes_max: int


class _Copy:
    """A partition that is copied from one leader in one epoch."""

    __slots__ = ("is_paused", "key", "named", "partition", "retries", "state")

    def __init__(self, partition: Partition, state: FollowerState) -> None:
        self.key: Key = partition.topic_id, partition.tp.partition
        self.partition = partition
        self.state = state
        self.named: _Position | None = None  # what the session knows of it
        self.is_paused = False
        self.retries = 0

    @property
    def is_current(self) -> bool:
        """Whether the partition still follows this leader in this epoch."""
        return self.partition.follower is self.state and not self.partition.is_being_cut


class LeaderFetcher:
    """Copies all partitions that one broker leads."""

    def __init__(
        self,
        leader_id: int,
        config: NodeConfig,
        host: Host,
        truncations: Truncations,
        lines: Lines,
        *,
        broker_epoch: Callable[[], int],
        image: Callable[[], Image],
        security: PeerSource,
    ) -> None:
        self._security = security
        self.leader_id = leader_id
        self.copies: dict[Key, _Copy] = {}
        self.responses = Window()
        self._config = config
        self._host = host
        self._truncations = truncations
        self._lines = lines
        self._broker_epoch = broker_epoch
        self._image = image
        self._loop = asyncio.get_running_loop()
        self._connection: PeerConnection[PeerError] | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._address: Address | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._failures = 0
        self._version = 0
        self._session_id = 0
        self._session_epoch = 0
        self._is_busy = False  # a fetch is in flight, or its response is being worked on
        self._is_nudged = False
        self._changed: dict[_Copy, None] = {}  # to be named by the next fetch
        self._forgotten: dict[Key, None] = {}
        self._paused: dict[_Copy, float] = {}  # until when
        self._wake_paused: asyncio.TimerHandle | None = None
        self._out_of_range: list[_Copy] = []
        self._is_stopped = False

    # Partitions come and go

    def add(self, partition: Partition, state: FollowerState) -> None:
        copy = _Copy(partition, state)
        self.remove(copy.key)
        self.copies[copy.key] = copy
        cut = state.decide_start(log_end=partition.log.end, latest_epoch=partition.log.latest_epoch)
        if cut is None or self._cut(copy, cut):
            self._changed[copy] = None
            self._go()

    def remove(self, key: Key) -> None:
        copy = self.copies.pop(key, None)
        if copy is None:
            return
        self._changed.pop(copy, None)
        self._paused.pop(copy, None)
        if copy.named is not None:
            self._forgotten[key] = None

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends fetching; returns the tasks that are still ending."""
        self._is_stopped = True
        self._drop_connection()
        for timer in (self._retry, self._wake_paused):
            if timer is not None:
                timer.cancel()
        ending = [task for task in (self._connecting, self._asking) if task is not None]
        for task in ending:
            task.cancel()
        return ending

    # Connecting

    def on_broker(self) -> None:
        """Follows a change of the leader's registration."""
        address = self._find_address()
        if self._connection is not None and address != self._address:
            self._drop_connection()
        self._failures = 0
        self._go()

    def _find_address(self) -> Address | None:
        broker = self._image().brokers.get(self.leader_id)
        at = broker.endpoint(self._config.inter_broker_listener_name) if broker else None
        return Address(at.host, at.port) if at is not None else None

    def _go(self) -> None:
        """Sends the next fetch, if nothing is in flight, and connects first if necessary."""
        if self._is_stopped:
            return
        if self._connection is None:
            if self._connecting is None and (self.copies or self._forgotten):
                if self._retry is not None:
                    self._retry.cancel()
                    self._retry = None
                self._connecting = asyncio.ensure_future(self._connect())
        elif not self._is_busy:
            self._send()
        elif self._changed and not self._is_nudged:
            self._nudge(self._connection)

    async def _connect(self) -> None:
        address = self._address = self._find_address()
        try:
            if address is None:
                raise PeerError(f"node {self.leader_id} has no listener for brokers")
            connection = await connect(
                self._host,
                address,
                node_id=self.leader_id,
                client_id=f"broker-{self._config.node_id}-fetcher-0",
                timeout_ms=self._config.replica_socket_timeout_ms,
                request_timeout_ms=self._config.replica_socket_timeout_ms,
                as_error=as_is,
                security=self._security(),
            )
        except PeerError as error:
            self._connecting = None
            self._on_failure(str(error))
            return
        self._connecting = None
        if self._is_stopped:
            connection.close()
            return
        version = self._negotiated(connection)
        if version is None:
            connection.close()
            self._on_failure(f"node {self.leader_id} does not serve Fetch in a known version")
            return
        connection.put_first()
        self._version = version
        self._connection = connection
        connection.on_closed = self._on_closed
        self._go()

    def _negotiated(self, connection: PeerConnection[PeerError]) -> int | None:
        """Returns the version of Fetch for the finalized metadata.version that the leader serves,
        or None."""
        at_most = self._at_level(_FETCH_VERSIONS)
        version = connection.version(ApiKey.FETCH, at_most=at_most)
        return version if version is not None and version >= _FETCH_VERSIONS[-1][1] else None

    def _at_level(self, versions: Iterable[tuple[int, int]]) -> int:
        level = self._image().metadata_version
        return next(version for since, version in versions if level >= since)

    def on_level(self) -> None:
        """Follows a change of metadata.version with the next fetch."""
        if self._connection is not None:
            self._version = self._negotiated(self._connection) or self._version

    def _on_closed(self, connection: PeerConnection[PeerError]) -> None:
        if connection is self._connection:
            self._forget_connection()
            if not self._is_busy:
                self._go()

    def _drop_connection(self) -> None:
        connection = self._connection
        if connection is not None:
            self._forget_connection()
            connection.close()

    def _forget_connection(self) -> None:
        self._connection = None
        self._begin_session()

    def _begin_session(self) -> None:
        """Lets the next fetch name everything."""
        self._session_id = self._session_epoch = 0
        self._forgotten.clear()
        for copy in self.copies.values():
            copy.named = None
            if copy not in self._paused and copy.is_current:
                self._changed[copy] = None

    def _on_failure(self, why: str) -> None:
        """Tries again: soon after the first failure, then with `replica.fetch.backoff.ms`."""
        if self._is_stopped:
            return
        self._failures += 1
        if self._failures == 2:
            self._lines.warn(f"cannot fetch from node {self.leader_id}, retrying: {why}")
        else:
            self._lines.debug(f"cannot fetch from node {self.leader_id}: {why}")
        if self._retry is not None:
            self._retry.cancel()
        self._retry = self._loop.call_later(self._retry_seconds(self._failures), self._go_again)

    def _retry_seconds(self, failures: int) -> float:
        most: float = self._config.replica_fetch_backoff_ms / 1000
        return min(most, _FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 16))

    def _go_again(self) -> None:
        self._retry = None
        self._go()

    # Fetching

    def _send(self) -> None:
        connection = self._connection
        assert connection is not None, "not connected"
        if not self.copies:
            self._drop_connection()
            return
        named = list(self._named())
        self._changed.clear()
        if not self._session_epoch and not named:
            return  # all are paused
        config = self._config
        has_state = self._version >= _STATE_VERSION
        epoch = self._broker_epoch()
        request = FetchRequest(
            replica_id=-1 if has_state else config.node_id,
            replica_state=ReplicaState(replica_id=config.node_id, replica_epoch=epoch)
            if has_state
            else None,
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=_by_topic(named),
            forgotten_topics_data=_forgotten(self._forgotten),
        )
        self._forgotten.clear()
        self._is_busy = True
        self._is_nudged = False
        connection.post(
            request,
            self._version,
            partial(self._on_response, connection),
            timeout_ms=config.replica_socket_timeout_ms,
        )

    def _named(self) -> Iterator[tuple[bytes, FetchPartition]]:
        """Yields the partitions whose position the leader does not know."""
        bytes_max = self._config.replica_fetch_max_bytes
        for copy in self._changed:
            if not copy.is_current or copy.is_paused or self.copies.get(copy.key) is not copy:
                continue
            log = copy.partition.log
            self._forgotten.pop(copy.key, None)
            position = _Position(copy.state.epoch, log.end, log.latest_epoch, log.start, bytes_max)
            if position != copy.named:
                copy.named = position
                yield (
                    copy.key[0],
                    FetchPartition(
                        partition=copy.key[1],
                        current_leader_epoch=position.epoch,
                        fetch_offset=position.end,
                        last_fetched_epoch=position.latest_epoch,
                        log_start_offset=position.start,
                        partition_max_bytes=bytes_max,
                    ),
                )

    def _nudge(self, connection: PeerConnection[PeerError]) -> None:
        """Ends the wait of a fetch that is parked at the leader, which does not know the newest
        partitions: it answers when another request comes behind it."""
        version = connection.version(ApiKey.API_VERSIONS)
        if version is not None:
            self._is_nudged = True
            connection.post(
                ApiVersionsRequest(client_software_name="headwater", client_software_version="0"),
                version,
                _ignore,
                timeout_ms=self._config.replica_socket_timeout_ms,
            )

    def _on_response(
        self,
        connection: PeerConnection[PeerError],
        response: FetchResponse | None,
        error: PeerError | None,
    ) -> None:
        if self._is_stopped:
            return
        if response is None or connection is not self._connection:
            self._is_busy = False
            self._drop_connection()
            self._on_failure(str(error))
            return
        if response.error_code:
            self._is_busy = False
            self._begin_session()
            if response.error_code in _SESSION_ERRORS and not self._failures:
                self._failures = 1  # at once, but only once
                self._go()
            else:
                self._on_failure(ErrorCode(response.error_code).name)
            return
        self._failures = 0
        self.responses.note(1, self._host.clock.monotonic())
        if not self._session_epoch:
            self._session_id = response.session_id
            self._session_epoch = 1 if response.session_id else 0
        else:
            self._session_epoch = self._session_epoch % (2**31 - 1) + 1
        work = ((topic.topic_id, data) for topic in response.responses for data in topic.partitions)
        self._work_on(work)

    def _work_on(self, work: Iterator[tuple[bytes, PartitionData]]) -> None:
        """Takes the partitions of a response for a while, and the rest in the next turn."""
        if self._is_stopped:
            return
        now = self._host.clock.monotonic
        turn_ends = now() + _TURN_SECONDS
        try:
            for topic_id, data in work:
                copy = self.copies.get((topic_id, data.partition_index))
                if copy is not None and copy.is_current:
                    self._take(copy, data)
                if now() > turn_ends:
                    self._loop.call_soon(self._work_on, work)
                    return
        except Exception as error:
            self._lines.failure(f"the copies of node {self.leader_id} failed", error)
            self._is_busy = False
            self._drop_connection()
            self._on_failure(str(error))
            return
        self._is_busy = False
        if not self._session_epoch:  # the leader had no room for a session
            self._begin_session()
        if self._out_of_range and self._asking is None:
            self._asking = asyncio.ensure_future(self._ask_for_ranges())
        self._go()

    def _take(self, copy: _Copy, data: PartitionData) -> None:
        partition = copy.partition
        if data.error_code:
            self._on_error(copy, data.error_code)
            return
        diverging = data.diverging_epoch
        try:
            if diverging is not None:
                cut = copy.state.decide_divergence(
                    OffsetAndEpoch(diverging.end_offset, diverging.epoch),
                    log_end=partition.log.end,
                    own=partition.log.epoch_end,
                )
                if self._cut(copy, cut):
                    self._changed[copy] = None
                return
            log, start = partition.log, partition.log.start
            appended = partition.append_as_follower(
                data.records or b"",
                high_watermark=data.high_watermark,
                leader_start=data.log_start_offset,
                now_ms=self._host.clock.wall_ms(),
            )
        except ApiError as failure:
            self._lines.error(f"{partition.tp} cannot be copied: {failure}")
            self._pause(copy, self._config.replica_fetch_backoff_ms / 1000)
            return
        copy.retries = 0
        if appended or log.start != start:
            self._changed[copy] = None

    def _cut(self, copy: _Copy, cut: Cut) -> bool:
        """Cuts a log; returns whether it may be fetched at once. Otherwise it is added again when
        the cut is durable."""
        is_complete = self._truncations.cut(copy.partition, cut)
        if not is_complete:
            self.remove(copy.key)
        return is_complete

    def _on_error(self, copy: _Copy, code: int) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._pause(copy, None)
            self._out_of_range.append(copy)
            return
        copy.retries += 1
        soon = code in _SOON_OVER
        tp, name = copy.partition.tp, ErrorCode(code).name
        self._lines.debug(f"{tp}: node {self.leader_id} answered {name}")
        most = self._config.replica_fetch_backoff_ms / 1000
        self._pause(copy, self._retry_seconds(copy.retries) if soon else most)

    # Pauses

    def _pause(self, copy: _Copy, seconds: float | None) -> None:
        """Takes a partition out of the session, for some time or until `_resume`."""
        copy.is_paused = True
        self._changed.pop(copy, None)
        if copy.named is not None:
            copy.named = None
            self._forgotten[copy.key] = None
        if seconds is not None:
            self._paused[copy] = self._host.clock.monotonic() + seconds
            self._watch_paused()

    def _watch_paused(self) -> None:
        if self._wake_paused is not None:
            self._wake_paused.cancel()
            self._wake_paused = None
        if self._paused:
            delay = min(self._paused.values()) - self._host.clock.monotonic()
            self._wake_paused = self._loop.call_later(max(0.0, delay), self._on_pause_over)

    def _on_pause_over(self) -> None:
        self._wake_paused = None
        now = self._host.clock.monotonic()
        for copy in [copy for copy, until in self._paused.items() if until <= now]:
            del self._paused[copy]
            self._resume(copy)
        self._watch_paused()
        self._go()

    def _resume(self, copy: _Copy) -> None:
        copy.is_paused = False
        if self.copies.get(copy.key) is copy:
            self._changed[copy] = None

    # Offsets that the leader does not have

    async def _ask_for_ranges(self) -> None:
        """Asks the leader where its logs begin and end, and cuts the copies accordingly."""
        copies, self._out_of_range = self._out_of_range, []
        try:
            connection = self._connection
            if connection is None:
                raise PeerError("the connection is closed")
            ends = await self._list(connection, copies, _LATEST)
            starts = await self._list(connection, copies, _EARLIEST)
        except PeerError as error:
            self._lines.debug(f"the offsets of node {self.leader_id} are not known: {error}")
            ends = starts = {}
        finally:
            self._asking = None
        for copy in copies:
            if copy.is_current and copy.key in ends and copy.key in starts:
                self._fit(copy, starts[copy.key], ends[copy.key])
            else:
                self._pause(copy, self._config.replica_fetch_backoff_ms / 1000)
        self._go()

    def _fit(self, copy: _Copy, leader_start: int, leader_end: int) -> None:
        log = copy.partition.log
        cut = copy.state.decide_out_of_range(
            log_end=log.end, leader_start=leader_start, leader_end=leader_end
        )
        self._lines.warn(
            f"{copy.partition.tp}: {log.start} to {log.end} here, "
            f"{leader_start} to {leader_end} at its leader {self.leader_id}"
        )
        try:
            if cut is None:
                # The same offset may be good now, but must not be asked for again and again.
                self._pause(copy, self._config.replica_fetch_backoff_ms / 1000)
            elif self._cut(copy, cut):
                self._resume(copy)
        except ApiError as failure:
            self._lines.error(f"{copy.partition.tp} cannot be truncated: {failure}")
            self._pause(copy, self._config.replica_fetch_backoff_ms / 1000)

    async def _list(
        self, connection: PeerConnection[PeerError], copies: list[_Copy], timestamp: int
    ) -> dict[Key, int]:
        topics: dict[str, ListOffsetsTopic] = {}
        keys: dict[tuple[str, int], Key] = {}
        for copy in copies:
            tp = copy.partition.tp
            keys[tp.topic, tp.partition] = copy.key
            topic = topics.setdefault(tp.topic, ListOffsetsTopic(name=tp.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=tp.partition,
                    current_leader_epoch=copy.state.epoch,
                    timestamp=timestamp,
                )
            )
        response: ListOffsetsResponse = await connection.ask(
            ListOffsetsRequest(replica_id=self._config.node_id, topics=list(topics.values())),
            at_most=self._at_level(_LIST_OFFSETS_VERSIONS),
        )
        return {
            keys[each.name, found.partition_index]: found.offset
            for each in response.topics
            for found in each.partitions
            if not found.error_code
        }


class ReplicaFetchers:
    """The fetchers of this broker, one for each broker that leads one of its replicas."""

    def __init__(
        self,
        config: NodeConfig,
        host: Host,
        partitions: Partitions,
        log_dirs: LogDirs,
        lines: Lines,
        *,
        broker_epoch: Callable[[], int],
        retire: Retire,
        security: PeerSource = no_security,
    ) -> None:
        self._config = config
        self._host = host
        self._security = security
        self._lines = lines
        self._broker_epoch = broker_epoch
        self._truncations = Truncations(
            host, partitions, log_dirs, retire, config.replica_fetch_backoff_ms / 1000, lines
        )
        self._image = Image()
        self._fetchers: dict[int, LeaderFetcher] = {}
        self._leaders: dict[Key, int] = {}
        self._early: dict[Partition, None] | None = {}  # until `start`

    def start(self) -> None:
        """Begins to fetch, once the broker has an epoch: a leader may not know otherwise whether a
        replica has lost records in a restart (KIP-903)."""
        early, self._early = self._early, None
        for partition in early or ():
            self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """Follows a change of a replica's leader, or its removal."""
        if self._early is not None:
            self._early[partition] = None
            return
        key = partition.topic_id, partition.tp.partition
        state = partition.follower
        leader_id = self._leaders.pop(key, None)
        if leader_id is not None:
            self._fetchers[leader_id].remove(key)
        if state is None or state.leader_id < 0 or partition.is_being_cut:
            return
        fetcher = self._fetchers.get(state.leader_id)
        if fetcher is None:
            fetcher = self._fetchers[state.leader_id] = LeaderFetcher(
                state.leader_id,
                self._config,
                self._host,
                self._truncations,
                self._lines,
                broker_epoch=self._broker_epoch,
                image=lambda: self._image,
                security=self._security,
            )
        self._leaders[key] = state.leader_id
        fetcher.add(partition, state)

    def fetch_rate(self) -> float:
        """Returns the responses per second from the leader that answered the fewest; 0 if this node
        follows nobody."""
        now = self._host.clock.monotonic()
        used = [each for each in self._fetchers.values() if each.copies]
        return min((each.responses.rate(now) for each in used), default=0.0)

    def on_metadata(self, image: Image, delta: Delta) -> None:
        """Follows brokers to their new addresses, and metadata.version to another level."""
        self._image = image
        if delta.features:
            for fetcher in self._fetchers.values():
                fetcher.on_level()
        for broker_id in sorted(delta.brokers):
            moved = self._fetchers.get(broker_id)
            if moved is not None:
                moved.on_broker()

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends all fetchers; returns the tasks that are still ending."""
        self._early = {}
        ending = [task for fetcher in self._fetchers.values() for task in fetcher.stop()]
        return ending + self._truncations.stop()


def _by_topic(named: Iterable[tuple[bytes, FetchPartition]]) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for topic_id, asked in named:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(asked)
    return list(topics.values())


def _forgotten(keys: Iterable[Key]) -> list[ForgottenTopic]:
    topics: dict[bytes, ForgottenTopic] = {}
    for topic_id, index in keys:
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ForgottenTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(index)
    return list(topics.values())


def _ignore(_: Any, __: PeerError | None) -> None: ...
