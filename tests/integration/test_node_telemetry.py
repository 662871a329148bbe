"""Clients push metrics to a node (KIP-714), by its protocol."""

from __future__ import annotations

from typing import Any

from harness.wire import Wire, until
from headwater import _core
from headwater.errors import ErrorCode
from headwater.metadata import ResourceType
from headwater.model import ZERO_ID
from headwater.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.messages.push_telemetry import PushTelemetryRequest
from headwater.protocol.otlp import Point, encode_metrics
from tests.conftest import MakeBroker

ZSTD = 4
POINT = Point("org.apache.kafka.consumer.lag.max", (), 3.0)


def subscribe(wire: Wire, name: str, **configs: str) -> None:
    resource = AlterConfigsResource(
        resource_type=ResourceType.CLIENT_METRICS,
        resource_name=name,
        configs=[
            AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value)
            for key, value in configs.items()
        ],
    )
    answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
    assert answer.responses[0].error_code == 0


def push(wire: Wire, told: Any, metrics: bytes, *, compression: int = 0) -> int:
    request = PushTelemetryRequest(
        client_instance_id=told.client_instance_id,
        subscription_id=told.subscription_id,
        terminating=True,  # the interval does not matter
        compression_type=compression,
        metrics=metrics,
    )
    code: int = wire.ask(request).error_code
    return code


def ask(wire: Wire, instance_id: bytes = ZERO_ID) -> Any:
    return wire.ask(GetTelemetrySubscriptionsRequest(client_instance_id=instance_id))


def test_a_client_is_told_what_to_push(make_broker: MakeBroker) -> None:
    broker = make_broker({"telemetry.max.bytes": "5000"})
    with Wire(broker.bootstrap) as wire:
        subscribe(wire, "all", metrics="org.apache.kafka.", interval_ms="60000")
        subscribe(wire, "others", metrics="*", match="client_id=nobody")
        told = ask(wire)
        assert told.error_code == 0
        assert told.client_instance_id != ZERO_ID
        assert told.requested_metrics == ["org.apache.kafka."]
        assert told.accepted_compression_types == [4, 3, 1, 2]
        assert (told.push_interval_ms, told.telemetry_max_bytes) == (60000, 5000)
        assert told.delta_temporality
        assert ask(wire, told.client_instance_id).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert push(wire, told, encode_metrics({}, [POINT])) == 0


def test_what_cannot_be_read_is_refused_and_the_connection_lives(make_broker: MakeBroker) -> None:
    broker = make_broker({"telemetry.max.bytes": "5000"})
    with Wire(broker.bootstrap) as wire:

        def code(metrics: bytes, compression: int = 0) -> int:
            return push(wire, ask(wire), metrics, compression=compression)

        assert code(b"\xff" * 10) == ErrorCode.INVALID_RECORD
        assert code(b"\x00" * 10, compression=ZSTD) == ErrorCode.INVALID_RECORD
        bomb = _core.compress(ZSTD, bytes(1_000_000))
        assert len(bomb) < 5000
        assert code(bomb, compression=ZSTD) == ErrorCode.INVALID_RECORD
        assert code(bytes(5001)) == ErrorCode.TELEMETRY_TOO_LARGE
        assert code(b"", compression=7) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        for codec in range(5):
            plain = encode_metrics({}, [POINT])
            metrics = _core.compress(codec, plain) if codec else plain
            assert code(metrics, compression=codec) == 0


def test_an_instance_ends_with_its_connection(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        told = ask(wire)
        assert push(wire, told, b"") == 0
        # Its last push has come: no other is taken.
        assert push(wire, told, b"") == ErrorCode.INVALID_REQUEST
    with Wire(broker.bootstrap) as wire:  # it may come before the node has seen the end
        until(lambda: push(wire, told, b"") == 0, "the instance is forgotten")
