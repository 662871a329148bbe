"""The producer against a broker: what is sent is there, in its place, as it was given.

With HEADWATER_TEST_BOOTSTRAP=HOST:PORT the same is shown against Apache Kafka.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import threading
import warnings
import weakref
from collections import ChainMap, deque
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import pytest

from harness.wire import Wire, records_of, until
from headwater import _core
from headwater.blocking import Producer as BlockingProducer
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    ConfigError,
    Forked,
    InvalidRecord,
    InvalidTopic,
    InvalidTransactionState,
    RecordTooLarge,
    SerializationFailed,
    UnknownTopic,
    WrongLoop,
)
from headwater.client.producer import Producer, ProducerRecord, RecordMetadata
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import story

pytestmark = pytest.mark.usefixtures("wire")


@pytest.fixture
def topic(wire: Wire, request: pytest.FixtureRequest) -> str:
    """A topic of one partition, for this test alone."""
    name = f"{request.node.name.partition('[')[0]}-{os.urandom(4).hex()}"
    wire.create_topic(name)
    return name


@pytest.fixture
def bootstrap(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap


def queued_bytes(producer: Producer) -> float:
    """Returns the bytes of the buffer that records without an outcome take."""
    measured = producer.metrics()
    return measured["buffer-total-bytes"] - measured["buffer-available-bytes"]


def stored(wire: Wire, topic: str, partition: int = 0) -> list[_core.Record]:
    """All records of a partition."""
    found: list[_core.Record] = []
    while True:
        offset = found[-1].offset + 1 if found else 0
        data = wire.fetch(topic, offset, partition=partition)
        more = records_of(data, offset)
        if not more:
            return found
        found += more


@story
async def test_a_record_is_acknowledged_with_its_place(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    async with Producer(bootstrap) as producer:
        first = await producer.send(
            topic, key="alice", value=b"one", headers={"trace": b"1", "none": None}, timestamp=1234
        )
        second = await producer.send(topic, "two")
    assert first == RecordMetadata(topic, 0, 0, 1234, 5, 3)
    assert (second.offset, second.key_size, second.value_size) == (1, -1, 3)
    one, two = stored(wire, topic)
    assert (one.key, one.value, one.timestamp) == (b"alice", b"one", 1234)
    assert one.headers == (("trace", b"1"), ("none", None))
    assert (two.key, two.value, two.timestamp) == (None, b"two", second.timestamp)


@story
async def test_submitted_records_are_there_after_flush(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(5000):
            producer.submit(topic, str(number))
        await producer.flush()
        assert [record.value for record in stored(wire, topic)] == [
            str(number).encode() for number in range(5000)
        ]


@story
async def test_closing_sends_what_is_queued(bootstrap: str, topic: str, wire: Wire) -> None:
    async with Producer(bootstrap, linger_ms=60_000, delivery_timeout_ms=200_000) as producer:
        producer.submit(topic, b"last")
    assert [record.value for record in stored(wire, topic)] == [b"last"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@story
async def test_each_codec_reaches_the_log(
    bootstrap: str, topic: str, wire: Wire, codec: Any
) -> None:
    async with Producer(bootstrap, compression_type=codec) as producer:
        for number in range(300):
            producer.submit(topic, f"a value that is much like others {number}")
        await producer.flush()
        rate = producer.metrics()["compression-rate-avg"]
    assert len(stored(wire, topic)) == 300
    batches, _, _ = _core.scan(wire.fetch(topic).records or b"")
    assert batches[0].codec == ["none", "gzip", "snappy", "lz4", "zstd"].index(codec)
    assert (rate < 0.6) == (codec != "none")


@pytest.mark.parametrize(("codec", "level"), [("gzip", 9), ("lz4", 17), ("zstd", 22)])
@story
async def test_levels_are_taken(bootstrap: str, topic: str, codec: str, level: int) -> None:
    settings: Any = {"compression.type": codec, f"compression.{codec}.level": level}
    async with Producer(bootstrap, config=settings) as producer:
        assert (await producer.send(topic, b"x" * 1000)).offset == 0


@pytest.mark.parametrize("acks", [0, 1, "all"])
@story
async def test_acks_say_what_is_known(bootstrap: str, topic: str, wire: Wire, acks: Any) -> None:
    async with Producer(bootstrap, acks=acks) as producer:
        metadata = await producer.send(topic, b"x")
        assert metadata.offset == (-1 if acks == 0 else 0)
        await producer.send(topic, b"y")
    until(lambda: len(stored(wire, topic)) == 2 or None, "both records")


@story
async def test_keys_go_where_java_puts_them(bootstrap: str, wire: Wire) -> None:
    name = f"keys-{os.urandom(4).hex()}"
    wire.create_topic(name, partitions=6)
    async with Producer(bootstrap) as producer:
        for key in ("alice", "bob", "", "21", "foobar", "a-little-bit-long-string"):
            metadata = await producer.send(name, b"v", key=key)
            assert metadata.partition == (_core.murmur2(key.encode()) & 0x7FFFFFFF) % 6


@story
async def test_records_without_a_key_reach_all_partitions(bootstrap: str, wire: Wire) -> None:
    name = f"sticky-{os.urandom(4).hex()}"
    wire.create_topic(name, partitions=3)
    counts = dict.fromkeys(range(3), 0)
    async with Producer(bootstrap, batch_size=2000) as producer:
        for _ in range(60):
            for metadata in await asyncio.gather(
                *(producer.send(name, bytes(400)) for _ in range(50))
            ):
                counts[metadata.partition] += 1
    assert sum(counts.values()) == 3000
    assert min(counts.values()) > 200


@story
async def test_a_partition_can_be_given_and_must_exist(bootstrap: str, wire: Wire) -> None:
    name = f"given-{os.urandom(4).hex()}"
    wire.create_topic(name, partitions=2)
    async with Producer(bootstrap) as producer:
        assert (await producer.send(name, b"x", partition=1)).partition == 1
        for wrong in (2, -1):
            with pytest.raises(UnknownTopic, match="partitions 0 to 1"):
                await producer.send(name, b"x", partition=wrong)
            with pytest.raises(UnknownTopic):
                producer.submit(name, b"x", partition=wrong)


@story
async def test_a_partitioner_decides(bootstrap: str, wire: Wire) -> None:
    name = f"chosen-{os.urandom(4).hex()}"
    wire.create_topic(name, partitions=4)

    def last(topic: str, key: Any, value: Any, partitions: int) -> int:
        assert (topic, key, value) == (name, "k", b"v")
        return partitions - 1

    async with Producer(bootstrap, partitioner=last) as producer:
        assert (await producer.send(name, b"v", key="k")).partition == 3


@pytest.mark.parametrize("chosen", ["1", -1, 1, 2**40, None, 0.0])
@story
async def test_a_partitioner_that_gives_rubbish_is_told_what_it_gave(
    bootstrap: str, topic: str, chosen: Any
) -> None:
    async with Producer(bootstrap, partitioner=lambda *_: chosen) as producer:
        for _ in range(2):  # before the topic is known, and after that
            with pytest.raises(
                InvalidRecord, match=rf"returned {re.escape(repr(chosen))} .* 0 to 0"
            ):
                await producer.send(topic, b"x")
        with pytest.raises(InvalidRecord, match="expected one of its partitions"):
            producer.submit(topic, b"x")
        assert queued_bytes(producer) == 0


@story
async def test_a_partitioner_that_fails_is_the_reason_that_is_raised(
    bootstrap: str, topic: str
) -> None:
    def fail(*_: object) -> int:
        raise KeyError("nobody knows")

    async with Producer(bootstrap, partitioner=fail) as producer:
        for _ in range(2):
            with pytest.raises(InvalidRecord, match=r"partitioner failed .*nobody knows"):
                await producer.send(topic, b"x")


@story
async def test_serializers_make_the_bytes(bootstrap: str, topic: str, wire: Wire) -> None:
    async with Producer(
        bootstrap,
        value_serializer=lambda value: json.dumps(value).encode(),
        key_serializer=lambda key: str(key).encode(),
    ) as producer:
        await producer.send(topic, {"a": 1}, key=7)
        producer.submit(topic, [2], key=8)
        with pytest.raises(SerializationFailed, match=rf"value of a record for topic {topic}.*set"):
            await producer.send(topic, {1, 2})
        with pytest.raises(SerializationFailed, match="value"):
            producer.submit(topic, {1, 2})
    found = stored(wire, topic)
    assert [(r.key, r.value) for r in found] == [(b"7", b'{"a": 1}'), (b"8", b"[2]")]


@story
async def test_what_is_no_bytes_is_refused_by_name(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        with pytest.raises(
            SerializationFailed, match=f"the value of a record for topic {topic}.*value_serializer"
        ):
            await producer.send(topic, 3)
        with pytest.raises(SerializationFailed, match="the key"):
            producer.submit(topic, b"x", key=object())
        wrong: tuple[Any, ...] = ({"a": 1}, ["ab"], "ab", [("a",)], [(1, b"x")], 5)
        for headers in wrong:
            with pytest.raises(SerializationFailed, match="the headers"):
                producer.submit(topic, b"x", headers=headers)
        with pytest.raises(TypeError, match="on_delivery=5 cannot be called"):
            producer.submit(topic, b"x", on_delivery=5)  # type: ignore[arg-type]
        assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory


@story
async def test_headers_come_in_any_mapping_or_sequence(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    given: tuple[Any, ...] = (
        MappingProxyType({"a": b"1"}),
        ChainMap({"a": "1"}),
        [("a", b"1")],
        (["a", b"1"],),
        deque([("a", b"1")]),
    )
    async with Producer(bootstrap) as producer:
        for headers in given:
            await producer.send(topic, b"x", headers=headers, partition=0)
    assert [r.headers for r in stored(wire, topic)] == [(("a", b"1"),)] * len(given)


class Watch:
    """An interceptor that changes records, sees their ends, and fails when told to."""

    def __init__(self) -> None:
        self.ends: list[tuple[RecordMetadata | None, ClientError | None]] = []
        self.fails = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        if self.fails:
            raise RuntimeError("on_send")
        return ProducerRecord(record.topic, record.value + "!", record.key)

    def on_acknowledgement(
        self, metadata: RecordMetadata | None, error: ClientError | None
    ) -> None:
        self.ends.append((metadata, error))
        if self.fails:
            raise RuntimeError("on_acknowledgement")


@story
async def test_interceptors_see_every_record(bootstrap: str, topic: str, wire: Wire) -> None:
    watch = Watch()
    async with Producer(bootstrap, interceptors=[watch]) as producer:
        metadata = await producer.send(topic, "one")
        producer.submit(topic, "two")
        await producer.flush()
        watch.fails = True  # which is logged, and stops nothing
        await producer.send(topic, "three")
    assert [record.value for record in stored(wire, topic)] == [b"one!", b"two!", b"three"]
    assert [end[0].offset for end in watch.ends if end[0]] == [0, 1, 2]
    assert watch.ends[0] == (metadata, None)


@story
async def test_interceptors_see_records_that_are_refused_and_those_whose_sender_has_gone(
    bootstrap: str, topic: str
) -> None:
    watch = Watch()
    async with Producer(bootstrap, interceptors=[watch]) as producer:
        with pytest.raises(RecordTooLarge):
            await producer.send(topic, "x" * 2_000_000)
        with pytest.raises(RecordTooLarge):
            producer.submit(topic, "x" * 2_000_000)
        with pytest.raises(TypeError):
            producer.submit(3, "x")  # type: ignore[arg-type]
        going = asyncio.create_task(producer.send(topic, "one"))
        await asyncio.sleep(0)
        going.cancel()
        await producer.flush()
    assert [type(error) for _, error in watch.ends[:3]] == [
        RecordTooLarge,
        RecordTooLarge,
        InvalidRecord,
    ]
    assert [end[0].offset for end in watch.ends[3:] if end[0]] == [0]


@story
async def test_an_interceptor_that_gives_no_record_changes_nothing(
    bootstrap: str, topic: str, wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    class Nothing:
        def on_send(self, record: ProducerRecord) -> None:
            pass

    async with Producer(bootstrap, interceptors=[Nothing()]) as producer:
        await producer.send(topic, "one")
        producer.submit(topic, "two")
    assert [record.value for record in stored(wire, topic)] == [b"one", b"two"]
    assert "on_send gave None" in caplog.text


@story
async def test_on_delivery_is_told(bootstrap: str, topic: str) -> None:
    told: list[Any] = []

    def failing(metadata: RecordMetadata | None, error: ClientError | None) -> None:
        told.append(metadata)
        raise RuntimeError("the user's own")

    async with Producer(bootstrap) as producer:
        producer.submit(topic, b"x", on_delivery=failing)
        producer.submit(topic, b"y", on_delivery=lambda *end: told.append(end))
        await producer.flush()
    assert told[0].offset == 0
    assert told[1][0].offset == 1
    assert told[1][1] is None


@story
async def test_a_record_that_is_too_large_is_refused_before_it_is_queued(
    bootstrap: str, topic: str
) -> None:
    async with Producer(bootstrap) as producer:
        for call in (producer.send, producer.submit):
            with pytest.raises(RecordTooLarge, match=r"2000093 bytes.*max_request_size=1048576"):
                await call(topic, bytes(2_000_000))  # type: ignore[misc]
        assert producer.metrics()["buffer-available-bytes"] == producer.config.buffer_memory
    async with Producer(bootstrap, buffer_memory=5000) as producer:
        with pytest.raises(RecordTooLarge, match="buffer_memory=5000"):
            await producer.send(topic, bytes(6000))


@story
async def test_a_topic_that_may_not_be_is_refused(bootstrap: str) -> None:
    async with Producer(bootstrap, max_block_ms=5000) as producer:
        with pytest.raises(InvalidTopic, match="no good name"):
            await producer.send("no good name", b"x")
        producer.submit("no good name", b"x")
        with pytest.raises(InvalidTopic, match="1 record was not delivered"):
            await producer.flush()
        await producer.flush()  # said once


@story
async def test_a_closed_producer_says_so(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    await Producer(bootstrap).close()
    with pytest.raises(ClientClosed, match="not started"):
        producer.submit(topic, b"x")
    await producer.start()
    await producer.close()
    await producer.close()
    for call in (
        lambda: producer.send(topic, b"x"),
        lambda: producer.flush(),
        lambda: producer.partitions_for(topic),
    ):
        with pytest.raises(ClientClosed):
            await call()
    with pytest.raises(ClientClosed):
        producer.submit(topic, b"x")


def test_another_loop_is_refused(bootstrap: str, topic: str, wire: Wire) -> None:
    async def started() -> Producer:
        producer = Producer(bootstrap)
        await producer.start()
        return producer

    async def misuse(producer: Producer) -> None:
        with pytest.raises(WrongLoop):
            await producer.send(topic, b"x")
        for _ in range(2):
            with pytest.raises(WrongLoop):
                producer.submit(topic, b"x")

    async def use(producer: Producer) -> None:
        producer.submit(topic, b"y")
        await producer.flush()

    with asyncio.Runner() as one:
        producer = one.run(started())
        asyncio.run(misuse(producer))  # the topic is not known yet
        one.run(use(producer))
        asyncio.run(misuse(producer))
        one.run(use(producer))
        assert wire.values(topic) == [b"y", b"y"]
        with pytest.raises(WrongLoop, match="no event loop"):
            producer.metrics()
        one.run(producer.close())


def in_a_fork(submit: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        try:
            submit()
        except Forked:
            os._exit(7)
        os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@story
async def test_a_fork_is_refused(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send(topic, b"x")
        assert in_a_fork(lambda: producer.submit(topic, b"y")) == 7
        assert (await producer.send(topic, b"z")).offset == 1


@story
async def test_a_fork_adds_nothing_to_a_batch_of_its_parent(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    async with Producer(bootstrap, batch_size=1000) as producer:
        await producer.send(topic, b"first")
        producer.submit(topic, b"x")
        kept = producer.submit

        def fill() -> None:
            for _ in range(20):
                kept(topic, bytes(100))

        assert in_a_fork(lambda: producer.submit(topic, b"y")) == 7
        assert in_a_fork(fill) == 7
    assert [record.value for record in stored(wire, topic)] == [b"first", b"x"]


@story
async def test_transactions_need_a_transactional_id(bootstrap: str) -> None:
    async with Producer(bootstrap) as producer:
        with pytest.raises(InvalidTransactionState, match="a transactional_id"):
            async with producer.transaction():
                pass
        with pytest.raises(InvalidTransactionState):
            await producer.send_offsets({}, "group")


@story
async def test_settings_that_exclude_each_other_are_refused(bootstrap: str) -> None:
    with pytest.raises(ConfigError, match="linger"):
        Producer(bootstrap, lingr_ms=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="idempotence"):
        Producer(bootstrap, enable_idempotence=True, acks=1)


@story
async def test_partitions_are_told(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        (partition,) = await producer.partitions_for(topic)
        assert (partition.index, partition.leader in partition.replicas) == (0, True)


@story
async def test_a_buffer_that_is_full_is_emptied_by_submit_itself(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    """No await between the records: they can only leave by being sent on the spot."""
    async with Producer(bootstrap, buffer_memory=100_000, batch_size=16_384) as producer:
        for number in range(3000):
            producer.submit(topic, f"{number:>500}")
        assert producer.metrics()["bufferpool-wait-total"] > 0
    values = [int(record.value or b"") for record in stored(wire, topic)]
    assert values == list(range(3000))


@story
async def test_those_who_wait_for_room_come_in_order(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    async with Producer(bootstrap, buffer_memory=20_000, batch_size=4_000) as producer:
        done = await asyncio.gather(
            *(producer.send(topic, f"{number:>1000}") for number in range(200))
        )
    assert [metadata.offset for metadata in done] == list(range(200))
    values = [int(record.value or b"") for record in stored(wire, topic)]
    assert values == list(range(200))


@story
async def test_what_is_sent_to_a_topic_that_is_not_known_yet_keeps_its_order(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(100):
            producer.submit(topic, str(number))
        metadata = await producer.send(topic, "100")
    assert metadata.offset == 100
    assert [int(r.value or b"") for r in stored(wire, topic)] == list(range(101))


@pytest.mark.parametrize("codec", ["none", "lz4"])
@story
async def test_a_batch_that_the_topic_finds_too_large_arrives_in_parts(
    bootstrap: str, wire: Wire, codec: Any
) -> None:
    name = f"small-{os.urandom(4).hex()}"
    wire.create_topic(name, max_message_bytes="2000")
    async with Producer(bootstrap, compression_type=codec, linger_ms=20) as producer:
        for number in range(200):
            producer.submit(name, f"{number} {os.urandom(100).hex()}")
        await producer.flush()
        assert producer.metrics()["batch-split-total"] > 0
        assert producer.metrics()["record-send-total"] == 200
        with pytest.raises(RecordTooLarge, match=r"max\.message\.bytes"):
            await producer.send(name, os.urandom(3000))
        await producer.send(name, b"200 small")
    numbers = [int((record.value or b"").split()[0]) for record in stored(wire, name)]
    assert numbers == list(range(201))


@story
async def test_a_client_is_started_once(bootstrap: str) -> None:
    producer = Producer(bootstrap)
    await producer.start()
    with pytest.raises(ClientError, match="already started"):
        await producer.start()
    await producer.close()
    with pytest.raises(ClientClosed, match="create a new one"):
        await producer.start()


@story
async def test_whoever_waits_for_room_is_told_that_the_producer_was_closed(
    bootstrap: str, topic: str
) -> None:
    producer = Producer(bootstrap, buffer_memory=3000)
    await producer.start()
    sends = [asyncio.create_task(producer.send(topic, bytes(1000))) for _ in range(20)]
    await asyncio.sleep(0)  # each has begun, and most wait in line
    assert producer.metrics()["waiting-threads"] > 10
    await producer.close()
    ends = await asyncio.gather(*sends, return_exceptions=True)
    assert {type(end) for end in ends} == {RecordMetadata, ClientClosed}


@story
async def test_a_producer_that_is_dropped_unclosed_says_what_may_be_lost(
    bootstrap: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap)
    await producer.start()
    with pytest.warns(ResourceWarning, match="not closed: use it in `async with`"):
        del producer
    assert "not closed" not in caplog.text  # only connections are left behind

    producer = Producer(bootstrap, linger_ms=60_000)
    await producer.start()
    producer.submit(topic, bytes(1000))
    with pytest.warns(ResourceWarning, match=r"not closed, and \d{4} bytes"):
        del producer
    assert "not acknowledged" in caplog.text


@story
async def test_what_a_closed_producer_had_is_given_back(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    await producer.start()
    await producer.send(topic, b"x")
    held = [weakref.ref(each) for each in (producer._cluster, producer._open().sender)]
    kept = producer.submit
    await producer.close()
    del producer
    gc.collect()
    assert [each() for each in held] == [None, None]
    for more in ({}, {"key": b"k"}, {"partition": 0}, {"partition": 9}):
        for _ in range(2):
            with pytest.raises(ClientClosed, match="create a new one"):
                kept(topic, b"x", **more)
    with pytest.raises(ClientClosed, match="create a new one"):
        kept("another", b"x")


@story
async def test_a_producer_that_was_closed_or_never_started_says_nothing(
    bootstrap: str, topic: str
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        producer = Producer(bootstrap, partitioner=lambda *_: 0)
        await producer.start()
        await producer.send(topic, b"x")
        await producer.close()
        watch = weakref.ref(producer)
        del producer
        assert watch() is None  # no cycle keeps it
        Producer(bootstrap)
        with pytest.raises(ConfigError):
            Producer(bootstrap, acks="some")  # type: ignore[arg-type]


@pytest.mark.parametrize("is_known", [True, False])
@story
async def test_a_thread_that_may_not_submit_takes_no_record_of_another_with_it(
    bootstrap: str, topic: str, is_known: bool
) -> None:
    async with Producer(bootstrap) as producer:
        if is_known:
            await producer.send(topic, b"first")
        check, owner = producer._cluster.check, threading.current_thread()
        is_in, may_go = threading.Event(), threading.Event()

        def check_late() -> None:
            """The record of the other thread is in, and it has not been told yet."""
            if threading.current_thread() is not owner:
                is_in.set()
                may_go.wait()
            check()

        vars(producer._cluster)["check"] = check_late
        wrong = asyncio.create_task(
            asyncio.to_thread(producer.submit, topic, b"wrong", partition=0)
        )
        await asyncio.to_thread(is_in.wait)
        mine = asyncio.create_task(producer.send(topic, b"mine", partition=0))
        await asyncio.sleep(0)
        may_go.set()
        with pytest.raises(WrongLoop):
            await wrong
        await mine
        await producer.flush()
        assert queued_bytes(producer) == 0


MOMENT = datetime(2026, 1, 1, 12, 0, 0, 1000, tzinfo=UTC)  # which a float would round down


@story
@pytest.mark.parametrize(
    "given", [MOMENT, MOMENT.astimezone().replace(tzinfo=None), 1_767_268_800_001]
)
async def test_a_timestamp_is_a_datetime_or_milliseconds(
    bootstrap: str, topic: str, wire: Wire, given: datetime | int
) -> None:
    async with Producer(bootstrap) as producer:
        sent = await producer.send(topic, b"sent", timestamp=given)
        assert sent.timestamp == 1_767_268_800_001
        producer.submit(topic, b"submitted", timestamp=given)
    async with Producer(bootstrap, value_serializer=bytes) as producer:
        await producer.send(topic, b"serialized", timestamp=given)
        producer.submit(topic, b"serialized", timestamp=given)
    with BlockingProducer(bootstrap) as blocking:
        blocking.send(topic, b"blocking", timestamp=given)
        blocking.submit(topic, b"blocking", timestamp=given)
    assert [each.timestamp for each in stored(wire, topic)] == [1_767_268_800_001] * 6


@story
@pytest.mark.parametrize("given", ["now", 1.5, 2**63])
async def test_a_timestamp_that_is_neither_is_refused(
    bootstrap: str, topic: str, given: Any
) -> None:
    async with Producer(bootstrap) as producer:
        with pytest.raises((TypeError, OverflowError), match="timestamp"):
            await producer.send(topic, b"x", timestamp=given)
        with pytest.raises((TypeError, OverflowError), match="timestamp"):
            producer.submit(topic, b"x", timestamp=given)
        before_1970 = datetime(1969, 12, 31, tzinfo=UTC)
        with pytest.raises(SerializationFailed, match="before 1970"):
            await producer.send(topic, b"x", timestamp=before_1970)
