"""GetTelemetrySubscriptions: which metrics a client should push, and how often (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from headwater.telemetry.instances import COMPRESSIONS

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = broker.telemetry
    instance = telemetry.ask(context, request.client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.id,
        subscription_id=instance.wanted.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=telemetry.instances.bytes_max,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )
