"""Quotas: Kafka's tool sets and shows them, and Kafka's clients are held back by them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pytest

from conformance.conftest import Subject
from harness.wire import until
from headwater.blocking import Admin

CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER_PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERFORMANCE = "org.apache.kafka.tools.ConsumerPerformance"


@pytest.fixture(autouse=True)
def _no_quotas(subject: Subject) -> Iterator[None]:
    """Leaves no quota behind: defaults concern everybody."""
    yield
    with Admin(subject.bootstrap) as admin:
        found = admin.describe_quotas()
        admin.alter_quotas({entity: dict.fromkeys(quotas) for entity, quotas in found.items()})
        until(lambda: not admin.describe_quotas(), "no quotas")


def entities(topic: str) -> list[tuple[str, ...]]:
    user, client = ("--entity-type", "users"), ("--entity-type", "clients")
    name, default = ("--entity-name", topic), ("--entity-default",)
    return [
        (*user, *name, *client, *name),
        (*user, *name, *client, *default),
        (*user, *name),
        (*user, *default, *client, *name),
        (*user, *default, *client, *default),
        (*user, *default),
        (*client, *name),
        (*client, *default),
    ]


def test_config_command_sets_shows_and_removes_quotas_of_every_level(
    subject: Subject, topic: str
) -> None:
    for number, entity in enumerate(entities(topic), start=1):
        rates = f"producer_byte_rate={number}000,request_percentage={number}00.5"
        assert "Completed updating" in subject.tool(
            CONFIGS, "--alter", *entity, "--add-config", rates
        )

    def shown(entity: Sequence[str]) -> str:
        return subject.tool(CONFIGS, "--describe", *entity)

    for number, entity in enumerate(entities(topic), start=1):
        text = shown(entity)
        assert f"producer_byte_rate={number}000" in text, text
        assert f"request_percentage={number}00.5" in text, text
    pair = entities(topic)[0]
    subject.tool(CONFIGS, "--alter", *pair, "--delete-config", "request_percentage")
    assert "producer_byte_rate=1000" in shown(pair)
    assert "request_percentage" not in shown(pair)


def test_config_command_limits_connections_of_addresses(subject: Subject) -> None:
    one = ("--entity-type", "ips", "--entity-name", "10.9.8.7")
    default = ("--entity-type", "ips", "--entity-default")
    for entity, rate in ((one, 7), (default, 9000)):
        subject.tool(
            CONFIGS, "--alter", *entity, "--add-config", f"connection_creation_rate={rate}"
        )
        assert f"connection_creation_rate={rate}" in subject.tool(CONFIGS, "--describe", *entity)
    subject.tool(CONFIGS, "--alter", *one, "--delete-config", "connection_creation_rate")
    assert "rate=7" not in subject.tool(CONFIGS, "--describe", *one)


@pytest.mark.parametrize(
    ("entity", "config"),
    [
        (("--entity-type", "users", "--entity-name", "bob"), "producer_byte_rate=0"),
        (("--entity-type", "users", "--entity-name", "bob"), "no_such_rate=1"),
        (("--entity-type", "ips", "--entity-name", "999.1.2.3"), "connection_creation_rate=1"),
        (("--entity-type", "ips", "--entity-name", "10.9.8.7"), "producer_byte_rate=1"),
    ],
    ids=str,
)
def test_config_command_is_refused_quotas_that_cannot_be(
    subject: Subject, entity: tuple[str, ...], config: str
) -> None:
    subject.refusal(CONFIGS, "--alter", *entity, "--add-config", config)


def metric(name: str, printed: str) -> float:
    """The largest value of a metric that a tool printed."""
    values = re.findall(rf":{name}:[^\n]*?:\s*([\d.]+)\s*$", printed, re.MULTILINE)
    assert values, f"{name} is not in\n{printed}"
    return max(map(float, values))


def test_java_clients_wait_as_their_quotas_say(subject: Subject, topic: str) -> None:
    """4.5 MB at 300 kB/s; ten seconds' worth may come at once."""
    entity = ("--entity-type", "clients", "--entity-name", topic)
    rates = "producer_byte_rate=300000,consumer_byte_rate=300000"
    subject.tool(CONFIGS, "--alter", *entity, "--add-config", rates)
    produced = subject.tool(
        PRODUCER_PERFORMANCE,
        *("--topic", topic, "--num-records", "4500", "--record-size", "1000"),
        *("--throughput", "-1", "--print-metrics", "--command-property", f"client.id={topic}"),
    )
    assert metric("produce-throttle-time-max", produced) > 0
    consumed = subject.tool(
        CONSUMER_PERFORMANCE,
        *("--topic", topic, "--num-records", "4500", "--timeout", "60000", "--print-metrics"),
        *("--command-property", f"client.id={topic}"),
    )
    assert metric("fetch-throttle-time-max", consumed) > 0
