"""The producer and brokers that refuse, stall, move and vanish."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harness.wire import Wire
from headwater import _core
from headwater.client.errors import (
    BrokersUnavailable,
    BufferFull,
    ClientClosed,
    ClusterForbidden,
    DeliveryTimedOut,
    InvalidRecord,
    NotEnoughReplicas,
    NotKafka,
    RecordTooLarge,
    RequestTimedOut,
    TopicForbidden,
    UnknownTopic,
    UnsupportedVersion,
)
from headwater.client.producer import Producer
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.init_producer_id import InitProducerIdResponse
from headwater.protocol.messages.metadata import MetadataRequest, MetadataResponseTopic
from headwater.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import FakeBroker, HangUp, one_topic, story

QUICK: dict[str, Any] = {
    "retry_backoff_ms": 1,
    "retry_backoff_max_ms": 5,
    "reconnect_backoff_ms": 1,
    "reconnect_backoff_max_ms": 5,
}


def queued_bytes(producer: Producer) -> float:
    """Returns the bytes of the buffer that records without an outcome take."""
    measured = producer.metrics()
    return measured["buffer-total-bytes"] - measured["buffer-available-bytes"]


class Partition:
    """A broker's log of one partition: keeps what it takes, and says what it is told first."""

    def __init__(self, broker: FakeBroker, topic: str = "t") -> None:
        self.broker = broker
        self.script: deque[Any] = deque()  # codes, results or exceptions for the next requests
        self.batches: list[_core.Batch] = []  # of all requests
        self.values: list[bytes | None] = []  # that were taken
        self.ids = 0
        self.seen: set[tuple[int, int, int]] = set()
        broker.topics = [one_topic(topic, leader=broker.node_id)]
        broker.answers[ApiKey.INIT_PRODUCER_ID] = self._give_id
        broker.answers[ApiKey.PRODUCE] = self._produce

    def _give_id(self, _: object) -> InitProducerIdResponse:
        self.ids += 1
        return InitProducerIdResponse(producer_id=self.ids, producer_epoch=0)

    def _produce(self, request: ProduceRequest) -> Any:
        ((data,),) = (topic.partition_data for topic in request.topic_data)
        batch = _core.validate(data.records or b"")
        self.batches.append(batch)
        told = self.script.popleft() if self.script else ErrorCode.NONE
        if callable(told):
            told = told()
        if isinstance(told, PartitionProduceResponse | ProduceResponse):
            return told if isinstance(told, ProduceResponse) else answer(request, told)
        if isinstance(told, Exception):
            raise told
        if told is None:
            return None
        result = PartitionProduceResponse(error_code=told, base_offset=len(self.values))
        if told == ErrorCode.NONE:
            self.take(data.records or b"", batch)
        if request.acks == 0:
            return None
        return answer(request, result)

    def take(self, records: Any, batch: _core.Batch) -> None:
        identity = (batch.producer_id, batch.producer_epoch, batch.base_sequence)
        if batch.producer_id >= 0 and identity in self.seen:
            return
        self.seen.add(identity)
        self.values += [record.value for record in _core.decode(records)]


def answer(request: ProduceRequest, result: PartitionProduceResponse) -> ProduceResponse:
    (topic,) = request.topic_data
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=[result]
            )
        ]
    )


@story
async def test_what_may_go_away_is_sent_again() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script += [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE]
        async with Producer(broker.bootstrap, **QUICK) as producer:
            assert (await producer.send("t", b"x")).offset == 0
            assert producer.metrics()["record-retry-total"] == 2
        assert [batch.base_sequence for batch in partition.batches] == [0, 0, 0]
        assert partition.values == [b"x"]


@story
async def test_a_broker_that_vanishes_before_it_answers_writes_nothing_twice() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)

        def written_and_gone() -> Exception:
            records = broker.asked[-1].topic_data[0].partition_data[0].records  # type: ignore[attr-defined]
            partition.take(records, partition.batches[-1])
            return HangUp()

        async with Producer(broker.bootstrap, batch_size=1000, **QUICK) as producer:
            await producer.send("t", b"first")
            partition.script += [written_and_gone, HangUp(), ErrorCode.NONE, HangUp()]
            for number in range(200):
                producer.submit("t", f"{number:>90}")
            await producer.flush()
        assert partition.values == [b"first", *(f"{n:>90}".encode() for n in range(200))]


