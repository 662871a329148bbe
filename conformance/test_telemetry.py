"""Metrics of clients (KIP-714): Kafka's command, Java's clients, and ours at Kafka."""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest

from conformance.conftest import Subject
from conformance.records import create_topic
from harness.nodes import Headwater, Kafka, Node, run_java
from harness.wire import Wire, until
from headwater import Admin, Consumer, Producer, _core
from headwater.client.admin import client_metrics_config
from headwater.metadata import ResourceType
from headwater.model import ZERO_ID
from headwater.protocol import Message
from headwater.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.messages.push_telemetry import PushTelemetryRequest
from headwater.protocol.otlp import Point, encode_metrics
from headwater.protocol.schema import fields_of
from tests.support.exposition import parse

COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
_REPORTER = Path(__file__).parent / "java" / "PrintingReporter.java"


def test_client_metrics_command_alters_describes_lists_and_deletes(subject: Subject) -> None:
    name = "conformance-slow"
    settings = ["--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer."]
    settings += ["--interval", "1000", "--match", "client_id=billing.*"]
    altered = subject.tool(COMMAND, "--alter", "--name", name, *settings)
    assert f"Altered client metrics config for {name}." in altered
    described = subject.tool(COMMAND, "--describe", "--name", name)
    assert "interval.ms=1000" in described
    assert "match=client_id=billing.*" in described
    assert "metrics=org.apache.kafka.producer.,org.apache.kafka.consumer." in described
    assert name in subject.tool(COMMAND, "--list").split()
    made_up = subject.tool(COMMAND, "--alter", "--generate-name", "--metrics", "*")
    found = re.search(r"Altered client metrics config for (\S+)\.", made_up)
    assert found is not None, made_up
    for each in (name, found[1]):
        assert f"Deleted client metrics config for {each}." in subject.tool(
            COMMAND, "--delete", "--name", each
        )
    assert not {name, found[1]} & set(subject.tool(COMMAND, "--list").split())


@pytest.mark.parametrize(
    ("setting", "value"),
    [("--interval", "99"), ("--interval", "3600001"), ("--match", "nobody=x"), ("--match", "x")],
)
def test_client_metrics_command_is_refused_what_makes_no_sense(
    subject: Subject, setting: str, value: str
) -> None:
    subject.refusal(COMMAND, "--alter", "--name", "conformance-bad", setting, value)
    assert "conformance-bad" not in subject.tool(COMMAND, "--list").split()


def test_java_s_producer_pushes_and_a_scrape_has_it(
    request: pytest.FixtureRequest, new_node: Callable[..., Node]
) -> None:
    if request.config.getoption("--subject") == "kafka":
        pytest.skip("Kafka serves no metrics by HTTP")
    node = new_node(Headwater(), headwater_metrics_listen="127.0.0.1:0").start()
    subject = Subject(node.bootstrap, request.getfixturevalue("jars"))
    subject.tool(COMMAND, "--alter", "--name", "all", "--metrics", "*", "--interval", "500")
    create_topic(node.bootstrap, "orders")
    sent = ["--topic", "orders", "--num-records", "2000", "--record-size", "100"]
    sent += ["--throughput", "1000", "--command-property", f"bootstrap.servers={node.bootstrap}"]
    run_java(subject.jars, PERFORMANCE, *sent, "client.id=java-producer")
    address = re.search(r"metrics on (http://\S+)", node.last_output(200))
    assert address is not None, node.last_output(200)
    with urlopen(address[1], timeout=60) as answer:
        found = parse(answer.read().decode())
    # It says goodbye with a last push, so that nothing is missing.
    sent_total = found["org_apache_kafka_producer_record_send_total"]
    assert sent_total.value(client_id="java-producer") == 2000
    latency = found["org_apache_kafka_producer_node_request_latency_max"]
    assert latency.value(client_id="java-producer", node_id="node-1") > 0
    assert found["headwater_client_telemetry_refused_pushes_total"].value() == 0


