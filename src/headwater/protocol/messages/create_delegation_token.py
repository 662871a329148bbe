"""Creating a delegation token."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, message, sensitive, since


@message(api=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenRequest(Message):
    """Create a token for an owner."""

    owner_principal_type: Annotated[str | None, since(3)] = ""
    owner_principal_name: Annotated[str | None, since(3)] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: Int64


class CreatableRenewers(Message):
    """One of the `renewers` of `CreateDelegationTokenRequest`."""

    principal_type: str
    principal_name: str


@message(api=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse(Message):
    """The token, with the secret that goes with it."""

    error_code: Int16 = 0
    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, since(3)] = ""
    token_requester_principal_name: Annotated[str, since(3)] = ""
    issue_timestamp_ms: Int64 = 0
    expiry_timestamp_ms: Int64 = 0
    max_timestamp_ms: Int64 = 0
    token_id: str = ""
    hmac: Annotated[bytes, sensitive] = b""
    throttle_time_ms: Int32 = 0
