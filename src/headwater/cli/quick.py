"""Quick starts: imports without parts that are slow to load."""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """Imports asyncio without `ssl`, which takes a tenth of a node's start and 3 MB. TLS is done by
    our own code, where it is needed."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio reads this as "not built"
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
