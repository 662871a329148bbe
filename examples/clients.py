"""The clients in a few lines each: a producer, a consumer, an admin, a script, an error.

python examples/clients.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import sys

from headwater import (
    Admin,
    Consumer,
    InvalidRecord,
    Producer,
    RetriableError,
    TopicExists,
    blocking,
)


async def administer(address: str) -> None:
    async with Admin(address) as admin:
        try:
            await admin.create_topic("orders", partitions=3)
        except TopicExists:
            print("orders already exists")


async def produce(address: str) -> None:
    async with Producer(address) as producer:
        place = await producer.send("orders", key="alice", value=b"2 books")
        print(f"stored as {place}")


async def consume(address: str) -> None:
    async with Consumer(
        address, group="billing", topics=["orders"], auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            print(record.key, record.value)
            break


def from_a_script(address: str) -> None:
    with blocking.Producer(address) as producer:
        for number in range(1000):
            producer.submit("orders", value=f"order {number}")
        producer.flush()


async def survive(address: str) -> None:
    async with Producer(address) as producer:
        try:
            await producer.send("orders", value=bytes(2_000_000))
        except RetriableError as error:
            print(f"try again later: {error}")
        except InvalidRecord as error:
            print(f"invalid record: {error}")


def main(address: str) -> None:
    asyncio.run(administer(address))
    asyncio.run(produce(address))
    asyncio.run(consume(address))
    from_a_script(address)
    asyncio.run(survive(address))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
