"""The metadata log on a disk in memory: what is decided survives, only what is synced counts."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import TypeVar

import pytest

from headwater.broker.controller_driver import ControllerDriver
from headwater.broker.formatting import (
    BOOTSTRAP_FILE,
    METADATA_LOG,
    FormatRefused,
    format_directories,
    read_bootstrap,
)
from headwater.broker.metadata_log import MetadataLog
from headwater.config import NodeConfig, node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.io.clock import SystemClock
from headwater.io.memory import MemoryDisk
from headwater.io.sockets import SocketNetwork
from headwater.metadata import CLUSTER_DEFAULT, Delta, Image
from headwater.metadata.features import default_levels
from headwater.metadata.snapshot import decode_snapshot, id_from_file_name
from headwater.model import OffsetAndEpoch
from headwater.observability import Log
from headwater.protocol.messages.create_topics import CreateTopicsRequest
from headwater.protocol.records.metadata_nodes import FeatureLevelRecord
from headwater.storage import StorageFailed
from headwater.storage.log_dirs import read_meta_properties
from headwater.testing.sim.world import World
from tests.support.controllers import Bench, topic

T = TypeVar("T")


@dataclass
class HeldWorkers:
    """Work is done when a test lets it be done, so that a sync can be under way."""

    held: bool = False
    count: int = 0
    failure: OSError | None = None
    waiting: list[tuple[Callable[[], object], asyncio.Future[object]]] = field(default_factory=list)

    def run(self, work: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.count += 1
        self.waiting.append((work, future))  # type: ignore[arg-type]
        if not self.held:
            self.release()
        return future

    def release(self) -> None:
        while self.waiting:
            work, future = self.waiting.pop(0)
            try:
                future.set_result(work())
            except (OSError, ApiError) as error:
                future.set_exception(error)

    def close(self) -> None: ...


STATIC = {
    "node.id": "1",
    "process.roles": "broker,controller",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
}


class Node:
    """A quorum of one with its controller, that can stop and start again."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.workers = HeldWorkers()
        self.host = Host(SystemClock(), Random(1), MemoryDisk(), SocketNetwork(), self.workers)
        self.config: NodeConfig = node_config({"log.dirs": "/d"} | (settings or {}))
        self.log = Log(self.host.clock, lambda line: None)
        self.news: list[Delta] = []
        self.failures: list[BaseException] = []

    async def start(self) -> None:
        cluster_id = format_directories(self.host, self.config).cluster_id
        properties = read_meta_properties(self.host.disk, "/d")
        assert properties is not None
        assert properties.directory_id is not None
        self.metadata = MetadataLog(
            self.host,
            self.config,
            directory_id=properties.directory_id,
            on_failure=lambda what, error: self.failures.append(error),
        )
        self.metadata.open()
        self.news.clear()
        self.metadata.subscribe(self.follow)
        await self.metadata.start()
        self.controller = ControllerDriver(
            self.host, self.config, self.metadata, self.log, cluster_id=cluster_id
        )
        self.running = asyncio.ensure_future(self.controller.run())
        await self.controller.activated()
        await self.controller.committed()
        request = Bench().registration(1)
        request.cluster_id = cluster_id
        request.incarnation_id = self.host.random_id()
        now = self.host.clock.monotonic()
        await self.controller.ask(
            lambda machine: machine.decide_register_broker(request, now, is_own=True)
        )

    def follow(self, image: Image, delta: Delta) -> None:
        assert image is self.metadata.image
        self.news.append(delta)

    async def create(self, *names: str) -> list[int]:
        request = CreateTopicsRequest(
            topics=[topic(name, -1, -1, assignments=[(0, [1])]) for name in names]
        )
        results = await self.controller.ask(lambda machine: machine.decide_create_topics(request))
        return [result.error_code for result in results]

    def join(self) -> Awaitable[object]:
        request = Bench.heartbeat(_Peek(self.metadata.image, self.metadata.applied), 1)  # type: ignore[arg-type]
        now = self.host.clock.monotonic()
        return self.controller.ask(lambda machine: machine.decide_heartbeat(request, now))

    def names(self) -> list[str]:
        return self.host.disk.list(f"/d/{METADATA_LOG}")


