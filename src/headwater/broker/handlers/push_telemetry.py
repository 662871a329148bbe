"""PushTelemetry: the metrics of a client (KIP-714)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.broker.context import Context
from headwater.protocol.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


async def handle(
    broker: Broker, context: Context, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    await broker.telemetry.push(context, request)
    return PushTelemetryResponse()
