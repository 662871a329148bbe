"""Sends records: awaited, submitted, and some that cannot be sent.

python examples/producer.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import json
import sys

from headwater import Producer, RecordTooLarge, blocking


async def asynchronous(address: str) -> None:
    async with Producer(address) as producer:
        # Waits for the acknowledgement and returns where the record is stored.
        place = await producer.send("orders", key="alice", value=b"2 books", headers={"v": b"1"})
        print(f"{place.topic}, partition {place.partition}, {place.value_size} bytes")

        # Queues the record and returns: thousands of records become a few requests.
        for number in range(10_000):
            producer.submit("orders", value=f"order {number}")
        await producer.flush()  # waits for all acknowledgements, or raises the first error

        try:
            await producer.send("orders", value=bytes(5_000_000))
        except RecordTooLarge as error:
            print(error)


async def as_json(address: str) -> None:
    async with Producer(
        address, value_serializer=lambda value: json.dumps(value).encode(), compression_type="zstd"
    ) as producer:
        await asyncio.gather(*(producer.send("orders", {"number": n}) for n in range(100)))
        print(f"{producer.metrics()['record-send-total']} sent as JSON")


def from_a_script(address: str) -> None:
    with blocking.Producer(address) as producer:
        producer.submit("orders", "from a script")
        producer.send("orders", "and acknowledged")


def main(address: str) -> None:
    asyncio.run(asynchronous(address))
    asyncio.run(as_json(address))
    from_a_script(address)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
