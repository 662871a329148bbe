"""Observes requests: logs slow ones, feeds traces, and counts.

A dispatcher calls `begin` for each request and reports its outcome. While nothing observes
requests, a request costs one look at `is_on`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from headwater.broker.context import Context
from headwater.broker.node_log import REQUESTS
from headwater.broker.request_meters import RequestMeters, is_follower
from headwater.broker.request_trace import RequestTraces, is_of_trace
from headwater.config import NodeConfig
from headwater.errors import ErrorCode
from headwater.io import Clock
from headwater.net import Answer
from headwater.observability import Log
from headwater.observability.requests import NOT_QUEUED_SECONDS, ApiMeter
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.schema import fields_of

# Requests that wait on purpose, and for how long they may. A request that is not slower than it
# asked to be is not slow.
_PATIENCE = {
    ApiKey.FETCH: ("max_wait_ms",),
    ApiKey.SHARE_FETCH: ("max_wait_ms",),
    ApiKey.JOIN_GROUP: ("rebalance_timeout_ms", "session_timeout_ms"),
}
_PATIENT = frozenset({ApiKey.SYNC_GROUP})  # waits for other members

_ERRORS_MAX = 10_000  # results of one response that are looked at for their error codes


class Seen:
    """One request on its way."""

    __slots__ = ("_arrived", "_began", "_context", "_handled", "_request", "_size", "_watch")

    def __init__(
        self, watch: RequestWatch, context: Context, request: Message, size: int, began: float
    ) -> None:
        self._watch = watch
        self._context = context
        self._request = request
        self._size = size
        self._handled = 0.0
        # Later requests arrive while this one waits.
        self._arrived = context.connection.active_at
        self._began = began

    def waits(self) -> None:
        """The handler has returned, and the answer is not ready."""
        self._handled = self._watch.now()

    def answered(self, message: Message | None, parts: Answer) -> None:
        """The response is ready; None if the peer expects none."""
        watch, began = self._watch, self._began
        now = watch.now()
        meters = watch.meters
        if meters is not None:
            self._count(meters, message, parts, now)
        slow = watch.slow_seconds
        if slow is not None and now - began >= slow:
            self._report(message, now)
        if self._watch.traces.open:
            self._trace(message, parts, now)

    def _count(
        self, meters: RequestMeters, message: Message | None, parts: Answer, now: float
    ) -> None:
        context, began = self._context, self._began
        api = context.api
        assert api is not None
        meter = meters.by_api[api] or meters.of(api)
        find_errors = meter.find_errors
        counted: ApiMeter = meter
        if meter.followers is not None and is_follower(self._request):
            counted = meter.followers
        if find_errors is not None and message is not None:
            codes = find_errors(message)
            if codes is not None:
                counted.failed(codes)
        throttle_ms = getattr(message, "throttle_time_ms", 0)
        if throttle_ms:
            counted.throttled(throttle_ms / 1000)
        queued = began - self._arrived
        if queued > NOT_QUEUED_SECONDS:
            counted.queued(queued)
        sized: Any = parts  # the type of a part has no length, and each part has one
        answer_bytes = len(sized[0]) if len(sized) == 1 else sum(map(len, sized))
        if self._handled:
            local = self._handled - began
            counted.answered_later(
                context.version, self._size, answer_bytes, local=local, total=now - began
            )
        else:
            counted.answered(context.version, self._size, answer_bytes, now - began)

    def _trace(self, message: Message | None, parts: Answer, now: float) -> None:
        if is_of_trace(self._request):
            return
        self._watch.traces.note(
            self._context,
            self._request,
            message,
            request_bytes=self._size,
            response_bytes=sum(map(len, cast(Any, parts))),
            errors=lambda: shown_errors(message),
            queued=self._began - self._arrived,
            local=(self._handled or now) - self._began,
            total=now - self._began,
        )

    def _report(self, message: Message | None, now: float) -> None:
        context = self._context
        api = context.api
        assert api is not None
        total = now - self._began
        if api in _PATIENT or is_of_trace(self._request):
            return
        patience_ms = max(
            (getattr(self._request, name) for name in _PATIENCE.get(api, ())), default=0
        )
        slow = self._watch.slow_seconds
        if slow is None or total - max(0, patience_ms) / 1000 < slow:
            return
        local = (self._handled or now) - self._began
        self._watch.lines.warn(
            "slow request",
            api=api.name,
            version=context.version,
            client=context.client_id or "",
            peer=context.connection.stream.peer,
            principal=context.principal,
            listener=context.connection.listener,
            total_ms=round(total * 1000),
            local_ms=round(local * 1000),
            request_bytes=self._size,
            **({"errors": shown_errors(message)} if errors_of(message) else {}),
        )


class RequestWatch:
    """The observers of requests on a node's listeners."""

    __slots__ = ("is_on", "lines", "meters", "now", "only_counts", "slow_seconds", "traces")

    def __init__(self, clock: Clock, log: Log) -> None:
        self.now: Callable[[], float] = clock.monotonic
        self.lines = log.named(REQUESTS).bounded
        self.slow_seconds: float | None = None
        self.traces = RequestTraces(clock, self)
        self.meters: RequestMeters | None = None
        self.is_on = False
        self.only_counts = False  # besides looking for slow requests

    def count_in(self, meters: RequestMeters) -> None:
        """Counts each request from now on."""
        self.meters = meters
        self.refresh()

    def configure(self, config: NodeConfig) -> None:
        slow_ms = config.value("headwater.log.slow.ms")
        assert isinstance(slow_ms, int)
        self.slow_seconds = slow_ms / 1000 if slow_ms > 0 else None
        self.refresh()

    def refresh(self) -> None:
        """Finds out whether anybody wants to know anything."""
        self.is_on = (
            self.slow_seconds is not None or bool(self.traces.open) or self.meters is not None
        )
        self.only_counts = self.meters is not None and not self.traces.open

    def begin(
        self, context: Context, request: Message, size: int, began: float | None = None
    ) -> Seen:
        return Seen(self, context, request, size, self.now() if began is None else began)

    def answered_at_once(
        self,
        context: Context,
        request: Message,
        message: Message,
        parts: Answer,
        size: int,
        began: float,
    ) -> None:
        """Does what `begin` and `Seen.answered` do, in half the time, for a request of a client
        without quotas whose handler has answered it, while all that observes requests are counts.
        So do most of them most of the time."""
        meters, slow = self.meters, self.slow_seconds
        seconds = self.now() - began
        assert meters is not None
        api = context.api
        assert api is not None
        meter = meters.by_api[api]
        if (
            meter is None
            or not meter.is_plain
            or len(parts) != 1
            or (slow is not None and seconds >= slow)
        ):
            Seen(self, context, request, size, began).answered(message, parts)
            return
        if meter.find_errors is not None:
            codes = meter.find_errors(message)
            if codes is not None:
                meter.failed(codes)
        queued = began - context.connection.active_at
        if queued > NOT_QUEUED_SECONDS:
            meter.queued(queued)
        meter.answered(context.version, size, len(cast(Any, parts[0])), seconds)


def errors_of(message: Message | None) -> dict[str, int]:
    """Returns the error codes anywhere in a response, by name, and how often each is there."""
    found: dict[str, int] = {}
    if message is not None:
        _count_errors([message], found)
    return found


def shown_errors(message: Message | None) -> str:
    """Returns the error codes of a response as `NAME`, or `NAME*3` for three of them."""
    found = errors_of(message)
    return ",".join(name if count == 1 else f"{name}*{count}" for name, count in found.items())


def _count_errors(messages: list[Message], found: dict[str, int]) -> None:
    left = _ERRORS_MAX
    while messages and left:
        message = messages.pop()
        left -= 1
        for field in fields_of(type(message)):
            value = getattr(message, field.name)
            if field.name == "error_code":
                if value:
                    name = _name_of(value)
                    found[name] = found.get(name, 0) + 1
            elif isinstance(value, Message):
                messages.append(value)
            elif isinstance(value, list) and value and isinstance(value[0], Message):
                messages += value[:left]


def _name_of(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
