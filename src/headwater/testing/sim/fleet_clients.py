"""Those who use a cluster in a history: our own producers, consumers, groups and administrators.

Each is an actor on a client machine, which may pause or crash as the nodes do: an actor that comes
back is a new process. What it invokes and what comes of it goes to the checker at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from headwater.client.admin import Admin
from headwater.client.consumer import Consumer, RebalanceListener
from headwater.client.errors import ClientError, FatalError, Refused
from headwater.client.producer import Producer, RecordMetadata
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.testing.sim.checker import Action, Anomaly, Checker, Op, Outcome
from headwater.testing.sim.client import SimClient, Unknown
from headwater.testing.sim.fleet import BROKER_PORT, Fleet
from headwater.testing.sim.violation import Violation

_CLOSE_MS = 5_000


@dataclass(slots=True)
class Topic:
    name: str
    partitions: int
    replication: int
    min_isr: int
    configs: dict[str, str]
    exists: bool = False
    is_grouped: bool = False  # the group reads it


class Recorder:
    """Writes the history; the first anomaly ends it."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.checker = Checker()
        self.topics: dict[str, Topic] = {}
        self.acknowledged = 0
        self.acknowledged_of: dict[str, int] = {}  # by partition
        self.read = 0
        self.producer_ids: dict[int, str] = {}
        self.violation: Violation | None = None  # the first
        self._numbers = count(1)

    def partitions(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic.name, number)
            for topic in self.topics.values()
            if topic.exists
            for number in range(topic.partitions)
        ]

    def rack_of(self, name: str) -> str:
        """Draws the rack of a consumer, if the nodes have some."""
        racks = self.fleet.racks
        return self.fleet.world.chance(f"rack of {name}").choice(racks) if racks else ""

    def begin(self, process: str, action: Action, tp: TopicPartition, **fields: Any) -> Op:
        now = self.fleet.world.loop.time()
        op = Op(now, process, next(self._numbers), Outcome.INVOKE, action, _name(tp), **fields)
        self._take(op)
        return op

    def end(self, op: Op, outcome: Outcome, *, offset: int | None = None) -> None:
        """Completes what was begun."""
        if outcome is Outcome.OK and op.action is Action.SEND:
            self.acknowledged += 1
            self.acknowledged_of[op.partition] = self.acknowledged_of.get(op.partition, 0) + 1
        self._take(
            Op(
                self.fleet.world.loop.time(),
                op.process,
                op.number,
                outcome,
                op.action,
                op.partition,
                op.value,
                op.offset if offset is None else offset,
                op.acks,
                op.idempotent,
                op.group,
            )
        )

    def happened(self, process: str, action: Action, tp: TopicPartition, **fields: Any) -> None:
        """Something that has no beginning and end of its own."""
        now = self.fleet.world.loop.time()
        op = Op(now, process, next(self._numbers), Outcome.OK, action, _name(tp), **fields)
        self.read += len(op.records)
        self._take(op)

    def _take(self, op: Op) -> None:
        if op.outcome is not Outcome.INVOKE:
            what = f"{op.process} {op.action.value} {op.partition} {op.outcome.value}"
            if op.records:
                what += f" {op.records[0][0]}..{op.records[-1][0]}"
            elif op.offset >= 0:
                what += f" {op.value} at {op.offset}"
            self.fleet.world.note(what)
        self.judge(self.checker.take(op))

    def judge(self, anomalies: list[Anomaly]) -> None:
        if anomalies:
            self._break("; ".join(map(str, anomalies[:3])))

    def took_producer_id(self, producer_id: int, who: str) -> None:
        other = self.producer_ids.setdefault(producer_id, who)
        if other != who:
            self._break(f"producer id {producer_id} was given to {other} and to {who}")

    def _break(self, what: str) -> None:
        """Raises, and keeps the first violation for the history: callbacks run inside a client,
        which takes what they raise for a mistake of theirs."""
        violation = self.fleet.fail(what)
        if self.violation is None:
            self.violation = violation
        raise violation


