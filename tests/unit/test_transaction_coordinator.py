"""The transaction coordinator of a broker on real logs in memory: what its driver adds to the
machine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from headwater.broker.coordinators.driver import State
from headwater.broker.coordinators.markers import Codes
from headwater.broker.coordinators.transactions import TRANSACTIONS_TOPIC, TransactionCoordinator
from headwater.broker.partition import Partition
from headwater.config import node_config
from headwater.errors import ApiError, ErrorCode
from headwater.io import Host
from headwater.io.memory import MemoryDisk
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.write_txn_markers import WritableTxnMarker
from headwater.protocol.records.metadata_nodes import (
    BrokerEndpoint,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from headwater.protocol.records.metadata_topics import PartitionRecord, TopicRecord
from headwater.transactions.settings import TransactionSettings
from tests.support.fake_broker import story
from tests.support.logs import NOW, TOPIC_ID, contents, lead, open_log, settings
from tests.unit.test_coordinator_driver import InlineWorkers

T = TypeVar("T")
ORDERS_ID = bytes(range(16, 32))
HERE = 1
V2 = 5


class Ids:
    """Producer ids that come when the test gives them."""

    def __init__(self) -> None:
        self.at_hand = [1000]
        self.wanted: list[asyncio.Future[int]] = []

    def take(self) -> int | None:
        return self.at_hand.pop(0) if self.at_hand else None

    async def next(self) -> int:
        self.wanted.append(asyncio.get_running_loop().create_future())
        return await self.wanted[-1]


class Desk:
    """A broker that coordinates all transactions and leads `orders`, whose markers wait."""

    def __init__(self) -> None:
        self.log = open_log(MemoryDisk(), settings(cleanup_policy="compact"))
        self.tp = TopicPartition(TRANSACTIONS_TOPIC, 0)
        self.partition = Partition(self.tp, TOPIC_ID, self.log, InlineWorkers(), 0)
        lead(self.partition, epoch=0, isr=(1,), replicas=(1, 2))
        self.ids = Ids()
        self.markers: list[tuple[WritableTxnMarker, Callable[[Codes], None]]] = []
        self.image = Image()
        self.coordinator = self.new_coordinator()
        self.apply(
            RegisterBrokerRecord(
                broker_id=HERE,
                incarnation_id=bytes(16),
                broker_epoch=1,
                end_points=[
                    BrokerEndpoint(name="PLAINTEXT", host="h", port=1, security_protocol=0)
                ],
                features=[],
                rack=None,
                fenced=False,
            ),
            FeatureLevelRecord(name="transaction.version", feature_level=2),
            *_topic(TRANSACTIONS_TOPIC, TOPIC_ID),
            *_topic("orders", ORDERS_ID),
        )

    def new_coordinator(self) -> TransactionCoordinator:
        host = Host.in_memory()
        return TransactionCoordinator(
            node_config({}),
            host,
            _only(self.partition),
            self.ids,  # type: ignore[arg-type]  # it has the two methods that are used
            lambda marker, done: self.markers.append((marker, done)),
            Lines(host.clock, lambda line: None),
        )

    def apply(self, *records: Message) -> None:
        delta = Delta()
        for record in records:
            self.image.apply(record, delta)
        self.coordinator.follow(self.image, delta)

    async def loaded(self) -> None:
        driver = self.coordinator.shards.drivers[0]
        await asyncio.gather(*driver._tasks)

    def init(self, transactional_id: str = "t") -> Any:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        return self.coordinator.init(request, version=5)

    def add(
        self,
        epoch: int,
        *,
        is_patient: bool = True,
        verify_only: bool = False,
        transactional_id: str = "t",
    ) -> Any:
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=1000,
            producer_epoch=epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        )
        return self.coordinator.add_partitions(transaction, version=5, is_patient=is_patient)

    def add_offsets(self, epoch: int) -> Any:
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=1000, producer_epoch=epoch, group_id="g"
        )
        partition = TopicPartition("orders", 0)  # a partition of this cluster
        return self.coordinator.add_offsets(request, partition, version=4)

    def end(self, epoch: int) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id="t", producer_id=1000, producer_epoch=epoch, committed=True
        )
        answer = self.coordinator.end(request, version=V2)
        assert isinstance(answer, EndTxnResponse)
        return answer

    def mark(self) -> None:
        """The markers that were asked for are written."""
        markers, self.markers = self.markers, []
        for marker, done in markers:
            done(
                {
                    TopicPartition(topic.name, index): ErrorCode.NONE
                    for topic in marker.topics
                    for index in topic.partition_indexes
                }
            )

    async def stop(self) -> None:
        await asyncio.gather(*self.coordinator.stop(), return_exceptions=True)


def _only(partition: Partition) -> Any:
    class Only:
        def get(self, topic: str, index: int) -> Partition:
            if (topic, index) == partition.tp:
                return partition
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return Only()


def _topic(name: str, topic_id: bytes) -> list[Message]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        PartitionRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[HERE],
            isr=[HERE],
            leader=HERE,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        ),
    ]


def code(result: Any) -> int:
    found: int = result.topic_results[0].results_by_partition[0].partition_error_code
    return found


@story
async def test_a_producer_id_that_is_not_at_hand_is_fetched() -> None:
    desk = Desk()
    await desk.loaded()
    assert desk.init("a").producer_id == 1000
    waiting = asyncio.ensure_future(desk.init("b"))
    again = asyncio.ensure_future(desk.init("b"))
    await asyncio.sleep(0)  # both have asked for one
    assert desk.init("a").producer_epoch == 1  # which needs none
    one, other = desk.ids.wanted
    one.set_result(2000)
    other.set_result(3000)
    first, second = await waiting, await again
    # The second one finds an id that already has a producer id.
    assert (first.producer_id, first.producer_epoch) == (2000, 0)
    assert (second.producer_id, second.producer_epoch) == (2000, 1)
    await desk.stop()


@story
async def test_the_next_transaction_waits_for_the_end_of_the_one_before() -> None:
    desk = Desk()
    await desk.loaded()
    desk.init()
    assert code(desk.add(0)) == 0
    assert desk.end(0).producer_epoch == 1
    waiting = desk.add(1)
    desk.mark()  # before the wait has even begun
    assert code(await waiting) == 0
    desk.end(1)
    waiting = asyncio.ensure_future(desk.add(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.mark()
    assert code(await waiting) == 0
    assert desk.coordinator._waiting == {}
    await desk.stop()


@story
async def test_a_transaction_that_begins_with_offsets_waits_as_well() -> None:
    """A client that hears CONCURRENT_TRANSACTIONS pauses for longer than the end takes."""
    desk = Desk()
    await desk.loaded()
    desk.init()
    assert desk.add_offsets(0).error_code == 0
    assert desk.end(0).producer_epoch == 1
    waiting = asyncio.ensure_future(desk.add_offsets(1))
    await asyncio.sleep(0)
    assert not waiting.done()
    desk.mark()
    assert (await waiting).error_code == 0
    desk.end(1)
    late = await desk.add_offsets(2)  # it takes too long
    assert late.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    assert desk.coordinator._waiting == {}
    await desk.stop()


@story
async def test_who_cannot_wait_is_told_at_once() -> None:
    desk = Desk()
    await desk.loaded()
    desk.init()
    desk.add(0)
    desk.end(0)
    concurrent = ErrorCode.CONCURRENT_TRANSACTIONS
    assert code(desk.add(1, is_patient=False)) == concurrent
    assert code(desk.add(1, verify_only=True)) == concurrent
    assert code(await desk.add(1)) == concurrent  # it takes too long
    assert desk.coordinator._waiting == {}
    await desk.stop()


@story
async def test_what_was_being_ended_goes_on_when_the_partition_is_loaded() -> None:
    desk = Desk()
    await desk.loaded()
    desk.init()
    desk.add(0)
    desk.end(0)
    ((before, done),) = desk.markers
    await desk.stop()
    desk.markers = []
    desk.coordinator = desk.new_coordinator()
    desk.coordinator.follow(desk.image, Delta(partitions={(TOPIC_ID, 0): None}))
    await desk.loaded()
    ((after, _),) = desk.markers
    assert after == before
    end = desk.log.end
    done({TopicPartition("orders", 0): ErrorCode.NONE})  # the earlier load asked for it
    assert desk.log.end == end
    desk.mark()
    assert desk.log.end == end + 1
    state = desk.coordinator.describe("t")
    assert not isinstance(state, Awaitable)
    assert state.transaction_state == "CompleteCommit"
    await desk.stop()


@story
async def test_markers_have_the_epoch_of_the_partition_that_coordinates() -> None:
    desk = Desk()
    await desk.loaded()
    desk.init()
    desk.add(0)
    lead(desk.partition, epoch=3, isr=(1,), replicas=(1, 2))
    desk.coordinator.on_role(desk.partition)
    await desk.loaded()
    desk.end(0)
    ((marker, _),) = desk.markers
    assert (marker.coordinator_epoch, marker.producer_epoch) == (3, 1)
    await desk.stop()


@story
async def test_records_follow_the_level_of_the_feature() -> None:
    desk = Desk()
    await desk.loaded()

    def version_of_last_value() -> int:
        value = contents(desk.log)[-1][1]
        assert value is not None
        return int.from_bytes(value[:2], "big")

    desk.init()
    assert version_of_last_value() == 1
    desk.apply(FeatureLevelRecord(name="transaction.version", feature_level=0))
    desk.ids.at_hand = [2000]
    desk.init("u")
    assert version_of_last_value() == 0
    desk.apply(FeatureLevelRecord(name="transaction.version", feature_level=1))
    desk.init("u")
    assert version_of_last_value() == 1
    await desk.stop()


# Requests that hurt others


@story
async def test_an_id_that_no_record_can_have_leaves_the_shard_alone() -> None:
    desk = Desk()
    await desk.loaded()
    machine = desk.coordinator.shards.drivers[0].machine
    with pytest.raises(ApiError) as refused:
        desk.init("t" * 40_000)
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    with pytest.raises(ApiError):
        desk.init("\N{SNOWMAN}" * 11_000)
    desk.init("t" * 32_767)
    # Nobody can know it, so that a producer hears of no unknown error.
    assert code(desk.add(0, transactional_id="t" * 40_000)) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert desk.coordinator.shards.drivers[0].machine is machine
    assert desk.coordinator.shards.drivers[0].state is State.ACTIVE
    await desk.stop()


@story
async def test_a_marker_in_the_log_of_the_coordinator_is_passed_over() -> None:
    """Any client may ask for it where nobody is refused anything."""
    desk = Desk()
    await desk.loaded()
    desk.init()
    desk.partition.append_marker(
        7, 0, commits=True, coordinator_epoch=0, transaction_version=2, now_ms=NOW
    )
    await desk.coordinator.shards.drivers[0].load()
    assert code(desk.add(0)) == ErrorCode.NONE
    await desk.stop()


def test_every_setting_of_the_machine_comes_from_the_node() -> None:
    config = node_config(
        {
            "transaction.max.timeout.ms": "1001",
            "transactional.id.expiration.ms": "1002",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1003",
            "transaction.remove.expired.transaction.cleanup.interval.ms": "1004",
            "transaction.two.phase.commit.enable": "true",
        }
    )
    assert TransactionSettings.of(config, transaction_version=1) == TransactionSettings(
        transaction_version=1,
        timeout_ms_max=1001,
        id_expiration_ms=1002,
        timeout_check_interval_ms=1003,
        expiration_check_interval_ms=1004,
        two_phase_commit=True,
    )
