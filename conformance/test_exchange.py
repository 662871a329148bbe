"""Data folders change hands: Kafka's opens here and ours opens in Kafka, and both read the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from conformance.records import CODECS, Seen, create_topic, produce, read_all, sample_values
from harness.nodes import Flavour, Kafka, Node
from harness.wire import Wire, until
from headwater.errors import ErrorCode
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
)

_TOPIC = "travels"
_GROUP = "travellers"
_FETCH_BY_NAME = 9  # the newest version of OffsetFetch that knows topics by name


def _write(node: Node) -> None:
    """Two partitions with every codec, a config, a moved log start, and a topic that is gone."""
    create_topic(node.bootstrap, _TOPIC, 2, retention_ms="-1", max_message_bytes="2000000")
    for codec in CODECS:
        produce(node.bootstrap, _TOPIC, codec, sample_values(codec), partition=0)
        produce(node.bootstrap, _TOPIC, codec, sample_values(codec, 20), partition=1)
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    for future in admin.delete_records([TopicPartition(_TOPIC, 1, 10)]).values():
        future.result(30)
    create_topic(node.bootstrap, "gone", 1)
    admin.delete_topics(["gone"])["gone"].result(30)


def _state(node: Node) -> tuple[list[Seen], dict[str, str], set[str], str]:
    """All a client can see: records, the topic's configs, the topics, the cluster's id."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap, "log_level": 2})
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC)
    described = admin.describe_configs([resource])[resource].result(30)
    configs = {name: entry.value for name, entry in described.items() if not entry.is_default}
    about = admin.list_topics(timeout=30)
    topics = {name for name in about.topics if not name.startswith("__")}
    return read_all(node.bootstrap, _TOPIC), configs, topics, about.cluster_id


def handed_over(writer: Node, reader: Node) -> Node:
    """Stops one node and starts the other on a copy of its folder."""
    writer.stop()
    shutil.copytree(writer.log_folder, reader.log_folder)
    return reader.start()


def _node_id(folder: Path) -> str:
    lines = (folder / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("node.id="))


def voters_are_in_the_log(folder: Path) -> bool:
    return (folder / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint").exists()


@pytest.mark.parametrize("static_voters", [False, True], ids=["dynamic quorum", "static quorum"])
def test_a_folder_written_by_kafka_reads_the_same_here_and_back_in_kafka(
    new_node: Callable[..., Node], jars: Path, flavour: Flavour, *, static_voters: bool
) -> None:
    kafka = Kafka(jars, static_voters=static_voters)
    if isinstance(flavour, Kafka):
        flavour = kafka
    first = new_node(kafka).start()
    _write(first)
    written = _state(first)
    second = handed_over(first, new_node(flavour, node_id="1"))
    assert _state(second) == written
    produce(second.bootstrap, _TOPIC, "zstd", sample_values("zstd"))
    create_topic(second.bootstrap, "made-here")
    extended = _state(second)
    third = handed_over(second, new_node(kafka))
    assert _state(third) == extended
    produce(third.bootstrap, _TOPIC, "gzip", sample_values("gzip"))


def test_a_folder_written_here_reads_the_same_in_kafka_and_back_here(
    new_node: Callable[..., Node], jars: Path
) -> None:
    first = new_node().start()
    _write(first)
    written = _state(first)
    first.stop()
    kafka = Kafka(jars, static_voters=not voters_are_in_the_log(first.log_folder))
    second = handed_over(first, new_node(kafka))
    assert _state(second) == written
    produce(second.bootstrap, _TOPIC, "zstd", sample_values("zstd"))
    create_topic(second.bootstrap, "made-there")
    extended = _state(second)
    node_id = _node_id(second.log_folder)
    third = handed_over(second, new_node(node_id=node_id))
    assert _state(third) == extended
    produce(third.bootstrap, _TOPIC, "gzip", sample_values("gzip"))


def _commit_in_transactions(node: Node) -> None:
    """Offsets of one group in a committed, an aborted and an open transaction, and in none."""
    create_topic(node.bootstrap, _TOPIC, 4)
    plain = {"bootstrap.servers": node.bootstrap, "log_level": 2}
    consumer = Consumer(plain | {"group.id": _GROUP, "enable.auto.commit": False})

    def committed() -> bool:
        try:
            consumer.commit(offsets=_offsets(1, 1, 1, 1), asynchronous=False)
        except KafkaException:  # the topic of the offsets is being created
            return False
        return True

    until(committed, "a coordinator")
    producers = []
    for partition, end in enumerate(("commit", "abort", "leave open")):
        producer = Producer(plain | {"transactional.id": f"t-{partition}"})
        producers.append(producer)
        producer.init_transactions(30)
        producer.begin_transaction()
        moved = [TopicPartition(_TOPIC, partition, 10 + partition)]
        producer.send_offsets_to_transaction(moved, consumer.consumer_group_metadata(), 30)
        if end == "commit":
            producer.commit_transaction(30)
        elif end == "abort":
            producer.abort_transaction(30)
    consumer.close()


def _offsets(*offsets: int) -> list[TopicPartition]:
    return [TopicPartition(_TOPIC, number, offset) for number, offset in enumerate(offsets)]


def _committed(node: Node, *, stable: bool) -> dict[int, int | str]:
    """By partition, the committed offset or the error that stands in its place."""
    topic = OffsetFetchRequestTopics(name=_TOPIC, partition_indexes=[0, 1, 2, 3])
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=_GROUP, topics=[topic])], require_stable=stable
    )
    with Wire(node.bootstrap) as wire:

        def loaded() -> OffsetFetchResponseGroup | None:
            (group,) = wire.ask(request, _FETCH_BY_NAME).groups
            return None if group.error_code else group

        group = until(loaded, "a coordinator that has loaded the group")
    return {
        found.partition_index: (
            ErrorCode(found.error_code).name if found.error_code else found.committed_offset
        )
        for found in group.topics[0].partitions
    }


def test_offsets_that_kafka_committed_in_transactions_are_loaded_here_as_kafka_loads_them(
    new_node: Callable[..., Node], jars: Path, flavour: Flavour
) -> None:
    kafka = Kafka(jars)
    first = new_node(kafka).start()
    _commit_in_transactions(first)
    second = handed_over(first, new_node(flavour, node_id="1"))
    assert _committed(second, stable=False) == {0: 10, 1: 1, 2: 1, 3: 1}
    unstable = "UNSTABLE_OFFSET_COMMIT"
    assert _committed(second, stable=True) == {0: 10, 1: 1, 2: unstable, 3: 1}
