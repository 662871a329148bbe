"""Limits on connections, frames and memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNLIMITED = 2_147_483_647
RECEIVING_BYTES_MAX = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener, on top of those of all."""

    connections_max: int = UNLIMITED  # max.connections
    connections_per_ip_max: int = UNLIMITED  # max.connections.per.ip
    connections_per_second_max: int = UNLIMITED  # max.connection.creation.rate


NO_LISTENER_LIMITS = ListenerLimits()


@dataclass(frozen=True, slots=True)
class NetLimits:
    frame_bytes_max: int = 104_857_600  # socket.request.max.bytes
    connections_max: int = UNLIMITED  # max.connections
    connections_per_second_max: int = UNLIMITED  # max.connection.creation.rate
    of_listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    # The listener that the nodes use keeps its places when the others have taken all (KIP-402).
    reserved_listener: str = ""
    connections_per_ip_max: int = UNLIMITED  # max.connections.per.ip
    # max.connections.per.ip.overrides, by address
    connections_of_ip_max: Mapping[str, int] = field(default_factory=dict)
    idle_seconds: float = 600.0  # connections.max.idle.ms
    # A connection that has to authenticate is closed if it has not after this long.
    unproven_seconds: float = 30.0
    # A peer that sends nothing of the rest of a frame for this long is closed, and so is one that
    # has not sent all of it after this time and as long as it takes at the slowest rate that is
    # allowed: one that trickles bytes holds memory.
    partial_frame_seconds: float = 30.0
    frame_bytes_per_second_min: int = 128 * 1024
    # The same while other connections wait for that memory.
    frame_bytes_per_second_min_contended: int = 1024 * 1024
    # Total size of the large frames that are being received on all connections.
    receiving_bytes_max: int = RECEIVING_BYTES_MAX
    # The part of it that the connections from one address may take, beyond a first frame.
    receiving_share_of_ip: float = 0.75
    # Responses that a peer has not read; beyond this, no more of its requests are served. (Kafka
    # serves the next request when the response before has been sent.)
    unsent_bytes_max: int = 1024 * 1024
