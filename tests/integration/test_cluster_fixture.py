"""The fixture `headwater_cluster`, as somebody else's tests see it."""

from __future__ import annotations

import pytest

from headwater import RequestTimedOut
from headwater.blocking import Producer
from headwater.testing import HeadwaterCluster, MakeHeadwaterCluster


@pytest.mark.headwater(topics={"orders": 1}, nodes=1)
def test_a_node_can_be_killed_and_started_again(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.send("orders", "tea")
    headwater_cluster.kill(1)
    assert headwater_cluster.running == []
    headwater_cluster.start(1)
    assert [record.value for record in headwater_cluster.records("orders", 1)] == [b"tea"]


@pytest.mark.headwater(topics={"orders": 1}, nodes=1)
def test_a_node_can_be_stopped_and_started_again(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.send("orders", "tea")
    headwater_cluster.stop()
    assert any("stopped" in line for line in headwater_cluster.log_lines)
    headwater_cluster.start()
    assert headwater_cluster.wait_leader("orders") == 1
    assert headwater_cluster.wait_isr("orders") == [1]
    assert [record.value for record in headwater_cluster.records("orders", 1)] == [b"tea"]


@pytest.mark.headwater(topics={"orders": 1}, nodes=1)
@pytest.mark.parametrize("fault", ["pause", "cut_off"])
def test_a_node_that_is_silent_goes_on_where_it_was(
    headwater_cluster: HeadwaterCluster, fault: str
) -> None:
    with Producer(headwater_cluster.bootstrap) as producer:
        producer.send("orders", "tea")
        getattr(headwater_cluster, fault)(1)
        producer.submit("orders", "milk")
        with pytest.raises(RequestTimedOut):
            producer.flush(timeout_ms=300)
        if fault == "pause":
            headwater_cluster.resume(1)
        else:
            headwater_cluster.reconnect(1)
        producer.flush(timeout_ms=30_000)
    values = [record.value for record in headwater_cluster.records("orders", 2)]
    assert values == [b"tea", b"milk"]


def test_clusters_have_settings_of_their_own(make_headwater_cluster: MakeHeadwaterCluster) -> None:
    one = make_headwater_cluster({"num.partitions": "3"}, nodes=1, memory=True)
    two = make_headwater_cluster(nodes=1, memory=True)
    assert one.cluster_id != two.cluster_id
    one.send("orders", "tea")
    two.send("orders", "milk")
    assert one.partition("orders", 2).leader == 1
    assert [record.value for record in two.records("orders", 1)] == [b"milk"]


# Three nodes


@pytest.mark.headwater(topics={"orders": 3})
def test_what_was_acknowledged_survives_the_loss_of_any_node(
    headwater_cluster: HeadwaterCluster,
) -> None:
    for number in range(3):
        headwater_cluster.send("orders", f"before {number}")
    leader = headwater_cluster.leader("orders")
    assert leader is not None
    headwater_cluster.kill(leader)
    assert headwater_cluster.wait_leader("orders", other_than=leader) != leader
    headwater_cluster.send("orders", "meanwhile")
    assert len(headwater_cluster.records("orders", 4)) == 4
    headwater_cluster.start(leader)
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    assert headwater_cluster.controller() in (1, 2, 3)


@pytest.mark.headwater(topics={"orders": 1})
def test_a_stopped_leader_hands_over(headwater_cluster: HeadwaterCluster) -> None:
    headwater_cluster.send("orders", "tea")
    leader = headwater_cluster.wait_leader("orders")
    headwater_cluster.stop(leader)
    assert headwater_cluster.wait_leader("orders", other_than=leader, timeout=5.0) != leader
    headwater_cluster.start(leader)
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    assert [record.value for record in headwater_cluster.records("orders", 1)] == [b"tea"]


@pytest.mark.headwater({"broker.session.timeout.ms": "3000"}, topics={"orders": 1})
@pytest.mark.parametrize("fault", ["pause", "cut_off"])
def test_a_leader_that_is_silent_is_replaced(
    headwater_cluster: HeadwaterCluster, fault: str
) -> None:
    headwater_cluster.send("orders", "tea")
    leader = headwater_cluster.wait_leader("orders")
    getattr(headwater_cluster, fault)(leader)
    headwater_cluster.wait_leader("orders", other_than=leader)
    headwater_cluster.send("orders", "milk")
    getattr(headwater_cluster, {"pause": "resume", "cut_off": "reconnect"}[fault])(leader)
    assert headwater_cluster.wait_isr("orders") == [1, 2, 3]
    values = [record.value for record in headwater_cluster.records("orders", 2)]
    assert values == [b"tea", b"milk"]


def test_a_node_in_memory_returns_empty_and_votes_again(
    make_headwater_cluster: MakeHeadwaterCluster,
) -> None:
    cluster = make_headwater_cluster(memory=True, topics={"orders": 1})
    cluster.send("orders", "tea")
    for node in (1, 2, 3):  # one after the other: no copy is the first one in the end
        cluster.kill(node)
        cluster.wait_leader("orders", other_than=node)
        cluster.start(node)
        assert cluster.wait_isr("orders") == [1, 2, 3]
        cluster.wait_voters(1, 2, 3)
    assert [record.value for record in cluster.records("orders", 1)] == [b"tea"]
