"""A world on one seed: its loop, its network, its machines, what happened in it."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import sys
import warnings
from collections import Counter, deque
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any, TypeVar

from headwater.io import Host
from headwater.testing.sim.clock import SimClock
from headwater.testing.sim.crash import after_kill, after_power_cut
from headwater.testing.sim.disk import SimDisk
from headwater.testing.sim.loop import Life, SimLoop, SimTask
from headwater.testing.sim.network import Internet, SimNetwork
from headwater.testing.sim.workers import SimWorkers

T = TypeVar("T")

_EVENTS_KEPT = 20_000
_DISK_BYTES = 64 * 1024 * 1024


class World:
    """Everything that is left to chance comes from the seed, in streams of their own: when the
    faults change, the workload stays what it was."""

    def __init__(self, seed: int | str) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.net = Internet(self.loop, self.chance("network"))
        self.sometimes: Counter[str] = Counter()
        self.machines: dict[str, Machine] = {}
        self.events: deque[str] = deque(maxlen=_EVENTS_KEPT)
        self._digest = hashlib.blake2b(digest_size=16)

    def chance(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def machine(self, name: str, *, capacity_bytes: int = _DISK_BYTES) -> Machine:
        machine = Machine(self, name, f"10.0.0.{len(self.machines) + 1}", capacity_bytes)
        self.machines[name] = machine
        return machine

    def note(self, what: str) -> None:
        """An event of the history. Two runs of one seed must note the same ones."""
        line = f"{self.loop.time():.6f} {what}"
        self.events.append(line)
        self._digest.update(line.encode() + b"\n")

    def happened(self, label: str) -> None:
        """Something rare that a good run should have seen at least once."""
        self.sometimes[label] += 1

    def digest(self) -> str:
        return self._digest.hexdigest()

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_for_world(main)

    def close(self) -> None:
        for machine in self.machines.values():
            if machine.life is not None:
                self.loop.end_life(machine.life)
                machine.disk.dead = True
        self.loop.close()


@contextlib.contextmanager
def burial() -> Iterator[None]:
    """While the remains of a world are let go: coroutines that are closed now talk to nobody, and
    what they complain about is of no interest."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
            gc.collect()
    finally:
        sys.unraisablehook = hook


class Machine:
    """A computer: its disk outlives its crashes."""

    def __init__(self, world: World, name: str, ip: str, capacity_bytes: int) -> None:
        self._world = world
        self.name = name
        self.ip = ip
        self.life: Life | None = None
        self.clock = SimClock(world.loop)
        self.disk = SimDisk(self.clock, world.chance(f"{name}/disk"), capacity_bytes)
        self._chance = world.chance(f"{name}/crash")
        self._node_chance = world.chance(f"{name}/node")
        self._lives: list[Life] = []
        self.workers: SimWorkers | None = None

    def boot(self) -> Host:
        """Starts the machine; what it gives to a node."""
        assert self.life is None, f"{self.name} is up already"
        self.life = Life(self.name)
        self._lives.append(self.life)
        world = self._world
        world.net.powered.add(self.ip)
        self.workers = SimWorkers(world.loop, world.chance(f"{self.name}/workers"), self.disk)
        network = SimNetwork(world.net, self.life, self.ip)
        return Host(self.clock, self._node_chance, self.disk, network, self.workers)

    def spawn(self, work: Coroutine[Any, Any, T]) -> SimTask[T]:
        """A task of this machine: it goes with the machine when that crashes."""
        assert self.life is not None, f"{self.name} is down"
        task = self._world.loop.create_task(work, context=self.life.context())
        assert isinstance(task, SimTask)
        return task

    def crash(self, *, power_cut: bool) -> None:
        """Everything that ran is gone; with a power cut, so is much of what was not synced."""
        life = self.life
        assert life is not None, f"{self.name} is down already"
        world = self._world
        world.loop.end_life(life)
        world.net.life_ended(life, self.ip, power_cut=power_cut)
        if power_cut:
            self.disk = after_power_cut(self.disk, self._chance)
        else:
            self.disk = after_kill(self.disk)
        self.life = None

    def pause(self) -> None:
        """Stops the machine's process as SIGSTOP does: time goes on, its kernel answers, nothing of
        it runs until `resume`."""
        assert self.life is not None, f"{self.name} is down"
        self.life.paused = True

    def resume(self) -> None:
        assert self.life is not None, f"{self.name} is down"
        self._world.loop.resume_life(self.life)

    def lose_disk(self) -> None:
        """Replaces the disk of a machine that is down by an empty one."""
        assert self.life is None, f"{self.name} is up"
        self.disk.dead = True
        self.disk = SimDisk(self.clock, self.disk.random, self.disk.capacity_bytes)

    def bury(self) -> None:
        """Forgets what crashes have left behind; only when the world has ended."""
        for life in self._lives:
            life.remains.clear()
        self._lives.clear()
        self.life = None

    def switch_off(self) -> None:
        """After a node has stopped by itself: nothing of it may still run."""
        self.crash(power_cut=False)
