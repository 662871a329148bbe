"""Connections of the listeners, and who could not authenticate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from headwater.net import Server
from headwater.net.server import ListenerCounts
from headwater.observability.measures import RecentRate
from headwater.observability.registry import Family, Item, Kind, Labels, Sample

_SOCKETS = "kafka_server_socket_server_metrics"
_PROGRAMS_MAX = 100
_LENGTH_MAX = 100  # of the name and the version of a program
_AT_ONCE = 50  # connections that are looked at in one step
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
    def __init__(self, now: Callable[[], float], *servers: Server) -> None:
        self._servers = servers
        self._now = now
        self._rates: dict[tuple[str, str], RecentRate] = {}  # by listener and what is counted

    def collect(self) -> Iterator[Item]:
        yield from self._programs()
        yield Family(f"{_SOCKETS}_connection_count", "gauge", "Open connections, by listener.")
        for server in self._servers:
            for name, count in server.open_connections().items():
                yield Sample(Labels(listener=name), count)
        closed = [(listener, count) for listener, _, count in self._totals()]
        yield Family(f"{_SOCKETS}_connection_close_total", "counter", "Connections closed.")
        for listener, count in closed:
            yield Sample(Labels(listener=listener), count)
        for name, (what, value) in _COUNTS.items():
            kind: Kind = "counter" if name.endswith("_total") else "gauge"  # by Kafka's name
            yield Family(f"{_SOCKETS}_{name}", kind, what)
            for server in self._servers:
                for listener, counts in tuple(server.counts.items()):
                    yield Sample(Labels(listener=listener), value(counts))

    def _programs(self) -> Iterator[Item]:
        """Connections by what clients say they are. They may say anything: so many are told apart,
        the others are one."""
        counts: Counter[tuple[str, str, str]] = Counter()
        for server in self._servers:
            for number, connection in enumerate(tuple(server.connections)):
                name, version = (text[:_LENGTH_MAX] for text in connection.software)
                key = connection.listener, name, version
                if key not in counts and len(counts) >= _PROGRAMS_MAX:
                    key = connection.listener, "other", "other"
                counts[key] += 1
                if number % _AT_ONCE == 0:
                    yield None
        yield Family(
            f"{_SOCKETS}_connections",
            "gauge",
            f"Open connections by the client's program; {_PROGRAMS_MAX} of them, then other.",
        )
        for (listener, name, version), count in counts.items():
            labels = Labels(
                client_software_name=name, client_software_version=version, listener=listener
            )
            yield Sample(labels, count)

    def collect_rates(self) -> Iterator[Item]:
        """Rates, for dashboards that take no counters."""
        now, totals = self._now(), self._totals()
        for name, what, counts in (
            ("creation", "accepted", [(listener, count) for listener, count, _ in totals]),
            ("close", "closed", [(listener, count) for listener, _, count in totals]),
        ):
            yield Family(
                f"{_SOCKETS}_connection_{name}_rate",
                "gauge",
                f"Connections {what} per second, in the last one to two minutes.",
            )
            for listener, count in counts:
                rate = self._rates.setdefault((listener, name), RecentRate())
                yield Sample(Labels(listener=listener), rate.read(count, now))

    def _totals(self) -> list[tuple[str, int, int]]:
        """Returns how many connections each listener has accepted, and how many of them have ended.

        All are read in one step: connections come and go while a scrape pauses, and one that is
        accepted after those that are open were counted would look as if it had ended."""
        totals = []
        for server in self._servers:
            open_now = server.open_connections()
            for listener, counts in server.counts.items():
                totals.append((listener, counts.accepted, counts.accepted - open_now[listener]))
        return totals
