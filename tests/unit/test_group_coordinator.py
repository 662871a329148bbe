"""The group coordinator of a broker: what its shards know of the metadata."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from headwater.broker.coordinators.groups import OFFSETS_TOPIC, GroupCoordinator
from headwater.broker.partition import Partition
from headwater.config import node_config
from headwater.groups.clients import ClientInfo
from headwater.io import Host
from headwater.metadata import Delta, Image
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headwater.protocol.records.metadata_topics import PartitionRecord, TopicRecord
from tests.support.logs import NOW, TOPIC_ID
from tests.unit.test_coordinator_driver import Desk

T = TypeVar("T")
ORDERS_ID = bytes(range(16, 32))
SECOND_MS = 1000


class StoppedWorkers:
    """Begins the work when it is told to."""

    def __init__(self) -> None:
        self.may_run = asyncio.Event()

    async def run(self, work: Callable[[], T]) -> T:
        await self.may_run.wait()
        return work()

    def close(self) -> None: ...


def topic(name: str, topic_id: bytes) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1],
            isr=[1],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        ),
    ]


class Cluster:
    """A broker that coordinates groups, with the metadata that it follows."""

    def __init__(self, partition: Partition, workers: StoppedWorkers) -> None:
        self.host = replace(Host.in_memory(), workers=workers)
        self.image = Image()
        self.coordinator = GroupCoordinator(
            node_config({}), self.host, _only(partition), Lines(self.host.clock, lambda line: None)
        )

    def create(self, name: str, topic_id: bytes) -> None:
        delta = Delta()
        for record in topic(name, topic_id):
            self.image.apply(record, delta)
        self.coordinator.follow(self.image, delta)

    def heartbeat(self, now_ms: int, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", **fields)
        response = self.coordinator.ask(
            "g",
            ConsumerGroupHeartbeatResponse,
            lambda shard, token: shard.decide_consumer_heartbeat(
                token,
                request,
                client=ClientInfo("client", "/127.0.0.1"),
                version=1,
                now=self.host.clock.monotonic(),
                now_ms=now_ms,
            ),
        )
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response


def _only(partition: Partition) -> Any:
    class One:
        def get(self, name: str, index: int) -> Partition:
            return partition

    return One()


def test_a_pattern_matches_a_topic_that_was_created_while_its_group_was_loaded() -> None:
    async def story() -> None:
        desk = Desk()
        desk.offset(0, 5)  # something to load
        workers = StoppedWorkers()
        cluster = Cluster(desk.partition, workers)
        cluster.create(OFFSETS_TOPIC, TOPIC_ID)
        await asyncio.sleep(0)  # the load begins
        cluster.create("orders", ORDERS_ID)
        workers.may_run.set()
        driver = cluster.coordinator.shards.drivers[0]
        await asyncio.gather(*driver._tasks)
        joined = cluster.heartbeat(
            NOW,
            member_epoch=0,
            rebalance_timeout_ms=SECOND_MS,
            subscribed_topic_names=[],
            subscribed_topic_regex="ord.*",
            topic_partitions=[],
        )
        driver.run(lambda shard: shard.on_tick(cluster.host.clock.monotonic(), NOW))
        found = cluster.heartbeat(NOW + SECOND_MS, member_epoch=joined.member_epoch).assignment
        assert found is not None
        assert [(each.topic_id, each.partitions) for each in found.topic_partitions] == [
            (ORDERS_ID, [0])
        ]
        cluster.coordinator.stop()

    asyncio.run(story())
