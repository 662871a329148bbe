"""This process: its identity and its environment.

What a parent opened must not be used in a forked child.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_process_id = os.getpid()
_watching: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def process_id() -> int:
    """Returns the process id without a system call: clients ask at every call."""
    return _process_id


def environment_list(name: str) -> tuple[str, ...]:
    """Returns the items of a variable that has several, with commas."""
    items = os.environ.get(name, "").split(",")
    return tuple(item.strip() for item in items if item.strip())


def watch_forks(each: T, on_fork: Callable[[T], object]) -> None:
    """Has `on_fork(each)` called in every child process, as long as `each` is alive."""
    _watching[each] = on_fork


def _forked() -> None:
    global _process_id
    _process_id = os.getpid()
    for each, on_fork in list(_watching.items()):
        on_fork(each)


os.register_at_fork(after_in_child=_forked)
