"""Pushing a client's metrics (KIP-714)."""

from __future__ import annotations

from headwater.protocol.schema import Int8, Int16, Int32, Message, Uuid, message


@message(api=72, versions=(0, 0), flexible=0)
class PushTelemetryRequest(Message):
    """These are my metrics."""

    client_instance_id: Uuid
    subscription_id: Int32
    terminating: bool
    compression_type: Int8
    metrics: bytes


@message(api=72, versions=(0, 0), flexible=0)
class PushTelemetryResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
