"""`Admin` with `bootstrap_controllers`: the nodes it asks, and its error at the wrong listener."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.client.admin import Admin
from headwater.client.errors import (
    BrokersUnavailable,
    ClientError,
    ConfigError,
    UnsupportedVersion,
    WrongListener,
)
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headwater.protocol.messages.describe_cluster import DescribeClusterResponse, EndpointType
from headwater.protocol.messages.unregister_broker import UnregisterBrokerResponse
from tests.support.fake_broker import FakeBroker, story

QUICK: Any = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 20, "reconnect_backoff_ms": 1}


def admin_of(*controllers: FakeBroker, **settings: Any) -> Admin:
    addresses = [each.bootstrap for each in controllers]
    return Admin(bootstrap_controllers=addresses, **(QUICK | settings))


@story
async def test_the_controllers_are_the_nodes() -> None:
    async with FakeBroker(7, is_controller=True) as one:
        async with admin_of(one) as admin:
            told = await admin.describe_cluster(fenced=True)
        assert [each.address for each in told.nodes] == [one.bootstrap]
        assert (told.id, told.controller_id) == ("fake", 7)
        assert all(
            getattr(each, "endpoint_type", EndpointType.CONTROLLER) == EndpointType.CONTROLLER
            for each in one.asked
        )
        assert one.count(ApiKey.METADATA) == 0


@story
async def test_the_active_controller_is_asked_wherever_it_moves() -> None:
    async with (
        FakeBroker(1, is_controller=True) as one,
        FakeBroker(2, is_controller=True) as two,
    ):
        one.neighbours, two.neighbours = [two], [one]
        two.controller_id = 1

        def moved(_: Any) -> UnregisterBrokerResponse:
            one.controller_id = two.controller_id = 2
            return UnregisterBrokerResponse(error_code=ErrorCode.NOT_CONTROLLER)

        one.answers[ApiKey.UNREGISTER_BROKER] = moved
        two.answers[ApiKey.UNREGISTER_BROKER] = lambda _: UnregisterBrokerResponse()
        async with admin_of(one) as admin:
            await admin.unregister_broker(9)
        assert two.count(ApiKey.UNREGISTER_BROKER) == 1


@story
async def test_an_api_of_brokers_is_refused_with_its_name() -> None:
    async with FakeBroker(is_controller=True) as one, admin_of(one) as admin:
        with pytest.raises(UnsupportedVersion, match="do not serve Metadata: ask a broker"):
            await admin.list_topics()


@story
async def test_a_brokers_listener_is_not_taken_for_a_controllers() -> None:
    async with FakeBroker() as broker:
        with pytest.raises(WrongListener, match=f"{broker.bootstrap} is a broker's listener"):
            await admin_of(broker).start()
        async with FakeBroker(is_controller=True) as controller:
            with pytest.raises(WrongListener, match="is a controller's listener"):
                await Admin(controller.bootstrap, **QUICK).start()


@story
async def test_a_mismatch_that_only_the_answer_shows_is_an_error() -> None:
    async with FakeBroker(is_controller=True) as one:
        one.answers[ApiKey.DESCRIBE_CLUSTER] = lambda _: DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message="asked a BROKER"
        )
        with pytest.raises(ClientError, match="asked a BROKER") as caught:
            await admin_of(one, start_timeout_ms=1_000).start()
        assert caught.value.code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@story
async def test_controllers_before_3_7_are_refused() -> None:
    async with FakeBroker(is_controller=True) as one:
        one.answers[ApiKey.API_VERSIONS] = lambda _: ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=0, max_version=0)
                for key in (ApiKey.VOTE, ApiKey.DESCRIBE_CLUSTER, ApiKey.API_VERSIONS)
            ]
        )
        with pytest.raises(UnsupportedVersion, match=r"needs Kafka 3\.7"):
            await admin_of(one, start_timeout_ms=1_000).start()


@story
async def test_controllers_that_are_down_are_named_as_such() -> None:
    with pytest.raises(BrokersUnavailable, match=r"no controller can be reached: 127\.0\.0\.1:1"):
        await Admin(bootstrap_controllers="127.0.0.1:1", start_timeout_ms=200, **QUICK).start()


def test_brokers_and_controllers_cannot_be_combined() -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        Admin("127.0.0.1:1", bootstrap_controllers="127.0.0.1:2")
