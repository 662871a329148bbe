"""The blocking producer: the same calls from plain threads."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from harness.wire import Wire
from headwater.blocking import Producer
from headwater.client.errors import (
    BrokersUnavailable,
    ClientClosed,
    ClientError,
    InvalidRecord,
    InvalidTopic,
    InvalidTransactionState,
    RecordTooLarge,
    RequestTimedOut,
    SerializationFailed,
    WrongLoop,
)
from headwater.protocol.apis import ApiKey
from headwater.testing import EmbeddedBroker
from tests.support.fake_broker import FakeBroker, one_topic, story


@pytest.fixture
def bootstrap(shared_broker: EmbeddedBroker) -> str:
    return shared_broker.bootstrap


def test_a_record_is_acknowledged(bootstrap: str, topic: str, wire: Wire) -> None:
    wire.create_topic(topic)
    with Producer(bootstrap) as producer:
        assert producer.send(topic, key="alice", value=b"one").offset == 0
        assert len(producer.partitions_for(topic)) == 1
        assert producer.metrics()["record-send-total"] == 1
    assert wire.values(topic) == [b"one"]


def test_arrow_rows_go_behind_what_was_submitted_before(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    arrow = pytest.importorskip("pyarrow")
    wire.create_topic(topic)
    rows = arrow.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(1000)]})
    with Producer(bootstrap) as producer:
        producer.submit(topic, b"first")
        producer.submit_arrow(rows, topic=topic)
        producer.submit(topic, b"last")
        producer.flush()
        with pytest.raises(SerializationFailed):
            producer.submit_arrow(arrow.RecordBatch.from_pydict({"value": [1]}), topic=topic)
    assert wire.values(topic) == [b"first", *(b"%d" % number for number in range(1000)), b"last"]


def test_what_one_thread_gives_keeps_its_order(bootstrap: str, topic: str, wire: Wire) -> None:
    wire.create_topic(topic)
    with Producer(bootstrap) as producer:
        for number in range(3000):
            producer.submit(topic, str(number))
            if number % 500 == 0:
                producer.submit(topic, f"{number} with a header", headers={"a": b"b"})
            if number % 1000 == 0:
                producer.send(topic, f"{number} awaited")
        producer.flush()
    expected = []
    for number in range(3000):
        expected.append(str(number))
        if number % 500 == 0:
            expected.append(f"{number} with a header")
        if number % 1000 == 0:
            expected.append(f"{number} awaited")
    assert wire.values(topic) == [value.encode() for value in expected]


def test_threads_may_share_one(bootstrap: str, topic: str, wire: Wire) -> None:
    wire.create_topic(topic)
    with Producer(bootstrap) as producer:

        def give(name: str) -> None:
            for number in range(1000):
                producer.submit(topic, f"{name}{number}")

        threads = [threading.Thread(target=give, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    values = [(value or b"").decode() for value in wire.values(topic)]
    for name in "abc":
        assert [v for v in values if v[0] == name] == [f"{name}{n}" for n in range(1000)]


def test_more_than_the_buffer_holds_can_be_submitted(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    wire.create_topic(topic)
    with Producer(bootstrap, buffer_memory=200_000, batch_size=20_000) as producer:
        for number in range(5000):
            producer.submit(topic, f"{number:>200}")
    assert [int(value or b"") for value in wire.values(topic)] == list(range(5000))


def test_submit_may_wait_for_room_for_ever(bootstrap: str, topic: str, wire: Wire) -> None:
    wire.create_topic(topic)
    with Producer(bootstrap, max_block_ms=2**63 - 1, buffer_memory=20_000) as producer:
        for _ in range(5000):  # more than the queue before the buffer holds
            producer.submit(topic, bytes(1000))
    assert len(wire.values(topic)) == 5000


def test_a_thread_does_not_wait_for_records_that_come_behind_its_own(
    bootstrap: str, topic: str, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire.create_topic(topic)
    wanted, given = threading.Semaphore(0), threading.Semaphore(0)
    is_fed = threading.Event()

    def choose(*_: object) -> int:
        """While a record is taken over another one is given, so the queue is never empty."""
        if is_fed.is_set():
            wanted.release()
            given.acquire()
        return 0

    monkeypatch.setattr("headwater.client.producer.producer._PIECE_RECORDS", 10)
    with Producer(bootstrap, partitioner=choose) as producer:

        def feed() -> None:
            while wanted.acquire() and is_fed.is_set():
                producer.submit(topic, b"more")
                given.release()
            given.release()

        feeding = threading.Thread(target=feed)
        sending = threading.Thread(target=producer.send, args=(topic, b"mine"))
        producer.send(topic, b"first")
        is_fed.set()
        feeding.start()
        producer.submit(topic, b"second")
        sending.start()
        sending.join(timeout=10)
        was_sent = not sending.is_alive()
        is_fed.clear()
        wanted.release()
        feeding.join()
        sending.join()
        assert was_sent
    assert b"mine" in wire.values(topic)


def test_what_is_wrong_with_a_record_is_said_at_once(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        with pytest.raises(RecordTooLarge):
            producer.submit(topic, bytes(2_000_000))
        with pytest.raises(SerializationFailed):
            producer.submit(topic, 3)
        with pytest.raises(SerializationFailed):
            producer.submit(topic, b"x", headers={"a": 1})
    with Producer(bootstrap, value_serializer=lambda value: value.encode()) as producer:
        with pytest.raises(SerializationFailed):
            producer.submit(topic, 3)
        producer.submit(topic, "three")


def test_what_goes_wrong_later_is_said_by_flush(bootstrap: str) -> None:
    told: list[Any] = []
    with Producer(bootstrap) as producer:
        producer.submit("no good name", b"x")
        producer.submit("no good name", b"y", on_delivery=lambda *end: told.append(end))
        with pytest.raises(InvalidTopic, match="1 record was not delivered"):
            producer.flush()
        assert isinstance(told[0][1], InvalidTopic)
        with (
            pytest.raises(InvalidTransactionState, match="a transactional_id"),
            producer.transaction(),
        ):
            pass


def test_a_closed_producer_says_so(bootstrap: str, topic: str) -> None:
    producer = Producer(bootstrap)
    producer.start()
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(topic, b"x")
    with pytest.raises(ClientClosed):
        producer.submit(topic, b"x")


def test_nobody_there_is_said_in_bounded_time() -> None:
    with pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1"):
        Producer("127.0.0.1:1", start_timeout_ms=200).send("t", b"x")


def test_a_callback_may_not_call_its_producer(bootstrap: str, topic: str, wire: Wire) -> None:
    wire.create_topic(topic)
    told: list[BaseException] = []
    with Producer(bootstrap) as producer:

        def again(*_: object) -> None:
            try:
                producer.submit(topic, b"again")
            except WrongLoop as error:
                told.append(error)

        producer.submit(topic, b"x", on_delivery=again)
        producer.flush()
    assert len(told) == 1
    assert wire.values(topic) == [b"x"]


def test_a_submit_that_was_kept_says_that_the_producer_is_closed(
    bootstrap: str, topic: str
) -> None:
    with Producer(bootstrap) as producer:
        submit = producer.submit
    with pytest.raises(ClientClosed):
        submit(topic, b"x")


def test_a_partitioner_that_fails_is_said_by_flush(bootstrap: str, topic: str, wire: Wire) -> None:
    wire.create_topic(topic)

    def choose(topic: str, key: object, value: object, partitions: int) -> int:
        raise KeyError("nobody knows")

    with Producer(bootstrap, partitioner=choose) as producer:
        producer.partitions_for(topic)
        producer.submit(topic, b"x")
        with pytest.raises(InvalidRecord, match="nobody knows"):
            producer.flush()


def test_a_partitioner_that_fails_while_the_buffer_is_full_costs_only_its_record(
    bootstrap: str, topic: str, wire: Wire
) -> None:
    wire.create_topic(topic)
    told: list[ClientError | None] = []

    def choose(topic: str, key: object, value: Any, partitions: int) -> int:
        if value[0] % 10 == 0:
            raise KeyError("nobody knows")
        return 0

    with Producer(bootstrap, partitioner=choose, buffer_memory=3000) as producer:
        producer.partitions_for(topic)
        for number in range(100):
            value = bytes([number]) * 1000
            producer.submit(topic, value, on_delivery=lambda _, error: told.append(error))
        producer.flush()
        assert len(told) == 100
        assert sum(isinstance(each, InvalidRecord) for each in told) == 10


def _told_while_stuck(end: Callable[[Producer], None]) -> list[ClientError | None]:
    """Returns the outcomes of ten records if no answer comes and `end` ends the producer."""
    told: list[ClientError | None] = []

    @story
    async def stuck() -> None:
        async with FakeBroker() as broker:
            broker.topics = [one_topic("t", leader=broker.node_id)]
            broker.answers[ApiKey.PRODUCE] = lambda _: None
            await asyncio.to_thread(submit_and_end, broker.bootstrap)

    def submit_and_end(bootstrap: str) -> None:
        producer = Producer(
            bootstrap, buffer_memory=2000, max_block_ms=600_000, enable_idempotence=False
        )
        producer.start()
        for _ in range(10):
            producer.submit("t", bytes(500), on_delivery=lambda _, error: told.append(error))
        end(producer)

    stuck()
    return told


def test_close_keeps_its_deadline_while_records_wait_for_room_and_tells_of_each() -> None:
    def end(producer: Producer) -> None:
        producer.close(timeout_ms=50)

    told = _told_while_stuck(end)
    assert len(told) == 10
    assert all(isinstance(each, ClientClosed) for each in told)


def test_a_second_thread_may_hurry_the_one_that_closes() -> None:
    def end(producer: Producer) -> None:
        closing = threading.Thread(target=producer.close)
        closing.start()
        while not producer._is_closed:
            threading.Event().wait(0.001)
        producer.close(timeout_ms=50)
        closing.join()

    told = _told_while_stuck(end)
    assert [type(each) for each in told] == [ClientClosed] * 10


def test_flush_keeps_its_deadline_while_records_wait_for_room_and_loses_none() -> None:
    def end(producer: Producer) -> None:
        with pytest.raises(RequestTimedOut, match="timeout_ms=50"):
            producer.flush(timeout_ms=50)
        producer.close(timeout_ms=0)

    assert len(_told_while_stuck(end)) == 10


def test_records_that_a_program_leaves_behind_are_not_lost_in_silence(
    bootstrap: str, topic: str
) -> None:
    program = f"""
from headwater.blocking import Producer
producer = Producer({bootstrap!r}, linger_ms=60_000)
producer.submit({topic!r}, b"left behind")
"""
    for end, said in (("", "a producer was not closed"), ("producer.flush()", "")):
        command = [sys.executable, "-c", program + end]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0
        assert said in done.stderr
        assert bool(said) == bool(done.stderr)
