"""The sender of markers: to this broker and to others, until each partition has its marker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from headwater.broker.broker_channel import BrokerChannel
from headwater.broker.coordinators.markers import Codes, MarkerSender
from headwater.config import node_config
from headwater.errors import ErrorCode
from headwater.io import Address, Host
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater.protocol.records.metadata_nodes import BrokerEndpoint, RegisterBrokerRecord
from headwater.protocol.records.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headwater.transactions.shard import SendMarkers
from tests.support.fake_broker import Answer, FakeBroker, HangUp, story

HERE, THERE, NOBODY = 1, 2, -1
TOPIC_ID = bytes(range(16))
COORDINATOR_EPOCH = 5


def tp(index: int, topic: str = "orders") -> TopicPartition:
    return TopicPartition(topic, index)


class WaitingShard:
    """A shard that has ended a transaction."""

    def __init__(self) -> None:
        self.epoch = COORDINATOR_EPOCH
        self.is_current = True
        self.is_writable = True
        self.written: list[TopicPartition] = []
        self._changed = asyncio.Event()

    def on_written(self, markers: SendMarkers, partitions: Sequence[TopicPartition]) -> None:
        assert markers.transactional_id.startswith("t")
        self.written += partitions
        self._changed.set()

    async def until(self, count: int) -> None:
        while len(self.written) < count:
            self._changed.clear()
            await self._changed.wait()


class Site:
    """Broker 1 with a sender; it leads the even partitions, broker 2 the odd ones."""

    def __init__(self) -> None:
        host = Host.in_memory()
        self.channel = BrokerChannel(host, node_config({}), name="markers")
        self.image = Image()
        self.local: list[tuple[WritableTxnMarker, Callable[[Codes], None]]] = []
        self.answers_at_once = True
        self.lines: list[str] = []
        self.sender = MarkerSender(
            HERE, host, self.channel, self._write_here, Lines(host.clock, self.lines.append)
        )
        self.shard = WaitingShard()
        self.apply(
            _broker(HERE, Address("127.0.0.1", 1)),
            TopicRecord(name="orders", topic_id=TOPIC_ID),
            *(_partition(index, HERE if index % 2 == 0 else THERE) for index in range(4)),
        )

    def apply(self, *records: Message) -> None:
        delta = Delta()
        for record in records:
            self.image.apply(record, delta)
        self.channel.follow(self.image, delta)
        self.sender.follow(self.image, delta)

    def _write_here(self, marker: WritableTxnMarker, done: Callable[[Codes], None]) -> None:
        if self.answers_at_once:
            done(dict.fromkeys(_partitions(marker), ErrorCode.NONE))
        self.local.append((marker, done))

    def send(self, *indexes: int, producer_id: int = 7) -> None:
        markers = SendMarkers(f"t{producer_id}", producer_id, 3, True, tuple(map(tp, indexes)), 2)
        self.sender.send(self.shard, markers)

    async def stop(self) -> None:
        self.sender.stop()
        await asyncio.gather(*self.channel.stop(), return_exceptions=True)


def _broker(node_id: int, address: Address, *, fenced: bool = False) -> RegisterBrokerRecord:
    end_point = BrokerEndpoint(
        name="PLAINTEXT", host=address.host, port=address.port, security_protocol=0
    )
    return RegisterBrokerRecord(
        broker_id=node_id,
        incarnation_id=bytes(16),
        broker_epoch=1,
        end_points=[end_point],
        features=[],
        rack=None,
        fenced=fenced,
    )


def _partition(index: int, leader: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=TOPIC_ID,
        replicas=[HERE, THERE],
        isr=[HERE, THERE],
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[bytes(16), bytes(16)],
    )


def _leads(index: int, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=index, topic_id=TOPIC_ID, leader=leader)


def _partitions(marker: WritableTxnMarker) -> list[TopicPartition]:
    return [tp(index, topic.name) for topic in marker.topics for index in topic.partition_indexes]


def with_codes(
    request: WriteTxnMarkersRequest, code: Callable[[TopicPartition], int]
) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(
                                partition_index=index, error_code=code(tp(index, topic.name))
                            )
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


def written(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    return with_codes(request, lambda _: ErrorCode.NONE)


@story
async def test_what_this_broker_leads_is_written_in_the_same_turn() -> None:
    site = Site()
    site.send(0, 2)
    assert site.shard.written == [tp(0), tp(2)]
    ((marker, _),) = site.local
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 3, True)
    assert (marker.coordinator_epoch, marker.transaction_version) == (COORDINATOR_EPOCH, 2)
    await site.stop()


@story
async def test_each_partition_gets_its_marker_from_its_leader() -> None:
    site = Site()
    async with FakeBroker(THERE) as other:
        other.answers[ApiKey.WRITE_TXN_MARKERS] = written
        site.apply(_broker(THERE, other.address, fenced=False))
        site.send(0, 1, 2, 3)
        await site.shard.until(4)
        assert sorted(site.shard.written) == [tp(0), tp(1), tp(2), tp(3)]
        (request,) = [each for each in other.asked if isinstance(each, WriteTxnMarkersRequest)]
        assert [_partitions(marker) for marker in request.markers] == [[tp(1), tp(3)]]
        await site.stop()


@story
async def test_one_request_is_in_flight_and_the_next_has_what_gathered_meanwhile() -> None:
    site = Site()
    held: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def answer(request: WriteTxnMarkersRequest) -> Answer:
        await held
        return written(request)

    async with FakeBroker(THERE) as other:
        other.answers[ApiKey.WRITE_TXN_MARKERS] = answer
        site.apply(_broker(THERE, other.address, fenced=False))
        for producer_id in range(7, 12):
            site.send(1, producer_id=producer_id)
        await other.until(lambda: other.count(ApiKey.WRITE_TXN_MARKERS) == 1)
        held.set_result(None)
        await site.shard.until(5)
        sizes = [
            len(each.markers) for each in other.asked if isinstance(each, WriteTxnMarkersRequest)
        ]
        assert sizes == [1, 4]
        await site.stop()


@story
async def test_markers_follow_the_leader() -> None:
    """Whatever a broker that no longer leads answers, and if it answers nothing at all."""
    for refusal in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None):
        site = Site()

        def answer(request: WriteTxnMarkersRequest, refusal: ErrorCode | None = refusal) -> Answer:
            if refusal is None:
                raise HangUp
            return with_codes(request, lambda _: refusal)

        async with FakeBroker(THERE) as other:
            other.answers[ApiKey.WRITE_TXN_MARKERS] = answer
            site.apply(_broker(THERE, other.address, fenced=False))
            site.send(1)
            await other.until(lambda: other.count(ApiKey.WRITE_TXN_MARKERS) >= 2)
            site.apply(_leads(1, HERE))
            await site.shard.until(1)
            assert site.shard.written == [tp(1)]
            await site.stop()


@story
async def test_a_partition_without_a_leader_waits_for_one() -> None:
    site = Site()
    site.apply(_leads(0, NOBODY))
    site.send(0, 2)
    assert site.shard.written == [tp(2)]
    site.apply(_leads(0, THERE))  # which is not there either
    assert site.shard.written == [tp(2)]
    site.apply(_leads(0, HERE))
    assert site.shard.written == [tp(2), tp(0)]
    await site.stop()


@story
async def test_a_deleted_partition_counts_as_written() -> None:
    site = Site()
    site.apply(_leads(0, NOBODY))
    site.send(0, 9)
    assert site.shard.written == [tp(9)]
    site.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert site.shard.written == [tp(9), tp(0)]
    await site.stop()


@story
async def test_what_fails_here_is_tried_again() -> None:
    site = Site()
    site.answers_at_once = False
    site.send(0, 2)
    ((_, done),) = site.local
    site.answers_at_once = True
    done({tp(0): ErrorCode.NONE, tp(2): ErrorCode.NOT_ENOUGH_REPLICAS})
    assert site.shard.written == [tp(0)]
    await site.shard.until(2)
    assert _partitions(site.local[1][0]) == [tp(2)]
    await site.stop()


@story
async def test_a_fenced_coordinator_gives_up() -> None:
    for code in (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
        site = Site()
        site.answers_at_once = False
        site.send(0)
        site.local.pop()[1]({tp(0): code})
        site.apply(_leads(0, HERE))
        assert site.local == []
        assert site.shard.written == []
        assert any(code.name in line for line in site.lines)
        await site.stop()


@story
async def test_a_shard_that_was_unloaded_hears_nothing_and_sends_nothing() -> None:
    site = Site()
    site.answers_at_once = False
    site.send(0)
    site.send(2)
    (first, second) = site.local
    second[1]({tp(2): ErrorCode.NOT_LEADER_OR_FOLLOWER})
    site.shard.is_current = False
    first[1]({tp(0): ErrorCode.NONE})
    site.apply(_leads(2, HERE))
    assert site.shard.written == []
    assert len(site.local) == 2
    await site.stop()


@story
async def test_the_end_is_reported_when_it_can_be_written() -> None:
    """A failed append would have the shard loaded again, and the markers written again."""
    site = Site()
    site.shard.is_writable = False
    site.send(0)
    assert site.shard.written == []
    site.apply(_leads(3, HERE))
    assert site.shard.written == []
    site.shard.is_writable = True
    await site.shard.until(1)
    assert site.shard.written == [tp(0)]
    assert len(site.local) == 1
    await site.stop()


@story
async def test_a_marker_for_a_thousand_transactions_goes_out_in_several_requests() -> None:
    site = Site()
    order = list(range(2500))
    Random(1).shuffle(order)
    async with FakeBroker(THERE) as other:
        other.answers[ApiKey.WRITE_TXN_MARKERS] = written
        site.apply(_broker(THERE, other.address, fenced=False))
        for producer_id in order:
            site.send(1, producer_id=producer_id)
        await site.shard.until(2500)
        sizes = [
            len(each.markers) for each in other.asked if isinstance(each, WriteTxnMarkersRequest)
        ]
        assert max(sizes) <= 1000
        await site.stop()


@story
async def test_markers_of_a_shard_that_was_unloaded_do_not_hold_up_those_behind_them() -> None:
    """More of them than one request takes may wait when their shard moves to another broker."""
    site = Site()
    answered = asyncio.Event()

    async def first_later(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        await answered.wait()
        return written(request)

    async with FakeBroker(THERE) as other:
        other.answers[ApiKey.WRITE_TXN_MARKERS] = first_later
        site.apply(_broker(THERE, other.address, fenced=False))
        moved, site.shard = site.shard, WaitingShard()
        site.send(1, producer_id=7)
        stays, site.shard = site.shard, moved
        for producer_id in range(1000):
            site.send(1, producer_id=10_000 + producer_id)
        site.shard = stays
        site.send(1, producer_id=8)
        moved.is_current = False
        answered.set()
        async with asyncio.timeout(10):
            await stays.until(2)
        await site.stop()
