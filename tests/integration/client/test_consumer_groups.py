"""The consumer in a group: offsets, commits, rebalances, ends; against a broker."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from harness.wire import Wire, batch
from headwater import (
    Admin,
    ClientError,
    CommitFailed,
    Consumer,
    FencedInstance,
    RebalanceListener,
    RequestTimedOut,
    TopicPartition,
)
from headwater.client.consumer import ConsumedRecord, OffsetAndMetadata
from headwater.testing import EmbeddedBroker
from tests.conftest import AnotherBroker
from tests.support.fake_broker import story
from tests.support.members import QUICK_BROKER, QUICK_CLASSIC

BOTH = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker | AnotherBroker]:
    elsewhere = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
    if elsewhere:
        yield AnotherBroker(elsewhere)
        return
    with EmbeddedBroker(QUICK_BROKER) as made:
        yield made


@pytest.fixture
def made_topic(broker: EmbeddedBroker, topic: str) -> str:
    """Two partitions with ten numbered records each."""
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, 2)
        for partition in range(2):
            wire.produce(topic, batch([b"%d" % n for n in range(10)]), partition=partition)
    return topic


def member(broker: EmbeddedBroker, topic: str, protocol: str = "classic", **more: Any) -> Consumer:
    settings: dict[str, Any] = {"auto_offset_reset": "earliest", "group_protocol": protocol}
    return Consumer(broker.bootstrap, group=topic, topics=[topic], **(settings | more))


async def taken(consumer: Consumer, count: int) -> list[ConsumedRecord]:
    records: list[ConsumedRecord] = []
    async for record in consumer:
        records.append(record)
        if len(records) == count:
            break
    return records


async def committed(broker: EmbeddedBroker, topic: str) -> list[int]:
    """Returns the group's offsets of both partitions; -1 where none is committed."""
    async with Consumer(broker.bootstrap, group=topic) as reader:
        found = await reader.committed((topic, 0), (topic, 1))
    return [-1 if each is None else each.offset for each in found.values()]


