"""The driver of the quorum: timers, messages to other nodes, and the log from and for them.

Raft decides (`quorum/raft`), `MetadataLog` keeps what it decided, and this module carries messages.
A voter asks for votes and announces itself. Followers and observers fetch the log from the leader,
one request at a time: the next leaves when the last is on disk. The leader keeps a fetch that finds
nothing new until there are records or, for nodes that say what they know of it, a higher high
watermark (KIP-1166). The handlers of the controller listener call the methods for peers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple

from headwater.broker.metadata_log import MetadataLog, QuorumLeader
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Host
from headwater.model import METADATA_TOPIC, METADATA_TOPIC_ID, NO_NODE, ZERO_ID, OffsetAndEpoch
from headwater.net.peer import (
    PeerConnection,
    PeerError,
    PeerSource,
    as_is,
    connect,
    no_security,
)
from headwater.net.peer.errors import NothingListens, UnsupportedVersion
from headwater.observability import Log as Lines
from headwater.observability.measures import Traffic
from headwater.protocol import DecodeError, Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages import (
    add_raft_voter,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from headwater.quorum import Envelope, Ready, ReplicaKey, Role, Voter, VoterEndpoint
from headwater.quorum.model import (
    BeginEpoch,
    BeginEpochReply,
    EndEpoch,
    FetchReply,
    FetchRequest,
    VoteReply,
    VoteRequest,
)
from headwater.storage import StorageFailed

_WAIT_MS = 500  # how long a leader keeps a fetch that finds nothing, as in Kafka
_SAY_SECONDS = 10.0  # how often a node that waits says for what
_FAREWELL_SECONDS = 1.0
_SNAPSHOT_BYTES_MAX = 1 << 30
# The answers of brokers, whose listeners do not have the metadata log.
_NO_SUCH_LOG = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
HIGH_WATERMARK_UNKNOWN = 2**63 - 1  # of a fetch below version 18: never answered for it alone


class Fetched(NamedTuple):
    """The leader's answer to a fetch, with its records."""

    reply: FetchReply
    records: bytes = b""


class _Parked:
    """A fetch that waits at the leader."""

    __slots__ = ("done", "high_watermark", "request")

    def __init__(self, request: FetchRequest, high_watermark: int) -> None:
        self.request = request
        self.high_watermark = high_watermark  # that the fetcher knows
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class _Peers:
    """Connections to other nodes of the quorum. Fetches have one of their own: what is asked behind
    a fetch that waits would wait as well."""

    def __init__(self, host: Host, config: NodeConfig, security: PeerSource) -> None:
        self._host = host
        self._security = security
        self._node_id = config.node_id
        self._timeout_ms = config.controller_quorum_request_timeout_ms
        self._open: dict[tuple[Address, bool], PeerConnection[PeerError]] = {}
        self.traffic = Traffic()

    async def ask(
        self,
        address: Address,
        request: Message,
        *,
        for_fetch: bool = False,
        extra_ms: int = 0,
    ) -> Message:
        """Returns the response. Raises PeerError."""
        key = (address, for_fetch)
        connection = self._open.get(key)
        if connection is None or not connection.is_open:
            connection = await connect(
                self._host,
                address,
                node_id=NO_NODE,
                client_id=f"raft-client-{self._node_id}",
                timeout_ms=self._timeout_ms,
                request_timeout_ms=self._timeout_ms,
                as_error=as_is,
                security=self._security(),
                traffic=self.traffic,
            )
            connection.put_first()
            other = self._open.get(key)
            if other is not None and other.is_open:  # made meanwhile for another request
                connection.close()
                connection = other
            self._open[key] = connection
        if isinstance(request, fetch.FetchRequest):
            _name_replica(request, self._node_id, connection.version(ApiKey.FETCH))
        response: Message = await connection.ask(request, timeout_ms=self._timeout_ms + extra_ms)
        return response

    def close(self) -> None:
        for connection in self._open.values():
            connection.close()
        self._open.clear()


