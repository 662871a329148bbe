"""The cluster as a client sees it: first contact, fresh metadata, routing, retries."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.client.cluster import Cluster, Coordinator, CoordinatorKind, Where
from headwater.client.config import ClientConfig
from headwater.client.consumer import Consumer
from headwater.client.errors import (
    BrokersUnavailable,
    ClientClosed,
    ClientError,
    Disconnected,
    Forked,
    GroupForbidden,
    InvalidTopic,
    NotKafka,
    RequestTimedOut,
    TopicForbidden,
    UnknownTopic,
    WrongLoop,
)
from headwater.client.metadata import Broker, Change, ClusterMetadata
from headwater.errors import ErrorCode
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from headwater.protocol.messages.find_coordinator import (
    Coordinator as CoordinatorAnswer,
)
from headwater.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import FakeBroker, HangUp, one_topic, story

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 1}
LONG_MS = 20_000

DESCRIBE = DescribeClusterRequest(include_cluster_authorized_operations=False)
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@asynccontextmanager
async def cluster_of(bootstrap: str | list[str], **settings: Any) -> AsyncIterator[Cluster]:
    cluster = Cluster(ClientConfig.build(bootstrap, **(QUICK | settings)), Host.system())
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()


async def until(cluster: Cluster, condition: Callable[[ClusterMetadata], bool]) -> None:
    """Until what the client knows is so."""
    changed = asyncio.Event()
    end = cluster.on_change(lambda _: changed.set())
    while not condition(cluster.metadata):
        changed.clear()
        await changed.wait()
    end()


async def describe(cluster: Cluster, **options: Any) -> Any:
    options.setdefault("deadline", cluster.deadline(LONG_MS))
    return await cluster.ask(DESCRIBE, code_of=lambda answer: int(answer.error_code), **options)


def code(of: Any) -> int:
    return int(of.error_code)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


# First contact


@story
async def test_a_cluster_is_known_after_the_start(broker: EmbeddedBroker) -> None:
    async with cluster_of(broker.bootstrap) as cluster:
        assert str(cluster.metadata.brokers[1].address) == broker.bootstrap
        assert cluster.metadata.cluster_id
        assert cluster.metadata.controller_id == 1


@story
async def test_when_nobody_answers_every_address_is_named_with_its_reason() -> None:
    async with FakeBroker() as one, FakeBroker() as two:
        dead = [one.bootstrap, two.bootstrap, "no.such.name.invalid:1"]
    with pytest.raises(BrokersUnavailable) as caught:
        async with cluster_of(dead, start_timeout_ms=300):
            pass
    for address in dead:
        assert address in str(caught.value)
    assert "connection refused" in str(caught.value)


@story
async def test_a_silent_address_is_named_too() -> None:
    async with FakeBroker() as silent:
        silent.answers[ApiKey.API_VERSIONS] = lambda _: None
        with pytest.raises(BrokersUnavailable, match=f"{silent.bootstrap}: no answer"):
            async with cluster_of(silent.bootstrap, start_timeout_ms=50):
                pass


@story
async def test_a_port_that_is_not_kafkas_is_fatal_at_once() -> None:
    async with FakeBroker() as http:
        http.answers[ApiKey.API_VERSIONS] = lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"
        with pytest.raises(NotKafka, match=f"{http.bootstrap} speaks HTTP"):
            async with cluster_of(http.bootstrap):
                pass
        assert http.connections == 1


@story
async def test_one_address_that_works_is_enough() -> None:
    async with FakeBroker() as http, FakeBroker() as silent, FakeBroker() as good:
        http.answers[ApiKey.API_VERSIONS] = lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n"
        silent.answers[ApiKey.API_VERSIONS] = lambda _: None
        async with FakeBroker() as dead:
            pass
        addresses = [each.bootstrap for each in (http, silent, dead, good)]
        async with cluster_of(addresses, start_timeout_ms=LONG_MS) as cluster:
            assert cluster.metadata.brokers[1].address == good.address


@story
async def test_a_broker_that_starts_later_is_found() -> None:
    async with FakeBroker() as broker:
        pass
    starting = asyncio.ensure_future(cluster_of(broker.bootstrap).__aenter__())
    await asyncio.sleep(0)
    await broker.start()
    cluster = await starting
    assert 1 in cluster.metadata.brokers
    await cluster.close()
    await broker.stop()


@story
async def test_a_broker_that_knows_of_none_yet_is_asked_again() -> None:
    async with FakeBroker() as broker:
        broker.answers[ApiKey.METADATA] = lambda _: (
            broker.metadata() if broker.count(ApiKey.METADATA) > 2 else MetadataResponse()
        )
        async with cluster_of(broker.bootstrap) as cluster:
            assert 1 in cluster.metadata.brokers


@story
async def test_the_bootstrap_connection_is_the_brokers_own() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        connection = await cluster.connection(1)
        assert connection.node_id == 1
        assert cluster.ready(1) is connection
        assert broker.connections == 1


# Outages


@story
async def test_an_outage_is_logged_once_and_so_is_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        for _ in range(2):
            caplog.clear()
            # A request that is cut off is an everyday failure; the outage is found out after it.
            broker.answers[ApiKey.METADATA] = lambda _: None
            before = broker.count(ApiKey.METADATA)
            cluster.need_update()
            while broker.count(ApiKey.METADATA) == before:
                await broker.changed()
            await broker.stop()
            for _ in range(5):
                await cluster.updated(cluster.deadline(LONG_MS))
            (lost,) = caplog.messages
            assert "no broker can be reached" in lost
            broker.answers[ApiKey.METADATA] = lambda _: broker.metadata()
            await broker.start()
            while len(caplog.messages) < 2:
                await cluster.updated(cluster.deadline(LONG_MS))
            assert "the cluster is reachable again after" in caplog.messages[1]
            for _ in range(3):
                cluster.need_update()
                await cluster.updated(cluster.deadline(LONG_MS))
            assert len(caplog.messages) == 2


# Metadata


@story
async def test_a_missing_topic_is_one_question_however_many_ask() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.topics = [one_topic("a")]
        before = broker.count(ApiKey.METADATA)
        deadline = cluster.deadline(LONG_MS)
        found = await asyncio.gather(
            *(cluster.topics(["a"], deadline=deadline) for _ in range(100))
        )
        assert all(each["a"].partitions[0].leader == 1 for each in found)
        assert broker.count(ApiKey.METADATA) == before + 1
        await cluster.topics(["a"], deadline=deadline)
        assert broker.count(ApiKey.METADATA) == before + 1


@story
async def test_a_topic_may_be_created_by_asking(broker: EmbeddedBroker) -> None:
    async with cluster_of(broker.bootstrap) as cluster:
        deadline = cluster.deadline(LONG_MS)
        found = await cluster.topics(["made"], deadline=deadline, create=True)
        assert found["made"].partitions[0].leader == 1
        with pytest.raises(UnknownTopic, match="not-made"):
            await cluster.topics(["not-made"], deadline=cluster.deadline(50))


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, TopicForbidden),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, InvalidTopic),
    ],
)
def test_a_topic_that_is_refused_is_an_error_at_once(
    refusal: ErrorCode, error: type[ClientError]
) -> None:
    @story
    async def run() -> None:
        async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
            broker.topics = [MetadataResponseTopic(name="a", error_code=refusal)]
            with pytest.raises(error, match="topic a"):
                await cluster.topics(["a"], deadline=cluster.deadline(LONG_MS))

    run()


@story
async def test_a_topic_whose_leader_is_being_elected_is_waited_for() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        electing = MetadataResponseTopic(name="a", error_code=ErrorCode.LEADER_NOT_AVAILABLE)

        def answer(_: Any) -> MetadataResponse:
            broker.topics = [one_topic("a") if broker.count(ApiKey.METADATA) > 3 else electing]
            return broker.metadata()

        broker.answers[ApiKey.METADATA] = answer
        found = await cluster.topics(["a"], deadline=cluster.deadline(LONG_MS), create=True)
        assert found["a"].partitions


@story
async def test_what_is_followed_is_asked_for_again_by_age() -> None:
    settings = {"metadata_max_age_ms": 20}
    async with FakeBroker() as broker, cluster_of(broker.bootstrap, **settings) as cluster:
        cluster.follow("a")
        changes: list[Change] = []
        cluster.on_change(changes.append)
        broker.topics = [one_topic("a", epoch=1)]
        await until(cluster, lambda metadata: "a" in metadata.topics)
        broker.topics = [one_topic("a", leader=2, epoch=2)]
        tp = TopicPartition("a", 0)
        await until(cluster, lambda metadata: metadata.leader(tp) == 2)
        assert [change.topics for change in changes] == [("a",), ("a",)]


@story
async def test_who_listens_can_end_it() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        changes: list[Change] = []
        end = cluster.on_change(changes.append)
        end()
        broker.topics = [one_topic("a")]
        await cluster.topics(["a"], deadline=cluster.deadline(LONG_MS))
        assert changes == []


@story
async def test_many_wishes_for_an_update_are_one_question() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        before = broker.count(ApiKey.METADATA)
        for _ in range(1_000):
            cluster.need_update()
        await cluster.updated(cluster.deadline(LONG_MS))
        assert broker.count(ApiKey.METADATA) == before + 1


@story
async def test_a_partition_without_a_leader_is_looked_at_until_it_has_one() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.topics = [one_topic("a", leader=-1)]
        cluster.follow("a")
        await cluster.topics(["a"], deadline=cluster.deadline(LONG_MS))
        seen = broker.count(ApiKey.METADATA)
        await broker.until(lambda: broker.count(ApiKey.METADATA) > seen + 2)
        broker.topics = [one_topic("a", epoch=1)]
        await until(cluster, lambda metadata: metadata.leader(TopicPartition("a", 0)) == 1)


@story
async def test_all_topics_can_be_followed(broker: EmbeddedBroker) -> None:
    async with cluster_of(broker.bootstrap) as cluster, cluster_of(broker.bootstrap) as another:
        await another.topics(["seen"], deadline=another.deadline(LONG_MS), create=True)
        cluster.follow_all()
        cluster.need_update()
        await cluster.updated(cluster.deadline(LONG_MS))
        assert "seen" in cluster.metadata.topics


@story
async def test_a_hint_about_a_leader_is_followed_before_metadata_comes() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as two, cluster_of(one.bootstrap) as cluster:
        one.topics = [one_topic("a", epoch=3)]
        tp = TopicPartition("a", 0)
        await cluster.topics(["a"], deadline=cluster.deadline(LONG_MS))
        assert not cluster.learn_leader(tp, 2, 4)  # nobody said where node 2 is
        assert cluster.learn_leader(tp, 2, 4, Broker(2, two.address))
        assert not cluster.learn_leader(tp, 2, 4, Broker(2, two.address))
        leader = cluster.metadata.leader(tp)
        assert leader == 2
        assert (await cluster.connection(leader)).address == two.address


# Connections


@story
async def test_all_who_need_a_node_share_one_connection() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as two:
        one.neighbours = [two]
        async with cluster_of(one.bootstrap) as cluster:
            found = await asyncio.gather(*(cluster.connection(2) for _ in range(20)))
            assert len(set(map(id, found))) == 1
            assert two.connections == 1


@story
async def test_a_node_that_is_not_there_is_an_error_after_one_try() -> None:
    async with FakeBroker(1) as one:
        async with FakeBroker(2) as two:
            one.neighbours = [two]
        async with cluster_of(one.bootstrap) as cluster:
            with pytest.raises(Disconnected, match=r"node 2 .*refused"):
                await cluster.connection(2)
            with pytest.raises(BrokersUnavailable, match="node 3"):
                await cluster.connection(3)
            assert cluster.ready(2) is None


@story
async def test_the_least_loaded_broker_is_asked() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as two:
        one.neighbours = [two]
        async with cluster_of(one.bootstrap) as cluster:
            busy, idle = await cluster.connection(1), await cluster.connection(2)
            one.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: None
            waiting = asyncio.ensure_future(busy.ask(DESCRIBE))
            await one.until(lambda: one.count(ApiKey.DESCRIBE_CLUSTER) == 1)
            assert await cluster.any() is idle
            waiting.cancel()


@story
async def test_an_idle_connection_is_closed_and_opened_again() -> None:
    settings = {"connections_max_idle_ms": 50}
    async with FakeBroker() as broker, cluster_of(broker.bootstrap, **settings) as cluster:
        await broker.until(lambda: broker.open == 0)
        assert cluster.ready(1) is None
        assert (await cluster.connection(1)).is_open
        assert broker.connections == 2


@story
async def test_a_throttled_connection_is_not_ready() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
            throttle_time_ms=LONG_MS
        )
        await describe(cluster)
        assert cluster.ready(1) is None
        with pytest.raises(RequestTimedOut, match="DescribeCluster"):
            await describe(cluster, to=1, deadline=cluster.deadline(50))
        assert broker.count(ApiKey.DESCRIBE_CLUSTER) == 1


@story
async def test_a_throttle_ends() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
            throttle_time_ms=20
        )
        await describe(cluster, to=1)
        await describe(cluster, to=1)
        assert broker.count(ApiKey.DESCRIBE_CLUSTER) == 2


@story
async def test_a_restarted_broker_is_found_again(make_broker: Any) -> None:
    broker = make_broker()
    async with cluster_of(broker.bootstrap) as cluster:
        await describe(cluster, to=1)
        await asyncio.to_thread(broker.restart)
        await describe(cluster, to=1)


# Going back to the bootstrap addresses


@story
async def test_when_all_brokers_have_moved_the_bootstrap_addresses_know_where() -> None:
    async with FakeBroker(9) as front, FakeBroker(1) as old, FakeBroker(1) as new:
        front.answers[ApiKey.METADATA] = lambda _: where.metadata()
        where = old
        async with cluster_of(front.bootstrap) as cluster:
            await cluster.connection(1)
            await front.until(lambda: front.open == 0)
            where = new
            await old.stop()
            new.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse()
            await describe(cluster, to=1)
            assert cluster.metadata.brokers[1].address == new.address
        await old.start()


@story
async def test_without_recovery_nobody_goes_back() -> None:
    async with FakeBroker(9) as front, FakeBroker(1) as old:
        front.answers[ApiKey.METADATA] = lambda _: old.metadata()
        settings = {"metadata_recovery_strategy": "none"}
        async with cluster_of(front.bootstrap, **settings) as cluster:
            await cluster.connection(1)
            await front.until(lambda: front.open == 0)
            await old.stop()
            with pytest.raises(ClientError):
                await describe(cluster, deadline=cluster.deadline(100))
            assert front.connections == 1
        await old.start()


@story
async def test_a_broker_may_send_us_back_to_the_bootstrap() -> None:
    async with FakeBroker(9) as front, FakeBroker(1) as old, FakeBroker(1) as new:
        front.answers[ApiKey.METADATA] = lambda _: where.metadata()
        where = old
        async with cluster_of(front.bootstrap) as cluster:
            await cluster.connection(1)
            await front.until(lambda: front.open == 0)
            where = new
            moved = Broker(1, new.address)
            old.answers[ApiKey.METADATA] = lambda _: MetadataResponse(
                error_code=ErrorCode.REBOOTSTRAP_REQUIRED
            )
            cluster.need_update()
            await until(cluster, lambda metadata: metadata.brokers.get(1) == moved)


@story
async def test_brokers_that_cannot_help_for_long_are_left() -> None:
    async with FakeBroker(9) as front, FakeBroker(1) as old, FakeBroker(1) as new:
        front.answers[ApiKey.METADATA] = lambda _: where.metadata()
        where = old
        settings = {"metadata_recovery_rebootstrap_trigger_ms": 20}
        async with cluster_of(front.bootstrap, **settings) as cluster:
            await cluster.connection(1)
            await front.until(lambda: front.open == 0)
            where = new
            moved = Broker(1, new.address)
            old.answers[ApiKey.METADATA] = lambda _: MetadataResponse()
            cluster.need_update()
            await until(cluster, lambda metadata: metadata.brokers.get(1) == moved)


# Coordinators


def coordinated_by(broker: FakeBroker, *, refusal: int = 0) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        coordinators=[
            CoordinatorAnswer(
                key="g",
                node_id=broker.node_id,
                host=broker.address.host,
                port=broker.address.port,
                error_code=refusal,
            )
        ]
    )


@story
async def test_a_coordinator_is_looked_for_once_and_has_its_own_connection() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: coordinated_by(broker)
        connection = await cluster.coordinator("g")
        assert await cluster.coordinator("g") is connection
        assert connection is not await cluster.connection(1)
        assert broker.count(ApiKey.FIND_COORDINATOR) == 1
        cluster.coordinator_lost("g")
        assert await cluster.coordinator("g") is connection
        assert broker.count(ApiKey.FIND_COORDINATOR) == 2


@story
async def test_an_old_broker_is_asked_for_one_coordinator() -> None:
    async with FakeBroker() as broker:
        versions = broker.versions()
        for each in versions.api_keys:
            if each.api_key == ApiKey.FIND_COORDINATOR:
                each.max_version = 2
        broker.answers[ApiKey.API_VERSIONS] = lambda _: versions
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(
            node_id=1, host=broker.address.host, port=broker.address.port
        )
        async with cluster_of(broker.bootstrap) as cluster:
            found = await cluster.coordinator("t", CoordinatorKind.TRANSACTION)
            assert found.node_id == 1
            asked = [each for each in broker.asked if isinstance(each, FindCoordinatorRequest)]
            assert [(each.key, each.key_type) for each in asked] == [("t", 1)]


@story
async def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        soon = ErrorCode.COORDINATOR_NOT_AVAILABLE
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: coordinated_by(
            broker, refusal=0 if broker.count(ApiKey.FIND_COORDINATOR) > 3 else soon
        )
        assert await cluster.coordinator("g")


@story
async def test_a_group_that_is_forbidden_is_an_error_at_once() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: coordinated_by(
            broker, refusal=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
        with pytest.raises(GroupForbidden, match="group g"):
            await cluster.coordinator("g", deadline=cluster.deadline(LONG_MS))


@story
async def test_a_request_follows_a_coordinator_that_moves() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as two:
        one.neighbours = [two]
        where = one
        for each in (one, two):
            each.answers[ApiKey.FIND_COORDINATOR] = lambda _: coordinated_by(where)

        def moved(_: Any) -> HeartbeatResponse:
            nonlocal where
            where = two
            return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

        one.answers[ApiKey.HEARTBEAT] = moved
        two.answers[ApiKey.HEARTBEAT] = lambda _: HeartbeatResponse()
        async with cluster_of(one.bootstrap) as cluster:
            answer = await cluster.ask(
                HEARTBEAT, to=Coordinator("g"), code_of=code, deadline=cluster.deadline(LONG_MS)
            )
            assert answer.error_code == 0
            assert two.count(ApiKey.HEARTBEAT) == 1


@story
async def test_a_request_follows_when_the_coordinator_dies() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as two:
        one.neighbours = [two]
        where = two

        def die(_: Any) -> None:
            nonlocal where
            where = one
            raise HangUp

        for each in (one, two):
            each.answers[ApiKey.FIND_COORDINATOR] = lambda _: coordinated_by(where)
        two.answers[ApiKey.HEARTBEAT] = die
        one.answers[ApiKey.HEARTBEAT] = lambda _: HeartbeatResponse()
        async with cluster_of(one.bootstrap) as cluster:
            await cluster.ask(
                HEARTBEAT, to=Coordinator("g"), code_of=code, deadline=cluster.deadline(LONG_MS)
            )
            assert one.count(ApiKey.HEARTBEAT) == 1


# Asking again


@story
async def test_the_controller_is_asked_wherever_it_is() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as two:
        one.neighbours, two.neighbours = [two], [one]

        def moved(_: Any) -> DescribeClusterResponse:
            one.controller_id = two.controller_id = 2
            return DescribeClusterResponse(error_code=ErrorCode.NOT_CONTROLLER)

        one.answers[ApiKey.DESCRIBE_CLUSTER] = moved
        two.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse()
        async with cluster_of(one.bootstrap) as cluster:
            assert code(await describe(cluster, to=Where.CONTROLLER)) == 0
            assert two.count(ApiKey.DESCRIBE_CLUSTER) == 1


@story
async def test_a_cut_connection_is_asked_again() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:

        def answer(_: Any) -> DescribeClusterResponse:
            if broker.count(ApiKey.DESCRIBE_CLUSTER) < 4:
                raise HangUp
            return DescribeClusterResponse()

        broker.answers[ApiKey.DESCRIBE_CLUSTER] = answer
        assert code(await describe(cluster)) == 0


@story
async def test_at_the_deadline_the_last_failure_comes_out() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:

        def answer(_: Any) -> None:
            raise HangUp

        broker.answers[ApiKey.DESCRIBE_CLUSTER] = answer
        with pytest.raises(ClientError, match=r"closed|no answer") as caught:
            await describe(cluster, deadline=cluster.deadline(100))
        assert isinstance(caught.value, Disconnected | RequestTimedOut | BrokersUnavailable)


@story
async def test_at_the_deadline_the_last_answer_comes_out_with_its_code() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
            error_code=ErrorCode.NOT_CONTROLLER
        )
        answer = await describe(cluster, deadline=cluster.deadline(100))
        assert answer.error_code == ErrorCode.NOT_CONTROLLER
        assert broker.count(ApiKey.DESCRIBE_CLUSTER) > 1


@story
async def test_another_code_is_the_callers_business() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
            error_code=ErrorCode.INVALID_REQUEST
        )
        assert code(await describe(cluster)) == ErrorCode.INVALID_REQUEST
        assert broker.count(ApiKey.DESCRIBE_CLUSTER) == 1


@story
async def test_a_caller_who_gives_up_leaves_the_connection_to_others() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        late = asyncio.Event()

        async def answer(_: Any) -> DescribeClusterResponse:
            await late.wait()
            return DescribeClusterResponse()

        broker.answers[ApiKey.DESCRIBE_CLUSTER] = answer
        with pytest.raises(RequestTimedOut, match="DescribeCluster"):
            await describe(cluster, to=1, deadline=cluster.deadline(30))
        connection = cluster.ready(1)
        assert connection is not None
        late.set()
        await describe(cluster, to=1)
        assert broker.connections == 1


# Ending, and using it where it may not be used


@story
async def test_a_closed_client_says_so(broker: EmbeddedBroker) -> None:
    async with cluster_of(broker.bootstrap) as cluster:
        pass
    with pytest.raises(ClientClosed):
        cluster.check()
    with pytest.raises(ClientClosed):
        await describe(cluster, deadline=0)
    with pytest.raises(ClientClosed):
        await cluster.connection(1)
    await cluster.close()


@story
async def test_a_client_that_was_never_started_says_so() -> None:
    cluster = Cluster(ClientConfig.build("localhost:1"), Host.system())
    with pytest.raises(ClientClosed, match="not started"):
        cluster.check()
    await cluster.close()


@story
async def test_closing_ends_what_waits() -> None:
    async with FakeBroker() as broker, cluster_of(broker.bootstrap) as cluster:
        broker.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: None
        asking = asyncio.ensure_future(describe(cluster))
        missing = asyncio.ensure_future(
            cluster.topics(["none"], deadline=cluster.deadline(LONG_MS))
        )
        await broker.until(lambda: broker.count(ApiKey.DESCRIBE_CLUSTER) == 1)
        await cluster.close()
        with pytest.raises(ClientClosed):
            await asking
        with pytest.raises(ClientClosed):
            await missing
        await broker.until(lambda: broker.open == 0)


@story
async def test_closing_while_connecting_waits_for_nobody() -> None:
    async with FakeBroker(1) as one, FakeBroker(2) as silent:
        one.neighbours = [silent]
        silent.answers[ApiKey.API_VERSIONS] = lambda _: None
        async with cluster_of(one.bootstrap) as cluster:
            connecting = asyncio.ensure_future(cluster.connection(2))
            await silent.until(lambda: silent.count(ApiKey.API_VERSIONS) == 1)
            await cluster.close()
            with pytest.raises(ClientClosed):
                await connecting


def test_a_client_belongs_to_the_loop_it_was_started_on(broker: EmbeddedBroker) -> None:
    cluster = Cluster(ClientConfig.build(broker.bootstrap), Host.system())
    loop = asyncio.new_event_loop()
    loop.run_until_complete(cluster.start())

    async def elsewhere() -> None:
        with pytest.raises(WrongLoop, match="another event loop"):
            cluster.check()

    asyncio.run(elsewhere())
    with pytest.raises(WrongLoop, match=r"headwater\.blocking"):
        cluster.check()
    loop.run_until_complete(cluster.close())
    loop.close()


@story
async def test_a_fork_must_make_its_own_client(broker: EmbeddedBroker) -> None:
    async with cluster_of(broker.bootstrap) as cluster:
        child = os.fork()
        if child == 0:
            try:
                cluster.check()
            except Forked:
                os._exit(0)
            os._exit(1)
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        cluster.check()


@story
async def test_a_broker_that_stalls_does_not_make_a_topic_unknown() -> None:
    async with FakeBroker() as broker, Consumer(broker.bootstrap) as consumer:
        broker.answers[ApiKey.METADATA] = lambda _: None
        with pytest.raises(RequestTimedOut, match="topic orders: no broker answered"):
            await consumer.partitions_for("orders", timeout_ms=100)
