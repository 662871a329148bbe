"""Consume, transform, produce in transactions, transactions that processes share, and what goes on
beside them: interceptors, metrics and Arrow; on a node."""

from __future__ import annotations

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from harness.wire import Wire, batch
from headwater import (
    AbortableError,
    Admin,
    ClientError,
    Consumer,
    Producer,
    ProducerFenced,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
    blocking,
    exactly_once,
)
from headwater.client.producer.shared import TransactionOwner, joining
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story
from tests.support.members import QUICK_BROKER

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "transactions.py"
COUNT = 120
Protocol = Literal["classic", "consumer"]

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(QUICK_BROKER) as made:
        yield made


@pytest.fixture
def source(broker: EmbeddedBroker, topic: str) -> str:
    """Four partitions with numbered records, and a topic for results."""
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 4)
        wire.create_topic(f"{topic}-results", 3)
        for partition in range(4):
            values = [b"%d" % number for number in range(partition, COUNT, 4)]
            wire.produce(topic, batch(values), partition=partition)
    return topic


def reader(broker: EmbeddedBroker, source: str, protocol: Protocol) -> Consumer:
    return Consumer(
        broker.bootstrap,
        group=f"{source}-group",
        topics=[source],
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level="read_committed",
    )


async def committed_results(broker: EmbeddedBroker, topic: str) -> list[int]:
    """Reads up to the last stable offset."""
    found: list[int] = []
    partitions = [TopicPartition(topic, number) for number in range(3)]
    async with Consumer(broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign(partitions)
        await consumer.seek_to_beginning(*partitions)
        ends = await consumer.end_offsets(*partitions)
        while any([await consumer.position(tp) < ends[tp] for tp in partitions]):
            found += [int(record.value or b"") for record in await consumer.poll(timeout_ms=100)]
    return sorted(found)


@BOTH
@story
async def test_a_body_that_raises_is_read_again_and_nothing_is_written_twice(
    broker: EmbeddedBroker, source: str, protocol: Protocol
) -> None:
    done, tries = 0, 0
    async with (
        reader(broker, source, protocol) as consumer,
        Producer(broker.bootstrap, transactional_id=source) as producer,
    ):
        while done < COUNT:
            try:
                async for records in exactly_once(consumer, producer, records_max=10):
                    for record in records:
                        producer.submit(f"{source}-results", value=record.value)
                    tries += 1
                    if tries % 3 == 0:
                        await producer.flush()  # it is in the log, and must not be seen
                        raise LookupError("the body fails")
                    await records.commit()
                    done += len(records)
                    if done == COUNT:
                        break
            except LookupError:
                continue
    assert tries > COUNT // 10
    assert await committed_results(broker, f"{source}-results") == list(range(COUNT))


@BOTH
@story
async def test_a_batch_whose_commit_is_refused_comes_again(
    broker: EmbeddedBroker, source: str, protocol: Protocol
) -> None:
    done = refused = 0
    async with (
        Admin(broker.bootstrap) as admin,
        reader(broker, source, protocol) as consumer,
        Producer(broker.bootstrap, transactional_id=source) as producer,
    ):
        async for records in exactly_once(consumer, producer, records_max=40):
            for record in records:
                producer.submit(f"{source}-results", value=record.value)
            if not refused:
                await admin.remove_members(f"{source}-group", all_members=True)
            try:
                await records.commit()
            except AbortableError:
                refused += 1
                continue
            done += len(records)
            if done == COUNT:
                break
    assert refused  # until it has noticed that it has to join again
    assert await committed_results(broker, f"{source}-results") == list(range(COUNT))


@BOTH
@story
async def test_members_that_come_and_go_share_the_work_exactly_once(
    broker: EmbeddedBroker, source: str, protocol: Protocol
) -> None:
    done = 0
    all_done = asyncio.Event()

    async def work(number: int, batches_max: int | None) -> None:
        nonlocal done
        async with (
            reader(broker, source, protocol) as consumer,
            Producer(broker.bootstrap, transactional_id=f"{source}-{number}") as producer,
        ):
            count = 0
            async for records in exactly_once(consumer, producer, records_max=5):
                for record in records:
                    producer.submit(f"{source}-results", value=record.value)
                await records.commit()
                done += len(records)
                count += 1
                if done >= COUNT:
                    all_done.set()
                if all_done.is_set() or count == batches_max:
                    break

    members = [asyncio.ensure_future(work(0, None))]
    members += [asyncio.ensure_future(work(number, 2)) for number in (1, 2)]
    await all_done.wait()
    for member in members:  # some wait for records that do not come
        member.cancel()
    await asyncio.wait(members)
    assert await committed_results(broker, f"{source}-results") == list(range(COUNT))


def test_the_blocking_loop_commits_batch_by_batch(broker: EmbeddedBroker, source: str) -> None:
    done = 0
    with (
        blocking.Consumer(
            broker.bootstrap,
            group=f"{source}-group",
            topics=[source],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        ) as consumer,
        blocking.Producer(broker.bootstrap, transactional_id=source) as producer,
    ):
        for records in blocking.exactly_once(consumer, producer, records_max=25):
            for record in records:
                producer.submit(f"{source}-results", value=record.value)
            done += len(records)
            if done == COUNT:
                records.commit()
                break
    assert asyncio.run(committed_results(broker, f"{source}-results")) == list(range(COUNT))


class Observer:
    """An interceptor that marks each record, and notes how it ended."""

    def __init__(self) -> None:
        self.outcomes: list[str] = []

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, value=(record.value or b"") + b"0")

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ClientError | None
    ) -> None:
        self.outcomes.append("written" if error is None else type(error).__name__)


