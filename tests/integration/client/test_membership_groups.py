"""Members of a group against a broker: they share partitions, come, go, and come back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from harness.wire import Wire
from headwater.client.consumer.membership.assignors import GroupMember, LastAssignment, Topics
from headwater.client.errors import CommitFailed, FencedInstance, Refused, UnsupportedVersion
from headwater.model import TopicPartition
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.testing import EmbeddedBroker
from tests.support.members import MORTAL, Member, quick_broker, settled, until

CONSUMER = {"group_protocol": "consumer"}
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
PROTOCOLS = [
    pytest.param({"partition_assignment_strategy": "range"}, id="range"),
    pytest.param({"partition_assignment_strategy": "roundrobin"}, id="roundrobin"),
    pytest.param({"partition_assignment_strategy": "sticky"}, id="sticky"),
    pytest.param(COOPERATIVE, id="cooperative-sticky"),
    pytest.param(CONSUMER, id="consumer"),
]
BOTH = [pytest.param({}, id="classic"), pytest.param(CONSUMER, id="consumer")]
INCREMENTAL = [PROTOCOLS[3], PROTOCOLS[4]]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with quick_broker() as made:
        yield made


@pytest.fixture
def made_topic(broker: EmbeddedBroker, topic: str) -> str:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 4)
    return topic


def grow(broker: EmbeddedBroker, topic: str, count: int) -> None:
    with Wire(broker.bootstrap) as wire:
        answer = wire.ask(
            CreatePartitionsRequest(
                topics=[CreatePartitionsTopic(name=topic, count=count, assignments=None)],
                timeout_ms=5000,
                validate_only=False,
            )
        )
        assert answer.results[0].error_code == 0


@pytest.mark.parametrize("config", PROTOCOLS)
def test_members_share_the_partitions(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        address, group = broker.bootstrap, made_topic
        async with (
            Member(address, group, [made_topic], **config) as first,
            Member(address, group, [made_topic], **config) as second,
            Member(address, group, [made_topic], **config) as third,
        ):
            await first.poll()
            assert len(first.owned) == 4
            await until(settled(4, first, second), first, second)
            await until(settled(4, first, second, third), first, second, third)
            await second.leave()
            assert second.owned == []
            await until(settled(4, first, third), first, third)
            await asyncio.gather(first.leave(), third.leave())

    asyncio.run(story())


@pytest.mark.parametrize("config", INCREMENTAL)
def test_partitions_that_stay_are_never_revoked(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            await first.poll()
            await until(settled(4, first, second), first, second)
            revoked = first.notes.all_of("revoked")
            assert sorted(revoked) == second.owned
            assert not set(revoked) & set(first.owned)
            await second.leave()
            await until(settled(4, first), first)
            assert first.notes.all_of("revoked") == revoked

    asyncio.run(story())


def test_an_eager_member_owns_nothing_while_others_join(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic]) as first,
            Member(broker.bootstrap, made_topic, [made_topic]) as second,
        ):
            await first.poll()
            before = first.owned
            await until(settled(4, first, second), first, second)
            assert ("revoked", before) in first.notes.told

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_revoked_partitions_can_be_committed_until_the_callback_returns(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            identities = []
            first.notes.on_revoked = lambda: identities.append(first.membership.identity)
            await first.poll()
            await until(settled(4, first, second), first, second)
            await first.leave()
            assert len(identities) == 2
            assert all(each.group_id == made_topic for each in identities)
            with pytest.raises(CommitFailed):
                _ = first.membership.identity

    asyncio.run(story())


@pytest.mark.parametrize("config", [*BOTH, PROTOCOLS[3]])
def test_a_member_that_is_killed_is_replaced_after_its_session(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    if config.get("group_protocol") != "consumer":
        config = MORTAL | config

    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            await until(settled(4, first, second), first, second)
            await second.die()
            await until(settled(4, first), first)

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_heartbeats_go_on_while_records_are_processed(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    if config.get("group_protocol") != "consumer":
        config = MORTAL | config

    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as busy,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as killed,
        ):
            await until(settled(4, busy, killed), busy, killed)
            mine = busy.owned
            busy.notes.woken.clear()
            await killed.die()
            # Nobody polls the busy one. That the session of the other has ended is what it hears.
            await asyncio.wait_for(busy.notes.woken.wait(), 30)
            assert busy.owned == mine
            assert busy.membership.identity.member_id
            await until(settled(4, busy), busy)
            assert "lost" not in [what for what, _ in busy.notes.told]

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_a_member_that_is_not_polled_leaves_and_rejoins_at_the_next_poll(
    broker: EmbeddedBroker,
    made_topic: str,
    config: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        async with (
            Member(
                broker.bootstrap, made_topic, [made_topic], max_poll_interval_ms=700, **config
            ) as slow,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as other,
        ):
            await until(settled(4, slow, other), slow, other)
            mine = slow.owned
            with caplog.at_level(logging.WARNING, "headwater.client"):
                await until(settled(4, other), other)
            warnings = [each.message for each in caplog.records]
            assert len(warnings) == 1
            assert "max_poll_interval_ms=700" in warnings[0]
            with pytest.raises(CommitFailed, match="max_poll_interval_ms=700"):
                _ = slow.membership.identity
            assert slow.owned == mine, "it hears of its loss in poll, and only there"
            await until(settled(4, slow, other), slow, other)
            assert ("lost", mine) in slow.notes.told

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
@pytest.mark.parametrize("who", [0, 1])
def test_a_static_member_comes_back_without_a_rebalance(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any], who: int
) -> None:
    async def story() -> None:
        names = ["alpha", "beta"]
        members = [
            Member(broker.bootstrap, made_topic, [made_topic], group_instance_id=name, **config)
            for name in names
        ]
        async with members[0], members[1]:
            await members[0].poll()
            await until(settled(4, *members), *members)
            leaver, stayer = members[who], members[1 - who]
            before = leaver.owned
            told, identity = list(stayer.notes.told), stayer.membership.identity
            await leaver.leave("restart")
            async with Member(
                broker.bootstrap, made_topic, [made_topic], group_instance_id=names[who], **config
            ) as back:
                await until(lambda: back.owned == before, back, stayer)
                assert stayer.notes.told == told
                assert stayer.membership.identity == identity
                await back.leave(remain=False)
                await until(settled(4, stayer), stayer)

    asyncio.run(story())


def test_a_second_consumer_with_the_instance_id_fences_the_first(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], group_instance_id="i") as first,
            Member(broker.bootstrap, made_topic, [made_topic], group_instance_id="i") as second,
        ):
            await first.poll()
            await second.poll()
            assert len(second.owned) == 4
            with pytest.raises(FencedInstance, match="'i'"):
                await until(lambda: False, first)
            with pytest.raises(FencedInstance):
                await first.poll()

    asyncio.run(story())


def test_with_the_consumer_protocol_the_second_must_wait(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async def story() -> None:
        static = {"group_instance_id": "i", **CONSUMER}
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **static) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **static) as second,
        ):
            await first.poll()
            with pytest.raises(FencedInstance, match="'i'"):
                await second.poll()
            await first.leave()
            await until(settled(4, second), second)

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_new_partitions_are_assigned(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        async with Member(
            broker.bootstrap, made_topic, [made_topic], metadata_max_age_ms=100, **config
        ) as member:
            await until(settled(4, member), member)
            grow(broker, made_topic, 6)
            await until(settled(6, member), member)

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_a_topic_that_is_created_later_is_assigned(
    broker: EmbeddedBroker, topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        async with Member(
            broker.bootstrap, topic, [topic], allow_auto_create_topics=False, **config
        ) as member:
            await member.poll()
            assert member.notes.told == [("assigned", [])]
            with Wire(broker.bootstrap) as wire:
                wire.create_topic(topic, 3)
            await until(settled(3, member), member)

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_a_subscription_can_change(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        other = f"{made_topic}-other"
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(other, 2)
        async with Member(broker.bootstrap, made_topic, [made_topic], **config) as member:
            await member.poll()
            member.wanted.topics = frozenset({other})
            member.membership.subscription_changed()
            assert member.membership.needs_poll
            await until(lambda: {each.topic for each in member.owned} == {other}, member)
            assert len(member.owned) == 2

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_a_pattern_follows_the_topics_that_match(
    broker: EmbeddedBroker, topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(f"{topic}-a", 1)
            wire.create_topic(f"not-{topic}", 1)
            async with Member(
                broker.bootstrap, topic, pattern=f"{topic}-.*", metadata_max_age_ms=100, **config
            ) as member:
                await member.poll()
                assert member.owned == [TopicPartition(f"{topic}-a", 0)]
                wire.create_topic(f"{topic}-b", 1)
                await until(lambda: len(member.owned) == 2, member)
                assert member.owned[1].topic == f"{topic}-b"

    asyncio.run(story())


def test_the_broker_matches_regular_expressions(broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> None:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(f"{topic}-a", 1)
            async with Member(broker.bootstrap, topic, regex=f"{topic}-[ab]", **CONSUMER) as member:
                await until(lambda: len(member.owned) == 1, member)
                assert member.owned == [TopicPartition(f"{topic}-a", 0)]
                member.wanted.regex = "["
                member.membership.subscription_changed()
                with pytest.raises(Refused, match=r"'\['"):
                    await until(lambda: False, member)

    asyncio.run(story())


def test_a_classic_group_has_no_regular_expressions_of_the_broker(
    broker: EmbeddedBroker, topic: str
) -> None:
    async def story() -> None:
        async with Member(broker.bootstrap, topic, regex="t.*") as member:
            with pytest.raises(UnsupportedVersion, match="group_protocol='consumer'"):
                await member.poll()

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_a_member_that_left_may_rejoin(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        async with Member(broker.bootstrap, made_topic, [made_topic], **config) as member:
            await member.poll()
            mine = member.owned
            await member.leave("unsubscribe")
            assert member.notes.told[-1] == ("revoked", mine)
            await until(lambda: member.owned == mine, member)

    asyncio.run(story())


def test_a_session_that_the_broker_does_not_allow_is_an_error(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async def story() -> None:
        config: dict[str, Any] = {"session_timeout_ms": 50, "heartbeat_interval_ms": 10}
        async with Member(broker.bootstrap, made_topic, [made_topic], **config) as member:
            with pytest.raises(Refused, match="session_timeout_ms=50"):
                await member.poll()

    asyncio.run(story())


def test_members_without_a_common_assignor_get_an_error(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic]) as first,
            Member(
                broker.bootstrap,
                made_topic,
                [made_topic],
                partition_assignment_strategy="roundrobin",
            ) as second,
        ):
            await first.poll()
            with pytest.raises(Refused, match="partition_assignment_strategy=roundrobin"):
                await second.poll()

    asyncio.run(story())


@pytest.mark.parametrize("config", BOTH)
def test_a_poll_that_waits_ends_when_the_member_leaves(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            await first.poll()
            # The classic group waits for the first, which is not polled; the other just joins.
            polling = asyncio.create_task(second.poll())
            await asyncio.sleep(0)
            await second.leave()
            await asyncio.wait_for(polling, 30)
            assert second.owned == []
            await until(settled(4, first), first)

    asyncio.run(story())


@pytest.mark.parametrize("config", PROTOCOLS)
def test_an_exception_of_a_callback_comes_out_of_poll_and_the_member_stays(
    broker: EmbeddedBroker, made_topic: str, config: dict[str, Any]
) -> None:
    def refuse() -> None:
        first.notes.on_revoked = None
        raise RuntimeError("not now")

    async def story() -> None:
        async with (
            first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            await first.poll()
            first.notes.on_revoked = refuse
            with pytest.raises(RuntimeError, match="not now"):
                await until(lambda: False, first, second)
            await until(settled(4, first, second), first, second)

    first = Member(broker.bootstrap, made_topic, [made_topic], **config)
    asyncio.run(story())


class Hoarder:
    """An assignor of the user's: everything for one."""

    name = "hoarder"
    cooperative = False

    def __init__(self) -> None:
        self.problem: Exception | None = None

    def user_data(self, last: LastAssignment | None) -> bytes:
        return b"mine"

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        if self.problem is not None:
            raise self.problem
        assert all(each.user_data == b"mine" for each in members.values())
        everything = [
            TopicPartition(t, n) for t, racks in topics.items() for n in range(len(racks))
        ]
        return {max(members): everything}


def test_an_assignor_can_be_the_users_own(broker: EmbeddedBroker, made_topic: str) -> None:
    async def story() -> None:
        hoarder = Hoarder()
        config: dict[str, Any] = {"partition_assignment_strategy": [hoarder]}
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            await first.poll()
            await until(lambda: bool(second.notes.told), first, second)
            await until(lambda: {len(first.owned), len(second.owned)} == {0, 4}, first, second)
            await second.leave()
            hoarder.problem = RuntimeError("no idea")
            with pytest.raises(RuntimeError, match="no idea"):
                await until(lambda: False, first)
            hoarder.problem = None
            await until(settled(4, first), first)

    asyncio.run(story())