def _compiled(source: Path, jars: Path, folder: Path) -> Path:
    """Returns a folder with a jar of one Java class."""
    classes, packed = folder / "classes", folder / "packed"
    packed.mkdir(parents=True)
    javac = ["javac", "-cp", f"{jars}/*", "-d", str(classes), str(source)]
    subprocess.run(javac, check=True, capture_output=True)
    jar = ["jar", "--create", "--file", str(packed / f"{source.stem}.jar"), "-C", str(classes), "."]
    subprocess.run(jar, check=True, capture_output=True)
    return packed


def test_our_clients_push_to_kafka(
    new_node: Callable[..., Node], jars: Path, tmp_path: Path
) -> None:
    """Kafka reads what our clients push, and has it in full when they have closed."""
    pushed = tmp_path / "pushed"
    plugin = _compiled(_REPORTER, jars, tmp_path / "plugin")
    kafka = Kafka(jars, more=(plugin,), options=(f"-Dtelemetry.file={pushed}",))
    node = new_node(kafka, metric_reporters="PrintingReporter").start()

    async def work() -> None:
        at = node.bootstrap
        async with Admin(at) as admin:
            resource = client_metrics_config("all")
            await admin.alter_config(resource, {"metrics": "*", "interval.ms": "500"})
            await admin.create_topics({"orders": 1})
        async with (
            Producer(at, client_id="our-producer") as producer,
            Consumer(at, topics=["orders"], group="g", client_id="our-consumer") as consumer,
            Admin(at, client_id="our-admin") as admin,
        ):
            for client in (producer, consumer, admin):
                assert await client.client_instance_id()
            producer.register_metric("my-app.open-orders", lambda: 42)
            await producer.send("orders", value=b"x")
            await consumer.poll(timeout_ms=1000)

    asyncio.run(asyncio.wait_for(work(), 120))
    last = {
        (client, name)
        for client, is_last, name in (line.split() for line in pushed.read_text().splitlines())
        if is_last == "true"
    }
    assert {
        ("our-producer", "org.apache.kafka.producer.record.queue.time.avg"),
        ("our-producer", "org.apache.kafka.my.app.open.orders"),
        ("our-consumer", "org.apache.kafka.consumer.coordinator.assigned.partitions"),
        ("our-consumer", "org.apache.kafka.consumer.fetch.manager.fetch.latency.max"),
        ("our-admin", "org.apache.kafka.admin.client.connection.creation.total"),
    } <= last


