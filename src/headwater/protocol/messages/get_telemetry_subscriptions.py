"""Asking which metrics a client should push (KIP-714)."""

from __future__ import annotations

from headwater.model import ZERO_ID
from headwater.protocol.schema import Int8, Int16, Int32, Message, Uuid, message


@message(api=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsRequest(Message):
    """Asks for the metrics to push."""

    client_instance_id: Uuid


@message(api=71, versions=(0, 0), flexible=0)
class GetTelemetrySubscriptionsResponse(Message):
    """The metrics, how often, and how compressed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    client_instance_id: Uuid = ZERO_ID
    subscription_id: Int32 = 0
    accepted_compression_types: list[Int8] = []
    push_interval_ms: Int32 = 0
    telemetry_max_bytes: Int32 = 0
    delta_temporality: bool = False
    requested_metrics: list[str] = []
