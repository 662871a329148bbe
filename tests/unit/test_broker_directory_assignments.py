"""A broker tells the controller in which directories its replicas are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from headwater.broker import directory_assignments
from headwater.broker.directory_assignments import DirectoryAssignments
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io.clock import SystemClock
from headwater.io.memory import MemoryDisk
from headwater.metadata import Delta
from headwater.metadata.model import DIRECTORY_LOST
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from headwater.storage import LogDirs
from tests.support.controllers import Bench
from tests.support.logs import settings

TP = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_assignments, "_GATHER_SECONDS", 0.0)
    monkeypatch.setattr(directory_assignments, "_RETRY_SECONDS", 0.0)


class Scene:
    """A broker with two directories and the controller of its cluster."""

    def __init__(self) -> None:
        self.ids = iter(range(200, 300))
        self.log_dirs = LogDirs.open(
            MemoryDisk(),
            ("/a", "/b"),
            node_id=1,
            clock=SystemClock(),
            new_id=lambda: next(self.ids).to_bytes(16, "big"),
            cluster_id="cluster",
        )
        self.directories = [directory.id for directory in self.log_dirs.directories]
        self.bench = Bench()
        request = self.bench.registration(1)
        request.log_dirs = sorted(self.directories)
        machine = self.bench.machine
        self.epoch = self.bench.do(machine.decide_register_broker(request, self.bench.now))
        self.bench.unfence(1)
        self.running: asyncio.Task[None] | None = None
        self.lost = False
        self.asked: list[AssignReplicasToDirsRequest] = []
        self.refusals: list[ErrorCode] = []
        lines = Lines(SystemClock(), lambda line: None)
        self.assignments = DirectoryAssignments(
            node_config({"log.dirs": "/a,/b", "node.id": "1"}),
            self.log_dirs,
            self,
            lines,
            broker_epoch=lambda: self.epoch,
            is_lost=lambda tp: self.lost,
        )

    async def ask(self, request: Message, *, timeout_ms: int) -> Message:
        """Is the channel to the controller."""
        assert isinstance(request, AssignReplicasToDirsRequest)
        self.asked.append(request)
        if self.refusals:
            code = self.refusals.pop(0)
            if code is ErrorCode.REQUEST_TIMED_OUT:
                raise ApiError(code, "no answer")
            return AssignReplicasToDirsResponse(error_code=code)
        decision = self.bench.machine.decide_assign_replicas_to_dirs(request)
        return AssignReplicasToDirsResponse(directories=self.bench.do(decision))

    def follow(self) -> None:
        image = self.bench.machine.image
        parts = dict.fromkeys((topic.id, index) for topic, index, _ in image.partitions())
        self.assignments.follow(image, Delta(partitions=parts))

    def known(self) -> bytes:
        return self.bench.partition("orders").directory_of(1)

    async def settle(self) -> None:
        """Lets the driver run for some turns of the loop."""
        if self.running is None:
            self.running = asyncio.ensure_future(self.assignments.run())
        for _ in range(50):
            await asyncio.sleep(0)
        assert not self.running.done()


def story(told: Callable[[], Coroutine[object, object, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(told())

    run.__name__ = told.__name__
    return run


@story
async def test_a_replica_is_assigned_when_its_log_is_there() -> None:
    scene = Scene()
    scene.bench.create("orders")
    scene.follow()
    await scene.settle()
    assert scene.asked == []  # it has no log yet
    scene.log_dirs.create(TP, scene.bench.machine.image.topics["orders"].id, settings(), "/b")
    await scene.settle()
    assert scene.known() == scene.directories[1]
    scene.follow()
    await scene.settle()
    assert len(scene.asked) == 1  # and never again


@story
async def test_nothing_is_assigned_before_the_broker_is_registered_with_directories() -> None:
    """The controller would take the directories for offline ones, and the broker out of sync."""
    scene = Scene()
    scene.bench.create("orders")
    scene.log_dirs.create(TP, scene.bench.machine.image.topics["orders"].id, settings(), "/b")
    brokers = scene.bench.machine.image.brokers
    registered = brokers[1]
    brokers[1] = registered._replace(log_dirs=())  # as it registered before the level was raised
    scene.follow()
    await scene.settle()
    assert scene.asked == []
    brokers[1] = registered
    scene.assignments.follow(scene.bench.machine.image, Delta(brokers={1: None}))
    await scene.settle()
    assert scene.known() == scene.directories[1]


@story
async def test_a_refused_assignment_is_sent_again() -> None:
    scene = Scene()
    scene.bench.create("orders")
    scene.log_dirs.create(TP, scene.bench.machine.image.topics["orders"].id, settings(), "/a")
    scene.refusals = [
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
    ]
    scene.follow()
    await scene.settle()
    assert len(scene.asked) == 4
    assert scene.known() == scene.directories[0]


@story
async def test_a_deleted_topic_is_not_asked_for() -> None:
    scene = Scene()
    scene.follow()
    scene.assignments.compare(TP)
    await scene.settle()
    assert scene.asked == []


@story
async def test_a_replica_that_is_lost_has_no_leader_until_it_is_found() -> None:
    scene = Scene()
    scene.bench.create("orders")
    scene.lost = True
    scene.follow()
    await scene.settle()
    assert scene.known() == DIRECTORY_LOST
    assert scene.bench.partition("orders").leader == -1
    scene.lost = False
    scene.log_dirs.create(TP, scene.bench.machine.image.topics["orders"].id, settings(), "/b")
    scene.follow()
    await scene.settle()
    assert scene.known() == scene.directories[1]
    assert scene.bench.partition("orders").leader == 1


@story
async def test_a_directory_that_fails_takes_the_leaders_in_it_and_no_others() -> None:
    scene = Scene()
    scene.bench.create("orders", 2)
    topic_id = scene.bench.machine.image.topics["orders"].id
    for index, path in enumerate(("/a", "/b")):
        scene.log_dirs.create(TopicPartition("orders", index), topic_id, settings(), path)
    scene.follow()
    await scene.settle()
    beat = scene.bench.heartbeat(1, offline=[scene.directories[0]])
    scene.bench.do(scene.bench.machine.decide_heartbeat(beat, scene.bench.now))
    assert [scene.bench.partition("orders", index).leader for index in range(2)] == [-1, 1]
    image = scene.bench.machine.image
    assert [image.offline_replicas(scene.bench.partition("orders", i)) for i in range(2)] == [
        [1],
        [],
    ]
