"""Requests from broker to broker."""

from __future__ import annotations

import asyncio

import pytest

from headwater.broker.broker_channel import BrokerChannel
from headwater.config import node_config
from headwater.io import Address, Host
from headwater.metadata import Delta, Image
from headwater.net.peer.errors import Disconnected, NothingListens, PeerError, UnsupportedVersion
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from headwater.protocol.messages.write_txn_markers import (
    WritableTxnMarkerResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater.protocol.records.metadata_nodes import BrokerEndpoint, RegisterBrokerRecord
from tests.support.fake_broker import Answer, FakeBroker, HangUp, story

PEER = 2


class Site:
    """A broker with a channel to the others."""

    def __init__(self) -> None:
        self.channel = BrokerChannel(Host.in_memory(), node_config({}), name="markers")
        self.image = Image()

    def register(self, address: Address, *, listener: str = "PLAINTEXT") -> None:
        delta = Delta()
        record = RegisterBrokerRecord(
            broker_id=PEER,
            incarnation_id=bytes(16),
            broker_epoch=1,
            end_points=[
                BrokerEndpoint(
                    name=listener, host=address.host, port=address.port, security_protocol=0
                )
            ],
            features=[],
            rack=None,
        )
        self.image.apply(record, delta)
        self.channel.follow(self.image, delta)

    async def ask(self) -> Message:
        response = await self.channel.ask(PEER, WriteTxnMarkersRequest())
        assert isinstance(response, Message)
        return response

    async def stop(self) -> None:
        await asyncio.gather(*self.channel.stop(), return_exceptions=True)


def written(_: object) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7)])


@story
async def test_requests_share_a_connection_that_is_made_for_the_first() -> None:
    site = Site()
    async with FakeBroker(PEER) as peer:
        peer.answers[ApiKey.WRITE_TXN_MARKERS] = written
        site.register(peer.address)
        first = await asyncio.gather(site.ask(), site.ask())
        assert [*first, await site.ask()] == [written(None)] * 3
        assert peer.connections == 1
        assert (ApiKey.WRITE_TXN_MARKERS, 2) in peer.versions_asked
        await site.stop()


@story
async def test_a_failure_is_reported_and_the_next_request_connects_again() -> None:
    site = Site()

    def hang_up(_: object) -> Answer:
        raise HangUp

    async with FakeBroker(PEER) as peer:
        peer.answers[ApiKey.WRITE_TXN_MARKERS] = hang_up
        site.register(peer.address)
        with pytest.raises(Disconnected):
            await site.ask()
        peer.answers[ApiKey.WRITE_TXN_MARKERS] = written
        assert await site.ask() == written(None)
        await site.stop()


@story
async def test_a_broker_that_is_not_there_is_an_error_at_once() -> None:
    site = Site()
    with pytest.raises(PeerError, match="no listener"):
        await site.ask()
    peer = FakeBroker(PEER)
    await peer.start()
    site.register(peer.address, listener="CLIENTS")
    with pytest.raises(PeerError, match="no listener"):
        await site.ask()
    await peer.stop()
    site.register(peer.address)
    with pytest.raises(NothingListens):
        await site.ask()


@story
async def test_a_broker_that_moved_leaves_nobody_waiting() -> None:
    site = Site()
    held: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    async with FakeBroker(PEER) as before, FakeBroker(PEER) as after:
        before.answers[ApiKey.WRITE_TXN_MARKERS] = lambda _: held
        after.answers[ApiKey.WRITE_TXN_MARKERS] = written
        site.register(before.address)
        asked = asyncio.ensure_future(site.ask())
        await before.until(lambda: before.count(ApiKey.WRITE_TXN_MARKERS) == 1)
        site.register(before.address)  # the same address: the request goes on
        assert not asked.done()
        site.register(after.address)
        with pytest.raises(Disconnected):
            await asked
        assert await site.ask() == written(None)
        held.set_result(None)
        await site.stop()


@story
async def test_a_broker_without_the_api_is_told_apart() -> None:
    site = Site()
    async with FakeBroker(PEER) as peer:
        peer.answers[ApiKey.API_VERSIONS] = lambda _: ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=ApiKey.API_VERSIONS, min_version=0, max_version=4)]
        )
        site.register(peer.address)
        with pytest.raises(UnsupportedVersion):
            await site.ask()
        await site.stop()


@story
async def test_a_stop_ends_requests_that_wait_for_a_connection() -> None:
    site = Site()
    async with FakeBroker(PEER) as peer:
        site.register(peer.address)
        asked = asyncio.ensure_future(site.ask())
        await asyncio.sleep(0)
        await site.stop()
        with pytest.raises(Disconnected):
            await asked
