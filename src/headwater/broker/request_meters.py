"""Counts the requests of a node by API: the driver of `observability/requests`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

from headwater.observability.requests import ApiMeter, sum_of_meters
from headwater.protocol import Message
from headwater.protocol.apis import APIS, ApiKey, response_class
from headwater.protocol.schema import fields_of

FindErrors = Callable[[Any], "list[int] | None"]
"""Returns the error codes in a message; None if there are none."""


# The controller sets their throttle time, also where no quota applies to the connection.
_CONTROLLER_THROTTLES = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
)


class RequestMeter(ApiMeter):
    """The meter of an API, and how to find errors in its responses."""

    __slots__ = ("find_errors", "followers", "is_plain")

    def __init__(self, key: int) -> None:
        super().__init__(APIS[key].name)
        # Whether nothing but its errors has to be looked for in a response.
        self.is_plain = key != ApiKey.FETCH and key not in _CONTROLLER_THROTTLES
        self.find_errors = _finder(response_class(key))
        self.followers: ApiMeter | None = None  # of Fetch: the requests of followers
        if key == ApiKey.FETCH:
            self.name = "FetchConsumer"
            self.followers = ApiMeter("FetchFollower")


class RequestMeters:
    """A meter for each API that was asked for, on all listeners of a node."""

    __slots__ = ("by_api",)

    def __init__(self) -> None:
        self.by_api: list[RequestMeter | None] = [None] * (max(APIS) + 1)  # by API key

    def of(self, key: int) -> RequestMeter:
        found = self.by_api[key]
        if found is None:
            found = self.by_api[key] = RequestMeter(key)
        return found

    def all(self) -> Iterator[ApiMeter]:
        """Yields each meter; those of fetches of consumers and followers also as one."""
        for meter in tuple(self.by_api):
            if meter is None:
                continue
            if meter.followers is not None:
                yield sum_of_meters("Fetch", meter, meter.followers)
                yield meter.followers
            yield meter


def is_follower(request: Any) -> bool:
    state = request.replica_state
    return bool((state.replica_id if state is not None else request.replica_id) >= 0)


def _finder(cls: type[Message]) -> FindErrors | None:
    """Returns what finds the error codes of a response, where its class can have them; None if it
    has none. Nearly all responses have an array of results, perhaps within another array: for them
    it is as short as it can be."""
    add = _adder(cls)
    if add is None:
        return None
    path = _path(cls)
    if path is None:

        def find(message: Any) -> list[int] | None:
            found: list[int] = []
            add(message, found)
            return found or None

        return find
    if len(path) == 1:
        (name,) = path

        def find_in_array(message: Any) -> list[int] | None:
            found: list[int] | None = None
            for each in getattr(message, name) or ():
                code = each.error_code
                if code:
                    found = found or []
                    found.append(code)
            return found

        return find_in_array
    outer_of, inner_of = attrgetter(path[0]), attrgetter(path[1])

    def find_in_arrays(message: Any) -> list[int] | None:
        outer = outer_of(message)
        if outer and len(outer) == 1 and len(inner := inner_of(outer[0]) or []) == 1:
            # Most responses to those that send the most requests have one result.
            code = inner[0].error_code
            return [code] if code else None
        found: list[int] | None = None
        for results in outer or ():
            for each in inner_of(results) or ():
                code = each.error_code
                if code:
                    found = found or []
                    found.append(code)
        return found

    return find_in_arrays


def _path(cls: type[Message]) -> tuple[str, ...] | None:
    """Returns the arrays in which all error codes of a response are, one within the other; None if
    they are anywhere else."""
    names: list[str] = []
    while len(names) < 2 and not _has_own(cls):
        within = [field for field in fields_of(cls) if field.struct and _adder(field.struct)]
        if len(within) != 1 or not within[0].is_array:
            return None
        names.append(within[0].name)
        assert within[0].struct is not None
        cls = within[0].struct
    deeper = any(field.struct and _adder(field.struct) for field in fields_of(cls))
    return tuple(names) if names and _has_own(cls) and not deeper else None


def _has_own(cls: type[Message]) -> bool:
    return any(field.name == "error_code" for field in fields_of(cls))


def _adder(cls: type[Message]) -> Callable[[Any, list[int]], None] | None:
    """Returns what adds the error codes of any message of a class to a list."""
    own = _has_own(cls)
    within = [
        (field.name, field.is_array, inner)
        for field in fields_of(cls)
        if field.struct is not None and (inner := _adder(field.struct)) is not None
    ]
    if not own and not within:
        return None

    def add(message: Any, found: list[int]) -> None:
        if own and message.error_code:
            found.append(message.error_code)
        for name, is_array, inner in within:
            value = getattr(message, name)
            if value is None:
                continue
            for each in value if is_array else (value,):
                inner(each, found)

    return add
