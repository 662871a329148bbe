"""The controller listener of a node: what other nodes and admins ask there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from harness.nodes import free_port
from harness.wire import Closed, Wire, all_versions
from headwater.broker.context import Context
from headwater.broker.controller_channel import ControllerChannel
from headwater.broker.controller_role import SERVED
from headwater.broker.metadata_log import QuorumLeader
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Address, Host
from headwater.metadata.features import supported_features
from headwater.model import METADATA_TOPIC
from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.frame import encode_request
from headwater.protocol.messages import describe_quorum, fetch_snapshot, vote
from headwater.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from headwater.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from headwater.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from headwater.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.protocol.messages.envelope import EnvelopeRequest
from headwater.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.security.principal import ANONYMOUS, encode_principal
from headwater.testing import EmbeddedBroker

DIRECTORY = b"d" * 16


class Controlled:
    """A node with both roles and a controller listener."""

    def __init__(self) -> None:
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.node = EmbeddedBroker(
            {
                "process.roles": "broker,controller",
                "node.id": "1",
                "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{self.address}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.bootstrap.servers": self.address,
            }
        )


@pytest.fixture(scope="module")
def node() -> Iterator[Controlled]:
    controlled = Controlled()
    with controlled.node:
        yield controlled


@pytest.fixture
def controller(node: Controlled) -> Iterator[Wire]:
    with Wire(node.address) as connected:
        yield connected


def described(endpoint_type: int) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=False, endpoint_type=endpoint_type
    )


def cluster_id_of(wire: Wire) -> str:
    found: str = wire.ask(described(2), version=1).cluster_id
    return found


def registration(wire: Wire, broker_id: int, *, life: bytes = b"i" * 16) -> Any:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id_of(wire),
        incarnation_id=life,
        listeners=[Listener(name="PLAINTEXT", host="h2", port=9092, security_protocol=0)],
        features=[
            Feature(name=name, min_supported_version=levels.low, max_supported_version=levels.high)
            for name, levels in supported_features().items()
        ],
        rack=None,
        log_dirs=[bytes([broker_id]) * 16],
    )


def heartbeat(broker_id: int, epoch: int, **changes: Any) -> BrokerHeartbeatRequest:
    fields: dict[str, Any] = {
        "broker_id": broker_id,
        "broker_epoch": epoch,
        "current_metadata_offset": 1_000_000,
        "want_fence": False,
        "want_shut_down": False,
    }
    return BrokerHeartbeatRequest(**(fields | changes))


def test_it_advertises_what_it_serves(controller: Wire) -> None:
    from headwater.protocol.messages.api_versions import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    found = {each.api_key for each in controller.ask(request, version=4).api_keys}
    assert found == set(SERVED)
    assert all(APIS[key].on_controller for key in found)


def test_a_dynamic_quorum_is_among_the_finalized_features(
    node: Controlled, controller: Wire
) -> None:
    from headwater.protocol.messages.api_versions import ApiVersionsRequest

    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with Wire(node.node.bootstrap) as broker:
        for listener in (broker, controller):
            answer = listener.ask(request, version=4)
            levels = {each.name: each.max_version_level for each in answer.finalized_features}
            assert levels["kraft.version"] == 1
            assert levels["metadata.version"] == 30


def test_a_quorum_that_is_dynamic_stays_so(controller: Wire) -> None:
    from headwater.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

    key = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=2)
    refusal = controller.ask(UpdateFeaturesRequest(feature_updates=[key]), version=2)
    assert refusal.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "1" in refusal.error_message
    assert "unknown" not in refusal.error_message


def test_a_client_on_the_controller_port_is_turned_away_with_a_reason(node: Controlled) -> None:
    with Wire(node.address) as wire, pytest.raises(Closed):
        wire.ask(MetadataRequest(topics=[]), version=9)
    assert any("connect to a broker" in line for line in node.node.log_lines)


def test_controllers_are_described_and_brokers_are_not(node: Controlled, controller: Wire) -> None:
    answer = controller.ask(described(2), version=1)
    assert (answer.error_code, answer.controller_id, answer.endpoint_type) == (0, 1, 2)
    assert [(b.broker_id, b.host, b.port) for b in answer.brokers] == [(1, "127.0.0.1", node.port)]
    answer = controller.ask(described(1), version=1)
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    answer = controller.ask(described(9), version=1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_a_broker_joins_over_the_wire_and_is_let_go(controller: Wire) -> None:
    epoch = controller.ask(registration(controller, 2), version=4).broker_epoch
    assert epoch > 0
    again = controller.ask(registration(controller, 2), version=4)
    assert again.broker_epoch == epoch
    fenced = controller.ask(heartbeat(2, epoch, current_metadata_offset=0), version=1)
    assert (fenced.is_caught_up, fenced.is_fenced) == (False, True)
    alive = controller.ask(heartbeat(2, epoch), version=1)
    assert (alive.is_caught_up, alive.is_fenced) == (True, False)
    other = controller.ask(registration(controller, 2, life=b"j" * 16), version=4)
    assert other.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    stale = controller.ask(heartbeat(2, epoch - 1), version=1)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    block = controller.ask(AllocateProducerIdsRequest(broker_id=2, broker_epoch=epoch), version=0)
    assert (block.error_code, block.producer_id_len) == (0, 1000)
    assigned = controller.ask(
        AssignReplicasToDirsRequest(broker_id=2, broker_epoch=epoch, directories=[]), version=0
    )
    assert assigned.error_code == 0
    gone = controller.ask(heartbeat(2, epoch, want_shut_down=True), version=1)
    assert (gone.is_fenced, gone.should_shut_down) == (True, True)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"cluster_id": "AAAAAAAAQACAAAAAAAAAAQ"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_a_registration_that_does_not_fit_is_refused(
    controller: Wire, change: dict[str, Any], code: ErrorCode
) -> None:
    request = registration(controller, 3)
    for name, value in change.items():
        setattr(request, name, value)
    assert controller.ask(request, version=4).error_code == code


@pytest.mark.parametrize("version", [2, 3])
def test_a_leader_alters_its_partition(node: Controlled, controller: Wire, version: int) -> None:
    with Wire(node.node.bootstrap) as wire:
        topic_id = wire.topic_id(f"altered-{version}")
    epoch = _epoch_of_node_1(controller)
    partition = AlterPartitionRequestPartitionData(
        partition_index=0, leader_epoch=0, partition_epoch=0
    )
    if version == 2:
        partition.new_isr = [1]
    else:
        partition.new_isr_with_epochs = [BrokerState(broker_id=1)]
    request = AlterPartitionRequest(
        broker_id=1,
        broker_epoch=epoch,
        topics=[AlterPartitionRequestTopicData(topic_id=topic_id, partitions=[partition])],
    )
    answer = controller.ask(request, version=version)
    assert answer.error_code == 0
    ((found,),) = ([*topic.partitions] for topic in answer.topics)
    assert (found.error_code, found.leader_id, found.isr) == (0, 1, [1])
    request.broker_epoch += 1
    assert controller.ask(request, version=version).error_code == ErrorCode.STALE_BROKER_EPOCH


def _epoch_of_node_1(controller: Wire) -> int:
    """Registration with the same id is refused; the epoch is found by trying."""
    for epoch in range(200):
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)
        if controller.ask(request, version=0).error_code == 0:
            return epoch
    raise AssertionError("no epoch below 200")


def envelope_of(request: Any, version: int) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=bytes(encode_request(request, version, 5, "client")[4:]),
        request_principal=encode_principal(ANONYMOUS),
        client_host_address=bytes([10, 0, 0, 1]),
    )


def creation(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


def test_an_envelope_is_opened_and_answered(controller: Wire) -> None:
    from headwater.broker.envelope import take_out_response

    answer = controller.ask(envelope_of(creation("enclosed"), 7), version=0)
    assert answer.error_code == 0
    inner: Any = take_out_response(ApiKey.CREATE_TOPICS, 7, 5, answer.response_data)
    assert [(t.name, t.error_code) for t in inner.topics] == [("enclosed", 0)]
    refused = controller.ask(envelope_of(MetadataRequest(topics=[]), 9), version=0)
    assert (refused.error_code, refused.response_data) == (ErrorCode.INVALID_REQUEST, None)


# The channel to it


class Follower:
    """The part of a metadata log that the channel reads: the leader."""

    def __init__(self, leader: QuorumLeader | None) -> None:
        self.leader = leader
        self.callbacks: list[Callable[[], None]] = []

    def on_leader_changed(self, callback: Callable[[], None]) -> None:
        self.callbacks.append(callback)

    def lead(self, leader: QuorumLeader | None) -> None:
        self.leader = leader
        for callback in self.callbacks:
            callback()


CONFIG = node_config({"log.dirs": "/d", "node.id": "7"})


def channel_to(follower: Follower) -> ControllerChannel:
    return ControllerChannel(Host.in_memory(), CONFIG, follower, None)  # type: ignore[arg-type]


def client(version: int) -> Context:
    connection: Any = SimpleNamespace(
        stream=SimpleNamespace(peer=SimpleNamespace(host="127.0.0.1")), principal=ANONYMOUS
    )
    return Context(connection, version, "app")


def test_another_node_asks_and_forwards(node: Controlled) -> None:
    async def run() -> None:
        follower = Follower(QuorumLeader(1, 1, Address("127.0.0.1", node.port)))
        channel = channel_to(follower)
        before = channel.controller_versions
        assert before is None
        block = await channel.ask(
            AllocateProducerIdsRequest(broker_id=99, broker_epoch=0), timeout_ms=5000
        )
        assert block.error_code == ErrorCode.STALE_BROKER_EPOCH
        created: Any = await channel.forward(client(7), creation("forwarded"))
        assert [(t.name, t.error_code) for t in created.topics] == [("forwarded", 0)]
        known = channel.controller_versions
        assert known is not None
        assert known[ApiKey.CREATE_TOPICS] == (2, 7)
        moving: Any = await channel.forward(
            client(0), ListPartitionReassignmentsRequest(topics=None, timeout_ms=1000)
        )
        assert (moving.error_code, moving.topics) == (0, [])
        channel.close()

    asyncio.run(run())


def test_requests_wait_for_a_leader_and_follow_it(node: Controlled) -> None:
    async def run() -> None:
        follower = Follower(None)
        channel = channel_to(follower)
        request = AllocateProducerIdsRequest(broker_id=99, broker_epoch=0)
        waiting = asyncio.ensure_future(channel.ask(request, timeout_ms=10_000))
        forwarded = asyncio.ensure_future(channel.forward(client(7), creation("followed")))
        await asyncio.sleep(0.05)
        # Somebody who accepts and never answers; the requests must not stay with it.
        silent = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        follower.lead(QuorumLeader(3, 2, Address("127.0.0.1", port)))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        follower.lead(QuorumLeader(1, 3, Address("127.0.0.1", node.port)))
        assert (await waiting).error_code == ErrorCode.STALE_BROKER_EPOCH
        answer: Any = await forwarded
        assert [t.error_code for t in answer.topics] == [0]
        channel.close()
        silent.close()

    asyncio.run(run())


def test_a_node_that_leads_again_answers_what_is_in_flight(node: Controlled) -> None:
    async def run() -> None:
        address = Address("127.0.0.1", node.port)
        follower = Follower(QuorumLeader(1, 1, address))
        channel = channel_to(follower)
        for number in range(20):
            asked = asyncio.ensure_future(channel.forward(client(7), creation(f"again-{number}")))
            while channel.controller_versions is None:  # noqa: ASYNC110 - set by a connection
                await asyncio.sleep(0)
            await asyncio.sleep(0)
            follower.lead(QuorumLeader(1, number + 2, address))
            answer: Any = await asked
            assert [t.error_code for t in answer.topics] == [0]
        channel.close()

    asyncio.run(run())


def test_without_a_controller_a_request_times_out_and_says_what_it_tried() -> None:
    async def run() -> None:
        follower = Follower(QuorumLeader(1, 1, Address("127.0.0.1", free_port())))
        channel = channel_to(follower)
        request = AllocateProducerIdsRequest(broker_id=99, broker_epoch=0)
        with pytest.raises(ApiError) as refused:
            await channel.ask(request, timeout_ms=300)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert "refused" in str(refused.value)
        channel.close()

    asyncio.run(run())


def test_every_version_of_what_nodes_ask_is_served(controller: Wire) -> None:
    for version in all_versions(ApiKey.BROKER_HEARTBEAT):
        answer = controller.ask(heartbeat(77, 0), version=version)
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    for version in all_versions(ApiKey.BROKER_REGISTRATION):
        request = registration(controller, 78)
        request.cluster_id = "other"
        answer = controller.ask(request, version=version)
        assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_what_is_meant_for_another_voter_is_refused(controller: Wire) -> None:
    """A node must not vote, nor follow, under an identity whose votes it may have lost."""
    here = quorum_of(controller)

    def vote_code(voter_id: int, directory_id: bytes) -> int:
        asked = vote.VoteRequestPartitionData(
            partition_index=0,
            replica_epoch=here.leader_epoch,
            replica_id=2,
            voter_directory_id=directory_id,
            last_offset_epoch=0,
            last_offset=0,
            pre_vote=True,
        )
        topic = vote.VoteRequestTopicData(topic_name=METADATA_TOPIC, partitions=[asked])
        request = vote.VoteRequest(cluster_id=None, voter_id=voter_id, topics=[topic])
        code: int = controller.ask(request, version=2).topics[0].partitions[0].error_code
        return code

    own = here.current_voters[0].replica_directory_id
    assert vote_code(1, own) == 0
    assert vote_code(7, own) == ErrorCode.INVALID_VOTER_KEY
    assert vote_code(1, b"x" * 16) == ErrorCode.INVALID_VOTER_KEY


def test_snapshots_are_found_by_id_and_read_by_position(controller: Wire) -> None:
    epoch = quorum_of(controller).leader_epoch

    def part(end_offset: int, position: int) -> Any:
        wanted = fetch_snapshot.FetchSnapshotRequestSnapshotId(end_offset=end_offset, epoch=0)
        asked = fetch_snapshot.FetchSnapshotRequestPartitionSnapshot(
            partition=0, current_leader_epoch=epoch, snapshot_id=wanted, position=position
        )
        topic = fetch_snapshot.FetchSnapshotRequestTopicSnapshot(
            name=METADATA_TOPIC, partitions=[asked]
        )
        request = fetch_snapshot.FetchSnapshotRequest(replica_id=2, max_bytes=16, topics=[topic])
        return controller.ask(request, version=1).topics[0].partitions[0]

    assert part(1_000_000, 0).error_code == ErrorCode.SNAPSHOT_NOT_FOUND
    first = part(0, 0)  # the voters that the directory was formatted with
    assert (first.error_code, len(first.unaligned_records)) == (0, 16)
    for position in (-1, first.size):
        assert part(0, position).error_code == ErrorCode.POSITION_OUT_OF_RANGE


def quorum_of(controller: Wire) -> Any:
    asked = describe_quorum.DescribeQuorumRequestTopicData(
        topic_name=METADATA_TOPIC,
        partitions=[describe_quorum.DescribeQuorumRequestPartitionData(partition_index=0)],
    )
    request = describe_quorum.DescribeQuorumRequest(topics=[asked])
    return controller.ask(request, version=2).topics[0].partitions[0]
