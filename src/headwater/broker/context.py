"""What a handler is told about a request besides its body."""

from __future__ import annotations

from headwater.net import Connection


class Context:
    """One request: its version, who sent it, and on which connection."""

    __slots__ = ("client_id", "connection", "version")

    def __init__(self, connection: Connection, version: int, client_id: str | None) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id
