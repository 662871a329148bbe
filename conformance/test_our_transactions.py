"""Our transactional clients against Apache Kafka, in both generations of the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import pytest

from harness.nodes import Kafka, Node
from headwater import (
    AbortableError,
    Admin,
    CommitFailed,
    Consumer,
    FeatureUpdate,
    GroupMetadata,
    InvalidTransactionState,
    Producer,
    ProducerFenced,
    RecordTooLarge,
    TopicPartition,
    TransactionAborted,
    UnsupportedVersion,
    UpgradeType,
    _core,
    blocking,
    exactly_once,
)
from headwater.client.cluster import Cluster
from headwater.client.config import ClientConfig
from headwater.client.producer.shared import TransactionOwner, joining
from headwater.client.ranges import RangeReader
from headwater.io import Host

PROTOCOLS: tuple[Literal["classic", "consumer"], ...] = ("classic", "consumer")
FEATURE = "transaction.version"


class Judge(NamedTuple):
    bootstrap: str
    level: int


async def set_level(bootstrap: str, level: int) -> None:
    async with Admin(bootstrap) as admin:
        found = (await admin.describe_features()).finalized.get(FEATURE)
        known = 0 if found is None else found.most
        if known != level:
            how = UpgradeType.UPGRADE if level > known else UpgradeType.SAFE_DOWNGRADE
            await admin.update_features({FEATURE: FeatureUpdate(level, how)})


@pytest.fixture(scope="module", params=[2, 1, 0], ids=lambda level: f"level {level}")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, jars: Path
) -> Iterator[Judge]:
    settings = {
        "group.initial.rebalance.delay.ms": "0",
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.num.partitions": "2",
    }
    node = Node(Kafka(jars), tmp_path_factory.mktemp("kafka"), settings).start()
    asyncio.run(set_level(node.bootstrap, request.param))
    yield Judge(node.bootstrap, request.param)
    node.stop()
    node.remove()


async def create(kafka: Judge, *topics: str, partitions: int = 1) -> None:
    async with Admin(kafka.bootstrap) as admin:
        for topic in topics:
            await admin.create_topic(topic, partitions=partitions)


def committed_reader(kafka: Judge, topic: str) -> Consumer[bytes | None, bytes | None]:
    return Consumer(
        kafka.bootstrap,
        topics=[topic],
        auto_offset_reset="earliest",
        isolation_level="read_committed",
    )


async def committed(kafka: Judge, topic: str, count: int) -> list[bytes | None]:
    """The committed records, when there are so many, and whatever comes within a moment."""
    seen: list[bytes | None] = []
    async with committed_reader(kafka, topic) as consumer:
        while len(seen) < count:
            seen += [record.value for record in await consumer.poll(20_000)]
        seen += [record.value for record in await consumer.poll(300)]
    return seen


def test_a_transaction_is_seen_whole_or_not_at_all(kafka: Judge, topic: str) -> None:
    other = f"{topic}-other"

    async def run() -> None:
        await create(kafka, topic, other, partitions=2)
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:
            for number in range(6):
                try:
                    async with producer.transaction():
                        await producer.send(topic, f"{number}a", partition=0)
                        producer.submit(topic, f"{number}b", partition=1)
                        producer.submit(other, f"{number}c", partition=0)
                        if number % 3 == 1:
                            await producer.flush()
                        if number % 3:
                            raise LookupError
                except LookupError:
                    continue
        assert sorted(value or b"" for value in await committed(kafka, topic, 4)) == [
            b"0a",
            b"0b",
            b"3a",
            b"3b",
        ]
        assert await committed(kafka, other, 2) == [b"0c", b"3c"]
        tp = TopicPartition(topic, 0)
        assert await ranged(kafka, tp) == [b"0a", b"3a"]

    asyncio.run(run())


async def ranged(kafka: Judge, tp: TopicPartition) -> list[bytes | None]:
    """The committed records of a partition, as a task of Spark reads them."""
    cluster = Cluster(ClientConfig.build(kafka.bootstrap), Host.system())
    await cluster.start()
    values: list[bytes | None] = []
    try:
        async with committed_reader(kafka, tp.topic) as consumer:
            (end,) = (await consumer.end_offsets(tp)).values()
        async for chunk in RangeReader(cluster, read_committed=True).chunks(tp, 0, end):
            records = _core.FetchedRecords(
                chunk.data,
                topic=tp.topic,
                partition=tp.partition,
                from_offset=chunk.from_offset,
                aborted=chunk.aborted,
            )
            values += [record.value for record in records.take(10_000)]
    finally:
        await cluster.close()
    return values


def test_records_are_refused_outside_of_a_transaction(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        await create(kafka, topic)
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:
            with pytest.raises(InvalidTransactionState, match="no transaction is open"):
                await producer.send(topic, b"x")
            with pytest.raises(InvalidTransactionState):
                producer.submit(topic, b"x")
            async with producer.transaction():
                await producer.send(topic, b"1")
            with pytest.raises(InvalidTransactionState):
                producer.submit(topic, b"x")
            with pytest.raises(InvalidTransactionState):
                await producer.commit_transaction()
        assert await committed(kafka, topic, 1) == [b"1"]

    asyncio.run(run())


def test_a_newer_producer_fences_an_older_one(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        await create(kafka, topic)
        async with Producer(kafka.bootstrap, transactional_id=topic) as older:
            await older.begin_transaction()
            await older.send(topic, b"older")
            async with Producer(kafka.bootstrap, transactional_id=topic) as newer:
                with pytest.raises(ProducerFenced):
                    await older.commit_transaction()
                with pytest.raises(ProducerFenced):
                    await older.begin_transaction()
                async with newer.transaction():
                    await newer.send(topic, b"newer")
        assert await committed(kafka, topic, 1) == [b"newer"]

    asyncio.run(run())


def test_a_transaction_that_took_too_long_does_not_end_a_producer_of_version_2(
    kafka: Judge, topic: str
) -> None:
    async def run() -> None:
        await create(kafka, topic)
        async with Producer(
            kafka.bootstrap, transactional_id=topic, transaction_timeout_ms=500
        ) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"late")
            async with Admin(kafka.bootstrap) as admin, asyncio.timeout(60):
                # Kafka looks for timeouts every ten seconds, and tells nobody.
                while (await admin.describe_transaction(topic)).state != "CompleteAbort":  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
            if kafka.level < 2:
                with pytest.raises(ProducerFenced):
                    await producer.commit_transaction()
                return
            with pytest.raises(AbortableError, match="may have timed out"):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"next")
        assert await committed(kafka, topic, 1) == [b"next"]

    asyncio.run(run())


def test_a_record_that_fails_spoils_its_transaction_and_not_the_next(
    kafka: Judge, topic: str
) -> None:
    async def run() -> None:
        async with Admin(kafka.bootstrap) as admin:
            await admin.create_topic(topic, configs={"max.message.bytes": "1000"})
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:

            async def spoilt() -> None:
                async with producer.transaction():
                    await producer.send(topic, b"with a record that is too large")
                    producer.submit(topic, bytes(5000))

            with pytest.raises(AbortableError) as raised:
                await spoilt()
            assert isinstance(raised.value.__cause__, RecordTooLarge)
            await producer.begin_transaction()
            with pytest.raises(RecordTooLarge):
                await producer.send(topic, bytes(5000))
            with pytest.raises(AbortableError):
                await producer.send(topic, b"after it")
            with pytest.raises(AbortableError):
                await producer.commit_transaction()
            await producer.abort_transaction()
            async with producer.transaction():
                await producer.send(topic, b"good")
        assert await committed(kafka, topic, 1) == [b"good"]

    asyncio.run(run())


def test_an_abort_drops_what_is_queued(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        await create(kafka, topic)
        told: list[Any] = []
        async with Producer(kafka.bootstrap, transactional_id=topic, linger_ms=5000) as producer:
            await producer.begin_transaction()
            producer.submit(topic, b"x", on_delivery=lambda _, error: told.append(error))
            await producer.abort_transaction()
            assert isinstance(told[0], TransactionAborted)
            async with producer.transaction():
                producer.submit(topic, b"y")
        assert await committed(kafka, topic, 1) == [b"y"]

    asyncio.run(run())


def test_a_producer_that_is_closed_in_a_transaction_aborts_it(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        await create(kafka, topic)
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"x")
        async with Admin(kafka.bootstrap) as admin:
            state = (await admin.describe_transaction(topic)).state
            assert state in ("PrepareAbort", "CompleteAbort")

    asyncio.run(run())


def test_epochs_go_on_for_as_many_transactions_as_it_takes(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        await create(kafka, topic, partitions=3)
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:
            first = producer._transactions().state.handle.producer_epoch
            for number in range(30):
                async with producer.transaction():
                    producer.submit(topic, str(number), partition=number % 3)
            last = producer._transactions().state.handle.producer_epoch
            assert last - first == (30 if kafka.level == 2 else 0)
        values = sorted(int(value or b"") for value in await committed(kafka, topic, 30))
        assert values == list(range(30))

    asyncio.run(run())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_are_committed_with_the_transaction_and_only_by_members(
    kafka: Judge, topic: str, protocol: Literal["classic", "consumer"]
) -> None:
    async def run() -> None:
        await create(kafka, topic, f"{topic}-out")
        tp = TopicPartition(topic, 0)
        async with Producer(kafka.bootstrap) as producer:
            for number in range(5):
                await producer.send(topic, str(number))
        async with (
            Consumer(
                kafka.bootstrap,
                group=topic,
                topics=[topic],
                group_protocol=protocol,
                enable_auto_commit=False,
                auto_offset_reset="earliest",
            ) as consumer,
            Producer(kafka.bootstrap, transactional_id=topic) as producer,
        ):
            seen: list[Any] = []
            while len(seen) < 3:
                seen += await consumer.poll(20_000, records_max=3 - len(seen))
            await producer.begin_transaction()
            await producer.send_offsets(consumer)
            await producer.abort_transaction()
            assert (await consumer.committed(tp))[tp] is None
            async with producer.transaction() as transaction:
                await producer.send(f"{topic}-out", b"x")
                await transaction.send_offsets(consumer)
            found = (await consumer.committed(tp))[tp]
            assert found is not None
            assert found.offset == 3

            member = consumer.group_metadata()
            stranger = GroupMetadata(topic, "nobody", member.generation_or_epoch)
            with pytest.raises(AbortableError) as raised:
                async with producer.transaction() as transaction:
                    await transaction.send_offsets({tp: 5}, stranger)
            assert isinstance(raised.value.__cause__, CommitFailed)
            async with producer.transaction() as transaction:
                await transaction.send_offsets({tp: 4}, member)
            found = (await consumer.committed(tp))[tp]
            assert found is not None
            assert found.offset == 4

    asyncio.run(run())


@asynccontextmanager
async def exactly_once_clients(
    kafka: Judge, topic: str, name: str, protocol: Literal["classic", "consumer"]
) -> AsyncIterator[tuple[Consumer[bytes | None, bytes | None], Producer]]:
    async with (
        Consumer(
            kafka.bootstrap,
            group=topic,
            topics=[topic],
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=20,
        ) as consumer,
        Producer(kafka.bootstrap, transactional_id=f"{topic}-{name}") as producer,
    ):
        yield consumer, producer


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_each_record_is_processed_once_through_rebalances_and_failures(
    kafka: Judge, topic: str, protocol: Literal["classic", "consumer"]
) -> None:
    out, total = f"{topic}-out", 600

    async def worker(name: str, started: asyncio.Event, fails_every: int) -> None:
        count = 0
        async with exactly_once_clients(kafka, topic, name, protocol) as (consumer, producer):
            while True:
                try:
                    async for batch in exactly_once(consumer, producer):
                        for record in batch:
                            producer.submit(out, record.value)
                        count += 1
                        started.set()
                        if count % fails_every == 0:
                            raise LookupError
                        if count % 3 == 0:
                            await batch.commit()
                            break
                except LookupError:
                    continue

    async def run() -> list[int]:
        await create(kafka, topic, partitions=4)
        await create(kafka, out, partitions=2)
        async with Producer(kafka.bootstrap) as producer:
            for number in range(total):
                producer.submit(topic, str(number), partition=number % 4)
        workers: list[asyncio.Task[None]] = []
        for name, fails_every in (("a", 4), ("b", 5), ("c", 1000)):
            started = asyncio.Event()
            workers.append(asyncio.create_task(worker(name, started, fails_every)))
            if name == "a":
                await started.wait()
        try:
            return [int(value or b"") for value in await committed(kafka, out, total)]
        finally:
            for each in workers:
                each.cancel()
            results = await asyncio.gather(*workers, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in results), results

    async def bounded() -> list[int]:
        async with asyncio.timeout(120):
            return await run()

    assert sorted(asyncio.run(bounded())) == list(range(total))


def test_the_blocking_face_does_the_same(kafka: Judge, topic: str) -> None:
    out = f"{topic}-out"
    asyncio.run(create(kafka, topic, out))
    with blocking.Producer(kafka.bootstrap, transactional_id=topic) as producer:
        with producer.transaction():
            for number in range(100):
                producer.submit(topic, str(number))
            producer.send(topic, b"100")
        with producer.transaction() as transaction:
            producer.submit(topic, b"x")
            transaction.abort()
        with pytest.raises(InvalidTransactionState):
            producer.send(topic, b"outside")
    with (
        blocking.Consumer(
            kafka.bootstrap,
            group=topic,
            topics=[topic],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            max_poll_records=30,
        ) as consumer,
        blocking.Producer(kafka.bootstrap, transactional_id=topic) as producer,
    ):
        done = failures = 0
        while done < 101:
            try:
                for batch in blocking.exactly_once(consumer, producer):
                    for record in batch:
                        producer.submit(out, record.value)
                    if failures < 2:
                        failures += 1
                        raise LookupError
                    batch.commit()
                    done += len(batch)
                    if done == 101:
                        break
            except LookupError:
                continue
    values = asyncio.run(committed(kafka, out, 101))
    assert [int(value or b"") for value in values] == list(range(101))


def test_arrow_rows_are_written_in_a_transaction(kafka: Judge, topic: str) -> None:
    import pyarrow as pa

    rows = pa.RecordBatch.from_pydict({"value": [str(n).encode() for n in range(1000)]})

    async def run() -> None:
        await create(kafka, topic)
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:
            with pytest.raises(InvalidTransactionState):
                await producer.submit_arrow(rows, topic=topic)
            async with producer.transaction():
                await producer.submit_arrow(rows, topic=topic)
            await producer.begin_transaction()
            await producer.submit_arrow(rows, topic=topic)
            await producer.abort_transaction()
        assert len(await committed(kafka, topic, 1000)) == 1000

    asyncio.run(run())


def test_several_producers_write_in_one_transaction(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        await create(kafka, topic, partitions=4)
        async with TransactionOwner(kafka.bootstrap, transactional_id=topic) as owner:
            for ends in ("abort", "commit", "commit"):
                handle = await owner.begin()
                for number in range(4):
                    async with joining(handle, kafka.bootstrap) as writer:
                        writer.submit(topic, f"{ends} {number}", partition=number)
                        await writer.flush()
                        with pytest.raises(InvalidTransactionState, match="another process"):
                            await writer.commit_transaction()
                await owner.send_offsets({TopicPartition(topic, 0): 7}, topic)
                await (owner.commit() if ends == "commit" else owner.abort())
            late = joining(handle, kafka.bootstrap)
            async with late:
                if kafka.level == 2:  # before that a late write may join the next transaction
                    with pytest.raises(AbortableError):
                        await late.send(topic, b"late", partition=0)
        values = await committed(kafka, topic, 8)
        assert sorted(value or b"" for value in values) == [
            f"commit {n // 2}".encode() for n in range(8)
        ]

    asyncio.run(run())


def test_a_producer_notices_that_the_cluster_was_upgraded(kafka: Judge, topic: str) -> None:
    if kafka.level != 1:
        pytest.skip("goes from 1 to 2 and back")

    async def run() -> None:
        await create(kafka, topic)
        async with Producer(kafka.bootstrap, transactional_id=topic) as producer:
            async with producer.transaction():
                await producer.send(topic, b"1")
            await set_level(kafka.bootstrap, 2)
            # Features are told with new connections.
            producer._cluster._pool.drop_all()
            async with producer.transaction():
                await producer.send(topic, b"2")
            async with producer.transaction():
                await producer.send(topic, b"3")
            assert producer._transactions().state.handle.uses_v2
            await set_level(kafka.bootstrap, 1)
            async with producer.transaction():
                await producer.send(topic, b"4")
            producer._cluster._pool.drop_all()
            for value in (b"5", b"6"):
                async with producer.transaction():
                    await producer.send(topic, value)
            assert not producer._transactions().state.handle.uses_v2
        assert await committed(kafka, topic, 6) == [b"1", b"2", b"3", b"4", b"5", b"6"]

    asyncio.run(run())


def test_two_phase_commit_needs_brokers_that_serve_it(kafka: Judge, topic: str) -> None:
    async def run() -> None:
        with pytest.raises(UnsupportedVersion, match="version 6"):
            async with Producer(
                kafka.bootstrap, transactional_id=topic, transaction_two_phase_commit_enable=True
            ):
                pass

    asyncio.run(run())
