"""Counts the requests of a node by API: the driver of `observability/requests`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from headwater.net import Answer
from headwater.observability.requests import ApiMeter, sum_of_meters
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey, response_class
from headwater.protocol.schema import fields_of

FindErrors = Callable[[Any, list[int]], None]
"""Adds the error codes in a message to a list."""


class _Meter(ApiMeter):
    """The meter of an API, and how to find errors in its responses."""

    __slots__ = ("find_errors", "followers", "is_fetch")

    def __init__(self, key: int) -> None:
        super().__init__(APIS[key].name)
        self.find_errors = _finder(response_class(key))
        self.is_fetch = key == ApiKey.FETCH
        if self.is_fetch:
            self.name = "FetchConsumer"
            self.followers = ApiMeter("FetchFollower")


class RequestMeters:
    """A meter for each API that was asked for, on all listeners of a node."""

    __slots__ = ("_meters",)

    def __init__(self) -> None:
        self._meters: list[_Meter | None] = [None] * (max(APIS) + 1)  # by API key

    def of(self, key: int) -> _Meter:
        found = self._meters[key]
        if found is None:
            found = self._meters[key] = _Meter(key)
        return found

    def note(
        self,
        key: int,
        version: int,
        request: Message,
        sent_bytes: int,
        message: Message | None,
        parts: Answer,
        *,
        queued: float,
        local: float | None,
        total: float,
    ) -> None:
        """Counts a request that is answered now. `queued` is the time before its handler began,
        `total` the time since then, and `local` the time that the handler took if the answer had to
        wait; else that is all of it."""
        meter: ApiMeter | None = self._meters[key]
        if meter is None:
            meter = self.of(key)
        assert isinstance(meter, _Meter)
        find_errors = meter.find_errors
        if meter.is_fetch and _is_follower(request):
            meter = meter.followers
        if find_errors is not None and message is not None:
            codes: list[int] = []
            find_errors(message, codes)
            if codes:
                meter.failed(codes)
        answer_bytes = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))  # type: ignore[arg-type]
        meter.queued(queued)
        if local is None:
            meter.answered(version, sent_bytes, answer_bytes, total)
        else:
            meter.answered_later(version, sent_bytes, answer_bytes, local=local, total=total)

    def all(self) -> Iterator[ApiMeter]:
        """Yields each meter; those of fetches of consumers and followers also as one."""
        for meter in tuple(self._meters):
            if meter is None:
                continue
            if meter.is_fetch:
                yield sum_of_meters("Fetch", meter, meter.followers)
                yield meter.followers
            yield meter


def _is_follower(request: Any) -> bool:
    state = request.replica_state
    return bool((state.replica_id if state is not None else request.replica_id) >= 0)


def _finder(cls: type[Message]) -> FindErrors | None:
    """Returns what looks for error codes where responses of a class can have them; None if they
    have none."""
    own = any(field.name == "error_code" for field in fields_of(cls))
    within = [
        (field.name, field.is_array, inner)
        for field in fields_of(cls)
        if field.struct is not None and (inner := _finder(field.struct)) is not None
    ]
    if not within:
        return _own_error if own else None
    if not own and len(within) == 1 and within[0][1]:  # the usual form, as short as it can be
        name, _, inner = within[0]

        def find_in_list(message: Any, found: list[int]) -> None:
            for each in getattr(message, name) or ():
                inner(each, found)

        return find_in_list

    def find(message: Any, found: list[int]) -> None:
        if own and message.error_code:
            found.append(message.error_code)
        for name, is_array, inner in within:
            value = getattr(message, name)
            if value is None:
                continue
            if is_array:
                for each in value:
                    inner(each, found)
            else:
                inner(value, found)

    return find


def _own_error(message: Any, found: list[int]) -> None:
    code = message.error_code
    if code:
        found.append(code)
