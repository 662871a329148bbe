"""DescribeClientQuotas: the quotas whose entities match a filter."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from headwater.broker.authorization import check_cluster
from headwater.broker.context import Context
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.metadata.image import QuotaEntity

_ENTITY_TYPES = frozenset({"user", "client-id", "ip"})


class _Match(IntEnum):
    EXACT = 0
    DEFAULT = 1
    ANY = 2


def handle(
    broker: Broker, context: Context, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    try:
        check_cluster(broker, context, Operation.DESCRIBE_CONFIGS)
        wanted = _filter(request.components)
    except ApiError as refusal:
        return DescribeClientQuotasResponse(
            error_code=refusal.code, error_message=refusal.message, entries=None
        )
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                values=[ValueData(key=key, value=value) for key, value in quotas.items()],
            )
            for entity, quotas in broker.image.client_quotas.items()
            if _matches(entity, wanted, strict=request.strict)
        ]
    )


def _filter(components: list[ComponentData]) -> dict[str, tuple[_Match, str | None]]:
    """Returns what each entity type must match; raises ApiError for a filter without meaning."""
    wanted: dict[str, tuple[_Match, str | None]] = {}
    for component in components:
        kind = component.entity_type
        if not kind:
            raise ApiError(ErrorCode.INVALID_REQUEST, "empty entity type in the filter")
        if kind not in _ENTITY_TYPES:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"unsupported entity type {kind}")
        if kind in wanted:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"entity type {kind} appears more than once in the filter",
            )
        try:
            match = _Match(component.match_type)
        except ValueError:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}"
            ) from None
        if match is _Match.EXACT and component.match is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"exact match of {kind} without a name to match"
            )
        if match is not _Match.EXACT and component.match is not None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"match type {match.name} of {kind} takes no name, got {component.match!r}",
            )
        wanted[kind] = (match, component.match)
    if "ip" in wanted and len(wanted) > 1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "an ip filter cannot be combined with user or client-id"
        )
    return wanted


def _matches(
    entity: QuotaEntity, wanted: dict[str, tuple[_Match, str | None]], *, strict: bool
) -> bool:
    named = dict(entity)
    if strict and named.keys() != wanted.keys():
        return False
    return all(
        kind in named and (match is _Match.ANY or named[kind] == name)
        for kind, (match, name) in wanted.items()
    )
