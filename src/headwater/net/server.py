"""The server: listeners, limits on connections and memory, idle timeouts, graceful stop."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container
from typing import NamedTuple

from headwater.io import SYSTEM_SOCKETS, Host, Listener, Receiver, SocketOptions, Stream
from headwater.net.connection import CloseConnection, Connection, Dispatch
from headwater.net.gate import Gate
from headwater.net.limits import NO_LISTENER_LIMITS, UNLIMITED, NetLimits
from headwater.net.pace import Pace
from headwater.observability import printable

_SWEEP_SECONDS_MAX = 5.0

_HELD_OFF_MAX = 1000  # connections that wait for their end; others end at once

LogLine = Callable[[str], None]


class _Throttled(NamedTuple):
    until: float
    timer: asyncio.TimerHandle


class ListenerCounts:
    """Counts of a listener's connections since the start."""

    __slots__ = ("accepted", "authenticated", "expired", "failed_authentications", "refused")

    def __init__(self) -> None:
        self.accepted = 0
        self.refused = 0  # turned away: a limit was reached
        self.expired = 0  # idle for too long
        self.authenticated = 0
        self.failed_authentications = 0


class Server:
    """All connections of a node, on all listeners."""

    def __init__(
        self,
        host: Host,
        limits: NetLimits,
        log: LogLine,
        options: SocketOptions = SYSTEM_SOCKETS,
        *,
        debug: LogLine = lambda line: None,
        serves_nodes: bool = False,
    ) -> None:
        """With `serves_nodes` the peers are nodes of the cluster, which go before clients."""
        self.limits = limits
        self.now = host.clock.monotonic
        self.connections: dict[
            Connection, None
        ] = {}  # ordered, so that the simulator is deterministic
        # Connections whose peers have not authenticated, and since when.
        self.unproven: dict[Connection, float] = {}
        self.listeners: dict[str, Listener] = {}
        self.counts: dict[str, ListenerCounts] = {}
        self._open: set[str] = set()
        self._host = host
        self._options = options
        self._log = log
        self._debug = debug
        self._serves_nodes = serves_nodes
        self._turned_away: set[Connection] = set()  # those that end in the next turn of the loop
        self._per_ip: Counter[str] = Counter()
        self._per_listener_and_ip: Counter[tuple[str, str]] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._pace = Pace()  # of all listeners but the reserved one
        self._receiving_bytes = 0
        self._receiving_of_ip: Counter[str] = Counter()
        self._waiting_for_memory: dict[Connection, int] = {}  # how much; in this order
        # Returns for how long to hold off a new connection from an address, if anybody counts them.
        self.admit: Callable[[str], float] | None = None
        self._throttled: dict[Connection, _Throttled] = {}
        self._sweep: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Event | None = None

    def bind(
        self, name: str, host: str, port: int, dispatch: Dispatch, gate: Gate | None = None
    ) -> Listener:
        """Binds an address. Connections are refused before `open`."""

        own_pace = Pace()

        def accept(stream: Stream) -> Receiver:
            self._keep_pace(name, listener, own_pace)
            if self.admit is not None and (wait := self.admit(stream.peer.host)) > 0:
                return self._hold_off(stream, name, dispatch, wait)
            if gate is None:
                return self._accept(stream, name, dispatch)
            return self._accept_guarded(stream, name, dispatch, gate)

        listener = self._host.network.bind(host, port, accept, self._options)
        self.listeners[name] = listener
        return listener

    def open(self, names: Container[str] | None = None) -> None:
        """Listens on all addresses, or on those of some listeners. Raises OSError, with the
        address, if another process does."""
        for name, listener in self.listeners.items():
            if name not in self._open and (names is None or name in names):
                listener.start()
                self._open.add(name)
        if self._sweep is None:
            self._schedule_sweep()

    def unbind(self, name: str) -> None:
        """Closes a listener; its connections go on."""
        self.listeners.pop(name).close()
        self._open.discard(name)

    def end_connections(self, name: str) -> None:
        """Ends the connections of a listener, each when it has its pending responses."""
        for connection in list(self.connections):
            if connection.listener == name:
                connection.close_if_quiet()

    def _keep_pace(self, name: str, listener: Listener, own: Pace) -> None:
        """Counts a new connection, and stops accepting for a while if there were too many: those
        that come then wait in the backlog (KIP-612)."""
        limits = self.limits
        mine = limits.of_listeners.get(name, NO_LISTENER_LIMITS).connections_per_second_max
        of_all = limits.connections_per_second_max
        if mine == UNLIMITED and of_all == UNLIMITED:
            return
        now = self.now()
        delay = own.count(now, mine)
        if name != limits.reserved_listener:
            delay = max(delay, self._pace.count(now, of_all))
        if delay > 0:
            listener.pause(delay)

    def _hold_off(
        self, stream: Stream, listener: str, dispatch: Dispatch, seconds: float
    ) -> Receiver:
        """Accepts a connection of an address that makes too many, and closes it after a while. It
        is not read meanwhile, and gets no TLS."""
        connection = self._register(stream, listener, dispatch)
        self._turned_away.add(connection)
        self.counts_of(listener).refused += 1
        reason = f"connection_creation_rate of {stream.peer.host} is exceeded"
        loop = asyncio.get_running_loop()
        if len(self._turned_away) > _HELD_OFF_MAX:
            loop.call_soon(connection.refuse, reason)
            return connection
        # The stream has not started yet.
        loop.call_soon(connection.throttle, 2 * seconds)
        loop.call_later(seconds, self._end_held_off, connection, reason)
        return connection

    def _end_held_off(self, connection: Connection, reason: str) -> None:
        if not connection.gone:
            connection.refuse(reason)

    def _accept_guarded(
        self, stream: Stream, listener: str, dispatch: Dispatch, gate: Gate
    ) -> Receiver:
        """Accepts a connection whose peer has to authenticate before a deadline."""
        context = gate.context
        if context is None:
            connection = self._accept(stream, listener, dispatch)
            self.unproven[connection] = connection.active_at
            try:
                gate.opened(connection)
            except CloseConnection as refusal:
                self._turn_away(connection, str(refusal))
            return connection
        from headwater.io.tls import Tls, TlsStream  # not loaded for those who do without TLS

        def on_handshake(error: OSError | None) -> None:
            if error is not None:
                self.counts_of(listener).failed_authentications += 1
                if secret.has_received:  # else a probe of the port, or a health check
                    self.log_refusal(connection, f"TLS failed: {_reason(error)}")
                return
            try:
                gate.secured(connection, secret.peer_certificate())
            except CloseConnection as refusal:
                self.counts_of(listener).failed_authentications += 1
                connection.refuse(str(refusal))
            except BaseException:
                connection.refuse(
                    "its certificate cannot be read"
                )  # a bug of ours must not let anybody in
                raise

        secret = TlsStream(stream, Tls(context, is_server=True), on_handshake)
        connection = self._accept(secret, listener, dispatch)
        self.unproven[connection] = connection.active_at
        gate.opened(connection)
        secret.start(connection)
        return secret

    def _register(self, stream: Stream, listener: str, dispatch: Dispatch) -> Connection:
        connection = Connection(stream, listener, self, dispatch)
        if self._serves_nodes:
            stream.put_first()
        self.connections[connection] = None
        self.counts_of(listener).accepted += 1
        ip = stream.peer.host
        self._debug(f"{stream.peer} connected to {listener}")
        self._per_ip[ip] += 1
        self._per_listener[listener] += 1
        self._per_listener_and_ip[listener, ip] += 1
        return connection

    def _accept(self, stream: Stream, listener: str, dispatch: Dispatch) -> Connection:
        connection = self._register(stream, listener, dispatch)
        reason = self._refusal(listener, stream.peer.host)
        if reason is not None:
            self._turn_away(connection, reason)
        return connection

    def _refusal(self, listener: str, ip: str) -> str | None:
        """Returns the limit that a new connection exceeds, if any."""
        limits = self.limits
        most = limits.connections_of_ip_max.get(ip, limits.connections_per_ip_max)
        if self._per_ip[ip] > most:
            return f"max.connections.per.ip is {most} for {ip}"
        own = limits.of_listeners.get(listener, NO_LISTENER_LIMITS)
        if self._per_listener_and_ip[listener, ip] > own.connections_per_ip_max:
            most = own.connections_per_ip_max
            return f"max.connections.per.ip is {most} for {ip} on listener {listener}"
        if self._per_listener[listener] > own.connections_max:
            return f"max.connections is {own.connections_max} for listener {listener}"
        if len(self.connections) - len(self._turned_away) <= limits.connections_max:
            return None
        if listener == limits.reserved_listener and self._make_place():
            return None
        return f"max.connections is {limits.connections_max}"

    def _make_place(self) -> bool:
        """Closes the connection of another listener that was quiet for longest: nodes must reach
        each other also when clients have taken all places (KIP-402)."""
        others = (
            each
            for each in self.connections
            if each.listener != self.limits.reserved_listener and each not in self._turned_away
        )
        quiet = min(others, key=lambda each: each.active_at, default=None)
        if quiet is None:
            return False
        self._turn_away(quiet, "its place is needed for another node")
        return True

    def counts_of(self, listener: str) -> ListenerCounts:
        found = self.counts.get(listener)
        if found is None:
            found = self.counts[listener] = ListenerCounts()
        return found

    def open_connections(self) -> dict[str, int]:
        """Returns the number of connections of each listener."""
        return {name: self._per_listener[name] for name in (*self.listeners, *self.counts)}

    def _turn_away(self, connection: Connection, reason: str) -> None:
        self._turned_away.add(connection)
        self.counts_of(connection.listener).refused += 1
        # The stream has not started yet and must not be closed before that.
        asyncio.get_running_loop().call_soon(connection.refuse, reason)

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self._turned_away.discard(connection)
        self.unproven.pop(connection, None)
        throttled = self._throttled.pop(connection, None)
        if throttled is not None:
            throttled.timer.cancel()
        self.stop_waiting(connection)
        self._debug(f"{connection.stream.peer} disconnected")
        ip = connection.stream.peer.host
        self._per_listener[connection.listener] -= 1
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]
        there = (connection.listener, ip)
        self._per_listener_and_ip[there] -= 1
        if not self._per_listener_and_ip[there]:
            del self._per_listener_and_ip[there]
        if self._stopping is not None and not self.connections:
            self._stopping.set()

    # Throttled connections

    def throttle(self, connection: Connection, seconds: float) -> None:
        """Calls `unthrottle` of a connection after a while; a longer wait takes the place of a
        shorter one. A connection that waits for longer than it may be idle is closed, as with
        Kafka: its peer may be gone, and it is not read."""
        until = self.now() + seconds
        known = self._throttled.get(connection)
        if known is not None:
            if known.until >= until:
                return
            known.timer.cancel()
        timer = asyncio.get_running_loop().call_later(seconds, self._unthrottle, connection)
        self._throttled[connection] = _Throttled(until, timer)

    def _unthrottle(self, connection: Connection) -> None:
        del self._throttled[connection]
        connection.unthrottle()

    def unthrottle_all(self) -> None:
        """Goes on with all connections that wait: quotas have changed."""
        for connection, throttled in list(self._throttled.items()):
            if connection not in self._turned_away:
                throttled.timer.cancel()
                self._unthrottle(connection)

    # Memory for large frames

    def reserve(self, size: int, connection: Connection) -> bool:
        """Reserves memory for a large frame, or pauses the connection until it is in line for
        it."""
        self._waiting_for_memory[connection] = size  # one that waits already keeps its place
        if self._next_in_line() is not connection:
            connection.stream.pause()
            return False
        del self._waiting_for_memory[connection]
        self._receiving_bytes += size
        self._receiving_of_ip[connection.stream.peer.host] += size
        self._wake_next()  # there may be enough for more than one
        return True

    def release(self, size: int, connection: Connection) -> None:
        ip = connection.stream.peer.host
        self._receiving_bytes -= size
        self._receiving_of_ip[ip] -= size
        if not self._receiving_of_ip[ip]:
            del self._receiving_of_ip[ip]
        self._wake_next()

    def stop_waiting(self, connection: Connection) -> None:
        """Takes a connection out of the line for memory."""
        if self._waiting_for_memory.pop(connection, None) is not None:
            self._wake_next()

    def _next_in_line(self) -> Connection | None:
        """Returns the connection that may have memory now. Nobody overtakes one that waits for the
        rest of the memory; one that waits because its own address has its share is passed by."""
        limit = self.limits.receiving_bytes_max
        share = int(limit * self.limits.receiving_share_of_ip)
        for connection, size in self._waiting_for_memory.items():
            # One frame is always allowed, or a limit below the maximum frame size would block
            # forever.
            held = self._receiving_of_ip.get(connection.stream.peer.host, 0)
            if held and held + size > share:
                continue
            if self._receiving_bytes and self._receiving_bytes + size > limit:
                return None
            return connection
        return None

    def _wake_next(self) -> None:
        if self._waiting_for_memory:
            self.soon(self._serve_next)

    def _serve_next(self) -> None:
        connection = self._next_in_line()
        if connection is not None:
            connection.on_memory()

    def soon(self, callback: Callable[[], None]) -> None:
        """Calls back in the next turn of the loop, after what is ready now."""
        asyncio.get_running_loop().call_soon(callback)

    def later(self, seconds: float, callback: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(seconds, callback)

    # Idle connections

    def _schedule_sweep(self) -> None:
        delay = min(_SWEEP_SECONDS_MAX, self.limits.idle_seconds / 2)
        self._sweep = asyncio.get_running_loop().call_later(delay, self._close_idle)

    def _close_idle(self) -> None:
        now = self.now()
        limits = self.limits
        idle_since = now - limits.idle_seconds
        partial_since = now - limits.partial_frame_seconds
        rate = (
            limits.frame_bytes_per_second_min_contended
            if self._waiting_for_memory
            else limits.frame_bytes_per_second_min
        )
        unproven_since = now - limits.unproven_seconds
        for connection, since in list(self.unproven.items()):
            if since < unproven_since:
                self.counts_of(connection.listener).failed_authentications += 1
                connection.refuse(f"not authenticated within {limits.unproven_seconds:g} s")
        for connection in list(self.connections):
            if connection.active_at < idle_since:
                self.counts_of(connection.listener).expired += 1
                connection.stream.abort()
                continue
            if connection in self._waiting_for_memory or not connection.is_mid_frame():
                continue
            if connection.active_at < partial_since:
                connection.refuse(f"incomplete frame after {limits.partial_frame_seconds:g} s")
                continue
            began, size = connection.frame_since, connection.frame_bytes()
            if began is not None and began + size / rate < partial_since:
                connection.refuse(f"incomplete frame of {size} bytes after {now - began:.0f} s")
        self._schedule_sweep()

    def log_refusal(self, connection: Connection, reason: str) -> None:
        self._log(f"connection from {connection.stream.peer} closed: {reason}")

    # Stopping

    def drop_connections(self) -> int:
        """Aborts all connections; returns how many there were."""
        connections = list(self.connections)
        for connection in connections:
            connection.stream.abort()
        return len(connections)

    async def stop(self, grace_seconds: float) -> None:
        """Stops accepting, sends pending responses, then closes the remaining connections."""
        for listener in self.listeners.values():
            listener.close()
        if self._sweep is not None:
            self._sweep.cancel()
        self._stopping = asyncio.Event()
        for connection in list(self.connections):
            connection.close_if_quiet()
        if self.connections:
            try:
                async with asyncio.timeout(grace_seconds):
                    await self._stopping.wait()
            except TimeoutError:
                self.drop_connections()


def _reason(error: OSError) -> str:
    """Returns the reason of a failed handshake, without the file and line of OpenSSL's sources."""
    reason = getattr(error, "reason", None) or error.strerror or str(error)
    return printable(str(reason).lower().replace("_", " "))
