"""Taking a broker out of the cluster for good."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, message


@message(api=64, versions=(0, 0), flexible=0)
class UnregisterBrokerRequest(Message):
    """Forget this broker."""

    broker_id: Int32


@message(api=64, versions=(0, 0), flexible=0)
class UnregisterBrokerResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
