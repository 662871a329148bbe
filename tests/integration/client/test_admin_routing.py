"""The nodes that `Admin` asks, and its retries: leaders, coordinators and controllers that move,
nodes that are down, brokers that are old."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from headwater.client.admin import (
    Admin,
    CommittedOffset,
    NewTopic,
    OffsetFound,
    OffsetSpec,
    TopicCreated,
    or_raise,
    topic_config,
)
from headwater.client.errors import (
    ClientError,
    CoordinatorUnavailable,
    GroupNotFound,
    RetriableError,
    UnknownTopic,
    UnsupportedVersion,
)
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsResponse
from headwater.protocol.messages.create_topics import (
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from headwater.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from headwater.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from tests.support.fake_broker import FakeBroker, one_topic, story

QUICK = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 1}
ORDERS, CLICKS = TopicPartition("orders", 0), TopicPartition("clicks", 0)


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[FakeBroker, FakeBroker, Admin]]:
    """Node 1 leads orders and node 2 leads clicks; the client knows node 1."""
    async with FakeBroker(1) as first, FakeBroker(2) as second:
        first.neighbours, second.neighbours = [second], [first]
        second.controller_id = 1
        lead(first, second, orders=1, clicks=2)
        async with Admin(first.bootstrap, **QUICK) as admin:  # type: ignore[arg-type]
            yield first, second, admin


def lead(*brokers: FakeBroker, epoch: int = 0, **leaders: int) -> None:
    for broker in brokers:
        broker.topics = [
            one_topic(name, leader=leader, epoch=epoch, topic_id=name.encode().rjust(16))
            for name, leader in leaders.items()
        ]


def offsets(offset: int, codes: dict[str, int] | None = None) -> Callable[[Any], Any]:
    """Answers ListOffsets with one offset, and with a code for some topics."""

    def answer(request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index,
                            offset=offset,
                            error_code=(codes or {}).get(topic.name, 0),
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return answer


def topics_asked(broker: FakeBroker) -> list[list[str]]:
    return [
        [topic.name for topic in request.topics]
        for request in broker.asked
        if isinstance(request, ListOffsetsRequest)
    ]


@story
async def test_each_leader_is_asked_for_what_it_leads() -> None:
    async with two_brokers() as (first, second, admin):
        first.answers[ApiKey.LIST_OFFSETS] = offsets(11)
        second.answers[ApiKey.LIST_OFFSETS] = offsets(22)
        found = or_raise(await admin.list_offsets(dict.fromkeys((ORDERS, CLICKS), -1)))
        assert (found[ORDERS].offset, found[CLICKS].offset) == (11, 22)
        assert (topics_asked(first), topics_asked(second)) == ([["orders"]], [["clicks"]])


@story
async def test_a_leader_that_has_moved_is_followed() -> None:
    async with two_brokers() as (first, second, admin):
        lead(first, second, orders=1, clicks=1)

        def refuse(request: ListOffsetsRequest) -> Any:
            lead(first, second, epoch=1, orders=1, clicks=2)
            return offsets(11, {"clicks": ErrorCode.NOT_LEADER_OR_FOLLOWER})(request)

        first.answers[ApiKey.LIST_OFFSETS] = refuse
        second.answers[ApiKey.LIST_OFFSETS] = offsets(22)
        found = or_raise(await admin.list_offsets(dict.fromkeys((ORDERS, CLICKS), -1)))
        assert (found[ORDERS].offset, found[CLICKS].offset) == (11, 22)
        # What was answered is not asked for again.
        assert topics_asked(first) == [["orders", "clicks"]]


@story
async def test_a_leader_that_is_down_costs_only_its_own_partitions() -> None:
    async with two_brokers() as (first, second, admin):
        first.answers[ApiKey.LIST_OFFSETS] = offsets(11)
        await second.stop()
        found = await admin.list_offsets(dict.fromkeys((ORDERS, CLICKS), -1), timeout_ms=1000)
        assert found[ORDERS] == OffsetFound(11)
        assert isinstance(found[CLICKS], RetriableError)
        assert str(second.address.port) in str(found[CLICKS])
        await second.start()


@story
async def test_a_partition_without_a_leader_is_waited_for() -> None:
    async with two_brokers() as (first, second, admin):
        lead(first, second, orders=-1)
        nobody = await admin.list_offsets({ORDERS: OffsetSpec.LATEST}, timeout_ms=50)
        refused = nobody[ORDERS]
        assert isinstance(refused, ClientError)
        assert refused.code == ErrorCode.LEADER_NOT_AVAILABLE
        first.answers[ApiKey.LIST_OFFSETS] = offsets(5)
        asked = first.count(ApiKey.METADATA)

        def elect(_: Any) -> Any:
            if first.count(ApiKey.METADATA) > asked + 3:
                lead(first, second, epoch=1, orders=1)
            return first.metadata()

        first.answers[ApiKey.METADATA] = second.answers[ApiKey.METADATA] = elect
        found = or_raise(await admin.list_offsets({ORDERS: OffsetSpec.LATEST}))
        assert found[ORDERS].offset == 5


@story
async def test_a_name_that_nobody_knows_is_not_waited_for_to_the_end() -> None:
    async with two_brokers() as (_, _, admin):
        # The call has a minute, this test has half of one.
        unknown = TopicPartition("mistyped", 0)
        assert isinstance((await admin.list_offsets({unknown: -1}))[unknown], UnknownTopic)


# Coordinators


def coordinated(*brokers: FakeBroker, by: FakeBroker) -> None:
    def answer(request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=by.node_id, host=by.address.host, port=by.address.port)
                for key in request.coordinator_keys
            ]
        )

    for broker in brokers:
        broker.answers[ApiKey.FIND_COORDINATOR] = answer


def deleted(codes: dict[str, int] | None = None) -> Callable[[Any], Any]:
    def answer(request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[
                DeletableGroupResult(group_id=each, error_code=(codes or {}).get(each, 0))
                for each in request.groups_names
            ]
        )

    return answer


@story
async def test_groups_of_one_coordinator_are_one_request() -> None:
    async with two_brokers() as (first, second, admin):
        coordinated(first, second, by=second)
        second.answers[ApiKey.DELETE_GROUPS] = deleted({"b": ErrorCode.GROUP_ID_NOT_FOUND})
        gone = await admin.delete_groups(["a", "b", "c"])
        assert (gone["a"], gone["c"]) == (None, None)
        assert isinstance(gone["b"], GroupNotFound)
        assert second.count(ApiKey.DELETE_GROUPS) == 1


@story
async def test_a_coordinator_that_has_moved_is_looked_for_again() -> None:
    async with two_brokers() as (first, second, admin):
        coordinated(first, second, by=first)

        def refuse(request: DeleteGroupsRequest) -> Any:
            coordinated(first, second, by=second)
            return deleted({"b": ErrorCode.NOT_COORDINATOR})(request)

        first.answers[ApiKey.DELETE_GROUPS] = refuse
        second.answers[ApiKey.DELETE_GROUPS] = deleted()
        assert await admin.delete_groups(["a", "b"]) == {"a": None, "b": None}
        (again,) = (each for each in second.asked if isinstance(each, DeleteGroupsRequest))
        assert again.groups_names == ["b"]


@story
async def test_a_coordinator_that_never_loads_is_said_at_the_deadline() -> None:
    async with two_brokers() as (first, second, admin):
        coordinated(first, second, by=first)
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        first.answers[ApiKey.DELETE_GROUPS] = deleted({"a": code})
        gone = await admin.delete_groups(["a"], timeout_ms=1000)
        assert isinstance(gone["a"], CoordinatorUnavailable)
        assert first.count(ApiKey.DELETE_GROUPS) > 1


@story
async def test_every_broker_is_asked_for_its_groups_and_one_that_loads_again() -> None:
    async with two_brokers() as (first, second, admin):
        codes = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NONE]

        def listed(name: str) -> ListGroupsResponse:
            return ListGroupsResponse(groups=[ListedGroup(group_id=name, group_state="Empty")])

        first.answers[ApiKey.LIST_GROUPS] = lambda _: listed("a")
        second.answers[ApiKey.LIST_GROUPS] = lambda _: (
            ListGroupsResponse(error_code=code) if (code := codes.pop(0)) else listed("b")
        )
        assert [each.id for each in await admin.list_groups()] == ["a", "b"]


@story
async def test_a_broker_that_goes_while_it_is_asked_is_not_waited_for() -> None:
    """The groups that it had are with the other coordinators then, which are asked once more."""
    async with two_brokers() as (first, second, admin):
        first.answers[ApiKey.LIST_GROUPS] = lambda _: ListGroupsResponse(
            groups=[ListedGroup(group_id=name) for name in ("a", "b")[: 1 + (not is_there())]]
        )

        def is_there() -> bool:
            return second in first.neighbours

        def leaves(_: object) -> ListGroupsResponse:
            first.neighbours = []
            return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)

        second.answers[ApiKey.LIST_GROUPS] = leaves
        listed = await admin.list_groups(timeout_ms=30_000)
        assert [each.id for each in listed] == ["a", "b"]
        assert second.count(ApiKey.LIST_GROUPS) == 1


# The controller, and brokers themselves


def created(codes: dict[str, list[int]]) -> Callable[[Any], Any]:
    """Answers CreateTopics, each topic with its next code."""

    def answer(request: CreateTopicsRequest) -> CreateTopicsResponse:
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=each.name, error_code=codes[each.name].pop(0), num_partitions=1
                )
                for each in request.topics
            ]
        )

    return answer


@story
async def test_a_controller_that_has_moved_is_followed() -> None:
    async with two_brokers() as (first, second, admin):

        def refuse(request: CreateTopicsRequest) -> Any:
            first.controller_id = second.controller_id = 2
            return created({"orders": [ErrorCode.NOT_CONTROLLER]})(request)

        first.answers[ApiKey.CREATE_TOPICS] = refuse
        second.answers[ApiKey.CREATE_TOPICS] = created({"orders": [0]})
        made = await admin.create_topic("orders")
        assert made.partitions == 1
        assert second.count(ApiKey.CREATE_TOPICS) == 1


@story
async def test_only_topics_that_a_quota_has_held_up_are_asked_for_again() -> None:
    async with two_brokers() as (first, _, admin):
        quota = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        first.answers[ApiKey.CREATE_TOPICS] = created({"orders": [0], "clicks": [quota, quota, 0]})
        made = await admin.create_topics([NewTopic("orders"), NewTopic("clicks")])
        assert all(isinstance(each, TopicCreated) for each in made.values())
        names = [
            [topic.name for topic in request.topics]
            for request in first.asked
            if isinstance(request, CreateTopicsRequest)
        ]
        assert names == [["orders", "clicks"], ["clicks"], ["clicks"]]


@story
async def test_a_broker_is_asked_for_its_own_configs() -> None:
    async with two_brokers() as (first, second, admin):
        from headwater.client.admin import broker_config

        def described(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
            return DescribeConfigsResponse(
                results=[
                    DescribeConfigsResult(
                        resource_type=each.resource_type, resource_name=each.resource_name
                    )
                    for each in request.resources
                ]
            )

        first.answers[ApiKey.DESCRIBE_CONFIGS] = described
        second.answers[ApiKey.DESCRIBE_CONFIGS] = described
        wanted = [broker_config(2), broker_config(1), topic_config("orders")]
        assert list(or_raise(await admin.describe_configs(wanted))) == wanted
        (asked,) = (each for each in second.asked if isinstance(each, DescribeConfigsRequest))
        assert broker_config(2).name in [each.resource_name for each in asked.resources]
        assert broker_config(1).name not in [each.resource_name for each in asked.resources]


# Older brokers


def old(broker: FakeBroker, **newest: int) -> None:
    """A broker that has these APIs up to these versions, and those of a first contact."""

    def versions(_: Any) -> ApiVersionsResponse:
        answer = broker.versions()
        kept = {ApiKey[name.upper()]: version for name, version in newest.items()}
        kept |= {ApiKey.API_VERSIONS: 3, ApiKey.METADATA: 8, ApiKey.FIND_COORDINATOR: 3}
        answer.api_keys = [each for each in answer.api_keys if each.api_key in kept]
        for each in answer.api_keys:
            each.max_version = kept[ApiKey(each.api_key)]
        return answer

    broker.answers[ApiKey.API_VERSIONS] = versions
    broker.answers[ApiKey.FIND_COORDINATOR] = lambda _: FindCoordinatorResponse(
        node_id=broker.node_id, host=broker.address.host, port=broker.address.port
    )


@story
async def test_an_older_broker_is_asked_in_words_it_knows() -> None:
    async with FakeBroker() as broker:
        old(broker, describe_groups=4, offset_fetch=5)
        lead(broker, orders=1)
        broker.answers[ApiKey.DESCRIBE_GROUPS] = lambda request: DescribeGroupsResponse(
            groups=[
                DescribedGroup(group_id=each, group_state="Dead" if each == "gone" else "Empty")
                for each in request.groups
            ]
        )

        def fetched(request: OffsetFetchRequest) -> OffsetFetchResponse:
            offset = 7 if request.group_id == "billing" else -1
            partition = OffsetFetchResponsePartition(committed_offset=offset)
            topic = OffsetFetchResponseTopic(name="orders", partitions=[partition])
            return OffsetFetchResponse(topics=[topic])

        broker.answers[ApiKey.OFFSET_FETCH] = fetched
        async with Admin(broker.bootstrap) as admin:
            about = await admin.describe_topic("orders")
            assert [each.leader for each in about.partitions] == [1]
            groups = await admin.describe_groups(["billing", "gone"])
            assert isinstance(groups["gone"], GroupNotFound)
            assert not isinstance(groups["billing"], ClientError)
            committed = or_raise(await admin.list_group_offsets(["billing", "other"]))
            assert committed == {"billing": {ORDERS: CommittedOffset(7)}, "other": {}}
            assert (await admin.describe_cluster()).id == "fake"


@story
async def test_what_an_older_broker_cannot_be_asked_is_named() -> None:
    async with FakeBroker() as broker:
        old(broker, list_offsets=6, delete_topics=5)
        lead(broker, orders=1)
        async with Admin(broker.bootstrap) as admin:
            with pytest.raises(UnsupportedVersion, match=r"ListOffsets up to version 6.* 7"):
                await admin.list_offsets({ORDERS: OffsetSpec.MAX_TIMESTAMP})
            with pytest.raises(UnsupportedVersion, match="DeleteTopics up to version 5"):
                await admin.delete_topics(ids=["AAAAAAAAQACAAAAAAAAAAQ"])
            with pytest.raises(UnsupportedVersion, match="DescribeQuorum"):
                await admin.describe_quorum()
            with pytest.raises(UnsupportedVersion, match="DeleteGroups"):
                await admin.delete_groups(["billing"])


@story
async def test_in_a_cluster_of_two_versions_only_partitions_of_the_old_broker_fail() -> None:
    async with two_brokers() as (first, second, admin):
        first.answers[ApiKey.LIST_OFFSETS] = offsets(11)
        old(second, list_offsets=6)
        wanted = dict.fromkeys((ORDERS, CLICKS), OffsetSpec.MAX_TIMESTAMP)
        found = await admin.list_offsets(wanted)
        assert found[ORDERS] == OffsetFound(11)
        assert isinstance(found[CLICKS], UnsupportedVersion)
        with pytest.raises(UnsupportedVersion, match="up to version 6; this needs version 7"):
            await admin.list_offsets({CLICKS: OffsetSpec.MAX_TIMESTAMP})
