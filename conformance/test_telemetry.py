"""Metrics of clients (KIP-714): Kafka's command, Java's clients, and ours at Kafka."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from conformance.conftest import Subject
from conformance.records import create_topic
from harness.nodes import Headwater, Node, run_java
from tests.support.exposition import parse

COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"


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
