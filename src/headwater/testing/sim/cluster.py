"""The node under test and what is known about its topics: the stage of a history."""

from __future__ import annotations

import asyncio
import errno
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from headwater import _core
from headwater.broker.node import Node
from headwater.config import node_config
from headwater.errors import ErrorCode
from headwater.model import TopicPartition, id_text
from headwater.observability import Log
from headwater.testing.sim.client import SimClient, Unknown
from headwater.testing.sim.judge import Judge, PartitionModel
from headwater.testing.sim.loop import SimTask
from headwater.testing.sim.world import World

T = TypeVar("T")

PORT = 9092
DELETION = "deletion"  # the header of a record without a value, which says which one it is
_DATA = "/data"
_START_SECONDS_MAX = 60.0
_READ_BYTES = 64 * 1024
_ATTEMPTS_MAX = 400
_EARLIEST, _LATEST = -2, -1


@dataclass(slots=True)
class Topic:
    """A topic that was asked for. `exists` is None as long as nobody knows."""

    name: str
    partitions: int
    configs: dict[str, str]
    exists: bool | None = None
    id: bytes = bytes(16)
    models: list[PartitionModel] = field(default_factory=list)
    leaving: bool = False  # somebody asked to delete it

    @property
    def durable(self) -> bool:
        return self.configs.get("flush.messages") == "1"

    @property
    def trims(self) -> bool:
        return "retention.bytes" in self.configs or "retention.ms" in self.configs

    @property
    def compacts(self) -> bool:
        return "compact" in self.configs.get("cleanup.policy", "")


class _Lines(Log):
    """The node's log lines; what it says must not happen, must not."""

    bugs: list[str]

    def failure(self, what: str, error: BaseException) -> None:
        super().failure(what, error)
        self.bugs.append(f"{what}: {error!r}")


class NoRoom(Exception):
    """The disk is full, and the node waits for room or says so instead of starting."""


def _is_no_room(error: Exception) -> bool:
    return getattr(error, "errno", None) == errno.ENOSPC or "full" in str(error)


