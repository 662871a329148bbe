"""Which process this is: what a fork leaves behind must not be used in the child."""

from __future__ import annotations

import os


def process_id() -> int:
    return os.getpid()
