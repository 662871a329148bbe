"""Groups that migrate from the classic protocol to the consumer protocol and back."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headwater.coordination import Decision, Record
from headwater.errors import ErrorCode
from headwater.groups.clients import ClientInfo
from headwater.groups.consumer.topics import Topics
from headwater.groups.settings import GroupSettings
from headwater.groups.shard import GroupShard
from headwater.model import TopicPartition
from headwater.protocol import decode, encode
from headwater.protocol.consumer_protocol import (
    read_assignment,
    write_assignment,
    write_subscription,
)
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from headwater.protocol.records.group_consumer import ConsumerGroupMemberMetadataValue
from headwater.protocol.schema import Message
from tests.reference.consumers import World, rewritten

CLIENT = ClientInfo("c", "/1.2.3.4")


class Coordinator:
    """A shard with its log, which is replayed after every step."""

    def __init__(self, settings: GroupSettings | None = None) -> None:
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.world = World(t=4)
        self.topics = Topics()
        self.topics.update(self.world)
        self.shard = GroupShard(self.settings, Random(1))
        self.log: list[Record] = []
        self.answers: dict[int, Message] = {}
        self.now = 10.0
        self.token = 0
        self.take(self.shard.on_loaded(self.now))
        self.take(self.shard.on_metadata(self.world, (), self.now))

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000) + 1_700_000_000_000

    def take(self, decision: Decision) -> None:
        for record in decision.records:
            # A classic group's record is of version 3, all others of 0.
            written = Record(record.key, record.value)
            if type(record.key).__name__ != "GroupMetadataKey":
                value = None if record.value is None else rewritten(record.value)
                written = Record(rewritten(record.key), value)
            self.log.append(written)
            self.shard.apply(written, offset=len(self.log))
        for token, answer in decision.replies:
            self.answers[token] = answer
        fresh = GroupShard(self.settings, Random(2))
        for offset, record in enumerate(self.log):
            fresh.apply(record, offset=offset)
        assert fresh.durable_state() == self.shard.durable_state()

    def pass_time(self, seconds: float = 0.0) -> None:
        self.now += seconds
        while self.shard.next_deadline() <= self.now:
            self.take(self.shard.on_tick(self.now, self.now_ms))

    def ask(self, call: Any, request: Message, **extra: object) -> int:
        self.token += 1
        self.take(call(self.token, request, now=self.now, **extra))
        self.pass_time()
        return self.token

    def state_of(self) -> tuple[str, str]:
        (group,) = self.shard.list_groups((), ())
        return group.group_type, group.group_state


def subscription(
    *topics: str, owned: dict[str, list[int]] | None = None, user_data: bytes | None = None
) -> bytes:
    held = [
        TopicPartition(topic, number)
        for topic, numbers in (owned or {}).items()
        for number in numbers
    ]
    return write_subscription(topics=topics, owned=held, user_data=user_data, version=1)


class Classic:
    """A classic consumer that eagerly does what it is told."""

    def __init__(self, at: Coordinator, instance_id: str | None = None) -> None:
        self.at = at
        self.id, self.generation, self.instance_id = "", -1, instance_id
        self.owned: dict[str, list[int]] = {}
        self.joined: JoinGroupResponse | None = None
        self.type = "consumer"

    def ask_join(self) -> int:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type=self.type,
            protocols=[
                JoinGroupRequestProtocol(name="range", metadata=subscription("t", owned=self.owned))
            ],
        )
        shard = self.at.shard
        return self.at.ask(
            shard.decide_join, request, client=CLIENT, version=9, now_ms=self.at.now_ms
        )

    def join(self) -> JoinGroupResponse:
        answer = self.at.answers[self.ask_join()]
        assert isinstance(answer, JoinGroupResponse)
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.id = answer.member_id
            answer = self.at.answers[self.ask_join()]
            assert isinstance(answer, JoinGroupResponse)
        if answer.error_code == 0:
            self.id, self.generation, self.joined = answer.member_id, answer.generation_id, answer
        return answer

    def sync(self, **assignments: bytes) -> SyncGroupResponse:
        request = SyncGroupRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in assignments.items()
            ],
        )
        token = self.at.ask(self.at.shard.decide_sync, request, version=5, now_ms=self.at.now_ms)
        answer = self.at.answers[token]
        assert isinstance(answer, SyncGroupResponse)
        if answer.error_code == 0:
            self.owned = {
                topic.topic: list(topic.partitions)
                for topic in read_assignment(answer.assignment).assigned_partitions
            }
        return answer

    def heartbeat(self) -> int:
        request = HeartbeatRequest(
            group_id="g",
            generation_id=self.generation,
            member_id=self.id,
            group_instance_id=self.instance_id,
        )
        answer = self.at.answers[self.at.ask(self.at.shard.decide_heartbeat, request)]
        assert isinstance(answer, HeartbeatResponse)
        return answer.error_code

    def leave(self) -> None:
        request = LeaveGroupRequest(
            group_id="g", member_id="", members=[MemberIdentity(member_id=self.id)]
        )
        self.at.ask(self.at.shard.decide_leave, request, version=4, now_ms=self.at.now_ms)

    def follow(self) -> None:
        """Sends a heartbeat, and joins and syncs again as long as the coordinator asks for it."""
        for _ in range(3):
            if self.heartbeat() != ErrorCode.REBALANCE_IN_PROGRESS:
                return
            assert self.join().error_code == 0
            self.sync()


class Modern:
    def __init__(self, at: Coordinator, member_id: str, instance_id: str | None = None) -> None:
        self.at, self.id, self.epoch, self.instance_id = at, member_id, 0, instance_id
        self.owned: list[ConsumerGroupHeartbeatRequestTopicPartitions] = []

    def beat(self, epoch: int | None = None) -> ConsumerGroupHeartbeatResponse:
        joins = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=self.id,
            member_epoch=self.epoch if epoch is None else epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=20_000 if joins else -1,
            subscribed_topic_names=["t"] if joins else None,
            topic_partitions=self.owned,
        )
        token = self.at.ask(
            self.at.shard.decide_consumer_heartbeat,
            request,
            client=CLIENT,
            version=1,
            now_ms=self.at.now_ms,
        )
        answer = self.at.answers[token]
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        if answer.error_code == 0:
            self.epoch = max(answer.member_epoch, 0)
            if answer.assignment is not None:
                self.owned = [
                    ConsumerGroupHeartbeatRequestTopicPartitions(
                        topic_id=topic.topic_id, partitions=topic.partitions
                    )
                    for topic in answer.assignment.topic_partitions
                ]
        return answer

    @property
    def partitions(self) -> list[int]:
        return sorted(number for topic in self.owned for number in topic.partitions)


def classic_group(at: Coordinator, instance_id: str | None = None) -> Classic:
    """A stable classic group of one, which owns all of `t`."""
    member = Classic(at, instance_id)
    member.join()
    topic = at.world.id("t")
    assert topic is not None
    member.sync(**{member.id: write_assignment(at.topics.by_name({topic: range(4)}), version=1)})
    assert member.owned == {"t": [0, 1, 2, 3]}
    assert at.state_of() == ("classic", "Stable")
    return member


def settle(at: Coordinator, *members: Classic | Modern) -> None:
    for _ in range(6):
        at.pass_time(1.1)
        for member in members:
            if isinstance(member, Classic):
                member.follow()
            else:
                assert member.beat().error_code == 0


def test_a_classic_group_is_upgraded_by_a_member_that_speaks_the_consumer_protocol() -> None:
    at = Coordinator()
    classic = classic_group(at)
    modern = Modern(at, "new")
    first = modern.beat()
    assert first.error_code == 0
    assert first.member_epoch > classic.generation
    assert modern.partitions == []  # the classic member still owns them all
    assert at.state_of()[0] == "consumer"
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    settle(at, classic, modern)
    assert sorted([*classic.owned["t"], *modern.partitions]) == [0, 1, 2, 3]
    assert len(modern.partitions) == 2
    assert at.state_of() == ("consumer", "Stable")


def test_members_that_wait_in_the_classic_group_are_told_to_join_again() -> None:
    at = Coordinator()
    first = classic_group(at)
    second = Classic(at)
    token = second.ask_join()
    second.id = at.answers[token].member_id  # type: ignore[attr-defined]
    waiting = second.ask_join()
    assert waiting not in at.answers
    Modern(at, "new").beat()
    answer = at.answers[waiting]
    assert isinstance(answer, JoinGroupResponse)
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_refused_heartbeat_leaves_the_classic_group_alone() -> None:
    at = Coordinator()
    classic = classic_group(at)
    modern = Modern(at, "new")
    modern.id = ""
    assert modern.beat().error_code == ErrorCode.INVALID_REQUEST
    assert at.state_of() == ("classic", "Stable")
    assert classic.heartbeat() == 0


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_can_forbid_an_upgrade(policy: str) -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy=policy)
    at = Coordinator(settings)
    classic_group(at)
    answer = Modern(at, "new").beat()
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert answer.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )
    assert at.state_of() == ("classic", "Stable")


def test_a_group_of_another_protocol_type_is_not_upgraded() -> None:
    at = Coordinator()
    member = Classic(at)
    member.type = "connect"
    member.join()
    assert "embedded protocol" in (Modern(at, "new").beat().error_message or "")


def test_an_empty_classic_group_is_simply_replaced() -> None:
    at = Coordinator()
    classic = classic_group(at)
    classic.leave()
    assert at.state_of() == ("classic", "Empty")
    assert Modern(at, "new").beat().error_code == 0
    assert at.state_of()[0] == "consumer"


def test_the_group_is_classic_again_when_the_last_modern_member_leaves() -> None:
    at = Coordinator()
    classic, modern = classic_group(at), Modern(at, "new")
    modern.beat()
    settle(at, classic, modern)
    assert modern.beat(-1).error_code == 0
    assert at.state_of() == ("classic", "PreparingRebalance")
    assert classic.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    generation = classic.generation
    assert classic.join().error_code == 0
    assert classic.generation > generation
    assert classic.joined is not None
    assert classic.joined.leader == classic.id
    classic.sync(**{classic.id: b"\0\1\0\0\0\0\xff\xff\xff\xff"})
    assert at.state_of() == ("classic", "Stable")


def test_a_modern_member_that_dies_downgrades_the_group_too() -> None:
    at = Coordinator()
    classic, modern = classic_group(at), Modern(at, "new")
    modern.beat()
    settle(at, classic, modern)
    for _ in range(12):
        at.pass_time(4.0)
        classic.heartbeat()
    assert at.state_of()[0] == "classic"


def test_without_a_downgrade_policy_classic_members_stay_in_a_consumer_group() -> None:
    settings = GroupSettings(initial_rebalance_delay_ms=0, consumer_migration_policy="upgrade")
    at = Coordinator(settings)
    classic, modern = classic_group(at), Modern(at, "new")
    modern.beat()
    settle(at, classic, modern)
    modern.beat(-1)
    settle(at, classic)
    assert at.state_of() == ("consumer", "Stable")
    assert classic.owned == {"t": [0, 1, 2, 3]}


def test_a_classic_member_joins_a_consumer_group_and_is_served() -> None:
    at = Coordinator()
    modern, classic = Modern(at, "new"), Classic(at)
    modern.beat()
    at.pass_time(2.0)
    assert classic.join().error_code == 0
    assert classic.sync().error_code == 0
    settle(at, modern, classic)
    assert sorted([*classic.owned["t"], *modern.partitions]) == [0, 1, 2, 3]
    assert at.state_of() == ("consumer", "Stable")
    (described,) = at.shard.consumer_describe(["g"])
    assert {member.member_id: member.member_type for member in described.members} == {
        "new": 1,
        classic.id: 0,
    }


def test_a_static_member_goes_back_to_the_classic_protocol_and_the_group_with_it() -> None:
    at = Coordinator()
    classic = classic_group(at)
    modern = Modern(at, "new", "i")
    modern.beat()
    settle(at, classic, modern)
    modern.beat(-2)
    back = Classic(at, "i")
    assert back.join().error_code == 0
    assert at.state_of()[0] == "classic"
    assert back.sync().error_code == 0
    assert len(back.owned["t"]) == 2


def test_a_classic_member_is_refused_by_kafkas_codes() -> None:
    at = Coordinator()
    modern, classic = Modern(at, "new"), Classic(at)
    modern.beat()
    at.pass_time(2.0)
    classic.join()
    good = (classic.generation, classic.id)
    classic.generation += 1
    assert classic.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert classic.sync().error_code == ErrorCode.ILLEGAL_GENERATION
    classic.generation, classic.id = good
    classic.id = "nobody"
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    classic.id = "new"  # it does not speak the classic protocol
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    stranger = Classic(at)
    stranger.type = "connect"
    assert stranger.join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_member_that_does_not_rejoin_in_time_is_removed() -> None:
    at = Coordinator(GroupSettings(initial_rebalance_delay_ms=0))
    classic, modern = classic_group(at), Modern(at, "new")
    modern.beat()
    for _ in range(12):
        at.pass_time(3.0)
        modern.beat()
        classic.heartbeat()  # it hears that it should rejoin, and does not
    assert classic.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    modern.beat()
    assert modern.partitions == [0, 1, 2, 3]


@pytest.mark.parametrize("rest", [b"\1\0\1\0", b"\1\0\7\1\0\0\0\5\1\0"])
def test_a_member_record_of_kafka_is_read_and_written_alike(rest: bytes) -> None:
    """With and without a classic part, which is a tagged struct that may be null."""
    written = b"\0\0\4cmp\13/127.0.0.1\2\3ta\1\0\0'\20\0" + rest
    value = decode(ConsumerGroupMemberMetadataValue, written, 0)
    assert (value.classic_member_metadata is None) == (len(rest) == 4)
    assert bytes(encode(value, 0)) == written
