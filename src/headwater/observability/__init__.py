"""What a running node says of itself: log lines now, metrics and traces as they come."""

from headwater.observability.logs import Log, printable

__all__ = ["Log", "printable"]
