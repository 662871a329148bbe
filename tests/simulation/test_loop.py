"""Virtual time: everything of asyncio works, nothing waits, a crash is sudden."""

from __future__ import annotations

import asyncio
import time

import pytest

from headwater.testing.sim.loop import Stuck
from headwater.testing.sim.world import World


def test_sleep_takes_no_time_and_the_clock_moves() -> None:
    world = World(1)
    before, now = time.monotonic(), world.loop.time()

    world.run(asyncio.sleep(3600))

    assert world.loop.time() == now + 3600
    assert time.monotonic() - before < 60


def test_timeouts_groups_queues_and_locks_work() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        lock = asyncio.Lock()

        async def put(name: str) -> None:
            async with lock:
                await asyncio.sleep(1)
                await queue.put(name)

        async def get() -> None:
            while len(seen) < 3:
                seen.append(await queue.get())

        async with asyncio.TaskGroup() as group:
            for name in "abc":
                group.create_task(put(name))
            group.create_task(get())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.get_running_loop().create_future()
        done, pending = await asyncio.wait(
            [asyncio.ensure_future(asyncio.sleep(n)) for n in (1, 10)], timeout=2
        )
        seen.append(f"{len(done)} {len(pending)}")
        return seen

    assert World(1).run(main()) == ["a", "b", "c", "1 1"]


def test_a_set_of_tasks_has_the_same_order_every_time() -> None:
    async def main() -> list[int]:
        tasks = {asyncio.ensure_future(asyncio.sleep(0)) for _ in range(50)}
        numbers = [task.number for task in tasks]  # type: ignore[attr-defined]
        await asyncio.gather(*tasks)
        return numbers

    assert World(1).run(main()) == World(1).run(main())


def test_waiting_for_nothing_is_an_error_and_not_a_hang() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        World(1).run(main())


def test_threads_and_names_are_refused() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        with pytest.raises(RuntimeError, match="threads"):
            loop.run_in_executor(None, print)
        with pytest.raises(RuntimeError, match="names"):
            await loop.getaddrinfo("localhost", 80)

    World(1).run(main())


def test_a_crash_runs_no_finally_and_no_timer() -> None:
    world = World(1)
    machine = world.machine("m")
    seen: list[str] = []

    async def work() -> None:
        asyncio.get_running_loop().call_later(5, seen.append, "timer")
        child = asyncio.ensure_future(asyncio.sleep(5))
        try:
            await child
            seen.append("woke")
        finally:
            seen.append("finally")

    async def main() -> None:
        machine.boot()
        machine.spawn(work())
        await asyncio.sleep(1)
        machine.crash(power_cut=False)
        await asyncio.sleep(10)

    world.run(main())

    assert seen == []


def test_workers_do_each_job_whole_at_a_later_moment_in_any_order() -> None:
    world = World(3)
    machine = world.machine("m")

    async def main() -> list[int]:
        workers = machine.boot().workers
        order: list[int] = []

        def job(number: int) -> int:
            order.append(number)
            return number * 2

        results = await asyncio.gather(*(workers.run(lambda n=n: job(n)) for n in range(20)))  # type: ignore[misc]
        assert results == [n * 2 for n in range(20)]
        with pytest.raises(ZeroDivisionError):
            await workers.run(lambda: 1 // 0)
        return order

    order = world.run(main())
    assert sorted(order) == list(range(20))
    assert order != sorted(order)


def test_a_paused_machine_runs_nothing_until_it_is_resumed() -> None:
    world = World(1)
    machine = world.machine("m")
    seen: list[tuple[str, float]] = []

    def see(what: str) -> None:
        seen.append((what, world.loop.time() - 1_000.0))

    async def work() -> None:
        asyncio.get_running_loop().call_later(2, see, "timer")
        await asyncio.sleep(3)
        see("woke")
        await asyncio.sleep(3)
        see("woke again")

    async def main() -> None:
        machine.boot()
        machine.spawn(work())
        await asyncio.sleep(1)
        machine.pause()
        await asyncio.sleep(9)
        assert seen == []
        machine.resume()
        await asyncio.sleep(10)

    world.run(main())

    assert seen == [("timer", 10.0), ("woke", 10.0), ("woke again", 13.0)]


def test_a_paused_machine_may_crash() -> None:
    world = World(1)
    machine = world.machine("m")
    seen: list[str] = []

    async def work() -> None:
        try:
            await asyncio.sleep(2)
        finally:
            seen.append("finally")

    async def main() -> None:
        machine.boot()
        machine.spawn(work())
        await asyncio.sleep(1)
        machine.pause()
        await asyncio.sleep(5)
        machine.crash(power_cut=False)
        machine.boot()
        await asyncio.sleep(5)

    world.run(main())

    assert seen == []