@story
async def test_interceptors_metrics_and_arrow_work_in_transactions(
    broker: EmbeddedBroker, source: str
) -> None:
    results, observer = f"{source}-results", Observer()
    rows = pa.record_batch({"value": pa.array([b"%d" % each for each in range(100, 300)])})
    async with Producer(
        broker.bootstrap, transactional_id=source, interceptors=[observer], linger_ms=60_000
    ) as producer:
        async with producer.transaction():
            await producer.submit_arrow(rows, topic=results)  # interceptors see no rows
            producer.submit(results, value=b"1")
        assert observer.outcomes == ["written"]
        await producer.begin_transaction()
        producer.submit(results, value=b"2")
        await producer.flush()
        producer.submit(results, value=b"3")  # still waits when the transaction is aborted
        await producer.submit_arrow(rows, topic=results)
        await producer.abort_transaction()
        assert observer.outcomes == ["written", "written", "TransactionAborted"]
        async with producer.transaction() as transaction:
            await transaction.send_offsets({TopicPartition(source, 0): 1}, f"{source}-group")
        metrics = producer.metrics()
    calls = ("init", "begin", "send-offsets", "commit", "abort")
    assert [metrics[f"txn-{call}-total"] for call in calls] == [1, 3, 1, 2, 1]
    assert all(metrics[f"txn-{call}-time-ns-total"] > 0 for call in calls)
    assert await committed_results(broker, results) == [10, *range(100, 300)]


@story
async def test_writers_share_a_transaction_that_its_owner_ends(
    broker: EmbeddedBroker, source: str
) -> None:
    results, anchor = f"{source}-results", TopicPartition(source, 0)
    async with TransactionOwner(broker.bootstrap, transactional_id=source) as owner:
        for number, commits in enumerate((True, False, True)):
            handle = await owner.begin()
            for partition in range(3):
                # As in another process, to which the handle is sent.
                same = pickle.loads(pickle.dumps(handle))
                async with joining(same, broker.bootstrap) as writer:
                    values = [b"%d" % (1000 * number + 10 * partition + each) for each in range(5)]
                    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
                    rows = rows.append_column("partition", pa.array([partition] * 5, pa.int32()))
                    await writer.submit_arrow(rows, topic=results)
                    await writer.flush()
            await owner.send_offsets({anchor: number + 1}, f"{source}-group")
            await (owner.commit() if commits else owner.abort())
    seen = await committed_results(broker, results)
    assert [each // 1000 for each in seen] == [0] * 15 + [2] * 15
    async with Admin(broker.bootstrap) as admin:
        offsets = await admin.group_offsets(f"{source}-group")
    assert offsets[anchor].offset == 3


@story
async def test_a_writer_of_an_owner_that_was_replaced_is_fenced(
    broker: EmbeddedBroker, source: str
) -> None:
    async with TransactionOwner(broker.bootstrap, transactional_id=source) as first:
        handle = await first.begin()
        async with TransactionOwner(broker.bootstrap, transactional_id=source) as second:
            await second.begin()
            async with joining(handle, broker.bootstrap) as writer:
                with pytest.raises((AbortableError, ProducerFenced)):
                    await writer.send(f"{source}-results", value=b"1", partition=0)
            with pytest.raises(ProducerFenced):
                await first.commit()


def test_the_example_does_what_it_says() -> None:
    with EmbeddedBroker(QUICK_BROKER) as made:
        command = [sys.executable, str(EXAMPLE), made.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "aborted: no account of this name",
        "100 orders, each invoiced once",
        "101 invoices can be seen",
    ]
