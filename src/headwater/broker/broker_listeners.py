"""The listeners of a broker, which open and close while it runs (KIP-226).

A change of `listeners` or of the map of protocols is checked by the broker that it is for, since
only that one can tell whether an address is free, and followed when it is committed. Connections of
a listener that moved stay; those of one that was removed end when they are answered.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.config import ConfigError, NodeConfig
from headwater.config.listeners import PLAINTEXT, Listener
from headwater.io import Address, Network, Receiver, Stream
from headwater.net import Server
from headwater.net.connection import Dispatch
from headwater.net.gate import Gate
from headwater.observability import Log

_KEY = "listeners"


class BrokerListeners:
    def __init__(
        self, network: Network, server: Server, gate: Callable[[str], Gate | None], lines: Log
    ) -> None:
        """`gate` returns what connections to a protected listener pass."""
        self.addresses: dict[str, Address] = {}
        self._network = network
        self._server = server
        self._gate = gate
        self._lines = lines
        self._dispatch: Dispatch | None = None
        self._bound: dict[str, Listener] = {}

    def bind(self, config: NodeConfig, dispatch: Dispatch) -> None:
        """Binds the listeners of a broker that starts; `Server.open` opens them. Raises OSError."""
        self._dispatch = dispatch
        for at in config.broker_listeners:
            self._bind(at)

    def _bind(self, at: Listener) -> None:
        assert self._dispatch is not None
        gate = self._gate(at.name)
        # Its keys or users may be unusable by now: nobody gets in without them.
        if gate is None and at.protocol != PLAINTEXT:
            raise OSError(f"its {at.protocol} cannot be set up")
        listener = self._server.bind(at.name, at.host, at.port, self._dispatch, gate)
        self.addresses[at.name] = listener.address
        self._bound[at.name] = at

    def check(self, current: NodeConfig, new: NodeConfig) -> None:
        """Raises ConfigError if the listeners cannot change to the new ones while the node runs."""
        if new.controller_listeners != current.controller_listeners:
            raise _refused(
                new.controller_listeners,
                f"expected {','.join(map(str, current.controller_listeners))}: other nodes find "
                "this controller there; change it in the node's own settings, and restart it",
            )
        ports = {at.port for at in self._bound.values()}
        for at in new.broker_listeners:
            before = self._bound.get(at.name)
            if before is not None and before.protocol != at.protocol:
                raise ConfigError(
                    "listener.security.protocol.map",
                    f"{at.name}:{at.protocol}",
                    f"expected {before.protocol}: the protocol of a listener does not change while "
                    "it is open; add a listener with another name",
                )
            if at != before and at.port and at.port not in ports:
                self._require_free(at)

    def _require_free(self, at: Listener) -> None:
        try:
            self._network.bind(at.host, at.port, _accept_nobody).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise _refused((at,), f"expected an address that can be bound: {reason}") from None

    def follow(self, config: NodeConfig) -> bool:
        """Opens and closes listeners as the settings say; returns whether any did. A listener that
        cannot be opened is reported, and stays where it was."""
        if self._dispatch is None:
            return False  # the node starts, and binds what is set then
        wanted = {at.name: at for at in config.broker_listeners}
        old = {name: at for name, at in self._bound.items() if wanted.get(name) != at}
        new = [at for name, at in wanted.items() if self._bound.get(name) != at]
        for name in old:  # first: another may take its port
            self._server.unbind(name)
            del self._bound[name], self.addresses[name]
        for at in new:
            self._open(at, instead_of=old.get(at.name))
        for name in old:
            if name not in wanted:
                self._server.end_connections(name)
                self._lines.info(f"listener {name} is closed")
        return bool(old or new)

    def _open(self, at: Listener, *, instead_of: Listener | None) -> None:
        try:
            self._bind_and_open(at)
        except OSError as error:
            self._lines.error(f"listener {at} cannot be opened: {error.strerror or error}")
            if instead_of is not None:
                self._reopen(instead_of)
        else:
            self._lines.info(f"listener {at.name} is open at {self.addresses[at.name]}")

    def _reopen(self, at: Listener) -> None:
        try:
            self._bind_and_open(at)
        except OSError as error:  # another process, or another listener, was quicker
            self._lines.error(f"listener {at} cannot be opened again: {error.strerror or error}")

    def _bind_and_open(self, at: Listener) -> None:
        self._bind(at)
        try:
            self._server.open({at.name})
        except OSError:
            self._server.unbind(at.name)
            del self._bound[at.name], self.addresses[at.name]
            raise


def _refused(listeners: tuple[Listener, ...], expected: str) -> ConfigError:
    return ConfigError(_KEY, ",".join(map(str, listeners)), expected)


def _accept_nobody(stream: Stream) -> Receiver:
    raise AssertionError(f"{stream.peer} was accepted by a listener that was never opened")
