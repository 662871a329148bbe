"""Work in a worker that is finished even if nobody waits for it any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from headwater.io import Workers

T = TypeVar("T")


def nothing() -> None: ...


async def finish(
    workers: Workers, work: Callable[[], T], on_cancel: Callable[[], None] = nothing
) -> T:
    """The result of the work. A task that is cancelled meanwhile says so to the work (`on_cancel`)
    and stays until it is done: nobody closes or replaces the files that it has in its hands."""
    working = asyncio.ensure_future(workers.run(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        on_cancel()
        await asyncio.gather(working, return_exceptions=True)
        raise
