"""What a running node reports about itself: log lines and measures."""

from headwater.observability.logs import ROOT, Log, printable

__all__ = ["ROOT", "Log", "printable"]