class Cluster:
    def __init__(self, world: World, judge: Judge, settings: dict[str, str]) -> None:
        self.world = world
        self.judge = judge
        self.machine = world.machine("node")
        self.machine.disk.make_dirs(_DATA)  # as a mount point is: there before the node
        self.machine.disk.sync_dir("/")
        self.topics: dict[str, Topic] = {}
        self.up = asyncio.Event()  # set while clients may work
        self.lines: deque[str] = deque(maxlen=40)
        self.bugs: list[str] = []
        self.node: Node | None = None
        self.starts = 0
        self._serving: SimTask[None] | None = None
        self._settings = settings
        watch = world.machine("judge")
        self._judge_client = SimClient(
            watch.boot(), world.chance("judge"), "judge", self.machine.ip, PORT
        )
        self._clients = world.machine("clients")
        self._clients_host = self._clients.boot()

    def client(self, name: str) -> SimClient:
        return SimClient(
            self._clients_host, self.world.chance(f"client {name}"), name, self.machine.ip, PORT
        )

    @property
    def clients_ip(self) -> str:
        return self._clients.ip

    # Starting and stopping

    async def start(self) -> None:
        """Starts the node behind closed doors. It must start, whatever happened."""
        self._close_doors()
        host = self.machine.boot()
        config = node_config(
            {
                "log.dirs": _DATA,
                "node.id": "1",
                "listeners": f"PLAINTEXT://{self.machine.ip}:{PORT}",
                "auto.create.topics.enable": "false",
                **self._settings,
            }
        )
        lines = _Lines(host.clock, self.lines.append)
        lines.bugs = self.bugs
        self.node = Node(config, host, lines)
        self._serving = self.machine.spawn(self.node.start())
        try:
            async with asyncio.timeout(_START_SECONDS_MAX):
                await asyncio.shield(self._serving)
        except TimeoutError:
            if self.machine.disk.is_tight:
                raise NoRoom from None
            raise self.judge.fail("the node did not start in time") from None
        except Exception as error:
            if self.machine.disk.is_tight and _is_no_room(error):
                raise NoRoom from error
            raise self.judge.fail(f"the node did not start: {error!r}") from error
        self.starts += 1
        self.world.note("node started")
        for line in self.lines:
            if ": truncated " in line:
                self.world.happened("torn tail cut at a start")
                break
        self.lines.clear()
        self._note_files()

    def _note_files(self) -> None:
        """Counts what a good run must have seen on disk."""
        disk = self.machine.disk
        for name in disk.list(_DATA):
            if not disk.is_dir(f"{_DATA}/{name}"):
                continue
            files = disk.list(f"{_DATA}/{name}")
            if sum(1 for file in files if file.endswith(".log")) > 1:
                self.world.happened("several segments at a start")
            if name.startswith("__cluster") and any("checkpoint" in file for file in files):
                self.world.happened("metadata snapshot at a start")
            if name.endswith("-delete"):
                self.world.happened("deleted topic's files at a start")

    async def open_doors(self) -> None:
        """Judges what the node has, before anything may change it."""
        await self.judge_topics()
        for topic in self.topics.values():
            if topic.exists:
                for model in topic.models:
                    await self._judge_partition(model)
        self.world.net.blocked.clear()
        self.up.set()

    def _close_doors(self) -> None:
        """Nothing comes through from clients, not even what they sent before they were told."""
        self.up.clear()
        self.world.net.blocked.clear()
        self.world.net.block(self.clients_ip, self.machine.ip)

    def crash(self, *, power_cut: bool) -> None:
        self.up.clear()
        self.world.note(f"crash, power cut: {power_cut}")
        self.world.happened("power cut" if power_cut else "process killed")
        if power_cut:
            self.judge.power_cut()
        self.machine.crash(power_cut=power_cut)

    async def stop(self) -> None:
        """A clean stop, as SIGTERM asks for."""
        assert self.node is not None
        self.up.clear()
        await asyncio.wait_for(asyncio.shield(self.machine.spawn(self.node.stop())), 60.0)
        self.machine.switch_off()
        self.world.note("clean stop")
        self.world.happened("clean stop")

    def has_failed(self) -> bool:
        return self.node is not None and self.node.failed is not None and self.node.failed.done()

    def check_health(self) -> None:
        """Nothing that must not happen has happened inside the node."""
        if self.bugs:
            raise self.judge.fail("the node says: " + "; ".join(self.bugs[:3]))
        if self.world.loop.failures:
            first = self.world.loop.failures[0]
            raise self.judge.fail(f"unhandled: {first.get('message')}: {first.get('exception')!r}")

    # Judging

    async def judge_topics(self) -> None:
        """Checks that acknowledged changes of topics have survived."""
        answer = await self._insist(self._judge_client.metadata)
        found = {topic.name: topic for topic in answer.topics}
        for topic in self.topics.values():
            seen = found.get(topic.name)
            if topic.exists is True and seen is None:
                raise self.judge.fail(f"topic {topic.name} is gone")
            if topic.exists is False and seen is not None:
                raise self.judge.fail(f"topic {topic.name} is there though it was deleted")
            if topic.exists is None:
                topic.exists = seen is not None
                self.world.note(f"topic {topic.name} turns out to exist: {topic.exists}")
                topic.leaving = False
            if seen is None:
                continue
            if len(seen.partitions) != topic.partitions:
                raise self.judge.fail(f"{topic.name} has {len(seen.partitions)} partitions")
            if topic.id != bytes(16) and seen.topic_id not in (topic.id, bytes(16)):
                raise self.judge.fail(f"{topic.name} has another id: {id_text(seen.topic_id)}")
            await self._take_in(topic)
        unexpected = set(found) - set(self.topics)
        if unexpected:
            raise self.judge.fail(f"topics that nobody made: {sorted(map(str, unexpected))}")

    async def _take_in(self, topic: Topic) -> None:
        if not topic.models:
            await self.learn_id(topic)
        if topic.configs:
            configs = await self._insist(partial(self._judge_client.describe_topic, topic.name))
            for key, text in topic.configs.items():
                if configs.get(key) != text:
                    raise self.judge.fail(
                        f"{topic.name} has {key}={configs.get(key)}, set was {text}"
                    )

    async def learn_id(self, topic: Topic) -> None:
        """Makes the models of an existing topic."""
        while topic.id == bytes(16):
            answer = await self._insist(self._judge_client.metadata)
            for seen in answer.topics:
                if seen.name == topic.name:
                    topic.id = seen.topic_id
            self._judge_client.close()  # an old version does not tell the id: draw another
        if not topic.models:
            for number in range(topic.partitions):
                tp = TopicPartition(topic.name, number)
                model = PartitionModel(tp, topic.id, topic.trims, topic.compacts)
                topic.models.append(model)
                self.judge.partitions[tp] = model

    async def _judge_partition(self, model: PartitionModel) -> None:
        tp = model.tp
        start = await self._offset(tp, _EARLIEST)
        end = await self._offset(tp, _LATEST)
        offset, records = start, dict[int, bytes]()
        while offset < end:
            answer = await self._insist(
                partial(
                    self._judge_client.fetch,
                    tp,
                    model.topic_id,
                    offset,
                    bytes_max=_READ_BYTES,
                    wait_ms=0,
                )
            )
            if answer.error_code:
                raise self.judge.fail(
                    f"{tp}: fetch at {offset} of {start}..{end} answered "
                    f"{ErrorCode(answer.error_code).name}"
                )
            found, after = self.records_of(tp, answer.records, offset)
            if after == offset or not (found or model.compacts):
                raise self.judge.fail(f"{tp}: nothing at {offset} of {start}..{end}")
            for at, value in found:
                if at != offset and not (model.compacts and at > offset):
                    raise self.judge.fail(f"{tp}: offset {at} where {offset} was due")
                records[at] = value
                offset = at + 1
            offset = max(offset, after)
        self.judge.recovered(model, start, end, records)
        self.world.note(f"{tp} is {start}..{end}")

    def records_of(
        self, tp: TopicPartition, data: object, offset: int
    ) -> tuple[list[tuple[int, bytes]], int]:
        """Offset and value of each record, and where to read on: behind the last batch, of which
        compaction may have left nothing. A deletion has no value; its header stands for it."""
        if not data:
            return [], offset
        assert isinstance(data, bytes | memoryview | bytearray)
        try:
            found = _core.decode(data, from_offset=offset)
        except _core.CorruptBatch as corrupt:
            raise self.judge.fail(f"{tp}: a corrupt batch was served at {offset}: {corrupt}") from (
                corrupt
            )
        batches = _core.scan(data)[0]
        after = batches[-1].last_offset + 1 if batches else offset
        return [(record.offset, _value(record)) for record in found], after

    async def _offset(self, tp: TopicPartition, which: int) -> int:
        code, offset = await self._insist(lambda: self._judge_client.list_offset(tp, which))
        if code:
            raise self.judge.fail(f"{tp}: ListOffsets answered {ErrorCode(code).name}")
        return offset

    async def _insist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Asks until there is an answer: the network may be bad, the node must not be."""
        for _ in range(_ATTEMPTS_MAX):
            try:
                return await ask()
            except Unknown:
                await asyncio.sleep(0.05)
        raise self.judge.fail("the node does not answer")


def _value(record: _core.Record) -> bytes:
    value = record.value if record.value is not None else dict(record.headers)[DELETION]
    assert value is not None
    return value
