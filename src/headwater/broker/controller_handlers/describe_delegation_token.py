"""DescribeDelegationToken on a controller: answered as by a broker."""

from __future__ import annotations

from headwater.broker.handlers.describe_delegation_token import handle

__all__ = ["handle"]