class QuorumDriver:
    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        metadata: MetadataLog,
        lines: Lines,
        *,
        cluster_id: str,
        directory_id: bytes,
        security: PeerSource = no_security,
    ) -> None:
        self.cluster_id = cluster_id
        self.me = ReplicaKey(config.node_id, directory_id)
        self._host = host
        self._config = config
        self._metadata = metadata
        self._lines = lines
        self._peers = _Peers(host, config, security)
        self._parked: dict[_Parked, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn: asyncio.Future[None] | None = None  # done when the fetcher should look again
        self._known: tuple[Role, int, int] | None = None
        self._told: tuple[int, int] | None = None  # the leader and epoch of the last line
        self._next_server = 0
        self._problem = ""  # why the leader cannot be reached, as it was last seen
        self._problem_said: str | None = None
        self._voter_told: tuple[int, Voter] | None = None  # to the leader of this epoch
        self._not_counting = NO_NODE  # the leader that was said not to count this voter
        self._refusals: set[str] = set()  # each is said once: bounded by addresses and codes
        self._stopping = False

    @property
    def traffic(self) -> Traffic:
        """What this node asks of the other nodes of the quorum."""
        return self._peers.traffic

    # Life

    async def start(self) -> None:
        """Joins the quorum and begins to follow it. Returns at once, except for a sole voter, which
        leads when this returns."""
        self._metadata.on_step = self._on_step
        await self._metadata.start()
        self._spawn(self._follow())
        if self._config.is_controller:
            self._spawn(self._keep_membership())

    async def stop(self) -> None:
        """Gives up leadership, tells the other voters, and ends everything."""
        self._stopping = True
        before = set(self._tasks)
        self._metadata.resign()
        farewells = self._tasks - before
        if farewells:
            await asyncio.wait(farewells, timeout=_FAREWELL_SECONDS)
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for parked in list(self._parked):
            self._release(parked)
        self._metadata.on_step = lambda messages: None
        self._peers.close()

    async def caught_up(self) -> None:
        """Returns when the node has the committed metadata; says meanwhile what it waits for."""
        waiting = asyncio.ensure_future(self._metadata.caught_up())
        try:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=self._say_seconds())
                if done:
                    return
                self._lines.info(self._waiting_line())
        finally:
            waiting.cancel()

    def _say_seconds(self) -> float:
        first = 3 * self._config.controller_quorum_election_timeout_ms / 1000
        return first if self._problem_said is None else _SAY_SECONDS

    def _waiting_line(self) -> str:
        raft = self._metadata.raft
        self._problem_said = self._problem
        why = f": {self._problem}" if self._problem else ""
        if raft.leader_id == NO_NODE:
            voters = ", ".join(map(str, raft.voters.voters)) or "unknown"
            return f"waiting for a leader of the quorum (voters: {voters}){why}"
        return f"waiting for the metadata of the quorum's leader, node {raft.leader_id}{why}"

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._metadata.stop_for(error)

    # Steps of the machine

    def _do(self, ready: Ready) -> None:
        self._metadata.carry_out(ready)

    def _on_step(self, messages: Sequence[Envelope]) -> None:
        """Follows each step of the machine and each change of the log."""
        raft = self._metadata.raft
        for envelope in messages:
            self._spawn(self._send(envelope))
        known = (raft.role, raft.epoch, raft.leader_id)
        if known != self._known:
            self._known = known
            self._look_again()
            if raft.role is not Role.LEADER:
                for parked in list(self._parked):
                    self._release(parked)
            self._lines.debug(f"{raft.role.value} in epoch {raft.epoch}, leader {raft.leader_id}")
            self._tell_leader()
        if self._parked:
            self._release_ready()
        self._arm()

    def _tell_leader(self) -> None:
        """Says which other node leads the quorum; the leader itself says so as the controller."""
        raft = self._metadata.raft
        leader = (raft.leader_id, raft.epoch)
        if raft.leader_id in (NO_NODE, self.me.id) or leader == self._told:
            return
        self._told = leader
        self._lines.info(f"node {raft.leader_id} leads the quorum in epoch {raft.epoch}")

    def _arm(self) -> None:
        deadline = self._metadata.raft.next_deadline()
        if deadline == self._timer_at or self._stopping:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline != float("inf"):
            delay = max(0.0, deadline - self._host.clock.monotonic())
            self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_at = float("inf")
        try:
            self._do(self._metadata.raft.tick(self._host.clock.monotonic()))
        except ApiError as failure:
            self._metadata.stop_for(failure)
        self._arm()

    # Messages out

    async def _send(self, envelope: Envelope) -> None:
        """Delivers a message, again and again while it may still matter."""
        to, message = envelope
        raft = self._metadata.raft
        role, epoch = raft.role, raft.epoch
        pause = self._config.controller_quorum_retry_backoff_ms / 1000
        while True:
            address = self._metadata.address_of(to)
            if address is None:
                return
            try:
                await self._deliver(to, address, message)
                return
            except PeerError as error:
                self._lines.debug(f"{type(message).__name__} to node {to} failed: {error}")
            if not isinstance(message, VoteRequest):
                return  # the machine repeats those that matter
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)
            if (raft.role, raft.epoch) != (role, epoch):
                return

    async def _deliver(self, to: int, address: Address, message: object) -> None:
        raft = self._metadata.raft
        match message:
            case VoteRequest():
                try:
                    voted = await self._peers.ask(address, self._vote(to, message))
                except UnsupportedVersion:
                    if not message.pre_vote:
                        raise
                    # Older than KIP-996: it cannot be asked, and must not stand in the way.
                    granted = VoteReply(message.epoch, NO_NODE, granted=True, pre_vote=True)
                    self._do(raft.on_vote_reply(to, granted, self._now()))
                    return
                assert isinstance(voted, vote.VoteResponse)
                self._on_vote_response(to, message, voted)
            case BeginEpoch():
                begun = await self._peers.ask(address, self._begin(to, message))
                assert isinstance(begun, begin_quorum_epoch.BeginQuorumEpochResponse)
                self._on_begin_response(to, begun)
            case EndEpoch():
                await self._peers.ask(address, self._end(message))
            case _:
                raise AssertionError(f"{message} is an answer and has no address")

    def _vote(self, to: int, message: VoteRequest) -> vote.VoteRequest:
        return vote.VoteRequest(
            cluster_id=self.cluster_id,
            voter_id=to,
            topics=[
                vote.VoteRequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[
                        vote.VoteRequestPartitionData(
                            partition_index=0,
                            replica_epoch=message.epoch,
                            replica_id=message.candidate.id,
                            replica_directory_id=message.candidate.directory_id,
                            voter_directory_id=self._directory_of(to),
                            last_offset_epoch=message.last.epoch,
                            last_offset=message.last.offset,
                            pre_vote=message.pre_vote,
                        )
                    ],
                )
            ],
        )

    def _on_vote_response(
        self, sender: int, request: VoteRequest, response: vote.VoteResponse
    ) -> None:
        code = response.error_code
        if not code and response.topics and response.topics[0].partitions:
            partition = response.topics[0].partitions[0]
            code = partition.error_code
            if not code or code == ErrorCode.FENCED_LEADER_EPOCH:
                for node in response.node_endpoints:
                    self._metadata.note_address(node.node_id, Address(node.host, node.port))
                reply = VoteReply(
                    partition.leader_epoch,
                    partition.leader_id,
                    partition.vote_granted,
                    request.pre_vote,
                )
                self._do(self._metadata.raft.on_vote_reply(sender, reply, self._now()))
                return
        self._say_refused(f"node {sender} refused a vote", code, voter=sender)

    def _begin(self, to: int, message: BeginEpoch) -> begin_quorum_epoch.BeginQuorumEpochRequest:
        return begin_quorum_epoch.BeginQuorumEpochRequest(
            cluster_id=self.cluster_id,
            voter_id=to,
            topics=[
                begin_quorum_epoch.BeginQuorumEpochRequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[
                        begin_quorum_epoch.BeginQuorumEpochRequestPartitionData(
                            partition_index=0,
                            voter_directory_id=self._directory_of(to),
                            leader_id=message.leader_id,
                            leader_epoch=message.epoch,
                        )
                    ],
                )
            ],
            leader_endpoints=[
                begin_quorum_epoch.LeaderEndpoint(name=at.name, host=at.host, port=at.port)
                for at in self._own_endpoints()
            ],
        )

    def _on_begin_response(
        self, sender: int, response: begin_quorum_epoch.BeginQuorumEpochResponse
    ) -> None:
        code = response.error_code
        if not code and response.topics and response.topics[0].partitions:
            partition = response.topics[0].partitions[0]
            code = partition.error_code
            if not code or code == ErrorCode.FENCED_LEADER_EPOCH:
                reply = BeginEpochReply(partition.leader_epoch, partition.leader_id)
                self._do(self._metadata.raft.on_begin_epoch_reply(sender, reply, self._now()))
                return
        self._say_refused(f"node {sender} refused its leader", code, voter=sender)

    def _end(self, message: EndEpoch) -> end_quorum_epoch.EndQuorumEpochRequest:
        return end_quorum_epoch.EndQuorumEpochRequest(
            cluster_id=self.cluster_id,
            topics=[
                end_quorum_epoch.EndQuorumEpochRequestTopicData(
                    topic_name=METADATA_TOPIC,
                    partitions=[
                        end_quorum_epoch.EndQuorumEpochRequestPartitionData(
                            partition_index=0,
                            leader_id=message.leader_id,
                            leader_epoch=message.epoch,
                            preferred_successors=list(message.successors),
                            preferred_candidates=[
                                end_quorum_epoch.ReplicaInfo(
                                    candidate_id=node_id,
                                    candidate_directory_id=self._directory_of(node_id),
                                )
                                for node_id in message.successors
                            ],
                        )
                    ],
                )
            ],
            leader_endpoints=[
                end_quorum_epoch.LeaderEndpoint(name=at.name, host=at.host, port=at.port)
                for at in self._own_endpoints()
            ],
        )

    def _say_refused(self, what: str, code: int, *, voter: int = NO_NODE) -> None:
        """Says what another node has refused, and what to do about it."""
        problem = f"{what}: {_name(code)}"
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            problem += (
                f"; this node is formatted for cluster {self.cluster_id}, the other for another "
                "one: correct the addresses of the quorum in its settings, or format a new "
                "directory with the cluster's id"
            )
        elif code in _NO_SUCH_LOG:
            problem += (
                "; it serves brokers' clients and not controllers: name listeners of "
                "controller.listener.names in controller.quorum.voters or "
                "controller.quorum.bootstrap.servers"
            )
        elif code == ErrorCode.INVALID_VOTER_KEY and self._metadata.kraft_version:
            problem += (
                f"; the node at {self._metadata.address_of(voter)} has another node.id, or another "
                f"directory, than voter {voter}: if it has lost its directory, remove that voter "
                "from the quorum and add it again"
            )
        elif code == ErrorCode.INVALID_VOTER_KEY:
            problem += (
                f"; controller.quorum.voters says that node {voter} is at "
                f"{self._metadata.address_of(voter)}, and the node there has another node.id: "
                "correct one of the two"
            )
        self._say_problem(problem)

    def _say_problem(self, problem: str) -> None:
        """Says once what keeps this node from the leader; it is tried again and again."""
        self._problem = problem
        if problem not in self._refusals:
            self._refusals.add(problem)
            self._lines.warn(problem)

    def _directory_of(self, node_id: int) -> bytes:
        voter = self._metadata.raft.voters.voters.get(node_id)
        return voter.key.directory_id if voter is not None else ZERO_ID

    def _own_endpoints(self) -> tuple[VoterEndpoint, ...]:
        voter = self._metadata.raft.voters.voters.get(self.me.id)
        return voter.endpoints if voter is not None else ()

    def _now(self) -> float:
        return self._host.clock.monotonic()

    # Following

    def _look_again(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    async def _follow(self) -> None:
        """Fetches from the leader whenever there is another one; asks around while none is
        known."""
        raft = self._metadata.raft
        while True:
            # What a fetch asks for after is acknowledged by it, so it must be durable.
            await self._metadata.flushed()
            self._turn = asyncio.get_running_loop().create_future()
            request = raft.fetch_request()
            address = self._fetch_address()
            if request is None or address is None:
                await self._turn
                continue
            response = await self._ask_fetch(address, request)
            if response is None or not await self._take(address, request, response):
                pause = self._config.controller_quorum_retry_backoff_ms / 1000
                await asyncio.wait([self._turn], timeout=pause)

    async def _ask_fetch(self, address: Address, request: FetchRequest) -> Message | None:
        """Returns the response, None if there is none or nobody wants it any more."""
        raft = self._metadata.raft
        assert self._turn is not None
        asking = asyncio.ensure_future(
            self._peers.ask(
                address, self._fetch_message(request), for_fetch=True, extra_ms=_WAIT_MS
            )
        )
        try:
            while not asking.done() and self._is_wanted(address, request):
                waits: list[asyncio.Future[Any]] = [asking, self._turn]
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if self._turn.done():
                    self._turn = asyncio.get_running_loop().create_future()
            return asking.result() if asking.done() else None
        except PeerError as error:
            self._problem = str(error)
            is_leaders = address == self._metadata.address_of(raft.leader_id)
            if isinstance(error, NothingListens) and is_leaders:
                self._do(raft.on_leader_gone(self._now()))
            return None
        finally:
            asking.cancel()

    def _is_wanted(self, address: Address, request: FetchRequest) -> bool:
        """Returns whether a fetch is still the one to make. A node that has found the leader by
        asking others fetches from it: another node may never answer."""
        raft = self._metadata.raft
        if raft.fetch_request() != request:
            return False
        leader = self._metadata.address_of(raft.leader_id)
        return leader is None or leader == address or raft.role is not Role.FOLLOWER

    def _fetch_address(self) -> Address | None:
        """Returns whom to fetch from: the leader, else each voter or bootstrap server in turn."""
        raft = self._metadata.raft
        if raft.role is Role.FOLLOWER:
            address = self._metadata.address_of(raft.leader_id)
            if address is not None:
                return address
        servers = [Address(*server) for server in self._config.controller_quorum_bootstrap_servers]
        for node_id in raft.voters.voters:
            known = self._metadata.address_of(node_id)
            if node_id != self.me.id and known is not None and known not in servers:
                servers.append(known)
        own = {Address(at.host, at.port) for at in self._own_endpoints()}
        servers = [server for server in servers if server not in own]
        if not servers:
            return None
        self._next_server += 1
        return servers[self._next_server % len(servers)]

    async def _take(self, address: Address, request: FetchRequest, response: Message) -> bool:
        """Takes the answer to a fetch; returns whether the next may follow at once."""
        assert isinstance(response, fetch.FetchResponse)
        code = response.error_code
        data = None
        if not code and response.responses and response.responses[0].partitions:
            data = response.responses[0].partitions[0]
            code = data.error_code
        if data is None or code in _NO_SUCH_LOG:
            self._say_refused(f"{address} refused to send the metadata log", code)
            return False
        for node in response.node_endpoints:
            self._metadata.note_address(node.node_id, Address(node.host, node.port))
        raft = self._metadata.raft
        before = (raft.role, raft.epoch, raft.leader_id)
        reply = _fetch_reply(data, request)
        is_current = request == raft.fetch_request() and raft.role is Role.FOLLOWER
        if reply.leader_id == self.me.id:
            # Said only if it lasts: others may not have noticed yet that this node was restarted.
            self._problem = (
                f"{address} says that the leader is node {self.me.id}, which is the id of this "
                "node; if another node has it, give one of the two another node.id; if this one "
                "led and lost its directory, a majority of the other voters has to run"
            )
        ready = raft.on_fetch_reply(request, reply, self._now())
        wanted = ready.fetch_snapshot
        self._do(ready)
        if wanted is not None:
            return await self._fetch_snapshot(address, wanted)
        if reply.error is not ErrorCode.NONE or not is_current or reply.epoch != raft.epoch:
            return before != (raft.role, raft.epoch, raft.leader_id)
        if reply.records_from is not None:
            if data.records:
                try:
                    await self._metadata.append_fetched(memoryview(data.records))
                except DecodeError as error:
                    self._say_problem(
                        f"node {reply.leader_id} sent metadata that this node cannot read "
                        f"({error}); if it runs a later release, upgrade this node"
                    )
                    return False
                except StorageFailed:
                    raise
                except ApiError as failure:  # the disk is full: nothing was written
                    self._lines.warn(f"the metadata log cannot be written yet: {failure.message}")
                    return False
            if raft.epoch == request.epoch and raft.role is Role.FOLLOWER:
                self._metadata.on_high_watermark(reply.high_watermark)
        self._problem = ""
        self._refusals.clear()
        return True

    def _fetch_message(self, request: FetchRequest) -> fetch.FetchRequest:
        return fetch.FetchRequest(
            cluster_id=self.cluster_id,
            max_wait_ms=_WAIT_MS,
            min_bytes=0,
            max_bytes=self._config.controller_quorum_fetch_max_bytes,
            topics=[
                fetch.FetchTopic(
                    topic=METADATA_TOPIC,
                    topic_id=METADATA_TOPIC_ID,
                    partitions=[
                        fetch.FetchPartition(
                            partition=0,
                            current_leader_epoch=request.epoch,
                            fetch_offset=request.offset,
                            last_fetched_epoch=request.last_epoch,
                            log_start_offset=self._metadata.raft.log_start,
                            partition_max_bytes=0,
                            replica_directory_id=self.me.directory_id,
                            high_watermark=self._metadata.raft.high_watermark,
                        )
                    ],
                )
            ],
        )

    async def _fetch_snapshot(self, address: Address, wanted: OffsetAndEpoch) -> bool:
        """Fetches a snapshot part by part and installs it."""
        raft = self._metadata.raft
        epoch = raft.epoch
        content = bytearray()
        self._lines.info(f"fetching the metadata snapshot at offset {wanted.offset}")
        while True:
            request = fetch_snapshot.FetchSnapshotRequest(
                cluster_id=self.cluster_id,
                replica_id=self.me.id,
                max_bytes=self._config.controller_quorum_fetch_snapshot_max_bytes,
                topics=[
                    fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
                        name=METADATA_TOPIC,
                        partitions=[
                            fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
                                partition=0,
                                current_leader_epoch=epoch,
                                snapshot_id=fetch_snapshot.FetchSnapshotRequestSnapshotId(
                                    end_offset=wanted.offset, epoch=wanted.epoch
                                ),
                                position=len(content),
                                replica_directory_id=self.me.directory_id,
                            )
                        ],
                    )
                ],
            )
            try:
                response = await self._peers.ask(address, request, for_fetch=True)
            except PeerError as error:
                self._problem = str(error)
                return False
            assert isinstance(response, fetch_snapshot.FetchSnapshotResponse)
            code = response.error_code
            part = None
            if not code and response.topics and response.topics[0].partitions:
                part = response.topics[0].partitions[0]
                code = part.error_code
            if part is None or code or raft.epoch != epoch or raft.role is not Role.FOLLOWER:
                self._lines.debug(f"the snapshot at {wanted.offset} failed: {_name(code)}")
                return False
            chunk = bytes(part.unaligned_records or b"")
            if part.position != len(content) or not chunk or part.size > _SNAPSHOT_BYTES_MAX:
                self._lines.error(f"node {raft.leader_id} sent a malformed snapshot")
                return False
            content += chunk
            raft.on_snapshot_progress(self._now())
            if len(content) >= part.size:
                break
        try:
            self._metadata.install_snapshot(wanted, bytes(content))
        except DecodeError as error:
            self._lines.error(f"node {raft.leader_id} sent a malformed snapshot: {error}")
            return False
        return True

    # Membership among the voters

    async def _keep_membership(self) -> None:
        """Tells the leader where this voter is, and joins the voters if that is asked for."""
        pause = self._config.controller_quorum_fetch_timeout_ms / 1000
        # Right after the start: until a node that has lost its disk votes again, the quorum can
        # afford one failure less.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._metadata.caught_up(), pause)
        while True:
            leader = self._metadata.leader
            if self._metadata.raft.role is Role.FOLLOWER and leader is not None:
                await self._be_counted(leader)
            await asyncio.sleep(pause)

    async def _be_counted(self, leader: QuorumLeader) -> None:
        raft = self._metadata.raft
        mine = self._metadata.own_voter()
        if leader.address is None:
            return
        try:
            if raft.voters.has(self.me):
                is_known = self._metadata.kraft_version and raft.voters.voters[self.me.id] == mine
                if not is_known and self._voter_told != (leader.epoch, mine):
                    code = await self._update_voter(leader.address, leader.epoch, mine)
                    if not code:
                        self._voter_told = (leader.epoch, mine)
                    elif code == ErrorCode.VOTER_NOT_FOUND and self._not_counting != leader.node_id:
                        self._not_counting = leader.node_id
                        self._lines.warn(self._not_counted(leader.node_id))
            elif self._can_join():
                await self._join(leader.address, mine)
        except PeerError as error:
            self._lines.debug(f"the leader cannot be told about this voter: {error}")

    def _not_counted(self, leader_id: int) -> str:
        voters = ", ".join(map(str, self._metadata.raft.voters.voters))
        return (
            f"node {leader_id}, which leads the quorum, does not count this node, {self.me.id}, "
            f"among its voters; controller.quorum.voters names {voters} here: set it to the same "
            "value on all controllers"
        )

    def _can_join(self) -> bool:
        """Static voters change only in all settings at once."""
        is_wanted: bool = self._config.controller_quorum_auto_join_enable
        return is_wanted and bool(self._metadata.kraft_version)

    async def _update_voter(self, address: Address, epoch: int, mine: Voter) -> int:
        low, high = mine.kraft_versions
        response = await self._peers.ask(
            address,
            update_raft_voter.UpdateRaftVoterRequest(
                cluster_id=self.cluster_id,
                current_leader_epoch=epoch,
                voter_id=self.me.id,
                voter_directory_id=self.me.directory_id,
                listeners=[
                    update_raft_voter.Listener(name=at.name, host=at.host, port=at.port)
                    for at in mine.endpoints
                ],
                kraft_version_feature=update_raft_voter.KRaftVersionFeature(
                    min_supported_version=low, max_supported_version=high
                ),
            ),
        )
        assert isinstance(response, update_raft_voter.UpdateRaftVoterResponse)
        return response.error_code

    async def _join(self, address: Address, mine: Voter) -> None:
        """Asks the leader to make this node a voter (KIP-1186). An earlier self, with a directory
        that is lost, is removed first."""
        earlier = self._metadata.raft.voters.voters.get(self.me.id)
        if earlier is not None:
            removed = await self._peers.ask(
                address,
                remove_raft_voter.RemoveRaftVoterRequest(
                    cluster_id=self.cluster_id,
                    voter_id=earlier.key.id,
                    voter_directory_id=earlier.key.directory_id,
                ),
            )
            assert isinstance(removed, remove_raft_voter.RemoveRaftVoterResponse)
            # Where the log that came meanwhile does not have it any more, it is gone as well.
            if removed.error_code not in (ErrorCode.NONE, ErrorCode.VOTER_NOT_FOUND):
                self._say_no_voter(removed.error_code)
                return
        added = await self._peers.ask(
            address,
            add_raft_voter.AddRaftVoterRequest(
                cluster_id=self.cluster_id,
                timeout_ms=self._config.controller_quorum_request_timeout_ms,
                voter_id=self.me.id,
                voter_directory_id=self.me.directory_id,
                listeners=[
                    add_raft_voter.Listener(name=at.name, host=at.host, port=at.port)
                    for at in mine.endpoints
                ],
                ack_when_committed=False,
            ),
        )
        assert isinstance(added, add_raft_voter.AddRaftVoterResponse)
        if added.error_code:
            self._say_no_voter(added.error_code)

    def _say_no_voter(self, code: int) -> None:
        self._lines.debug(f"this node is not a voter yet: {_name(code)}")

    # For peers: what the handlers of the controller listener ask

    def on_vote(self, request: VoteRequest) -> VoteReply:
        ready = self._metadata.raft.on_vote(request, self._now())
        (reply,) = self._answers(ready)
        assert isinstance(reply, VoteReply)
        return reply

    def on_begin_epoch(self, message: BeginEpoch) -> BeginEpochReply:
        ready = self._metadata.raft.on_begin_epoch(message, self._now())
        (reply,) = self._answers(ready)
        assert isinstance(reply, BeginEpochReply)
        return reply

    def on_end_epoch(self, message: EndEpoch) -> None:
        self._do(self._metadata.raft.on_end_epoch(message, self._now()))

    def _answers(self, ready: Ready) -> list[object]:
        """Carries out a step; returns the answers in it, which the handler sends."""
        answers = [
            envelope
            for envelope in ready.messages
            if isinstance(envelope.message, VoteReply | BeginEpochReply | FetchReply)
        ]
        ready.messages = [envelope for envelope in ready.messages if envelope not in answers]
        self._do(ready)
        return [envelope.message for envelope in answers]

    async def on_fetch(
        self, request: FetchRequest, *, high_watermark: int, wait_ms: int, bytes_max: int
    ) -> Fetched:
        """Answers a fetch, when there is something new for it or after `wait_ms`."""
        (reply,) = self._answers(self._metadata.raft.on_fetch(request, self._now()))
        assert isinstance(reply, FetchReply)
        if self._has_nothing_new(reply, high_watermark) and wait_ms > 0 and not self._stopping:
            parked = _Parked(request, high_watermark)
            self._parked[parked] = None
            timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._release, parked)
            try:
                await parked.done
            finally:
                timer.cancel()
                self._parked.pop(parked, None)
            reply = self._metadata.raft.answer_fetch(request)
        if reply.records_from is None:
            return Fetched(reply)
        limit = min(bytes_max, self._config.controller_quorum_fetch_max_bytes)
        return Fetched(reply, self._metadata.read(reply.records_from, bytes_max=max(0, limit)))

    def _has_nothing_new(self, reply: FetchReply, high_watermark: int) -> bool:
        return (
            reply.records_from is not None
            and reply.records_from >= self._metadata.raft.log_end
            and reply.high_watermark <= high_watermark
        )

    def _release(self, parked: _Parked) -> None:
        if not parked.done.done():
            parked.done.set_result(None)

    def _release_ready(self) -> None:
        raft = self._metadata.raft
        for parked in self._parked:
            if (
                parked.request.offset < raft.log_end
                or raft.high_watermark > parked.high_watermark
                or parked.request.epoch != raft.epoch
            ):
                self._release(parked)


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error code {code}"


def _name_replica(request: fetch.FetchRequest, node_id: int, version: int | None) -> None:
    """Says who fetches, in the field that this version has."""
    is_old = version is not None and version < 15
    request.replica_id = node_id if is_old else NO_NODE
    request.replica_state = None if is_old else fetch.ReplicaState(replica_id=node_id)


def _fetch_reply(data: fetch.PartitionData, request: FetchRequest) -> FetchReply:
    leader = data.current_leader or fetch.LeaderIdAndEpoch()
    reply = FetchReply(leader.leader_epoch, leader.leader_id, data.high_watermark)
    if data.error_code:
        return reply._replace(error=ErrorCode(data.error_code))
    if data.snapshot_id is not None and data.snapshot_id.end_offset >= 0:
        at = data.snapshot_id
        return reply._replace(snapshot=OffsetAndEpoch(at.end_offset, at.epoch))
    if data.diverging_epoch is not None and data.diverging_epoch.end_offset >= 0:
        end = data.diverging_epoch
        return reply._replace(diverging=OffsetAndEpoch(end.end_offset, end.epoch))
    return reply._replace(records_from=request.offset)
