"""Those who use the node in a history: producers, a consumer, an administrator.

Each waits at the door while the node is down or being judged, does one small thing, and tells the
judge what it knows about the outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headwater import _core
from headwater.errors import ErrorCode
from headwater.protocol.messages.produce import PartitionProduceResponse
from headwater.testing.sim.client import SimClient, Unknown
from headwater.testing.sim.cluster import DELETION, Cluster, Topic
from headwater.testing.sim.judge import Outcome, PartitionModel, Sent

_ATTEMPTS_MAX = 60
_CODECS = (0, 0, 1, 2, 3, 4)
# The batch is not in the log, for sure; whether to try again is another question.
_DEFINITE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_RECORD,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
}
# It may be in the log: the next attempt with the same sequence finds out.
_INDEFINITE = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


class Values:
    """Values that are nobody else's."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._count = 0

    def draw(self) -> tuple[bytes, ...]:
        random = self._random
        size = random.choice((3, 40, 40, 400, 3000))
        return tuple(self._next(size) for _ in range(random.choice((1, 1, 1, 3, 8))))

    def draw_keys(self, count: int) -> tuple[bytes, ...]:
        return tuple(b"k%d" % self._random.randrange(12) for _ in range(count))

    def draw_marks(self, values: tuple[bytes, ...]) -> frozenset[bytes]:
        return frozenset(value for value in values if self._random.random() < 0.15)

    def _next(self, size: int) -> bytes:
        self._count += 1
        return b"v%d:" % self._count + self._random.randbytes(self._random.randrange(size))


@dataclass(slots=True)
class _Line:
    """The batches that one producer has sent to one partition."""

    sequence: int = 0
    unsettled: bool = False  # a batch before the next may be missing: a gap would be our own
    durable: bool = True  # all that was acknowledged was synced before
    # Two cases in which Kafka too calls a retry out of order: after a restart, where a snapshot
    # knows only the last of several unanswered batches; and where the first batch of a producer
    # was refused and the one behind it was not, for any sequence may be a producer's first.
    excused: bool = False
    last: tuple[Sent, bytes] | None = None  # the last one that was acknowledged, as it was sent