@story
async def test_order_is_kept_when_a_batch_in_the_middle_fails() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        gap = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        async with Producer(broker.bootstrap, batch_size=500, **QUICK) as producer:
            await producer.send("t", b"first")
            # What follows a batch that failed is out of order for the broker, until it comes again.
            partition.script += [ErrorCode.NOT_ENOUGH_REPLICAS, gap, gap, gap, gap]
            for number in range(40):
                producer.submit("t", f"{number:>90}")
            await producer.flush()
            assert producer.metrics()["epoch-bump-total"] == 0
        assert partition.values == [b"first", *(f"{n:>90}".encode() for n in range(40))]


@story
async def test_a_broker_that_has_forgotten_the_producer_is_given_a_new_epoch() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        async with Producer(broker.bootstrap, **QUICK) as producer:
            await producer.send("t", b"one")
            partition.script.append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            await producer.send("t", b"two")
            await producer.send("t", b"three")
            assert producer.metrics()["epoch-bump-total"] == 1
        assert [(b.producer_epoch, b.base_sequence) for b in partition.batches] == [
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
        ]
        assert partition.values == [b"one", b"two", b"three"]


@story
async def test_behind_a_batch_that_was_refused_sequences_start_anew() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        async with Producer(broker.bootstrap, **QUICK) as producer:
            await producer.send("t", b"one")
            partition.script.append(ErrorCode.INVALID_RECORD)
            with pytest.raises(InvalidRecord):
                await producer.send("t", b"bad")
            await producer.send("t", b"two")
        assert [(b.producer_epoch, b.base_sequence) for b in partition.batches][-1] == (1, 0)


@story
async def test_a_record_that_the_broker_blames_is_named_and_the_others_too() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script.append(
            PartitionProduceResponse(
                error_code=ErrorCode.INVALID_RECORD,
                error_message="one of them has no key",
                record_errors=[
                    BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")
                ],
            )
        )
        async with Producer(broker.bootstrap, linger_ms=5, **QUICK) as producer:
            ends = await asyncio.gather(
                *(producer.send("t", str(number)) for number in range(3)), return_exceptions=True
            )
        assert [type(end) for end in ends] == [InvalidRecord] * 3
        assert [str(end).endswith(": no key") for end in ends] == [False, True, False]
        assert all("one of them has no key" in str(end) for end in ends)


@story
async def test_a_batch_that_is_too_large_is_split() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)

        def limited() -> Any:
            partition.script.appendleft(limited)
            fits = partition.batches[-1].count <= 10
            return ErrorCode.NONE if fits else ErrorCode.MESSAGE_TOO_LARGE

        async with Producer(broker.bootstrap, linger_ms=50, **QUICK) as producer:
            await producer.send("t", b"first")
            partition.script.append(limited)
            sends = [producer.send("t", f"{number:>50}") for number in range(100)]
            done = await asyncio.gather(*sends)
            assert producer.metrics()["batch-split-total"] > 3
            assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory
        assert [metadata.offset for metadata in done] == list(range(1, 101))
        assert partition.values[1:] == [f"{number:>50}".encode() for number in range(100)]


@story
async def test_a_lone_record_that_the_broker_finds_too_large_is_refused() -> None:
    async with FakeBroker() as broker:
        Partition(broker).script.append(ErrorCode.MESSAGE_TOO_LARGE)
        async with Producer(broker.bootstrap, **QUICK) as producer:
            said = r"1 record \(\d{4} bytes\) for t-0.*max\.message\.bytes"
            with pytest.raises(RecordTooLarge, match=said):
                await producer.send("t", bytes(1000))


