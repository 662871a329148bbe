"""Delegation tokens: short-lived credentials that one principal creates for another."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.client.admin.results import check
from headwater.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from headwater.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from headwater.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headwater.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest

if TYPE_CHECKING:
    from headwater.client.admin import Admin

_OWNER_SINCE = 3
_CLUSTERS_CHOICE = -1
_WHAT = "delegation token"


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token. Principals are written `User:alice`; times are milliseconds since 1970. `hmac` is
    the secret."""

    id: str
    owner: str
    hmac: bytes = field(repr=False)
    issued_ms: int = 0
    expires_ms: int = 0
    expires_at_most_ms: int = 0
    requester: str | None = None
    renewers: tuple[str, ...] = ()


async def create_token(
    admin: Admin,
    *,
    owner: str | None = None,
    renewers: Iterable[str] = (),
    lifetime_ms: int | None = None,
    timeout_ms: int | None = None,
) -> DelegationToken:
    """Creates a token for the caller, or for another `owner`; `renewers` may renew it, too."""
    kind, name = ("", "") if owner is None else _parts(owner)
    known = list(renewers)
    answer = await admin._router.controller(
        CreateDelegationTokenRequest(
            owner_principal_type=kind,
            owner_principal_name=name,
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, known)
            ],
            max_lifetime_ms=_CLUSTERS_CHOICE if lifetime_ms is None else lifetime_ms,
        ),
        timeout_ms=timeout_ms,
        at_least=None if owner is None else _OWNER_SINCE,
    )
    check(answer.error_code, _WHAT)
    return DelegationToken(
        id=answer.token_id,
        owner=f"{answer.principal_type}:{answer.principal_name}",
        hmac=answer.hmac,
        issued_ms=answer.issue_timestamp_ms,
        expires_ms=answer.expiry_timestamp_ms,
        expires_at_most_ms=answer.max_timestamp_ms,
        requester=_principal(
            answer.token_requester_principal_type, answer.token_requester_principal_name
        ),
        renewers=tuple(known),
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not colon or not kind or not name:
        raise ValueError(f"principal {principal!r}: expected one such as User:alice")
    return kind, name


def _principal(kind: str, name: str) -> str | None:
    return f"{kind}:{name}" if name else None


async def renew_token(
    admin: Admin, hmac: bytes, *, period_ms: int | None = None, timeout_ms: int | None = None
) -> int:
    """Extends the life of a token from now on; returns when it will expire."""
    period_ms = _CLUSTERS_CHOICE if period_ms is None else period_ms
    answer = await admin._router.controller(
        RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), timeout_ms=timeout_ms
    )
    check(answer.error_code, _WHAT)
    expires_ms: int = answer.expiry_timestamp_ms
    return expires_ms


async def expire_token(
    admin: Admin, hmac: bytes, *, period_ms: int | None = None, timeout_ms: int | None = None
) -> int:
    """Expires a token, at once or after a time; returns when it will expire."""
    period_ms = -1 if period_ms is None else period_ms
    answer = await admin._router.controller(
        ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, _WHAT)
    expires_ms: int = answer.expiry_timestamp_ms
    return expires_ms


async def describe_tokens(
    admin: Admin, owners: Iterable[str] | None = None, *, timeout_ms: int | None = None
) -> list[DelegationToken]:
    """Returns the tokens of these owners, or all that the caller may see."""
    answer = await admin._router.anyone(
        DescribeDelegationTokenRequest(
            owners=None
            if owners is None
            else [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_parts, owners)
            ]
        ),
        timeout_ms=timeout_ms,
    )
    check(answer.error_code, "delegation tokens")
    return [
        DelegationToken(
            id=each.token_id,
            owner=f"{each.principal_type}:{each.principal_name}",
            hmac=each.hmac,
            issued_ms=each.issue_timestamp,
            expires_ms=each.expiry_timestamp,
            expires_at_most_ms=each.max_timestamp,
            requester=_principal(
                each.token_requester_principal_type, each.token_requester_principal_name
            ),
            renewers=tuple(
                f"{other.principal_type}:{other.principal_name}" for other in each.renewers
            ),
        )
        for each in answer.tokens
    ]
