"""Controllers in a simulated world: metadata log, quorum driver and controller, without brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from headwater.broker.context import Context
from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.dispatch import Route
from headwater.broker.formatting import METADATA_LOG
from headwater.broker.metadata_log import MetadataLog
from headwater.broker.quorum_driver import QuorumDriver
from headwater.broker.voter_changes import VoterChanges
from headwater.config import NodeConfig, node_config
from headwater.errors import ErrorCode
from headwater.metadata.snapshot import encode_snapshot, file_name
from headwater.model import OffsetAndEpoch
from headwater.net import Answer, Connection, NetLimits, PendingResponse, Server
from headwater.observability import Log
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.frame import skip_tags
from headwater.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.quorum import ReplicaKey, Role, Voter, VoterEndpoint, VoterSet
from headwater.testing.sim.world import Machine, World, burial

CLUSTER = "4L6g3nShT-eMCtK--X86sw"
PORT = 9093
SERVED = (
    ApiKey.API_VERSIONS,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)


def directory(node_id: int, life: int = 0) -> bytes:
    return bytes([node_id, life + 1]) * 8


class QuorumNode:
    def __init__(self, cluster: QuorumCluster, node_id: int, *, is_controller: bool = True) -> None:
        self.cluster = cluster
        self.id = node_id
        self.is_controller = is_controller
        self.machine: Machine = cluster.world.machine(f"node{node_id}")
        self.directory_id = directory(node_id)
        self.lines: list[str] = []
        self.is_up = False

    @property
    def raft(self) -> Any:
        return self.metadata.raft

    def config(self) -> NodeConfig:
        cluster = self.cluster
        role = "controller" if self.is_controller else "broker"
        listener = "CONTROLLER" if self.is_controller else "PLAINTEXT"
        settings = {
            "process.roles": role,
            "node.id": str(self.id),
            "log.dirs": "/d",
            "listeners": f"{listener}://{self.machine.ip}:{PORT}",
            "controller.listener.names": "CONTROLLER",
            **cluster.settings,
        }
        if cluster.is_static:
            voters = (f"{i}@{cluster.nodes[i].machine.ip}:{PORT}" for i in cluster.voters)
            settings["controller.quorum.voters"] = ",".join(voters)
        else:
            servers = (f"{cluster.nodes[i].machine.ip}:{PORT}" for i in cluster.voters)
            settings["controller.quorum.bootstrap.servers"] = ",".join(servers)
        return node_config(settings)

    def format(self) -> None:
        """Writes the voters where they are dynamic, as `headwater format` does."""
        cluster = self.cluster
        disk = self.machine.disk
        disk.make_dirs(f"/d/{METADATA_LOG}")
        disk.sync_dir("/")  # as `headwater format` leaves it
        disk.sync_dir("/d")
        if cluster.is_static or self.id not in cluster.voters:
            return
        voters = VoterSet.of(
            *(
                Voter(
                    ReplicaKey(i, directory(i)),
                    (VoterEndpoint("CONTROLLER", cluster.nodes[i].machine.ip, PORT),),
                )
                for i in cluster.voters
            )
        )
        data = encode_snapshot(
            (),
            metadata_version=30,
            epoch=0,
            timestamp=0,
            now_ms=0,
            kraft_version=1,
            voters=voters.to_record(),
        )
        disk.write_atomically(f"/d/{METADATA_LOG}/{file_name(OffsetAndEpoch(0, 0))}", data)

    async def start(self) -> None:
        self.host = self.machine.boot()
        await self.machine.spawn(self._start())

    async def _start(self) -> None:
        host = self.host
        config = self.config()
        log = Log(host.clock, self.lines.append)
        self.failures: list[BaseException] = []
        self.metadata = MetadataLog(
            host,
            config,
            directory_id=self.directory_id,
            on_failure=lambda what, error: self.failures.append(error),
        )
        self.metadata.open()
        self.quorum = QuorumDriver(
            host,
            config,
            self.metadata,
            log,
            cluster_id=CLUSTER,
            directory_id=self.directory_id,
        )
        self.changes = VoterChanges(host, config, self.metadata, log)
        self.controller = ControllerDriver(host, config, self.metadata, log, cluster_id=CLUSTER)
        self.role: Any = SimpleNamespace(
            authorizer=None,
            config=config,
            cluster_id=CLUSTER,
            metadata=self.metadata,
            quorum=self.quorum,
            voter_changes=self.changes,
            controller=self.controller,
        )
        self.server = Server(host, NetLimits(), self.lines.append)
        if self.is_controller:
            self.server.bind("CONTROLLER", self.machine.ip, PORT, self._dispatch)
            self.server.open()
            self.running = asyncio.ensure_future(self.controller.run())
        await self.quorum.start()
        self.is_up = True

    def _dispatch(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
        correlation_id = int.from_bytes(frame[4:8], "big")
        length = int.from_bytes(frame[8:10], "big", signed=True)
        position = 10 + max(0, length)
        api = ApiKey(key)
        if api is ApiKey.API_VERSIONS:
            served = [(each, APIS[each].versions or (0, 0)) for each in SERVED]
            answer = ApiVersionsResponse(
                api_keys=[
                    ApiVersion(api_key=each, min_version=low, max_version=high)
                    for each, (low, high) in served
                ],
                supported_features=[
                    SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
                ],
            )
            return Route(api, version, lambda *_: None).answer(correlation_id, answer)
        module = import_module(f"headwater.broker.controller_handlers.{api.name.lower()}")
        route = Route(api, version, module.handle)
        if route.flexible:
            position = skip_tags(frame, position)
        request, _ = route.decode(frame, position)
        handled = route.handle(self.role, Context(connection, version, "test"), request)
        if not isinstance(handled, Awaitable):
            assert handled is not None
            return route.answer(correlation_id, handled)
        pending = PendingResponse(overlapping=False)

        async def finish() -> None:
            message = await handled
            assert message is not None
            pending.answer(route.answer(correlation_id, message))

        self.pending = asyncio.ensure_future(finish())
        return pending

    def kill(self, *, power_cut: bool = False) -> None:
        self.is_up = False
        self.machine.crash(power_cut=power_cut)

    async def stop(self) -> None:
        async def ending() -> None:
            await self.quorum.stop()
            await self.server.stop(0.0)
            await self.metadata.close()

        await self.machine.spawn(ending())
        self.is_up = False
        self.machine.switch_off()

    async def create(self, name: str) -> int:
        """Creates a topic without partitions' brokers: an error is a decision as well."""
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
        )

        async def ask() -> int:
            results = await self.controller.ask(lambda c: c.decide_create_topics(request))
            return results[0].error_code

        return await self.machine.spawn(ask())

    async def write(self) -> OffsetAndEpoch:
        """Commits a record; returns its end."""

        async def ask() -> OffsetAndEpoch:
            await self.controller.ask(lambda c: c.decide_no_op())
            return OffsetAndEpoch(self.metadata.log_end, self.metadata.epoch)

        return await self.machine.spawn(ask())


