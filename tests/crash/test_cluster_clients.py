"""Our own producers, groups and admin clients on three nodes of which leaders, coordinators and the
active controller are killed: nothing acknowledged is lost, doubled, reordered or left unread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from harness.record_checker import anomalies
from harness.soak import (
    GROUP,
    PARTITIONS,
    TOPIC,
    Protocol,
    Run,
    consume,
    produce,
    raise_if_failed,
    read_all,
    until_all_given,
)
from headwater import Admin
from headwater.testing import HeadwaterCluster, MakeHeadwaterCluster

pytestmark = pytest.mark.timeout(900)

PATIENCE_SECONDS = 120.0


async def leader(admin: Admin, _: HeadwaterCluster) -> int:
    found = (await admin.describe_topic(TOPIC)).partitions[0].leader
    assert found is not None
    return found


async def coordinator(admin: Admin, cluster: HeadwaterCluster) -> int:
    address = (await admin.describe_group(GROUP)).coordinator
    return next(node for node, each in cluster.addresses.items() if each == address)


async def controller(admin: Admin, _: HeadwaterCluster) -> int:
    return (await admin.describe_quorum()).leader_id


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_our_clients_go_on_while_nodes_die(
    make_headwater_cluster: MakeHeadwaterCluster, tmp_path: Path, protocol: Protocol
) -> None:
    cluster = make_headwater_cluster(data=tmp_path, topics={TOPIC: PARTITIONS})
    run = Run(cluster.bootstrap, protocol, Random(3))
    asyncio.run(kill_one_after_the_other(cluster, run))
    assert anomalies(run.history) == {}


async def kill_one_after_the_other(cluster: HeadwaterCluster, run: Run) -> None:
    producers = [asyncio.create_task(produce(run, number)) for number in range(2)]
    consumers = [asyncio.create_task(consume(run, number)) for number in range(2)]
    actors = producers + consumers

    async def more(count: int = 500) -> None:
        sent, read = (run.counts[each] + count for each in ("sends acknowledged", "records given"))
        await until(lambda: run.counts["sends acknowledged"] >= sent, "acknowledgements", actors)
        await until(lambda: run.counts["records given"] >= read, "records", actors)

    timeout_ms = round(PATIENCE_SECONDS * 1000)
    async with Admin(cluster.bootstrap, default_api_timeout_ms=timeout_ms) as admin:
        for victim in (leader, coordinator, controller):
            await more()
            node = await victim(admin, cluster)
            await asyncio.to_thread(cluster.kill, node)
            made = f"without-the-{victim.__name__}"
            await admin.create_topic(made, partitions=2, replication=2)
            await more()
            assert len((await admin.describe_topic(made)).partitions) == 2
            await asyncio.to_thread(cluster.start, node)
            for partition in range(PARTITIONS):
                await asyncio.to_thread(
                    cluster.wait_isr, TOPIC, partition, timeout=PATIENCE_SECONDS
                )
    run.sending = False
    await asyncio.wait_for(asyncio.gather(*producers), PATIENCE_SECONDS)
    run.history.final = await read_all(run)
    await until_all_given(run, consumers)
    run.reading = False
    await asyncio.wait_for(asyncio.gather(*consumers), PATIENCE_SECONDS)


async def until(holds: Callable[[], bool], what: str, actors: list[asyncio.Task[None]]) -> None:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                raise_if_failed(actors)
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"no more {what} within {PATIENCE_SECONDS:g} s") from None
