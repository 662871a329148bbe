"""Listeners, voters and the other addresses in a node's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.config.values import ConfigError

PLAINTEXT = "PLAINTEXT"
SECURITY_PROTOCOLS = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SASL_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")

_LISTENER = r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]+)"
_VOTER = r"(\d+)@(.+):(\d+)"
_HOST = r"\[?[0-9a-zA-Z\-%._:]+\]?"
PORT_MAX = 65535
WILDCARDS = ("", "0.0.0.0", "::")  # hosts that mean every interface


class Listener(NamedTuple):
    """An address with a name. An empty host means every interface."""

    name: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


METRICS_LISTEN = "headwater.metrics.listen"


def parse_host_port(key: str, text: str) -> tuple[str, int]:
    """Parses HOST:PORT. An empty host means every interface, port 0 any free port."""
    host, colon, port = text.strip().rpartition(":")
    if (
        not colon
        or not port.isascii()
        or not port.isdigit()
        or int(port) > PORT_MAX
        or (host and not re.fullmatch(_HOST, host))
    ):
        raise ConfigError(key, text, "expected HOST:PORT such as 127.0.0.1:9404")
    return host.strip("[]"), int(port)


class Voter(NamedTuple):
    node_id: int
    host: str
    port: int


def parse_protocol_map(key: str, text: str) -> dict[str, str]:
    """Parses NAME:PROTOCOL,... into a dict with upper-case names."""
    protocols: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = item.rpartition(":")
        if not colon or protocol.strip().upper() not in SECURITY_PROTOCOLS:
            raise ConfigError(
                key, text, f"expected NAME:PROTOCOL with one of {', '.join(SECURITY_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def parse_listeners(
    key: str, items: Iterable[str], protocols: Mapping[str, str], *, ports_differ: bool = True
) -> tuple[Listener, ...]:
    """Parses listeners in order; raises ConfigError if one is malformed, has no protocol, or
    conflicts with another."""
    listeners = tuple(_parse_listener(key, item, protocols) for item in items)
    names = [listener.name for listener in listeners]
    if len(set(names)) != len(names):
        raise ConfigError(key, ",".join(items), "expected a different name for each listener")
    if ports_differ:
        _require_different_ports(key, listeners)
    return listeners


def _parse_listener(key: str, item: str, protocols: Mapping[str, str]) -> Listener:
    match = re.fullmatch(_LISTENER, item.strip())
    if match is None:
        raise ConfigError(key, item, "expected NAME://host:port")
    name, host, port = match[1].upper(), match[2], int(match[3])
    if not name:
        raise ConfigError(key, item, "expected a name before ://")
    if not 0 <= port <= PORT_MAX:
        raise ConfigError(key, item, f"expected a port from 0 to {PORT_MAX}")
    if name not in protocols:
        raise ConfigError(
            key, item, f"expected {name} to have a protocol in listener.security.protocol.map"
        )
    return Listener(name, protocols[name], host, port)


def _require_different_ports(key: str, listeners: Iterable[Listener]) -> None:
    taken: dict[int, list[Listener]] = {}
    for listener in listeners:
        if listener.port == 0:
            continue
        others = taken.setdefault(listener.port, [])
        # An IPv4 and an IPv6 address may share a port: a host with both has a socket for each.
        if any(not _one_of_each_family(listener.host, other.host) for other in others):
            raise ConfigError(key, str(listener), "expected a different port for each listener")
        others.append(listener)


def _one_of_each_family(left: str, right: str) -> bool:
    return (":" in left and _is_ipv4(right)) or (":" in right and _is_ipv4(left))


def _is_ipv4(host: str) -> bool:
    parts = host.split(".")
    return len(parts) == 4 and all(part.isdigit() and int(part) < 256 for part in parts)


def parse_voters(key: str, items: Iterable[str]) -> tuple[Voter, ...]:
    """Parses id@host:port,... in order."""
    voters = []
    for item in items:
        match = re.fullmatch(_VOTER, item)
        if match is None or int(match[3]) > PORT_MAX:
            raise ConfigError(key, item, "expected id@host:port")
        voters.append(Voter(int(match[1]), match[2].strip("[]"), int(match[3])))
    return tuple(voters)


def parse_servers(key: str, items: Iterable[str]) -> tuple[tuple[str, int], ...]:
    """Parses host:port,... in order."""
    servers = []
    for item in items:
        host, _, port = item.rpartition(":")
        if not host or not port.isdigit() or int(port) > PORT_MAX:
            raise ConfigError(key, item, "expected host:port")
        servers.append((host.strip("[]"), int(port)))
    return tuple(servers)


def parse_connection_overrides(key: str, text: str) -> dict[str, int]:
    """Parses host:count,..., the connection limits of particular addresses."""
    overrides: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, _, count = item.rpartition(":")
        if not re.fullmatch(_HOST, host.strip()) or not count.strip().isdigit():
            raise ConfigError(key, text, "expected host:count,host:count,...")
        overrides[host.strip().strip("[]")] = int(count)
    return overrides
