"""A request as its handler sees it, besides its body."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
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


class Later:
    """A response that is not ready yet, and costs no task, no future and no turn of the loop: who
    waits for it is called from within `answer`."""

    __slots__ = ("_failure", "_message", "_on_answer", "is_answered")

    def __init__(self) -> None:
        self.is_answered = False
        self._message: Message | None = None
        self._failure: Exception | None = None
        self._on_answer: Callable[[Later], None] | None = None

    def answer(self, message: Message | None) -> None:
        """Gives the response, once; None where nobody waits for one any more."""
        assert not self.is_answered, "answered twice"
        self.is_answered = True
        self._message = message
        if self._on_answer is not None:
            self._on_answer(self)

    def fail(self, failure: Exception) -> None:
        self._failure = failure
        self.answer(None)

    def result(self) -> Any:
        if self._failure is not None:
            raise self._failure
        return self._message

    def when_answered(self, on_answer: Callable[[Later], None]) -> None:
        self._on_answer = on_answer
        if self.is_answered:
            on_answer(self)

    def __await__(self) -> Generator[Any, Any, Any]:
        """For handlers that go on with something else, and for tests."""
        if not self.is_answered:
            ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self.when_answered(lambda _: None if ready.done() else ready.set_result(None))
            yield from ready
        return self.result()


def check_timeout(timeout_ms: int) -> None:
    """Refuses a request that leaves no time, before anything is done, as Kafka does."""
    if timeout_ms <= 0:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