@story
async def test_a_hint_sends_the_batch_to_the_new_leader_without_a_question() -> None:
    async with FakeBroker(1) as old, FakeBroker(2) as new:
        partition, moved = Partition(old), Partition(new)
        old.neighbours = [new]
        async with Producer(old.bootstrap, **QUICK) as producer:
            await producer.send("t", b"one")
            asked = old.count(ApiKey.METADATA) + new.count(ApiKey.METADATA)

            def refuse() -> ProduceResponse:
                request: Any = old.asked[-1]
                result = PartitionProduceResponse(
                    error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5),
                )
                response = answer(request, result)
                host, port = new.address
                response.node_endpoints = [NodeEndpoint(node_id=2, host=host, port=port)]
                return response

            partition.script.append(refuse)
            await producer.send("t", b"two")
            assert old.count(ApiKey.METADATA) + new.count(ApiKey.METADATA) == asked
        assert (partition.values, moved.values) == ([b"one"], [b"two"])


@story
async def test_without_a_hint_metadata_is_asked() -> None:
    async with FakeBroker(1) as old, FakeBroker(2) as new:
        partition, moved = Partition(old), Partition(new)
        old.neighbours = [new]
        async with Producer(old.bootstrap, **QUICK) as producer:
            await producer.send("t", b"one")
            partition.script += [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 100
            old.topics = new.topics = [one_topic("t", leader=2, epoch=1)]
            new.neighbours = [old]
            await producer.send("t", b"two")
        assert moved.values == [b"two"]


@story
async def test_old_brokers_are_sent_names_and_old_versions() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        broker.topics = [one_topic("t", topic_id=bytes(16))]
        async with Producer(broker.bootstrap, **QUICK) as producer:
            await producer.send("t", b"x")
        assert (ApiKey.PRODUCE, 12) in broker.versions_asked
        assert partition.values == [b"x"]


def limited_versions(broker: FakeBroker, **most: int) -> Callable[[Any], Any]:
    """Versions of a broker that knows some requests only up to a version; -1: not at all."""

    def versions(_: object) -> Any:
        known = broker.versions()
        for name, newest in most.items():
            key = ApiKey[name]
            known.api_keys = [each for each in known.api_keys if each.api_key != key or newest >= 0]
            for each in known.api_keys:
                if each.api_key == key:
                    each.max_version = newest
        return known

    return versions


@pytest.mark.parametrize("newest", [3, 7, 8, 9, 12])
@story
async def test_every_version_of_produce_can_be_sent(newest: int) -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        broker.answers[ApiKey.API_VERSIONS] = limited_versions(broker, PRODUCE=newest)
        async with Producer(broker.bootstrap, **QUICK) as producer:
            assert (await producer.send("t", b"x")).offset == 0
        assert (ApiKey.PRODUCE, newest) in broker.versions_asked
        assert partition.values == [b"x"]


@story
async def test_zstd_is_not_sent_to_a_broker_that_cannot_read_it() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        broker.answers[ApiKey.API_VERSIONS] = limited_versions(broker, PRODUCE=6)
        async with Producer(broker.bootstrap, compression_type="zstd", **QUICK) as producer:
            with pytest.raises(UnsupportedVersion, match="zstd"):
                await producer.send("t", b"x")


@story
async def test_a_broker_without_producer_ids_is_refused_unless_told_otherwise() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        broker.answers[ApiKey.API_VERSIONS] = limited_versions(broker, INIT_PRODUCER_ID=-1)
        with pytest.raises(UnsupportedVersion, match="enable_idempotence=False"):
            await Producer(broker.bootstrap, **QUICK).start()
        async with Producer(broker.bootstrap, enable_idempotence=False, **QUICK) as producer:
            await producer.send("t", b"x")
        assert partition.batches[0].producer_id == -1


@story
async def test_a_principal_that_may_have_no_id_is_told() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda _: InitProducerIdResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        )
        with pytest.raises(ClusterForbidden, match=r"producer id.*enable_idempotence=False"):
            await Producer(broker.bootstrap, **QUICK).start()


@story
async def test_an_id_may_take_a_while() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        codes = deque([ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])

        def later(_: object) -> InitProducerIdResponse:
            if codes:
                return InitProducerIdResponse(error_code=codes.popleft())
            return InitProducerIdResponse(producer_id=9, producer_epoch=0)

        broker.answers[ApiKey.INIT_PRODUCER_ID] = later
        async with Producer(broker.bootstrap, **QUICK) as producer:
            await producer.send("t", b"x")
        assert partition.batches[0].producer_id == 9


