"""Transactions in a cluster's history; afterwards none is left open, everything that is committed
is read, and the pipeline has processed it exactly once."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from headwater.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from headwater.client.admin import Admin
from headwater.client.consumer import Consumer
from headwater.client.errors import ClientError
from headwater.model import TopicPartition
from headwater.testing.sim.fleet import Layout
from headwater.testing.sim.fleet_clients import Topic
from headwater.testing.sim.fleet_records import PROGRESS_SECONDS_MAX
from headwater.testing.sim.fleet_watch import OFFSETS_TOPIC
from headwater.testing.sim.late_requests import LateActor, Wiretap
from headwater.testing.sim.transaction_clients import (
    PIPELINE,
    CommittedReader,
    Desk,
    PipelineActor,
    PlainActor,
    TransactionalActor,
    committed_reader,
)
from headwater.testing.sim.transaction_watch import TransactionWatch

if TYPE_CHECKING:
    from headwater.testing.sim.fleet_history import Actor, FleetHistory


class TransactionPlay:
    kind: ClassVar[str] = "transactions"

    def __init__(self, stage: FleetHistory) -> None:
        self._stage = stage
        self._pipelines: list[PipelineActor] = []
        self._fate = stage.world.chance("transactions")

    def settings(self, layout: Layout) -> dict[str, str]:
        copies = min(3, len(layout.brokers))
        return {
            "transaction.state.log.num.partitions": self._fate.choice(("1", "2")),
            "transaction.state.log.replication.factor": str(copies),
            "transaction.state.log.min.isr": str(min(2, copies)),
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "5000",
        }

    async def make_topics(self) -> None:
        stage = self._stage
        copies = min(3, len(stage.fleet.layout.brokers))
        host = stage.client_machine("first").boot()
        admin = Admin(stage.fleet.bootstrap, host=host)
        await admin.start()
        partitions = []
        for name in ("a", "b"):
            topic = Topic(name, self._fate.choice((1, 2)), copies, min(2, copies), {})
            configs = {"segment.bytes": "1048576", "segment.ms": self._fate.choice(("900", "9000"))}
            configs |= {"min.insync.replicas": str(topic.min_isr)}
            stage.recorder.topics[name] = topic
            await admin.create_topic(
                name,
                partitions=topic.partitions,
                replication=copies,
                configs=configs,
                timeout_ms=60_000,
            )
            topic.exists = True
            partitions += [TopicPartition(name, number) for number in range(topic.partitions)]
        await admin.close()
        self._desk = Desk(stage.fleet, partitions)
        self._watch = TransactionWatch(stage.fleet, stage.watch)
        self._watch.start()

    def actors(self) -> list[tuple[str, Actor]]:
        chance, desk = self._stage.world.chance, self._desk
        shares = self._fate.random() < 0.4  # two of them have one transactional id
        producers = [
            TransactionalActor(
                desk, f"t{n}", chance(f"t{n}"), "t0" if shares and n < 2 else f"t{n}"
            )
            for n in range(3)
        ]
        protocol = self._fate.choice(("classic", "consumer"))
        self._pipelines = [
            PipelineActor(desk, f"x{n}", chance(f"x{n}"), protocol) for n in range(2)
        ]
        late = LateActor(self._stage.world, Wiretap(self._stage.world), chance("late"))
        return [
            *((each.name, each) for each in producers),
            *((each.name, each) for each in self._pipelines),
            ("n0", PlainActor(desk, "n0", chance("n0"))),
            ("r0", CommittedReader(desk, "r0", chance("r0"))),
            ("late", late),
        ]

    def check(self) -> None:
        desk = self._desk
        for tp in self._stage.watch.may_lose:
            if tp.topic in (TRANSACTIONS_TOPIC, OFFSETS_TOPIC):
                desk.checker.all_excused = True
            else:
                desk.checker.excused.add(f"{tp.topic}-{tp.partition}")
        if desk.violation is not None:
            raise desk.violation
        if self._watch.violation is not None:
            raise self._watch.violation

    async def finish(self) -> None:
        stage, desk = self._stage, self._desk
        for pipeline in self._pipelines:
            pipeline.settled = True
        await self._progress()
        await stage.end_seats(lambda actor: not isinstance(actor, PipelineActor))
        stage.world.net.tap = None
        deadline = stage.world.loop.time() + PROGRESS_SECONDS_MAX
        while True:
            last = await self._read_everything(deadline)
            found = desk.checker.finish(last, {PIPELINE: list(last)})
            # A pipeline that has not come to the end yet writes more.
            if not found or stage.world.loop.time() > deadline:
                break
            await stage.wait(1.0)
        desk.judge(found)
        self._watch.check_all(excused=desk.checker.all_excused)
        stage.recorder.acknowledged = desk.committed
        stage.recorder.read = desk.read

    async def _progress(self) -> None:
        """Without faults transactions are committed."""
        stage, desk = self._stage, self._desk
        before = desk.committed
        deadline = stage.world.loop.time() + PROGRESS_SECONDS_MAX
        while desk.committed < before + 3:
            if stage.world.loop.time() > deadline:
                raise stage.fleet.fail("no transaction is committed after all faults ended")
            await stage.wait(0.5)

    async def _read_everything(self, deadline: float) -> dict[str, dict[int, str]]:
        """Reads all that is committed up to the ends, once no transaction is open."""
        stage, desk = self._stage, self._desk
        name = f"judge {stage.world.loop.time():.0f}"
        machine = stage.client_machine(name)
        host = machine.boot()
        consumer = committed_reader(desk, host, name)
        # Readers of committed data are told that a log ends where the first transaction is open.
        everything: Consumer[bytes, bytes] = Consumer(
            stage.fleet.bootstrap, host=host, client_id=f"{name} ends"
        )
        await consumer.start()
        await everything.start()
        consumer.assign(desk.partitions)
        last: dict[str, dict[int, str]] = {
            f"{tp.topic}-{tp.partition}": {} for tp in desk.partitions
        }
        ends: dict[TopicPartition, int] = {}
        reached = dict.fromkeys(desk.partitions, 0)
        while not ends or any(reached[tp] < ends[tp] for tp in desk.partitions):
            stage.check()
            if stage.world.loop.time() > deadline + PROGRESS_SECONDS_MAX:
                if desk.checker.all_excused or desk.checker.excused:
                    break  # a transaction may hang whose coordinator has lost it
                raise stage.fleet.fail(f"read up to {reached} of {ends}: a transaction hangs")
            try:
                records = await consumer.poll(timeout_ms=500)
                desk.take(name, records)
                for record in records:
                    value = bytes(record.value).decode()
                    last[f"{record.topic}-{record.partition}"][record.offset] = value
                if not ends:
                    ends = await everything.end_offsets(*desk.partitions, timeout_ms=30_000)
                for tp in desk.partitions:
                    reached[tp] = await consumer.position(tp, timeout_ms=30_000)
            except ClientError as error:
                stage.world.note(f"{name} fails: {type(error).__name__}: {error}")
        await consumer.close()
        await everything.close()
        machine.switch_off()
        return last

    def release(self) -> None:
        self._pipelines.clear()
