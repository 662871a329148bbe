"""Clients push metrics to a node (KIP-714), by its protocol."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from harness.nodes import free_port
from harness.wire import Wire, until
from headwater import Admin, Consumer, Producer, _core
from headwater.errors import ErrorCode
from headwater.metadata import ResourceType
from headwater.model import ZERO_ID
from headwater.protocol.apis import ApiKey
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
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker
from tests.support.commands import Command
from tests.support.exposition import ScrapedFamily, parse

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


def test_subscriptions_are_there_again_after_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        subscribe(wire, "all", metrics="a", interval_ms="1000")
        until(lambda: ask(wire).requested_metrics == ["a"], "the subscription")
    broker.stop()
    broker.start()
    with Wire(broker.bootstrap) as wire:
        assert ask(wire).requested_metrics == ["a"]


def test_what_cannot_be_read_is_refused_and_the_connection_lives(make_broker: MakeBroker) -> None:
    broker = make_broker({"telemetry.max.bytes": "5000"})
    with Wire(broker.bootstrap) as wire:

        def code(metrics: bytes, compression: int = 0) -> int:
            return push(wire, ask(wire), metrics, compression=compression)

        assert code(b"\xff" * 10) == ErrorCode.INVALID_RECORD
        assert code(b"\x00" * 10, compression=ZSTD) == ErrorCode.INVALID_RECORD
        skipped = b"\x7a\xc0\x84\x3d" + bytes(1_000_000)  # a field that nobody knows
        bomb = _core.compress(ZSTD, skipped)
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


# To the end: from a client to a scrape

METRICS = {"headwater.metrics.listen": "127.0.0.1:0"}
TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}


def scrape(broker: EmbeddedBroker) -> dict[str, ScrapedFamily]:
    with urlopen(f"http://{broker.metrics_address}/metrics", timeout=60) as answer:
        return parse(answer.read().decode())


def test_clients_are_told_that_they_may_push_where_it_is_exported(make_broker: MakeBroker) -> None:
    otlp = {"headwater.otlp.endpoint": f"http://127.0.0.1:{free_port()}"}
    for settings, advertised in ((METRICS, TELEMETRY), (otlp, TELEMETRY), ({}, set())):
        with Wire(make_broker(settings).bootstrap) as wire:
            keys = {each.api_key for each in wire.api_versions().api_keys}
            assert keys & TELEMETRY == advertised


def test_a_scrape_finds_what_our_clients_push(make_broker: MakeBroker) -> None:
    broker = make_broker(METRICS, topics={"orders": 1})
    with Wire(broker.bootstrap) as wire:
        subscribe(wire, "all", metrics="*", interval_ms="100", match="client_id=mine-.*")

    async def work() -> set[str]:
        at = broker.bootstrap
        async with (
            Producer(at, client_id="mine-p") as producer,
            Consumer(at, topics=["orders"], group="g", client_id="mine-c") as consumer,
            Admin(at, client_id="mine-a") as admin,
            Admin(at, client_id="other") as other,
        ):
            producer.register_metric("my-app.open-orders", lambda: 42)
            for _ in range(3):
                await producer.send("orders", value=b"x")
            ids = {await each.client_instance_id() for each in (producer, consumer, admin)}
            assert await other.client_instance_id() not in ids
        return ids

    ids = asyncio.run(asyncio.wait_for(work(), 60))
    found = scrape(broker)  # their last pushes
    info = found["headwater_client_info"]
    about = [dict(labels) for _, labels in info.samples]
    assert {labels["client_instance_id"] for labels in about} == ids
    assert {labels["client_software_name"] for labels in about} == {"headwater"}
    sent = found["org_apache_kafka_producer_record_send_total"]
    assert sent.kind == "counter"
    assert sent.value(client_id="mine-p") == 3
    assert found["org_apache_kafka_my_app_open_orders"].value(client_id="mine-p") == 42
    latency = found["org_apache_kafka_consumer_fetch_manager_fetch_latency_max"]
    assert latency.value(client_id="mine-c", group_id="g") >= 0
    assert found["org_apache_kafka_admin_client_connection_creation_total"].value() >= 1
    assert found["headwater_client_telemetry_pushes_total"].value() >= 3
    assert found["headwater_client_telemetry_refused_pushes_total"].value() == 0


PAGE = Path(__file__).resolve().parents[2] / "docs" / "telemetry.md"


def test_the_commands_of_the_page_do_what_it_says(
    make_broker: MakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = make_broker()
    (block,) = re.findall(r"```\n(headwater config .*?)```", PAGE.read_text(), re.DOTALL)
    set_, get, unset = (shlex.split(line)[2:] for line in block.splitlines())
    config = Command("config", capsys)
    where = ("--bootstrap", broker.bootstrap)
    config(*set_, *where)
    shown = config(*get, *where)
    assert "30000" in shown
    assert "client_id=billing.*" in shown
    with Wire(broker.bootstrap, client_id="billing-1") as wire:
        until(lambda: ask(wire).requested_metrics == ["org.apache.kafka.producer."], "it")
        config(*unset, *where)
        until(lambda: ask(wire).requested_metrics == [], "its end")
    assert "are the defaults" in config("get", "client-metrics", "slow-billing", *where)
