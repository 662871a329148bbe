"""The service manager that started this process, if there is one: systemd's notify protocol.

A unit with `Type=notify` counts as started when the node can serve, not when its process exists,
and `systemctl status` shows what the node is doing.
"""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Self


class ServiceManager:
    """Sends states as datagrams to the socket in `NOTIFY_SOCKET`; does nothing without one."""

    __slots__ = ("_address",)

    def __init__(self, address: str | None) -> None:
        self._address = address

    @classmethod
    def from_environment(cls) -> Self:
        # Taken out of the environment: a child process must not speak for this one.
        return cls(os.environ.pop("NOTIFY_SOCKET", None))

    def ready(self, status: str) -> None:
        self._send("READY=1", f"STATUS={status}")

    def stopping(self) -> None:
        self._send("STOPPING=1", "STATUS=stopping")

    def busy(self, status: str, *, seconds: float) -> None:
        """Reports progress and asks for more time to start or to stop."""
        self._send(f"STATUS={status}", f"EXTEND_TIMEOUT_USEC={int(seconds * 1_000_000)}")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        address = self._address
        if address.startswith("@"):  # a name in Linux's abstract namespace
            address = "\0" + address[1:]
        # Its reader may be gone: a node does not depend on the process that watches it.
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sock,
        ):
            sock.sendto("\n".join(lines).encode(), address)
