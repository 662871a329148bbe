"""Hints of three nodes to their clients: current leaders, fenced producers, and new ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.wire import Wire, batch, until
from headwater import NewTopic
from headwater.blocking import Admin
from headwater.errors import ErrorCode
from headwater.protocol.messages import fetch, metadata, produce
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.testing import HeadwaterCluster

SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[HeadwaterCluster]:
    with HeadwaterCluster(SETTINGS, nodes=3) as running:
        with Admin(running.bootstrap) as admin:
            orders = NewTopic("orders", assignments={0: [1, 2, 3]})
            admin.create_topics([orders, NewTopic("alone", assignments={0: [1]})])
        running.wait_isr("orders")
        yield running


def described(cluster: HeadwaterCluster, node: int) -> Any:
    with Wire(cluster.addresses[node]) as wire:
        return wire.ask(metadata.MetadataRequest(topics=None), 12)


def topic_of(answer: Any, name: str) -> Any:
    return next(topic for topic in answer.topics if topic.name == name)


def test_who_is_not_the_leader_names_it_and_its_endpoint(cluster: HeadwaterCluster) -> None:
    # Followers would serve a consumer (KIP-392).
    topic_id = topic_of(described(cluster, 1), "alone").topic_id
    leader = cluster.wait_leader("alone")
    other = next(node for node in cluster.addresses if node != leader)
    with Wire(cluster.addresses[other]) as wire:
        sent = produce.ProduceRequest(
            acks=1,
            timeout_ms=1000,
            topic_data=[
                produce.TopicProduceData(
                    name="alone",
                    partition_data=[produce.PartitionProduceData(index=0, records=batch([b"x"]))],
                )
            ],
        )
        produced = wire.ask(sent, 12)
        fetched = wire.ask(fetch_of(topic_id, -1), 16)
    answers = (
        (produced.responses[0].partition_responses[0], produced.node_endpoints),
        (fetched.responses[0].partitions[0], fetched.node_endpoints),
    )
    for answer, endpoints in answers:
        assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.current_leader.leader_id == leader
        (at,) = endpoints
        assert (at.node_id, f"{at.host}:{at.port}") == (leader, cluster.addresses[leader])


def test_an_outdated_epoch_is_fenced_with_the_present_one(cluster: HeadwaterCluster) -> None:
    before = cluster.leader("orders")
    assert before is not None
    cluster.restart(before)
    leader = cluster.wait_leader("orders")
    found = topic_of(described(cluster, leader), "orders")
    epoch = found.partitions[0].leader_epoch
    assert epoch > 0
    with Wire(cluster.addresses[leader]) as wire:
        old, new = (
            wire.ask(fetch_of(found.topic_id, claimed), 16).responses[0].partitions[0]
            for claimed in (epoch - 1, epoch + 1)
        )
    assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
    told = old.current_leader
    assert (told.leader_id, told.leader_epoch) == (leader, epoch)
    assert new.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


def fetch_of(topic_id: bytes, leader_epoch: int) -> fetch.FetchRequest:
    partition = fetch.FetchPartition(
        partition=0,
        fetch_offset=0,
        partition_max_bytes=1000,
        current_leader_epoch=leader_epoch,
    )
    return fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=-1),
        max_wait_ms=0,
        min_bytes=0,
        topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[partition])],
    )


def test_no_producer_id_is_given_twice_when_controllers_and_brokers_change(
    cluster: HeadwaterCluster,
) -> None:
    given: list[int] = []

    def ask_all() -> None:
        for node in cluster.running:
            with Wire(cluster.addresses[node]) as wire:

                def is_given(wire: Wire = wire) -> bool:
                    request = InitProducerIdRequest(
                        transactional_id=None, transaction_timeout_ms=1000
                    )
                    answer = wire.ask(request, 4)
                    if not answer.error_code:
                        given.append(answer.producer_id)
                    return not answer.error_code

                until(is_given, f"a producer id of node {node}", seconds=30)

    for _ in range(2):
        ask_all()
        controller = cluster.controller()
        cluster.kill(controller)
        ask_all()
        cluster.start(controller)
        ask_all()
    assert len(set(given)) == len(given) == 16


def test_a_node_that_is_gone_is_fenced_offline_and_no_controller(
    cluster: HeadwaterCluster,
) -> None:
    cluster.wait_isr("orders")
    cluster.kill(3)
    with Wire(cluster.addresses[1]) as wire:

        def nodes(*, fenced: bool) -> dict[int, bool]:
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False,
                endpoint_type=1,
                include_fenced_brokers=fenced,
            )
            answer = wire.ask(request, 2)
            return {each.broker_id: each.is_fenced for each in answer.brokers}

        until(lambda: 3 not in nodes(fenced=False), "node 3 to be fenced", seconds=30)
        assert nodes(fenced=True) == {1: False, 2: False, 3: True}
        assert nodes(fenced=False) == {1: False, 2: False}
    found = described(cluster, 1)
    assert found.controller_id in (1, 2)
    (partition,) = topic_of(found, "orders").partitions
    assert partition.offline_replicas == [3]
    assert sorted(partition.isr_nodes) == [1, 2]
    cluster.start(3)
    cluster.wait_isr("orders")
