"""A request as its handler sees it, besides its body."""

from __future__ import annotations

from headwater.errors import ApiError, ErrorCode
from headwater.net import Connection


class Context:
    """One request: its version, who sent it, and on which connection."""

    __slots__ = ("client_id", "connection", "version")

    def __init__(self, connection: Connection, version: int, client_id: str | None) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id


def check_timeout(timeout_ms: int) -> None:
    """Refuses a request that leaves no time, before anything is done, as Kafka does."""
    if timeout_ms <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
