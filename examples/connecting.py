"""Connecting, settings and errors of the clients.

python examples/connecting.py 127.0.0.1:9092
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import headwater
from headwater import Admin, Producer, blocking


async def asynchronous(address: str) -> None:
    # Keywords in Python's spelling of Kafka's names, a dict with Kafka's own names, or both.
    async with Admin(address, client_id="tour", config={"request.timeout.ms": "5000"}) as admin:
        cluster = await admin.describe_cluster()
        print(f"{len(cluster.nodes)} node")


def from_a_script(address: str) -> None:
    # The same names and calls without `await`; a thread in the background has the event loop.
    with blocking.Admin(address) as admin:
        print(f"{len(admin.describe_cluster().nodes)} node")


def accepted_settings(address: str) -> None:
    Producer(address, linger_ms=20, compression_type="zstd")
    Producer(address, config={"linger.ms": "20", "compression.type": "zstd"})


def refused_settings(address: str) -> None:
    wrong: list[dict[str, Any]] = [{"request_timeout": 5000}, {"request_timeout_ms": "soon"}]
    for settings in wrong:
        try:
            blocking.Admin(address, **settings)
        except headwater.ConfigError as error:
            print(error)


async def nobody_there() -> None:
    try:
        async with Admin("127.0.0.1:1", start_timeout_ms=500):
            pass
    except headwater.BrokersUnavailable as error:
        print(error)


def main(address: str) -> None:
    asyncio.run(asynchronous(address))
    from_a_script(address)
    accepted_settings(address)
    refused_settings(address)
    asyncio.run(nobody_there())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
