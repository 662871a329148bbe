"""Listeners, connections, frames and limits. Independent of the APIs that are served."""

from headwater.net.connection import Answer, Connection, Dispatch, PendingResponse
from headwater.net.limits import NetLimits
from headwater.net.server import Server

__all__ = ["Answer", "Connection", "Dispatch", "NetLimits", "PendingResponse", "Server"]
