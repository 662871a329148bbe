"""Which process this is: what a fork leaves behind must not be used in the child."""

from __future__ import annotations

import os

_process_id = os.getpid()


def process_id() -> int:
    """Asked for at every call of a client, so without a system call."""
    return _process_id


def _forked() -> None:
    global _process_id
    _process_id = os.getpid()


os.register_at_fork(after_in_child=_forked)
