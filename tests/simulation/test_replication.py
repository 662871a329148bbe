"""Three brokers replicate while machines crash, links are cut and leaders change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.support.replicas import TOPIC, Failure, Replica, Stage

SECONDS = 12.0
SETTLE_SECONDS = 60.0


def play(stage: Stage, story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    try:
        stage.world.run(main())
        stage.check()
    except (AssertionError, Exception) as error:
        error.add_note(f"seed {stage.world.seed}\n{stage.story()}")
        raise
    finally:
        stage.world.close()


async def until(stage: Stage, is_so: Callable[[], bool], seconds: float = SETTLE_SECONDS) -> None:
    deadline = stage.world.loop.time() + seconds
    while not is_so():
        if stage.world.loop.time() > deadline:
            raise Failure("this took too long")
        await asyncio.sleep(0.05)
        stage.check()


def test_what_is_acknowledged_is_on_all_replicas() -> None:
    stage = Stage(1)

    async def story() -> None:
        await stage.begin()
        await until(stage, lambda: bool(stage.leaders(0)))
        leader = stage.leaders(0)[0]
        for _ in range(50):
            assert await stage.produce(leader, 0)
        await until(stage, stage.is_whole)
        stage.check_acknowledged()
        assert len(stage.acked[0]) == 50

    play(stage, story)


def test_an_append_is_acknowledged_after_a_round_trip_and_not_after_a_poll() -> None:
    stage = Stage(2)

    async def story() -> None:
        await stage.begin()
        await until(stage, stage.is_whole)
        leader = stage.leaders(0)[0]
        began = stage.world.loop.time()
        for _ in range(20):
            assert await stage.produce(leader, 0)
        assert stage.world.loop.time() - began < 0.5

    play(stage, story)


def test_followers_learn_the_last_high_watermark() -> None:
    stage = Stage(3)

    async def story() -> None:
        await stage.begin()
        await until(stage, stage.is_whole)
        assert await stage.produce(stage.leaders(0)[0], 0)
        await until(stage, stage.is_whole, seconds=1.0)

    play(stage, story)


def test_a_dead_leader_is_followed_by_another_and_comes_back_as_a_follower() -> None:
    stage = Stage(4)

    async def story() -> None:
        await stage.begin()
        await until(stage, stage.is_whole)
        first = stage.leaders(0)[0]
        for _ in range(10):
            assert await stage.produce(first, 0)
        for _ in range(5):
            stage.produce(first, 0)  # nobody is told what becomes of these
        await asyncio.sleep(0.0005)
        first.machine.crash(power_cut=True)
        stage.controller.fence(first.id)
        await until(stage, lambda: bool(stage.leaders(0)))
        second = stage.leaders(0)[0]
        assert second is not first
        for _ in range(10):
            await stage.produce(second, 0)
        first.start()
        await until(stage, stage.is_whole)
        stage.check_acknowledged()
        assert len(stage.acked[0]) >= 15

    play(stage, story)


def test_a_replica_that_stops_fetching_leaves_and_comes_back() -> None:
    stage = Stage(5)

    async def story() -> None:
        await stage.begin()
        await until(stage, stage.is_whole)
        leader = stage.leaders(0)[0]
        slow = next(each for each in stage.replicas.values() if each is not leader)
        slow.machine.pause()
        pending = stage.produce(leader, 0)
        await until(stage, lambda: len(stage.controller.partition(TOPIC, 0).isr) == 2)
        assert await pending
        slow.machine.resume()
        await until(stage, stage.is_whole)
        stage.check_acknowledged()

    play(stage, story)


def test_below_min_isr_nothing_is_acknowledged() -> None:
    stage = Stage(6)

    async def story() -> None:
        await stage.begin()
        await until(stage, stage.is_whole)
        leader = stage.leaders(0)[0]
        others = [each for each in stage.replicas.values() if each is not leader]
        for other in others:
            other.machine.crash(power_cut=False)
            stage.controller.fence(other.id)
        await asyncio.sleep(5.0)
        assert not await stage.produce(leader, 0)
        for other in others:
            other.start()
        await until(stage, stage.is_whole)
        assert await stage.produce(stage.leaders(0)[0], 0)

    play(stage, story)


class Faults:
    """Breaks one thing after the other, and mends it again."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.random = stage.world.chance("faults")

    async def run(self, seconds: float) -> None:
        stage = self.stage
        deadline = stage.world.loop.time() + seconds
        while stage.world.loop.time() < deadline:
            replica = self.random.choice(list(stage.replicas.values()))
            fault = self.random.choice(
                (self.crash, self.crash, self.cut, self.isolate, self.fence, self.pause, self.drop)
            )
            stage.world.note(f"{fault.__name__} {replica.id}")
            await fault(replica)
            await asyncio.sleep(self.random.uniform(0.0, 1.5))

    def some_time(self) -> float:
        return self.random.choice((0.01, 0.1, 1.0, 4.0))

    async def crash(self, replica: Replica) -> None:
        # A power cut may take what was committed, as long as the other replicas have it.
        states = [
            self.stage.controller.partition(TOPIC, index) for index in range(self.stage.count)
        ]
        may_lose = all(len(state.isr) == len(state.replicas) for state in states)
        replica.machine.crash(power_cut=may_lose and self.random.random() < 0.5)
        await asyncio.sleep(self.random.uniform(0.0, 0.3))
        self.stage.controller.fence(replica.id)
        await asyncio.sleep(self.some_time())
        replica.start()

    async def cut(self, replica: Replica) -> None:
        """Cuts a broker off from one other, in one or both directions."""
        net, ip = self.stage.world.net, replica.machine.ip
        other = self.random.choice(list(self.stage.replicas.values())).machine.ip
        net.block(ip, other)
        if self.random.random() < 0.7:
            net.block(other, ip)
        await asyncio.sleep(self.some_time())
        net.unblock(ip, other)
        net.unblock(other, ip)

    async def isolate(self, replica: Replica) -> None:
        """Cuts a broker off from all, and its session expires: a zombie, if it leads."""
        net, ip = self.stage.world.net, replica.machine.ip
        others = [each.machine.ip for each in self.stage.replicas.values()]
        replica.is_cut_off = True
        is_deaf = self.random.random() < 0.5
        if is_deaf:
            for other in others:
                net.block(ip, other)
                net.block(other, ip)
        await asyncio.sleep(0.2)
        self.stage.controller.fence(replica.id)
        await asyncio.sleep(self.some_time())
        for other in others:
            net.unblock(ip, other)
            net.unblock(other, ip)
        replica.is_cut_off = False
        self.stage.controller.unfence(replica.id)

    async def fence(self, replica: Replica) -> None:
        """Moves all leaders away from a broker."""
        self.stage.controller.fence(replica.id)
        await asyncio.sleep(self.some_time() / 10)
        self.stage.controller.unfence(replica.id)

    async def pause(self, replica: Replica) -> None:
        replica.machine.pause()
        await asyncio.sleep(self.some_time())
        replica.machine.resume()

    async def drop(self, replica: Replica) -> None:
        """Resets all connections of a broker."""
        for other in self.stage.replicas.values():
            self.stage.world.net.cut_between(replica.machine.ip, other.machine.ip)


def history(seed: int) -> Stage:
    stage = Stage(seed)

    async def story() -> None:
        await stage.begin()
        faults = asyncio.ensure_future(Faults(stage).run(SECONDS))
        while not faults.done():
            index = stage.random.randrange(stage.count)
            leaders = [
                each
                for each in stage.leaders(index)
                if not each.machine.life.paused  # type: ignore[union-attr]
            ]
            if leaders:
                stage.produce(stage.random.choice(leaders), index)
            await asyncio.sleep(stage.random.choice((0.0, 0.001, 0.01, 0.05)))
            stage.check()
        await faults
        stage.world.net.heal()
        for replica in stage.replicas.values():
            stage.controller.unfence(replica.id)
        await until(stage, stage.is_whole)
        stage.check_acknowledged()

    play(stage, story)
    return stage


@pytest.mark.parametrize("seed", range(20))
def test_nothing_that_was_acknowledged_is_lost(seed: int) -> None:
    stage = history(seed)
    assert sum(map(len, stage.acked.values())) > 20
