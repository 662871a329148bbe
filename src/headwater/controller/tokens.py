"""Delegation tokens (KIP-48, KIP-373): who may create, renew and expire them, and when they expire.

Times are milliseconds since 1970, as in requests and records; `now_ms` is an argument.
"""

from __future__ import annotations

from collections.abc import Iterable

from headwater.controller.decision import RECORDS_MAX, Decision
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata.features import LEVEL_TOKENS
from headwater.model import id_text
from headwater.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from headwater.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headwater.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headwater.protocol.records.metadata_security import (
    DelegationTokenRecord,
    RemoveDelegationTokenRecord,
)
from headwater.security.principal import Principal
from headwater.security.tokens import SECRET_KEY, has_expired, token_hmac

_LIFETIME = "delegation.token.max.lifetime.ms"
_EXPIRY = "delegation.token.expiry.time.ms"


def owner_of(request: CreateDelegationTokenRequest, requester: Principal) -> Principal:
    """Returns for whom a token is asked: for the requester itself, unless another is named."""
    if not request.owner_principal_name:
        return requester
    return Principal(request.owner_principal_type or "", request.owner_principal_name)


def create_token(
    state: ControllerState,
    request: CreateDelegationTokenRequest,
    requester: Principal,
    *,
    now_ms: int,
) -> Decision[DelegationTokenRecord]:
    _check_enabled(state)
    for renewer in request.renewers:
        if renewer.principal_type != "User":
            raise ApiError(
                ErrorCode.INVALID_PRINCIPAL_TYPE,
                f"renewer of type {renewer.principal_type!r}, expected User",
            )
    lifetime = _at_most(request.max_lifetime_ms, _setting(state, _LIFETIME))
    record = DelegationTokenRecord(
        owner=str(owner_of(request, requester)),
        requester=str(requester),
        renewers=[f"User:{renewer.principal_name}" for renewer in request.renewers],
        issue_timestamp=now_ms,
        max_timestamp=now_ms + lifetime,
        expiration_timestamp=min(now_ms + lifetime, now_ms + _setting(state, _EXPIRY)),
        token_id=id_text(state.new_id()),
    )
    return Decision((record,), record)


def renew_token(
    state: ControllerState, request: RenewDelegationTokenRequest, who: Principal, *, now_ms: int
) -> Decision[int]:
    """The reply is when the token expires now."""
    _check_enabled(state)
    token = _find(state, request.hmac)
    if has_expired(token, now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    _check_owner_or_renewer(token, who)
    period = _at_most(request.renew_period_ms, _setting(state, _EXPIRY))
    return _expire_at(token, min(token.max_timestamp, now_ms + period))


def expire_token(
    state: ControllerState, request: ExpireDelegationTokenRequest, who: Principal, *, now_ms: int
) -> Decision[int]:
    """The reply is when the token expires now. A negative period ends it at once."""
    _check_enabled(state)
    token = _find(state, request.hmac)
    _check_owner_or_renewer(token, who)
    if request.expiry_time_period_ms < 0:
        return Decision((RemoveDelegationTokenRecord(token_id=token.token_id),), now_ms)
    if has_expired(token, now_ms):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_EXPIRED)
    return _expire_at(token, min(token.max_timestamp, now_ms + request.expiry_time_period_ms))


def remove_expired(state: ControllerState, *, now_ms: int) -> Decision[None]:
    expired = [
        token.token_id for token in state.image.tokens.values() if has_expired(token, now_ms)
    ]
    # As many as a batch takes; the others go with the next sweep.
    records = [RemoveDelegationTokenRecord(token_id=each) for each in expired[:RECORDS_MAX]]
    return Decision(records, None)


def is_owner_or_renewer(token: DelegationTokenRecord, who: str) -> bool:
    return who in (token.owner, token.requester) or who in token.renewers


def is_enabled(state: ControllerState) -> bool:
    return bool(_secret_key(state))


def _secret_key(state: ControllerState) -> str:
    return str(state.node.value(SECRET_KEY) or "")


def _setting(state: ControllerState, name: str) -> int:
    value = state.node.value(name)
    assert isinstance(value, int)
    return value


def _at_most(asked: int, most: int) -> int:
    return min(asked, most) if asked > 0 else most


def _check_enabled(state: ControllerState) -> None:
    if not is_enabled(state):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED, f"{SECRET_KEY} is not set")
    if state.image.metadata_version < LEVEL_TOKENS:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "delegation tokens need metadata.version 3.6-IV2 or later",
        )


def _find(state: ControllerState, hmac: bytes) -> DelegationTokenRecord:
    if state.token_ids is None:
        state.token_ids = {}
        follow(state, state.image.tokens)
    found = state.token_ids.get(hmac)
    if found is None:
        raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
    return state.image.tokens[found]


def follow(state: ControllerState, changed: Iterable[str]) -> None:
    """Follows tokens that came, changed or went: a request names a token by its HMAC only."""
    assert state.token_ids is not None
    key = _secret_key(state)
    for token_id in changed:
        if token_id in state.image.tokens:
            state.token_ids[token_hmac(token_id, key)] = token_id
        else:
            state.token_ids.pop(token_hmac(token_id, key), None)


def _check_owner_or_renewer(token: DelegationTokenRecord, who: Principal) -> None:
    if not is_owner_or_renewer(token, str(who)):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)


def _expire_at(token: DelegationTokenRecord, when_ms: int) -> Decision[int]:
    record = DelegationTokenRecord(
        owner=token.owner,
        requester=token.requester,
        renewers=list(token.renewers),
        issue_timestamp=token.issue_timestamp,
        max_timestamp=token.max_timestamp,
        expiration_timestamp=when_ms,
        token_id=token.token_id,
    )
    return Decision((record,), when_ms)
