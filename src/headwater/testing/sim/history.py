"""A whole history of one node on one seed: work under faults, then progress without them.

Each seed allows some kinds of faults and forbids the others (swarm testing): a run in which
everything goes wrong at once seldom gets far enough to do harm.
"""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

from headwater.testing.sim.actors import Administrator, Consumer, Producer, Values
from headwater.testing.sim.client import Unknown
from headwater.testing.sim.cluster import Cluster, NoRoom
from headwater.testing.sim.judge import Judge
from headwater.testing.sim.loop import SimTask, Stuck
from headwater.testing.sim.violation import Violation
from headwater.testing.sim.world import World, burial

_PROGRESS_SECONDS_MAX = 60.0
_FAULTS = (
    "kill",
    "power cut",
    "stop",
    "full",
    "write error",
    "sync error",
    "read error",
    "slow sync",
    "cut",
    "block",
    "weather",
    "clock",
)


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one seed."""

    seed: int | str
    digest: str
    steps: int
    virtual_seconds: float
    acknowledged: int
    judged: int
    sometimes: Counter[str]


class History:
    def __init__(self, seed: int | str, *, rounds: int = 8) -> None:
        self.world = World(seed)
        self._fate = self.world.chance("faults")
        self._rounds = rounds
        self.judge = Judge(self.world)
        self.cluster = Cluster(self.world, self.judge, _draw_settings(self._fate))
        self._allowed = [fault for fault in _FAULTS if self._fate.random() < 0.5] or ["power cut"]
        values = Values(self.world.chance("values"))
        self._producers = [
            Producer(
                self.cluster, f"p{number}", self.world.chance(f"p{number}"), values, number != 2
            )
            for number in range(3)
        ]
        self._capacity_bytes = self.cluster.machine.disk.capacity_bytes

    def run(self) -> Report:
        """Raises `Violation` if a promise was broken."""
        collecting = gc.isenabled()
        gc.disable()  # what is collected when must not depend on what ran before
        try:
            self.world.run(self._run())
        except Stuck as stuck:
            raise self.judge.fail(str(stuck)) from stuck
        except Violation as violation:
            violation.add_note("node's last lines:\n  " + "  ".join(self.cluster.lines))
            raise
        finally:
            self._bury()
            if collecting:
                gc.enable()
        return Report(
            self.world.seed,
            self.world.digest(),
            self.world.loop.steps,
            self.world.loop.time(),
            sum(producer.acknowledged for producer in self._producers),
            self.judge.judged,
            self.world.sometimes,
        )

    def _bury(self) -> None:
        """Lets go of everything."""
        self.world.close()
        with burial():
            for machine in self.world.machines.values():
                machine.bury()

    async def _run(self) -> None:
        cluster = self.cluster
        random = self.world.chance("workload")
        await cluster.start()
        await cluster.open_doors()
        administrator = Administrator(cluster, self.world.chance("admin"))
        client = cluster.client("first")
        for _ in range(2):
            await administrator.create(client)
        works: list[Coroutine[Any, Any, None]] = [
            administrator.run(),
            Consumer(cluster, "consumer", self.world.chance("consumer")).run(),
            Consumer(cluster, "reader", random).run(),
            *(producer.run() for producer in self._producers),
        ]
        actors = [self.world.machines["clients"].spawn(work) for work in works]
        try:
            for _ in range(self._rounds):
                await self._round(actors)
            await self._heal()
            await self._progress(actors)
        finally:
            for actor in actors:
                actor.cancel()
            await asyncio.gather(*actors, return_exceptions=True)
        cluster.up.clear()
        await self._settle()
        await cluster.open_doors()
        cluster.check_health()

    async def _round(self, actors: list[SimTask[None]]) -> None:
        self._check(actors)
        await asyncio.sleep(self._fate.random() * 4.0)
        await self._fault(self._fate.choice(self._allowed))
        self._check(actors)
        if self.cluster.has_failed():
            await self._restart(power_cut=True)

    def _check(self, actors: list[SimTask[None]]) -> None:
        for actor in actors:
            if actor.done() and not actor.cancelled():
                actor.result()
                raise AssertionError(f"{actor} has ended")
        self.cluster.check_health()

    # Faults

    async def _fault(self, fault: str) -> None:
        fate, cluster = self._fate, self.cluster
        disk, net = cluster.machine.disk, self.world.net
        self.world.note(f"fault: {fault}")
        match fault:
            case "kill" | "power cut":
                await self._restart(power_cut=fault == "power cut")
            case "stop":
                await cluster.stop()
                await self._start()
            case "full":
                disk.capacity_bytes = disk.used_bytes + fate.choice((0, 2_000, 30_000))
                await asyncio.sleep(fate.random() * 6.0)
                if fate.random() < 0.4:
                    await self._restart(power_cut=fate.random() < 0.5)
                cluster.machine.disk.capacity_bytes = self._capacity_bytes
            case "write error" | "sync error" | "read error":
                await self._disk_error(fault.split()[0])
            case "slow sync":
                disk.faults.sync_seconds_max = fate.choice((0.05, 0.5, 2.0))
                disk.faults.cold_rate = 0.5
                await asyncio.sleep(fate.random() * 5.0)
                if fate.random() < 0.5:
                    await self._restart(power_cut=True)
                cluster.machine.disk.faults.clear()
            case "cut":
                for _ in range(fate.randint(1, 4)):
                    await asyncio.sleep(fate.random())
                    self.world.sometimes["connection cut"] += net.cut_all()
            case "block":
                await self._block()
            case "weather":
                net.weather.latency_seconds = fate.choice((0.0005, 0.01))
                net.weather.jitter_seconds = fate.choice((0.001, 0.05))
                net.weather.piece_bytes_max = fate.choice((7, 100, 5_000))
                net.weather.connect_failure_rate = fate.choice((0.0, 0.3))
                net.weather.cut_rate = fate.choice((0.0, 0.002))
                await asyncio.sleep(fate.random() * 5.0)
                net.weather.clear()
            case "clock":
                cluster.machine.clock.skew_ms += fate.choice((-60_000, -500, 500, 5_000))

    async def _block(self) -> None:
        ends = [self.cluster.clients_ip, self.cluster.machine.ip]
        self._fate.shuffle(ends)
        net = self.world.net
        net.block(ends[0], ends[1])
        if self._fate.random() < 0.3:
            net.block(ends[1], ends[0])
        await asyncio.sleep(self._fate.random() * 8.0)
        net.blocked.clear()
        self.world.happened("one-way block")

    async def _disk_error(self, kind: str) -> None:
        """The device fails once; the node may go on or end, and is started again."""
        fate = self._fate
        faults = self.cluster.machine.disk.faults
        faults.error_on_call[kind] = fate.randint(1, 30)
        await asyncio.sleep(fate.random() * 6.0)
        happened = kind not in faults.error_on_call
        faults.clear()
        if happened:
            self.world.happened(f"{kind} error")
            # What the kernel has of a page whose sync failed is not on the platter, and a node
            # that finds it in memory would believe it: only a machine that starts afresh knows.
            await self._restart(power_cut=kind == "sync" or fate.random() < 0.5)

    async def _restart(self, *, power_cut: bool) -> None:
        cluster = self.cluster
        if cluster.machine.life is not None:
            cluster.crash(power_cut=power_cut)
        await asyncio.sleep(0.5 + self._fate.random() * 3.0)
        await self._start()

    async def _start(self) -> None:
        cluster = self.cluster
        self.world.loop.failures = [
            failure for failure in self.world.loop.failures if not _is_of_disk(failure)
        ]
        while True:
            try:
                await cluster.start()
                break
            except NoRoom:
                self.world.happened("full disk refuses a start")
                self.world.note("start refused, the disk is full")
                cluster.machine.disk.capacity_bytes = self._capacity_bytes
                cluster.machine.switch_off()
                self.world.loop.failures.clear()  # what a node leaves that ends at once
        if self._fate.random() < 0.15:
            # Crashes come in threes: recovery itself must bear one.
            await asyncio.sleep(self._fate.random() * 0.05)
            power_cut = self._fate.random() < 0.7
            cluster.crash(power_cut=power_cut)
            self.world.happened("crash soon after a start")
            await asyncio.sleep(0.5)
            await cluster.start()
        await cluster.open_doors()

    # Afterwards

    async def _heal(self) -> None:
        self.world.net.heal()
        disk = self.cluster.machine.disk
        disk.faults.clear()
        disk.capacity_bytes = self._capacity_bytes
        self.world.note("all faults end")
        if self.cluster.has_failed() or self.cluster.machine.life is None:
            await self._restart(power_cut=True)

    async def _progress(self, actors: list[SimTask[None]]) -> None:
        """Without faults every producer is served in bounded time."""
        before = [producer.acknowledged for producer in self._producers]
        deadline = self.world.loop.time() + _PROGRESS_SECONDS_MAX
        if not any(topic.exists for topic in self.cluster.topics.values()):
            return
        while True:
            self._check(actors)
            after = [producer.acknowledged for producer in self._producers]
            if all(now > then for now, then in zip(after, before, strict=True)):
                return
            if self.world.loop.time() > deadline:
                raise self.judge.fail(f"no progress after all faults ended: {before} {after}")
            await asyncio.sleep(0.5)

    async def _settle(self) -> None:
        """Requests that were on their way when their senders left have been served."""
        await asyncio.sleep(10.0)
        client = self.cluster.client("last")
        for _ in range(100):
            try:
                await client.metadata()
                return
            except Unknown:
                await asyncio.sleep(0.1)


def _draw_settings(fate: Random) -> dict[str, str]:
    return {
        "log.retention.check.interval.ms": fate.choice(("500", "3000")),
        "log.flush.offset.checkpoint.interval.ms": fate.choice(("700", "5000", "60000")),
        "log.flush.start.offset.checkpoint.interval.ms": fate.choice(("700", "60000")),
        "replica.high.watermark.checkpoint.interval.ms": fate.choice(("900", "5000")),
        "log.initial.task.delay.ms": "500",
        "log.cleaner.backoff.ms": fate.choice(("200", "1000", "15000")),
        "log.cleaner.threads": fate.choice(("1", "2")),
        "log.cleaner.io.buffer.size": fate.choice(("140000", "524288")),
        "log.cleaner.io.max.bytes.per.second": fate.choice(("20000", "1.7976931348623157E308")),
        "metadata.log.max.record.bytes.between.snapshots": fate.choice(("1000", "20971520")),
        "metadata.log.segment.bytes": "8388608",
    }


def _is_of_disk(failure: dict[str, Any]) -> bool:
    return isinstance(failure.get("exception"), OSError)