class QuorumCluster:
    def __init__(
        self,
        seed: int,
        *,
        voters: tuple[int, ...] = (1, 2, 3),
        others: tuple[int, ...] = (),
        brokers: tuple[int, ...] = (),
        is_static: bool = False,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.world = World(seed)
        self.voters = voters
        self.is_static = is_static
        self.settings = settings or {}
        self.nodes: dict[int, QuorumNode] = {}
        for node_id in (*voters, *others):
            self.nodes[node_id] = QuorumNode(self, node_id)
        for node_id in brokers:
            self.nodes[node_id] = QuorumNode(self, node_id, is_controller=False)
        for node in self.nodes.values():
            node.format()

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    def leaders(self) -> list[QuorumNode]:
        return [
            node for node in self.nodes.values() if node.is_up and node.raft.role is Role.LEADER
        ]

    async def leader(self, *, seconds: float = 20.0) -> QuorumNode:
        """Returns the active controller, as soon as there is one."""
        found: list[QuorumNode] = []

        def is_active() -> bool:
            found[:] = [node for node in self.leaders() if node.controller.is_active]
            return len(found) == 1

        await self.until(is_active, seconds=seconds)
        return found[0]

    async def until(self, holds: Callable[[], bool], *, seconds: float = 20.0) -> None:
        deadline = self.world.loop.time() + seconds
        while not holds():
            if self.world.loop.time() > deadline:
                states = [
                    (n.id, n.raft.role.value, n.raft.epoch, n.raft.leader_id, n.raft.log_end)
                    for n in self.nodes.values()
                    if n.is_up
                ]
                raise AssertionError(f"not within {seconds} s: {states}")
            await asyncio.sleep(0.01)

    async def settled(self) -> None:
        """Returns when all nodes that are up have the same committed log."""
        leader = await self.leader()
        end = await leader.write()
        await self.until(
            lambda: all(n.metadata.applied >= end.offset for n in self.nodes.values() if n.is_up)
        )

    def run(self, story: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await story()
            for node in self.nodes.values():
                if node.is_up:
                    assert not node.failures, node.failures
                    await node.stop()

        try:
            self.world.run(main())
            assert not self.world.loop.failures, self.world.loop.failures[0]
        finally:
            self._bury()

    def _bury(self) -> None:
        """Lets go of everything. Coroutines that are closed now talk to nobody."""
        self.world.close()
        with burial():
            for machine in self.world.machines.values():
                machine.bury()
            self.nodes.clear()
            del self.world


NOT_CONTROLLER = ErrorCode.NOT_CONTROLLER
