"""A cluster of real nodes, each on a machine of its own: the stage of a cluster's history.

A `Member` is one node with its machine. It starts, stops, crashes and pauses by itself; nobody
waits for it, for a node may have to wait for others. The `Fleet` starts again what has ended.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from headwater.broker.formatting import InitialQuorum, format_directories
from headwater.broker.node import Node
from headwater.config import NodeConfig, node_config
from headwater.config.node import RACK_AWARE_SELECTOR
from headwater.model import id_text
from headwater.observability import Log
from headwater.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet
from headwater.testing.sim.loop import SimTask
from headwater.testing.sim.violation import Violation
from headwater.testing.sim.world import World

BROKER_PORT = 9092
CONTROLLER_PORT = 9093
_DATA = "/data"
_STOP_SECONDS_MAX = 120.0


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a cluster and their roles."""

    brokers: tuple[int, ...]
    voters: tuple[int, ...]

    @property
    def nodes(self) -> tuple[int, ...]:
        return tuple(sorted({*self.brokers, *self.voters}))

    @classmethod
    def draw(cls, random: Random) -> Layout:
        """Returns 3 to 5 nodes with 1 to 5 voters, in separate or combined roles."""
        if random.random() < 0.7:
            count = random.choice((3, 3, 3, 4, 5))
            voters = random.choice([n for n in (1, 3, 3, 5, 2, 4) if n <= count])
            return cls(tuple(range(1, count + 1)), tuple(range(1, voters + 1)))
        voters, brokers = random.choice(((1, 2), (1, 3), (3, 1), (3, 2)))
        return cls(
            tuple(range(voters + 1, voters + brokers + 1)),
            tuple(range(1, voters + 1)),
        )

    def roles(self, node_id: int) -> str:
        names = [("broker", self.brokers), ("controller", self.voters)]
        return ",".join(name for name, nodes in names if node_id in nodes)

    def __str__(self) -> str:
        return f"brokers {list(self.brokers)}, voters {list(self.voters)}"


class _Lines(Log):
    """A node's log lines; what it says must not happen, must not."""

    bugs: list[str]

    def failure(self, what: str, error: BaseException) -> None:
        super().failure(what, error)
        self.bugs.append(f"{what}: {error!r}")


