"""Administration from Python: topics, settings, offsets, groups.

python examples/admin.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import sys

from headwater import (
    Admin,
    ClientError,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
    or_raise,
    topic_config,
)


async def topics(address: str) -> None:
    async with Admin(address) as admin:
        wanted = [NewTopic("clicks", partitions=3), NewTopic("no good name")]
        for name, result in (await admin.create_topics(wanted)).items():
            if isinstance(result, ClientError):
                print(f"not created: {result}")
            else:
                print(f"{name} has {result.partitions} partitions")
        or_raise(await admin.delete_topics(["clicks"]))  # all of them, or the first error


async def settings(address: str) -> None:
    async with Admin(address) as admin:
        await admin.create_topic("audit", configs={"retention.ms": "3600000"})
        audit = topic_config("audit")
        await admin.alter_config(audit, {"cleanup.policy": "compact", "retention.ms": None})
        config = await admin.describe_config(audit)
        print(f"cleanup.policy is {config['cleanup.policy'].value}")


async def offsets(address: str) -> None:
    async with Producer(address) as producer:
        await producer.send("payments", value=b"10", partition=0)
    async with Admin(address) as admin:
        partition = TopicPartition("payments", 0)
        found = or_raise(await admin.list_offsets({partition: OffsetSpec.LATEST}))
        print(f"{partition} ends at {found[partition].offset}")
        or_raise(await admin.alter_group_offsets("billing", {partition: 0}))
        committed = await admin.group_offsets("billing")
        print(f"billing continues at {committed[partition].offset}")


def main(address: str) -> None:
    asyncio.run(topics(address))
    asyncio.run(settings(address))
    asyncio.run(offsets(address))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
