"""Histories of controllers alone: elections, commits, crashes, cuts, pauses, restarts.

A command that was answered is in the log forever, whichever node leads; one that was refused with
NOT_CONTROLLER may be there or not. The commands count: each reply is what its command has seen, so
that two leaders at a time, or a command that is answered with another's success, give one number
twice.
"""

from __future__ import annotations

import asyncio
from random import Random

from headwater.controller import Controller, Decision
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Resource, ResourceType
from headwater.protocol.records.metadata_topics import ConfigRecord
from headwater.testing.sim.quorum_watch import QuorumWatch, Seen
from headwater.testing.sim.violation import Violation
from tests.support.quorum_nodes import QuorumCluster, QuorumNode

PROGRESS_SECONDS_MAX = 30.0
COUNTER = Resource(ResourceType.CLIENT_METRICS, "counter")
FAULTS = (
    "kill",
    "power cut",
    "stop",
    "pause",
    "cut",
    "block",
    "isolate",
    "slow sync",
    "weather",
    "kill all",
    "kill a voter",
    "kill a voter",
    "fall behind",
)


class History:
    def __init__(self, seed: int) -> None:
        chance = Random(f"quorum/{seed}")
        voters = chance.choice((1, 2, 3, 3, 3, 4, 5))
        self.fate = chance
        self.cluster = QuorumCluster(
            seed,
            voters=tuple(range(1, voters + 1)),
            brokers=chance.choice(((), (11,), (11, 12))),
            is_static=chance.random() < 0.5,
            settings={
                "metadata.log.max.record.bytes.between.snapshots": chance.choice(
                    ("500", "3000", "20971520")
                ),
                "metadata.max.retention.bytes": chance.choice(("1", "104857600")),
                "metadata.log.segment.bytes": "8388608",
            },
        )
        self.world = self.cluster.world
        self.watch = QuorumWatch(self.world, self.fail)
        self.seen: dict[int, tuple[object, Seen]] = {}
        self.allowed = [fault for fault in FAULTS if chance.random() < 0.5] or ["kill"]
        self.answered: dict[int, str] = {}  # by the number that the command was answered with
        self.last = 0  # the highest number that was answered
        self.attempts = 0

    def fail(self, what: str) -> Violation:
        return Violation(what, self.world.seed, list(self.world.events))

    # Looking

    def look(self) -> None:
        for node in self.cluster.nodes.values():
            if not node.is_up:
                continue
            life = node.machine.life
            known = self.seen.get(node.id)
            if known is None or known[0] is not life:
                known = self.seen[node.id] = (life, Seen())
            self.watch.look(node.id, node.metadata, known[1])
            assert not node.failures, node.failures

    async def look_often(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(0.02)

    # Working

    async def work(self, name: str) -> None:
        random = self.world.chance(f"worker {name}")
        while True:
            await asyncio.sleep(random.random() * 0.3)
            active = [
                node
                for node in self.cluster.nodes.values()
                if node.is_up and node.is_controller and node.controller.is_active
            ]
            if active:
                # A deposed leader that does not know it yet is asked as well.
                await self.command(random.choice(active), name)

    async def command(self, node: QuorumNode, name: str) -> None:
        self.attempts += 1
        text = f"{name}-{self.attempts}"
        before = self.last
        life = node.machine.life

        def count(machine: Controller) -> Decision[int]:
            number = int(machine.image.config(COUNTER).get("count", "0")) + 1
            return Decision((_record("count", str(number)), _record(text, "1")), number)

        task = node.machine.spawn(node.controller.ask(count))
        done, _ = await asyncio.wait([task], timeout=10.0)
        if not done or node.machine.life is not life:
            return
        try:
            number = task.result()
        except ApiError as refusal:
            if refusal.code is not ErrorCode.NOT_CONTROLLER:
                raise
            self.world.note(f"{text} at node {node.id}: {refusal.code.name}")
            return
        self.world.note(f"{text} at node {node.id}: {number}")
        if number in self.answered:
            raise self.fail(f"{text} and {self.answered[number]} were both answered {number}")
        if number <= before:
            raise self.fail(f"{text} was answered {number} after {before}")
        self.answered[number] = text
        self.last = max(self.last, number)

    # Faults

    async def fault(self) -> None:
        fate, net = self.fate, self.world.net
        fault = fate.choice(self.allowed)
        nodes = list(self.cluster.nodes.values())
        node = fate.choice(nodes)
        leaders = self.cluster.leaders()
        if leaders and fate.random() < 0.5:
            node = fate.choice(leaders)
        seconds = fate.choice((0.3, 2.0, 6.0)) * fate.random()
        self.world.note(f"fault: {fault} of node {node.id} for {seconds:.3f} s")
        ips = [other.machine.ip for other in nodes if other is not node]
        match fault:
            case "kill" | "power cut" | "kill all":
                chosen = nodes if fault == "kill all" else [node]
                for each in chosen:
                    each.kill(power_cut=fault == "power cut")
                await asyncio.sleep(seconds)
                for each in chosen:
                    self.start(each)
            case "fall behind" if leaders and ips:
                await self.fall_behind(fate.choice(leaders))
            case "kill a voter":
                await self.kill_a_voter(nodes, leaders)
            case "stop":
                await node.stop()
                await asyncio.sleep(seconds)
                self.start(node)
            case "pause":
                node.machine.pause()
                await asyncio.sleep(seconds)
                node.machine.resume()
            case "cut":
                net.cut_all()
            case "block" | "isolate" if ips:
                others = ips if fault == "isolate" else [fate.choice(ips)]
                links = [(node.machine.ip, ip) for ip in others]
                if fate.random() < 0.5:
                    links = [(ip, node.machine.ip) for ip in others]
                elif fate.random() < 0.5:
                    links += [(ip, node.machine.ip) for ip in others]
                for link in links:
                    net.block(*link)
                await asyncio.sleep(seconds)
            case "slow sync":
                node.machine.disk.faults.sync_seconds_max = fate.choice((0.1, 1.0))
                await asyncio.sleep(seconds)
                node.machine.disk.faults.clear()
            case "weather":
                net.weather.latency_seconds = fate.choice((0.001, 0.2))
                net.weather.jitter_seconds = fate.choice((0.01, 0.5))
                net.weather.cut_rate = fate.choice((0.0, 0.05))
                await asyncio.sleep(seconds)
        net.heal()

    async def kill_a_voter(self, nodes: list[QuorumNode], leaders: list[QuorumNode]) -> None:
        """Ends the leader, and then whoever first votes in the epoch that follows, just after it
        has voted. All are back at once."""
        fate, loop = self.fate, self.world.loop
        if not leaders or any(not node.is_up for node in nodes):
            return
        leader = fate.choice(leaders)
        others = [node for node in nodes if node is not leader and node.is_controller]
        epochs = {node.id: node.raft.epoch for node in others}
        leader.kill(power_cut=fate.random() < 0.5)
        deadline = loop.time() + 5.0
        voted: list[QuorumNode] = []
        while not voted and loop.time() < deadline:
            await asyncio.sleep(0.0005)
            voted = [node for node in others if node.raft.epoch > epochs[node.id]]
        self.start(leader)
        await asyncio.sleep(fate.choice((0.0, 0.001, 0.01)))
        for node in voted[: fate.choice((1, 1, 2))]:
            node.kill(power_cut=fate.random() < 0.5)
            self.start(node)

    async def fall_behind(self, leader: QuorumNode) -> None:
        """Cuts a voter off from the leader, which then ends: those who heard less must not win."""
        fate, net, ip = self.fate, self.world.net, leader.machine.ip
        others = [n for n in self.cluster.nodes.values() if n is not leader and n.is_controller]
        if not others:
            return
        behind = fate.choice(others).machine.ip
        net.block(ip, behind)
        net.block(behind, ip)
        await asyncio.sleep(fate.uniform(0.3, 1.8))
        leader.kill()
        net.heal()
        await asyncio.sleep(fate.choice((0.0, 3.0)))
        self.start(leader)

    def start(self, node: QuorumNode) -> None:
        self.starting.append(asyncio.ensure_future(node.start()))

    # The story

    async def run(self) -> None:
        self.starting: list[asyncio.Future[None]] = []
        for node in self.cluster.nodes.values():
            self.start(node)
        await asyncio.gather(*self.starting)
        tasks = [asyncio.ensure_future(self.look_often())]
        tasks += [asyncio.ensure_future(self.work(name)) for name in ("a", "b", "c")]
        for _ in range(10):
            await asyncio.sleep(self.fate.random() * 1.5)
            await self.fault()
            self.check(tasks)
        self.world.note("all faults end")
        await asyncio.gather(*self.starting)
        deadline = self.world.loop.time() + PROGRESS_SECONDS_MAX
        before = len(self.answered)
        while len(self.answered) < before + 3:
            self.check(tasks)
            if self.world.loop.time() > deadline:
                raise self.fail("no progress after all faults ended")
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.cluster.settled()
        self.look()
        for node in self.cluster.nodes.values():
            self.watch.check_replay(node.id, node.metadata)
            found = node.metadata.image.config(COUNTER)
            missing = [text for text in self.answered.values() if text not in found]
            if missing:
                raise self.fail(f"node {node.id} does not have {missing[:5]}")

    def check(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in (*tasks, *self.starting):
            if task.done():
                task.result()
        assert not self.world.loop.failures, self.world.loop.failures[0]


def _record(name: str, value: str) -> ConfigRecord:
    return ConfigRecord(
        resource_type=COUNTER.type, resource_name=COUNTER.name, name=name, value=value
    )


def run(seed: int) -> tuple[str, int]:
    history = History(seed)
    world = history.world
    history.cluster.run(history.run)
    return world.digest(), len(history.answered)
