"""What makes commands start quickly."""

from __future__ import annotations

import sys


def import_asyncio() -> None:
    """asyncio without TLS: we do TLS ourselves where it is wanted, and `ssl` costs a tenth of a
    node's start and 3 MB."""
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # asyncio takes this for "not built"
    try:
        import asyncio  # noqa: F401
    finally:
        del sys.modules["ssl"]
