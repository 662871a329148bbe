"""Quotas from Python: set, shown, exceeded and removed.

python examples/quotas.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import sys

from headwater import QUOTA_DEFAULT, Admin, Producer, QuotaEntity, QuotaFilter, or_raise


async def limits(address: str) -> None:
    async with Admin(address) as admin:
        etl = QuotaEntity(user="alice", client_id="etl")
        everyone = QuotaEntity(client_id=QUOTA_DEFAULT)
        or_raise(
            await admin.alter_quotas(
                {
                    etl: {"producer_byte_rate": 1_000_000},
                    everyone: {"producer_byte_rate": 10_000_000, "request_percentage": 25},
                }
            )
        )
        for entity, quotas in (await admin.describe_quotas(QuotaFilter(user="alice"))).items():
            print(f"{entity}: {quotas}")
        or_raise(await admin.alter_quotas({etl: {"producer_byte_rate": None}}))


async def throttled(address: str) -> None:
    async with Admin(address) as admin, Producer(address, client_id="busy") as producer:
        await producer.send("orders", value=b"warm")
        busy = QuotaEntity(client_id="busy")
        or_raise(await admin.alter_quotas({busy: {"producer_byte_rate": 100}}))
        await producer.send("orders", value=b"x" * 1_200)  # as much as 12 seconds allow
        waited = producer.metrics()["produce-throttle-time-max"]
        print("the broker asked for a wait" if waited > 0 else "there was no wait")
        or_raise(await admin.alter_quotas({busy: {"producer_byte_rate": None}}))


async def main(address: str) -> None:
    await limits(address)
    await throttled(address)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
