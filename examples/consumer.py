"""Reading with Headwater's consumer: one by one, many at once, and as a table.

python examples/consumer.py 127.0.0.1:9092 orders
"""

from __future__ import annotations

import asyncio
import sys

from headwater import Consumer


async def one_by_one(address: str, topic: str) -> None:
    """As a member of a group: its members share the partitions, and the group remembers how far
    they are. What is done with a record counts when the next one is asked for."""
    async with Consumer(
        address, group="examples", topics=[topic], auto_offset_reset="earliest"
    ) as consumer:
        async for record in consumer:
            print(f"{record.topic}-{record.partition} @{record.offset}: {record.value.decode()}")
            if consumer.lag((record.topic, record.partition)) == 0:
                break


async def many_at_once(address: str, topic: str) -> None:
    """Without a group: all partitions, from the beginning, as often as you like."""
    async with Consumer(address, topics=[topic], auto_offset_reset="earliest") as consumer:
        records = await consumer.poll(timeout_ms=10_000, records_max=1000)
        print(f"polled {len(records)} records, keys {sorted({r.key for r in records if r.key})}")


async def as_a_table(address: str, topic: str) -> None:
    """Columns for pyarrow, pandas or polars; no Python object is made for any record."""
    async with Consumer(address) as consumer:
        consumer.assign(await consumer.partitions_for(topic))
        await consumer.seek_to_beginning()
        table = await consumer.poll_arrow(rows_max=100_000, timeout_ms=10_000)
        print(f"a table of {table.num_rows} rows: {', '.join(table.column_names)}")


async def main(address: str, topic: str) -> None:
    await one_by_one(address, topic)
    await many_at_once(address, topic)
    await as_a_table(address, topic)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
