"""Records and groups in a cluster's history: producers, members of a group, a reader and an
administrator; afterwards every partition takes records, and the group reads all of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from headwater.client.admin import Admin
from headwater.client.consumer import Consumer
from headwater.client.errors import ClientError
from headwater.model import TopicPartition
from headwater.testing.sim.checker import Action
from headwater.testing.sim.fleet import Layout
from headwater.testing.sim.fleet_clients import (
    AdminActor,
    MemberActor,
    ProducerActor,
    ReaderActor,
    take,
)
from headwater.testing.sim.fleet_watch import GROUP

if TYPE_CHECKING:
    from headwater.testing.sim.fleet_history import Actor, FleetHistory

PROGRESS_SECONDS_MAX = 120.0


class RecordsPlay:
    kind: ClassVar[str] = "cluster"

    def __init__(self, stage: FleetHistory) -> None:
        self._stage = stage
        self._members: list[MemberActor] = []

    def settings(self, layout: Layout) -> dict[str, str]:
        return {}

    async def make_topics(self) -> None:
        """Without faults topics are made at once."""
        self._admin = AdminActor(self._stage.recorder, self._stage.world.chance("admin"))
        host = self._stage.client_machine("first").boot()
        admin = Admin(self._stage.fleet.bootstrap, host=host)
        await admin.start()
        for _ in range(self._stage.fate.choice((1, 2, 3))):
            topic = self._admin.draw_topic()
            topic.is_grouped = True
            await self._admin.create(admin, topic, timeout_ms=60_000)
        await admin.close()

    def actors(self) -> list[tuple[str, Actor]]:
        chance = self._stage.world.chance
        producers = [
            ProducerActor.draw(self._stage.recorder, f"p{n}", chance(f"p{n}")) for n in range(3)
        ]
        protocol = self._stage.fate.choice(("classic", "consumer"))
        self._members = [
            MemberActor(self._stage.recorder, f"m{n}", chance(f"m{n}"), GROUP, protocol)
            for n in range(2)
        ]
        reader = ReaderActor(self._stage.recorder, "r0", chance("r0"))
        return [
            *((each.name, each) for each in producers),
            *((each.name, each) for each in self._members),
            (reader.name, reader),
            ("admin", self._admin),
        ]

    def check(self) -> None: ...

    async def finish(self) -> None:
        await self._progress()
        await self._read_everything()

    def release(self) -> None:
        self._members.clear()

    async def _progress(self) -> None:
        """Without faults every partition takes records in bounded time."""
        partitions = self._stage.recorder.partitions()
        machine = self._stage.client_machine("last")
        host = machine.boot()
        probes = []
        for tp in partitions:
            actor = ProducerActor(
                self._stage.recorder,
                f"last-{tp.topic}-{tp.partition}",
                self._stage.world.chance(f"last {tp}"),
                {"acks": "all", "enable_idempotence": True, "request_timeout_ms": 5_000},
                only=tp,
            )
            probes.append((tp, actor, machine.spawn(actor.run(host))))
        before = dict(self._stage.recorder.acknowledged_of)
        deadline = self._stage.world.loop.time() + PROGRESS_SECONDS_MAX
        waiting = {f"{tp.topic}-{tp.partition}" for tp in partitions}
        while waiting:
            await self._stage.wait(0.5)
            waiting = {
                name
                for name in waiting
                if self._stage.recorder.acknowledged_of.get(name, 0) <= before.get(name, 0)
            }
            if self._stage.world.loop.time() > deadline:
                raise self._stage.fleet.fail(
                    f"{sorted(waiting)} take no records after all faults ended"
                )
        for _, _, task in probes:
            task.cancel()
        await asyncio.gather(*(task for _, _, task in probes), return_exceptions=True)
        await self._stage.end_seats(lambda actor: not isinstance(actor, MemberActor))

    async def _read_everything(self) -> None:
        """Reads all partitions from the beginning to their ends, which do not move any more."""
        for member in self._members:
            member.settled = True
        host = self._stage.client_machine("judge").boot()
        process = "judge"
        consumer: Consumer[bytes, bytes] = Consumer(
            self._stage.fleet.bootstrap, host=host, client_id=process, auto_offset_reset="earliest"
        )
        await consumer.start()
        partitions = self._stage.recorder.partitions()
        consumer.assign(partitions)
        for tp in partitions:
            self._stage.recorder.happened(process, Action.ASSIGN, tp)
        deadline = self._stage.world.loop.time() + PROGRESS_SECONDS_MAX
        ends = dict[TopicPartition, int]()
        read = dict.fromkeys(partitions, 0)
        while not ends or any(read[tp] < ends[tp] for tp in partitions):
            self._stage.check()
            if self._stage.world.loop.time() > deadline:
                raise self._stage.fleet.fail(f"read up to {read} of {ends} after all faults ended")
            try:
                found = take(self._stage.recorder, process, await consumer.poll(timeout_ms=500))
                for tp, records in found.items():
                    read[tp] = records[-1][0] + 1
                if not ends:
                    ends = await consumer.end_offsets(*partitions, timeout_ms=30_000)
            except ClientError as error:
                self._stage.world.note(f"judge fails: {type(error).__name__}: {error}")
        await consumer.close()
        await self._group_reads_everything(ends)
        grouped = {f"{tp.topic}-{tp.partition}" for tp in self._grouped(partitions)}
        groups = {} if self._group_is_excused else {GROUP: grouped}
        self._stage.recorder.judge(self._stage.recorder.checker.finish(groups))

    @property
    def _group_is_excused(self) -> bool:
        return GROUP in self._stage.recorder.checker.excused_groups

    def _grouped(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        topics = self._stage.recorder.topics
        return [tp for tp in partitions if topics[tp.topic].is_grouped]

    async def _group_reads_everything(self, ends: dict[TopicPartition, int]) -> None:
        if self._group_is_excused:
            return
        deadline = self._stage.world.loop.time() + PROGRESS_SECONDS_MAX
        while True:
            behind = {}
            for tp in self._grouped(list(ends)):
                end = ends[tp]
                partition = self._stage.recorder.checker.partitions[f"{tp.topic}-{tp.partition}"]
                seen = partition.seen_by_group.get(GROUP, set())
                if end and end - 1 not in seen and not partition.excused:
                    behind[tp] = (max(seen, default=-1) + 1, end)
            if not behind:
                return
            if self._stage.world.loop.time() > deadline:
                raise self._stage.fleet.fail(f"the group does not read on: {behind}")
            await self._stage.wait(0.5)
