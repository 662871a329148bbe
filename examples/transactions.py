"""Writes to two topics in one transaction, and processes a topic exactly once.

python examples/transactions.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from headwater import Admin, Consumer, NewTopic, Producer, blocking, exactly_once


async def all_or_nothing(address: str) -> None:
    async with Producer(address, transactional_id="billing-1") as producer:
        async with producer.transaction():
            await producer.send("invoices", key="alice", value=b"12.50")
            producer.submit("ledger", key="alice", value=b"-12.50")
        try:
            async with producer.transaction():
                await producer.send("invoices", key="bob", value=b"1.00")
                raise LookupError("no account of this name")
        except LookupError as error:
            print(f"aborted: {error}")


def invoice(order: bytes | None) -> bytes:
    return b"invoice for " + (order or b"nothing")


async def consume_transform_produce(address: str, orders: int) -> None:
    async with (
        Consumer(
            address,
            group="billing",
            topics=["orders"],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        Producer(address, transactional_id="billing-2") as producer,
    ):
        done = 0
        async for batch in exactly_once(consumer, producer):
            for record in batch:
                producer.submit("invoices", key=record.key, value=invoice(record.value))
            done += len(batch)
            if done == orders:
                await batch.commit()  # leaving the loop would abort what is not committed
                break
        print(f"{done} orders, each invoiced once")


def from_a_script(address: str) -> None:
    with blocking.Producer(address, transactional_id="billing-3") as producer:
        for number in range(3):
            with producer.transaction():
                producer.submit("ledger", value=f"entry {number}")


async def two_phase_commit(producer: Producer, database: Any) -> None:
    """Commits in a database and here, or nowhere. Not called: it needs brokers that allow it."""
    async with producer.transaction():
        await producer.send("ledger", value=b"-12.50")
        prepared = await producer.prepare_transaction()
        database.commit(marker=str(prepared))
        await producer.complete_transaction(prepared)


async def read_committed(address: str) -> None:
    async with Consumer(
        address,
        topics=["invoices"],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    ) as consumer:
        seen = 0
        while records := await consumer.poll(timeout_ms=2000):
            seen += len(records)
            assert not any(record.key == b"bob" for record in records)
        print(f"{seen} invoices can be seen")


async def main(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topics(
            [NewTopic(name, partitions=2) for name in ("orders", "invoices", "ledger")]
        )
    async with Producer(address) as producer:
        for number in range(100):
            producer.submit("orders", key=f"customer {number % 7}", value=f"order {number}")
    await all_or_nothing(address)
    await consume_transform_produce(address, orders=100)
    await asyncio.to_thread(from_a_script, address)
    await read_committed(address)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
