"""From a frame to a handler and back: the second stop of every journey.

Reads the header, decodes the body, calls the handler of the API and encodes its response. A handler
returns a response, None where the peer expects none, or an awaitable. It is imported when its API
is first used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from importlib import import_module
from struct import Struct, pack_into
from struct import error as StructError
from typing import Any, Protocol, cast

from headwater.broker.context import Context, InOrder, Later
from headwater.broker.node_log import REQUESTS
from headwater.broker.request_watch import RequestWatch, Seen
from headwater.broker.throttling import Metered, Steps, Throttling
from headwater.errors import ApiError, ErrorCode
from headwater.net import Answer, Connection, PendingResponse
from headwater.net.connection import CloseConnection
from headwater.observability import Log, printable
from headwater.protocol import DecodeError, EncodeError, Message, decoder, encode_parts, encoder
from headwater.protocol.apis import APIS, ApiKey, Versions, request_class, response_class
from headwater.protocol.frame import is_flexible, response_header_is_flexible, skip_tags
from headwater.security.authorizer import NotReady

Handled = Message | None | Awaitable[Message | None]
Handle = Callable[[Any, Context, Any], Handled]

_HEADER = Struct(">hhih")  # api key, api version, correlation id, length of the client id
_ANSWER = Struct(">ii")
_ANSWER_FLEXIBLE = Struct(">iib")

BROKER_HANDLERS = "headwater.broker.handlers"

# What brokers serve (for controllers, see `controller_role`). An API is listed here when its
# handler exists. What is not listed is not advertised, and a request for it ends the connection, as
# with Kafka.
SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.LIST_GROUPS,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_FEATURES,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.DESCRIBE_ACLS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
)


# Forwardable APIs whose requests a broker looks into before it forwards them.
_CHECKED_FIRST = frozenset(
    {
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
    }
)


# Versions that Kafka itself does not offer unless `unstable.api.versions.enable` is set.
_UNSTABLE = {ApiKey.INIT_PRODUCER_ID: 6}


class Parts(Protocol):
    """The parts of a broker or a controller, which its handlers get."""

    log: Log


def served_versions(
    keys: Iterable[ApiKey] = SERVED, *, unstable: bool = False
) -> dict[int, Versions]:
    """Returns the first and the last version served, by API key."""
    versions: dict[int, Versions] = {}
    for key in keys:
        advertised = APIS[key].advertised
        assert advertised is not None, key
        low, high = advertised
        versions[int(key)] = low, _UNSTABLE.get(key, high) if unstable else high
    return versions


class Route:
    """Everything needed to serve one version of one API."""

    __slots__ = (
        "api",
        "decode",
        "encode",
        "flexible",
        "handle",
        "overlapping",
        "prefix",
        "response",
        "splits",
        "version",
    )

    def __init__(self, api: ApiKey, version: int, handle: Handle) -> None:
        self.api = api
        self.version = version
        self.handle = handle
        self.flexible = is_flexible(api, version)
        self.decode = decoder(request_class(api), version)
        self.response = response_class(api)
        self.encode = encoder(self.response, version)
        self.prefix = _ANSWER_FLEXIBLE if response_header_is_flexible(api, version) else _ANSWER
        # Responses with records are sent in parts, so that files go out by sendfile.
        self.splits = api in (ApiKey.FETCH, ApiKey.FETCH_SNAPSHOT, ApiKey.SHARE_FETCH)
        self.overlapping = api is ApiKey.PRODUCE

    def answer(
        self, correlation_id: int, message: Message, metered: Metered | None = None
    ) -> Answer:
        if metered is None:
            return self._encode(correlation_id, message)
        metered.settle(message)
        metered.enter()
        try:
            return self._encode(correlation_id, message)
        finally:
            metered.encoded()

    def _encode(self, correlation_id: int, message: Message) -> Answer:
        if self.prefix is _ANSWER:
            head = _ANSWER.pack(0, correlation_id)
        else:
            head = _ANSWER_FLEXIBLE.pack(0, correlation_id, 0)
        if self.splits:
            parts = encode_parts(message, self.version, head)
            pack_into(">i", cast(bytearray, parts[0]), 0, sum(map(len, cast(Any, parts))) - 4)
            return cast(Answer, parts)
        out = bytearray(head)
        self.encode(message, out)
        pack_into(">i", out, 0, len(out) - 4)
        return (out,)


class Routes:
    """The handlers of one kind of listener; each is imported when it is first used."""

    __slots__ = ("_forward", "_package", "found", "served")

    def __init__(
        self,
        served: dict[int, Versions],
        package: str = BROKER_HANDLERS,
        forward: Handle | None = None,
    ) -> None:
        """`forward` handles the APIs that a broker passes on to the controller."""
        self.served = served
        self.found: dict[int, Route] = {}  # by API key and version
        self._package = package
        self._forward = forward

    def find(self, key: int, version: int) -> Route:
        """Returns a route; raises CloseConnection if there is none."""
        found = self.found.get(key << 16 | version)
        if found is not None:
            return found
        try:
            low, high = self.served[key]
        except KeyError:
            raise CloseConnection(_not_served(key)) from None
        if not low <= version <= high:
            if key == ApiKey.API_VERSIONS:
                raise _UnknownVersion
            name = ApiKey(key).name
            raise CloseConnection(
                f"{name} version {version} is not supported, expected {low} to {high}"
            )
        api = ApiKey(key)
        if self._forward is not None and APIS[key].forwardable and api not in _CHECKED_FIRST:
            handle = self._forward
        else:
            handle = self.module(api).handle
        route = self.found[key << 16 | version] = Route(api, version, handle)
        return route

    def module(self, api: ApiKey) -> Any:
        return import_module(f"{self._package}.{api.name.lower()}")


def _not_served(key: int) -> str:
    api = APIS.get(key)
    if api is None:
        return f"unknown API {key}"
    what = f"{api.name} (API {key}) is not served here"
    if api.on_broker and not api.on_controller:
        return f"{what}; if this is a controller, connect to a broker"
    if api.on_controller and not api.on_broker:
        return f"{what}; if this is a broker, connect to a controller"
    return what


class Dispatcher:
    """Serves the frames of the listeners of one kind."""

    def __init__(
        self,
        parts: Parts,
        routes: Routes,
        watch: RequestWatch | None = None,
        throttling: Throttling | None = None,
    ) -> None:
        self._parts = parts
        self._throttling = throttling
        self._watch = watch
        self._find_route = routes.find
        self._routes = routes.found
        self._served = routes.served
        self._tasks: set[asyncio.Task[None]] = set()
        self._log = parts.log.named(REQUESTS)

    def __call__(self, connection: Connection, frame: memoryview) -> Answer | PendingResponse:
        try:
            key, version, correlation_id, name_length = _HEADER.unpack_from(frame)
            client_id: str | None = None
            position = 10
            if name_length >= 0:
                position += name_length
                client_id = str(frame[10:position], "utf-8", "replace")
            route = self._routes.get(key << 16 | version) or self._find_route(key, version)
            if route.flexible:
                position = position + 1 if not frame[position] else skip_tags(frame, position)
            request, _ = route.decode(frame, position)
        except _UnknownVersion:
            return self._unknown_version(correlation_id)
        except (DecodeError, ValueError, IndexError, StructError) as error:
            raise CloseConnection(f"malformed request: {printable(str(error))}") from None
        if self._log.is_debug:
            self._log.debug(
                f"{route.api.name} v{version} from {connection.stream.peer} "
                f"client={printable(client_id or '')}"
            )
        context = Context(connection, version, client_id, None, route.api)
        metered: Metered | None = None
        if self._throttling is not None and self._throttling.is_on:
            metered = context.metered = self._throttling.begin(context, len(frame))
        watch, seen, began = self._watch, None, None
        if watch is not None and watch.is_on:
            if watch.only_counts and metered is None:
                began = watch.now()
            else:
                seen = watch.begin(context, request, len(frame))
        try:
            handled = route.handle(self._parts, context, request)
            if metered is not None:
                metered.leave()
            if isinstance(handled, Message):
                answer = route.answer(correlation_id, handled, metered)
                if began is not None:
                    assert watch is not None
                    watch.answered_at_once(context, request, handled, answer, len(frame), began)
                elif seen is not None:
                    seen.answered(handled, answer)
                return answer
        except Exception as error:
            if began is not None:
                assert watch is not None
                seen = watch.begin(context, request, len(frame), began)
            return self._failed(route, connection, correlation_id, error, seen, metered)
        if began is not None:
            assert watch is not None
            seen = watch.begin(context, request, len(frame), began)
        if handled is None:
            if metered is not None:
                metered.settle(None)
            if seen is not None:
                seen.answered(None, ())
            return ()
        if seen is not None:
            seen.waits()
        overlapping = route.overlapping and not isinstance(handled, InOrder)
        pending = PendingResponse(overlapping=overlapping)
        if isinstance(handled, Later):
            handled.when_answered(
                lambda done: self._on_done(
                    route, connection, correlation_id, done, pending, seen, metered
                )
            )
            return pending
        if metered is not None:
            handled = Steps(handled, metered)
        task = asyncio.ensure_future(
            self._finish(route, connection, correlation_id, handled, pending, seen, metered)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pending

    def _unknown_version(self, correlation_id: int) -> Answer:
        # KIP-511: a client that is too new gets a response in version 0 with the supported range of
        # this API, and asks again.
        from headwater.broker.handlers.api_versions import answer_unknown_version

        route = self._find_route(ApiKey.API_VERSIONS, 0)
        return route.answer(correlation_id, answer_unknown_version(self._served))

    def _encoded(
        self, route: Route, correlation_id: int, message: Message | None, metered: Metered | None
    ) -> Answer:
        if message is not None:
            return route.answer(correlation_id, message, metered)
        if metered is not None:
            metered.settle(None)
        return ()

    async def _finish(
        self,
        route: Route,
        connection: Connection,
        correlation_id: int,
        handled: Awaitable[Message | None],
        pending: PendingResponse,
        seen: Seen | None,
        metered: Metered | None,
    ) -> None:
        try:
            message = await handled
            parts = self._encoded(route, correlation_id, message, metered)
        except Exception as error:
            self._answer_failed(route, connection, correlation_id, error, pending, seen, metered)
        else:
            if seen is not None:
                seen.answered(message, parts)
            pending.answer(parts)

    def _on_done(
        self,
        route: Route,
        connection: Connection,
        correlation_id: int,
        done: Later,
        pending: PendingResponse,
        seen: Seen | None,
        metered: Metered | None,
    ) -> None:
        try:
            message = done.result()
            parts = self._encoded(route, correlation_id, message, metered)
        except Exception as error:
            self._answer_failed(route, connection, correlation_id, error, pending, seen, metered)
        else:
            if seen is not None:
                seen.answered(message, parts)
            pending.answer(parts)

    def _answer_failed(
        self,
        route: Route,
        connection: Connection,
        correlation_id: int,
        error: Exception,
        pending: PendingResponse,
        seen: Seen | None,
        metered: Metered | None,
    ) -> None:
        try:
            parts = self._failed(route, connection, correlation_id, error, seen, metered)
        except CloseConnection as refusal:
            connection.refuse(str(refusal))
        else:
            pending.answer(parts)

    def _failed(
        self,
        route: Route,
        connection: Connection,
        correlation_id: int,
        error: Exception,
        seen: Seen | None,
        metered: Metered | None,
    ) -> Answer:
        """Logs an unexpected error once; returns it if the response has an error code."""
        if isinstance(error, CloseConnection):
            raise error
        code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
        if code is ErrorCode.UNKNOWN_SERVER_ERROR and not isinstance(error, NotReady):
            self._log.bounded.failure(f"{route.api.name} v{route.version} failed", error)
        try:
            message = route.response(error_code=code)  # type: ignore[call-arg]
            answer = route.answer(correlation_id, message, metered)
        except (TypeError, EncodeError):  # no such field, or not in this version
            raise CloseConnection(f"{route.api.name} failed: {printable(str(error))}") from None
        if seen is not None:
            seen.answered(message, answer)
        return answer

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _UnknownVersion(Exception):
    """An ApiVersions request of a version that is not supported."""