class _Peek:
    """The parts of a heartbeat, from the broker's side."""

    def __init__(self, image: Image, offset: int) -> None:
        self.machine = self
        self.image = image
        self.offset = offset


async def started(settings: dict[str, str] | None = None) -> Node:
    node = Node(settings)
    await node.start()
    await node.join()
    return node


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_a_subscriber_that_raises_keeps_nobody_else_from_the_change() -> None:
    async def test() -> None:
        node = await started()

        def breaks(image: Image, delta: Delta) -> None:
            raise RuntimeError("a subscriber is broken")

        later: list[Delta] = []
        node.metadata.subscribe(breaks)
        node.metadata.subscribe(lambda image, delta: later.append(delta))
        assert await asyncio.wait_for(node.create("orders"), 10) == [0]
        assert await asyncio.wait_for(node.create("bills"), 10) == [0]
        assert len(later) == 2
        assert {"orders", "bills"} <= node.metadata.image.topics.keys()
        assert [str(error) for error in node.failures] == ["a subscriber is broken"] * 2
        assert node.metadata.meter.apply_errors == 2

    run(test)


def test_a_new_node_leads_and_has_its_first_records() -> None:
    async def test() -> None:
        node = await started()
        assert node.metadata.is_leader
        assert node.metadata.image.features == default_levels()
        assert node.metadata.image.config(CLUSTER_DEFAULT) == {"min.insync.replicas": "1"}
        assert not node.metadata.image.brokers[1].fenced
        quorum = node.metadata.describe_quorum()
        assert (quorum.leader_id, quorum.epoch) == (1, 1)
        assert quorum.high_watermark == node.metadata.log_end
        assert [voter.log_end for voter in quorum.voters] == [node.metadata.log_end]

    run(test)


def test_what_was_answered_is_there_after_a_restart() -> None:
    async def test() -> None:
        node = await started()
        assert await node.create("a", "b") == [0, 0]
        before = node.metadata.image.topics["a"].id
        for clean in (True, False):
            if clean:
                await node.metadata.close()
            await node.start()
            await node.join()
            assert node.metadata.image.topics["a"].id == before
            assert node.metadata.image.topics["b"].partitions[0].leader == 1
        assert node.metadata.epoch == 3

    run(test)


def test_the_controllers_image_and_the_brokers_are_the_same_once_committed() -> None:
    async def test() -> None:
        node = await started()
        await node.create("a")
        assert node.controller.image == node.metadata.image
        await node.start()
        assert node.controller.image == node.metadata.image

    run(test)


