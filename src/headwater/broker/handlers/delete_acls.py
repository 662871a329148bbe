"""DeleteAcls: forwarded, except for requests with an unknown element."""

from __future__ import annotations

from headwater.broker.acl_requests import forward as handle

__all__ = ["handle"]
