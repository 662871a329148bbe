"""Our members in one group with those of other clients, each leading in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer
from kafka import KafkaConsumer

from harness.wire import Wire
from headwater.model import TopicPartition
from headwater.testing import EmbeddedBroker
from tests.support.members import Member, quick_broker, until

PARTITIONS = 4


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with quick_broker() as made:
        yield made


@pytest.fixture
def made_topic(broker: EmbeddedBroker, topic: str) -> str:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, PARTITIONS)
    return topic


class Foreign:
    """Another client that polls in a thread of its own; `owned` is what it has."""

    def __init__(self, poll: Callable[[], set[TopicPartition]], close: Callable[[], Any]) -> None:
        self.owned: set[TopicPartition] = set()
        self.error: Exception | None = None
        self._poll, self._close = poll, close
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.owned = self._poll()
            self._close()
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()


def librdkafka(broker: EmbeddedBroker, topic: str, **config: Any) -> Foreign:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )
    consumer.subscribe([topic])

    def poll() -> set[TopicPartition]:
        consumer.poll(0.05)
        return {TopicPartition(each.topic, each.partition) for each in consumer.assignment()}

    return Foreign(poll, consumer.close)


def kafka_python(broker: EmbeddedBroker, topic: str, assignor: str) -> Foreign:
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

    known = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=topic,
        enable_auto_commit=False,
        session_timeout_ms=30_000,
        heartbeat_interval_ms=100,
        partition_assignment_strategy=[known[assignor]],
    )
    consumer.subscribe([topic])
    assert topic in consumer.topics()  # why: harness/group_member.py

    def poll() -> set[TopicPartition]:
        consumer.poll(50)
        return {TopicPartition(each.topic, each.partition) for each in consumer.assignment()}

    return Foreign(poll, consumer.close)


FOREIGN = {
    "librdkafka": lambda broker, topic, assignor: librdkafka(
        broker,
        topic,
        partition_assignment_strategy=assignor,
        session_timeout_ms=30_000,
        heartbeat_interval_ms=100,
    ),
    "kafka-python": kafka_python,
}


@contextmanager
def running(foreign: Foreign) -> Iterator[Foreign]:
    try:
        yield foreign
    finally:
        foreign.stop()


def shared(foreign: Foreign, *members: Member) -> Callable[[], bool]:
    """Each partition has one owner, and everybody has some."""

    def holds() -> bool:
        assert foreign.error is None, f"the other client failed: {foreign.error!r}"
        parts = [set(foreign.owned), *(set(each.owned) for each in members)]
        if any(each.membership.needs_poll or each.membership.rebalancing for each in members):
            return False
        return all(parts) and sum(map(len, parts)) == len(set().union(*parts)) == PARTITIONS

    return holds


@pytest.mark.parametrize("client", list(FOREIGN))
@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
@pytest.mark.parametrize("we_lead", [True, False], ids=["we-lead", "they-lead"])
def test_classic_groups_can_have_members_of_several_clients(
    broker: EmbeddedBroker, made_topic: str, client: str, assignor: str, we_lead: bool
) -> None:
    config = {"partition_assignment_strategy": assignor}

    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            if we_lead:
                await until(lambda: len(first.owned) == PARTITIONS, first)
            with running(FOREIGN[client](broker, made_topic, assignor)) as foreign:
                if not we_lead:
                    await until(lambda: len(foreign.owned) == PARTITIONS, idle)
                await until(shared(foreign, first), first)
                await until(shared(foreign, first, second), first, second)
                await second.leave()
                await until(shared(foreign, first), first)
            await until(lambda: len(first.owned) == PARTITIONS, first)

    idle = Member(broker.bootstrap, f"{made_topic}-idle", [made_topic])

    async def with_idle() -> None:
        async with idle:
            await story()

    asyncio.run(with_idle())


@pytest.mark.parametrize("we_first", [True, False], ids=["we-first", "they-first"])
def test_consumer_groups_can_have_members_of_several_clients(
    broker: EmbeddedBroker, made_topic: str, we_first: bool
) -> None:
    async def story() -> None:
        async with Member(
            broker.bootstrap, made_topic, [made_topic], group_protocol="consumer"
        ) as member:
            if we_first:
                await until(lambda: len(member.owned) == PARTITIONS, member)
            with running(librdkafka(broker, made_topic, group_protocol="consumer")) as foreign:
                await until(shared(foreign, member), member)
            await until(lambda: len(member.owned) == PARTITIONS, member)

    asyncio.run(story())


def test_members_of_both_protocols_share_a_group_during_a_migration(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic]) as classic,
            Member(broker.bootstrap, made_topic, [made_topic], group_protocol="consumer") as modern,
        ):
            await until(lambda: len(classic.owned) == PARTITIONS, classic)
            await until(
                lambda: len(classic.owned) == len(modern.owned) == PARTITIONS // 2, classic, modern
            )
            await classic.leave()
            await until(lambda: len(modern.owned) == PARTITIONS, modern)

    asyncio.run(story())
