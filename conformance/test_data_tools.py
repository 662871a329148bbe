"""Kafka's tools that produce and consume."""

from __future__ import annotations

import json

import pytest

from conformance.conftest import Subject
from conformance.records import CODECS, create_topic, produce, sample_values, values_of
from harness.nodes import run_java

CONSOLE_PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


def _consume(subject: Subject, topic: str, count: int, *more: str) -> str:
    arguments = ["--topic", topic, "--partition", "0", "--offset", "earliest", *more]
    arguments += ["--max-messages", str(count), "--timeout-ms", "30000"]
    return subject.tool(CONSOLE_CONSUMER, *arguments)


@pytest.mark.parametrize("codec", CODECS)
def test_what_console_producer_sends_console_consumer_prints(
    subject: Subject, topic: str, codec: str
) -> None:
    create_topic(subject.bootstrap, topic)
    lines = [f"{codec} line {number}" for number in range(200)]
    arguments = ["--topic", topic, "--compression-codec", codec]
    subject.tool(CONSOLE_PRODUCER, *arguments, stdin="\n".join(lines) + "\n")
    printed = _consume(subject, topic, len(lines)).splitlines()
    assert [line for line in printed if line.startswith(codec)] == lines


def test_console_consumer_prints_keys_headers_offsets_and_times(
    subject: Subject, topic: str
) -> None:
    create_topic(subject.bootstrap, topic)
    produce(subject.bootstrap, topic, "zstd", [b"first", b"second"])
    shown = ["timestamp", "key", "offset", "partition", "headers"]
    more = [part for name in shown for part in ("--formatter-property", f"print.{name}=true")]
    printed = _consume(subject, topic, 2, *more)
    assert "\tPartition:0\tOffset:1\tnumber:1,nothing:null\tkey 1\tsecond" in printed
    assert printed.startswith("CreateTime:")


def test_console_consumer_can_begin_at_an_offset(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic)
    produce(subject.bootstrap, topic, "none", [b"%d" % number for number in range(50)])
    arguments = ["--topic", topic, "--partition", "0", "--offset", "47", "--max-messages", "3"]
    assert subject.tool(CONSOLE_CONSUMER, *arguments).splitlines()[:3] == ["47", "48", "49"]


@pytest.mark.parametrize("codec", CODECS)
def test_the_java_consumer_reads_what_librdkafka_sent(
    subject: Subject, topic: str, codec: str
) -> None:
    create_topic(subject.bootstrap, topic)
    values = [value for value in sample_values(codec) if value.isascii() and value.isalnum()]
    values += [f"{codec}-{number}".encode() * 20 for number in range(200)]
    produce(subject.bootstrap, topic, codec, values)
    printed = _consume(subject, topic, len(values)).splitlines()
    assert [line.encode() for line in printed if line.startswith(codec)] == values


def test_verifiable_producer_has_every_record_acknowledged(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic, 3)
    arguments = ["--topic", topic, "--max-messages", "5000", "--throughput", "-1", "--acks", "-1"]
    printed = subject.tool("org.apache.kafka.tools.VerifiableProducer", *arguments)
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    names = [event["name"] for event in events]
    assert names.count("producer_send_success") == 5000
    assert "producer_send_error" not in names
    (result,) = [event for event in events if event["name"] == "tool_data"]
    assert (result["sent"], result["acked"]) == (5000, 5000)
    assert sorted(map(int, values_of(subject.bootstrap, topic))) == list(range(5000))


@pytest.mark.parametrize("codec", CODECS)
def test_producer_performance_runs_through(subject: Subject, topic: str, codec: str) -> None:
    create_topic(subject.bootstrap, topic, 3)
    arguments = ["--topic", topic, "--num-records", "20000", "--record-size", "100"]
    arguments += ["--throughput", "-1", "--bootstrap-server", subject.bootstrap]
    arguments += ["--command-property", "acks=all", f"compression.type={codec}"]
    done = run_java(subject.jars, "org.apache.kafka.tools.ProducerPerformance", *arguments)
    assert "20000 records sent" in done.stdout, done.stdout + done.stderr
    assert len(values_of(subject.bootstrap, topic)) == 20000
