"""A whole history of a cluster on one seed: work under faults, then progress without them.

Each seed draws its cluster and the kinds of faults that it allows (swarm testing). Faults come one
after another or several at once; then all of them end, every node must serve, every partition must
take records and every group must read all of them, in bounded time; then everything is read once
more from the beginning.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headwater.io import Host
from headwater.testing.sim.fleet import Fleet, Layout, Member
from headwater.testing.sim.fleet_clients import Recorder
from headwater.testing.sim.fleet_records import PROGRESS_SECONDS_MAX, RecordsPlay
from headwater.testing.sim.fleet_watch import FleetWatch
from headwater.testing.sim.history import Report
from headwater.testing.sim.loop import SimTask, Stuck
from headwater.testing.sim.network import Weather
from headwater.testing.sim.world import Machine, World, burial

START_SECONDS_MAX = 60.0
FAULTS = (
    "kill",
    "kill",
    "power cut",
    "stop",
    "kill all",
    "fall behind",
    "pause",
    "pause client",
    "kill client",
    "cut",
    "block one way",
    "block both ways",
    "isolate",
    "slow link",
    "weather",
    "clock",
    "clock drift",
    "full",
    "sync error",
    "write error",
    "read error",
    "slow disk",
    "disk loss",
)


class Actor(Protocol):
    async def run(self, host: Host) -> None: ...


class Play(Protocol):
    """Those who use the cluster: what they do under faults, and what must hold afterwards."""

    kind: ClassVar[str]

    def __init__(self, stage: FleetHistory) -> None: ...

    def settings(self, layout: Layout) -> dict[str, str]:
        """Returns settings of the nodes that matter for it."""

    async def make_topics(self) -> None:
        """Makes the first topics, before the first fault."""

    def actors(self) -> Sequence[tuple[str, Actor]]: ...

    def check(self) -> None:
        """Raises the first violation that it has seen."""

    async def finish(self) -> None:
        """After all faults have ended: there is progress, and everything that was promised."""

    def release(self) -> None: ...


@dataclass(slots=True)
class Seat:
    """An actor on a client machine. It is started again after the machine has crashed."""

    machine: Machine
    actor: Actor
    task: SimTask[None]


class FleetHistory:
    def __init__(
        self,
        seed: int | str,
        *,
        rounds: int = 5,
        layout: Layout | None = None,
        faults: Collection[str] = (),
        play: type[Play] = RecordsPlay,
    ) -> None:
        """`faults` limits what may happen, to look for one kind of bug. `play` makes those who use
        the cluster."""
        self.world = World(f"{play.kind}/{seed}")
        self.world.seed = seed
        self.fate = self.world.chance("faults")
        self._rounds = rounds
        layout = layout or Layout.draw(self.world.chance("layout"))
        self.play = play(self)
        settings = self._settings(layout) | self.play.settings(layout)
        self.fleet = Fleet(
            self.world,
            layout,
            settings,
            first_voters=self._first_voters(layout),
            racks=self._racks(),
        )
        self.recorder = Recorder(self.fleet)
        self.watch = FleetWatch(self.fleet, self.recorder)
        self.fleet.on_unclean_end = self.watch.unclean_end
        chosen = faults or [fault for fault in dict.fromkeys(FAULTS) if self.fate.random() < 0.3]
        self._allowed = [fault for fault in FAULTS if fault in chosen] or ["kill"]
        self.seats: list[Seat] = []
        self._voter_lost = False

    def _first_voters(self, layout: Layout) -> tuple[int, ...]:
        """Draws who votes at first where the voters are dynamic; nobody where they are static."""
        fate = self.world.chance("voters")
        if self.play.kind != "cluster" or fate.random() < 0.5:
            return ()
        return layout.voters if fate.random() < 0.6 else layout.voters[:1]

    def _racks(self) -> tuple[str, ...]:
        """Draws whether consumers read from the closest replica (KIP-392)."""
        fate = self.world.chance("racks")
        return ("a", "b") if self.play.kind == "cluster" and fate.random() < 0.4 else ()

    def _settings(self, layout: Layout) -> dict[str, str]:
        fate = self.world.chance("settings")
        copies = min(3, len(layout.brokers))
        return {
            "auto.create.topics.enable": "false",
            "log.index.size.max.bytes": "4096",
            "offsets.topic.num.partitions": fate.choice(("1", "2")),
            "offsets.topic.replication.factor": str(copies),
            "min.insync.replicas": str(min(2, copies)),
            "group.initial.rebalance.delay.ms": fate.choice(("0", "500")),
            "metadata.log.max.record.bytes.between.snapshots": fate.choice(
                ("1000", "5000", "20971520")
            ),
            "metadata.log.segment.bytes": "8388608",
            "replica.lag.time.max.ms": fate.choice(("4000", "10000", "30000")),
            "log.flush.offset.checkpoint.interval.ms": fate.choice(("2000", "60000")),
            "replica.high.watermark.checkpoint.interval.ms": fate.choice(("900", "5000")),
            "log.initial.task.delay.ms": "500",
        }

    # Running

    def run(self) -> Report:
        """Raises `Violation` if a promise was broken."""
        collecting = gc.isenabled()
        gc.disable()  # what is collected when must not depend on what ran before
        lines = logging.getLogger("headwater.client")
        level = lines.level
        lines.setLevel(logging.CRITICAL)  # what clients complain about is what we do to them
        try:
            self.world.run(self._run())
        except Stuck as stuck:
            raise self.fleet.fail(str(stuck)) from stuck
        finally:
            self._bury()
            lines.setLevel(level)
            if collecting:
                gc.enable()
        return Report(
            self.world.seed,
            self.world.digest(),
            self.world.loop.steps,
            self.world.loop.time(),
            self.recorder.acknowledged,
            self.recorder.read,
            self.world.sometimes,
        )

    def _bury(self) -> None:
        """Lets go of everything."""
        self.world.close()
        with burial():
            self.seats.clear()
            self.play.release()
            self.watch.release()
            for member in self.fleet.members.values():
                member.release()
            for machine in self.world.machines.values():
                machine.bury()

    async def _run(self) -> None:
        dynamic = ", dynamic" if self.fleet.has_dynamic_voters else ""
        self.world.note(f"{self.fleet.layout}{dynamic}, faults {self._allowed}")
        self.fleet.format()
        self.fleet.start()
        self.watch.start()
        await self.fleet.all_serve(START_SECONDS_MAX)
        await self.play.make_topics()
        for name, actor in self.play.actors():
            machine = self.client_machine(name)
            task = machine.spawn(actor.run(machine.boot()))
            self.seats.append(Seat(machine, actor, task))
        for _ in range(self._rounds):
            await self.wait(self.fate.random() * 4.0)
            await self._fault()
        await self._heal()
        await self.play.finish()
        self.watch.check_all()
        self.check()

    def client_machine(self, name: str) -> Machine:
        return self.world.machine(f"client {name}")

    async def wait(self, seconds: float) -> None:
        """Lets time pass, and looks whether all is well."""
        deadline = self.world.loop.time() + seconds
        while True:
            self.check()
            self.fleet.revive()
            left = deadline - self.world.loop.time()
            if left <= 0:
                return
            await asyncio.sleep(min(left, 0.25))

    def check(self) -> None:
        if self.recorder.violation is not None:
            raise self.recorder.violation
        for seat in self.seats:
            if seat.task.done() and not seat.task.cancelled():
                seat.task.result()
                raise AssertionError(f"{seat.actor} has ended")
        if self.watch.violation is not None:
            raise self.watch.violation
        self.play.check()
        self.fleet.check_health()

    # Faults

    async def _fault(self) -> None:
        """One fault, or two at once."""
        fate = self.fate
        faults = [fate.choice(self._allowed) for _ in range(fate.choice((1, 1, 2)))]
        running = [asyncio.ensure_future(self._one_fault(fault)) for fault in faults]
        while not all(task.done() for task in running):
            await self.wait(0.25)
        for task in running:
            task.result()

    async def _one_fault(self, fault: str) -> None:
        fate, net = self.fate, self.world.net
        member = fate.choice(list(self.fleet.members.values()))
        if fate.random() < 0.4:
            member = self.watch.somebody_important(fate) or member
        seconds = fate.choice((1.0, 5.0, 15.0)) * fate.random()
        self.world.note(f"fault: {fault} of node {member.id} for {seconds:.3f} s")
        match fault:
            case "kill" | "power cut":
                await self._crash([member], seconds, power_cut=fault == "power cut")
            case "kill all":
                await self._crash(list(self.fleet.members.values()), seconds, power_cut=False)
            case "fall behind":
                await self._fall_behind(self.watch.somebody_important(fate) or member, seconds)
            case "stop":
                await self._stop(member, seconds)
            case "pause":
                await self._pause(member, seconds)
            case "pause client" | "kill client":
                await self._client_fault(fault, seconds)
            case "cut":
                for _ in range(fate.randint(1, 4)):
                    await asyncio.sleep(fate.random())
                    self.world.sometimes["connection cut"] += net.cut_all()
            case "block one way" | "block both ways" | "isolate":
                await self._block(fault, member, seconds)
            case "slow link" | "weather":
                await self._weather(fault, member, seconds)
            case "clock":
                member.machine.clock.skew_ms += fate.choice((-3_600_000, -500, 500, 3_600_000))
                self.world.happened(fault)
            case "clock drift":
                member.machine.clock.drift = fate.choice((-0.01, 0.01))
                self.world.happened(fault)
            case _:
                await self._disk_fault(fault, member, seconds)

    async def _crash(self, members: list[Member], seconds: float, *, power_cut: bool) -> None:
        down = [member for member in members if member.is_up and not member.held_down]
        for member in down:
            member.crash(power_cut=power_cut)
            member.held_down = True
            if power_cut:
                self.watch.power_cut(member)
        await asyncio.sleep(seconds)
        for member in down:
            member.held_down = False

    async def _fall_behind(self, member: Member, seconds: float) -> None:
        """Cuts a node off from another, and kills it while that one is behind."""
        fate, net, ip = self.fate, self.world.net, member.machine.ip
        other = fate.choice([each for each in self.fleet.ips() if each != ip])
        for link in ((ip, other), (other, ip)):
            net.block(*link)
        await asyncio.sleep(fate.uniform(0.2, 3.0))
        for link in ((ip, other), (other, ip)):
            net.unblock(*link)
        self.world.happened("fall behind")
        await self._crash([member], seconds, power_cut=False)

    async def _stop(self, member: Member, seconds: float) -> None:
        if not member.is_serving or member.held_down or member.paused:
            return
        member.held_down = True
        await member.stop()
        self.world.happened("clean stop")
        await asyncio.sleep(seconds)
        member.held_down = False

    async def _pause(self, member: Member, seconds: float) -> None:
        if not member.is_up or member.paused:
            return
        life = member.machine.life
        member.pause()
        self.world.happened("pause")
        await asyncio.sleep(seconds)
        if member.machine.life is life:
            member.resume()

    async def _client_fault(self, fault: str, seconds: float) -> None:
        seat = self.fate.choice(self.seats)
        machine = seat.machine
        if machine.life is None or machine.life.paused:
            return
        if fault == "pause client":
            machine.pause()
            await asyncio.sleep(seconds)
            machine.resume()
            self.world.happened("client paused")
            return
        machine.crash(power_cut=self.fate.random() < 0.5)
        self.world.happened("client killed")
        await asyncio.sleep(seconds)
        seat.task = machine.spawn(seat.actor.run(machine.boot()))

    async def _block(self, fault: str, member: Member, seconds: float) -> None:
        net, ip = self.world.net, member.machine.ip
        others = [other for other in self.fleet.ips() if other != ip]
        clients = [seat.machine.ip for seat in self.seats]
        if fault != "isolate":
            others = [self.fate.choice(others or clients)]
        elif self.fate.random() < 0.3:
            others += clients
        links = [(ip, other) for other in others]
        if fault != "block one way":
            links += [(other, ip) for other in others]
        elif self.fate.random() < 0.5:
            links = [(other, ip) for other in others]
        for link in links:
            net.block(*link)
        self.world.happened(fault)
        await asyncio.sleep(seconds)
        for link in links:
            net.unblock(*link)

    async def _weather(self, fault: str, member: Member, seconds: float) -> None:
        fate, net = self.fate, self.world.net
        weather = Weather(
            latency_seconds=fate.choice((0.0005, 0.05, 0.3)),
            jitter_seconds=fate.choice((0.001, 0.1, 0.5)),
            piece_bytes_max=fate.choice((50, 1_000, 65_536)),
            connect_failure_rate=fate.choice((0.0, 0.3)),
            cut_rate=fate.choice((0.0, 0.01)),
            bytes_per_second=fate.choice((0.0, 5_000.0)),
        )
        others = [ip for ip in self.fleet.ips() if ip != member.machine.ip]
        others += [seat.machine.ip for seat in self.seats]
        if fault == "slow link":
            others = [fate.choice(others)]
        links = [(member.machine.ip, other) for other in others]
        links += [(other, member.machine.ip) for other in others]
        for link in links:
            net.link_weather[link] = weather
        await asyncio.sleep(seconds)
        for link in links:
            net.link_weather.pop(link, None)
        self.world.happened(fault)

    async def _disk_fault(self, fault: str, member: Member, seconds: float) -> None:
        fate = self.fate
        if fault == "disk loss":
            await self._lose_disk(member, seconds)
            return
        disk = member.machine.disk
        member.broken += 1
        match fault:
            case "full":
                disk.capacity_bytes = disk.used_bytes + fate.choice((0, 2_000, 30_000))
                await asyncio.sleep(seconds)
            case "slow disk":
                disk.faults.sync_seconds_max = fate.choice((0.1, 0.5, 2.0))
                disk.faults.cold_rate = 0.5
                await asyncio.sleep(seconds)
            case _:
                disk.faults.error_on_call[fault.split()[0]] = fate.randint(1, 30)
                await asyncio.sleep(seconds)
        self.world.happened(fault)
        if member.broken == 1:  # no other fault goes on
            self._mend(member, power_cut=fault == "sync error")
        member.broken -= 1

    async def _lose_disk(self, member: Member, seconds: float) -> None:
        if not member.is_up or member.held_down or not self._may_lose_disk(member):
            return
        is_voter = member.id in self.fleet.layout.voters
        self.world.happened("disk of a voter lost" if is_voter else "disk loss")
        member.crash(power_cut=True)
        member.held_down = True
        self.watch.disk_lost(member)
        member.machine.lose_disk()
        member.make_mount()
        await asyncio.sleep(seconds)
        member.format()
        member.held_down = False

    def _may_lose_disk(self, member: Member) -> bool:
        """A static voter that forgets its votes and its log can break any promise. A dynamic one
        must leave a majority with all that is committed, so only one may be lost."""
        if member.id not in self.fleet.layout.voters:
            return True
        voters = [self.fleet.members[n] for n in self.fleet.layout.voters]
        if not self.fleet.has_dynamic_voters or len(voters) < 3 or self._voter_lost:
            return False
        self._voter_lost = all(voter.is_serving and voter.is_voter for voter in voters)
        return self._voter_lost

    def _mend(self, member: Member, *, power_cut: bool = False) -> None:
        """Ends the faults of a disk. A node that met one is started again: what it has in memory
        may differ from what is on its disk. After a failed sync its machine is, too: nobody knows
        which pages in the kernel's memory are on the platter."""
        disk = member.machine.disk
        disk.faults.clear()
        disk.capacity_bytes = member.capacity_bytes
        if member.is_up and not member.held_down:
            member.crash(power_cut=power_cut)
            if power_cut:
                self.watch.power_cut(member)
        self.world.loop.failures = [
            failure
            for failure in self.world.loop.failures
            if not isinstance(failure.get("exception"), OSError)
        ]

    # Afterwards

    async def _heal(self) -> None:
        self.world.note("all faults end")
        self.world.net.heal()
        for member in self.fleet.members.values():
            member.resume()
            member.held_down = False
            # Records with times too far from the node's are refused.
            member.machine.clock.skew_ms = 0
            member.machine.clock.drift = 0.0
        self.fleet.revive()
        await self.fleet.all_serve(PROGRESS_SECONDS_MAX)
        await self.fleet.all_vote(PROGRESS_SECONDS_MAX)

    async def end_seats(self, leaving: Callable[[Actor], bool]) -> None:
        """Ends these actors; the others stay."""
        gone = [seat for seat in self.seats if leaving(seat.actor)]
        self.seats = [seat for seat in self.seats if not leaving(seat.actor)]
        for seat in gone:
            seat.task.cancel()
        await asyncio.gather(*(seat.task for seat in gone), return_exceptions=True)
        for seat in gone:
            if seat.task.done() and not seat.task.cancelled():
                seat.task.result()
