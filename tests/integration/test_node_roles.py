"""A controller and a broker as nodes of their own: what clients ask the broker is decided there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from harness.nodes import free_port
from harness.wire import Closed, Wire, batch, until
from headwater.blocking import Admin
from headwater.broker.formatting import format_directories
from headwater.client.admin import QUOTA_DEFAULT, QuotaEntity
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.io.memory import MemoryDisk
from headwater.io.workers import ThreadWorkers
from headwater.model import ZERO_ID
from headwater.observability import Log
from headwater.protocol.apis import APIS
from headwater.protocol.messages import incremental_alter_configs as alter
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headwater.testing.background import BackgroundNode

CLUSTER = "AAAAAAAAQACAAAAAAAAAAQ"


class Member:
    """A node of the cluster, with its disk in memory."""

    def __init__(self, settings: dict[str, str], *, cluster_id: str = CLUSTER) -> None:
        self.settings = {"log.dirs": "/memory"} | settings
        self.lines: list[str] = []
        self._host = Host.in_memory(MemoryDisk())
        config = node_config(self.settings)
        format_directories(self._host, config, cluster_id=cluster_id)
        self._node: BackgroundNode | None = None

    def start(self) -> dict[str, str]:
        host = replace(self._host, workers=ThreadWorkers())
        self._node = BackgroundNode(self.settings, host, Log(host.clock, self.lines.append))
        return self._node.start()

    def stop(self) -> None:
        if self._node is not None:
            self._node.stop()
            self._node = None

    def said(self, words: str) -> bool:
        return any(words in line for line in self.lines)


class Pair:
    """Node 1 is the controller, node 2 the broker."""

    def __init__(self) -> None:
        port, client_port = free_port(), free_port()
        self.controller_address = f"127.0.0.1:{port}"
        self.bootstrap = f"127.0.0.1:{client_port}"
        quorum = {
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{self.controller_address}",
        }
        self.controller = Member(
            quorum
            | {
                "node.id": "1",
                "process.roles": "controller",
                "listeners": f"CONTROLLER://{self.controller_address}",
            }
        )
        self.broker_settings = quorum | {
            "node.id": "2",
            "process.roles": "broker",
            "listeners": f"PLAINTEXT://{self.bootstrap}",
            "offsets.topic.replication.factor": "1",
        }
        self.broker = Member(self.broker_settings)

    def __enter__(self) -> Pair:
        assert self.controller.start() == {}
        self.broker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.broker.stop()
        self.controller.stop()


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Pair() as made:
        yield made


@pytest.fixture
def wire(pair: Pair) -> Iterator[Wire]:
    with Wire(pair.bootstrap) as connected:
        yield connected


def creation(name: str, *, factor: int = 1) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=factor)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_through_the_broker_in_every_version(wire: Wire, version: int) -> None:
    (result,) = wire.ask(creation(f"t{version}"), version).topics
    assert (result.name, result.error_code) == (f"t{version}", 0)
    (again,) = wire.ask(creation(f"t{version}"), version).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert wire.produce(f"t{version}", batch([b"x"])).error_code == 0
    (gone,) = wire.ask(
        DeleteTopicsRequest(
            topics=[DeleteTopicState(name=f"t{version}", topic_id=ZERO_ID)], timeout_ms=10_000
        )
    ).responses
    assert gone.error_code == 0


def test_topics_and_producer_ids_come_on_demand(wire: Wire) -> None:
    assert wire.produce("on-demand", batch([b"x"])).error_code == 0
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
    first = wire.ask(request)
    second = wire.ask(request)
    assert first.error_code == second.error_code == 0
    assert second.producer_id == first.producer_id + 1
    wire.await_coordinator("group")


def test_a_broker_advertises_what_its_controller_serves(pair: Pair, wire: Wire) -> None:
    wire.ask(creation("advertised"))  # from now on the controller's versions are known
    with Wire(pair.controller_address) as controller:
        served = {each.api_key: each for each in controller.api_versions().api_keys}
    for each in wire.api_versions().api_keys:
        if APIS[each.api_key].forwardable:
            there = served[each.api_key]
            assert there.min_version <= each.min_version <= each.max_version <= there.max_version


def test_settings_are_checked_here_and_changed_there(wire: Wire) -> None:
    wire.ask(creation("configured"))

    def change(kind: int, name: str, key: str, value: str) -> alter.AlterConfigsResource:
        config = alter.AlterableConfig(name=key, config_operation=0, value=value)
        return alter.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])

    request = alter.IncrementalAlterConfigsRequest(
        resources=[
            change(2, "configured", "retention.ms", "1000"),
            change(4, "1", "log.cleaner.threads", "2"),
            change(8, "2", "root", "DEBUG"),
            change(8, "2", "root", "INFO"),
            change(2, "never", "retention.ms", "1000"),
        ],
        validate_only=False,
    )
    results = [(r.resource_name, r.error_code) for r in wire.ask(request).responses]
    assert results == [
        ("configured", 0),
        ("1", ErrorCode.INVALID_REQUEST),  # it belongs to another node
        ("2", ErrorCode.INVALID_REQUEST),  # named twice
        ("2", ErrorCode.INVALID_REQUEST),
        ("never", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_each_listener_says_which_nodes_it_knows(pair: Pair, wire: Wire) -> None:
    about = wire.describe_cluster()
    host, _, port = pair.bootstrap.rpartition(":")
    assert about.cluster_id == CLUSTER
    assert [(b.broker_id, b.host, b.port) for b in about.brokers] == [(2, host, int(port))]
    assert about.controller_id == 2  # clients ask brokers
    with Wire(pair.controller_address) as controller:
        asked = DescribeClusterRequest(include_cluster_authorized_operations=False, endpoint_type=2)
        there = controller.ask(asked, 1)
    assert there.controller_id == 1
    assert [b.broker_id for b in there.brokers] == [1]
    with Wire(pair.bootstrap) as mistaken:
        answer = mistaken.ask(asked, 1)
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


def test_a_broker_that_was_unregistered_registers_again(pair: Pair, wire: Wire) -> None:
    assert wire.ask(UnregisterBrokerRequest(broker_id=2)).error_code == 0
    until(lambda: pair.broker.said("registered again"), "another registration")
    until(lambda: pair.broker.said("has unfenced"), "the broker to be unfenced")
    until(lambda: [b.broker_id for b in wire.describe_cluster().brokers] == [2], "broker 2")


def test_requests_outlive_a_restart_of_the_controller(pair: Pair, wire: Wire) -> None:
    pair.controller.stop()
    wire.send(creation("patient"))
    pair.controller.start()
    (result,) = wire.receive().topics
    assert result.error_code == 0
    assert wire.produce("patient", batch([b"x"])).error_code == 0


def test_the_requests_of_nodes_are_not_served_by_brokers(pair: Pair) -> None:
    from headwater.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest

    with Wire(pair.bootstrap) as mistaken, pytest.raises(Closed):
        mistaken.ask(AllocateProducerIdsRequest(broker_id=2, broker_epoch=0), 0)
    assert pair.broker.said("connect to a controller")


def test_a_second_broker_with_the_same_id_is_named(pair: Pair) -> None:
    double = Member(
        pair.broker_settings
        | {
            "listeners": f"PLAINTEXT://127.0.0.1:{free_port()}",
            "initial.broker.registration.timeout.ms": "2500",
        }
    )
    with pytest.raises(ApiError) as refused:
        double.start()
    assert "node.id" in str(refused.value)
    double.stop()


def test_a_client_waits_at_its_broker_for_what_the_controller_says(pair: Pair) -> None:
    """The controller counts what clients of brokers change, by their names; and what nodes ask of
    each other is not held back, although they are the same user as the clients here."""
    with Admin(pair.bootstrap) as admin, Wire(pair.bootstrap, client_id="busy") as busy:
        busy.api_versions()
        default = QuotaEntity(user=QUOTA_DEFAULT, client_id=QUOTA_DEFAULT)
        nothing = {"controller_mutation_rate": 0.001, "request_percentage": 1e-6}
        assert admin.alter_quotas({default: nothing}) == {default: None}
        until(lambda: bool(admin.describe_quotas()), "the quota at the broker")
        answer = busy.ask(creation("quota-1"))
        assert answer.topics[0].error_code == 0
        assert answer.throttle_time_ms == 1000  # for the time that it took
        answer = busy.ask(creation("quota-2"))
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_time_ms > 900_000
        busy.send(creation("quota-3"))
        busy.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            busy.receive()
        with Wire(pair.bootstrap, client_id="busy") as again:
            (refused,) = again.ask(creation("quota-4")).topics
            assert refused.error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        admin.alter_quotas({default: dict.fromkeys(nothing)})
        busy.socket.settimeout(60)
        assert busy.receive().topics[0].error_code == 0
    assert not pair.controller.said("fenced")
