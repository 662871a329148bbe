"""Describing delegation tokens."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, message, sensitive, since


@message(api=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenRequest(Message):
    """Asks for the tokens of some owners, or of all."""

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribeDelegationTokenOwner(Message):
    """One of the `owners` of `DescribeDelegationTokenRequest`."""

    principal_type: str
    principal_name: str


@message(api=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenResponse(Message):
    """The tokens."""

    error_code: Int16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: Int32 = 0


class DescribedDelegationToken(Message):
    """One of the `tokens` of `DescribeDelegationTokenResponse`."""

    principal_type: str = ""
    principal_name: str = ""
    token_requester_principal_type: Annotated[str, since(3)] = ""
    token_requester_principal_name: Annotated[str, since(3)] = ""
    issue_timestamp: Int64 = 0
    expiry_timestamp: Int64 = 0
    max_timestamp: Int64 = 0
    token_id: str = ""
    hmac: Annotated[bytes, sensitive] = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribedDelegationTokenRenewer(Message):
    """One of the `renewers` of `DescribedDelegationToken`."""

    principal_type: str = ""
    principal_name: str = ""
