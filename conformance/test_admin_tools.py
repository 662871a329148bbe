"""Kafka's administration tools do their work and print what they print for Kafka."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from conformance.conftest import Subject
from conformance.records import create_topic, produce, read_all

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
API_VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"


def _node_id(subject: Subject) -> str:
    brokers = AdminClient({"bootstrap.servers": subject.bootstrap}).list_topics(timeout=30).brokers
    return str(next(iter(brokers)))


def test_topic_command_creates_describes_grows_and_deletes_a_topic(
    subject: Subject, topic: str
) -> None:
    made = ["--create", "--topic", topic, "--partitions", "3", "--replication-factor", "1"]
    made += ["--config", "retention.ms=3600000"]
    assert f"Created topic {topic}." in subject.tool(TOPICS, *made)
    assert topic in subject.tool(TOPICS, "--list").split()
    described = subject.tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 3\tReplicationFactor: 1" in described
    assert "retention.ms=3600000" in described
    assert len(re.findall(r"Partition: \d+\tLeader: \d+\tReplicas: \d+\tIsr: \d+", described)) == 3
    subject.tool(TOPICS, "--alter", "--topic", topic, "--partitions", "5")
    assert "PartitionCount: 5" in subject.tool(TOPICS, "--describe", "--topic", topic)
    subject.tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in subject.tool(TOPICS, "--list").split()


def test_topic_command_is_told_why_a_topic_cannot_be_made(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic)
    again = ["--create", "--topic", topic]
    assert f"Topic '{topic}' already exists" in subject.refusal(TOPICS, *again)
    bad_config = ["--create", "--topic", f"{topic}-x", "--config", "retention.ms=soon"]
    assert "retention.ms" in subject.refusal(TOPICS, *bad_config)
    too_many = ["--create", "--topic", f"{topic}-y", "--replication-factor", "3"]
    assert "INVALID_REPLICATION_FACTOR" in subject.refusal(TOPICS, *too_many).upper().replace(
        "INVALIDREPLICATIONFACTOR", "INVALID_REPLICATION_FACTOR"
    )


def test_config_command_sets_shows_and_clears_a_topic_config(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic)
    where = ["--entity-type", "topics", "--entity-name", topic]
    change = ["--alter", "--add-config", "cleanup.policy=compact,max.message.bytes=2000000"]
    subject.tool(CONFIGS, *where, *change)
    described = subject.tool(CONFIGS, *where, "--describe")
    assert "cleanup.policy=compact sensitive=false" in described
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=2000000" in described
    subject.tool(CONFIGS, *where, "--alter", "--delete-config", "cleanup.policy")
    assert "cleanup.policy=compact" not in subject.tool(CONFIGS, *where, "--describe")
    everything = subject.tool(CONFIGS, *where, "--describe", "--all")
    assert "cleanup.policy=delete sensitive=false" in everything


def test_config_command_sets_and_shows_broker_configs(subject: Subject) -> None:
    one = ["--entity-type", "brokers", "--entity-name", _node_id(subject)]
    all_of_them = ["--entity-type", "brokers", "--entity-default"]
    for where, value in ((one, "65536"), (all_of_them, "131072")):
        subject.tool(
            CONFIGS, *where, "--alter", "--add-config", f"log.index.interval.bytes={value}"
        )
        described = subject.tool(CONFIGS, *where, "--describe")
        assert f"log.index.interval.bytes={value} sensitive=false" in described
        subject.tool(CONFIGS, *where, "--alter", "--delete-config", "log.index.interval.bytes")
        described = subject.tool(CONFIGS, *where, "--describe")
        assert "log.index.interval.bytes" not in described
    everything = subject.tool(CONFIGS, *one, "--describe", "--all")
    assert "num.partitions=" in everything
    assert "DEFAULT_CONFIG:log.retention.hours=168" in everything


def test_get_offset_shell_finds_first_last_and_dated_offsets(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic, 2)
    produce(subject.bootstrap, topic, "lz4", [b"value"] * 100)
    times = [record.timestamp for record in read_all(subject.bootstrap, topic)]
    answers = {
        "-1": [f"{topic}:0:100", f"{topic}:1:0"],
        "-2": [f"{topic}:0:0", f"{topic}:1:0"],
        "earliest": [f"{topic}:0:0", f"{topic}:1:0"],
        str(times[0]): [f"{topic}:0:0", f"{topic}:1:"],
        "max-timestamp": [f"{topic}:0:{times.index(max(times))}", f"{topic}:1:"],
    }
    for when, expected in answers.items():
        printed = subject.tool(OFFSETS, "--topic", topic, "--time", when).split()
        # Kafka leaves a partition out when there is no such record in it.
        assert [line for line in expected if not line.endswith(":")] == [
            line for line in printed if not line.endswith(":")
        ], f"--time {when}"


def test_delete_records_command_moves_the_start_of_the_log(
    subject: Subject, topic: str, tmp_path: Path
) -> None:
    create_topic(subject.bootstrap, topic)
    produce(subject.bootstrap, topic, "none", [b"value"] * 100)
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 60}]}
    asked = tmp_path / "offsets.json"
    asked.write_text(json.dumps(wanted))
    printed = subject.tool(DELETE_RECORDS, "--offset-json-file", str(asked))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 60", printed), printed
    assert f"{topic}:0:60" in subject.tool(OFFSETS, "--topic", topic, "--time", "-2")
    assert [record.offset for record in read_all(subject.bootstrap, topic)] == list(range(60, 100))


def test_log_dirs_command_shows_the_size_of_each_partition(subject: Subject, topic: str) -> None:
    create_topic(subject.bootstrap, topic, 2)
    produce(subject.bootstrap, topic, "none", [b"x" * 1000] * 100)
    printed = subject.tool(LOG_DIRS, "--describe", "--topic-list", topic)
    described = json.loads(next(line for line in printed.splitlines() if line.startswith("{")))
    (broker,) = described["brokers"]
    assert [folder["error"] for folder in broker["logDirs"]] == [None]
    found = {each["partition"]: each for each in broker["logDirs"][0]["partitions"]}
    assert set(found) == {f"{topic}-0", f"{topic}-1"}
    assert found[f"{topic}-0"]["size"] > 100_000
    assert found[f"{topic}-1"]["size"] == 0
    assert not any(each["isFuture"] or each["offsetLag"] for each in found.values())


def test_broker_api_versions_command_finds_every_api_usable(subject: Subject) -> None:
    printed = subject.tool(API_VERSIONS)
    assert (
        f"{subject.bootstrap} (id: {_node_id(subject)} rack: null isFenced: false) -> (" in printed
    )
    needed = (
        "Produce Fetch ListOffsets Metadata ApiVersions CreateTopics DeleteTopics DeleteRecords"
    )
    needed += " InitProducerId OffsetForLeaderEpoch DescribeConfigs AlterConfigs DescribeLogDirs"
    needed += " CreatePartitions ElectLeaders IncrementalAlterConfigs DescribeCluster"
    needed += " DescribeProducers DescribeQuorum UpdateFeatures UnregisterBroker"
    needed += " ListConfigResources DescribeTopicPartitions"
    for name in needed.split():
        assert re.search(rf"\t{name}\(\d+\): [^U]*\[usable: \d+\]", printed), name
    assert "UNKNOWN" not in printed


def test_cluster_tool_shows_the_cluster_id_and_its_endpoints(subject: Subject) -> None:
    run = ("cluster-id", "list-endpoints")
    cluster_id, endpoints = (_tool_with_action(subject, CLUSTER, action) for action in run)
    assert re.search(r"Cluster ID: [A-Za-z0-9_-]{22}\s", cluster_id), cluster_id
    host, port = subject.bootstrap.split(":")
    assert re.search(rf"{_node_id(subject)}\s+{re.escape(host)}\s+{port}\s", endpoints), endpoints


def test_feature_command_shows_the_finalized_features(subject: Subject) -> None:
    printed = subject.tool(FEATURES, "describe")
    for feature in ("metadata.version", "kraft.version", "transaction.version", "group.version"):
        assert re.search(
            rf"Feature: {re.escape(feature)}\s+SupportedMinVersion: \S+\s+"
            r"SupportedMaxVersion: \S+\s+FinalizedVersionLevel: \S+\s+Epoch: \d+",
            printed,
        ), f"{feature} in {printed}"


def test_metadata_quorum_command_shows_one_voter_that_leads(subject: Subject) -> None:
    node_id = _node_id(subject)
    status = subject.tool(QUORUM, "describe", "--status")
    assert re.search(rf"LeaderId:\s+{node_id}\s", status), status
    assert re.search(r"HighWatermark:\s+\d+", status), status
    assert re.search(r"MaxFollowerLag:\s+0\s", status), status
    assert re.search(rf'CurrentVoters:\s+\[.*"id": {node_id}\b', status), status
    replication = subject.tool(QUORUM, "describe", "--replication")
    assert re.search(rf"\n{node_id}\s+\S+\s+\d+\s+0\s+.*Leader", replication), replication


@pytest.mark.parametrize("kind", ["preferred"])
def test_leader_election_command_finds_nothing_to_do(
    subject: Subject, topic: str, kind: str
) -> None:
    create_topic(subject.bootstrap, topic)
    arguments = ["--election-type", kind, "--topic", topic, "--partition", "0"]
    assert "Valid replica already elected" in subject.tool(ELECTION, *arguments)


def _tool_with_action(subject: Subject, main: str, action: str) -> str:
    """ClusterTool wants its action before the address."""
    from harness.nodes import run_java

    done = run_java(subject.jars, main, action, "--bootstrap-server", subject.bootstrap)
    return done.stdout + done.stderr