@dataclass(slots=True)
class Producer:
    cluster: Cluster
    name: str
    random: Random
    values: Values
    idempotent: bool
    acknowledged: int = 0
    _client: SimClient | None = None
    _id: int = -1
    _epoch: int = -1
    _lines: dict[PartitionModel, _Line] = field(default_factory=dict)

    async def run(self) -> None:
        self._client = self.cluster.client(self.name)
        while True:
            await self.cluster.up.wait()
            await asyncio.sleep(self.random.random() ** 2 * 0.4)
            chosen = choose(self.cluster, self.random)
            if chosen is None:
                continue
            topic, model = chosen
            try:
                if self.idempotent and self._id < 0:
                    self._id, self._epoch = await self._client.init_producer()
                    self._lines = {}
                    self.cluster.world.note(f"{self.name} is producer {self._id}")
            except Unknown:
                continue
            if self.idempotent:
                await self._send_in_order(topic, model)
            else:
                await self._send_once(topic, model)

    def _encode(self, sent: Sent, sequence: int) -> bytes:
        now = self.cluster.machine.clock.wall_ms()
        return bytes(
            _core.encode(
                list(_rows(sent, now)),
                codec=self.random.choice(_CODECS),
                producer_id=self._id if self.idempotent else -1,
                producer_epoch=self._epoch if self.idempotent else -1,
                base_sequence=sequence if self.idempotent else -1,
            )
        )

    def _draw(self, topic: Topic, model: PartitionModel) -> Sent:
        values = self.values.draw()
        keys = self.values.draw_keys(len(values)) if model.compacts else ()
        marks = self.values.draw_marks(values) if model.compacts else frozenset[bytes]()
        return self.cluster.judge.sending(
            model, values, durable=topic.durable, keys=keys, marks=marks
        )

    async def _send_once(self, topic: Topic, model: PartitionModel) -> None:
        """No sequence: one attempt, and whatever came of it."""
        assert self._client is not None
        sent = self._draw(topic, model)
        acks = self.random.choice((1, -1))
        (answer,) = await self._client.produce(model.tp, topic.id, [self._encode(sent, -1)], acks)
        if answer is None:
            sent.outcome = Outcome.UNKNOWN
        elif not answer.error_code:
            self._accept(model, sent, answer)
        else:
            code = self._code(answer)
            sent.outcome = Outcome.REFUSED if code in _DEFINITE else Outcome.UNKNOWN
        self.cluster.world.note(f"{self.name} to {model.tp}: {sent.outcome.value} {sent.base}")

    async def _send_in_order(self, topic: Topic, model: PartitionModel) -> None:
        """Some batches at once, then those that did not make it, one by one."""
        assert self._client is not None
        if model not in self._lines:
            self._lines[model] = _Line()
        line = self._lines[model]
        waiting: list[tuple[Sent, bytes]] = []
        if line.last is not None and self.random.random() < 0.15:
            await self._send_again(topic, model, line)
            return
        for _ in range(self.random.choice((1, 1, 2, 4))):
            sent = self._draw(topic, model)
            waiting.append((sent, self._encode(sent, line.sequence)))
            line.sequence += len(sent.values)
        producer_id, starts = self._id, self.cluster.starts
        several = len(waiting) > 1
        attempted = False
        for _ in range(_ATTEMPTS_MAX):
            batches = [batch for _, batch in (waiting if not attempted else waiting[:1])]
            answers = await self._client.produce(model.tp, topic.id, batches, -1)
            attempted = True
            line.excused = several and (starts != self.cluster.starts or line.last is None)
            for answer in answers:
                if not self._settle(model, line, waiting, answer):
                    break
            if not waiting or self._id != producer_id:
                break
            if not topic.exists or topic.leaving:
                break
            await asyncio.sleep(self.random.random() * 0.5)
            await self.cluster.up.wait()
        for sent, _ in waiting:
            line.unsettled = True
            if sent.outcome is Outcome.PENDING:
                sent.outcome = Outcome.UNKNOWN
        if line.unsettled:
            self._id = -1  # as Kafka's client does: a new start where the order is broken

    def _settle(
        self,
        model: PartitionModel,
        line: _Line,
        waiting: list[tuple[Sent, bytes]],
        answer: PartitionProduceResponse | None,
    ) -> bool:
        """Takes note of the answer to the first that waits; whether the next may follow."""
        sent, batch = waiting[0]
        world = self.cluster.world
        if answer is None:
            world.happened("produce without an answer")
            return False
        if not answer.error_code:
            waiting.pop(0)
            self._accept(model, sent, answer)
            line.last = (sent, batch)
            line.durable = line.durable and sent.durable
            world.note(f"{self.name} to {model.tp}: acknowledged {sent.base}")
            return True
        code = self._code(answer)
        world.note(f"{self.name} to {model.tp}: {code.name}")
        if code in _INDEFINITE or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        if code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            waiting.pop(0)
            sent.outcome = Outcome.UNKNOWN
            world.happened("old duplicate recognised")
            return True
        ordered = line.durable and not line.excused
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and ordered:
            # All before it was acknowledged, and nothing of that may be lost.
            raise self.cluster.judge.fail(
                f"{model.tp}: producer {self._id} sent in order and was refused: "
                f"{answer.error_message}"
            )
        world.happened("producer started anew")
        self._id = -1
        return False

    async def _send_again(self, topic: Topic, model: PartitionModel, line: _Line) -> None:
        """The last batch once more: it is known, and not stored twice."""
        assert self._client is not None
        assert line.last is not None
        sent, batch = line.last
        starts = self.cluster.starts
        if model.known.get(sent.base) != sent.values[0] or sent.base < model.start:
            return
        (answer,) = await self._client.produce(model.tp, topic.id, [batch], -1)
        if answer is None or starts != self.cluster.starts:
            return
        if answer.error_code:
            code = self._code(answer)
            self.cluster.world.note(f"{self.name} to {model.tp} again: {code.name}")
            if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                raise self.cluster.judge.fail(f"{model.tp}: a duplicate was called out of order")
            return
        self.cluster.world.happened("duplicate recognised")
        self._accept(model, sent, answer)

    def _accept(self, model: PartitionModel, sent: Sent, answer: PartitionProduceResponse) -> None:
        self.cluster.judge.acknowledged(model, sent, answer.base_offset)
        self.acknowledged += 1

    def _code(self, answer: PartitionProduceResponse) -> ErrorCode:
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.KAFKA_STORAGE_ERROR and self.cluster.machine.disk.is_tight:
            self.cluster.world.happened("full disk refuses a produce")
        if code not in _DEFINITE | _INDEFINITE | {ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
            raise self.cluster.judge.fail(
                f"{self.name}: produce answered {code.name}: {answer.error_message}"
            )
        return code


@dataclass(slots=True)
class Consumer:
    cluster: Cluster
    name: str
    random: Random
    _positions: dict[PartitionModel, int] = field(default_factory=dict)

    async def run(self) -> None:
        client = self.cluster.client(self.name)
        while True:
            await self.cluster.up.wait()
            await asyncio.sleep(self.random.random() ** 2 * 0.3)
            chosen = choose(self.cluster, self.random)
            if chosen is None:
                continue
            try:
                await self._read(client, *chosen)
            except Unknown:
                continue

    async def _read(self, client: SimClient, topic: Topic, model: PartitionModel) -> None:
        judge, world = self.cluster.judge, self.cluster.world
        offset = self._positions.get(model, 0)
        if self.random.random() < 0.3 and model.known:
            offset = self.random.randint(min(model.known), max(model.known) + 1)
        starts, acknowledged = self.cluster.starts, model.acknowledged_end
        answer = await client.fetch(
            model.tp,
            topic.id,
            offset,
            bytes_max=self.random.choice((1, 300, 4_000, 100_000)),
            wait_ms=self.random.choice((0, 0, 200)),
        )
        if starts != self.cluster.starts or not self.cluster.machine.life:
            return  # it tells of a log that is no more
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            code, start = await client.list_offset(model.tp, -2)
            if not code and starts == self.cluster.starts:
                judge.log_start(model, start)
                self._positions[model] = start
                if start <= offset < acknowledged:
                    raise judge.fail(f"{model.tp}: {offset} is out of range, start is {start}")
            return
        if answer.error_code:
            world.note(f"{self.name} of {model.tp}: {ErrorCode(answer.error_code).name}")
            return
        found, after = self.cluster.records_of(model.tp, answer.records, offset)
        if offset < acknowledged and (after == offset or not (found or model.compacts)):
            raise judge.fail(f"{model.tp}: nothing at {offset}, acknowledged to {acknowledged}")
        position = judge.read(
            model,
            found,
            from_offset=offset,
            high_watermark=answer.high_watermark,
            acknowledged_end=acknowledged,
        )
        self._positions[model] = max(position, after)
        if found:
            world.note(f"{self.name} of {model.tp}: {offset}..{self._positions[model]}")


@dataclass(slots=True)
class Administrator:
    """Makes topics, changes and deletes them, and deletes records."""

    cluster: Cluster
    random: Random
    topics_max: int = 4
    _count: int = 0

    async def run(self) -> None:
        client = self.cluster.client("admin")
        while True:
            await self.cluster.up.wait()
            await asyncio.sleep(self.random.random() * 3.0)
            await self.cluster.up.wait()
            draw = self.random.random()
            try:
                if draw < 0.4:
                    await self.create(client)
                elif draw < 0.5:
                    await self._delete(client)
                elif draw < 0.7:
                    await self._alter(client)
                else:
                    await self._delete_records(client)
            except Unknown:
                self.cluster.world.happened("admin request without an answer")

    async def create(self, client: SimClient) -> None:
        cluster = self.cluster
        if sum(1 for topic in cluster.topics.values() if topic.exists) >= self.topics_max:
            return
        self._count += 1
        topic = Topic(
            f"t{self._count}", self.random.choice((1, 1, 2)), dict(draw_configs(self.random))
        )
        cluster.topics[topic.name] = topic
        code = await client.create_topic(topic.name, topic.partitions, topic.configs)
        cluster.world.note(f"create {topic.name}: {ErrorCode(code).name} {topic.configs}")
        if code == ErrorCode.NONE:
            topic.exists = True
            await cluster.learn_id(topic)
        elif code == ErrorCode.INVALID_REPLICATION_FACTOR and not cluster.up.is_set():
            pass  # a broker that is stopping is fenced, and takes no new replicas
        elif code != ErrorCode.REQUEST_TIMED_OUT and code != ErrorCode.KAFKA_STORAGE_ERROR:
            raise cluster.judge.fail(f"create {topic.name} answered {ErrorCode(code).name}")

    async def _delete(self, client: SimClient) -> None:
        cluster = self.cluster
        there = [topic for topic in cluster.topics.values() if topic.exists and not topic.leaving]
        if len(there) < 2:
            return
        topic = self.random.choice(there)
        topic.leaving = True
        topic.exists = None
        code = await client.delete_topic(topic.name)
        cluster.world.note(f"delete {topic.name}: {ErrorCode(code).name}")
        if code == ErrorCode.NONE:
            topic.exists = False
            cluster.world.happened("topic deleted")

    async def _alter(self, client: SimClient) -> None:
        cluster = self.cluster
        chosen = choose(cluster, self.random)
        if chosen is None:
            return
        topic = chosen[0]
        key, text = self.random.choice(
            (
                ("flush.messages", "1"),
                ("compression.type", self.random.choice(("lz4", "zstd", "producer"))),
                ("index.interval.bytes", self.random.choice(("50", "4096"))),
                ("segment.index.bytes", self.random.choice(("60", "100000"))),
            )
        )
        before = topic.configs.pop(key, None)  # until it is known, nobody may rely on it
        code = await client.alter_topic(topic.name, {key: text})
        cluster.world.note(f"alter {topic.name} {key}={text}: {ErrorCode(code).name}")
        if code == ErrorCode.NONE:
            topic.configs[key] = text
        elif before is not None and code not in _INDEFINITE:
            topic.configs[key] = before

    async def _delete_records(self, client: SimClient) -> None:
        cluster = self.cluster
        chosen = choose(cluster, self.random)
        if chosen is None:
            return
        model = chosen[1]
        if not model.acknowledged_end:
            return
        offset = self.random.randint(0, model.acknowledged_end)
        model.start_max = max(model.start_max, offset)
        code, start = await client.delete_records(model.tp, offset)
        cluster.world.note(f"delete records of {model.tp} before {offset}: {code} {start}")
        if code == ErrorCode.NONE:
            cluster.judge.log_start(model, start)
            cluster.world.happened("records deleted")


def _rows(sent: Sent, now_ms: int) -> Iterator[tuple[bytes | None, bytes | None, Any, int]]:
    for key, value in zip(sent.keys or (None,) * len(sent.values), sent.values, strict=True):
        if value in sent.marks:
            yield key, None, ((DELETION, value),), now_ms
        else:
            yield key, value, (), now_ms


def choose(cluster: Cluster, random: Random) -> tuple[Topic, PartitionModel] | None:
    """A partition of an existing topic."""
    there = [
        (topic, model)
        for topic in cluster.topics.values()
        if topic.exists and not topic.leaving
        for model in topic.models
    ]
    return random.choice(there) if there else None


def draw_configs(random: Random) -> Iterator[tuple[str, str]]:
    """Settings of a new topic: small segments and indexes, so that much happens to them."""
    if random.random() < 0.5:
        yield "flush.messages", "1"
    yield "segment.index.bytes", random.choice(("60", "240", "100000"))
    yield "index.interval.bytes", random.choice(("10", "300", "4096"))
    compacts = random.random() < 0.4
    if compacts:
        yield "cleanup.policy", random.choice(("compact", "compact", "compact,delete"))
        yield "min.cleanable.dirty.ratio", random.choice(("0.01", "0.5"))
        yield "delete.retention.ms", random.choice(("0", "2000"))
        if random.random() < 0.2:
            yield "min.compaction.lag.ms", "1000"
        if random.random() < 0.2:
            yield "max.compaction.lag.ms", "2000"
    if random.random() < 0.25:
        yield "retention.bytes", random.choice(("2000", "20000"))
    elif random.random() < 0.2:
        yield "retention.ms", random.choice(("3000", "20000"))
    if random.random() < 0.3:
        yield "segment.ms", random.choice(("500", "5000"))
    if random.random() < 0.2:
        yield "compression.type", random.choice(("lz4", "zstd"))
    if random.random() < 0.2:
        yield "file.delete.delay.ms", "100"
    if random.random() < 0.3:
        yield "preallocate", "true"
