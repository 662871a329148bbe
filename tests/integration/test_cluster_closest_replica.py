"""Consumers that read from the replica in their rack (KIP-392)."""

from __future__ import annotations

import json
from collections.abc import Iterator

import confluent_kafka
import pytest

from harness.wire import Wire, only_partition, records_of, until
from headwater import TopicPartition
from headwater.blocking import Consumer, Producer
from headwater.errors import ErrorCode
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
)
from headwater.testing import HeadwaterCluster

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
RACKS = {1: "a", 2: "b", 3: "c"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[HeadwaterCluster]:
    with HeadwaterCluster(
        {"replica.selector.class": SELECTOR},
        nodes=3,
        topics={"orders": 1},
        racks=list(RACKS.values()),
    ) as running:
        running.wait_isr("orders")
        yield running


def send(cluster: HeadwaterCluster, *values: str) -> None:
    with Producer(cluster.bootstrap) as producer:
        for value in values:
            producer.send("orders", value)


def fetched(
    wire: Wire, *, rack: str = "", offset: int = 0, version: int = 12, wait_ms: int = 0
) -> PartitionData:
    return only_partition(wire.ask(fetch_of(offset, rack, wait_ms), version))


def fetch_of(offset: int, rack: str, wait_ms: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        rack_id=rack,
        topics=[FetchTopic(topic="orders", partitions=[partition])],
    )


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in records_of(data)]


def test_a_consumer_is_sent_to_its_rack_and_served_there(cluster: HeadwaterCluster) -> None:
    send(cluster, "tea", "salt")
    leader = cluster.wait_leader("orders")
    near = next(node for node in RACKS if node != leader)
    with Wire(cluster.addresses[leader]) as wire:
        told = fetched(wire, rack=RACKS[near])
        assert (told.error_code, told.preferred_read_replica) == (0, near)
        assert len(told.records) == 0
        for rack in (RACKS[leader], "elsewhere", ""):
            data = fetched(wire, rack=rack)
            assert data.preferred_read_replica == -1
            assert len(data.records)
    with Wire(cluster.addresses[near]) as wire:
        # It hears that they are committed with its next fetch.
        until(lambda: values(fetched(wire))[:2] == [b"tea", b"salt"], "both records", 60.0)
        # A consumer of before the KIP cannot know that this is not the leader.
        assert fetched(wire, version=10).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_that_waits_at_a_follower_ends_when_records_are_committed(
    cluster: HeadwaterCluster,
) -> None:
    send(cluster, "tea")
    leader = cluster.wait_leader("orders")
    near = next(node for node in RACKS if node != leader)
    with Wire(cluster.addresses[near]) as wire:
        end = until(lambda: fetched(wire).high_watermark or None, "the high watermark", 60.0)
        # It would wait for much longer than the connection does.
        wire.send(fetch_of(end, RACKS[near], 600_000), 12)
        send(cluster, "pepper")
        data = only_partition(wire.receive())
        assert records_of(data, end)[0].offset == end


def test_a_consumer_goes_on_when_the_replica_in_its_rack_dies(cluster: HeadwaterCluster) -> None:
    leader = cluster.wait_leader("orders")
    near = next(node for node in RACKS if node != leader)
    seen: list[object] = []
    with Consumer(
        cluster.bootstrap, client_rack=RACKS[near], auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign([TopicPartition("orders", 0)])

        def has_read(value: str) -> bool:
            seen.extend(record.value for record in consumer.poll(timeout_ms=1000))
            return value.encode() in seen

        send(cluster, "first")
        until(lambda: has_read("first"), "the first record", 60.0)
        cluster.kill(near)
        send(cluster, "second")
        until(lambda: has_read("second"), "the second record", 60.0)
    cluster.start(near)


def test_librdkafka_reads_from_its_rack(cluster: HeadwaterCluster) -> None:
    send(cluster, "tea")
    leader = cluster.wait_leader("orders")
    near = next(node for node in RACKS if node != leader)
    reads_from: set[int] = set()

    def on_statistics(text: str) -> None:
        partition = json.loads(text)["topics"].get("orders", {}).get("partitions", {}).get("0")
        if partition is not None:
            reads_from.add(partition["broker"])

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "near",
            "client.rack": RACKS[near],
            "statistics.interval.ms": 100,
            "stats_cb": on_statistics,
        }
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])

        def is_near() -> bool:
            message = consumer.poll(0.1)
            assert message is None or message.error() is None
            return near in reads_from

        until(is_near, "librdkafka to read from the follower", 60.0)
        consumer.assign([confluent_kafka.TopicPartition("orders", 0, 0)])
        until(lambda: consumer.poll(1.0), "a record", 60.0)
    finally:
        consumer.close()
