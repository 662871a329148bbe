"""The entities of quotas (users, client ids, both together, IP addresses) and their keys.

A name of None stands for everyone without a quota of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address

from headwater.errors import ApiError, ErrorCode
from headwater.security.acls import host_text

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

Entity = tuple[tuple[str, str | None], ...]
"""The names of an entity by its types, sorted."""

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
MUTATION = "controller_mutation_rate"
CONNECTION = "connection_creation_rate"

_LONG_MAX = (1 << 63) - 1
_INT_MAX = (1 << 31) - 1

# The quotas of each kind of entity, with the largest value where it is a whole number.
_OF_CLIENTS: Mapping[str, int | None] = {
    PRODUCE: _LONG_MAX,
    FETCH: _LONG_MAX,
    REQUEST: None,
    MUTATION: None,
}
_OF_ADDRESSES: Mapping[str, int | None] = {CONNECTION: _INT_MAX}
_ROUNDING = 1e-6  # how far a whole number may be from one, as in Kafka


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Returns the identity of an entity. Where a type is named twice, the last name counts, as in
    Kafka."""
    return tuple(sorted(dict(parts).items()))


def keys_of(entity: Entity) -> Mapping[str, int | None]:
    """Returns the quotas that an entity can have; raises ApiError if it can have none."""
    named = dict(entity)
    if not named:
        raise _invalid(f"an entity needs at least one of {USER}, {CLIENT_ID} and {IP}")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _invalid(f"unknown entity type {kind!r}, expected {USER}, {CLIENT_ID} or {IP}")
        if name is not None and not name:
            raise _invalid(f"empty name of {kind}; the default has no name at all")
    if IP not in named:
        return _OF_CLIENTS
    if len(named) > 1:
        raise _invalid(f"an {IP} cannot be combined with a {USER} or a {CLIENT_ID}")
    address = named[IP]
    if address is not None and canonical_ip(address) is None:
        raise _invalid(f"{address!r} is not an IP address")
    return _OF_ADDRESSES


def check_value(key: str, value: float, most: int | None) -> None:
    """Raises ApiError for a value that a quota cannot have; `most` is that of a whole number."""
    if not value > 0:  # also for what is not a number
        raise _invalid(f"{key} is {value:.15g}, expected more than 0")
    if most is None:
        return
    if value > most:
        raise _invalid(f"{key} is {value:.15g}, expected at most {most}")
    if abs(int(value + _ROUNDING) - value) > _ROUNDING:
        raise _invalid(f"{key} is {value:.15g}, expected a whole number")


def canonical_ip(text: str) -> str | None:
    """Returns an address in the one form in which it is compared, None if it is not an address."""
    try:
        return host_text(ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
