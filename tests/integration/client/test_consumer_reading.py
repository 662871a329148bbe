"""Reading with the consumer: records, columns, positions, seeks, pauses; against a broker."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import re
import warnings
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.wire import Plain, Wire, batch
from headwater import (
    ClientClosed,
    ClientError,
    Consumer,
    DeserializationFailed,
    InvalidTopic,
    NoOffsetForPartition,
    OffsetOutOfRange,
    TopicPartition,
    UnknownTopic,
)
from headwater.client.consumer import ConsumedRecord
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story

EARLIEST: Any = {"auto_offset_reset": "earliest"}


def fill(
    wire: Wire, topic: str, count: int = 10, *, partitions: int = 1, each: int = 5
) -> list[TopicPartition]:
    """So many numbered records in each partition."""
    wire.create_topic(topic, partitions)
    for partition in range(partitions):
        for first in range(0, count, each):
            numbers = range(first, min(first + each, count))
            wire.produce(topic, batch([b"%d" % number for number in numbers]), partition=partition)
    return [TopicPartition(topic, partition) for partition in range(partitions)]


async def first(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return records


async def polled(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    while len(records) < count:
        records += await consumer.poll(10_000)
    return records


def values(records: Iterable[ConsumedRecord]) -> list[int]:
    return [int(record.value) for record in records]


@story
async def test_records_have_all_their_fields(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    headers = (("trace", b"1"), ("none", None))
    wire.produce(topic, batch([Plain(b"v", b"k", headers, 123), Plain(None)]))
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        full, empty = await first(consumer, 2)
    assert (full.topic, full.partition, full.offset) == (topic, 0, 0)
    assert (full.key, full.value, full.headers) == (b"k", b"v", headers)
    assert (full.timestamp, full.timestamp_type) == (123, 0)
    assert full.leader_epoch >= 0
    assert (empty.key, empty.value, empty.headers, empty.offset) == (None, None, (), 1)


@story
async def test_a_consumer_without_a_group_reads_all_partitions_of_its_topics(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    partitions = fill(wire, topic, 7, partitions=3)
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        records = await polled(consumer, 21)
        assert consumer.assignment() == set(partitions)
        assert consumer.subscription() == {topic}
    for partition in range(3):
        assert values(r for r in records if r.partition == partition) == list(range(7))


@story
async def test_partitions_assigned_before_the_topic_was_known_are_all_read(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    partitions = fill(wire, topic, 1, partitions=8)
    async with Consumer(shared_broker.bootstrap, **EARLIEST) as consumer:
        consumer.assign(partitions)
        assert len(await polled(consumer, 8)) == 8


@story
async def test_a_pattern_also_finds_topics_that_are_created_later(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, f"{topic}-a", 2)
    pattern = re.compile(re.escape(topic) + "-[a-z]")
    async with Consumer(
        shared_broker.bootstrap, pattern=pattern, metadata_max_age_ms=50, **EARLIEST
    ) as consumer:
        assert len(await polled(consumer, 2)) == 2
        fill(wire, f"{topic}-b", 3)
        assert {record.topic for record in await polled(consumer, 3)} == {f"{topic}-b"}


@story
async def test_loops_polls_and_columns_can_be_mixed(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    (tp,) = fill(wire, topic, 100, each=7)
    async with Consumer(shared_broker.bootstrap, **EARLIEST) as consumer:
        consumer.assign([tp])
        seen = values(await first(consumer, 11))
        assert await consumer.position(tp) == 11
        seen += values(await consumer.poll(10_000, records_max=5))
        assert await consumer.position(tp) == 16
        columns = await consumer.poll_arrow(rows_max=10, timeout_ms=10_000)
        seen += [int(value) for value in columns.column("value").to_pylist()]
        assert await consumer.position(tp) == 26
        seen += values(await first(consumer, 74))
        assert seen == list(range(100))
        assert await consumer.position(tp) == 100
        assert consumer.lag(tp) == 0


@story
async def test_a_table_ends_at_its_bound_and_has_all_partitions(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, topic, 10, partitions=2)
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        rows: list[dict[str, Any]] = []
        while len(rows) < 20:
            table = await consumer.poll_arrow(rows_max=7, timeout_ms=10_000)
            assert table.num_rows <= 7
            rows += table.to_pylist()
        assert (await consumer.poll_arrow(timeout_ms=0)).num_rows == 0
    assert {(row["topic"], row["partition"]) for row in rows} == {(topic, 0), (topic, 1)}
    assert sorted(row["offset"] for row in rows) == sorted([*range(10)] * 2)


@story
async def test_a_record_is_not_lost_when_waiting_for_it_is_cancelled(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, topic, 3)
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        records = aiter(consumer)
        assert [(await anext(records)).offset for _ in range(3)] == [0, 1, 2]
        for _ in range(2):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(records), 0.05)
        wire.produce(topic, batch([b"late"]))
        assert (await anext(records)).value == b"late"
    with pytest.raises(StopAsyncIteration):
        await anext(records)


@story
async def test_a_poll_returns_at_most_records_max_and_none_after_its_timeout(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, topic, 10)
    async with Consumer(
        shared_broker.bootstrap, topics=[topic], max_poll_records=4, **EARLIEST
    ) as consumer:
        sizes = [len(await consumer.poll(10_000)) for _ in range(3)]
        assert sum(sizes) == 10
        assert max(sizes) == 4
        assert await consumer.poll(0) == []
        with pytest.raises(ClientError, match="records_max=0"):
            await consumer.poll(0, records_max=0)


@story
async def test_positions_are_known_in_the_middle_of_a_loop(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    (tp,) = fill(wire, topic, 6)
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        seen = []
        async for record in consumer:
            seen.append(await consumer.position(tp) - record.offset)
            if record.offset == 5:
                break
    assert seen == [1] * 6


@story
async def test_a_seek_in_a_loop_takes_effect_with_the_next_record(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    (tp,) = fill(wire, topic, 10)
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        seen = []
        async for record in consumer:
            seen.append(record.offset)
            if seen == [0, 1]:
                consumer.seek(tp, 8)
            elif record.offset == 9:
                break
        assert seen == [0, 1, 8, 9]
        with pytest.raises(ClientError, match="offset -3"):
            consumer.seek(tp, -3)


@story
async def test_seeking_to_ends_and_times(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    wire.produce(topic, batch([Plain(b"%d" % n, timestamp=1000 + n) for n in range(10)]))
    tp = TopicPartition(topic, 0)
    async with Consumer(shared_broker.bootstrap) as consumer:
        consumer.assign([tp])
        await consumer.seek_to_time(1006)
        assert values(await polled(consumer, 4)) == [6, 7, 8, 9]
        await consumer.seek_to_time(datetime(1970, 1, 1, 0, 0, 1, 8_000, tzinfo=UTC), tp)
        assert values(await polled(consumer, 2)) == [8, 9]
        await consumer.seek_to_beginning(tp)
        assert values(await polled(consumer, 10)) == list(range(10))
        await consumer.seek_to_time(999_999)
        assert await consumer.position(tp) == 10
        await consumer.seek_to_beginning()
        await consumer.seek_to_end()
        assert await consumer.position(tp) == 10
        assert await consumer.beginning_offsets(tp) == {tp: 0}
        assert await consumer.end_offsets(tp) == {tp: 10}
        found = await consumer.offsets_for_times({tp: 1003})
        assert found[tp] is not None
        assert (found[tp].offset, found[tp].timestamp) == (3, 1003)  # type: ignore[union-attr]
        assert await consumer.offsets_for_times({tp: 2000}) == {tp: None}
        moment = datetime.fromtimestamp(1.003)  # local time, as users write it
        assert await consumer.offsets_for_times({tp: moment}) == found
        assert await consumer.partitions_for(topic) == [tp]


@story
async def test_a_paused_partition_stays_where_it_is(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    zero, one = fill(wire, topic, 10, partitions=2)
    async with Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST) as consumer:
        seen = []
        async for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 3:
                consumer.pause(zero)
                assert consumer.paused() == {zero}
            if sum(partition == 1 for partition, _ in seen) == 10:
                break
        before = await consumer.position(zero)
        assert before <= 3
        consumer.pause(one)
        assert await consumer.poll(50) == []
        consumer.resume(zero)
        rest = await polled(consumer, 10 - before)
        assert [(r.partition, r.offset) for r in rest] == [(0, n) for n in range(before, 10)]


# Where reading begins


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("earliest", 0), ("latest", 5), ("by_duration:PT1H", 2), ("by_duration:PT1S", 5)],
)
@story
async def test_without_a_position_the_policy_decides(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str, policy: str, expected: int
) -> None:
    import time

    wire.create_topic(topic)
    old, young = (int(time.time() * 1000) - age for age in (7_200_000, 60_000))
    wire.produce(topic, batch([Plain(b"", timestamp=old)] * 2 + [Plain(b"", timestamp=young)] * 3))
    async with Consumer(shared_broker.bootstrap, auto_offset_reset=policy) as consumer:
        consumer.assign([(topic, 0)])
        assert await consumer.position((topic, 0)) == expected


@story
async def test_without_a_policy_there_must_be_a_position(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    (tp,) = fill(wire, topic, 5)
    async with Consumer(shared_broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        for _ in range(2):
            with pytest.raises(NoOffsetForPartition, match=f"{tp}.*seek") as raised:
                await consumer.poll(10_000)
            assert (raised.value.topic, raised.value.partition, raised.value.offset) == (*tp, -1)
        with pytest.raises(NoOffsetForPartition):
            await consumer.position(tp)
        consumer.seek(tp, 3)
        assert values(await polled(consumer, 2)) == [3, 4]


@story
async def test_an_offset_out_of_range_is_named_with_the_range(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    (tp,) = fill(wire, topic, 5)
    async with Consumer(shared_broker.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 77)
        with pytest.raises(OffsetOutOfRange, match=f"{tp}: offset 77 .* 0 up to .* 5") as raised:
            await consumer.poll(10_000)
        assert (raised.value.topic, raised.value.partition, raised.value.offset) == (*tp, 77)
        consumer.seek(tp, 4)
        assert values(await polled(consumer, 1)) == [4]


@story
async def test_an_offset_out_of_range_is_reset_by_the_policy(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    (tp,) = fill(wire, topic, 5)
    async with Consumer(shared_broker.bootstrap, **EARLIEST) as consumer:
        consumer.assign([tp])
        consumer.seek(tp, 77)
        assert values(await polled(consumer, 5)) == list(range(5))


@story
async def test_a_missing_topic_is_waited_for_and_logged_once(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="headwater.client")
    async with Consumer(
        shared_broker.bootstrap, allow_auto_create_topics=False, **EARLIEST
    ) as consumer:
        consumer.assign([(topic, 0)])
        for _ in range(3):
            assert await consumer.poll(200) == []
        assert [topic in line for line in caplog.messages] == [True]
        fill(wire, topic, 3)
        assert values(await polled(consumer, 3)) == [0, 1, 2]
        with pytest.raises(UnknownTopic, match="no-such"):
            await consumer.end_offsets(("no-such", 0), timeout_ms=100)


@pytest.mark.parametrize("group", [None, "readers"])
@story
async def test_an_invalid_topic_name_is_an_error(
    shared_broker: EmbeddedBroker, group: str | None
) -> None:
    async with Consumer(shared_broker.bootstrap, group=group, topics=["no topic!"]) as consumer:
        with pytest.raises(InvalidTopic, match="no topic!"):
            await consumer.poll(10_000)


# What users put in between


@story
async def test_deserializers_make_objects_and_a_bad_record_can_be_skipped(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    wire.produce(topic, batch([Plain(b'{"n": 1}', b"k"), b"{", b'{"n": 3}']))
    tp = TopicPartition(topic, 0)
    async with Consumer(
        shared_broker.bootstrap,
        topics=[topic],
        key_deserializer=bytes.decode,
        value_deserializer=json.loads,
        **EARLIEST,
    ) as consumer:
        (good,) = await first(consumer, 1)
        assert (good.key, good.value) == ("k", {"n": 1})
        with pytest.raises(DeserializationFailed, match=f"{tp}.*offset 1") as raised:
            await first(consumer, 1)
        assert await consumer.position(tp) == 1
        error = raised.value
        assert (error.topic, error.partition, error.offset, error.part) == (*tp, 1, "value")
        assert error.record is not None
        assert (error.record.value, error.record.offset) == (b"{", 1)
        consumer.seek((error.topic, error.partition), error.offset + 1)
        assert (await first(consumer, 1))[0].value == {"n": 3}


# Beginning, ending, misuse


@story
async def test_a_loop_ends_when_the_consumer_is_closed_by_another_task(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, topic, 2)
    consumer = Consumer(shared_broker.bootstrap, topics=[topic], **EARLIEST)
    await consumer.start()
    got_all = asyncio.Event()
    seen = []

    async def loop() -> None:
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 2:
                got_all.set()

    task = asyncio.create_task(loop())
    await got_all.wait()
    await consumer.close()
    await task
    assert seen == [0, 1]
    with pytest.raises(ClientClosed):
        await consumer.poll()
    with pytest.raises(ClientClosed):
        await first(consumer, 1)
    with pytest.raises(ClientClosed):
        await consumer.position((topic, 0))
    await consumer.close()


@story
async def test_a_consumer_must_be_started() -> None:
    consumer = Consumer("localhost:1")
    with pytest.raises(ClientClosed, match="not started"):
        await consumer.poll()
    await consumer.close()


@story
async def test_two_tasks_cannot_poll_at_once(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, topic, 1)
    async with Consumer(shared_broker.bootstrap, topics=[topic]) as consumer:
        waiting = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(0)
        with pytest.raises(ClientError, match="two tasks"):
            await consumer.poll(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await consumer.poll(0) == []


@story
async def test_polling_without_a_subscription_is_an_error(
    shared_broker: EmbeddedBroker, topic: str
) -> None:
    async with Consumer(shared_broker.bootstrap) as consumer:
        for ask in (consumer.poll, consumer.poll_arrow, aiter(consumer).__anext__):
            with pytest.raises(ClientError, match="nothing to read"):
                await ask()
        consumer.assign([(topic, 0)])
        assert await consumer.poll(0) == []
        consumer.assign([])
        with pytest.raises(ClientError, match="nothing to read"):
            await consumer.poll()


@story
async def test_a_pattern_without_a_group_is_matched_by_the_client(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    fill(wire, topic, 3)
    async with Consumer(
        shared_broker.bootstrap, pattern=f"{topic}.*", group_protocol="consumer", **EARLIEST
    ) as consumer:
        assert len(await polled(consumer, 3)) == 3


@story
async def test_a_seek_in_a_partition_that_is_not_assigned_is_an_error(
    shared_broker: EmbeddedBroker,
) -> None:
    async with Consumer(shared_broker.bootstrap) as consumer:
        with pytest.raises(ClientError, match="t-0 is not assigned"):
            consumer.seek(("t", 0), 1)
        with pytest.raises(ClientError, match="has no group"):
            await consumer.commit()


@story
async def test_memory_is_bounded_while_nobody_polls(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic, 4)
    for partition in range(4):
        for _ in range(20):
            wire.produce(topic, batch([bytes(10_000)]), partition=partition)
    async with Consumer(
        shared_broker.bootstrap,
        topics=[topic],
        fetch_max_bytes=60_000,
        max_partition_fetch_bytes=15_000,
        **EARLIEST,
    ) as consumer:
        count = most = 0
        while count < 80:
            count += len(await consumer.poll(10_000, records_max=1))
            most = max(most, int(consumer.metrics()["buffered-bytes"]))
        assert 10_000 < most <= 60_000 + 15_000
        assert consumer.metrics()["records-consumed-total"] == 80


@story
async def test_paused_partitions_do_not_hold_the_memory_of_the_others(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic, 2)
    for partition in range(2):
        for _ in range(10):
            wire.produce(topic, batch([bytes(10_000)]), partition=partition)
    async with Consumer(
        shared_broker.bootstrap,
        topics=[topic],
        fetch_max_bytes=20_000,
        max_partition_fetch_bytes=20_000,
        **EARLIEST,
    ) as consumer:
        (record,) = await consumer.poll(10_000, records_max=1)
        consumer.pause((topic, record.partition))
        others: list[ConsumedRecord] = []
        while len(others) < 10:
            others += await consumer.poll(10_000)
        assert {other.partition for other in others} == {1 - record.partition}
        consumer.resume()
        assert len(await polled(consumer, 9)) == 9


@story
async def test_a_missing_partition_is_waited_for_and_logged_once(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(topic, 2)
    async with Consumer(shared_broker.bootstrap) as consumer:
        consumer.assign([(topic, 99)])
        for _ in range(3):
            assert not await consumer.poll(timeout_ms=100)
    said = [each for each in caplog.messages if topic in each]
    assert said == [f"{topic}-99: the topic has partitions 0 to 1; waiting for it"]


@story
async def test_a_consumer_that_is_dropped_unclosed_warns(
    shared_broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = Consumer(shared_broker.bootstrap)
    await consumer.start()
    with pytest.warns(ResourceWarning, match="a consumer was not closed: use it in `async with`"):
        del consumer
    assert "not closed" not in caplog.text  # only connections are left behind

    consumer = Consumer(shared_broker.bootstrap, group="forgotten")
    await consumer.start()
    with pytest.warns(ResourceWarning, match="not closed"):
        del consumer
    assert "member of group forgotten" in caplog.text


@story
async def test_a_consumer_that_was_closed_or_never_started_is_dropped_in_silence(
    shared_broker: EmbeddedBroker,
) -> None:
    gc.collect()  # what other tests left behind
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        consumer = Consumer(shared_broker.bootstrap)
        del consumer
        async with Consumer(shared_broker.bootstrap) as consumer:
            pass
        del consumer
        gc.collect()
    assert not [each for each in said if "consumer" in str(each.message)]
