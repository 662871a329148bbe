"""Ranges of offsets, read without a group; against a broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harness.wire import Wire, batch
from headwater import OffsetOutOfRange, TopicPartition, UnknownTopic, _core
from headwater.client.cluster import Cluster
from headwater.client.config import ClientConfig
from headwater.client.ranges import RangeReader, TopicRecreated
from headwater.io import Host
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story


@asynccontextmanager
async def reader(broker: EmbeddedBroker, **options: Any) -> AsyncIterator[RangeReader]:
    cluster = Cluster(ClientConfig.build(broker.bootstrap), Host.system())
    await cluster.start()
    try:
        yield RangeReader(cluster, **options)
    finally:
        await cluster.close()


async def offsets(ranges: RangeReader, tp: TopicPartition, start: int, end: int) -> list[int]:
    found: list[int] = []
    async for chunk in ranges.chunks(tp, start, end):
        records = _core.FetchedRecords(
            chunk.data, topic=tp.topic, partition=tp.partition, from_offset=chunk.from_offset
        )
        found += [record.offset for record in records.take(10_000) if record.offset < end]
    return found


@pytest.fixture
def filled(wire: Wire, topic: str) -> TopicPartition:
    """Forty records in batches of four."""
    wire.create_topic(topic)
    for _ in range(10):
        wire.produce(topic, batch([b"x" * 100] * 4))
    return TopicPartition(topic, 0)


@pytest.mark.parametrize(("start", "end"), [(0, 40), (5, 6), (3, 33), (7, 7)])
@story
async def test_a_range_has_all_its_records_whatever_the_batches_are(
    shared_broker: EmbeddedBroker, filled: TopicPartition, start: int, end: int
) -> None:
    async with reader(shared_broker, fetch_bytes=1000) as ranges:
        assert await offsets(ranges, filled, start, end) == list(range(start, end))


@story
async def test_an_offset_that_is_not_in_the_log_is_named_with_those_that_are(
    shared_broker: EmbeddedBroker, filled: TopicPartition
) -> None:
    async with reader(shared_broker) as ranges:
        with pytest.raises(OffsetOutOfRange, match=f"{filled}: offset 50 .* has 0 up to 40") as hit:
            await offsets(ranges, filled, 50, 60)
    assert (hit.value.topic, hit.value.partition, hit.value.offset) == (*filled, 50)


@story
async def test_a_topic_that_was_created_again_is_not_read_for_the_one_before(
    shared_broker: EmbeddedBroker, filled: TopicPartition
) -> None:
    async with reader(shared_broker) as ranges:
        chunks = ranges.chunks(filled, 0, 40, topic_id=b"\x07" * 16)
        with pytest.raises(TopicRecreated, match="deleted and created again"):
            await anext(chunks)


@story
async def test_a_topic_that_does_not_exist_is_waited_for_no_longer_than_said(
    shared_broker: EmbeddedBroker, topic: str
) -> None:
    async with reader(shared_broker, patience_ms=300) as ranges:
        with pytest.raises(UnknownTopic, match=topic):
            await offsets(ranges, TopicPartition(topic, 0), 0, 1)
