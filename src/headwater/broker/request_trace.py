"""Requests followed live, on demand (`headwater trace`).

An operator's connection begins a trace and fetches from it what has been seen, again and again; the
trace ends with the connection. While there is none, a request costs one look at an empty dict.

It travels in a tagged field (KIP-482) of DescribeCluster, in JSON: nodes of Kafka skip a field
that they do not know, so that nothing else that speaks the protocol is disturbed, and the
listeners, logins and rules of the cluster apply as to any request. It takes ALTER on the cluster: a
trace shows what all users do, and it costs the node some work.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headwater.broker.authorization import check_cluster
from headwater.errors import ApiError, ErrorCode
from headwater.observability import printable
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.protocol.schema import fields_of
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.context import Context
    from headwater.broker.request_watch import RequestWatch
    from headwater.io import Clock
    from headwater.metadata import Image
    from headwater.net import Connection

TRACE_TAG = 0x4857  # "HW": far from the tags that Kafka gives its fields, one after the other

_TRACES_MAX = 16
_KEPT_MAX = 1000  # requests of a trace that nobody has fetched yet
_FETCHED_MAX = 200  # in one answer
_QUESTION_BYTES_MAX = 4096
_WAIT_SECONDS_MAX = 2.0
_TOPICS_SHOWN = 5
_VISITED_MAX = 1000  # structs of a request that are looked at for topics


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the requests to trace; None matches any. A client id may end in `*`."""

    client_id: str | None = None
    api: ApiKey | None = None
    principal: str | None = None
    topic: str | None = None

    def takes(self, context: Context) -> bool:
        if self.api is not None and context.api is not self.api:
            return False
        wanted = self.client_id
        if wanted is not None:
            client_id = context.client_id or ""
            if wanted.endswith("*"):
                if not client_id.startswith(wanted[:-1]):
                    return False
            elif client_id != wanted:
                return False
        return self.principal is None or str(context.principal) == self.principal


@dataclass(slots=True)
class Trace:
    """The trace that one connection has open."""

    filter: Filter
    seen: deque[dict[str, Any]] = field(default_factory=deque)
    missed: int = 0  # seen while nobody fetched
    _waiter: asyncio.Future[None] | None = None

    def add(self, event: dict[str, Any]) -> None:
        if len(self.seen) >= _KEPT_MAX:
            self.seen.popleft()
            self.missed += 1
        self.seen.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def fetch(self, wait_seconds: float) -> tuple[list[dict[str, Any]], int]:
        """Returns what was seen, waiting for a first request, and how many were missed."""
        if not self.seen and wait_seconds > 0:
            self._waiter = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._waiter,), timeout=wait_seconds)
            self._waiter = None
        taken = [self.seen.popleft() for _ in range(min(_FETCHED_MAX, len(self.seen)))]
        missed, self.missed = self.missed, 0
        return taken, missed


class RequestTraces:
    """The traces of a node, by connection."""

    def __init__(self, clock: Clock, watch: RequestWatch) -> None:
        self.open: dict[Connection, Trace] = {}
        self._clock = clock
        self._watch = watch
        self._image: Image | None = None  # names topics that requests have ids of

    def note(
        self,
        context: Context,
        request: Message,
        response: Message | None,
        *,
        request_bytes: int,
        response_bytes: int,
        errors: Callable[[], str],
        queued: float,
        local: float,
        total: float,
    ) -> None:
        """Takes a request that has its answer; times are seconds."""
        event: dict[str, Any] | None = None
        topics: list[str] | None = None
        for trace in self.open.values():
            if not trace.filter.takes(context):
                continue
            if topics is None:
                topics = list(dict.fromkeys(topics_of(request, self._image)))
            if trace.filter.topic is not None and trace.filter.topic not in topics:
                continue
            if event is None:
                assert context.api is not None
                event = {
                    "time_ms": self._clock.wall_ms(),
                    "api": APIS[context.api].name,
                    "version": context.version,
                    "client_id": printable(context.client_id or ""),
                    "principal": printable(str(context.principal)),
                    "peer": str(context.connection.stream.peer),
                    "listener": context.connection.listener,
                    "request_bytes": request_bytes,
                    "response_bytes": response_bytes,
                    "queue_ms": round(queued * 1000, 3),
                    "local_ms": round(local * 1000, 3),
                    "wait_ms": round((total - local) * 1000, 3),
                    "throttle_ms": getattr(response, "throttle_time_ms", 0),
                    "errors": errors(),
                    "topics": [printable(topic) for topic in topics[:_TOPICS_SHOWN]],
                    "topics_total": len(topics),
                }
            trace.add(event)

    def begin(self, connection: Connection, wanted: Filter, image: Image) -> Trace:
        """Returns the trace of a connection: the one it has, unless it wants another."""
        trace = self.open.get(connection)
        self._image = image
        if trace is not None and trace.filter == wanted:
            return trace
        if trace is None:
            if len(self.open) >= _TRACES_MAX:
                raise ApiError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"{_TRACES_MAX} traces are open here"
                )

            def end() -> None:
                self.open.pop(connection, None)
                self._watch.refresh()

            connection.on_gone[end] = None
        trace = self.open[connection] = Trace(wanted)
        self._watch.refresh()
        return trace


