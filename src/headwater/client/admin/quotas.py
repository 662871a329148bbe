"""Quotas of users, client ids and IP addresses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.client.admin.results import check, outcome
from headwater.client.errors import ClientError
from headwater.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from headwater.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_EXACT, _DEFAULT, _ANY = range(3)
_TYPES = {"user": "user", "client_id": "client-id", "ip": "ip"}


class _Default:
    """The entity of everyone without a quota of their own."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "QUOTA_DEFAULT"

    def __str__(self) -> str:
        return "default"


QUOTA_DEFAULT = _Default()
Name = str | _Default | None


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The subject of a quota: a user, a client id, both together, or an IP address. `QUOTA_DEFAULT`
    stands for all without their own; None means not specified."""

    user: Name = None
    client_id: Name = None
    ip: Name = None

    def parts(self) -> list[tuple[str, str | _Default]]:
        """Returns the entity by Kafka's names of the types."""
        named = ((kind, getattr(self, field)) for field, kind in _TYPES.items())
        return [(kind, name) for kind, name in named if name is not None]

    def __str__(self) -> str:
        return ", ".join(
            f"default {kind}" if isinstance(name, _Default) else f"{kind} {name}"
            for kind, name in self.parts()
        )


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """A filter for quotas: an exact name, `QUOTA_DEFAULT`, or `QUOTA_ANY` for every name of that
    type. `strict` excludes entities with more types than the filter names."""

    user: Name = None
    client_id: Name = None
    ip: Name = None
    strict: bool = False


QUOTA_ANY = "*"


async def describe_quotas(
    admin: Admin, wanted: QuotaFilter | None = None, *, timeout_ms: int | None = None
) -> dict[QuotaEntity, dict[str, float]]:
    """Returns the quotas that match a filter, or all: `{QuotaEntity(user="alice"):
    {"producer_byte_rate": 1e6}}`."""
    wanted = wanted or QuotaFilter()
    answer = await admin._router.anyone(
        DescribeClientQuotasRequest(
            components=[
                _component(kind, getattr(wanted, field))
                for field, kind in _TYPES.items()
                if getattr(wanted, field) is not None
            ],
            strict=wanted.strict,
        ),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, "the quotas", answer.error_message)
    return {
        _entity((each.entity_type, each.entity_name) for each in entry.entity): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries or ()
    }


def _component(kind: str, name: str | _Default) -> ComponentData:
    if isinstance(name, _Default):
        return ComponentData(entity_type=kind, match_type=_DEFAULT, match=None)
    if name == QUOTA_ANY:
        return ComponentData(entity_type=kind, match_type=_ANY, match=None)
    return ComponentData(entity_type=kind, match_type=_EXACT, match=name)


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    fields = {kind: field for field, kind in _TYPES.items()}
    return QuotaEntity(
        **{
            fields[kind]: QUOTA_DEFAULT if name is None else name
            for kind, name in parts
            if kind in fields
        }
    )


async def alter_quotas(
    admin: Admin,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
    timeout_ms: int | None = None,
) -> dict[QuotaEntity, ClientError | None]:
    """Sets quotas (`producer_byte_rate`, `consumer_byte_rate`, `request_percentage`,
    `controller_mutation_rate`, `connection_creation_rate`); None removes one."""
    answer = await admin._router.controller(
        AlterClientQuotasRequest(
            entries=[
                AlterClientQuotasRequestEntryData(
                    entity=[
                        AlterClientQuotasRequestEntityData(
                            entity_type=kind,
                            entity_name=None if isinstance(name, _Default) else name,
                        )
                        for kind, name in entity.parts()
                    ],
                    ops=[
                        OpData(key=key, value=value or 0.0, remove=value is None)
                        for key, value in values.items()
                    ],
                )
                for entity, values in changes.items()
            ],
            validate_only=validate_only,
        ),
        timeout_ms=timeout_ms,
    )
    results: dict[QuotaEntity, ClientError | None] = {}
    for entry in answer.entries:
        entity = _entity((each.entity_type, each.entity_name) for each in entry.entity)
        results[entity] = outcome(entry.error_code, f"quota of {entity}", entry.error_message)
    return results
