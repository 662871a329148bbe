"""Transactional produce requests, and the answers of their coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from headwater import _core
from headwater.broker.context import Context, InOrder
from headwater.broker.handlers import produce
from headwater.broker.partition import Partition
from headwater.broker.transaction_verification import TransactionVerification
from headwater.config import NodeConfig, node_config
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.net.connection import CloseConnection
from headwater.net.peer import PeerError
from headwater.net.peer.errors import Disconnected, UnsupportedVersion
from headwater.protocol import Message
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from headwater.protocol.records.metadata_nodes import RegisterBrokerRecord
from headwater.protocol.records.metadata_topics import PartitionRecord, TopicRecord
from tests.support.logs import NOW, TOPIC_ID, batch, contents, lead, open_log, sent

HERE, THERE = 1, 2
TOPIC = "orders"
V1_OLD, V1, V2 = 10, 11, 12  # versions of Produce
STATE_ID = bytes(range(16, 32))


class LocalCoordinator:
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.answers: Sequence[ErrorCode | ApiError | asyncio.Future[Any]] = ()
        self.asked: list[AddPartitionsToTxnTransaction] = []

    def partition_for(self, transactional_id: str) -> int | None:
        return 0

    def add_partitions(
        self, transaction: AddPartitionsToTxnTransaction, *, version: int
    ) -> AddPartitionsToTxnResult | Awaitable[AddPartitionsToTxnResult]:
        self.asked.append(transaction)
        answer, *self.answers = self.answers or [ErrorCode.NONE]
        if isinstance(answer, ApiError):
            raise answer
        if isinstance(answer, asyncio.Future):
            return answer
        return result(transaction, answer)


class Wire:
    """The requests to other brokers, which wait for their answer."""

    def __init__(self) -> None:
        self.posted: list[tuple[AddPartitionsToTxnRequest, Callable[..., None]]] = []

    def post(self, node_id: int, request: Message, done: Callable[..., None]) -> None:
        assert node_id == THERE
        assert isinstance(request, AddPartitionsToTxnRequest)
        self.posted.append((request, done))

    def answer(self, code: ErrorCode = ErrorCode.NONE) -> None:
        request, done = self.posted.pop(0)
        results = [result(transaction, code) for transaction in request.transactions]
        done(AddPartitionsToTxnResponse(results_by_transaction=results), None)

    def fail(self, error: PeerError) -> None:
        self.posted.pop(0)[1](None, error)


def result(transaction: AddPartitionsToTxnTransaction, code: ErrorCode) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=code
                    )
                    for index in topic.partitions
                ],
            )
            for topic in transaction.topics
        ],
    )


def registered(broker_id: int) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id, incarnation_id=bytes(16), broker_epoch=1, rack=None, fenced=False
    )


def image_with(coordinator: int) -> Image:
    image = Image()
    for record in (
        registered(HERE),
        registered(THERE),
        TopicRecord(name="__transaction_state", topic_id=STATE_ID),
        PartitionRecord(
            partition_id=0,
            topic_id=STATE_ID,
            replicas=[coordinator],
            isr=[coordinator],
            leader=coordinator,
            leader_epoch=0,
            partition_epoch=0,
            directories=[bytes(16)],
        ),
    ):
        image.apply(record, Delta())
    return image


class Bench:
    """A broker that leads three partitions; the coordinator is here or on another one."""

    def __init__(self, coordinator: int = HERE, more: Mapping[str, str] | None = None) -> None:
        settings = {"node.id": str(HERE), "log.dirs": "/d", **(more or {})}
        self.config: NodeConfig = node_config(settings)
        self.parts: dict[int, Partition] = {}
        for index in range(3):
            tp = TopicPartition(TOPIC, index)
            self.parts[index] = Partition(tp, TOPIC_ID, open_log(), SimpleNamespace(), 0)
            lead(self.parts[index], epoch=1, isr=(1,), replicas=(1, 2))
        self.image = image_with(coordinator)
        self.local, self.wire = LocalCoordinator(), Wire()
        clock: Any = SimpleNamespace(
            wall_ms=lambda: NOW, monotonic=lambda: asyncio.get_running_loop().time()
        )
        partitions: Any = SimpleNamespace(get=self._get, leader_hint=lambda name, index: None)
        channel: Any = self.wire
        self.broker: Any = SimpleNamespace(
            authorizer=None,
            partitions=partitions,
            clock=clock,
            image=self.image,
            verification=TransactionVerification(
                lambda: self.config, lambda: self.image, partitions, self.local, channel, clock
            ),
        )

    def _get(self, topic: str, index: int) -> Partition:
        try:
            return self.parts[index]
        except KeyError:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def produce(
        self,
        batches: dict[int, bytearray],
        *,
        version: int = V2,
        transactional_id: str | None = "t",
        acks: int = 1,
    ) -> Any:
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=TOPIC,
                    partition_data=[
                        PartitionProduceData(index=index, records=memoryview(records))
                        for index, records in batches.items()
                    ],
                )
            ],
        )
        connection: Any = SimpleNamespace(on_gone={}, on_next=None)
        return produce.handle(self.broker, Context(connection, version, "test"), request)

    def values(self, index: int = 0) -> list[bytes | None]:
        return [value for _, value in contents(self.parts[index].log)]


def first(*, sequence: int = 0, epoch: int = 0, producer_id: int = 7) -> bytearray:
    return sent(producer_id, sequence, epoch=epoch, transactional=True)


def results(response: Any) -> list[PartitionProduceResponse]:
    return [each for topic in response.responses for each in topic.partition_responses]


def codes(response: Any) -> list[ErrorCode]:
    return [ErrorCode(each.error_code) for each in results(response)]


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


@pytest.mark.parametrize(("version", "adds"), [(V1_OLD, False), (V1, False), (V2, True)])
def test_the_coordinator_is_asked_once_for_each_transaction(version: int, adds: bool) -> None:
    bench = Bench()
    assert codes(bench.produce({0: first()}, version=version)) == [ErrorCode.NONE]
    assert codes(bench.produce({0: first(sequence=1)}, version=version)) == [ErrorCode.NONE]
    (asked,) = bench.local.asked
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch) == ("t", 7, 0)
    assert asked.verify_only is not adds
    assert bench.values() == [b"0", b"1"]


def test_one_question_is_about_all_partitions_that_are_new_to_the_transaction() -> None:
    bench = Bench()
    bench.produce({0: first()})
    bench.produce({0: first(sequence=1), 1: first(), 2: first()})
    assert [topic.partitions for topic in bench.local.asked[1].topics] == [[1, 2]]


@pytest.mark.parametrize(
    ("version", "told", "expected", "with_text"),
    [
        (V1_OLD, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE, True),
        (V1, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE, False),
        (V1, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE, True),
        (V2, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, False),
        (V2, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING, False),
        (V1, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (V2, ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (V2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS, True),
        # Java's producer doubles records after an unknown error (KAFKA-14034).
        (V1_OLD, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_TXN_STATE, True),
        (V2, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.TRANSACTION_ABORTABLE, False),
    ],
)
def test_a_refused_batch_is_told_why_in_the_words_of_its_client(
    version: int, told: ErrorCode, expected: ErrorCode, with_text: bool
) -> None:
    bench = Bench()
    bench.local.answers = [told]
    (refused,) = results(bench.produce({0: first()}, version=version))
    assert (refused.error_code, refused.base_offset) == (expected, -1)
    assert refused.log_start_offset == -1
    assert (refused.error_message is not None) == with_text
    assert bench.values() == []


def test_a_coordinator_that_refuses_to_answer_refuses_the_batch() -> None:
    bench = Bench()
    bench.local.answers = [ApiError(ErrorCode.NOT_COORDINATOR)]
    assert codes(bench.produce({0: first()})) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_without_a_coordinator_the_producer_tries_again() -> None:
    bench = Bench(coordinator=-1)
    assert codes(bench.produce({0: first()})) == [ErrorCode.NOT_ENOUGH_REPLICAS]


def test_one_partition_that_is_refused_leaves_the_others_alone() -> None:
    bench = Bench()
    refused = bench.produce({0: first(), 9: first()})
    assert codes(refused) == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [topic.partitions for topic in bench.local.asked[0].topics] == [[0]]


def test_broken_batches_are_not_added_to_a_transaction() -> None:
    bench = Bench()
    broken = first()
    broken[16] = 9
    assert codes(bench.produce({0: broken})) == [ErrorCode.CORRUPT_MESSAGE]
    assert bench.local.asked == []


def test_transactional_records_need_a_transactional_id() -> None:
    bench = Bench()
    response = bench.produce({0: batch(b"plain"), 1: first()}, transactional_id=None)
    assert codes(response) == [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    assert bench.values(0) == bench.values(1) == []


def test_a_request_has_one_transactional_producer() -> None:
    bench = Bench()
    response = bench.produce({0: first(), 1: first(producer_id=8)})
    assert codes(response) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
    assert bench.values(0) == bench.values(1) == []


def test_an_old_epoch_is_refused_without_asking() -> None:
    bench = Bench()
    bench.produce({0: first(epoch=3)})
    bench.local.asked.clear()
    assert codes(bench.produce({0: first(epoch=2)})) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert bench.local.asked == []


def test_verification_may_be_switched_off_but_partitions_are_still_added() -> None:
    bench = Bench(more={"transaction.partition.verification.enable": "false"})
    assert codes(bench.produce({0: first()}, version=V1)) == [ErrorCode.NONE]
    assert bench.local.asked == []
    assert codes(bench.produce({1: first()}, version=V2)) == [ErrorCode.NONE]
    assert len(bench.local.asked) == 1


def test_acks_of_zero_tell_a_refusal_by_closing() -> None:
    bench = Bench()
    bench.local.answers = [ErrorCode.INVALID_TXN_STATE]
    with pytest.raises(CloseConnection):
        bench.produce({0: first()}, acks=0)
    assert bench.produce({0: first()}, acks=0) is None
    assert bench.values() == [b"0"]


def test_while_the_coordinator_is_asked_the_connection_waits() -> None:
    """Later batches must not overtake one that waits for its coordinator, whose bytes are kept."""

    async def story() -> None:
        bench = Bench(THERE)
        frame = first()
        answer = bench.produce({0: frame})
        assert isinstance(answer, InOrder)
        frame[:] = bytes(len(frame))  # the receive buffer is used again
        task = asyncio.ensure_future(_await(answer))
        await asyncio.sleep(0)
        assert bench.values() == []
        bench.wire.answer()
        assert codes(await task) == [ErrorCode.NONE]
        assert bench.values() == [b"0"]
        assert codes(bench.produce({0: first(sequence=1)})) == [ErrorCode.NONE]

    run(story)


async def _await(answer: Awaitable[Any]) -> Any:
    return await answer


def test_a_marker_that_overtakes_the_answer_refuses_the_batch() -> None:
    async def story() -> None:
        bench = Bench(THERE)
        answer = asyncio.ensure_future(_await(bench.produce({0: first()}, version=V1)))
        await asyncio.sleep(0)
        bench.parts[0].append_marker(
            7, 0, commits=False, coordinator_epoch=0, transaction_version=1, now_ms=NOW
        )
        bench.wire.answer()
        assert codes(await answer) == [ErrorCode.INVALID_TXN_STATE]
        assert bench.parts[0].last_stable_offset == 1

    run(story)


def test_questions_gather_while_one_is_under_way() -> None:
    async def story() -> None:
        bench = Bench(THERE)
        answers = [
            asyncio.ensure_future(
                _await(bench.produce({0: first(producer_id=number)}, transactional_id=f"t{number}"))
            )
            for number in range(5)
        ]
        ((request, _),) = bench.wire.posted
        assert [each.transactional_id for each in request.transactions] == ["t0"]
        bench.wire.answer()
        ((request, _),) = bench.wire.posted
        assert [each.transactional_id for each in request.transactions] == ["t1", "t2", "t3", "t4"]
        bench.wire.answer()
        assert [codes(await answer) for answer in answers] == [[ErrorCode.NONE]] * 5

    run(story)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (0, 0, [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE]),
        (0, 1, [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.NONE]),
        (1, 0, [ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH]),
    ],
)
def test_of_two_questions_that_wait_the_newer_producer_is_asked_for(
    before: int, after: int, expected: list[ErrorCode]
) -> None:
    async def story() -> None:
        bench = Bench(THERE)
        busy = asyncio.ensure_future(
            _await(bench.produce({2: first(producer_id=1)}, transactional_id="busy"))
        )
        answers = [
            asyncio.ensure_future(_await(bench.produce({index: first(epoch=epoch)})))
            for index, epoch in enumerate((before, after))
        ]
        bench.wire.answer()
        bench.wire.answer()
        assert codes(await busy) == [ErrorCode.NONE]
        assert [codes(await answer)[0] for answer in answers] == expected

    run(story)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Disconnected("gone"), ErrorCode.NOT_ENOUGH_REPLICAS),
        (UnsupportedVersion("old"), ErrorCode.NONE),
    ],
)
def test_what_happens_if_the_coordinator_cannot_be_asked(
    error: PeerError, expected: ErrorCode
) -> None:
    async def story() -> None:
        bench = Bench(THERE)
        answer = asyncio.ensure_future(_await(bench.produce({0: first()}, version=V1)))
        bench.wire.fail(error)
        assert codes(await answer) == [expected]

    run(story)


def test_a_broker_that_is_not_authorized_does_not_say_so_to_clients() -> None:
    async def story() -> None:
        bench = Bench(THERE)
        answer = asyncio.ensure_future(_await(bench.produce({0: first()}, version=V1)))
        _, done = bench.wire.posted.pop()
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        done(AddPartitionsToTxnResponse(error_code=code), None)
        assert codes(await answer) == [ErrorCode.INVALID_TXN_STATE]

    run(story)


def test_a_leader_waits_while_the_transaction_before_is_ended() -> None:
    async def story() -> None:
        bench = Bench()
        bench.local.answers = [ErrorCode.CONCURRENT_TRANSACTIONS] * 2 + [ErrorCode.NONE]
        assert codes(await bench.produce({0: first()})) == [ErrorCode.NONE]
        assert len(bench.local.asked) == 3

    run(story)


def test_a_leader_does_not_wait_forever() -> None:
    async def story() -> None:
        bench = Bench(more={"add.partitions.to.txn.retry.backoff.max.ms": "0"})
        bench.local.answers = [ErrorCode.CONCURRENT_TRANSACTIONS] * 9
        response = await bench.produce({0: first()})
        assert codes(response) == [ErrorCode.CONCURRENT_TRANSACTIONS]
        assert len(bench.local.asked) == 1

    run(story)


def test_a_local_coordinator_that_moves_refuses_the_batch() -> None:
    async def story() -> None:
        bench = Bench()
        moving: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        bench.local.answers = [moving]
        answer = asyncio.ensure_future(_await(bench.produce({0: first()})))
        await asyncio.sleep(0)
        moving.set_exception(ApiError(ErrorCode.NOT_COORDINATOR))
        assert codes(await answer) == [ErrorCode.NOT_ENOUGH_REPLICAS]

    run(story)


def test_a_transactional_batch_without_a_producer_is_nobodys_transaction() -> None:
    bench = Bench()
    data = bytearray(_core.encode([(None, b"x", (), NOW)], transactional=True))
    assert codes(bench.produce({0: data})) == [ErrorCode.NONE]
    assert bench.local.asked == []