@story
async def test_a_forbidden_topic_is_said_and_the_producer_lives() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        async with Producer(broker.bootstrap, **QUICK) as producer:
            with pytest.raises(TopicForbidden, match="t-0"):
                await producer.send("t", b"x")
            await producer.send("t", b"y")
        assert partition.values == [b"y"]


@story
async def test_retries_can_be_bounded() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script += [ErrorCode.NOT_ENOUGH_REPLICAS] * 3
        async with Producer(broker.bootstrap, retries=2, **QUICK) as producer:
            with pytest.raises(NotEnoughReplicas):
                await producer.send("t", b"x")
        assert len(partition.batches) == 3


@story
async def test_delivery_has_a_deadline() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script += [ErrorCode.NOT_ENOUGH_REPLICAS] * 100_000
        async with Producer(
            broker.bootstrap, delivery_timeout_ms=800, request_timeout_ms=700, linger_ms=0, **QUICK
        ) as producer:
            with pytest.raises(DeliveryTimedOut, match=r"delivery_timeout_ms=800.*REPLICAS"):
                await producer.send("t", b"x")
            producer.submit("t", b"y")
            with pytest.raises(DeliveryTimedOut, match="1 record was not delivered"):
                await producer.flush()
            assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory
            partition.script.clear()
            await producer.send("t", b"z")
        assert partition.values == [b"z"]


@story
async def test_a_broker_that_never_answers_is_given_up() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script += [None] * 1000
        async with Producer(
            broker.bootstrap, delivery_timeout_ms=150, request_timeout_ms=40, linger_ms=0, **QUICK
        ) as producer:
            with pytest.raises(DeliveryTimedOut, match="did not answer Produce"):
                await producer.send("t", b"x")


@story
async def test_closing_has_a_deadline() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script += [None] * 10
        producer = Producer(broker.bootstrap, **QUICK)
        await producer.start()
        awaited = asyncio.ensure_future(producer.send("t", b"x"))
        await broker.until(lambda: broker.count(ApiKey.PRODUCE) == 1)
        producer.submit("t", b"y")
        with pytest.raises(ClientClosed, match=r"1 record was not delivered.*timeout_ms=10"):
            await producer.close(timeout_ms=10)
        with pytest.raises(ClientClosed, match="may have been written"):
            await awaited


@story
async def test_flush_can_have_a_deadline() -> None:
    async with FakeBroker() as broker:
        Partition(broker).script += [None] * 10
        producer = Producer(broker.bootstrap, **QUICK)
        await producer.start()
        producer.submit("t", b"y")
        with pytest.raises(RequestTimedOut, match="1 batch was"):
            await producer.flush(timeout_ms=20)
        with pytest.raises(ClientClosed):
            await producer.close(timeout_ms=0)


def submit_many(producer: Producer, count: int) -> None:
    for _ in range(count):
        producer.submit("t", bytes(1000))


@story
async def test_memory_is_bounded_while_a_broker_stalls() -> None:
    async with FakeBroker() as broker:
        Partition(broker).script += [None] * 100
        producer = Producer(
            broker.bootstrap, buffer_memory=50_000, batch_size=10_000, max_block_ms=50, **QUICK
        )
        await producer.start()
        await producer.partitions_for("t")
        submit_many(producer, 40)
        with pytest.raises(BufferFull, match=r"buffer_memory=50000.*max_block_ms=50"):
            submit_many(producer, 20)
        with pytest.raises(BufferFull, match="max_block_ms=50"):
            await producer.send("t", bytes(1000))
        assert producer.metrics()["buffer-available-bytes"] >= 0
        with pytest.raises(ClientClosed):
            await producer.close(timeout_ms=0)


@story
async def test_a_topic_that_never_comes_is_said_within_max_block_ms() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        missing = MetadataResponseTopic(
            name="u", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partitions=[]
        )
        broker.topics.append(missing)
        async with Producer(broker.bootstrap, max_block_ms=60, **QUICK) as producer:
            with pytest.raises(UnknownTopic, match=r"topic u.*max_block_ms=60"):
                await producer.send("u", b"x")
            producer.submit("u", b"x")
            producer.submit("u", b"y")
            with pytest.raises(UnknownTopic, match="2 records were not delivered"):
                await producer.flush()
            assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory


