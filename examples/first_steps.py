"""First steps with a node: a record in, and all records of the topic out.

python examples/first_steps.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import sys

from headwater import Consumer, Producer


async def main(address: str) -> None:
    async with Producer(address) as producer:
        sent = await producer.send("greetings", key="second", value="hello from Python")
        print(f"sent to partition {sent.partition}, offset {sent.offset}")

    async with Consumer(address, topics=["greetings"], auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            print(f"{record.partition}/{record.offset}: {record.key} = {record.value}")
            if (record.partition, record.offset) == (sent.partition, sent.offset):
                break


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
