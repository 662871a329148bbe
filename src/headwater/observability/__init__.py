"""Log lines and measures, by which running nodes and clients are observed."""

from headwater.observability.logs import ROOT, Log, printable

__all__ = ["ROOT", "Log", "printable"]
