"""Three real nodes: what is acknowledged is on all replicas, and survives any one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.wire import Wire, only_partition, records_of, until
from headwater import TopicPartition, _core
from headwater.blocking import Admin, Consumer, Producer
from headwater.errors import ErrorCode
from headwater.protocol.messages.fetch import PartitionData, ReplicaState
from headwater.testing import HeadwaterCluster

THREE = pytest.mark.headwater(topics={"orders": 1}, nodes=3)
QUICK = pytest.mark.headwater(
    topics={"orders": 1}, nodes=3, settings={"replica.lag.time.max.ms": "1500"}
)

PATIENT = pytest.mark.headwater(
    topics={"orders": 1}, nodes=3, settings={"broker.session.timeout.ms": "600000"}
)


def send(cluster: HeadwaterCluster, numbers: range) -> None:
    with Producer(cluster.bootstrap) as producer:
        for number in numbers:
            producer.submit("orders", f"{number}")
        producer.flush(timeout_ms=60_000)


def read(cluster: HeadwaterCluster, count: int) -> list[int]:
    return [int(record.value or b"") for record in cluster.records("orders", count)]


@THREE
def test_a_killed_leader_loses_nothing_and_comes_back(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.wait_isr("orders")
    send(headwater_cluster, range(50))
    first = headwater_cluster.wait_leader("orders")
    headwater_cluster.kill(first)
    send(headwater_cluster, range(50, 100))
    assert headwater_cluster.wait_leader("orders") != first
    assert read(headwater_cluster, 100) == list(range(100))
    headwater_cluster.start(first)
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    headwater_cluster.stop()
    segments = {
        node: (Path(headwater_cluster.data(node)) / "orders-0" / f"{0:020}.log").read_bytes()
        for node in (1, 2, 3)
    }
    assert segments[1] == segments[2] == segments[3]
    assert segments[1]


@PATIENT
def test_nodes_that_start_again_do_not_wait_for_their_last_session(
    headwater_cluster: HeadwaterCluster,
) -> None:
    headwater_cluster.wait_isr("orders")
    send(headwater_cluster, range(10))
    for node in (1, 2, 3):
        headwater_cluster.kill(node)
    headwater_cluster.start()
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    assert read(headwater_cluster, 10) == list(range(10))


@QUICK
def test_a_silent_follower_leaves_and_comes_back(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.wait_isr("orders")
    leader = headwater_cluster.wait_leader("orders")
    silent = next(node for node in (1, 2, 3) if node != leader)
    headwater_cluster.pause(silent)
    send(headwater_cluster, range(10))  # acknowledged once it has left
    others = sorted({1, 2, 3} - {silent})
    assert headwater_cluster.wait_isr("orders", nodes=others) == others
    headwater_cluster.resume(silent)
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    assert read(headwater_cluster, 10) == list(range(10))


@THREE
def test_a_controlled_stop_moves_the_leader(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.wait_isr("orders")
    leader = headwater_cluster.wait_leader("orders")
    send(headwater_cluster, range(5))
    headwater_cluster.stop(leader)
    assert headwater_cluster.wait_leader("orders") != leader
    send(headwater_cluster, range(5, 10))
    headwater_cluster.start(leader)
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    assert read(headwater_cluster, 10) == list(range(10))


@THREE
def test_committed_offsets_survive_their_coordinator(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.wait_isr("orders")
    send(headwater_cluster, range(20))
    with Consumer(
        headwater_cluster.bootstrap, group_id="g", auto_offset_reset="earliest"
    ) as consumer:
        consumer.subscribe(["orders"])
        seen = 0
        while seen < 20:
            seen += len(consumer.poll(timeout_ms=1000))
        consumer.commit()
    index = hash_of_group("g")
    headwater_cluster.kill(headwater_cluster.wait_leader("__consumer_offsets", index))
    alive = ",".join(headwater_cluster.addresses[node] for node in headwater_cluster.running)
    with Admin(alive) as admin:
        committed = admin.group_offsets("g")
    assert committed[TopicPartition("orders", 0)].offset == 20


def hash_of_group(group_id: str) -> int:
    value = 0
    for character in group_id:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return (value & 0x7FFFFFFF) % 50


@THREE
def test_deleted_records_are_deleted_on_all_replicas(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.wait_isr("orders")
    send(headwater_cluster, range(10))
    with Admin(headwater_cluster.bootstrap) as admin:
        admin.delete_records({TopicPartition("orders", 0): 4})
    headwater_cluster.kill(headwater_cluster.wait_leader("orders"))
    headwater_cluster.wait_leader("orders")
    assert read(headwater_cluster, 6) == list(range(4, 10))


@THREE
def test_a_reader_that_compares_replicas_gets_what_is_committed_from_each(
    headwater_cluster: HeadwaterCluster,
) -> None:
    """Kafka's ReplicaVerificationTool reads as replica -2."""
    send(headwater_cluster, range(20))
    leader = headwater_cluster.wait_leader("orders")
    headwater_cluster.wait_isr("orders")
    with Wire(headwater_cluster.addresses[leader]) as wire:
        request, version = wire.fetch_request("orders")
        # Consumers of a time before KIP-392 read from the leader only.
        old_request, old_version = wire.fetch_request("orders", version=10)
    for node, address in headwater_cluster.addresses.items():
        with Wire(address) as wire:

            def fetched(wire: Wire = wire) -> PartitionData:
                request.replica_state = ReplicaState(replica_id=-2)
                return only_partition(wire.ask(request, version))

            # A follower learns what is committed with its next fetch.
            until(lambda fetched=fetched: fetched().high_watermark == 20, f"node {node}")  # type: ignore[misc]
            found = fetched()
            assert (found.error_code, len(records_of(found))) == (0, 20)
            code = 0 if node == leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert only_partition(wire.ask(old_request, old_version)).error_code == code


@THREE
@pytest.mark.parametrize("isolation_level", [0, 1], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("min_bytes", [1, 1000])
def test_a_waiting_fetch_is_answered_when_the_replicas_have_the_records(
    headwater_cluster: HeadwaterCluster, isolation_level: int, min_bytes: int
) -> None:
    headwater_cluster.wait_isr("orders")
    address = headwater_cluster.addresses[headwater_cluster.wait_leader("orders")]
    with Wire(address) as reader, Wire(address) as writer:
        for number in range(5):
            # It would wait for much longer than the connection does.
            request, version = reader.fetch_request(
                "orders",
                number * 2,
                max_wait_ms=600_000,
                min_bytes=min_bytes,
                isolation_level=isolation_level,
            )
            reader.send(request, version)
            for _ in range(2):
                sent = writer.produce("orders", _core.encode([(None, b"x" * 600, (), 1)]))
                assert sent.error_code == 0
            found = only_partition(reader.receive())
            assert len(records_of(found)) == (1 if min_bytes == 1 else 2)
