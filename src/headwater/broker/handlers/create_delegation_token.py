"""CreateDelegationToken: forwarded, except for clients that must not have tokens."""

from __future__ import annotations

from headwater.broker.tokens import forward as handle

__all__ = ["handle"]
