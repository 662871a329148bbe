"""Batches that one process makes and another one sends, in a transaction of a third."""

from __future__ import annotations

import asyncio
from random import Random

import pyarrow as pa

from headwater import Consumer
from headwater.client.config import ProducerConfig
from headwater.client.producer.sealed import BatchMaker, SealedBatch
from headwater.client.producer.shared import TransactionOwner, joining, rejoin, submit_sealed
from headwater.model import TopicPartition
from headwater.testing import EmbeddedBroker


def sealed(topic: str, keys: range, partitions: int = 2) -> list[SealedBatch]:
    config = ProducerConfig.build(
        "localhost:1", compression_type="lz4", batch_size=2000, transactional_id="maker"
    )
    maker = BatchMaker(config, Random(7))
    rows = pa.RecordBatch.from_pydict(
        {"key": [str(key) for key in keys], "value": [f"{key:050}" for key in keys]}
    )
    at, unknown = maker.add(rows, topic, 0)
    assert (at, unknown) == (0, topic)
    maker.know(topic, partitions)
    assert maker.add(rows, topic, at) == (len(keys), None)
    batches = maker.take() + maker.finish()
    assert len(batches) > 2
    assert sum(batch.rows for batch in batches) == len(keys)
    return batches


async def read(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """Returns the committed keys of each partition, in order."""
    found: dict[int, list[int]] = {}
    async with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(*partitions)
        while [tp for tp in partitions if await consumer.position(tp) < ends[tp]]:
            for record in await consumer.poll(timeout_ms=1000):
                found.setdefault(record.partition, []).append(int(record.key))
    return found


def test_sealed_batches_are_sent_in_order_under_each_transaction_of_the_owner(
    shared_broker: EmbeddedBroker, topic: str
) -> None:
    bootstrap = shared_broker.bootstrap

    async def run() -> dict[int, list[int]]:
        async with TransactionOwner(bootstrap, transactional_id=f"{topic}-owner") as owner:
            handle = await owner.begin()
            async with joining(handle, bootstrap) as producer:
                for batch in sealed(topic, range(300)):
                    await submit_sealed(producer, batch)
                await producer.flush()
                await owner.commit()
                rejoin(producer, await owner.begin())
                for batch in sealed(topic, range(300, 600)):
                    await submit_sealed(producer, batch)
                await producer.flush()
                await owner.send_offsets({TopicPartition(topic, 1): 7}, f"{topic}-group")
                await owner.commit()
            marker = await owner.committed(f"{topic}-group", [TopicPartition(topic, 1)])
            kept = marker[TopicPartition(topic, 1)]
            assert kept is not None
            assert kept.offset == 7
        return await read(bootstrap, topic)

    from headwater.blocking import Admin

    with Admin(bootstrap) as admin:
        admin.create_topic(topic, partitions=2)
    found = asyncio.run(run())
    assert sorted(key for keys in found.values() for key in keys) == list(range(600))
    assert all(keys == sorted(keys) for keys in found.values())
