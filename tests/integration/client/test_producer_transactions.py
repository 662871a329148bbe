"""Transactions of a producer when requests and replies are lost, late or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from headwater import (
    AbortableError,
    CommitFailed,
    CommitOutcomeUnknown,
    DeliveryTimedOut,
    FatalError,
    GroupMetadata,
    InvalidTransactionState,
    Producer,
    ProducerFenced,
    TopicForbidden,
    TopicPartition,
    TransactionAborted,
    TransactionForbidden,
)
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.support.fake_broker import story
from tests.support.fake_coordinator import LOSE_REPLY, LOSE_REQUEST, TOPIC, FakeCoordinator

GENERATIONS = pytest.mark.parametrize("uses_v2", [True, False], ids=["v2", "v1"])


def producer(broker: FakeCoordinator, **settings: Any) -> Producer:
    options: dict[str, Any] = {
        "retry_backoff_ms": 1,
        "retry_backoff_max_ms": 5,
        "reconnect_backoff_ms": 1,
        "reconnect_backoff_max_ms": 5,
    }
    return Producer(broker.bootstrap, transactional_id="t", **(options | settings))


def first(key: ApiKey, *faults: int) -> Callable[[ApiKey], int]:
    """Faults of the first requests of a kind."""
    left = list(faults)
    return lambda asked: left.pop(0) if asked is key and left else 0


@GENERATIONS
@story
async def test_a_transaction_of_one_record_asks_for_no_more_than_it_must(uses_v2: bool) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker) as client:
        for _ in range(2):  # the first one asks who leads the topic
            before = len(broker.asked)
            async with client.transaction():
                await client.send(TOPIC, b"x", partition=0)
        kinds = [type(request).API for request in broker.asked[before:]]
        adds = [] if uses_v2 else [ApiKey.ADD_PARTITIONS_TO_TXN]
        assert kinds == [*adds, ApiKey.PRODUCE, ApiKey.END_TXN]
        assert broker.visible == [b"x", b"x"]


@GENERATIONS
@story
async def test_an_empty_transaction_asks_nobody(uses_v2: bool) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker) as client:
        before = len(broker.asked)
        async with client.transaction():
            pass
        await client.begin_transaction()
        await client.abort_transaction()
        assert len(broker.asked) == before


@pytest.mark.parametrize("fault", [LOSE_REQUEST, LOSE_REPLY], ids=["request", "reply"])
@pytest.mark.parametrize("ends", ["commit", "abort"])
@GENERATIONS
@story
async def test_an_end_that_is_lost_is_asked_again(uses_v2: bool, ends: str, fault: int) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker) as client:
        await client.begin_transaction()
        await client.send(TOPIC, b"x")
        broker.fault = first(ApiKey.END_TXN, fault, fault)
        await (client.commit_transaction() if ends == "commit" else client.abort_transaction())
        assert broker.visible == ([b"x"] if ends == "commit" else [])
        assert broker.count(ApiKey.END_TXN) == 3
        async with client.transaction():
            await client.send(TOPIC, b"y")
        assert broker.visible[-1] == b"y"


@pytest.mark.parametrize("fault", [LOSE_REQUEST, LOSE_REPLY], ids=["request", "reply"])
@GENERATIONS
@story
async def test_a_commit_without_an_answer_is_never_turned_into_an_abort(
    uses_v2: bool, fault: int
) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker:
        client = producer(broker, max_block_ms=200)
        async with client:
            transaction = client.transaction()
            await transaction.__aenter__()
            await client.send(TOPIC, b"x")
            broker.fault = lambda key: fault if key is ApiKey.END_TXN else 0
            with pytest.raises(CommitOutcomeUnknown, match="commit again"):
                await transaction.__aexit__(None, None, None)
            for call in (client.abort_transaction, client.begin_transaction):
                with pytest.raises(InvalidTransactionState, match="commit again"):
                    await call()
            with pytest.raises(InvalidTransactionState):
                await client.send(TOPIC, b"y")
            with pytest.raises(CommitOutcomeUnknown):
                await client.commit_transaction()
            broker.fault = lambda _: 0
            await client.commit_transaction()
            assert broker.visible == [b"x"]
            assert broker.aborted == []


@story
async def test_a_producer_that_is_closed_asks_for_its_commit_once_more() -> None:
    async with FakeCoordinator(uses_v2=True) as broker:
        async with producer(broker, max_block_ms=100) as client:
            await client.begin_transaction()
            await client.send(TOPIC, b"x")
            broker.fault = lambda key: LOSE_REQUEST if key is ApiKey.END_TXN else 0
            with pytest.raises(CommitOutcomeUnknown):
                await client.commit_transaction()
            broker.fault = lambda _: 0
        assert broker.visible == [b"x"]


@story
async def test_a_commit_that_was_cancelled_before_it_was_asked_for_can_be_aborted() -> None:
    async with FakeCoordinator(uses_v2=True) as broker, producer(broker) as client:
        await client.begin_transaction()
        await client.send(TOPIC, b"x")
        hold, held = asyncio.Event(), broker.answers[ApiKey.PRODUCE]

        async def late(request: Any) -> Any:
            await hold.wait()
            return held(request)

        broker.answers[ApiKey.PRODUCE] = late
        client.submit(TOPIC, b"y")
        count = broker.count(ApiKey.PRODUCE)
        commit = asyncio.ensure_future(client.commit_transaction())
        await broker.until(lambda: broker.count(ApiKey.PRODUCE) > count)
        commit.cancel()
        with pytest.raises(asyncio.CancelledError):
            await commit
        hold.set()
        await client.abort_transaction()
        assert broker.visible == []
        assert sorted(broker.aborted) == [b"x", b"y"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
    ],
    ids=lambda code: code.name,
)
@GENERATIONS
@story
async def test_every_request_is_repeated_while_the_coordinator_is_not_ready(
    uses_v2: bool, code: ErrorCode
) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker:
        seen: set[ApiKey] = set()

        def once(key: ApiKey) -> int:
            if key in seen:
                return 0
            seen.add(key)
            return code

        broker.fault = once
        async with producer(broker) as client, client.transaction():
            await client.send(TOPIC, b"x")
            await client.send_offsets({TopicPartition("in", 0): 5}, "group")
        assert broker.visible == [b"x"]
        assert broker.offsets == {("in", 0): 5}


@GENERATIONS
@story
async def test_after_a_failed_record_nothing_of_the_transaction_is_seen(uses_v2: bool) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker) as client:
        for code in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            await client.begin_transaction()
            await client.send(TOPIC, b"before", partition=0)
            broker.fault = first(ApiKey.PRODUCE, code)
            client.submit(TOPIC, b"spoilt", partition=0)
            with pytest.raises(AbortableError):
                await client.commit_transaction()
            with pytest.raises(AbortableError):
                client.submit(TOPIC, b"after")
            await client.abort_transaction()
            async with client.transaction():
                await client.send(TOPIC, b"good", partition=0)
            assert broker.visible.pop() == b"good"
        assert broker.visible == []
        renewals = [r for r in broker.asked if isinstance(r, InitProducerIdRequest)][1:]
        assert len(renewals) == (0 if uses_v2 else 2)


@GENERATIONS
@story
async def test_waiting_sends_end_as_soon_as_the_transaction_is_spoilt(uses_v2: bool) -> None:
    lingers: Any = {"linger_ms": 60_000}
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker, **lingers) as client:
        await client.begin_transaction()
        waiting = asyncio.ensure_future(client.send(TOPIC, b"lingers", partition=1))
        await asyncio.sleep(0)
        broker.fault = first(ApiKey.PRODUCE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        client.submit(TOPIC, bytes(300_000), partition=0)  # two full batches
        client.submit(TOPIC, bytes(300_000), partition=0)
        with pytest.raises(TransactionAborted, match="topic"):
            await waiting
        with pytest.raises(AbortableError) as raised:
            await client.commit_transaction()
        assert isinstance(raised.value.__cause__, TopicForbidden)
        await client.abort_transaction()
        await client.flush()  # the abort has told of what failed


@story
async def test_partitions_that_cannot_be_added_end_the_transaction() -> None:
    async with FakeCoordinator(uses_v2=False) as broker, producer(broker) as client:
        broker.fault = first(ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        await client.begin_transaction()
        with pytest.raises(TransactionAborted):
            await client.send(TOPIC, b"x")
        await client.abort_transaction()
        async with client.transaction():
            await client.send(TOPIC, b"y")
        assert broker.visible == [b"y"]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (ErrorCode.PRODUCER_FENCED, ProducerFenced),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ProducerFenced),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionForbidden),
    ],
)
@pytest.mark.parametrize("key", [ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT])
@story
async def test_a_fenced_producer_says_so_from_then_on(
    key: ApiKey, code: ErrorCode, error: type[Exception]
) -> None:
    async with FakeCoordinator(uses_v2=True) as broker, producer(broker) as client:
        broker.fault = first(key, code)
        await client.begin_transaction()
        client.submit(TOPIC, b"x")
        offsets = {TopicPartition("in", 0): 5}

        async def end() -> None:
            await client.send_offsets(offsets, "group")
            await client.commit_transaction()

        with pytest.raises(error):
            await end()
        for call in (client.begin_transaction, client.commit_transaction, client.abort_transaction):
            with pytest.raises(error):
                await call()
        with pytest.raises(error):
            await client.send(TOPIC, b"y")


@story
async def test_a_batch_of_an_old_epoch_leaves_it_to_the_coordinator_to_say_why() -> None:
    async with FakeCoordinator(uses_v2=True) as broker, producer(broker) as client:
        await client.begin_transaction()
        broker.epoch += 2  # another producer has come and has ended a transaction
        with pytest.raises(AbortableError):
            await client.send(TOPIC, b"x")
        with pytest.raises(ProducerFenced, match="transaction_timeout_ms"):
            await client.abort_transaction()


@story
async def test_a_commit_that_comes_after_the_timeout_does_not_end_the_producer() -> None:
    async with FakeCoordinator(uses_v2=True) as broker, producer(broker) as client:

        async def late() -> None:
            async with client.transaction():
                await client.send(TOPIC, b"late")
                broker.fault = first(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE)

        with pytest.raises(AbortableError, match="may have timed out"):
            await late()
        async with client.transaction():
            await client.send(TOPIC, b"next")
        assert broker.visible == [b"next"]


@story
async def test_a_first_generation_commit_without_a_transaction_is_fatal() -> None:
    """Nothing tells its transaction from the one before, which has the same epoch."""
    async with FakeCoordinator(uses_v2=False) as broker, producer(broker) as client:
        broker.fault = first(ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE)
        await client.begin_transaction()
        client.submit(TOPIC, b"x")
        for call in (client.commit_transaction, client.abort_transaction):
            with pytest.raises(FatalError, match="may have timed out"):
                await call()


@GENERATIONS
@story
async def test_a_member_that_the_group_has_gone_on_without_cannot_commit(uses_v2: bool) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker) as client:
        broker.fault = first(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION)
        await client.begin_transaction()
        member = GroupMetadata("group", "member", 3)
        with pytest.raises(AbortableError) as raised:
            await client.send_offsets({TopicPartition("in", 0): 5}, member)
        assert isinstance(raised.value.__cause__, CommitFailed)
        with pytest.raises(AbortableError):
            await client.commit_transaction()
        await client.abort_transaction()
        async with client.transaction() as transaction:
            await transaction.send_offsets({TopicPartition("in", 0): 6}, member)
        assert broker.offsets == {("in", 0): 6}


@GENERATIONS
@story
async def test_offsets_whose_reply_never_came_are_not_committed_by_chance(uses_v2: bool) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker:
        async with producer(broker, max_block_ms=100) as client:
            await client.begin_transaction()
            broker.fault = lambda key: LOSE_REPLY if key is ApiKey.TXN_OFFSET_COMMIT else 0
            with pytest.raises(AbortableError):
                await client.send_offsets({TopicPartition("in", 0): 5}, "group")
            with pytest.raises(AbortableError):
                await client.commit_transaction()
            await client.abort_transaction()
        assert broker.offsets == {}


@story
async def test_what_the_coordinator_never_heard_of_does_not_keep_the_producer_from_going_on() -> (
    None
):
    async with FakeCoordinator(uses_v2=False) as broker:
        async with producer(
            broker, max_block_ms=2000, request_timeout_ms=100, delivery_timeout_ms=200
        ) as client:
            await client.begin_transaction()
            broker.fault = lambda key: LOSE_REQUEST if key is ApiKey.ADD_PARTITIONS_TO_TXN else 0
            with pytest.raises((TransactionAborted, DeliveryTimedOut)):
                await client.send(TOPIC, b"x")
            broker.fault = lambda _: 0
            await client.abort_transaction()
            async with client.transaction():
                await client.send(TOPIC, b"y")
        assert broker.visible == [b"y"]


@story
async def test_a_record_that_waits_for_its_topic_does_not_get_into_the_next_transaction() -> None:
    async with FakeCoordinator(uses_v2=True) as broker:
        topics, broker.topics = broker.topics, []
        async with producer(broker) as client:
            await client.begin_transaction()
            waiting = asyncio.ensure_future(client.send(TOPIC, b"old"))
            await broker.until(lambda: broker.count(ApiKey.METADATA) > 1)
            await client.abort_transaction()
            with pytest.raises(TransactionAborted):
                await waiting
            broker.topics = topics
            async with client.transaction():
                await client.send(TOPIC, b"new")
        assert broker.visible == [b"new"]


@story
async def test_a_record_that_waits_for_room_does_not_get_into_the_next_transaction() -> None:
    async with FakeCoordinator(uses_v2=True) as broker:
        async with producer(broker, buffer_memory=100_000, max_request_size=90_000) as client:
            await client.begin_transaction()
            hold, held = asyncio.Event(), broker.answers[ApiKey.PRODUCE]

            async def late(request: Any) -> Any:
                await hold.wait()
                return held(request)

            broker.answers[ApiKey.PRODUCE] = late
            first_one = asyncio.ensure_future(client.send(TOPIC, bytes(80_000), partition=0))
            await broker.until(lambda: broker.count(ApiKey.PRODUCE) == 1)
            second = asyncio.ensure_future(client.send(TOPIC, bytes(80_001), partition=0))
            await asyncio.sleep(0)
            abort = asyncio.ensure_future(client.abort_transaction())
            await asyncio.sleep(0)
            hold.set()
            await abort
            await first_one
            with pytest.raises(InvalidTransactionState):
                await second
            broker.answers[ApiKey.PRODUCE] = held
            async with client.transaction():
                await client.send(TOPIC, b"new")
        assert broker.visible == [b"new"]


@GENERATIONS
@story
async def test_two_tasks_cannot_end_a_transaction_at_once(uses_v2: bool) -> None:
    async with FakeCoordinator(uses_v2=uses_v2) as broker, producer(broker) as client:
        await client.begin_transaction()
        await client.send(TOPIC, b"x")
        results = await asyncio.gather(
            client.commit_transaction(), client.abort_transaction(), return_exceptions=True
        )
        assert results[0] is None
        assert isinstance(results[1], InvalidTransactionState)
        assert broker.visible == [b"x"]


@story
async def test_two_phase_commit() -> None:
    async with FakeCoordinator(uses_v2=True) as broker:
        settings: Any = {"transaction_two_phase_commit_enable": True}
        async with producer(broker, **settings) as client:
            await client.begin_transaction()
            client.submit(TOPIC, b"x")
            prepared = await client.prepare_transaction()
            assert broker.pending == [b"x"]
            assert client.prepared_transaction == prepared
            with pytest.raises(InvalidTransactionState, match="is prepared"):
                await client.send(TOPIC, b"y")
            assert await client.complete_transaction(prepared)
            assert broker.visible == [b"x"]
            await client.begin_transaction()
            client.submit(TOPIC, b"z")
            await client.prepare_transaction()
            assert not await client.complete_transaction(prepared)  # that was another one
            assert broker.aborted == [b"z"]
            await client.begin_transaction()
            client.submit(TOPIC, b"left")
            await client.prepare_transaction()
        assert broker.pending == [b"left"]  # it stays when the producer is closed
        inits = [r for r in broker.asked if isinstance(r, InitProducerIdRequest)]
        assert all(each.enable_2pc for each in inits)


@story
async def test_preparing_needs_the_setting() -> None:
    async with FakeCoordinator(uses_v2=True) as broker, producer(broker) as client:
        await client.begin_transaction()
        with pytest.raises(InvalidTransactionState, match="transaction_two_phase_commit_enable"):
            await client.prepare_transaction()
