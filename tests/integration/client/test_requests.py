"""Requests that several clients send, against the embedded broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headwater.client.cluster import Cluster
from headwater.client.config import AdminConfig
from headwater.client.errors import UnknownTopic
from headwater.client.requests.list_offsets import (
    OffsetAndTimestamp,
    OffsetSpec,
    list_offsets,
    list_offsets_once,
)
from headwater.client.requests.offset_commit import (
    GroupMetadata,
    OffsetAndMetadata,
    commit_offsets,
    send_commit,
)
from headwater.client.requests.offset_fetch import fetch_offsets, send_fetch
from headwater.client.requests.offset_for_leader_epoch import EpochEnd, epoch_ends_once
from headwater.client.requests.routing import Router
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story

ORDERS = TopicPartition("orders", 0)


@asynccontextmanager
async def router(*, trusts_metadata: bool) -> AsyncIterator[Router]:
    with EmbeddedBroker(topics={"orders": 2}) as broker:
        cluster = Cluster(AdminConfig.build(broker.bootstrap), Host.system())
        await cluster.start()
        try:
            yield Router(cluster, trusts_metadata=trusts_metadata)
        finally:
            await cluster.close()


@story
async def test_a_client_that_trusts_its_metadata_asks_for_it_once() -> None:
    async with router(trusts_metadata=True) as trusting:
        for _ in range(2):
            found = await list_offsets(trusting, {ORDERS: OffsetSpec.LATEST}, timeout_ms=20_000)
            assert found == {ORDERS: OffsetAndTimestamp(0, -1, 0)}
        first = trusting.cluster.traffic.requests
        await list_offsets(trusting, {ORDERS: OffsetSpec.LATEST}, timeout_ms=20_000)
        assert trusting.cluster.traffic.requests == first + 1


@story
async def test_one_try_for_an_unknown_topic_has_metadata_refreshed_behind_it() -> None:
    async with router(trusts_metadata=True) as trusting:
        cluster = trusting.cluster
        deadline = cluster.deadline(20_000)
        wanted = {ORDERS: OffsetSpec.EARLIEST}
        found = await list_offsets_once(trusting, wanted, deadline=deadline)
        assert isinstance(found[ORDERS], UnknownTopic)
        await cluster.updated(deadline)
        found = await list_offsets_once(trusting, wanted, deadline=deadline)
        assert found == {ORDERS: OffsetAndTimestamp(0, -1, 0)}
        ends = await epoch_ends_once(trusting, {ORDERS: 0}, deadline=deadline)
        assert ends == {ORDERS: EpochEnd(0, 0)}


@story
async def test_a_partition_that_does_not_exist_is_told_apart_from_the_others() -> None:
    async with router(trusts_metadata=False) as fresh:
        missing = TopicPartition("orders", 7)
        found = await list_offsets(fresh, {ORDERS: -1, missing: -1}, timeout_ms=20_000)
        assert isinstance(found[ORDERS], OffsetAndTimestamp)
        assert "the topic has partitions 0 to 1" in str(found[missing])


@story
async def test_what_is_committed_by_name_or_by_id_is_fetched_back_either_way() -> None:
    async with router(trusts_metadata=True) as trusting:
        cluster = trusting.cluster
        deadline = cluster.deadline(20_000)
        topic = (await cluster.topics(["orders"], deadline=deadline))["orders"]
        ids = {"orders": topic.topic_id}
        other = TopicPartition("orders", 1)
        by_name = {ORDERS: OffsetAndMetadata(0, metadata="half way")}
        assert await commit_offsets(trusting, "billing", by_name) == {ORDERS: None}
        coordinator = await cluster.coordinator("billing", deadline=deadline)
        by_id = {other: OffsetAndMetadata(0)}
        codes = await send_commit(
            trusting,
            coordinator,
            GroupMetadata("billing"),
            by_id,
            topic_ids=ids,
            deadline=deadline,
        )
        assert codes == {other: 0}
        everything = await fetch_offsets(trusting, {"billing": None})
        assert everything == {"billing": by_name | by_id}
        again = await send_fetch(
            trusting,
            coordinator,
            {"billing": [ORDERS, other]},
            topic_ids=ids,
            require_stable=True,
            deadline=deadline,
        )
        assert again == everything