def _name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


@dataclass(slots=True)
class ProducerActor:
    recorder: Recorder
    name: str
    random: Random
    settings: dict[str, Any]
    pause_seconds: float = 0.5
    only: TopicPartition | None = None  # instead of all partitions
    fatal: bool = False
    _lives: int = 0
    _values: int = 0

    @classmethod
    def draw(cls, recorder: Recorder, name: str, random: Random) -> ProducerActor:
        settings: dict[str, Any] = {"linger_ms": random.choice((0, 5, 100))}
        draw = random.random()
        if draw < 0.6:
            settings |= {"acks": "all", "enable_idempotence": True}
            settings["max_in_flight_requests_per_connection"] = random.choice((1, 5))
        elif draw < 0.75:
            settings |= {"acks": "all", "enable_idempotence": False}
        else:
            settings |= {"acks": 1, "enable_idempotence": False}
        settings["compression_type"] = random.choice(("none", "none", "lz4", "zstd"))
        settings["delivery_timeout_ms"] = random.choice((8_000, 30_000, 120_000))
        settings["request_timeout_ms"] = random.choice((2_000, 7_000))
        return cls(recorder, name, random, settings, random.choice((0.2, 0.6, 1.5)))

    @property
    def is_idempotent(self) -> bool:
        return bool(self.settings["enable_idempotence"])

    async def run(self, host: Host) -> None:
        fleet = self.recorder.fleet
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            self.fatal = False
            producer = Producer(fleet.bootstrap, host=host, client_id=process, **self.settings)
            try:
                await producer.start()
            except ClientError as error:
                fleet.world.note(f"{process} cannot start: {type(error).__name__}")
                await asyncio.sleep(1.0)
                continue
            try:
                while not self.fatal:
                    await asyncio.sleep(self.random.random() * self.pause_seconds)
                    self._submit(producer, process)
            finally:
                try:
                    await producer.close(timeout_ms=_CLOSE_MS)
                except ClientError as error:
                    fleet.world.note(f"{process} closes with {type(error).__name__}")

    def _submit(self, producer: Producer, process: str) -> None:
        recorder = self.recorder
        partitions = recorder.partitions() if self.only is None else [self.only]
        if not partitions:
            return
        tp = self.random.choice(partitions)
        acks = 1 if self.settings["acks"] == 1 else -1
        for _ in range(self.random.choice((1, 1, 2, 4))):
            self._values += 1
            value = f"{self.name}:{self._values}"
            op = recorder.begin(
                process, Action.SEND, tp, value=value, acks=acks, idempotent=self.is_idempotent
            )
            padding = "." * self.random.choice((0, 5, 50, 900))
            try:
                producer.submit(
                    tp.topic,
                    f"{value}|{padding}",
                    partition=tp.partition,
                    on_delivery=self._delivered(op),
                )
            except ClientError as error:
                recorder.end(op, Outcome.UNKNOWN)
                self.fatal = isinstance(error, FatalError)
                return

    def _delivered(self, op: Op) -> Callable[[RecordMetadata | None, ClientError | None], None]:
        def delivered(metadata: RecordMetadata | None, error: ClientError | None) -> None:
            if metadata is not None:
                self.recorder.end(op, Outcome.OK, offset=metadata.offset)
                return
            self.recorder.fleet.world.happened(f"send failed: {type(error).__name__}")
            # Whatever the error says, an attempt before may have been written.
            self.recorder.end(op, Outcome.UNKNOWN)
            if isinstance(error, FatalError):
                self.fatal = True

        return delivered


