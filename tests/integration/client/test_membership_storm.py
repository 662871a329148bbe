"""Members that come, go, die and lose their connections at random: no partition has two owners."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from harness.wire import Wire
from headwater.testing import EmbeddedBroker
from tests.support.members import MORTAL, Member, quick_broker, settled

PARTITIONS = 8
MEMBERS_MAX = 5
STEPS = 20
CONFIGS = [
    pytest.param(MORTAL, id="range"),
    pytest.param(MORTAL | {"partition_assignment_strategy": "sticky"}, id="sticky"),
    pytest.param(
        MORTAL | {"partition_assignment_strategy": "cooperative-sticky"}, id="cooperative-sticky"
    ),
    pytest.param({"group_protocol": "consumer"}, id="consumer"),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with quick_broker() as made:
        yield made


class Storm:
    def __init__(self, bootstrap: str, topic: str, config: dict[str, Any], seed: int) -> None:
        self.random = Random(seed)
        self.polling: dict[Member, asyncio.Task[None]] = {}
        self._bootstrap, self._topic, self._config = bootstrap, topic, config

    async def add(self) -> None:
        member = Member(self._bootstrap, self._topic, [self._topic], **self._config)
        await member.cluster.start()
        self.polling[member] = asyncio.create_task(self._poll(member))

    async def _poll(self, member: Member) -> None:
        while member in self.polling:
            await member.poll(100)
            self.check()
            await asyncio.sleep(self.random.random() / 50)

    def check(self) -> None:
        owners: dict[object, Member] = {}
        for member in self.polling:
            for partition in member.owned:
                other = owners.setdefault(partition, member)
                assert other is member, (partition, other.notes.told, member.notes.told)

    async def step(self) -> None:
        chance = self.random.random()
        if not self.polling or (chance < 0.5 and len(self.polling) < MEMBERS_MAX):
            await self.add()
            return
        member = self.random.choice(list(self.polling))
        if chance < 0.7:
            await self.polling.pop(member)
            await member.leave()
            await member.die()
        elif chance < 0.85:
            polling = self.polling.pop(member)
            polling.cancel()
            await asyncio.wait((polling,))
            await member.die()
        else:
            member.cluster._pool.drop_all()

    async def rest(self) -> None:
        """Until the dust has settled. What a poll raised comes out here."""
        members = list(self.polling)
        while not settled(PARTITIONS, *members)():
            for polling in self.polling.values():
                if polling.done():
                    polling.result()
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        members, self.polling = self.polling, {}
        for member, polling in members.items():
            await polling
            await member.die()


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("seed", [1])
def test_no_partition_ever_has_two_owners_and_all_have_one_in_the_end(
    broker: EmbeddedBroker, topic: str, config: dict[str, Any], seed: int
) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, PARTITIONS)

    async def story() -> None:
        storm = Storm(broker.bootstrap, topic, config, seed)
        for _ in range(STEPS):
            await storm.step()
            await asyncio.sleep(storm.random.random() / 10)
            storm.check()
        await storm.add()
        async with asyncio.timeout(30):
            await storm.rest()
        await storm.end()

    asyncio.run(story())
