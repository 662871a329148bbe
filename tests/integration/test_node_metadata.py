"""Metadata as clients get it, and topics that are created when they are asked for."""

from __future__ import annotations

import pytest

from harness.wire import Wire, all_versions, batch
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker


def about(
    wire: Wire, *topics: str, create: bool = False, version: int | None = None
) -> MetadataResponse:
    answer: MetadataResponse = wire.ask(
        MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=create,
        ),
        version,
    )
    return answer


@pytest.mark.parametrize("version", all_versions(ApiKey.METADATA))
def test_every_version_names_the_broker_and_the_leader(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str, version: int
) -> None:
    wire.topic_id(topic)
    answer = about(wire, topic, create=version < 4, version=version)
    (broker,) = answer.brokers
    assert f"{broker.host}:{broker.port}" == shared_broker.bootstrap
    (found,) = answer.topics
    assert (found.error_code, found.name) == (0, topic)
    (partition,) = found.partitions
    assert (partition.error_code, partition.leader_id) == (0, broker.node_id)
    assert partition.replica_nodes == partition.isr_nodes == [broker.node_id]


def test_a_client_is_told_the_address_that_it_came_to(make_broker: MakeBroker) -> None:
    broker = make_broker({"listeners": "PLAINTEXT://0.0.0.0:0"})
    port = broker.bootstrap.rpartition(":")[2]
    for host in ("127.0.0.1", "127.0.0.2"):
        with Wire(f"{host}:{port}") as wire:
            (told,) = about(wire).brokers
            assert (told.host, told.port) == (host, int(port))
            (described,) = wire.describe_cluster().brokers
            assert (described.host, described.port) == (host, int(port))


def test_each_listener_advertises_what_it_was_told_to(make_broker: MakeBroker) -> None:
    broker = make_broker(
        {
            "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0",
            "advertised.listeners": "INSIDE://inner.example:19092,OUTSIDE://outer.example:29092",
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,"
            "CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    told = {}
    for name in ("INSIDE", "OUTSIDE"):
        with Wire(broker.addresses[name]) as wire:
            (endpoint,) = about(wire).brokers
            told[name] = (endpoint.host, endpoint.port)
    assert told == {"INSIDE": ("inner.example", 19092), "OUTSIDE": ("outer.example", 29092)}


def test_a_topic_is_created_by_asking_for_it(wire: Wire, topic: str) -> None:
    assert about(wire, topic).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert about(wire, topic, create=True).topics[0].error_code in (
        0,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    topic_id = wire.topic_id(topic)
    assert topic_id != bytes(16)
    assert about(wire, topic).topics[0].topic_id == topic_id


def test_a_topic_is_not_created_where_that_is_switched_off(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker({"auto.create.topics.enable": "false"})
    with Wire(broker.bootstrap) as wire:
        (answer,) = about(wire, topic, create=True).topics
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert wire.ask(MetadataRequest(topics=None)).topics == []


def test_a_created_topic_has_as_many_partitions_as_the_node_says(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker({"num.partitions": "4"})
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(topic)
        assert len(about(wire, topic).topics[0].partitions) == 4
        for partition in range(4):
            answer = wire.produce(topic, batch([b"%d" % partition]), partition=partition)
            assert (answer.error_code, answer.base_offset) == (0, 0)
        assert [wire.values(topic, partition=n) for n in range(4)] == [
            [b"%d" % number] for number in range(4)
        ]


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "ä", "x" * 250, "a\0b"])
def test_a_name_that_no_topic_may_have_is_refused(wire: Wire, name: str) -> None:
    (answer,) = about(wire, name, create=True).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_all_topics_are_listed_when_none_is_named(wire: Wire, topic: str) -> None:
    topic_id = wire.topic_id(topic)
    answer = wire.ask(MetadataRequest(topics=None))
    assert {found.name: found.topic_id for found in answer.topics}[topic] == topic_id
    assert wire.ask(MetadataRequest(topics=[])).topics == []


def test_a_topic_can_be_asked_for_by_its_id(wire: Wire, topic: str) -> None:
    topic_id = wire.topic_id(topic)
    by_id = [
        MetadataRequestTopic(topic_id=wanted, name=None) for wanted in (topic_id, b"\x05" * 16)
    ]
    found = {about.topic_id: about for about in wire.ask(MetadataRequest(topics=by_id)).topics}
    assert (found[topic_id].error_code, found[topic_id].name) == (0, topic)
    assert found[b"\x05" * 16].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_both_ways_to_ask_name_the_same_cluster(wire: Wire) -> None:
    described = wire.describe_cluster()
    assert described.error_code == 0
    assert described.cluster_id == about(wire).cluster_id
    assert len(described.cluster_id) == 22
