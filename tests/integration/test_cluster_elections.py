"""Elections, growth and deletion on three real nodes while some of them are down."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from headwater import NewTopic, TopicPartition
from headwater.blocking import Admin
from headwater.client.admin import Partition
from headwater.testing import HeadwaterCluster

SETTINGS = {"leader.imbalance.check.interval.seconds": "1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[HeadwaterCluster]:
    with HeadwaterCluster(SETTINGS, nodes=3) as running:
        yield running


def create(
    cluster: HeadwaterCluster,
    name: str,
    replicas: list[int],
    configs: dict[str, str] | None = None,
) -> None:
    with Admin(cluster.bootstrap) as admin:
        made = NewTopic(name, assignments={0: replicas}, configs=configs or {})
        admin.create_topics([made])


def until(look: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait(
    cluster: HeadwaterCluster, topic: str, is_wanted: Callable[[Partition], object]
) -> Partition:
    until(lambda: is_wanted(cluster.partition(topic)))
    return cluster.partition(topic)


def said(cluster: HeadwaterCluster, *words: str) -> bool:
    return any(all(word in line for word in words) for line in cluster.log_lines)


def test_leaders_go_back_to_their_preferred_replicas(cluster: HeadwaterCluster) -> None:
    create(cluster, "balanced", [2, 3, 1])
    wait(cluster, "balanced", lambda found: found.leader == 2)
    cluster.kill(2)
    wait(cluster, "balanced", lambda found: found.leader == 3)
    until(lambda: said(cluster, "broker 2 is fenced"))
    until(lambda: said(cluster, "leaders of partitions changed: ", "balanced-0 2 to 3"))
    cluster.start(2)
    wait(cluster, "balanced", lambda found: found.leader == 2)
    until(lambda: said(cluster, "leaders of partitions changed: ", "balanced-0 3 to 2"))
    assert said(cluster, "the active controller in epoch ")
    assert said(cluster, " leads the quorum in epoch ")


def test_a_topic_deleted_while_a_replica_is_down_is_removed_there_later(
    cluster: HeadwaterCluster,
) -> None:
    create(cluster, "short-lived", [1, 2, 3])
    cluster.send("short-lived", "x")
    folder = Path(cluster.data(3))
    until(lambda: list(folder.glob("short-lived-0")))
    cluster.kill(3)
    with Admin(cluster.bootstrap) as admin:
        admin.delete_topics(["short-lived"])
    create(cluster, "short-lived", [1, 2])
    cluster.send("short-lived", "new")
    assert list(folder.glob("short-lived-0"))
    cluster.start(3)
    until(lambda: not list(folder.glob("short-lived-0")))
    assert [record.value for record in cluster.records("short-lived", 1)] == [b"new"]


def test_partitions_are_added_while_a_node_is_down(cluster: HeadwaterCluster) -> None:
    create(cluster, "growing", [1, 2, 3])
    cluster.kill(3)
    with Admin(cluster.bootstrap) as admin:
        admin.create_partitions({"growing": 4})
    for index in range(4):
        assert cluster.wait_leader("growing", index) != 3
    cluster.send("growing", "x")
    cluster.start(3)
    for index in range(4):
        cluster.wait_isr("growing", index)


def test_an_unclean_election_happens_only_where_it_is_allowed(cluster: HeadwaterCluster) -> None:
    create(cluster, "careful", [1, 2], {"min.insync.replicas": "1"})
    create(cluster, "asked", [1, 2], {"min.insync.replicas": "1"})
    allowed = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    create(cluster, "careless", [1, 2], allowed)
    for topic in ("careful", "asked", "careless"):
        cluster.send(topic, "both")
        cluster.wait_isr(topic, nodes=[1, 2])
    cluster.kill(2)
    for topic in ("careful", "asked", "careless"):
        cluster.wait_isr(topic, nodes=[1])
        cluster.send(topic, "one")
    cluster.kill(1)
    cluster.start(2)
    assert cluster.wait_leader("careless") == 2
    assert [record.value for record in cluster.records("careless", 1)] == [b"both"]
    assert cluster.leader("careful") is None
    with Admin(cluster.addresses[2]) as admin:
        admin.elect_leaders([TopicPartition("asked", 0)], kind="unclean")
    assert cluster.wait_leader("asked") == 2
    cluster.start(1)
    assert cluster.wait_leader("careful") == 1
    assert [record.value for record in cluster.records("careful", 2)] == [b"both", b"one"]
    for topic in ("careful", "asked", "careless"):
        cluster.wait_isr(topic)
    assert [record.value for record in cluster.records("asked", 1)] == [b"both"]