def question_of(request: Message) -> bytes | None:
    """Returns the question in a request that is one about a trace."""
    return request.unknown_tags.get(TRACE_TAG) if request.unknown_tags else None


def is_of_trace(request: Message) -> bool:
    return isinstance(request, DescribeClusterRequest) and question_of(request) is not None


async def follow(broker: Broker, context: Context, question: bytes) -> DescribeClusterResponse:
    """Answers with what was seen since the last time."""
    import json

    try:
        check_cluster(broker, context, Operation.ALTER)
        wanted, wait_ms = _read(question)
        trace = broker.traces.begin(context.connection, wanted, broker.image)
    except ApiError as refusal:
        return DescribeClusterResponse(error_code=refusal.code, error_message=refusal.message)
    events, missed = await trace.fetch(min(wait_ms / 1000, _WAIT_SECONDS_MAX))
    response = DescribeClusterResponse(cluster_id=broker.cluster_id)
    answer = {"node": broker.config.node_id, "missed": missed, "requests": events}
    response.unknown_tags = {TRACE_TAG: json.dumps(answer, separators=(",", ":")).encode()}
    return response


def _read(question: bytes) -> tuple[Filter, int]:
    import json

    if len(question) > _QUESTION_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a trace of {len(question)} bytes")
    try:
        asked = json.loads(question)
        texts = {name: asked.get(name) for name in ("client_id", "api", "principal", "topic")}
        wait_ms = asked.get("wait_ms", 0)
    except (ValueError, AttributeError, RecursionError):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a trace that is not a JSON object") from None
    if not isinstance(wait_ms, int) or wait_ms < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, "wait_ms of a trace is not a duration")
    if any(text is not None and not isinstance(text, str) for text in texts.values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a filter of a trace is not a text")
    api = texts.pop("api")
    return Filter(**texts, api=None if api is None else _api(api)), wait_ms


def _api(name: str) -> ApiKey:
    wanted = name.replace("_", "").lower()
    for api in APIS.values():
        if api.name.lower() == wanted:
            return api.key
    raise ApiError(ErrorCode.INVALID_REQUEST, f"unknown API {printable(name)}")


def topics_of(request: Message, image: Image | None) -> Iterator[str]:
    """Yields the topics that a request names, or has the ids of. An incremental fetch names only
    those that have changed."""
    left = _VISITED_MAX
    stack: list[tuple[str, Message]] = [("", request)]
    while stack and left:
        where, message = stack.pop()
        left -= 1
        for each in fields_of(type(message)):
            value = getattr(message, each.name)
            if isinstance(value, str):
                if value and (
                    each.name in ("topic", "topic_name")
                    or (each.name == "name" and where.startswith("topic"))
                ):
                    yield value
            elif each.name == "topic_id" and image is not None:
                topic = image.topics_by_id.get(value)
                if topic is not None:
                    yield topic.name
            elif isinstance(value, list) and value:
                if isinstance(value[0], Message):
                    stack += [(each.name, inner) for inner in reversed(value[:left])]
                elif each.name.endswith(("topics", "topic_names")) and isinstance(value[0], str):
                    yield from value[:left]
