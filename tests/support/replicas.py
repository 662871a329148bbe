"""Brokers that replicate, without a quorum: the controller is its machine, and metadata travels
with delays of their own. Everything else is real, on the simulator's hosts."""

from __future__ import annotations

import asyncio
from collections import deque
from random import Random
from types import SimpleNamespace
from typing import Any

from headwater import _core
from headwater.broker.dispatch import Dispatcher, Routes, served_versions
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.isr_changes import IsrChanges
from headwater.broker.partition import ALL_IN_SYNC, Partition
from headwater.broker.partitions import Partitions
from headwater.broker.replica_fetchers import ReplicaFetchers
from headwater.config import node_config
from headwater.controller import Decision
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image
from headwater.net import NetLimits, Server
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from headwater.protocol.records.metadata_nodes import (
    BeginTransactionRecord,
    EndTransactionRecord,
)
from headwater.storage import LogDirs, Origin
from headwater.testing.sim.loop import SimTask
from headwater.testing.sim.world import World
from tests.support.controllers import CLUSTER, Bench, incarnation_of
from tests.support.logs import batch

TOPIC = "t"
PORT = 9092
DATA = "/data"


class Failure(AssertionError):
    """An invariant does not hold."""


_TRANSACTION = (BeginTransactionRecord, EndTransactionRecord)  # none of them is ever open


