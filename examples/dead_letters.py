"""Records that cannot be deserialized go to a dead-letter topic, and reading goes on.

python examples/dead_letters.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import json
import sys

from headwater import Admin, Consumer, DeadLetter, Producer


async def publish(address: str) -> None:
    async with Admin(address) as admin:
        for topic in ("payments", "payments.dead"):
            await admin.create_topic(topic)
    async with Producer(address) as producer:
        await producer.send("payments", value=b'{"cents": 500}')
        await producer.send("payments", value=b'{"cents": ')
        await producer.send("payments", value=b'{"cents": 250, "last": true}')


async def read_payments(address: str) -> None:
    async with (
        Producer(address) as producer,
        Consumer(
            address,
            topics=["payments"],
            auto_offset_reset="earliest",
            value_deserializer=json.loads,
            on_bad_record=DeadLetter("payments.dead", producer),
        ) as consumer,
    ):
        async for payment in consumer:
            print(f"paid {payment.value['cents']} cents")
            if payment.value.get("last"):
                break


async def show_dead_letters(address: str) -> None:
    async with Consumer(address, topics=["payments.dead"], auto_offset_reset="earliest") as letters:
        for letter in await letters.poll(timeout_ms=10_000):
            about = {
                name.removeprefix("__headwater.errors."): value.decode()
                for name, value in letter.headers
                if value is not None
            }
            print(
                f"dead letter {letter.value} of {about['topic']}-{about['partition']} "
                f"@{about['offset']}: {about['part']}, {about['exception']}"
            )


async def main(address: str) -> None:
    await publish(address)
    await read_payments(address)
    await show_dead_letters(address)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
