"""Ending a delegation token."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, message, sensitive


@message(api=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenRequest(Message):
    """Sets when a token expires, or expires it now."""

    hmac: Annotated[bytes, sensitive]
    expiry_time_period_ms: Int64


@message(api=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenResponse(Message):
    """The new time of expiry."""

    error_code: Int16 = 0
    expiry_timestamp_ms: Int64 = 0
    throttle_time_ms: Int32 = 0