class Member:
    """One node and its machine."""

    def __init__(self, fleet: Fleet, node_id: int, config: NodeConfig) -> None:
        self.fleet = fleet
        self.id = node_id
        self.config = config
        self.machine = fleet.world.machine(f"node{node_id}")
        self.capacity_bytes = self.machine.disk.capacity_bytes
        self.node: Node | None = None
        self.lines: deque[str] = deque(maxlen=60)
        self.bugs: list[str] = []
        self.starts = 0
        self.broken = 0  # faults of its disk that go on: it may end by itself
        self.held_down = False  # somebody wants it to stay down
        self.paused = False
        self.is_ending = False  # it has given up, and stops
        self._starting: SimTask[None] | None = None
        self.make_mount()

    def make_mount(self) -> None:
        """The directory of the data is there before the node, as a mount point is."""
        self.machine.disk.make_dirs(_DATA)
        self.machine.disk.sync_dir("/")

    def format(self) -> None:
        """As `headwater format` does, before the first start and after the disk was lost."""
        host = self.machine.boot()
        quorum = None
        if self.fleet.first_voters is not None:
            is_first = self.starts == 0 and self.id in self.fleet.first_voters.voters
            quorum = InitialQuorum(listed=self.fleet.first_voters if is_first else None)
        format_directories(host, self.config, cluster_id=self.fleet.cluster_id, quorum=quorum)
        self.machine.switch_off()

    @property
    def is_voter(self) -> bool:
        """Whether this node votes, with the directory that it has now, for all it knows."""
        metadata = getattr(self.node, "_metadata", None)
        return metadata is not None and metadata.raft.voters.has(metadata.raft.me)

    # Being up

    @property
    def is_up(self) -> bool:
        return self.machine.life is not None

    @property
    def is_serving(self) -> bool:
        """Whether its start has ended well and nothing failed since."""
        task = self._starting
        return self.is_up and task is not None and task.done() and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether the node has given up: its start has failed, or it has."""
        task = self._starting
        if task is not None and task.done() and (task.cancelled() or task.exception() is not None):
            return True
        node = self.node
        return node is not None and node.failed is not None and node.failed.done()

    def why_ended(self) -> str:
        task = self._starting
        if task is not None and task.done() and not task.cancelled():
            error = task.exception()
            if error is not None:
                return repr(error)
        node = self.node
        if node is not None and node.failed is not None and node.failed.done():
            return node.failed.result()
        return "?"

    def start(self) -> None:
        assert not self.is_up, f"node {self.id} is up already"
        host = self.machine.boot()
        self.starts += 1
        lines = _Lines(host.clock, self._say)
        lines.bugs = self.bugs
        self.node = Node(self.config, host, lines)
        self._starting = self.machine.spawn(self.node.start())
        self.fleet.world.note(f"node {self.id} starts")

    def _say(self, line: str) -> None:
        self.lines.append(f"{self.fleet.world.loop.time():.3f} {line.rstrip()}")

    async def stop(self) -> None:
        """A clean stop, as SIGTERM asks for; a node that does not end is killed."""
        assert self.node is not None
        stopping = self.machine.spawn(self.node.stop())
        life = self.machine.life
        try:
            async with asyncio.timeout(_STOP_SECONDS_MAX):
                await asyncio.shield(stopping)
        except TimeoutError:
            self.fleet.world.note(f"node {self.id} does not stop")
            self.fleet.world.happened("a stop that was cut short")
            self.fleet.on_unclean_end(self)
        if self.machine.life is life:
            self.machine.switch_off()
            self.release()
            self.fleet.world.note(f"node {self.id} stopped")

    def crash(self, *, power_cut: bool) -> None:
        self.fleet.world.note(f"node {self.id} crashes, power cut: {power_cut}")
        self.fleet.world.happened("power cut" if power_cut else "process killed")
        self.machine.crash(power_cut=power_cut)
        self.fleet.on_unclean_end(self)
        self.release()

    async def end(self) -> None:
        """Ends the process of a node that has given up, stopping what was started."""
        if not self.is_ending:
            return  # it was killed before this began
        self.fleet.world.note(f"node {self.id} has ended by itself: {self.why_ended()}")
        self.fleet.world.happened("a node ended by itself")
        self.fleet.on_unclean_end(self)
        task = self._starting
        if task is not None and task.done() and not task.cancelled() and task.exception() is None:
            await self.stop()
        else:
            self.machine.switch_off()
            self.release()

    def release(self) -> None:
        """Drops its references to a node that has ended."""
        task = self._starting
        if self.broken and task is not None and task.done() and not task.cancelled():
            task.exception()  # its start may have failed, and nobody has looked since
        self.is_ending = False
        self.paused = False
        self.node = None
        self._starting = None

    def pause(self) -> None:
        self.fleet.world.note(f"node {self.id} pauses")
        self.machine.pause()
        self.paused = True

    def resume(self) -> None:
        if self.paused:
            self.fleet.world.note(f"node {self.id} resumes")
            self.machine.resume()
            self.paused = False


class Fleet:
    """All nodes of a cluster."""

    def __init__(
        self,
        world: World,
        layout: Layout,
        settings: dict[str, str],
        *,
        first_voters: Sequence[int] = (),
        racks: Sequence[str] = (),
    ) -> None:
        """With `first_voters` the voters are dynamic: these are the first, and the other
        controllers join by themselves. With `racks` the nodes are spread over them, and consumers
        read from the replica in theirs."""
        self.world = world
        self.racks = racks
        self.layout = layout
        self.cluster_id = id_text(world.chance("cluster id").randbytes(15) + b"\0")
        self.members: dict[int, Member] = {}
        self._endings: list[asyncio.Future[None]] = []
        # Called when a node has ended otherwise than by a clean stop.
        self.on_unclean_end: Callable[[Member], None] = lambda member: None
        ips = {node_id: f"10.0.0.{place + 1}" for place, node_id in enumerate(layout.nodes)}
        self.first_voters: VoterSet | None = None
        quorum = {
            "controller.quorum.voters": ",".join(
                f"{n}@{ips[n]}:{CONTROLLER_PORT}" for n in layout.voters
            )
        }
        if first_voters:
            chance = world.chance("directories")
            self.first_voters = VoterSet.of(
                *(
                    Voter(
                        ReplicaKey(n, chance.randbytes(16)),
                        (VoterEndpoint("CONTROLLER", ips[n], CONTROLLER_PORT),),
                    )
                    for n in first_voters
                )
            )
            quorum = {
                "controller.quorum.bootstrap.servers": ",".join(
                    f"{ips[n]}:{CONTROLLER_PORT}" for n in layout.voters
                ),
            }
        for node_id in layout.nodes:
            listeners = []
            if node_id in layout.brokers:
                listeners.append(f"PLAINTEXT://{ips[node_id]}:{BROKER_PORT}")
            if node_id in layout.voters:
                listeners.append(f"CONTROLLER://{ips[node_id]}:{CONTROLLER_PORT}")
            joins = first_voters and node_id in layout.voters
            config = node_config(
                {
                    "log.dirs": _DATA,
                    "node.id": str(node_id),
                    "process.roles": layout.roles(node_id),
                    "listeners": ",".join(listeners),
                    "controller.listener.names": "CONTROLLER",
                    **quorum,
                    **({"controller.quorum.auto.join.enable": "true"} if joins else {}),
                    **self._rack_settings(node_id),
                    **settings,
                }
            )
            member = Member(self, node_id, config)
            assert member.machine.ip == ips[node_id]
            self.members[node_id] = member

    def _rack_settings(self, node_id: int) -> dict[str, str]:
        if not self.racks:
            return {}
        return {
            "broker.rack": self.racks[node_id % len(self.racks)],
            "replica.selector.class": RACK_AWARE_SELECTOR,
        }

    @property
    def bootstrap(self) -> list[str]:
        return [f"{self.members[n].machine.ip}:{BROKER_PORT}" for n in self.layout.brokers]

    @property
    def brokers(self) -> list[Member]:
        return [self.members[n] for n in self.layout.brokers]

    def ips(self) -> list[str]:
        return [member.machine.ip for member in self.members.values()]

    def fail(self, what: str) -> Violation:
        violation = Violation(what, self.world.seed, list(self.world.events))
        for member in self.members.values():
            lines = "\n  ".join(list(member.lines)[-12:])
            violation.add_note(f"node {member.id}'s last lines:\n  {lines}")
        return violation

    @property
    def has_dynamic_voters(self) -> bool:
        return self.first_voters is not None

    # Starting

    def format(self) -> None:
        for member in self.members.values():
            member.format()

    def start(self) -> None:
        for member in self.members.values():
            member.start()

    async def all_serve(self, seconds_max: float) -> None:
        """Waits until every node serves; restarts those that ended."""
        deadline = self.world.loop.time() + seconds_max
        while not all(member.is_serving for member in self.members.values()):
            self.revive()
            if self.world.loop.time() > deadline:
                waiting = [m.id for m in self.members.values() if not m.is_serving]
                raise self.fail(f"nodes {waiting} do not serve after {seconds_max:.0f} s")
            await asyncio.sleep(0.1)

    async def all_vote(self, seconds_max: float) -> None:
        """Waits until every controller votes: where voters are dynamic, they join by themselves."""
        deadline = self.world.loop.time() + seconds_max
        while waiting := [n for n in self.layout.voters if not self.members[n].is_voter]:
            self.revive()
            if self.world.loop.time() > deadline:
                raise self.fail(f"nodes {waiting} do not vote after {seconds_max:.0f} s")
            await asyncio.sleep(0.1)

    def revive(self) -> None:
        """Starts nodes again that have ended, as an operator or a supervisor does."""
        for member in self.members.values():
            if member.is_up and member.has_ended and not member.paused and not member.is_ending:
                if not member.broken:
                    why = member.why_ended()
                    raise self.fail(f"node {member.id} ended by itself: {why}")
                member.is_ending = True  # at once: others may look before the task begins
                self._endings = [task for task in self._endings if not task.done()]
                self._endings.append(asyncio.ensure_future(member.end()))
            elif not member.is_up and not member.held_down and not member.broken:
                member.start()

    def check_health(self) -> None:
        """Nothing that must not happen has happened inside a node."""
        for member in self.members.values():
            if member.bugs:
                raise self.fail(f"node {member.id} says: " + "; ".join(member.bugs[:3]))
        failures = self.world.loop.failures
        if failures:
            first = failures[0]
            error = first.get("exception")
            violation = self.fail(f"unhandled: {first.get('message')}: {error!r}")
            if isinstance(error, BaseException):
                raise violation from error
            raise violation
