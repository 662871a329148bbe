"""A request as its handler sees it, besides its body."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from headwater.errors import ApiError, ErrorCode
from headwater.net import Connection
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey
from headwater.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from headwater.broker.throttling import Metered


class Origin(NamedTuple):
    """The client of a request that a broker handed on."""

    principal: Principal
    host: str


class Context:
    """One request: its version, its sender, and its connection."""

    __slots__ = ("api", "client_id", "connection", "metered", "origin", "version")

    def __init__(
        self,
        connection: Connection,
        version: int,
        client_id: str | None,
        origin: Origin | None = None,
        api: ApiKey | None = None,
    ) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id
        self.api = api  # None for what is part of another request
        self.metered: Metered | None = None  # where a quota applies to the client
        self.origin = origin  # None: the client is at the other end of the connection

    @classmethod
    def internal(cls, version: int) -> Context:
        """A request of this node to its own controller. It has no connection, and no handler that a
        node asks this way looks for one."""
        return cls(cast(Connection, None), version, None, Origin(ANONYMOUS, ""))

    def instead(self, api: ApiKey) -> Context:
        """Returns the context of another request, which this node sends on behalf of the same
        client, in the newest version."""
        advertised = APIS[api].advertised
        assert advertised is not None
        origin = Origin(self.principal, self.client_host)
        return Context(self.connection, advertised[1], self.client_id, origin, api)

    @property
    def is_internal(self) -> bool:
        """Whether this node asks itself."""
        return self.connection is None

    @property
    def principal(self) -> Principal:
        return self.connection.principal if self.origin is None else self.origin.principal

    @property
    def client_host(self) -> str:
        """The address of the client, without its port."""
        return self.connection.stream.peer.host if self.origin is None else self.origin.host


class InOrder:
    """A response for which later requests of the connection have to wait, even where they may
    usually overlap: the work that they must not overtake is not done yet."""

    __slots__ = ("_handled",)

    def __init__(self, handled: Awaitable[Message | None]) -> None:
        self._handled = handled

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._handled.__await__()


def check_timeout(timeout_ms: int) -> None:
    """Refuses a request that leaves no time, before anything is done, as Kafka does."""
    if timeout_ms <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
