"""DescribeConfigs on a controller: answered as by a broker."""

from __future__ import annotations

from headwater.broker.handlers.describe_configs import handle

__all__ = ["handle"]
