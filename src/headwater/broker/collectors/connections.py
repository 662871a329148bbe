"""Connections of the listeners, and who could not authenticate."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headwater.net import Server
from headwater.net.server import ListenerCounts
from headwater.observability.registry import Family, Item, Kind, Labels, Sample

_SOCKETS = "kafka_server_socket_server_metrics"
_COUNTS: dict[str, tuple[str, Callable[[ListenerCounts], int]]] = {
    "connection_creation_total": ("Connections accepted.", lambda each: each.accepted),
    "expired_connections_killed_count": (
        "Connections closed because they were idle.",
        lambda each: each.expired,
    ),
    "connection_refused_total": (
        "Connections refused because a limit was reached.",
        lambda each: each.refused,
    ),
    "successful_authentication_total": (
        "Logins, by SASL or by certificate.",
        lambda each: each.authenticated,
    ),
    "failed_authentication_total": (
        "Logins and TLS handshakes that failed.",
        lambda each: each.failed_authentications,
    ),
}


class ConnectionCollector:
    def __init__(self, *servers: Server) -> None:
        self._servers = servers

    def collect(self) -> Iterator[Item]:
        yield Family(f"{_SOCKETS}_connection_count", "gauge", "Open connections, by listener.")
        for server in self._servers:
            for name, count in server.open_connections().items():
                yield Sample(Labels(listener=name), count)
        yield Family(f"{_SOCKETS}_connection_close_total", "counter", "Connections closed.")
        for server in self._servers:
            open_now = server.open_connections()
            for listener, counts in tuple(server.counts.items()):
                yield Sample(Labels(listener=listener), counts.accepted - open_now[listener])
        for name, (what, value) in _COUNTS.items():
            kind: Kind = "counter" if name.endswith("_total") else "gauge"  # by Kafka's name
            yield Family(f"{_SOCKETS}_{name}", kind, what)
            for server in self._servers:
                for listener, counts in tuple(server.counts.items()):
                    yield Sample(Labels(listener=listener), value(counts))
