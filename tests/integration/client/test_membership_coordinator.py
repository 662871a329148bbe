"""Members whose coordinator is old, goes away, comes back, or does not know their protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from harness.wire import Wire
from headwater.client.connection import Connection
from headwater.client.errors import UnsupportedVersion
from headwater.net.peer import PeerConnection
from headwater.protocol.apis import ApiKey
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker
from tests.support.members import QUICK_BROKER, Member, quick_broker, settled, until

CONSUMER = {"group_protocol": "consumer"}
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}
PROTOCOLS = [
    pytest.param({}, id="range"),
    pytest.param(COOPERATIVE, id="cooperative"),
    pytest.param(CONSUMER, id="consumer"),
]
# The newest versions that a broker of that age serves.
KAFKA_2_1 = {
    ApiKey.JOIN_GROUP: 3,
    ApiKey.SYNC_GROUP: 2,
    ApiKey.HEARTBEAT: 2,
    ApiKey.LEAVE_GROUP: 2,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.METADATA: 7,
}
KAFKA_2_4 = KAFKA_2_1 | {
    ApiKey.JOIN_GROUP: 5,
    ApiKey.SYNC_GROUP: 3,
    ApiKey.HEARTBEAT: 3,
    ApiKey.LEAVE_GROUP: 4,
    ApiKey.FIND_COORDINATOR: 3,
    ApiKey.METADATA: 9,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with quick_broker() as made:
        yield made


@pytest.fixture
def made_topic(broker: EmbeddedBroker, topic: str) -> str:
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 4)
    return topic


def speak_at_most(monkeypatch: pytest.MonkeyPatch, newest: dict[ApiKey, int]) -> None:
    """As if the broker were older: of these APIs, no later versions are used."""
    plain = PeerConnection.version

    def older(self: Connection, api: int, *, at_most: int | None = None) -> int | None:
        bound = newest.get(ApiKey(api), at_most)
        if bound is not None and bound < 0:
            return None
        if bound is not None and at_most is not None:
            bound = min(bound, at_most)
        return plain(self, api, at_most=bound)

    monkeypatch.setattr(PeerConnection, "version", older)


@pytest.mark.parametrize("newest", [KAFKA_2_1, KAFKA_2_4], ids=["kafka-2.1", "kafka-2.4"])
@pytest.mark.parametrize("config", PROTOCOLS[:2])
def test_groups_work_with_old_brokers(
    broker: EmbeddedBroker,
    made_topic: str,
    monkeypatch: pytest.MonkeyPatch,
    newest: dict[ApiKey, int],
    config: dict[str, Any],
) -> None:
    speak_at_most(monkeypatch, newest)

    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **config) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **config) as second,
        ):
            await until(settled(4, first, second), first, second)
            await second.leave()
            await until(settled(4, first), first)

    asyncio.run(story())


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_group_works(
    broker: EmbeddedBroker, made_topic: str, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    bounds = {
        ApiKey.JOIN_GROUP: version,
        ApiKey.SYNC_GROUP: min(version, 5),
        ApiKey.HEARTBEAT: min(version, 4),
        ApiKey.LEAVE_GROUP: min(version, 5),
    }
    speak_at_most(monkeypatch, bounds)

    async def story() -> None:
        async with Member(broker.bootstrap, made_topic, [made_topic]) as member:
            await member.poll()
            assert len(member.owned) == 4
            await member.leave()

    asyncio.run(story())


def test_a_static_member_needs_a_broker_that_supports_it(
    broker: EmbeddedBroker, made_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak_at_most(monkeypatch, KAFKA_2_1)

    async def story() -> None:
        async with Member(
            broker.bootstrap, made_topic, [made_topic], group_instance_id="i"
        ) as member:
            with pytest.raises(UnsupportedVersion, match=r"group_instance_id='i' needs Kafka 2\.3"):
                await member.poll()

    asyncio.run(story())


def test_the_first_version_of_the_consumer_protocol_works(
    broker: EmbeddedBroker, made_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak_at_most(monkeypatch, {ApiKey.CONSUMER_GROUP_HEARTBEAT: 0})

    async def story() -> None:
        async with (
            Member(broker.bootstrap, made_topic, [made_topic], **CONSUMER) as first,
            Member(broker.bootstrap, made_topic, [made_topic], **CONSUMER) as second,
        ):
            await until(settled(4, first, second), first, second)
            assert first.membership.identity.member_id != second.membership.identity.member_id
            second.wanted.topics, second.wanted.regex = frozenset(), "t.*"
            second.membership.subscription_changed()
            with pytest.raises(UnsupportedVersion, match=r"needs Kafka 4\.0"):
                await until(lambda: False, second)

    asyncio.run(story())


def test_a_broker_without_the_protocol_is_named(
    broker: EmbeddedBroker, made_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    speak_at_most(monkeypatch, {ApiKey.CONSUMER_GROUP_HEARTBEAT: -1})

    async def story() -> None:
        async with Member(broker.bootstrap, made_topic, [made_topic], **CONSUMER) as member:
            for _ in range(2):
                with pytest.raises(UnsupportedVersion, match="use group_protocol='classic'"):
                    await member.poll()

    asyncio.run(story())


def test_a_broker_with_the_protocol_switched_off_is_named(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker({"group.coordinator.rebalance.protocols": "classic"})

    async def story() -> None:
        async with Member(broker.bootstrap, topic, [topic], **CONSUMER) as member:
            with pytest.raises(UnsupportedVersion, match="use group_protocol='classic'"):
                await member.poll()

    asyncio.run(story())


@pytest.mark.parametrize("config", PROTOCOLS)
def test_a_coordinator_that_restarts_finds_its_members_as_they_were(
    make_broker: MakeBroker, topic: str, config: dict[str, Any]
) -> None:
    settings = QUICK_BROKER | {"group.consumer.session.timeout.ms": "20000"}
    broker = make_broker(settings)
    is_eager = not config
    if "group_protocol" not in config:
        config = config | {"session_timeout_ms": 20_000}

    async def story() -> None:
        async with (
            Member(broker.bootstrap, topic, [topic], **config) as first,
            Member(broker.bootstrap, topic, [topic], **config) as second,
        ):
            with Wire(broker.bootstrap) as wire:
                wire.create_topic(topic, 4)
            await until(settled(4, first, second), first, second)
            before = first.owned, second.owned
            told = len(first.notes.told), len(second.notes.told)
            await asyncio.to_thread(broker.restart)
            # Another who joins is heard of only by those who are still known.
            async with Member(broker.bootstrap, topic, [topic], **config) as third:
                await until(settled(4, first, second, third), first, second, third)
            for member, mine, count in zip((first, second), before, told, strict=True):
                assert "lost" not in [what for what, _ in member.notes.told[count:]]
                assert is_eager or set(mine) >= set(member.owned)

    asyncio.run(story())


@pytest.mark.parametrize("config", PROTOCOLS)
def test_nothing_hangs_when_the_broker_is_gone(
    make_broker: MakeBroker, topic: str, config: dict[str, Any]
) -> None:
    broker = make_broker(QUICK_BROKER)

    async def story() -> None:
        async with Member(broker.bootstrap, topic, [topic], **config) as member:
            with Wire(broker.bootstrap) as wire:
                wire.create_topic(topic, 4)
            await until(settled(4, member), member)
            await asyncio.to_thread(broker.stop)
            await member.poll(100)
            assert len(member.owned) == 4, "nobody has said that they are another's"
            await asyncio.wait_for(
                member.membership.leave(member.cluster.deadline(200), reason="closed"), 30
            )
            assert member.owned == []
            await asyncio.wait_for(member.poll(200), 30)

    asyncio.run(story())