@story
async def test_a_topic_that_is_gone_for_a_while_is_waited_for() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        there = broker.topics
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with Producer(broker.bootstrap, **QUICK) as producer:
            await producer.send("t", b"one")
            broker.topics = [MetadataResponseTopic(name="t", error_code=gone, partitions=[])]
            partition.script.append(gone)
            asked = broker.count(ApiKey.METADATA)
            two = asyncio.ensure_future(producer.send("t", b"two"))
            await broker.until(lambda: broker.count(ApiKey.METADATA) > asked + 2)
            three = asyncio.ensure_future(producer.send("t", b"three"))
            await broker.until(lambda: broker.count(ApiKey.METADATA) > asked + 4)
            broker.topics = there
            assert (await two).offset == 1
            assert (await three).offset == 2
        assert partition.values == [b"one", b"two", b"three"]


@story
async def test_partitions_that_are_added_are_used() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        async with Producer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as producer:
            await producer.send("t", b"x")
            with pytest.raises(UnknownTopic):
                producer.submit("t", b"x", partition=1)
            grown = one_topic("t")
            grown.partitions.append(
                type(grown.partitions[0])(
                    partition_index=1, leader_id=1, leader_epoch=0, replica_nodes=[1]
                )
            )
            broker.topics = [grown]
            while len(await producer.partitions_for("t")) < 2:
                await broker.changed()
            producer.submit("t", b"y", partition=1)
            await producer.flush()


@story
async def test_dead_addresses_and_other_services_are_told_apart() -> None:
    with pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1"):
        await Producer("127.0.0.1:1", start_timeout_ms=200).start()

    async def http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(http, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(NotKafka, match="HTTP"):
        await Producer(f"127.0.0.1:{port}", start_timeout_ms=2000).start()
    server.close()


@story
async def test_a_broker_that_restarts_in_the_middle_loses_and_repeats_nothing() -> None:
    with EmbeddedBroker() as broker:
        async with Producer(broker.bootstrap, batch_size=2000, **QUICK) as producer:
            sent = 0

            async def give() -> None:
                nonlocal sent
                while not stopping.is_set():
                    for _ in range(20):
                        producer.submit("t", f"{sent:>100}")
                        sent += 1
                    await producer.flush()

            stopping = asyncio.Event()
            giving = asyncio.create_task(give())
            for _ in range(3):
                await producer.send("u", b"alive")
                await asyncio.to_thread(broker.restart)
            await producer.send("u", b"alive")
            stopping.set()
            await giving
        with Wire(broker.bootstrap) as wire:
            assert [int(value or b"") for value in wire.values("t")] == list(range(sent))
            assert len(wire.values("u")) == 4


@story
async def test_who_closes_a_second_time_waits_for_the_first_and_may_hurry_it() -> None:
    async with FakeBroker() as broker:
        partition = Partition(broker)
        partition.script.append(None)
        producer = Producer(broker.bootstrap)
        await producer.start()
        sending = asyncio.create_task(producer.send("t", b"x"))
        await broker.until(lambda: broker.count(ApiKey.PRODUCE) == 1)
        first = asyncio.create_task(producer.close())
        second = asyncio.create_task(producer.close())
        third = asyncio.create_task(producer.close(timeout_ms=600_000))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(second), 0.05)
        await producer.close(timeout_ms=30)
        await asyncio.gather(first, second, third)
        with pytest.raises(ClientClosed, match="timeout_ms=30 has passed"):
            await sending