class RecordedController(Bench):
    """The controller; what it decides is a log that brokers follow."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.log: list[Message] = []
        super().__init__(settings=settings)

    def do(self, decision: Decision[Any]) -> Any:
        self.log += (each for each in decision.records if type(each) not in _TRANSACTION)
        return super().do(decision)


class _Lines(Lines):
    bugs: list[str]

    def failure(self, what: str, error: BaseException) -> None:
        super().failure(what, error)
        self.bugs.append(f"{what}: {error!r}")


class Replica:
    """One broker and its machine."""

    def __init__(self, stage: Stage, node_id: int) -> None:
        self.stage = stage
        self.id = node_id
        self.machine = stage.world.machine(f"node{node_id}")
        self.machine.disk.make_dirs(DATA)
        self.machine.disk.sync_dir("/")
        self.random = stage.world.chance(f"metadata {node_id}")
        self.is_cut_off = False  # from the controller
        self.life = 0
        self.epoch = -1
        self.image = Image()
        self._applied = 0  # records of the metadata
        self.lines: deque[str] = deque(maxlen=300)
        self.running: SimTask[None] | None = None
        self.partitions: Partitions
        self.fetchers: ReplicaFetchers
        self.isr_changes: IsrChanges

    @property
    def is_up(self) -> bool:
        return self.machine.life is not None

    def start(self) -> None:
        self.life += 1
        host = self.machine.boot()
        self.image, self._applied = Image(), 0
        self.running = self.machine.spawn(self._run(host))

    async def _run(self, host: Any) -> None:
        stage = self.stage
        config = node_config(
            {
                "log.dirs": DATA,
                "node.id": str(self.id),
                "listeners": f"PLAINTEXT://{self.machine.ip}:{PORT}",
            }
            | stage.settings
        )
        lines = _Lines(host.clock, self._say, "debug")
        lines.bugs = stage.bugs
        log_dirs = LogDirs.open(
            host.disk,
            [DATA],
            node_id=self.id,
            clock=host.clock,
            new_id=host.random_id,
            cluster_id=CLUSTER,
        )
        log_dirs.load(lambda topic: config.topic_defaults.config())
        self.partitions = Partitions(config, log_dirs, host.clock, host.workers, lines)
        self.partitions.wait_for_registration(incarnation_of(self.id, self.life))
        loop = asyncio.get_running_loop()

        def retire(delete: Any, seconds: float) -> None:
            loop.call_later(seconds, delete)

        self.fetchers = ReplicaFetchers(
            config,
            host,
            self.partitions,
            log_dirs,
            lines,
            broker_epoch=lambda: self.epoch,
            retire=retire,
        )
        self.isr_changes = IsrChanges(
            config, self.partitions, self, host.clock, lines, broker_epoch=lambda: self.epoch
        )
        self.partitions.on_role.append(self.fetchers.follow)
        self.partitions.on_proposal = self.isr_changes.propose
        served = {
            key: versions
            for key, versions in served_versions().items()
            if key in (ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.API_VERSIONS)
        }
        parts: Any = SimpleNamespace(
            authorizer=None,
            config=config,
            clock=host.clock,
            workers=host.workers,
            log=lines,
            partitions=self.partitions,
            fetch_sessions=FetchSessions(100, host.random),
            endpoints=lambda context: [],
            served=served,
            image=self.image,
            metadata=SimpleNamespace(image=self.image, applied=0, kraft_version=0),
        )
        server = Server(host, NetLimits(), lambda line: None)
        server.bind("PLAINTEXT", self.machine.ip, PORT, Dispatcher(parts, Routes(served)))
        self._catch_up()
        server.open()
        self._register()
        self._catch_up()
        self.fetchers.start()
        self.machine.spawn(self.isr_changes.run())
        while True:
            await asyncio.sleep(self.random.choice((0.001, 0.01, 0.05, 0.2)))
            if not self.is_cut_off:
                self._catch_up(self.random.choice((1, 3, 1000)))

    def _say(self, line: str) -> None:
        if "headwater.requests" not in line:
            self.lines.append(line.rstrip())

    def _register(self) -> None:
        controller = self.stage.controller
        controller.now = self.stage.world.loop.time()
        request = controller.registration(self.id, life=self.life)
        request.listeners[0].host = self.machine.ip
        request.listeners[0].port = PORT
        self.epoch = controller.do(
            controller.machine.decide_register_broker(request, controller.now)
        )
        controller.unfence(self.id)

    def _catch_up(self, count: int = 1_000_000) -> None:
        """Applies the next records of the metadata, as one change."""
        records = self.stage.controller.log[self._applied : self._applied + count]
        if records:
            delta = Delta()
            for record in records:
                self.image.apply(record, delta)
            self._applied += len(records)
            self.fetchers.on_metadata(self.image, delta)
            self.partitions.follow(self.image, delta)

    async def ask(self, request: Message, *, timeout_ms: int) -> Message:
        """The channel to the controller. Requests and answers may be lost."""
        assert isinstance(request, AlterPartitionRequest)
        await asyncio.sleep(self.random.uniform(0.0, 0.02))
        if self.is_cut_off:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        controller = self.stage.controller
        try:
            topics = controller.do(controller.machine.decide_alter_partition(request))
            response = AlterPartitionResponse(topics=topics)
        except ApiError as refusal:
            response = AlterPartitionResponse(error_code=refusal.code)
        await asyncio.sleep(self.random.uniform(0.0, 0.1))
        if self.is_cut_off or self.random.random() < 0.1:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        return response

    def partition(self, index: int = 0) -> Partition | None:
        try:
            return self.partitions.get(TOPIC, index)
        except (ApiError, AttributeError):
            return None


class Stage:
    """Brokers 1 to 3, a topic with three replicas, and what was promised to its producers."""

    def __init__(
        self, seed: int, *, partitions: int = 2, settings: dict[str, str] | None = None
    ) -> None:
        self.world = World(seed)
        self.random: Random = self.world.chance("story")
        self.settings = {"replica.lag.time.max.ms": "3000"} | (settings or {})
        self.bugs: list[str] = []
        self.controller = RecordedController(self.settings)
        self.replicas = {node_id: Replica(self, node_id) for node_id in (1, 2, 3)}
        self.count = partitions
        self.acked: dict[int, dict[int, bytes]] = {index: {} for index in range(partitions)}
        self.committed: dict[int, dict[int, bytes]] = {index: {} for index in range(partitions)}
        self._values = 0

    async def begin(self) -> None:
        for replica in self.replicas.values():
            replica.start()
        await asyncio.sleep(0.1)
        made = self.controller.create(
            TOPIC,
            -1,
            -1,
            assignments=[(index, [1, 2, 3]) for index in range(self.count)],
            configs={"min.insync.replicas": "2", "segment.bytes": "1048576"},
        )
        assert not made.error_code, made

    # Producers

    def leaders(self, index: int) -> list[Replica]:
        """The brokers that believe that they lead: after a cut there may be two."""
        found = []
        for replica in self.replicas.values():
            partition = replica.partition(index) if replica.is_up else None
            if partition is not None and partition.leader is not None:
                found.append(replica)
        return found

    def produce(self, replica: Replica, index: int) -> SimTask[bool]:
        self._values += 1
        value = b"%d" % self._values
        return replica.machine.spawn(self._produce(replica, index, value))

    async def _produce(self, replica: Replica, index: int, value: bytes) -> bool:
        partition = replica.partition(index)
        if partition is None:
            return False
        try:
            appended = partition.append(
                batch(value * self.random.randint(1, 50)),
                acks=ALL_IN_SYNC,
                now_ms=self.world.machines["node1"].clock.wall_ms(),
                origin=Origin.COORDINATOR,
            )
            wait = partition.replicated(appended.last_offset + 1)
            if wait is not None:
                await wait
        except ApiError:
            return False
        self.acked[index][appended.base_offset] = value
        return True

    # Judging

    def check(self) -> None:
        """Checks what must hold at every moment."""
        if self.bugs:
            raise Failure(self.bugs[0])
        if self.world.loop.failures:
            raise Failure(str(self.world.loop.failures[0]))
        for replica in self.replicas.values():
            if replica.is_up and replica.running is not None and replica.running.done():
                replica.running.result()
            for index in range(self.count):
                partition = replica.partition(index) if replica.is_up else None
                if partition is not None and not partition.is_being_cut:
                    self._check_committed(replica, partition, index)

    def _check_committed(self, replica: Replica, partition: Partition, index: int) -> None:
        log, end = partition.log, partition.high_watermark
        if end > log.end:
            raise Failure(f"{replica.id} has {log.end} of {end} committed in {index}")
        known = self.committed[index]
        for offset, data in batches(partition, end):
            if known.setdefault(offset, data) != data:
                raise Failure(f"{index}: offset {offset} of {replica.id} is not what it was")

    def check_acknowledged(self) -> None:
        """Checks the end: all replicas have the same, and everything that was acknowledged."""
        for index in range(self.count):
            contents = {}
            for replica in self.replicas.values():
                partition = replica.partition(index)
                assert partition is not None
                assert partition.high_watermark == partition.log.end
                contents[replica.id] = list(batches(partition, partition.log.end))
            if not contents[1] == contents[2] == contents[3]:
                raise Failure(f"the replicas of {index} differ")
            found = dict(contents[1])
            for offset, value in self.acked[index].items():
                record = next(iter(_core.decode(found[offset]))) if offset in found else None
                if record is None or not (record.value or b"").startswith(value):
                    raise Failure(f"{index}: {value!r} at {offset} was acknowledged and is lost")

    def is_whole(self) -> bool:
        """Returns whether all replicas are in sync and complete."""
        for index in range(self.count):
            if len(self.controller.partition(TOPIC, index).isr) < 3:
                return False
            ends = set()
            for replica in self.replicas.values():
                partition = replica.partition(index) if replica.is_up else None
                if partition is None:
                    return False
                ends |= {partition.log.end, partition.high_watermark}
            if len(ends) > 1:
                return False
        return True

    def story(self) -> str:
        lines = [
            f"{replica.id}: {line}" for replica in self.replicas.values() for line in replica.lines
        ]
        return "\n".join([*self.world.events, *lines])


def batches(partition: Partition, upto: int) -> list[tuple[int, bytes]]:
    """The batches below an offset, by their base offsets."""
    found: list[tuple[int, bytes]] = []
    log = partition.log
    offset = log.start
    while offset < upto:
        read = log.read(offset, bytes_max=1 << 20, upto=upto)
        if read.slice is None:
            break
        data = read.slice.read()
        read.slice.close()
        for each in _core.scan(data)[0]:
            if each.last_offset >= upto:
                return found
            found.append((each.base_offset, data[each.position : each.position + each.size]))
            offset = each.last_offset + 1
    return found
