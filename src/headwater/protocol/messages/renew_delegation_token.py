"""Putting off the expiry of a delegation token."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, message, sensitive


@message(api=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenRequest(Message):
    """Renew this token."""

    hmac: Annotated[bytes, sensitive]
    renew_period_ms: Int64


@message(api=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse(Message):
    """The new time of expiry."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
