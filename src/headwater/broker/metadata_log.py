"""The metadata log on disk, and the image of its committed part.

On the leader of the quorum the controller appends its decisions here; on all other nodes the quorum
driver appends what it fetched from the leader. A worker syncs them; records appended during a sync
share the next one. Committed records are applied to the image, subscribers are notified, and then
those who wait for the commit go on.

Subscribers hear nothing before the image has caught up with what was committed at the start: an
older state of the cluster must not be acted upon.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from headwater.broker.formatting import METADATA_LOG, read_bootstrap, standalone_voters
from headwater.broker.metadata_snapshots import MetadataSnapshots
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, FileSlice, Host
from headwater.metadata import Delta, Image, Replay
from headwater.metadata.batches import (
    BATCH_BYTES_MAX,
    MetadataBatch,
    decode_batches,
    encode_batch,
    encode_control_batch,
)
from headwater.metadata.features import KRAFT_VERSION, unsupported_level
from headwater.metadata.records import RecordType
from headwater.metadata.snapshot import Snapshot, decode_snapshot
from headwater.model import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    NO_NODE,
    OffsetAndEpoch,
    TopicPartition,
)
from headwater.observability.quorum import MetadataMeter
from headwater.protocol import DecodeError, Message
from headwater.protocol.records.metadata_nodes import RegisterBrokerRecord
from headwater.protocol.records.quorum import KRaftVersionRecord, VotersRecord
from headwater.quorum import (
    ElectionState,
    Envelope,
    QuorumDescription,
    Raft,
    Ready,
    ReplicaKey,
    Role,
    Timeouts,
    Voter,
    VoterEndpoint,
    VoterSet,
)
from headwater.quorum.state_file import decode_state, encode_state
from headwater.storage import Log, Origin, StorageFailed, names
from headwater.storage.checkpoints import write_topic_id
from headwater.storage.failures import is_full

if TYPE_CHECKING:
    from headwater.storage.failures import Health

_ELECTING = (Role.PROSPECTIVE, Role.CANDIDATE)
_QUORUM_STATE = "quorum-state"
_LOAD_BYTES = 1024 * 1024
_FULL_DISK_SECONDS = 0.5

Subscriber = Callable[[Image, Delta], None]


class QuorumLeader(NamedTuple):
    """The leader of the metadata quorum, which is the active controller."""

    node_id: int
    epoch: int
    address: Address | None  # None for this node itself


class _VotersAt(NamedTuple):
    """The voters as the log lists them from an offset on."""

    offset: int
    kraft_version: int
    voters: VoterSet | None


class _Batch(NamedTuple):
    end: OffsetAndEpoch
    timestamp: int
    size: int
    records: Sequence[Message]  # empty for a control batch


class MetadataLog:
    """One node's copy of the metadata log."""

    def __init__(
        self,
        host: Host,
        config: NodeConfig,
        *,
        directory_id: bytes,
        make_room: Callable[[], bool] = lambda: False,
        on_failure: Callable[[str, BaseException], None] = lambda what, error: None,
    ) -> None:
        """`make_room` is called when the disk is full and returns whether a retry makes sense.
        `on_failure` is called with the exception of a subscriber."""
        self._host = host
        self._make_room = make_room
        self._on_failure = on_failure
        self._config = config
        self._me = ReplicaKey(config.node_id, directory_id)
        self._path = f"{config.metadata_log_dir}/{METADATA_LOG}"
        self._replay = Replay()
        self._unannounced = Delta()  # changes from the snapshot, announced with the first commit
        self.applied = 0  # the image has everything below this offset
        self.meter = MetadataMeter()
        self.failed: asyncio.Future[str] | None = None  # why the node cannot go on
        self.bootstrap: list[Message] = []
        # The latest last. A truncation takes back the voters of the records that it drops.
        self._voters_at = [_VotersAt(0, 0, None)]
        self._addresses: dict[int, Address] = {}  # of leaders, as other nodes told them
        self._announced_leader: QuorumLeader | None = None
        self._catch_up_to: int | None = None  # the first high watermark that the leader told
        self.is_caught_up = False
        self._catching_up: asyncio.Future[None] | None = None
        # Called with the messages to send after each step of the machine or change of the log.
        self.on_step: Callable[[Sequence[Envelope]], None] = lambda messages: None
        self._early_subscribers: list[Subscriber] = []
        self._subscribers: list[Subscriber] = []
        self._is_held_back = False
        self._leader_callbacks: list[Callable[[], None]] = []
        self.registration_offsets: dict[int, int] = {}  # offset of each broker's registration
        self._uncommitted: deque[_Batch] = deque()  # in the log but not yet in the image
        self._waiters: deque[tuple[OffsetAndEpoch, asyncio.Future[None]]] = deque()
        self._flushing: asyncio.Task[None] | None = None
        self._snapshotting: asyncio.Task[None] | None = None
        self._failure: StorageFailed | None = None
        self._closing = False
        self._log: Log
        self._snapshots: MetadataSnapshots
        self.raft: Raft

    @property
    def image(self) -> Image:
        """The committed image, which brokers act on."""
        return self._replay.image

    @property
    def log_end(self) -> int:
        return self._log.end

    @property
    def epoch(self) -> int:
        return self.raft.epoch

    @property
    def kraft_version(self) -> int:
        """1 if the log lists the voters, 0 if only configurations do. Uncommitted changes count."""
        return self._voters_at[-1].kraft_version

    @property
    def is_leader(self) -> bool:
        return self.raft.role is Role.LEADER

    @property
    def leader(self) -> QuorumLeader | None:
        """The leader of the current epoch as far as it is known."""
        raft = self.raft
        leader_id = raft.leader_id
        if leader_id == NO_NODE:
            return None
        is_here = leader_id == self._me.id
        return QuorumLeader(leader_id, raft.epoch, None if is_here else self.address_of(leader_id))

    def address_of(self, node_id: int) -> Address | None:
        """Returns the address of a node's controller listener, if it is known."""
        voter = self.raft.voters.voters.get(node_id)
        if voter is not None and voter.endpoints:
            wanted = self._config.controller_listener_names
            at = next((at for at in voter.endpoints if at.name in wanted), voter.endpoints[0])
            return Address(at.host, at.port)
        return self._addresses.get(node_id)

    def note_address(self, node_id: int, address: Address) -> None:
        """Notes where another node says that the leader is."""
        self._addresses[node_id] = address
        self._announce_leader()

    def _announce_leader(self) -> None:
        leader = self.leader
        if leader != self._announced_leader:
            self._announced_leader = leader
            for callback in self._leader_callbacks:
                callback()

    def on_leader_changed(self, callback: Callable[[], None]) -> None:
        """Calls `callback` in the event loop after each change of `leader`."""
        self._leader_callbacks.append(callback)

    @property
    def is_new(self) -> bool:
        """Whether the cluster is new and still needs its bootstrap records."""
        return not self.image.features

    def subscribe(self, subscriber: Subscriber, *, is_early: bool = False) -> None:
        """Calls `subscriber` with the image and its changes after each commit, in the event loop.
        An early one is called between `hold_back` and `go_on` as well, and told of all that has
        changed since, each time."""
        (self._early_subscribers if is_early else self._subscribers).append(subscriber)

    def hold_back(self) -> None:
        """Lets subscribers wait, except early ones: what they act on is not loaded yet. This node
        is a member of the quorum all the same."""
        self._is_held_back = True

    def go_on(self) -> None:
        """Ends `hold_back`: subscribers are told what has changed meanwhile."""
        self._is_held_back = False
        if self.is_caught_up:
            delta, self._unannounced = self._unannounced, Delta()
            self._announce(self._subscribers, delta)

    # Start and stop

    def open(self, health: Health | None = None) -> None:
        """Loads the snapshot and the log. Blocks; nothing is committed until `start`."""
        disk, config = self._host.disk, self._config
        now_ms = self._host.clock.wall_ms()
        self._alone = standalone_voters(self._host, config, self._me.directory_id)
        if not disk.exists(self._path):
            disk.make_dirs(self._path)
            # A voter whose directory is gone after a power cut has forgotten its votes.
            disk.sync_dir(config.metadata_log_dir)
        self._snapshots = MetadataSnapshots(disk, self._path, config)
        snapshot_id, snapshot = self._snapshots.load_latest()
        self._log = Log.open(
            disk,
            self._path,
            TopicPartition(METADATA_TOPIC, 0),
            topic_id=METADATA_TOPIC_ID,
            config=config.topic_defaults.config(_log_settings(config)),
            now_ms=now_ms,
            health=health,
        )
        if not disk.exists(f"{self._path}/{names.PARTITION_METADATA}"):
            write_topic_id(disk, self._path, METADATA_TOPIC_ID)
        if self._log.end < snapshot_id.offset:
            # The log lacks records that the snapshot contains: continue after the snapshot.
            for retired in self._log.truncate_and_start_at(snapshot_id.offset):
                retired.delete()
            self._log.assign_epoch(snapshot_id.epoch, snapshot_id.offset)
        self._voters_at = [_voters_of(snapshot_id.offset, snapshot)]
        self._replay.apply(snapshot.records, self._unannounced)
        self.registration_offsets = dict.fromkeys(self.image.brokers, snapshot_id.offset - 1)
        self.applied = snapshot_id.offset
        self.meter.applied_ms = max(0, snapshot.timestamp)
        self._read_log(snapshot_id.offset)
        self.bootstrap = read_bootstrap(disk, config.metadata_log_dir)
        self.raft = Raft(
            self._me,
            self._voters(),
            self._host.random,
            state=self._read_state(),
            log_end=self._log.end,
            log_start=self._log.start,
            snapshot=snapshot_id if self._snapshots.exists(snapshot_id) else None,
            epochs=[OffsetAndEpoch(start, epoch) for epoch, start in self._log.epochs.entries],
            timeouts=Timeouts(
                election=config.controller_quorum_election_timeout_ms / 1000,
                fetch=config.controller_quorum_fetch_timeout_ms / 1000,
                backoff_max=config.controller_quorum_election_backoff_max_ms / 1000,
            ),
        )

    def _read_log(self, offset: int) -> None:
        while offset < self._log.end:
            found = self._log.read(offset, bytes_max=_LOAD_BYTES, upto=self._log.end)
            assert found.slice is not None, f"no batch at offset {offset} below {self._log.end}"
            data = found.slice.read()
            self._write_again(found.slice, data)
            for batch in decode_batches(data):
                if batch.base_offset < offset:
                    continue
                offset = batch.end_offset
                self._take(batch)

    def _write_again(self, found: FileSlice, data: bytes) -> None:
        """Has the next sync write everything. If a sync of the last run failed, the kernel still
        shows the records and takes their pages for clean: no later sync would write them, and what
        is committed behind them would be lost with the next power cut."""
        try:
            found.file.pwrite(data, found.position)
        except OSError as error:
            if not is_full(error):  # a file system that copies on write needs space for it
                raise

    def _take(self, batch: MetadataBatch) -> None:
        """Takes note of a batch that is in the log."""
        if batch.is_control:
            self._take_voters(batch.base_offset, batch.records)
        self._uncommitted.append(
            _Batch(
                OffsetAndEpoch(batch.end_offset, batch.epoch),
                batch.timestamp,
                batch.size,
                () if batch.is_control else batch.records,
            )
        )

    def _take_voters(self, offset: int, controls: Sequence[Message]) -> bool:
        """Takes the voters from control records; returns whether there were any."""
        known = taken = self._voters_at[-1]
        for control in controls:
            match control:
                case KRaftVersionRecord():
                    taken = taken._replace(offset=offset, kraft_version=control.kraft_version)
                case VotersRecord():
                    taken = taken._replace(offset=offset, voters=VoterSet.from_record(control))
        if taken is not known:
            self._voters_at.append(taken)
        return taken is not known

    def _voters(self) -> VoterSet:
        """Returns the voters from the log, else from the configuration, else this node alone."""
        in_log = self._voters_at[-1].voters
        if in_log is not None:
            return in_log
        configured = self._config.controller_quorum_voters
        if configured:
            name = next(iter(self._config.controller_listener_names), "CONTROLLER")
            return VoterSet.of(
                *(
                    Voter(ReplicaKey(at.node_id), (VoterEndpoint(name, at.host, at.port),))
                    for at in configured
                )
            )
        if not self._config.alone:
            # Never a quorum of one by default where the settings name another: two nodes that each
            # elected themselves would be two clusters. An observer learns the voters from the log.
            return VoterSet.of()
        return self._alone

    def _read_state(self) -> ElectionState:
        file = f"{self._path}/{_QUORUM_STATE}"
        if self._host.disk.exists(file):
            return decode_state(self._host.disk.read(file))
        return ElectionState(epoch=max(0, self._log.latest_epoch))

    async def start(self) -> None:
        """Joins the quorum. When this returns, a sole voter leads and its image has everything that
        was committed before."""
        self.failed = asyncio.get_running_loop().create_future()
        self.carry_out(self.raft.start(self._host.clock.monotonic()))
        if self.is_leader:
            await self.committed(OffsetAndEpoch(self._log.end, self.epoch))

    async def caught_up(self) -> None:
        """Returns when the image has everything that was committed when this node first heard of
        the leader's high watermark."""
        if self.is_caught_up:
            return
        if self._catching_up is None:
            self._catching_up = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._catching_up)

    def resign(self) -> None:
        """Gives up leadership, if this node has it, and fails those who wait for a commit."""
        self.carry_out(self.raft.resign(self._host.clock.monotonic()))

    async def close(self) -> None:
        """Closes the log. Records that cannot be synced now (the disk is full) were never
        acknowledged and may be lost."""
        self._closing = True
        for task in (self._flushing, self._snapshotting):
            if task is not None:
                await asyncio.wait([task])
        clean = self._failure is None
        job = self._log.flush_job() if clean else None
        if job is not None:
            try:
                await self._host.workers.run(job.run)
                self._log.flushed(job)
            except ApiError:
                clean = False
        self._log.close(clean=clean)

    # Appending

    def append(self, records: Sequence[Message], *, metadata_version: int) -> OffsetAndEpoch:
        """Appends one batch, all or nothing, in the record versions of that metadata version.

        Returns its end, for `committed`.
        """
        assert self.is_leader
        now_ms = self._host.clock.wall_ms()
        data = encode_batch(
            records,
            metadata_version=metadata_version,
            now_ms=now_ms,
            base_offset=self._log.end,
            epoch=self.raft.epoch,
        )
        return self._append(data, now_ms, records)

    def _append(self, data: bytes, now_ms: int, records: Sequence[Message]) -> OffsetAndEpoch:
        if self._failure is not None:
            raise self._failure
        self._write(
            partial(
                self._log.append_as_leader,
                data,
                epoch=self.raft.epoch,
                now_ms=now_ms,
                origin=Origin.RAFT,
            )
        )
        end = OffsetAndEpoch(self._log.end, self.raft.epoch)
        self.raft.on_appended(log_end=end.offset, epoch=end.epoch)
        self._uncommitted.append(_Batch(end, now_ms, len(data), records))
        self.meter.on_appended(len(records), self._host.clock.monotonic())
        self._flush_soon()
        self.on_step(())
        return end

    def _write(self, append: Callable[[], object]) -> None:
        try:
            append()
        except StorageFailed:
            raise
        except ApiError:
            if not self._make_room():
                raise
            append()

    def _flush_soon(self) -> None:
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush())

    async def append_fetched(self, data: memoryview) -> None:
        """Appends batches from the leader; returns when they are durable. Raises DecodeError if
        they are not what the leader should have sent."""
        if self._failure is not None:
            raise self._failure
        batches = list(decode_batches(data))
        expected = self._log.end
        for batch in batches:
            if batch.base_offset != expected or batch.epoch > self.raft.epoch:
                raise DecodeError(
                    f"the leader sent offset {batch.base_offset} of epoch {batch.epoch}, expected "
                    f"{expected} of epoch {self.raft.epoch} at most"
                )
            expected = batch.end_offset
        if not batches:
            return
        now_ms = self._host.clock.wall_ms()
        self._write(partial(self._log.append_as_follower, data, now_ms=now_ms))
        assert self._log.end == expected, f"log end {self._log.end}, expected {expected}"
        self.meter.on_fetched(expected - batches[0].base_offset, self._host.clock.monotonic())
        voters = self._voters_at[-1]
        for batch in batches:
            self.raft.on_appended(log_end=batch.end_offset, epoch=batch.epoch)
            self._take(batch)
        if self._voters_at[-1] is not voters:
            self._follow_voters()
        await self.flushed()

    async def flushed(self) -> None:
        """Returns when everything in the log is durable."""
        while self._log.recovery_point < self._log.end and self._failure is None:
            self._flush_soon()
            assert self._flushing is not None
            await asyncio.shield(self._flushing)
            if self._closing:
                return
        if self._failure is not None:
            raise self._failure

    def _follow_voters(self) -> None:
        self.carry_out(self.raft.on_voters(self._voters(), self._host.clock.monotonic()))

    def on_high_watermark(self, high_watermark: int) -> None:
        """Takes the leader's high watermark, after the records that came with it."""
        if self._catch_up_to is None and high_watermark >= 0:
            self._catch_up_to = high_watermark
        self.carry_out(self.raft.on_high_watermark(high_watermark))
        if not self.is_caught_up:
            self._apply(self.applied)  # there may be nothing to wait for

    # Reading, for other nodes

    def read(self, offset: int, *, bytes_max: int) -> bytes:
        """Returns batches from an offset on, at least one if there is any. As bytes, not as a slice
        of the file: what is sent later must not change if this node stops leading meanwhile."""
        if offset >= self._log.end:
            return b""
        found = self._log.read(offset, bytes_max=bytes_max, upto=self._log.end, at_least_one=True)
        if found.slice is None:
            return b""
        with self._log.health.errors():
            return found.slice.read()

    def snapshot_size(self, snapshot_id: OffsetAndEpoch) -> int | None:
        """Returns the size of a snapshot, None if there is none with this id."""
        return self._snapshots.size(snapshot_id)

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, position: int, count: int) -> bytes:
        return self._snapshots.read(snapshot_id, position, count)

    async def committed(self, end: OffsetAndEpoch) -> None:
        """Returns when all below `end.offset` is durable with a majority and in the image.

        Raises NOT_CONTROLLER if this node does not lead `end.epoch` any more. The offset alone says
        nothing then: another leader's records may have taken the place of those waited for.
        """
        if self._failure is not None:
            raise self._failure
        if not self._leads(end.epoch):
            raise _leadership_lost(end.epoch)
        if end.offset <= self.applied:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((end, waiter))
        await waiter

    async def all_committed(self) -> None:
        """Returns when everything that is in the log now is committed."""
        await self.committed(OffsetAndEpoch(self._log.end, self.epoch))

    def _leads(self, epoch: int) -> bool:
        return self.is_leader and self.raft.epoch == epoch

    async def _flush(self) -> None:
        """Syncs until nothing is left: records appended during one sync share the next."""
        try:
            while (job := self._log.flush_job()) is not None:
                epoch = self.raft.epoch
                try:
                    await self._host.workers.run(job.run)
                except StorageFailed:
                    raise
                except ApiError:  # the disk is full: callers wait until there is space
                    self._log.not_flushed(job)
                    if self._closing:
                        return
                    if not self._make_room():
                        await asyncio.sleep(_FULL_DISK_SECONDS)
                    continue
                self._log.flushed(job)
                self.carry_out(self.raft.on_flushed(job.upto, epoch=epoch))
        except StorageFailed as failure:
            self._fail(failure)
        finally:
            self._flushing = None

    def _fail(self, failure: StorageFailed) -> None:
        """Fails for good: it is unknown what is on disk, so the node must stop and recover."""
        self._failure = failure
        self._fail_waiters(lambda epoch: failure)
        self._stop_node(f"the metadata log cannot be written: {failure.message}")

    def stop_for(self, error: BaseException) -> None:
        """Ends the node for an error of the quorum's driver: what it knows may be wrong."""
        if isinstance(error, StorageFailed):
            self._fail(error)
            return
        if isinstance(error, ApiError) and error.code is ErrorCode.KAFKA_STORAGE_ERROR:
            # The disk is full. The machine counts on what could not be written, as on a vote.
            self._fail(StorageFailed(self._path, error.message or "it is full"))
            return
        self._on_failure("the quorum failed", error)
        self._stop_node(f"the quorum failed: {error}")

    def _stop_node(self, why: str) -> None:
        if self.failed is not None and not self.failed.done():
            self.failed.set_result(why)

    def _fail_waiters(self, failure: Callable[[int], ApiError]) -> None:
        while self._waiters:
            end, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_exception(failure(end.epoch))

    # Decisions of the quorum

    def carry_out(self, ready: Ready) -> None:
        """Carries out the machine's instructions, in the order that `Ready` defines; snapshots are
        fetched by the quorum driver."""
        if self._waiters and not self._leads(self._waiters[0][0].epoch):
            self._fail_waiters(_leadership_lost)
        if ready.vote is not None:
            # Synced in the loop: it is rare, and nothing may overtake it (see Ready).
            data = encode_state(
                ready.vote, kraft_version=self.kraft_version, voters=self.raft.voters.voters
            )
            self._write_state(data)
        if ready.truncate_to is not None:
            self._truncate(ready.truncate_to)
        if ready.leader_change is not None:
            self._begin_epoch(ready.leader_change)
        if ready.committed is not None:
            self._apply(ready.committed)
        self._announce_leader()
        self.meter.on_step(
            is_electing=self.raft.role in _ELECTING,
            has_leader=self.raft.leader_id != NO_NODE,
            now=self._host.clock.monotonic(),
        )
        self.on_step(ready.messages)

    def _write_state(self, data: bytes) -> None:
        """Writes the vote. The machine counts on it already, so a node that cannot write it, even
        because its disk is full, must stop before it answers anybody."""

        def write() -> None:
            with self._log.health.errors():
                self._host.disk.write_atomically(f"{self._path}/{_QUORUM_STATE}", data)

        try:
            self._write(write)
        except StorageFailed as failure:
            self._fail(failure)
            raise
        except ApiError as failure:
            fatal = StorageFailed(self._path, f"{_QUORUM_STATE}: {failure.message}")
            self._fail(fatal)
            raise fatal from None

    def _truncate(self, offset: int) -> None:
        """Drops records that were never committed: another leader has others in their place."""
        assert offset >= self.applied, f"cut at {offset}, below the applied {self.applied}"
        for retired in self._log.truncate_to(offset):
            retired.delete()
        while self._uncommitted and self._uncommitted[-1].end.offset > offset:
            self._uncommitted.pop()
        self.raft.on_truncated(self._log.end)
        voters = self._voters_at[-1]
        while self._voters_at[-1].offset >= offset and len(self._voters_at) > 1:
            self._voters_at.pop()
        if self._voters_at[-1] is not voters:
            self._follow_voters()

    def _begin_epoch(self, leader_change: Message) -> None:
        """Appends a leader's first batch: the leader change and, with dynamic voters, the voter set
        if the log does not have it yet or its endpoints changed."""
        controls = [leader_change]
        if self.kraft_version:
            voters = self._with_own_endpoints(self.raft.voters)
            if voters != self._voters_at[-1].voters or self._log.end == 0:
                controls.append(KRaftVersionRecord(version=0, kraft_version=self.kraft_version))
                controls.append(voters.to_record())
        end = self.append_controls(controls)
        if self._catch_up_to is None:
            self._catch_up_to = end.offset

    def append_controls(self, controls: Sequence[Message]) -> OffsetAndEpoch:
        """Appends control records as one batch; voters among them count from now on."""
        now_ms = self._host.clock.wall_ms()
        base = self._log.end
        data = encode_control_batch(
            controls, now_ms=now_ms, base_offset=base, epoch=self.raft.epoch
        )
        end = self._append(data, now_ms, ())
        if self._take_voters(base, controls):
            self._follow_voters()
        return end

    @property
    def voters_are_committed(self) -> bool:
        """Whether the voters that count now can no longer be taken back."""
        assert self.raft.progress is not None, "only the leader knows"
        # Until the first record of its epoch is committed, a leader does not know what is.
        return self.applied > max(self.raft.progress.epoch_start, self._voters_at[-1].offset)

    def own_voter(self) -> Voter:
        """Returns this node as a voter, with its directory and endpoints."""
        return self._alone.voters[self._me.id]

    def _with_own_endpoints(self, voters: VoterSet) -> VoterSet:
        """Returns the voters with this node's current endpoints, if it is one of them."""
        if not voters.has(self._me):
            return voters
        return VoterSet(voters.voters | self._alone.voters)

    def install_snapshot(self, snapshot_id: OffsetAndEpoch, data: bytes) -> None:
        """Replaces the log and the image by a snapshot from the leader. Raises DecodeError if it
        cannot be read."""
        snapshot = decode_snapshot(data)
        assert snapshot_id.offset >= self.applied, f"{snapshot_id} is older than the image"
        with self._log.health.errors():
            self._snapshots.install(snapshot_id, data)
        for retired in self._log.truncate_and_start_at(snapshot_id.offset):
            retired.delete()
        self._log.assign_epoch(snapshot_id.epoch, snapshot_id.offset)
        self._uncommitted.clear()
        before = self._replay.image
        self._replay = Replay()
        self._replay.apply(snapshot.records, self._unannounced)
        self._unannounced.note_removed(before, self.image)
        self.registration_offsets = dict.fromkeys(self.image.brokers, snapshot_id.offset - 1)
        self.applied = snapshot_id.offset
        self.meter.applied_ms = max(0, snapshot.timestamp)
        self._voters_at = [_voters_of(snapshot_id.offset, snapshot)]
        self.raft.on_snapshot_installed(snapshot_id)
        self._follow_voters()
        self._apply(self.applied)

    def _apply(self, committed: int) -> None:
        delta, self._unannounced = self._unannounced, Delta()
        while self._uncommitted and self._uncommitted[0].end.offset <= committed:
            batch = self._uncommitted.popleft()
            self._replay.apply(batch.records, delta)
            self._note_registrations(batch)
            self.applied = batch.end.offset
            self._snapshots.note(batch.end, timestamp=batch.timestamp, size=batch.size)
            self._measure(batch)
        if delta.features:
            self._check_levels()
        if not self._has_caught_up():
            self._unannounced = delta
            return
        self._announce(self._early_subscribers, delta)
        if self._is_held_back:
            self._unannounced = delta
        else:
            self._announce(self._subscribers, delta)
        while self._waiters and self._waiters[0][0].offset <= self.applied:
            _, waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

        due = self._snapshots.is_due(self._host.clock.monotonic())
        if due and self._snapshotting is None and not self._closing:
            self._snapshotting = asyncio.get_running_loop().create_task(self._write_snapshot())

    def _announce(self, subscribers: Sequence[Subscriber], delta: Delta) -> None:
        if not delta:
            return
        for subscriber in subscribers:
            try:
                subscriber(self.image, delta)
            except Exception as error:
                # As in Kafka: the other subscribers must still be called, and the commit stands.
                self.meter.apply_errors += 1
                self._on_failure("a subscriber failed to apply a metadata change", error)

    def _measure(self, batch: _Batch) -> None:
        self.meter.applied_ms = batch.timestamp
        if self.is_leader:
            clock = self._host.clock
            self.meter.on_committed(clock.wall_ms() - batch.timestamp, clock.monotonic())

    def _check_levels(self) -> None:
        """Stops a node of an earlier release: it would misread the cluster, or lead it wrongly."""
        problem = unsupported_level(
            self.image.features | {KRAFT_VERSION: self._voters_at[-1].kraft_version}
        )
        if problem is not None:
            self._stop_node(f"{problem}; upgrade this node, or lower the level with a later one")

    def _has_caught_up(self) -> bool:
        if not self.is_caught_up and self._catch_up_to is not None:
            self.is_caught_up = self.applied >= self._catch_up_to
            if self.is_caught_up and self._catching_up is not None:
                self._catching_up.set_result(None)
        return self.is_caught_up

    def _note_registrations(self, batch: _Batch) -> None:
        base = batch.end.offset - len(batch.records)
        for number, record in enumerate(batch.records):
            if record.API == RecordType.REGISTER_BROKER:
                assert isinstance(record, RegisterBrokerRecord)
                self.registration_offsets[record.broker_id] = base + number

    async def _write_snapshot(self) -> None:
        if self._replay.in_transaction:
            self._snapshotting = None
            return  # not inside a transaction; the next commit tries again
        # Those of the committed part: a change that is under way may still be taken back.
        at = next(at for at in reversed(self._voters_at) if at.offset < max(1, self.applied))
        job = self._snapshots.job(
            self.image.frozen(),
            now_ms=self._host.clock.wall_ms(),
            kraft_version=at.kraft_version,
            voters=None if at.voters is None else at.voters.to_record(),
        )
        try:
            await self._host.workers.run(job.run)
            self._snapshots.written(job, self._host.clock.monotonic())
            now_ms = self._host.clock.wall_ms()
            cleanup = self._snapshots.prune(self._log, now_ms=now_ms)
            self.raft.on_snapshot(snapshot=self._snapshots.latest, log_start=self._log.start)
            if cleanup is not None:
                await self._host.workers.run(cleanup)
        except OSError as error:
            failure = self._log.health.refusal(error)
            if isinstance(failure, StorageFailed):
                self._fail(failure)
        finally:
            self._snapshotting = None

    # Queries

    def replayed(self) -> Replay:
        """Returns a copy of the committed state, for a controller that becomes active."""
        assert not self._uncommitted
        pending = self._replay.pending
        return Replay(self.image.frozen(), None if pending is None else list(pending))

    def describe_quorum(self) -> QuorumDescription:
        return self.raft.describe(self._host.clock.monotonic())


def _voters_of(offset: int, snapshot: Snapshot) -> _VotersAt:
    voters = None if snapshot.voters is None else VoterSet.from_record(snapshot.voters)
    return _VotersAt(max(0, offset - 1), snapshot.kraft_version, voters)


def _leadership_lost(epoch: int) -> ApiError:
    return ApiError(
        ErrorCode.NOT_CONTROLLER, f"this node no longer leads epoch {epoch} of the quorum"
    )


def _log_settings(config: NodeConfig) -> dict[str, str]:
    return {
        "segment.bytes": str(config.metadata_log_segment_bytes),
        "segment.ms": str(config.metadata_log_segment_ms),
        "max.message.bytes": str(BATCH_BYTES_MAX),
        "retention.ms": "-1",
        "retention.bytes": "-1",
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "message.timestamp.type": "CreateTime",
    }
