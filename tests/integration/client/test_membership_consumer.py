"""Consumers in groups that rebalance."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from harness.wire import Wire, batch
from headwater import RebalanceListener, TopicPartition
from headwater.client.consumer.consumer import Consumer
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker
from tests.support.members import QUICK_BROKER, QUICK_CLASSIC, Member, until

PROTOCOLS = [
    pytest.param(QUICK_CLASSIC, id="classic"),
    pytest.param(
        QUICK_CLASSIC | {"partition_assignment_strategy": "cooperative-sticky"}, id="coop"
    ),
    pytest.param({"group_protocol": "consumer"}, id="consumer"),
]


def consumer(broker: EmbeddedBroker, topic: str, **config: Any) -> Consumer:
    return Consumer(
        broker.bootstrap, group=topic, topics=[topic], auto_offset_reset="earliest", **config
    )


@pytest.mark.parametrize("config", PROTOCOLS)
def test_waiting_for_records_keeps_the_membership(
    make_broker: MakeBroker, topic: str, config: dict[str, Any]
) -> None:
    broker = make_broker(QUICK_BROKER)
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 2)

    class Listener(RebalanceListener):
        def __init__(self) -> None:
            self.heard: list[str] = []

        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            self.heard.append("assigned")

        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            self.heard.append("revoked")

        def on_lost(self, partitions: list[TopicPartition]) -> None:
            self.heard.append("lost")

    async def story() -> None:
        listener = Listener()
        quick = config | {"max_poll_interval_ms": 300}
        slow = config | {"max_poll_interval_ms": 1200}
        async with (
            consumer(broker, topic, listener=listener, **quick) as waiting,
            Member(broker.bootstrap, f"{topic}-other", [topic], **slow) as silent,
        ):
            reading = asyncio.create_task(waiting.poll(60_000))
            await until(lambda: bool(silent.owned), silent)
            # Nobody polls the silent one any more, and it goes. By then the other has waited for
            # records four times as long as it may be silent.
            await silent.expired()
            assert listener.heard == ["assigned"]
            with Wire(broker.bootstrap) as wire:
                wire.produce(topic, batch([b"here"]))
            assert [record.value for record in await reading] == [b"here"]
            assert listener.heard == ["assigned"]

    asyncio.run(story())


@pytest.mark.parametrize("config", PROTOCOLS)
def test_records_are_read_once_while_members_come_and_go(
    make_broker: MakeBroker, topic: str, config: dict[str, Any]
) -> None:
    broker = make_broker(QUICK_BROKER)
    values = [b"%d-%d" % (partition, n) for partition in range(4) for n in range(200)]
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 4)
        for partition in range(4):
            mine = values[partition * 200 : (partition + 1) * 200]
            assert wire.produce(topic, batch(mine), partition=partition).error_code == 0

    async def story() -> None:
        read: list[bytes | None] = []

        async def work(rounds: int | None) -> None:
            async with consumer(broker, topic, **config) as reader:
                while len(read) < len(values) and (rounds is None or rounds > 0):
                    rounds = None if rounds is None else rounds - 1
                    read.extend(record.value for record in await reader.poll(200, records_max=7))

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(work(None))
            for rounds in (5, 10, 15, 20):
                await work(rounds)
        assert len(read) == len(values)
        assert sorted(value or b"" for value in read) == sorted(values)

    asyncio.run(story())
