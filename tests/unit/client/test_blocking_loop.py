"""The thread with the loop behind a blocking client."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NoReturn

import pytest

from headwater._blocking.loop import LoopThread
from headwater.client.errors import ClientClosed, Forked, RequestTimedOut, WrongLoop


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread()
    yield loop
    loop.close()


async def for_ever(ended: threading.Event | None = None) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        if ended is not None:
            ended.set()


def test_a_call_returns_what_the_coroutine_returns(loop: LoopThread) -> None:
    async def double(number: int) -> int:
        return 2 * number

    assert loop.call(lambda: double(21)) == 42


def test_a_call_raises_what_the_coroutine_raises(loop: LoopThread) -> None:
    async def fail() -> NoReturn:
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.call(fail)


def test_a_call_with_wrong_arguments_raises_as_a_plain_call_does(loop: LoopThread) -> None:
    with pytest.raises(TypeError):
        loop.call(lambda: for_ever(1, 2))  # type: ignore[call-arg, arg-type]


def test_a_timeout_of_the_coroutine_is_its_own(loop: LoopThread) -> None:
    async def fail() -> NoReturn:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        loop.call(fail, timeout_ms=60_000)


def test_a_call_ends_in_its_time_and_its_coroutine_with_it(loop: LoopThread) -> None:
    ended = threading.Event()
    with pytest.raises(RequestTimedOut, match="20 ms"):
        loop.call(lambda: for_ever(ended), timeout_ms=20)
    assert ended.wait(20)


def test_many_threads_may_call_at_once(loop: LoopThread) -> None:
    async def same(number: int) -> int:
        await asyncio.sleep(0)
        return number

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: loop.call(lambda: same(number)), range(500)))
    assert found == list(range(500))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """As in a program of its own: where tests run in parallel, interrupts are ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_comes_out_and_ends_the_coroutine(loop: LoopThread) -> None:
    ended = threading.Event()

    async def interrupted() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        await for_ever(ended)

    with pytest.raises(KeyboardInterrupt):
        loop.call(interrupted)
    assert ended.wait(20)

    async def still_there() -> bool:
        return True

    assert loop.call(still_there)


def test_a_closed_loop_says_so(loop: LoopThread) -> None:
    closed = threading.Event()

    async def last() -> None:
        closed.set()

    loop.close(last)
    assert closed.is_set()
    with pytest.raises(ClientClosed):
        loop.call(for_ever)
    loop.close(last)


def test_closing_ends_what_is_left(loop: LoopThread) -> None:
    ended = threading.Event()
    begun = threading.Event()

    async def left() -> None:
        begun.set()
        await for_ever(ended)

    loop.soon(lambda: asyncio.ensure_future(left()))
    assert begun.wait(20)
    loop.close()
    assert ended.wait(20)


def test_closing_ends_a_call_of_another_thread(loop: LoopThread) -> None:
    begun = threading.Event()

    async def waiting() -> None:
        begun.set()
        await for_ever()

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loop.call, waiting)
        assert begun.wait(20)
        loop.close()
        with pytest.raises(ClientClosed):
            call.result(20)


def test_a_call_while_another_thread_closes_ends() -> None:
    async def nothing() -> None: ...

    for _ in range(50):
        loop = LoopThread()
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(loop.call, nothing) for _ in range(8)]
            loop.close()
            for call in calls:
                error = call.exception(20)
                assert error is None or isinstance(error, ClientClosed)


def test_a_failing_close_ends_the_thread_all_the_same(loop: LoopThread) -> None:
    async def last() -> NoReturn:
        raise KeyError("x")

    with pytest.raises(KeyError):
        loop.close(last)
    assert loop.is_closed


def test_a_callback_in_the_loop_may_not_wait_for_the_loop(loop: LoopThread) -> None:
    async def inner() -> None:
        with pytest.raises(WrongLoop):
            loop.call(for_ever)

    loop.call(inner)


def test_a_fork_has_no_thread(loop: LoopThread) -> None:
    child = os.fork()
    if child == 0:
        try:
            loop.call(for_ever)
        except Forked:
            loop.close()
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_program_that_forgets_to_close_ends() -> None:
    import subprocess
    import sys

    program = "from headwater._blocking.loop import LoopThread; LoopThread(); print('end')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    assert (done.stdout, done.stderr) == ("end\n", "")
