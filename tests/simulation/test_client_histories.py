"""A client over a bad network, in virtual time: whatever happens, each call ends by its deadline.

Connections are cut and blocked, the node is killed and comes back; then the faults end, and the
client must find its way.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from headwater.broker.node import Node
from headwater.client.cluster import Cluster, Coordinator, Target, Where
from headwater.client.config import ClientConfig
from headwater.client.errors import RetriableError
from headwater.config import node_config
from headwater.errors import ErrorCode
from headwater.observability import Log
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.testing.sim.world import Machine, World

PORT = 9092
DESCRIBE = DescribeClusterRequest(include_cluster_authorized_operations=False)
# What the clock may pass a deadline by: the loop has other things to do at the same moment.
SLACK_SECONDS = 0.001


class Story:
    def __init__(self, seed: int) -> None:
        self.world = World(f"client/{seed}")
        self.machine = self.world.machine("node")
        self.machine.disk.make_dirs("/data")
        self.machine.disk.sync_dir("/")
        self.client = self.world.machine("client")
        self.answered = 0
        self.failed = 0

    async def start_node(self) -> None:
        settings = {
            "log.dirs": "/data",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.machine.ip}:{PORT}",
        }
        host = self.machine.boot()
        node = Node(node_config(settings), host, Log(host.clock, lambda _: None))
        await asyncio.shield(self.machine.spawn(node.start()))

    async def faults(self, random: Random) -> None:
        net, here, there = self.world.net, self.client.ip, self.machine.ip
        net.weather.connect_failure_rate = random.choice([0.0, 0.3])
        net.weather.cut_rate = random.choice([0.0, 0.01])
        for _ in range(12):
            await asyncio.sleep(random.expovariate(1 / 5))
            match random.randrange(5):
                case 0:
                    net.cut_all()
                case 1:
                    net.block(*random.choice([(here, there), (there, here)]))
                    await asyncio.sleep(random.expovariate(1 / 20))
                    net.blocked.clear()
                case 2 | 3:
                    self.machine.crash(power_cut=random.random() < 0.3)
                    await asyncio.sleep(random.expovariate(1 / 5))
                    await self.start_node()
                case 4:
                    net.weather.latency_seconds = random.choice([0.0005, 0.2])
        net.heal()

    async def call(self, cluster: Cluster, random: Random) -> None:
        targets: list[Target] = [Where.ANY, Where.CONTROLLER, 1, Coordinator("g")]
        to = random.choice(targets)
        timeout_ms = random.choice([10, 1_000, 30_000, 100_000])
        deadline = cluster.deadline(timeout_ms)
        try:
            if random.random() < 0.2:
                name = f"topic-{random.randrange(5)}"
                await cluster.topics([name], deadline=deadline, create=True)
            else:
                await cluster.ask(DESCRIBE, to=to, code_of=_code, deadline=deadline)
            self.answered += 1
        except RetriableError:
            self.failed += 1
        late = cluster.now() - deadline
        assert late <= SLACK_SECONDS, f"{to}: {late} s after its deadline"

    async def calls(self, cluster: Cluster, random: Random) -> None:
        for _ in range(40):
            await self.call(cluster, random)
            await asyncio.sleep(random.expovariate(1))

    async def run(self) -> None:
        await self.start_node()
        config = ClientConfig.build(f"{self.machine.ip}:{PORT}")
        cluster = Cluster(config, self.client.boot())
        random = self.world.chance("calls")
        working = self.client.spawn(self._client(cluster, random))
        await self.faults(self.world.chance("faults"))
        await asyncio.shield(working)

    async def _client(self, cluster: Cluster, random: Random) -> None:
        await cluster.start()
        cluster.follow("topic-0", create=True)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(self.calls(cluster, random))
        # The faults have ended, or will: from here it must work.
        answer = await cluster.ask(
            DESCRIBE, to=Where.CONTROLLER, code_of=_code, deadline=cluster.deadline(600_000)
        )
        assert answer.error_code == ErrorCode.NONE
        await cluster.topics(["last"], deadline=cluster.deadline(600_000), create=True)
        await cluster.close()


def _code(answer: Any) -> int:
    return int(answer.error_code)


def _close(world: World, *machines: Machine) -> None:
    world.close()
    for machine in machines:
        machine.bury()


@pytest.mark.parametrize("seed", range(15))
def test_every_call_ends_by_its_deadline_and_the_client_recovers(seed: int) -> None:
    story = Story(seed)
    story.world.run(story.run())
    failures = list(story.world.loop.failures)
    _close(story.world, story.machine, story.client)
    assert failures == []
    assert story.answered
