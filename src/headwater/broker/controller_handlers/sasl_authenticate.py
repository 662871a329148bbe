"""SaslAuthenticate on a controller: answered as by a broker."""

from __future__ import annotations

from headwater.broker.handlers.sasl_authenticate import handle

__all__ = ["handle"]
