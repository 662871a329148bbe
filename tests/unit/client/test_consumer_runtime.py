"""The background tasks of a consumer end with it, and are reported if they end before."""

from __future__ import annotations

import asyncio

from headwater.client.consumer.runtime import BackgroundTasks
from tests.support.fake_broker import story


@story
async def test_a_failed_task_is_reported() -> None:
    told: asyncio.Queue[BaseException] = asyncio.Queue()
    tasks = BackgroundTasks(told.put_nowait)

    async def work() -> None:
        raise AssertionError("we are wrong")

    tasks.spawn(work())
    assert str(await told.get()) == "we are wrong"


@story
async def test_tasks_end_when_they_are_cancelled() -> None:
    told: list[BaseException] = []
    tasks = BackgroundTasks(told.append)
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("yes")

    tasks.spawn(work())
    await asyncio.sleep(0)
    await tasks.cancel()
    assert (ended, told) == (["yes"], [])
    await tasks.cancel()
