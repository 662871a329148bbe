"""The real broker inside the process of a test: on loopback, on a free port, gone at the end.

    with EmbeddedBroker() as broker:
        client = Client(bootstrap=broker.bootstrap)

It runs in a thread with its own event loop, so a test may use any client, blocking or not. Nothing
of the node is replaced; only its files are in memory unless it has a data directory.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from headwater.io import Host
from headwater.io.memory import MemoryDisk
from headwater.io.workers import ThreadWorkers
from headwater.observability import Log
from headwater.testing import topics as topics_of
from headwater.testing.background import BackgroundNode

if TYPE_CHECKING:
    from types import TracebackType

    from headwater import ConsumedRecord
    from headwater.testing.protection import Protection

_LOG_LINES_MAX = 1000
_MEMORY_DATA = "/memory"

# A new group waits 3 s for more members before it begins, and in a test every group is new.
_UNLESS_GIVEN = {"group.initial.rebalance.delay.ms": "0"}


class EmbeddedBroker:
    """A single broker in this process, as `headwater start` runs it; it can be stopped and started.

    `stop` and `start` keep its data, also in memory; `close`, and the end of a `with` block, drop
    the data in memory.
    """

    def __init__(
        self,
        settings: Mapping[str, str] | None = None,
        *,
        data: str | os.PathLike[str] | None = None,
        topics: Mapping[str, int] | None = None,
        tls: bool = False,
        users: Mapping[str, str] | None = None,
    ) -> None:
        """Takes Kafka's settings, with Kafka's defaults but for one: groups begin at once
        (`group.initial.rebalance.delay.ms` is 0). `data` is a directory, or None to stay in memory.
        `topics` are created at the start, each with its number of partitions.

        With `tls` its listener is encrypted, by a certificate that is made for it (this needs
        `headwater[security]`). With `users`, a password for each name, clients have to log in, with
        PLAIN or SCRAM. `client_settings` is what clients of Headwater need then."""
        self._settings = {"log.dirs": _MEMORY_DATA if data is None else os.fspath(data)}
        self._protection: Protection | None = None
        if tls or users:
            from headwater.testing.protection import Protection

            self._protection = Protection(tls=tls, users=users)
            self._settings |= self._protection.settings()
        self._settings |= _UNLESS_GIVEN | dict(settings or {})
        self._topics = dict(topics or {})
        self._memory = MemoryDisk() if data is None else None
        self._host = Host.system() if self._memory is None else Host.in_memory(self._memory)
        self._lines: deque[str] = deque(maxlen=_LOG_LINES_MAX)
        self._node: BackgroundNode | None = None
        self._addresses: dict[str, str] = {}
        self._bootstrap: str | None = None

    @property
    def bootstrap(self) -> str:
        """HOST:PORT, for any client; the same after a restart."""
        assert self._bootstrap is not None, "the broker was never started"
        return self._bootstrap

    @property
    def is_running(self) -> bool:
        """Whether it accepts connections. If it fails it stops by itself; `log_lines` say why."""
        return self._node is not None and self._node.is_alive

    @property
    def addresses(self) -> dict[str, str]:
        """HOST:PORT of each listener, by name."""
        return dict(self._addresses)

    @property
    def metrics_address(self) -> str | None:
        """HOST:PORT where metrics are served, if `headwater.metrics.listen` is set."""
        return None if self._node is None else self._node.metrics_address

    @property
    def client_settings(self) -> dict[str, Any]:
        """The settings with which clients of Headwater connect: `Producer(broker.bootstrap,
        **broker.client_settings)`. Empty without TLS and users."""
        return {} if self._protection is None else self._protection.client_settings()

    def security_file(self, name: str) -> str:
        """The path of a PEM file for clients of a broker with `tls=True`: `ca.pem` is what they
        trust, `client.pem` the key and certificate of one."""
        assert self._protection is not None, "only with tls=True"
        return self._protection.file(name)

    @property
    def log_lines(self) -> list[str]:
        """The lines of its log, the newest last."""
        return list(self._lines)

    # Start and stop

    def start(self) -> Self:
        """Starts the broker; returns when it accepts connections, or raises why it cannot."""
        assert not self.is_running, "already running"
        # A node closes its worker threads when it stops; its files stay.
        host = replace(self._host, workers=ThreadWorkers())
        self._node = BackgroundNode(self._settings_now(), host, Log(host.clock, self._lines.append))
        try:
            self._remember(self._node.start())
            if self._protection is not None:
                self._protection.add_scram(self.bootstrap)
            topics_of.create(self.bootstrap, self._topics, self.client_settings)
        except BaseException:  # Ctrl-C, too: it may have started a moment later
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stops as SIGTERM would: sends the responses due, then ends. May be called twice."""
        if self._node is not None:
            self._node.stop()
            self._node = None

    def restart(self) -> None:
        """Stops and starts again on the same port with the same data."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stops, and drops the data in memory: started again, it would be empty."""
        self.stop()
        if self._memory is not None:
            self._memory.clear()
        if self._protection is not None:
            self._protection.close()

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # Faults

    def pause(self) -> None:
        """Stops answering until `resume`: connections stay open and the kernel accepts new ones, as
        when a machine stalls. Clients notice by their timeouts."""
        self._running().pause()

    def resume(self) -> None:
        """Continues after `pause`; `stop` does so, too."""
        self._running().resume()

    def drop_connections(self) -> int:
        """Closes every connection, whatever is in flight on it; returns how many there were.
        Clients may reconnect at once."""
        return self._running().drop_connections()

    # Records

    def send(
        self,
        topic: str,
        value: str | bytes | None,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None:
        """Writes a record to a topic; it is stored when this returns."""
        security = self.client_settings
        topics_of.send(self.bootstrap, topic, value, key=key, headers=headers, security=security)

    def records(
        self, topic: str, count: int | None = None, *, timeout_ms: int = 10_000
    ) -> list[ConsumedRecord]:
        """Returns all records of a topic, in order within each partition.

        With `count` it waits until there are that many, and raises TimeoutError otherwise:

            assert [record.value for record in broker.records("orders", 2)] == [b"tea", b"milk"]
        """
        security = self.client_settings
        return topics_of.read(
            self.bootstrap, topic, count, timeout_ms=timeout_ms, security=security
        )

    def _running(self) -> BackgroundNode:
        assert self._node is not None, "the broker is not running"
        return self._node

    def _settings_now(self) -> dict[str, str]:
        """Uses any free port at first, then the port that clients already know."""
        settings = dict(self._settings)
        if self._addresses:
            settings["listeners"] = ",".join(
                f"{name}://{address}" for name, address in self._addresses.items()
            )
        else:
            settings.setdefault("listeners", "PLAINTEXT://127.0.0.1:0")
        return settings

    def _remember(self, addresses: dict[str, str]) -> None:
        self._addresses = addresses
        self._bootstrap = next(iter(addresses.values()))