@dataclass(slots=True)
class ReaderActor:
    """Reads all partitions without a group, now and then from the beginning again."""

    recorder: Recorder
    name: str
    random: Random
    _lives: int = 0

    async def run(self, host: Host) -> None:
        recorder, world = self.recorder, self.recorder.fleet.world
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            consumer: Consumer[bytes, bytes] = Consumer(
                recorder.fleet.bootstrap,
                host=host,
                client_id=process,
                auto_offset_reset="earliest",
                fetch_max_wait_ms=self.random.choice((100, 500)),
                request_timeout_ms=5_000,
                fetch_max_bytes=self.random.choice((300, 50_000)),
                client_rack=recorder.rack_of(self.name),
            )
            try:
                await consumer.start()
                partitions = recorder.partitions()
                consumer.assign(partitions)
                for tp in partitions:
                    recorder.happened(process, Action.ASSIGN, tp)
                for _ in range(self.random.choice((5, 20, 60))):
                    await asyncio.sleep(self.random.random() * 0.5)
                    take(recorder, process, await consumer.poll(timeout_ms=500))
                    if self.random.random() < 0.1:
                        await self._list_ends(consumer, process)
            except ClientError as error:
                world.note(f"{process} fails: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)
            finally:
                await consumer.close(timeout_ms=_CLOSE_MS)

    async def _list_ends(self, consumer: Consumer[bytes, bytes], process: str) -> None:
        recorder = self.recorder
        partitions = sorted(consumer.assignment())
        if not partitions:
            return
        tp = self.random.choice(partitions)
        op = recorder.begin(process, Action.LIST_END, tp)
        try:
            found = await consumer.end_offsets(tp, timeout_ms=3_000)
        except ClientError:
            recorder.end(op, Outcome.UNKNOWN)
        else:
            recorder.end(op, Outcome.OK, offset=found[tp])


class _Assignments(RebalanceListener):
    def __init__(self, recorder: Recorder, process: str, group: str) -> None:
        self._recorder = recorder
        self._process = process
        self._group = group
        self.positions: dict[TopicPartition, int] = {}

    def on_assigned(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self.positions.pop(tp, None)
            self._recorder.happened(self._process, Action.ASSIGN, tp, group=self._group)

    def on_revoked(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            self.positions.pop(tp, None)


@dataclass(slots=True)
class MemberActor:
    """A member of a group: reads what it is given, and commits what it has read."""

    recorder: Recorder
    name: str
    random: Random
    group: str
    protocol: str
    settled: bool = False  # no more leaving and coming back
    _lives: int = 0

    async def run(self, host: Host) -> None:
        recorder, world = self.recorder, self.recorder.fleet.world
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            listener = _Assignments(recorder, process, self.group)
            settings: dict[str, Any] = {"group_protocol": self.protocol}
            if self.protocol == "classic":
                settings |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}
                # A member waits a little longer than this for a coordinator that lost its power.
                settings["max_poll_interval_ms"] = 30_000
            consumer: Consumer[bytes, bytes] = Consumer(
                recorder.fleet.bootstrap,
                group=self.group,
                topics=[topic.name for topic in recorder.topics.values() if topic.is_grouped],
                listener=listener,
                host=host,
                client_id=process,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                request_timeout_ms=5_000,
                default_api_timeout_ms=10_000,
                client_rack=recorder.rack_of(self.name),
                **settings,
            )
            try:
                await consumer.start()
                polls = self.random.choice((30, 100, 1000))
                while polls or self.settled:
                    polls = max(0, polls - 1)
                    await asyncio.sleep(self.random.random() * 0.4)
                    found = await consumer.poll(timeout_ms=1_000)
                    for tp, records in take(recorder, process, found, self.group).items():
                        listener.positions[tp] = records[-1][0] + 1
                    if found and self.random.random() < 0.6:
                        await self._commit(consumer, process, dict(listener.positions))
            except ClientError as error:
                world.note(f"{process} fails: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)
            finally:
                await consumer.close(timeout_ms=_CLOSE_MS)

    async def _commit(
        self,
        consumer: Consumer[bytes, bytes],
        process: str,
        positions: dict[TopicPartition, int],
    ) -> None:
        recorder = self.recorder
        ops = [
            recorder.begin(process, Action.COMMIT, tp, offset=offset, group=self.group)
            for tp, offset in positions.items()
        ]
        outcome = Outcome.UNKNOWN
        try:
            await consumer.commit(positions, timeout_ms=5_000)
            outcome = Outcome.OK
        finally:
            for op in ops:
                recorder.end(op, outcome)


def take(
    recorder: Recorder, process: str, found: list[Any], group: str = ""
) -> dict[TopicPartition, list[tuple[int, str]]]:
    """Tells the checker what a poll has returned."""
    by_partition: dict[TopicPartition, list[tuple[int, str]]] = {}
    for record in found:
        tp = TopicPartition(record.topic, record.partition)
        value = bytes(record.value).partition(b"|")[0].decode()
        by_partition.setdefault(tp, []).append((record.offset, value))
    for tp, records in by_partition.items():
        recorder.happened(process, Action.POLL, tp, records=tuple(records), group=group)
    return by_partition


@dataclass(slots=True)
class AdminActor:
    """Makes topics, and asks brokers for producer ids."""

    recorder: Recorder
    random: Random
    topics_max: int = 4
    _count: int = 0
    _made: list[str] = field(default_factory=list)

    def draw_topic(self) -> Topic:
        random, brokers = self.random, len(self.recorder.fleet.layout.brokers)
        self._count += 1
        replication = min(brokers, random.choice((1, 2, 3, 3, 3)))
        min_isr = random.choice([n for n in (1, 2, 2) if n <= replication])
        configs = {
            "min.insync.replicas": str(min_isr),
            "segment.index.bytes": random.choice(("240", "4096")),
            "index.interval.bytes": random.choice(("300", "4096")),
        }
        if random.random() < 0.3:
            configs["flush.messages"] = "1"
        if random.random() < 0.3:
            configs["segment.bytes"] = "1048576"
            configs["segment.ms"] = random.choice(("500", "5000"))
        partitions = random.choice((1, 1, 2, 3))
        return Topic(f"t{self._count}", partitions, replication, min_isr, configs)

    async def create(self, admin: Admin, topic: Topic, timeout_ms: int) -> None:
        self.recorder.topics[topic.name] = topic
        await admin.create_topic(
            topic.name,
            partitions=topic.partitions,
            replication=topic.replication,
            configs=topic.configs,
            timeout_ms=timeout_ms,
        )
        topic.exists = True
        self.recorder.fleet.world.note(
            f"topic {topic.name}: {topic.partitions} x {topic.replication}, {topic.configs}"
        )

    async def run(self, host: Host) -> None:
        world = self.recorder.fleet.world
        while True:
            admin = Admin(self.recorder.fleet.bootstrap, host=host, request_timeout_ms=5_000)
            try:
                await admin.start()
                while True:
                    await asyncio.sleep(self.random.random() * 8.0)
                    await self._do_something(admin, host)
            except Refused as error:
                world.note(f"admin was refused: {type(error).__name__}: {error}")
            except ClientError as error:
                world.note(f"admin fails: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)
            finally:
                await admin.close()

    async def _do_something(self, admin: Admin, host: Host) -> None:
        draw = self.random.random()
        if draw < 0.5:
            await self._ask_producer_id(host)
        elif len(self.recorder.topics) < self.topics_max:
            await self.create(admin, self.draw_topic(), timeout_ms=20_000)

    async def _ask_producer_id(self, host: Host) -> None:
        fleet = self.recorder.fleet
        broker = self.random.choice(fleet.brokers)
        client = SimClient(host, self.random, "ids", broker.machine.ip, BROKER_PORT)
        try:
            for _ in range(self.random.choice((1, 5))):
                producer_id, _ = await client.init_producer()
                who = f"request {len(self.recorder.producer_ids)} at node {broker.id}"
                self.recorder.took_producer_id(producer_id, who)
        except Unknown:
            fleet.world.happened("producer id without an answer")
        finally:
            client.close()
