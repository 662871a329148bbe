"""UnregisterBroker (key 64)."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, message


@message(api=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Message):
    """The message `UnregisterBrokerRequest`."""

    broker_id: Int32


@message(api=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse(Message):
    """The message `UnregisterBrokerResponse`."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
