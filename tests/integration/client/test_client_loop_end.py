"""Loops and programs that end before the clients and brokers on them are closed."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE_CLIENTS = """
import asyncio, gc
from headwater import Admin, Consumer, Producer
from headwater.testing import EmbeddedBroker

broker = EmbeddedBroker(topics={"t": 1}).start()

async def use_clients():
    producer = Producer(broker.bootstrap)
    await producer.start()
    await producer.send("t", value=b"x")
    consumer = Consumer(broker.bootstrap, group="g", topics=["t"], auto_offset_reset="earliest")
    await consumer.start()
    await consumer.poll(timeout_ms=20_000)
    admin = Admin(broker.bootstrap)
    await admin.start()
    await admin.list_topics()
    return producer, consumer, admin
"""

ENDS = {
    "asyncio.run ends": "asyncio.run(use_clients())",
    "the loop is closed": """
loop = asyncio.new_event_loop()
clients = loop.run_until_complete(use_clients())
loop.close()
del clients
gc.collect()
""",
    "the loop is left": """
loop = asyncio.new_event_loop()
clients = loop.run_until_complete(use_clients())
""",
    "the clients are dropped": """
async def drop():
    await use_clients()
    gc.collect()
    await asyncio.sleep(0)
    gc.collect()

asyncio.run(drop())
""",
    "blocking clients are left": """
from headwater.blocking import Consumer, Producer

producer = Producer(broker.bootstrap)
producer.send("t", value=b"x")
consumer = Consumer(broker.bootstrap, group="g", topics=["t"], auto_offset_reset="earliest")
consumer.poll(timeout_ms=20_000)
""",
    "the broker stops under waiting requests": """
async def stop():
    clients = await use_clients()
    waiting = asyncio.ensure_future(clients[1].poll(timeout_ms=60_000))
    await asyncio.to_thread(broker.stop)
    waiting.cancel()

asyncio.run(stop())
""",
}


@pytest.mark.parametrize("end", ENDS)
def test_no_task_is_reported_as_destroyed(end: str) -> None:
    program = [sys.executable, "-X", "dev", "-c", USE_CLIENTS + ENDS[end]]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 0, ended.stderr
    for complaint in ("destroyed", "never awaited", "never retrieved", "Traceback"):
        assert complaint not in ended.stderr, ended.stderr
