"""librdkafka, by its Python binding, as most services outside the JVM use it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from headwater.testing import EmbeddedBroker

PATIENCE = 30.0
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(shared_broker: EmbeddedBroker) -> Any:
    return AdminClient({"bootstrap.servers": shared_broker.bootstrap})


def create(admin: Any, topic: str, partitions: int = 1, **config: str) -> None:
    new = NewTopic(topic, partitions, 1, config={k.replace("_", "."): v for k, v in config.items()})
    admin.create_topics([new])[topic].result(PATIENCE)


def produce_all(broker: EmbeddedBroker, messages: list[dict[str, Any]], **config: Any) -> list[Any]:
    """Sends them and waits for every acknowledgement; hands back what the broker said of each."""
    delivered: list[Any] = []

    def on_delivery(error: Any, message: Any) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": broker.bootstrap, **config})
    for message in messages:
        producer.produce(**message, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(PATIENCE) == 0
    return delivered


def plain_consumer(broker: EmbeddedBroker) -> Any:
    """One that reads what it is told to and commits nothing."""
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
        }
    )


def consume(
    broker: EmbeddedBroker, topic: str, count: int, *, offset: int = 0, partition: int = 0
) -> list[Any]:
    """So many messages of one partition, without a group."""
    consumer = plain_consumer(broker)
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        got: list[Any] = []
        deadline = time.monotonic() + PATIENCE
        while len(got) < count:
            assert time.monotonic() < deadline, f"{len(got)} of {count} messages came"
            for message in consumer.consume(count - len(got), timeout=0.2):
                assert message.error() is None, message.error()
                got.append(message)
        return got
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("idempotent", [True, False], ids=["idempotent", "plain"])
def test_messages_come_back_in_order(
    shared_broker: EmbeddedBroker, admin: Any, topic: str, codec: str, idempotent: bool
) -> None:
    create(admin, topic)
    sent = [{"topic": topic, "value": b"%d" % n * 20, "key": b"k%d" % n} for n in range(500)]
    produce_all(
        shared_broker,
        sent,
        **{"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5},
    )
    got = consume(shared_broker, topic, 500)
    assert [message.offset() for message in got] == list(range(500))
    assert [(m.key(), m.value()) for m in got] == [(m["key"], m["value"]) for m in sent]


def test_nulls_headers_and_timestamps_come_back(
    shared_broker: EmbeddedBroker, admin: Any, topic: str
) -> None:
    create(admin, topic)
    now_ms = int(time.time() * 1000)
    headers = [("trace", b"1"), ("trace", b"2"), ("null", None), ("empty", b"")]
    produce_all(
        shared_broker,
        [
            {"topic": topic, "value": None, "key": None},
            {"topic": topic, "value": b"", "key": b""},
            {"topic": topic, "value": b"v", "headers": headers, "timestamp": now_ms - 5000},
        ],
    )
    null, empty, full = consume(shared_broker, topic, 3)
    assert (null.key(), null.value(), null.headers()) == (None, None, None)
    assert (empty.key(), empty.value()) == (b"", b"")
    assert full.headers() == headers
    assert full.timestamp() == (1, now_ms - 5000)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement(
    shared_broker: EmbeddedBroker, admin: Any, topic: str, acks: str
) -> None:
    create(admin, topic)
    produce_all(
        shared_broker, [{"topic": topic, "value": b"%d" % n} for n in range(100)], acks=acks
    )
    assert [m.value() for m in consume(shared_broker, topic, 100)] == [
        b"%d" % number for number in range(100)
    ]


def test_large_messages_pass_and_larger_ones_are_refused(
    shared_broker: EmbeddedBroker, admin: Any, topic: str
) -> None:
    create(admin, topic, max_message_bytes="5000000")
    large = bytes(range(256)) * 16_000
    config = {"message.max.bytes": 10_000_000}
    produce_all(shared_broker, [{"topic": topic, "value": large}], **config)
    assert consume(shared_broker, topic, 1)[0].value() == large
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": shared_broker.bootstrap, **config})
    producer.produce(topic, bytes(6_000_000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE) == 0
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_keys_choose_the_partition(shared_broker: EmbeddedBroker, admin: Any, topic: str) -> None:
    create(admin, topic, partitions=4)
    messages = [{"topic": topic, "key": b"k%d" % (n % 10), "value": b"%d" % n} for n in range(200)]
    delivered = produce_all(shared_broker, messages, partitioner="murmur2_random")
    where: dict[bytes, set[int]] = {}
    for message in delivered:
        where.setdefault(message.key(), set()).add(message.partition())
    assert all(len(partitions) == 1 for partitions in where.values())
    assert len({partition for (partition,) in where.values()}) > 1


def test_a_topic_is_created_by_producing_to_it(shared_broker: EmbeddedBroker, topic: str) -> None:
    (message,) = produce_all(shared_broker, [{"topic": topic, "value": b"first"}])
    assert (message.partition(), message.offset()) == (0, 0)


def test_watermarks_and_offsets_for_times(
    shared_broker: EmbeddedBroker, admin: Any, topic: str
) -> None:
    create(admin, topic)
    for moment in (1_000_000, 2_000_000, 3_000_000):
        produce_all(shared_broker, [{"topic": topic, "value": b"x", "timestamp": moment}])
    consumer = plain_consumer(shared_broker)
    try:
        at = TopicPartition(topic, 0)
        assert consumer.get_watermark_offsets(at, timeout=PATIENCE) == (0, 3)
        wanted = [TopicPartition(topic, 0, moment) for moment in (1_500_000,)]
        assert consumer.offsets_for_times(wanted, timeout=PATIENCE)[0].offset == 1
    finally:
        consumer.close()
    for spec, offset in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 2),
        (OffsetSpec.for_timestamp(2_000_001), 2),
    ):
        found = admin.list_offsets({at: spec})[at].result(PATIENCE)
        assert found.offset == offset


def test_topics_are_created_described_and_deleted(admin: Any, topic: str) -> None:
    create(admin, topic, partitions=3, retention_ms="3600000")
    about = admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE)
    assert [partition.id for partition in about.partitions] == [0, 1, 2]
    assert all(partition.leader.id == 1 for partition in about.partitions)
    with pytest.raises(KafkaException) as refused:
        create(admin, topic)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(PATIENCE)
    about = admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE)
    assert len(about.partitions) == 5
    admin.delete_topics([topic])[topic].result(PATIENCE)
    with pytest.raises(KafkaException) as gone:
        admin.describe_topics(TopicCollection([topic]))[topic].result(PATIENCE)
    assert gone.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


@pytest.mark.parametrize("name", ["no/slash", "..", "x" * 250])
def test_a_topic_name_that_cannot_be_is_refused(admin: Any, name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, name)
    assert refused.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_more_replicas_than_brokers_are_refused(admin: Any, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 3)])[topic].result(PATIENCE)
    assert refused.value.args[0].code() == KafkaError.INVALID_REPLICATION_FACTOR


def test_configs_are_described_and_altered(admin: Any, topic: str) -> None:
    create(admin, topic, retention_ms="3600000")
    resource = ConfigResource(ResourceType.TOPIC, topic)

    def described() -> dict[str, Any]:
        found: dict[str, Any] = admin.describe_configs([resource])[resource].result(PATIENCE)
        return found

    before = described()
    assert before["retention.ms"].value == "3600000"
    assert not before["retention.ms"].is_default
    assert before["cleanup.policy"].value == "delete"
    assert before["cleanup.policy"].is_default
    change = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            ConfigEntry("max.message.bytes", "2000", incremental_operation=AlterConfigOpType.SET),
            ConfigEntry("retention.ms", "0", incremental_operation=AlterConfigOpType.DELETE),
        ],
    )
    admin.incremental_alter_configs([change])[change].result(PATIENCE)
    after = described()
    assert after["max.message.bytes"].value == "2000"
    assert after["retention.ms"].value == "604800000"


def test_a_config_that_cannot_be_is_refused(admin: Any, topic: str) -> None:
    with pytest.raises(KafkaException) as refused:
        create(admin, topic, retention_ms="a while")
    assert refused.value.args[0].code() == KafkaError.INVALID_CONFIG


def test_broker_configs_are_described(admin: Any) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    found = admin.describe_configs([resource])[resource].result(PATIENCE)
    assert found["num.partitions"].value == "1"
    assert found["node.id"].value == "1"


def test_the_cluster_is_described(shared_broker: EmbeddedBroker, admin: Any) -> None:
    cluster = admin.describe_cluster().result(PATIENCE)
    assert cluster.controller.id == 1
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == shared_broker.bootstrap


def test_records_are_deleted(shared_broker: EmbeddedBroker, admin: Any, topic: str) -> None:
    create(admin, topic)
    produce_all(shared_broker, [{"topic": topic, "value": b"%d" % n} for n in range(10)])
    at = TopicPartition(topic, 0, 7)
    assert admin.delete_records([at])[at].result(PATIENCE).low_watermark == 7
    assert [m.value() for m in consume(shared_broker, topic, 3, offset=7)] == [b"7", b"8", b"9"]
