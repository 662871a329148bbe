"""Three real nodes: what is acknowledged is on all replicas, and survives any one of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import TopicPartition
from headwater.blocking import Admin, Consumer, Producer
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