@story
async def test_a_topic_that_is_idle_is_not_asked_for_until_it_is_used_again() -> None:
    def names() -> list[list[str | None]]:
        """Returns the topics of each metadata request."""
        asked = [each for each in broker.asked if isinstance(each, MetadataRequest)]
        return [[topic.name for topic in each.topics or ()] for each in asked]

    async with FakeBroker() as broker:
        partition = Partition(broker)
        async with Producer(broker.bootstrap, metadata_max_age_ms=20, **QUICK) as producer:
            await producer.send("t", b"one")
            for _ in range(2):  # as a timer does every metadata_max_idle_ms
                producer._open().topics.let_go()
            before = len(names())
            await broker.until(lambda: len(names()) == before + 3)
            assert names()[-1] == []
            await producer.send("t", b"two")
            await broker.until(lambda: names()[-1] == ["t"])
        assert partition.values == [b"one", b"two"]
        assert [each.base_sequence for each in partition.batches] == [0, 1]


@story
async def test_without_acknowledgements_closing_waits_until_the_kernel_has_all() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        may_read = asyncio.Event()
        received = 0

        async def read_later(request: ProduceRequest) -> None:
            nonlocal received
            await may_read.wait()
            ((data,),) = (topic.partition_data for topic in request.topic_data)
            received += _core.validate(data.records or b"").count

        broker.answers[ApiKey.PRODUCE] = read_later
        async with Producer(broker.bootstrap, acks=0) as producer:
            for _ in range(200):  # far more than the buffers of two sockets
                producer.submit("t", bytes(100_000))
            with pytest.raises(RequestTimedOut):
                await producer.flush(timeout_ms=50)
            assert queued_bytes(producer) > 0
            may_read.set()
        await broker.until(lambda: received == 200)


@asynccontextmanager
async def starting() -> AsyncIterator[tuple[Producer, asyncio.Task[None], asyncio.Event]]:
    """A producer whose first question is answered when the event is set."""
    async with FakeBroker() as broker:
        Partition(broker)
        metadata = broker.answers[ApiKey.METADATA]
        may_answer = asyncio.Event()

        async def late(request: Any) -> Any:
            await may_answer.wait()
            return metadata(request)

        broker.answers[ApiKey.METADATA] = late
        producer = Producer(broker.bootstrap)
        task = asyncio.create_task(producer.start())
        await broker.until(lambda: broker.count(ApiKey.METADATA) == 1)
        yield producer, task, may_answer


@story
async def test_a_producer_that_is_still_starting_says_so() -> None:
    async with starting() as (producer, task, may_answer):
        for call in (producer.send("t", b"x"), producer.flush(), producer.partitions_for("t")):
            with pytest.raises(ClientClosed, match=r"await start\(\)"):
                await call
        for plain in (lambda: producer.submit("t", b"x"), producer.metrics):
            with pytest.raises(ClientClosed, match=r"await start\(\)"):
                plain()
        may_answer.set()
        await task
        await producer.send("t", b"x")
        await producer.close()


@story
async def test_a_producer_that_is_closed_while_it_starts_is_closed() -> None:
    async with starting() as (producer, task, may_answer):
        await producer.close(timeout_ms=1)
        closing = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        may_answer.set()
        await closing
        with pytest.raises(ClientClosed, match="while it started"):
            await task
        with pytest.raises(ClientClosed, match="create a new one"):
            await producer.send("t", b"x")
        await producer.close()


@story
async def test_closing_a_producer_that_waits_for_its_id_does_not_wait_for_the_broker() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        broker.answers[ApiKey.INIT_PRODUCER_ID] = lambda _: None
        producer = Producer(broker.bootstrap)
        task = asyncio.create_task(producer.start())
        await broker.until(lambda: broker.count(ApiKey.INIT_PRODUCER_ID) == 1)
        async with asyncio.timeout(producer.config.request_timeout_ms / 2000):
            await producer.close()
        with pytest.raises(ClientClosed, match="while it started"):
            await task


@story
async def test_a_broker_that_does_not_tell_of_a_topic_is_waited_for_within_max_block_ms() -> None:
    async with FakeBroker() as broker:
        Partition(broker)
        async with Producer(broker.bootstrap, max_block_ms=50, **QUICK) as producer:
            broker.topics = []
            broker.answers[ApiKey.METADATA] = lambda _: None
            with pytest.raises(RequestTimedOut, match=r"new: no broker answered.*max_block_ms=50"):
                await producer.send("new", b"x")
            assert queued_bytes(producer) == 0
