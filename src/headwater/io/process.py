"""Which process this is: what a fork leaves behind must not be used in the child."""

from __future__ import annotations

import os
from typing import Protocol
from weakref import WeakSet


class ForkAware(Protocol):
    def on_fork(self) -> None:
        """This is a child process, and what was made in its parent is here a copy."""


_process_id = os.getpid()
_watching: WeakSet[ForkAware] = WeakSet()


def process_id() -> int:
    """Asked for at every call of a client, so without a system call."""
    return _process_id


def watch_forks(each: ForkAware) -> None:
    """Has `on_fork` called in every child process, as long as somebody holds it."""
    _watching.add(each)


def _forked() -> None:
    global _process_id
    _process_id = os.getpid()
    for each in list(_watching):
        each.on_fork()


os.register_at_fork(after_in_child=_forked)