def test_nobody_is_answered_before_the_sync() -> None:
    async def test() -> None:
        node = await started()
        node.workers.held = True
        asked = asyncio.ensure_future(node.create("a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "a" in node.controller.image.topics
        assert "a" not in node.metadata.image.topics
        assert not asked.done()
        node.workers.release()
        assert await asked == [0]
        assert "a" in node.metadata.image.topics

    run(test)


def test_what_comes_during_a_sync_shares_the_next_one() -> None:
    async def test() -> None:
        node = await started()
        node.workers.held = True
        first = asyncio.ensure_future(node.create("a"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        before = node.workers.count
        more = [asyncio.ensure_future(node.create(f"b{number}")) for number in range(20)]
        await asyncio.sleep(0)
        node.workers.held = False
        node.workers.release()
        await asyncio.gather(first, *more)
        assert node.workers.count == before + 1

    run(test)


def test_a_refusal_waits_for_what_it_has_seen() -> None:
    async def test() -> None:
        node = await started()
        node.workers.held = True
        first = asyncio.ensure_future(node.create("a"))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(node.create("a"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert not second.done(), "that the topic exists is not yet sure"
        node.workers.release()
        assert await first == [0]
        assert await second == [ErrorCode.TOPIC_ALREADY_EXISTS]

    run(test)


def test_subscribers_hear_of_each_change_once_and_of_the_past_at_the_start() -> None:
    async def test() -> None:
        node = await started()
        node.news.clear()
        await node.create("a")
        (delta,) = node.news
        topic_id = node.metadata.image.topics["a"].id
        assert delta.topics_created == {topic_id}
        assert list(delta.partitions) == [(topic_id, 0)]
        await node.start()
        assert node.news[0].topics_created == {topic_id}

    run(test)


def test_what_is_appended_and_committed_is_measured() -> None:
    async def test() -> None:
        node = await started()
        await node.create("a")
        meter, now = node.metadata.meter, node.host.clock.monotonic()
        assert 0 < meter.appended_rate(now) < 10
        assert meter.fetched_rate(now) == 0
        mean, most = meter.commit_ms(now)
        assert 0 <= mean <= most
        assert 0 < meter.applied_ms <= node.host.clock.wall_ms()

    run(test)


def test_those_held_back_hear_of_everything_later_and_early_ones_of_all_of_it_each_time() -> None:
    async def test() -> None:
        node = await started()
        early: list[set[bytes]] = []
        node.metadata.subscribe(
            lambda _, delta: early.append(set(delta.topics_created)), is_early=True
        )
        node.news.clear()
        node.metadata.hold_back()
        await node.create("a")
        await node.create("b")
        a, b = (node.metadata.image.topics[name].id for name in ("a", "b"))
        assert early == [{a}, {a, b}]
        assert not node.news
        node.metadata.go_on()
        (delta,) = node.news
        assert delta.topics_created == {a, b}
        await node.create("c")
        c = node.metadata.image.topics["c"].id
        assert [node.news[-1].topics_created, early[-1]] == [{c}, {c}]
        assert (len(node.news), len(early)) == (2, 3)

    run(test)


def test_snapshots_take_over_from_the_log() -> None:
    async def test() -> None:
        settings = {"metadata.log.max.record.bytes.between.snapshots": "2000"}
        node = await started(settings)
        for number in range(30):
            await node.create(f"t{number}")
        for _ in range(20):
            await asyncio.sleep(0)
        ids = [found for name in node.names() if (found := id_from_file_name(name))]
        assert len(ids) > 2
        latest = decode_snapshot(
            node.host.disk.read(f"/d/{METADATA_LOG}/{max(ids).offset:020d}-0000000001.checkpoint")
        )
        assert latest.kraft_version == 1
        assert latest.voters is not None
        image = node.metadata.image
        await node.metadata.close()
        await node.start()
        assert node.metadata.image.topics_by_id.keys() == image.topics_by_id.keys()
        assert node.news[0].topics_created == set(image.topics_by_id)

    run(test)


def test_a_log_that_lost_its_end_goes_on_behind_the_snapshot() -> None:
    async def test() -> None:
        settings = {"metadata.log.max.record.bytes.between.snapshots": "500"}
        node = await started(settings)
        for number in range(10):
            await node.create(f"t{number}")
        for _ in range(20):
            await asyncio.sleep(0)
        await node.metadata.close()
        for name in node.names():
            if name.endswith((".log", ".index", ".timeindex", ".snapshot")):
                node.host.disk.remove(f"/d/{METADATA_LOG}/{name}")
        offset = max(found.offset for name in node.names() if (found := id_from_file_name(name)))
        await node.start()
        assert node.metadata.log_end > offset
        assert "t0" in node.metadata.image.topics
        assert await node.create("after") in ([0], [ErrorCode.INVALID_REPLICA_ASSIGNMENT])

    run(test)


def test_a_failed_sync_fails_all_who_wait_and_takes_the_log_out() -> None:
    async def test() -> None:
        node = await started()
        node.workers.held = True
        asked = asyncio.ensure_future(node.create("a"))
        for _ in range(3):
            await asyncio.sleep(0)
        ((_, future),) = node.workers.waiting
        node.workers.waiting.clear()
        future.set_exception(StorageFailed("/d", str(OSError(errno.EIO, "I/O error"))))
        with pytest.raises(StorageFailed):
            await asked
        with pytest.raises(StorageFailed):
            await node.create("b")
        assert node.metadata.failed is not None
        assert "cannot be written" in await node.metadata.failed

    run(test)


def test_what_a_failed_sync_left_in_memory_only_is_written_again_by_the_next_start() -> None:
    """The kernel takes the pages of a failed sync for clean: no later sync would write them."""

    async def test() -> None:
        machine = World(1).machine("m")
        machine.boot()
        machine.disk.make_dirs("/d")
        machine.disk.sync_dir("/")
        node = Node()
        node.host = replace(node.host, disk=machine.disk)
        await node.start()
        await node.join()
        machine.disk.faults.error_on_call["sync"] = 1
        with pytest.raises(StorageFailed):
            await node.create(*(f"unsynced-{number}" for number in range(200)))  # several pages
        machine.crash(power_cut=False)
        machine.boot()
        node.host = replace(node.host, disk=machine.disk)
        await node.start()
        await node.join()
        assert await node.create("acknowledged") == [0]
        machine.crash(power_cut=True)
        machine.boot()
        node.host = replace(node.host, disk=machine.disk)
        await node.start()
        assert "acknowledged" in node.metadata.image.topics

    run(test)


@pytest.mark.parametrize(("feature", "level"), [("metadata.version", 31), ("next.version", 1)])
def test_a_level_that_this_release_does_not_support_ends_the_node(feature: str, level: int) -> None:
    async def test() -> None:
        node = await started()
        record = FeatureLevelRecord(name=feature, feature_level=level)
        await node.metadata.committed(node.metadata.append([record], metadata_version=30))
        assert node.metadata.failed is not None
        why = await node.metadata.failed
        assert f"the cluster is at {feature} {level}, and this release supports" in why
        assert "upgrade this node" in why

    run(test)


def test_a_node_that_does_not_lead_refuses_commands() -> None:
    async def test() -> None:
        node = await started()
        driver = ControllerDriver(node.host, node.config, node.metadata, node.log, cluster_id="c")
        with pytest.raises(ApiError) as refused:
            await driver.ask(lambda machine: machine.decide_no_op())
        assert refused.value.code is ErrorCode.NOT_CONTROLLER

    run(test)


def test_whoever_waits_for_a_commit_hears_that_leadership_was_lost() -> None:
    """Records of the next leader may reach the offset waited for: they are not the answer."""

    async def test() -> None:
        node = await started()
        node.workers.held = True
        asked = asyncio.ensure_future(node.create("a"))
        for _ in range(3):
            await asyncio.sleep(0)
        node.metadata.resign()
        with pytest.raises(ApiError) as refused:
            await asked
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        assert not node.controller.is_active

    run(test)


def test_a_commit_of_a_later_epoch_is_no_answer_to_an_earlier_one() -> None:
    async def test() -> None:
        node = await started()
        metadata = node.metadata
        end = OffsetAndEpoch(metadata.log_end, metadata.epoch)
        await metadata.committed(end)
        metadata.resign()
        metadata.carry_out(metadata.raft.tick(metadata.raft.next_deadline()))
        assert metadata.is_leader
        assert metadata.epoch == end.epoch + 1
        with pytest.raises(ApiError) as refused:
            await metadata.committed(end)
        assert refused.value.code is ErrorCode.NOT_CONTROLLER
        # Its controller has seen nothing of the new epoch, so it may not decide in it.
        assert not node.controller.is_active

    run(test)


# Formatting


def test_a_directory_is_formatted_once() -> None:
    node = Node()
    first = format_directories(node.host, node.config)
    assert first.directories == ("/d",)
    again = format_directories(node.host, node.config)
    assert again.directories == ()
    assert again.cluster_id == first.cluster_id
    with pytest.raises(FormatRefused, match="already"):
        format_directories(node.host, node.config, ignore_formatted=False)


def test_a_new_directory_begins_with_the_defaults() -> None:
    node = Node()
    format_directories(node.host, node.config, cluster_id="AAAAAAAAQACAAAAAAAAAAQ")
    records = read_bootstrap(node.host.disk, "/d")
    assert len(records) == len(default_levels())
    assert node.host.disk.exists(f"/d/{BOOTSTRAP_FILE}")
    assert node.names() == ["00000000000000000000-0000000000.checkpoint"]


def test_voters_that_are_configured_are_not_written_down() -> None:
    node = Node(STATIC)
    format_directories(node.host, node.config)
    assert not node.host.disk.exists(f"/d/{METADATA_LOG}")


def test_directories_of_another_node_or_cluster_are_refused() -> None:
    node = Node()
    format_directories(node.host, node.config)
    other = node_config({"log.dirs": "/d", "node.id": "2"})
    with pytest.raises(FormatRefused, match="belongs to node 1"):
        format_directories(node.host, other)
    with pytest.raises(FormatRefused, match=r"belongs to cluster .* not to AAAA"):
        format_directories(node.host, node.config, cluster_id="AAAAAAAAQACAAAAAAAAAAQ")


def test_a_second_directory_joins_the_cluster_of_the_first() -> None:
    node = Node()
    first = format_directories(node.host, node.config)
    both = node_config({"log.dirs": "/d,/e"})
    second = format_directories(node.host, both)
    assert second.directories == ("/e",)
    assert second.cluster_id == first.cluster_id
    ids = [read_meta_properties(node.host.disk, path) for path in ("/d", "/e")]
    assert ids[0] is not None
    assert ids[1] is not None
    assert ids[0].directory_id != ids[1].directory_id


def test_a_node_with_voters_from_its_settings_is_kafkas_static_quorum() -> None:
    async def test() -> None:
        node = await started(STATIC)
        await node.create("a")
        state = node.host.disk.read(f"/d/{METADATA_LOG}/quorum-state")
        assert b'"data_version":0' in state
        assert b'"currentVoters":[{"voterId":1}]' in state
        await node.start()
        assert "a" in node.metadata.image.topics

    run(test)


def test_old_snapshots_go_when_they_are_too_large_and_the_last_one_stays() -> None:
    async def test() -> None:
        settings = {
            "metadata.log.max.record.bytes.between.snapshots": "500",
            "metadata.max.retention.bytes": "1",
        }
        node = await started(settings)
        for number in range(12):
            await node.create(f"t{number}")
        for _ in range(20):
            await asyncio.sleep(0)
        ids = [found for name in node.names() if (found := id_from_file_name(name))]
        assert len(ids) == 1
        await node.metadata.close()
        await node.start()
        assert len(node.metadata.image.topics) == 12

    run(test)


def test_a_full_disk_does_not_hold_up_the_stop() -> None:
    async def test() -> None:
        node = await started()
        node.workers.held = True
        asked = asyncio.ensure_future(node.create("a"))
        for _ in range(3):
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(node.metadata.close())
        await asyncio.sleep(0)
        for _ in range(2):  # the sync that was under way, and the last one
            ((_, future),) = node.workers.waiting
            node.workers.waiting.clear()
            future.set_exception(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "full"))
            for _ in range(5):
                await asyncio.sleep(0)
        await stopping
        assert not asked.done(), "nobody was told that the topic is there"
        asked.cancel()

    run(test)