@BOTH
@story
async def test_a_group_continues_where_it_stopped(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    async with member(broker, made_topic, protocol) as consumer:
        before = await taken(consumer, 13)
    async with member(broker, made_topic, protocol) as consumer:
        after = await taken(consumer, 7)
        assert await consumer.poll(100) == []
    places = [(record.partition, record.offset) for record in before + after]
    assert sorted(places) == [(partition, n) for partition in range(2) for n in range(10)]


@BOTH
@story
async def test_a_commit_stores_what_the_user_got(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    tp = TopicPartition(made_topic, 0)
    async with member(broker, made_topic, protocol, enable_auto_commit=False) as consumer:
        got = await taken(consumer, 4)
        await consumer.commit()
        ours = got[-1].partition
        found = await consumer.committed((made_topic, ours))
        assert found == {TopicPartition(made_topic, ours): OffsetAndMetadata(4, 0, "")}
        await consumer.commit({tp: OffsetAndMetadata(7, 0, "note")})
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(7, 0, "note")
        await consumer.commit({tp: 8})
        assert (await consumer.committed(tp))[tp] == OffsetAndMetadata(8)
        await taken(consumer, 1)
    assert (await committed(broker, made_topic))[0] == 8  # a close without auto commit adds nothing


@story
async def test_a_commit_in_the_background_reports_its_result(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async with member(broker, made_topic, enable_auto_commit=False) as consumer:
        await taken(consumer, 2)
        told: asyncio.Queue[tuple[dict[TopicPartition, OffsetAndMetadata], ClientError | None]]
        told = asyncio.Queue()
        tp = TopicPartition(made_topic, 0)
        for offset in (1, 2, 3):
            consumer.commit_async({tp: offset}, lambda *outcome: told.put_nowait(outcome))
        for _ in range(3):
            offsets, error = await told.get()
            assert error is None
        assert offsets[tp].offset == 3
        assert (await committed(broker, made_topic))[0] == 3


@story
async def test_the_current_record_is_not_committed_before_the_next_is_requested(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    async with member(broker, made_topic, auto_commit_interval_ms=10) as consumer:
        count = 0
        async for record in consumer:
            count += 1
            if count == 3:
                while (await committed(broker, made_topic))[record.partition] != record.offset:
                    pass
                await asyncio.sleep(0.05)
                assert (await committed(broker, made_topic))[record.partition] == record.offset
                break
        await consumer.poll(0)
        while (await committed(broker, made_topic))[record.partition] <= record.offset:
            pass


@pytest.mark.parametrize("how", ["leaves", "fails"])
@story
async def test_the_record_that_was_being_processed_at_an_exception_is_read_again(
    broker: EmbeddedBroker, made_topic: str, how: str
) -> None:
    try:
        async with member(broker, made_topic) as consumer:
            async for record in consumer:
                if record.offset == 4:
                    if how == "fails":
                        raise RuntimeError("mine")
                    break
    except RuntimeError:
        pass
    expected = 5 if how == "leaves" else 4
    assert (await committed(broker, made_topic))[record.partition] == expected


@BOTH
@story
async def test_partitions_are_committed_before_they_are_revoked(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    seen: list[tuple[int, int]] = []
    events: list[tuple[str, int]] = []

    class Listener(RebalanceListener):
        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            events.append(("assigned", len(partitions)))

        async def on_revoked(self, partitions: list[TopicPartition]) -> None:
            for tp in partitions:
                assert await first.position(tp) <= 10
            events.append(("revoked", len(partitions)))

    first = member(broker, made_topic, protocol, listener=Listener(), max_poll_records=3)
    async with first, member(broker, made_topic, protocol, max_poll_records=3) as second:
        seen += [(r.partition, r.offset) for r in await first.poll(10_000)]
        while not second.assignment() or len(first.assignment()) > 1:
            for consumer in (first, second):
                records = await consumer.poll(20)
                seen += [(record.partition, record.offset) for record in records]
        while len(seen) < 20:
            for consumer in (first, second):
                records = await consumer.poll(20)
                seen += [(record.partition, record.offset) for record in records]
    assert sorted(seen) == [(partition, n) for partition in range(2) for n in range(10)]
    assert ("assigned", 2) in events
    assert events[-1][0] == "revoked"


@BOTH
@story
async def test_a_slow_loop_gives_up_partitions_in_time(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    quick = QUICK_CLASSIC if protocol == "classic" else {}
    first = member(broker, made_topic, protocol, **quick)
    async with first, member(broker, made_topic, protocol, **quick) as second:
        records = aiter(first)
        await anext(records)
        second_has_some = asyncio.create_task(taken(second, 1))
        seen = 1
        while not second_has_some.done():
            await asyncio.sleep(0.3)  # what it does with the record takes so long
            await anext(records)
            seen += 1
        # The first slice has all ten records of a partition.
        assert seen < 10


@story
async def test_a_slow_loop_stays_in_the_group(
    broker: EmbeddedBroker, made_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = QUICK_CLASSIC | {"max_poll_interval_ms": 400}
    async with member(broker, made_topic, **settings) as consumer:
        async for record in consumer:
            await asyncio.sleep(0.1)
            if record.offset == 8:
                break
        assert len(consumer.assignment()) == 2
    assert "poll was not called" not in caplog.text


@BOTH
@story
async def test_a_listener_may_seek(broker: EmbeddedBroker, made_topic: str, protocol: str) -> None:
    class Listener(RebalanceListener):
        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            for tp in partitions:
                consumer.seek(tp, 8)

    consumer = member(broker, made_topic, protocol, listener=Listener())
    async with consumer:
        assert sorted(record.offset for record in await taken(consumer, 4)) == [8, 8, 9, 9]


@BOTH
@story
async def test_a_commit_after_losing_the_partition_fails_and_says_why(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    async with member(
        broker, made_topic, protocol, max_poll_interval_ms=300, enable_auto_commit=False
    ) as consumer:
        await taken(consumer, 1)

        async def commit_until_refused() -> None:
            while True:
                await consumer.commit()
                await asyncio.sleep(0.02)

        with pytest.raises(CommitFailed, match=made_topic):
            await commit_until_refused()
        # The next poll joins again, and reads from what was committed.
        assert len(await taken(consumer, 5)) == 5


@story
async def test_assigned_partitions_use_the_groups_offsets(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    for expected in ([0, 1, 2], [3, 4, 5]):
        async with Consumer(
            broker.bootstrap, group=made_topic, auto_offset_reset="earliest", max_poll_records=3
        ) as consumer:
            consumer.assign([(made_topic, 1)])
            assert [record.offset for record in await consumer.poll(10_000)] == expected
    assert await committed(broker, made_topic) == [-1, 6]


@story
async def test_interceptors_hear_of_commits(broker: EmbeddedBroker, made_topic: str) -> None:
    heard: list[dict[TopicPartition, OffsetAndMetadata]] = []

    class Interceptor:
        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            heard.append(offsets)
            raise RuntimeError("mine")

    async with member(broker, made_topic, interceptors=[Interceptor()]) as consumer:
        await taken(consumer, 20)
        await consumer.commit()
    assert [offset.offset for offset in heard[0].values()] == [10, 10]


@BOTH
@story
async def test_an_unsubscribed_consumer_is_out_of_the_group_and_may_come_back(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    async with member(broker, made_topic, protocol) as consumer:
        await taken(consumer, 3)
        await consumer.unsubscribe()
        assert consumer.assignment() == set()
        with pytest.raises(ClientError, match="nothing to read"):
            await consumer.poll(20)
        assert max(await committed(broker, made_topic)) == 3
        consumer.subscribe([made_topic])
        assert len(await taken(consumer, 17)) == 17


@BOTH
@story
async def test_unsubscribe_leaves_the_group_even_if_the_listener_raises(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    class Listener(RebalanceListener):
        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            raise ValueError(f"not {len(partitions)} of them")

    async with member(broker, made_topic, protocol, listener=Listener()) as consumer:
        await taken(consumer, 3)
        with pytest.raises(ValueError, match="not 2 of them"):
            await consumer.unsubscribe()
        assert (consumer.assignment(), consumer.subscription()) == (set(), set())
        assert max(await committed(broker, made_topic)) == 3


@story
async def test_commits_of_a_fenced_consumer_fail(broker: EmbeddedBroker, made_topic: str) -> None:
    settings: dict[str, Any] = QUICK_CLASSIC | {"group_instance_id": "one"}
    async with member(broker, made_topic, **settings) as first:
        await taken(first, 1)
        async with member(broker, made_topic, **settings) as second:
            await taken(second, 1)

            async def poll_until_refused() -> None:
                while True:
                    await first.poll(20)

            with pytest.raises(FencedInstance, match="'one'"):
                await poll_until_refused()
            with pytest.raises(FencedInstance, match=r"'one'.*give each its own"):
                await first.commit()


@story
async def test_a_consumer_closed_in_a_rebalance_commits_the_partitions_it_kept(
    broker: EmbeddedBroker, made_topic: str
) -> None:
    events: list[str] = []

    class Listener(RebalanceListener):
        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            events.append("revoked")

        def on_lost(self, partitions: list[TopicPartition]) -> None:
            events.append("lost")

    settings: dict[str, Any] = QUICK_CLASSIC | {
        "partition_assignment_strategy": "cooperative-sticky",
        "max_poll_records": 1,
    }
    first = member(broker, made_topic, listener=Listener(), **settings)
    async with first, member(broker, made_topic, **settings) as second:
        while not (first.assignment() and second.assignment()):
            await first.poll(20)
            await second.poll(20)
        events.clear()
        async with member(broker, made_topic, **settings) as third:
            # The second does not poll, so the third waits, and the first with it.
            joining = asyncio.create_task(third.poll(20_000))
            while (runtime := first._runtime) is None or not (
                runtime.membership is not None and runtime.membership.rebalancing
            ):
                await first.poll(20)
            (tp,) = first.assignment()
            position = await first.position(tp)
            await first.close()
            assert events == ["revoked"]
            assert (await committed(broker, made_topic))[tp.partition] == position
            joining.cancel()
            await asyncio.wait((joining,))


@story
async def test_a_listener_hears_of_a_close_whose_commit_fails(topic: str) -> None:
    heard: list[TopicPartition] = []

    class Listener(RebalanceListener):
        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            heard.extend(partitions)

    with EmbeddedBroker(QUICK_BROKER) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(topic)
            wire.produce(topic, batch([b"x"]))
        consumer = member(broker, topic, listener=Listener())
        await consumer.start()
        await taken(consumer, 1)
        await asyncio.to_thread(broker.stop)
    await consumer.close(timeout_ms=500)
    assert heard == [(topic, 0)]


@story
async def test_a_commit_keeps_its_deadline_when_an_earlier_one_has_no_response(topic: str) -> None:
    with EmbeddedBroker(QUICK_BROKER) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(topic)
            wire.produce(topic, batch([b"x"]))
        consumer = member(broker, topic)
        await consumer.start()
        await taken(consumer, 1)
        await asyncio.to_thread(broker.stop)
    before = asyncio.create_task(consumer.commit())
    await asyncio.sleep(0)
    with pytest.raises(RequestTimedOut, match=f"group {topic}: an earlier commit"):
        await consumer.commit(timeout_ms=100)
    before.cancel()
    await asyncio.wait((before,))
    await consumer.close(timeout_ms=100)


@BOTH
@story
async def test_partitions_of_a_deleted_topic_are_revoked_at_once(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    other = f"{made_topic}-other"
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(other, 1)
    settings: dict[str, Any] = {"group_protocol": protocol, "metadata_max_age_ms": 100}
    pattern = re.compile(f"{made_topic}.*")
    async with Consumer(
        broker.bootstrap,
        group=made_topic,
        pattern=pattern,
        auto_offset_reset="earliest",
        **settings,
    ) as consumer:
        await taken(consumer, 20)
        async with Admin(broker.bootstrap) as admin:
            await admin.delete_topics([made_topic])
        while consumer.assignment() != {(other, 0)}:
            await consumer.poll(20)


@BOTH
@story
async def test_topics_by_pattern_in_a_group(
    broker: EmbeddedBroker, made_topic: str, protocol: str
) -> None:
    pattern = made_topic.replace(".", "[.]") + ".*"
    async with Consumer(
        broker.bootstrap,
        group=made_topic,
        pattern=pattern,
        group_protocol=protocol,  # type: ignore[arg-type]
        auto_offset_reset="earliest",
    ) as consumer:
        assert len(await taken(consumer, 20)) == 20


@story
async def test_a_close_keeps_its_deadline_when_the_broker_is_gone(topic: str) -> None:
    broker = EmbeddedBroker(QUICK_BROKER)
    broker.start()
    try:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(topic, 2)
            wire.produce(topic, batch([b"1"] * 3))
        consumer = member(broker, topic)
        await consumer.start()
        await taken(consumer, 3)
        broker.stop()
        async with asyncio.timeout(5):
            await consumer.close(timeout_ms=300)
    finally:
        broker.stop()


@story
async def test_a_consumer_continues_when_the_broker_is_back(topic: str) -> None:
    with EmbeddedBroker(QUICK_BROKER) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(topic)
            wire.produce(topic, batch([b"1"] * 3))
        async with member(broker, topic, reconnect_backoff_max_ms=50) as consumer:
            await taken(consumer, 3)
            await asyncio.get_running_loop().run_in_executor(None, broker.restart)
            with Wire(broker.bootstrap) as wire:
                wire.topic_id(topic)
                wire.produce(topic, batch([b"2"] * 3))
            assert [record.offset for record in await taken(consumer, 3)] == [3, 4, 5]
            await consumer.commit()


def test_the_base_class_of_listeners_calls_on_revoked_for_lost_partitions() -> None:
    class Listener(RebalanceListener):
        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            seen.extend(partitions)

    seen: list[TopicPartition] = []
    listener = Listener()
    assert listener.on_assigned([]) is None
    listener.on_lost([TopicPartition("t", 0)])
    assert seen == [TopicPartition("t", 0)]


@story
async def test_a_second_close_waits_for_the_first(broker: EmbeddedBroker, made_topic: str) -> None:
    class Listener(RebalanceListener):
        async def on_revoked(self, partitions: list[TopicPartition]) -> None:
            await consumer.close()  # of the close that calls it: does not wait for itself
            leaving.set()
            await may_leave.wait()

    leaving, may_leave = asyncio.Event(), asyncio.Event()
    async with member(broker, made_topic, listener=Listener()) as consumer:
        await taken(consumer, 1)
        first = asyncio.create_task(consumer.close())
        await leaving.wait()
        second = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)  # the second has its turn
        await consumer.close(timeout_ms=1)  # keeps its own timeout
        assert not second.done()
        assert not first.done()
        may_leave.set()
        await asyncio.gather(first, second)
