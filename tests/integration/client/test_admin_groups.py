"""`Admin` on groups and how far they have read.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.wire import Plain, Wire, batch, until
from headwater.blocking import Admin
from headwater.client.admin import (
    CommittedOffset,
    Group,
    PartitionLag,
    group_config,
    or_raise,
)
from headwater.client.errors import ClientError, GroupNotEmpty, GroupNotFound, UnsupportedVersion
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headwater.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headwater.testing import EmbeddedBroker
from tests.support.group_shards import subscription


@pytest.fixture
def admin(shared_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(shared_broker.bootstrap) as connected:
        connected.describe_groups(["any"])  # asking creates the topic that coordinators need
        yield connected


def join(wire: Wire, group_id: str, topic: str, instance_id: str | None = None) -> str:
    """A classic member that is alone and has been given partition 0 of the topic; its id."""
    member_id = ""

    def request() -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription(topic))],
        )

    def joined() -> int | None:
        nonlocal member_id
        answer = wire.ask(request())
        member_id = answer.member_id or member_id
        return answer.generation_id if answer.error_code == 0 else None

    generation = until(joined, "a place in the group")
    name = len(topic).to_bytes(2) + topic.encode()
    given = (
        b"\x00\x00\x00\x00\x00\x01" + name + b"\x00\x00\x00\x01" + bytes(4) + b"\xff\xff\xff\xff"
    )
    wire.ask(
        SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=given)],
        )
    )
    return member_id


def heartbeat(wire: Wire, group_id: str, topic: str, epoch: int = 0) -> int:
    """A member of the newer protocol; the error code."""
    code: int = wire.ask(
        ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=f"member-of-{group_id}"[:36],
            member_epoch=epoch,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
    ).error_code
    return code


def test_offsets_are_moved_told_and_forgotten(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    moved = admin.alter_group_offsets(topic, {first: 7, second: CommittedOffset(9, 0, "why not")})
    assert moved == {first: None, second: None}
    told = admin.group_offsets(topic)
    assert told[first].offset == 7
    assert (told[second].offset, told[second].metadata) == (9, "why not")
    assert set(admin.group_offsets(topic, [second])) == {second}
    assert admin.delete_group_offsets(topic, [first]) == {first: None}
    assert set(admin.group_offsets(topic)) == {second}


def test_offsets_of_many_groups_come_at_once(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    groups = [f"{topic}-{number}" for number in range(5)]
    where = TopicPartition(topic, 0)
    for number, group in enumerate(groups):
        or_raise(admin.alter_group_offsets(group, {where: number}))
    nobody = f"{topic}-nobody"
    told = or_raise(admin.list_group_offsets([*groups, nobody]))
    assert [told[group][where].offset for group in groups] == [0, 1, 2, 3, 4]
    assert told[nobody] == {}


def test_a_classic_group_is_described_with_its_members(
    admin: Admin, wire: Wire, topic: str
) -> None:
    admin.create_topic(topic)
    member_id = join(wire, topic, topic)
    group = admin.describe_group(topic)
    assert (group.kind, group.state, group.assignor) == ("classic", "Stable", "range")
    (member,) = group.members
    assert (member.id, member.client_id) == (member_id, "test")
    assert member.assigned == {TopicPartition(topic, 0)}
    assert member.topics == {topic}
    assert group.owner(TopicPartition(topic, 0)) == member
    assert group.coordinator.startswith("127.0.0.1:")


def test_a_consumer_group_is_described_in_the_same_words(
    admin: Admin, wire: Wire, topic: str
) -> None:
    admin.create_topic(topic)
    whole = frozenset({TopicPartition(topic, 0)})

    def joined() -> bool:  # a coordinator may learn of the topic after the member
        return heartbeat(wire, topic, topic) == 0 and (
            admin.describe_group(topic).members[0].target == whole
        )

    until(joined, "a place in the group")
    group = admin.describe_group(topic)
    assert (group.kind, group.epoch) == ("consumer", group.assignment_epoch)
    (member,) = group.members
    assert member.topics == {topic}
    assert not member.is_classic
    heartbeat(wire, topic, topic, epoch=-1)


def test_groups_of_both_kinds_are_described_and_listed_at_once(
    admin: Admin, wire: Wire, topic: str
) -> None:
    admin.create_topic(topic)
    classic, consumer, nobody = f"{topic}-c", f"{topic}-n", f"{topic}-nobody"
    admin.alter_group_offsets(classic, {TopicPartition(topic, 0): 0})
    until(lambda: heartbeat(wire, consumer, topic) == 0, "a place in the group")
    told = admin.describe_groups([nobody, consumer, classic])
    assert list(told) == [nobody, consumer, classic]
    assert isinstance(told[nobody], GroupNotFound)
    kinds = [group.kind for group in told.values() if isinstance(group, Group)]
    assert kinds == ["consumer", "classic"]
    listed = {each.id: each for each in admin.list_groups()}
    assert (listed[classic].type, listed[classic].state) == ("classic", "Empty")
    assert listed[consumer].type == "consumer"
    assert classic in {each.id for each in admin.list_groups(states=["empty"], types=["Classic"])}
    assert consumer not in {each.id for each in admin.list_groups(types=["classic"])}
    heartbeat(wire, consumer, topic, epoch=-1)


def test_a_group_that_somebody_is_in_is_not_deleted(admin: Admin, wire: Wire, topic: str) -> None:
    admin.create_topic(topic)
    join(wire, topic, topic)
    empty, nobody = f"{topic}-empty", f"{topic}-nobody"
    admin.alter_group_offsets(empty, {TopicPartition(topic, 0): 0})
    gone = admin.delete_groups([topic, empty, nobody])
    assert isinstance(gone[topic], GroupNotEmpty)
    assert gone[empty] is None
    assert isinstance(gone[nobody], GroupNotFound)
    with pytest.raises(GroupNotEmpty):
        admin.delete_group(topic)
    refused = admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 0})
    assert isinstance(refused[TopicPartition(topic, 0)], ClientError)
    assert "the group has members" in str(refused[TopicPartition(topic, 0)])


def test_members_are_put_out(admin: Admin, wire: Wire, topic: str) -> None:
    admin.create_topic(topic)
    join(wire, topic, topic, instance_id="left")
    put_out = admin.remove_members(topic, instance_ids=["left", "never-there"], reason="it hangs")
    assert put_out["left"] is None
    refused = put_out["never-there"]
    assert isinstance(refused, ClientError)
    assert refused.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "member never-there" in str(refused)
    assert "it is not in the group" in str(refused)
    assert admin.describe_group(topic).is_empty
    member_id = join(wire, topic, topic)
    assert admin.remove_members(topic, all_members=True) == {member_id: None}
    assert admin.describe_group(topic).members == ()


def test_groups_have_configs(admin: Admin, topic: str) -> None:
    admin.alter_config(group_config(topic), {"consumer.session.timeout.ms": 50_000})
    until(lambda: group_config(topic) in admin.list_config_resources(), "the group in the list")
    config = admin.describe_config(group_config(topic))["consumer.session.timeout.ms"]
    assert (config.value, config.is_own) == ("50000", True)


def test_a_group_of_kafka_streams_is_described_in_the_same_words(
    admin: Admin, wire: Wire, topic: str
) -> None:
    router = admin._asynchronous._router
    deadline = router.deadline(None)
    if not admin._run(lambda: router.serves(ApiKey.STREAMS_GROUP_DESCRIBE, deadline)):
        with pytest.raises(GroupNotFound):
            admin.describe_group(topic)
        return
    admin.create_topic(topic)
    whole = frozenset({TopicPartition(topic, 0)})

    def joined() -> bool:
        wire.ask(
            StreamsGroupHeartbeatRequest(
                group_id=topic,
                member_id=topic,
                member_epoch=0,
                endpoint_information_epoch=0,
                rebalance_timeout_ms=30_000,
                topology=Topology(
                    epoch=1, subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])]
                ),
                active_tasks=[],
                standby_tasks=[],
                warmup_tasks=[],
                process_id="here",
            )
        )
        members = admin.describe_group(topic, operations=True).members
        return bool(members) and members[0].target == whole

    until(joined, "a place in the group")
    group = admin.describe_group(topic, operations=True)
    assert (group.kind, group.protocol_type) == ("streams", "streams")
    assert "DELETE" in (group.operations or ())
    assert group.members[0].topics == {topic}
    assert [each.type for each in admin.list_groups() if each.id == topic] == ["streams"]


def test_share_groups_stand_somewhere(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    router = admin._asynchronous._router
    deadline = router.deadline(None)
    if not admin._run(lambda: router.serves(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, deadline)):
        with pytest.raises(UnsupportedVersion, match="DescribeShareGroupOffsets"):
            admin.list_share_group_offsets([topic])
        with pytest.raises(UnsupportedVersion, match="AlterShareGroupOffsets"):
            admin.alter_share_group_offsets(topic, {TopicPartition(topic, 0): 0})
        return
    where = TopicPartition(topic, 0)
    assert admin.list_share_group_offsets([topic]) == {topic: {}}
    # Its coordinator may learn of the topic a moment later than others.
    until(lambda: admin.alter_share_group_offsets(topic, {where: 0}) == {where: None}, "a place")
    assert or_raise(admin.list_share_group_offsets({topic: [where]}))[topic][where].start == 0
    assert admin.describe_group(topic).kind == "share"
    assert admin.delete_share_group_offsets(topic, [topic]) == {topic: None}


def test_lag_is_told_in_records_and_in_seconds_of_the_records(
    admin: Admin, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic, 3)
    read, behind, unread = (TopicPartition(topic, number) for number in range(3))
    records = batch([Plain(b"v", timestamp=at) for at in (1_000, 2_000, 4_500)])
    for where in (read, behind):
        assert wire.produce(topic, records, partition=where.partition).error_code == 0
    or_raise(admin.alter_group_offsets(topic, {read: 3, behind: 1}))
    lag = admin.group_lag(topic, partitions=[unread])
    assert lag == {
        read: PartitionLag(committed=3, end=3, seconds=0.0),
        behind: PartitionLag(committed=1, end=3, seconds=2.5),
        unread: PartitionLag(committed=None, end=0),
    }
    assert [each.records for each in lag.values()] == [0, 2, None]
    assert admin.group_lag(f"{topic}-none") == {}
