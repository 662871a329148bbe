"""A topic with many partitions: its logs are made in between other work, and at once when asked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from headwater.broker.node import Node
from headwater.broker.partitions import Partitions
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.io.workers import ThreadWorkers
from headwater.observability import Log
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest

WIDE = 300


def with_node(
    test: Callable[[Node, Partitions], Awaitable[None]], host: Host | None = None
) -> list[str]:
    """Runs it against a node in memory; gives what the node said."""
    host = replace(host or Host.in_memory(), workers=ThreadWorkers())
    lines: list[str] = []

    async def run() -> None:
        settings = {"log.dirs": "/memory", "listeners": "PLAINTEXT://127.0.0.1:0"}
        node = Node(node_config(settings), host, Log(host.clock, lines.append))
        await node.start()
        try:
            await test(node, node._partitions)
        finally:
            await node.stop()

    asyncio.run(run())
    return [line for line in lines if " ERROR " in line]


async def create(node: Node) -> None:
    topic = CreatableTopic(name="wide", num_partitions=WIDE, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
    await node._controller.ask(lambda machine: machine.decide_create_topics(request))


async def turns_until_all_are_made(partitions: Partitions) -> int:
    turns = 0
    while len(partitions.all()) < WIDE:
        await asyncio.sleep(0)
        turns += 1
    return turns


def test_others_have_their_turn_while_the_logs_are_made() -> None:
    async def test(node: Node, partitions: Partitions) -> None:
        await create(node)
        assert len(partitions.all()) < WIDE // 2
        assert partitions.get("wide", WIDE - 1).leader is not None
        assert await turns_until_all_are_made(partitions) > 20
        assert all(partition.leader is not None for partition in partitions.all())

    assert with_node(test) == []


def test_a_topic_that_goes_while_its_logs_are_made_leaves_none() -> None:
    async def test(node: Node, partitions: Partitions) -> None:
        await create(node)
        request = DeleteTopicsRequest(topic_names=["wide"], timeout_ms=30_000)
        await node._controller.ask(lambda machine: machine.decide_delete_topics(request))
        for _ in range(WIDE):
            await asyncio.sleep(0)
        assert partitions.all() == []
        with pytest.raises(ApiError) as refusal:
            partitions.get("wide", WIDE - 1)
        assert refusal.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert with_node(test) == []


def test_what_was_not_made_before_a_stop_is_made_after_the_start() -> None:
    host = Host.in_memory()

    async def stopped_early(node: Node, partitions: Partitions) -> None:
        await create(node)

    async def started_again(node: Node, partitions: Partitions) -> None:
        assert partitions.get("wide", WIDE - 1).leader is not None
        await turns_until_all_are_made(partitions)

    assert with_node(stopped_early, host) == []
    assert with_node(started_again, host) == []
