"""How the nodes of a cluster start."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TypeVar

from headwater.broker.node import Node
from headwater.client.admin import Admin
from headwater.io import Workers
from headwater.observability import Log
from headwater.storage import LoadJob
from headwater.testing.sim.fleet import Fleet, Layout
from headwater.testing.sim.world import World, burial

T = TypeVar("T")


class HeldRecovery:
    """Workers that check no log before they are told to."""

    def __init__(self, workers: Workers) -> None:
        self.go_on = asyncio.Event()
        self._workers = workers

    async def run(self, work: Callable[[], T]) -> T:
        if isinstance(getattr(work, "__self__", None), LoadJob):
            await self.go_on.wait()
        return await self._workers.run(work)

    def close(self) -> None:
        self._workers.close()


class Story:
    """Three nodes that are broker and voter at once, and a client."""

    def __init__(self) -> None:
        self.world = World("start")
        self.fleet = Fleet(self.world, Layout((1, 2, 3), (1, 2, 3)), {})
        self.client = self.world.machine("client")
        self.host = self.client.boot()

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            self.fleet.format()
            self.fleet.start()
            await self.fleet.all_serve(60.0)
            await story()

        try:
            self.world.run(main())
        finally:
            with burial():
                self._bury()

    def _bury(self) -> None:
        self.world.close()
        for member in self.fleet.members.values():
            member.release()
        for machine in self.world.machines.values():
            machine.bury()
        del self.world, self.fleet, self.client, self.host

    async def create(self, topic: str, *, replication: int) -> None:
        async def work() -> None:
            async with Admin(self.fleet.bootstrap, host=self.host) as admin:
                await admin.create_topic(topic, partitions=1, replication=replication)

        await self.client.spawn(work())

    async def topics_of(self, node_id: int) -> set[str]:
        async def work() -> set[str]:
            async with Admin(self.fleet.bootstrap[node_id - 1], host=self.host) as admin:
                return {topic.name for topic in await admin.list_topics()}

        return await self.client.spawn(work())


def test_a_node_votes_while_it_still_checks_its_logs_after_a_crash() -> None:
    stage = Story()

    async def story() -> None:
        await stage.create("orders", replication=3)
        first, third = stage.fleet.members[1], stage.fleet.members[3]
        third.crash(power_cut=False)
        host = third.machine.boot()
        recovery = HeldRecovery(host.workers)
        lines: list[str] = []
        node = Node(third.config, replace(host, workers=recovery), Log(host.clock, lines.append))
        starting = third.machine.spawn(node.start())
        first.crash(power_cut=False)
        await stage.create("bills", replication=1)  # two of three voters have agreed to it
        assert any("checking the logs" in line for line in lines)
        await asyncio.sleep(12.0)
        assert any("0 of 1 logs are checked; now orders-0" in line for line in lines)
        assert not starting.done()
        recovery.go_on.set()
        await starting
        assert await stage.topics_of(3) == {"bills", "orders"}

    stage.run(story)
