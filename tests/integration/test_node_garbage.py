"""Serving requests leaves nothing behind that only the collector could free.

A node freezes what it has after the start and then hardly ever collects, since a collection holds
the loop. A cycle for each request would therefore grow its memory for hours.
"""

from __future__ import annotations

import gc
import struct
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from harness.wire import Closed, Wire, batch, until
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
)
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.list_groups import ListGroupsRequest
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headwater.testing import EmbeddedBroker

TIMES = 10
TOPIC = "orders"
FLUSHED = "flushed"
LARGE = 200_000
BY_NAME = 9  # the newest version of OffsetCommit that knows topics by name


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(TOPIC)
            wire.create_topic(FLUSHED, flush_messages="1")
            join(wire, "warm-up")
        yield broker


def another(wire: Wire) -> Wire:
    host, port = wire.socket.getpeername()
    return Wire(f"{host}:{port}")


# The kinds of request, each with a number that no other has


def metadata(wire: Wire, _: int) -> None:
    wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]))
    wire.ask(MetadataRequest(topics=None))


def unknown_topic(wire: Wire, number: int) -> None:
    wanted = [MetadataRequestTopic(name=f"no such/{number}")]
    assert wire.ask(MetadataRequest(topics=wanted)).topics[0].error_code
    assert wire.produce(TOPIC, batch([b"x"]), partition=99).error_code


def produce(wire: Wire, _: int) -> None:
    for acks in (1, -1):
        assert not wire.produce(TOPIC, batch([b"x"]), acks=acks).error_code


def produce_large(wire: Wire, _: int) -> None:
    assert not wire.produce(TOPIC, batch([bytes(LARGE)])).error_code


def produce_flushed(wire: Wire, _: int) -> None:
    assert not wire.produce(FLUSHED, batch([b"x"])).error_code


def produce_corrupt(wire: Wire, _: int) -> None:
    broken = bytearray(batch([b"x"]))
    broken[-1] ^= 1
    assert wire.produce(TOPIC, bytes(broken)).error_code


def fetch(wire: Wire, _: int) -> None:
    wire.produce(TOPIC, batch([b"x"]))  # other cases may run in another process
    assert wire.fetch(TOPIC, 0).records


def fetch_in_vain(wire: Wire, _: int) -> None:
    end = wire.offset_at(TOPIC, -1).offset
    assert not wire.fetch(TOPIC, end, max_wait_ms=5).records


def fetch_out_of_range(wire: Wire, _: int) -> None:
    assert wire.fetch(TOPIC, 1_000_000).error_code


def fetch_awaited(wire: Wire, _: int) -> None:
    request, version = wire.fetch_request(
        TOPIC, wire.offset_at(TOPIC, -1).offset, max_wait_ms=20_000
    )
    with another(wire) as producer:
        wire.send(request, version)
        producer.produce(TOPIC, batch([b"x"]))
        wire.receive()


def fetch_abandoned(wire: Wire, _: int) -> None:
    with another(wire) as consumer:
        request, version = consumer.fetch_request(
            TOPIC, consumer.offset_at(TOPIC, -1).offset, max_wait_ms=20_000
        )
        consumer.send(request, version)


def offsets(wire: Wire, _: int) -> None:
    for timestamp in (-1, -2, 0):
        wire.offset_at(TOPIC, timestamp)


def committed(wire: Wire, number: int) -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=number, committed_metadata=""
    )
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    wire.ask(OffsetCommitRequest(group_id="committing", member_id="", topics=topics), BY_NAME)
    group = OffsetFetchRequestGroup(group_id="committing", topics=None)
    wire.ask(OffsetFetchRequest(groups=[group]))


def join(wire: Wire, group: str) -> None:
    """A member of a classic group, from its first request to its last."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    until(lambda: not wire.ask(request).coordinators[0].error_code or None, "a coordinator")
    joining = JoinGroupRequest(
        member_id="",
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\0\0\0\0\0")],
    )
    while True:
        answer = wire.ask(joining)
        if not answer.error_code:
            break
        joining.member_id = answer.member_id
    assignment = SyncGroupRequestAssignment(member_id=answer.member_id, assignment=b"a")
    synced = SyncGroupRequest(
        group_id=group,
        generation_id=answer.generation_id,
        member_id=answer.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[assignment],
    )
    assert wire.ask(synced).assignment == b"a"
    beat = HeartbeatRequest(
        group_id=group, generation_id=answer.generation_id, member_id=answer.member_id
    )
    assert not wire.ask(beat).error_code
    leaving = [MemberIdentity(member_id=answer.member_id)]
    assert not wire.ask(LeaveGroupRequest(group_id=group, members=leaving)).error_code
    assert wire.ask(beat).error_code


def classic_group(wire: Wire, _: int) -> None:
    join(wire, "classic")


def consumer_group(wire: Wire, number: int) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="modern",
        member_id=f"member-{number}",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_names=[TOPIC],
        topic_partitions=[],
    )
    assert not wire.ask(request).error_code
    request.member_epoch = -1
    assert not wire.ask(request).error_code


def topics(wire: Wire, number: int) -> None:
    new = CreatableTopic(
        name=f"short-lived-{number}", num_partitions=2, replication_factor=1, assignments=[]
    )
    assert not wire.ask(CreateTopicsRequest(topics=[new])).topics[0].error_code
    assert wire.ask(CreateTopicsRequest(topics=[new])).topics[0].error_code
    gone = DeleteTopicState(name=new.name, topic_id=bytes(16))
    assert (
        not wire.ask(DeleteTopicsRequest(topics=[gone], timeout_ms=10_000)).responses[0].error_code
    )


def described(wire: Wire, _: int) -> None:
    wire.describe_cluster()
    wire.ask(ListGroupsRequest())
    resource = DescribeConfigsResource(resource_type=2, resource_name=TOPIC)
    wire.ask(DescribeConfigsRequest(resources=[resource]))


def producer_id(wire: Wire, _: int) -> None:
    wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))


def connection(wire: Wire, _: int) -> None:
    with another(wire) as short:
        assert short.is_served()


def not_a_request(wire: Wire, _: int) -> None:
    with another(wire) as bad:
        bad.socket.sendall(struct.pack(">ihhih", 10, 999, 0, 1, -1))
        with pytest.raises(Closed):
            bad.read(1)


@pytest.mark.parametrize(
    "kind",
    [
        metadata,
        unknown_topic,
        produce,
        produce_large,
        produce_flushed,
        produce_corrupt,
        fetch,
        fetch_in_vain,
        fetch_out_of_range,
        fetch_awaited,
        fetch_abandoned,
        offsets,
        committed,
        classic_group,
        consumer_group,
        topics,
        described,
        producer_id,
        connection,
        not_a_request,
    ],
)
def test_a_request_leaves_no_garbage(
    kind: Callable[[Wire, int], None], broker: EmbeddedBroker
) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(TOPIC)
        wire.topic_id(FLUSHED)
        kind(wire, 0)  # what is loaded or cached once may leave garbage
        assert wire.is_served()
        gc.collect()
        gc.disable()
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            for number in range(1, TIMES + 1):
                kind(wire, number)
            assert wire.is_served()
            gc.collect()
            garbage = Counter(type(each).__qualname__ for each in gc.garbage)
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    # A timer of the node may leave a little now and then; a request would leave it each time.
    assert {name: count for name, count in garbage.items() if count > TIMES // 2} == {}