class _Session:
    """Requests about telemetry, and what a broker says to them."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._ids = iter(range(2, 1000))
        self.answers: list[object] = []

    def subscribe(self, name: str, **configs: str | None) -> int:
        values = [
            AlterableConfig(
                name=key.replace("_", "."), config_operation=int(value is None), value=value
            )
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(
            resource_type=ResourceType.CLIENT_METRICS, resource_name=name, configs=values
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        code: int = self._wire.ask(request).responses[0].error_code
        self.answers.append(("subscribe", configs, code))
        return code

    def new_id(self) -> bytes:
        return next(self._ids).to_bytes(16)

    def ask(self, instance_id: bytes) -> GetTelemetrySubscriptionsResponse:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        told: GetTelemetrySubscriptionsResponse = self._wire.ask(request)
        shown = _fields_of(told)
        if instance_id == ZERO_ID:  # the broker makes one up
            shown |= {"client_instance_id": len(told.client_instance_id), "subscription_id": None}
        self.answers.append(("ask", shown))
        return told

    def await_metrics(self, *names: str) -> None:
        """Waits until the broker has followed a change."""

        def told() -> bool:
            request = GetTelemetrySubscriptionsRequest(client_instance_id=ZERO_ID)
            return sorted(self._wire.ask(request).requested_metrics) == sorted(names)

        until(told, f"a subscription to {names}", 60.0)

    def push(
        self,
        told: GetTelemetrySubscriptionsResponse,
        *,
        instance_id: bytes | None = None,
        wrong: int = 0,
        is_last: bool = False,
        compression: int = 0,
        metrics: bytes | None = None,
    ) -> None:
        request = PushTelemetryRequest(
            client_instance_id=told.client_instance_id if instance_id is None else instance_id,
            subscription_id=told.subscription_id ^ wrong,
            terminating=is_last,
            compression_type=compression,
            metrics=_VALID if metrics is None else metrics,
        )
        self.answers.append(("push", self._wire.ask(request).error_code))


def _fields_of(message: Message) -> dict[str, object]:
    return {each.name: getattr(message, each.name) for each in fields_of(type(message))}


ONE_CLIENT = bytes(range(16, 32))
_VALID = encode_metrics({}, [Point("org.apache.kafka.x", (), 1.0)])


def _converse(bootstrap: str) -> list[object]:
    """Asks and pushes. No answer depends on how long a request takes: the intervals are long, and
    where one would have to be over there is another instance."""
    with Wire(bootstrap, client_id="conformance") as wire:
        talk = _Session(wire)
        for _ in range(2):
            talk.ask(ONE_CLIENT)  # without subscriptions; the second comes too early
        talk.subscribe("s1", metrics="b,a,org.apache.kafka.", interval_ms="200000")
        talk.await_metrics("a", "b", "org.apache.kafka.")
        told = talk.ask(ONE_CLIENT)  # at once: it has changed
        talk.ask(ONE_CLIENT)
        for _ in range(2):
            talk.push(told)
        talk.push(told, wrong=1)  # too early is said first
        talk.push(told, is_last=True)
        talk.push(told, is_last=True)
        talk.push(told)
        talk.ask(ONE_CLIENT)
        talk.ask(ZERO_ID)
        for reserved in (ZERO_ID, (1).to_bytes(16)):
            talk.push(told, instance_id=reserved)
        for problem in (
            {"wrong": 1},
            {"compression": 9},
            {"compression": -1},
            {"metrics": bytes(1_048_577)},
            {"metrics": b""},
            {"wrong": 1, "compression": 9},
            {"compression": 9, "metrics": bytes(1_048_577)},
            {"compression": 4, "metrics": b"junk"},
            {"compression": 4, "metrics": _core.compress(4, bytes(2_000_000))},
            *(
                {"compression": codec, "metrics": _core.compress(codec, _VALID)}
                for codec in range(1, 5)
            ),
        ):
            client = talk.new_id()
            told = talk.ask(client)
            talk.push(told, **problem)  # type: ignore[arg-type]
            talk.ask(client)
        talk.subscribe("s2", metrics="*", interval_ms="100000", match="client_id=conf.*")
        talk.await_metrics("*")
        talk.push(talk.ask(talk.new_id()))
        talk.push(told)  # of the subscription before
        for name, configs in (
            ("s2", {"interval_ms": "99"}),
            ("s2", {"interval_ms": "3600001"}),
            ("s2", {"interval_ms": "soon"}),
            ("s2", {"match": "nobody=x"}),
            ("s2", {"match": "client_id=["}),
            ("s2", {"match": "client_id=a=b"}),
            ("s2", {"nothing": "1"}),
            ("", {"metrics": "*"}),
        ):
            talk.subscribe(name, **configs)
        for name in ("s1", "s2"):
            talk.subscribe(name, metrics=None, interval_ms=None, match=None)
        talk.await_metrics()
        talk.ask(talk.new_id())
        return talk.answers


def test_clients_are_answered_as_by_kafka(
    new_node: Callable[..., Node], jars: Path, tmp_path: Path
) -> None:
    plugin = _compiled(_REPORTER, jars, tmp_path / "plugin")
    ours = new_node().start()
    kafka = Kafka(jars, more=(plugin,), options=("-Dtelemetry.file=/dev/null",))
    theirs = new_node(kafka, metric_reporters="PrintingReporter").start()
    assert _converse(ours.bootstrap) == _converse(theirs.bootstrap)
