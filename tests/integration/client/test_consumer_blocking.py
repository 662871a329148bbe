"""The consumer for scripts and threads: the same, without `await`."""

from __future__ import annotations

import gc
import inspect
import subprocess
import sys
import threading
import time
import warnings

import pytest

from harness.wire import Wire, batch
from headwater import ClientClosed, DeserializationFailed, RebalanceListener, TopicPartition
from headwater.blocking import Consumer
from headwater.client.consumer import Consumer as AsyncConsumer
from headwater.testing import EmbeddedBroker
from tests.support.members import QUICK_BROKER


@pytest.fixture
def made_topic(shared_broker: EmbeddedBroker, wire: Wire, topic: str) -> str:
    wire.create_topic(topic)
    wire.produce(topic, batch([b"%d" % number for number in range(10)]))
    return topic


def test_a_plain_loop_reads_records(shared_broker: EmbeddedBroker, made_topic: str) -> None:
    tp = TopicPartition(made_topic, 0)
    with Consumer(
        shared_broker.bootstrap, topics=[made_topic], auto_offset_reset="earliest"
    ) as consumer:
        seen = []
        for record in consumer:
            seen.append(record.offset)
            assert consumer.position(tp) == record.offset + 1
            if record.offset == 3:
                break
        assert seen == [0, 1, 2, 3]
        assert [record.offset for record in consumer.poll(10_000, records_max=2)] == [4, 5]
        assert consumer.poll_arrow(timeout_ms=10_000).num_rows == 4
        consumer.seek(tp, 9)
        assert next(iter(consumer)).value == b"9"
        assert consumer.assignment() == {tp}
        assert consumer.end_offsets(tp) == {tp: 10}
    with pytest.raises(ClientClosed):
        consumer.poll()


def test_a_listener_may_call_the_consumer(topic: str) -> None:
    class Listener(RebalanceListener):
        def on_assigned(self, partitions: list[TopicPartition]) -> None:
            for tp in partitions:
                consumer.seek(tp, 7)

        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            consumer.commit(dict.fromkeys(partitions, 9))

    with EmbeddedBroker(QUICK_BROKER) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic(topic)
            wire.produce(topic, batch([b"x"] * 10))
        consumer = Consumer(
            broker.bootstrap,
            group=topic,
            topics=[topic],
            listener=Listener(),
            enable_auto_commit=False,
        )
        with consumer:
            assert next(iter(consumer)).offset == 7
        with Consumer(broker.bootstrap, group=topic) as reader:
            found = reader.committed((topic, 0))[TopicPartition(topic, 0)]
            assert found is not None
            assert found.offset == 9


def test_a_slow_loop_stays_in_the_group(
    shared_broker: EmbeddedBroker, made_topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(
        shared_broker.bootstrap,
        group=made_topic,
        topics=[made_topic],
        auto_offset_reset="earliest",
        max_poll_interval_ms=400,
    ) as consumer:
        for record in consumer:
            time.sleep(0.1)  # what it does with the record takes so long
            if record.offset == 8:
                break
        consumer.commit()
    assert "poll was not called" not in caplog.text


def test_a_closed_consumer_leaves_no_thread_behind(
    shared_broker: EmbeddedBroker, made_topic: str
) -> None:
    before = threading.active_count()
    with Consumer(shared_broker.bootstrap) as consumer:
        consumer.assign([(made_topic, 0)])
    assert threading.active_count() == before


def test_both_consumers_have_the_same_methods_and_arguments() -> None:
    def public(cls: type) -> dict[str, list[str]]:
        return {
            name: [p for p in inspect.signature(method).parameters if p != "host"]
            for name, method in inspect.getmembers(cls, callable)
            if not name.startswith("_") or name == "__init__"
        }

    ours, theirs = public(Consumer), public(AsyncConsumer)
    assert {name: ours.get(name) for name in theirs} == theirs


def test_a_consumer_that_is_dropped_unclosed_warns(shared_broker: EmbeddedBroker) -> None:
    consumer = Consumer(shared_broker.bootstrap).start()
    with pytest.warns(ResourceWarning, match="a consumer was not closed: use it in `with`") as said:
        del consumer
    assert len([each for each in said if each.category is ResourceWarning]) == 1


# It loses its broker while Python ends, and waits until it has said so.
UNCLOSED = """
import atexit, logging, sys, threading
from headwater.blocking import Consumer

said = threading.Event()
handler = logging.StreamHandler()
handler.addFilter(lambda record: said.set() or True)
logging.getLogger("headwater").addHandler(handler)
consumer = Consumer(sys.argv[1])
consumer.assign([("lines", 0)])
consumer.seek_to_beginning(("lines", 0))
consumer.poll(timeout_ms=100)

@atexit.register
def end():
    print("ending", flush=True)
    said.wait(30)
"""


def test_a_program_that_ends_with_an_open_consumer_says_so_in_one_line() -> None:
    with (
        EmbeddedBroker(topics={"lines": 1}) as broker,
        subprocess.Popen(
            [sys.executable, "-c", UNCLOSED, broker.bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program,
    ):
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "ending\n"
            broker.stop()
            _, said = program.communicate(timeout=60)
        finally:
            program.kill()
    assert "the program has ended without closing the client" in said
    assert len(said.splitlines()) == 1


def test_a_consumer_that_was_closed_is_dropped_in_silence(shared_broker: EmbeddedBroker) -> None:
    gc.collect()  # what other tests left behind
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        consumer = Consumer(shared_broker.bootstrap).start()
        consumer.close()
        del consumer
        with Consumer(shared_broker.bootstrap) as consumer:
            pass
        del consumer
        gc.collect()
    assert not [each for each in said if "consumer" in str(each.message)]


def test_a_loop_ends_when_a_callback_closes_the_consumer(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    wire.produce(topic, batch([b"1", b"bad", b"3"]))
    ended = threading.Event()

    def on_bad_record(error: DeserializationFailed) -> None:
        consumer.close()
        ended.set()

    consumer = Consumer(
        shared_broker.bootstrap,
        topics=[topic],
        auto_offset_reset="earliest",
        value_deserializer=int,
        on_bad_record=on_bad_record,
    )
    with consumer:
        assert [record.value for record in consumer] == [1]
        assert ended.is_set()
        with pytest.raises(ClientClosed):
            consumer.poll()


def test_a_listener_may_close_the_consumer_that_is_being_closed(
    shared_broker: EmbeddedBroker, made_topic: str
) -> None:
    revoked = threading.Event()

    class Listener(RebalanceListener):
        def on_revoked(self, partitions: list[TopicPartition]) -> None:
            consumer.close()
            revoked.set()

    with Consumer(
        shared_broker.bootstrap,
        group=made_topic,
        topics=[made_topic],
        auto_offset_reset="earliest",
        listener=Listener(),
    ) as consumer:
        next(iter(consumer))
        consumer.close(timeout_ms=60_000)
        assert revoked.is_set()
