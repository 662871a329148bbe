"""ApiVersions on a controller: answered as by a broker."""

from __future__ import annotations

from headwater.broker.handlers.api_versions import handle

__all__ = ["handle"]
