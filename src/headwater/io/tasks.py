"""Background tasks of objects on an event loop that belongs to the user."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def background_task(work: Coroutine[Any, Any, T], *, name: str | None = None) -> asyncio.Task[T]:
    """Starts a task that may end with its loop, without notice.

    A user may close a loop without closing the clients on it. asyncio would then print "Task was
    destroyed but it is pending" for each of their tasks, about which the user can do nothing; a
    client that should have been closed says so itself.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    with contextlib.suppress(AttributeError):  # the loop may have a task factory of its own
        # asyncio's own switch for tasks that it creates itself; there is no public one.
        task._log_destroy_pending = False  # type: ignore[attr-defined]
    return task
