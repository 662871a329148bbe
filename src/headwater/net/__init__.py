"""Bytes in, bytes out: listeners, connections, frames, limits. Knows no API."""

from headwater.net.connection import Answer, Connection, Dispatch, PendingResponse
from headwater.net.limits import NetLimits
from headwater.net.server import Server

__all__ = ["Answer", "Connection", "Dispatch", "NetLimits", "PendingResponse", "Server"]
