"""Fetch: long polls, bounds, sessions, and what is refused."""

from __future__ import annotations

import time

from harness.wire import Wire, batch, newest, only_partition, records_of
from headwater import _core
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
)
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.testing import EmbeddedBroker

LONG_MS = 60_000
FETCH = newest(ApiKey.FETCH)


def test_a_long_poll_is_woken_by_a_produce(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    request, version = wire.fetch_request(topic, max_wait_ms=LONG_MS)
    started = time.monotonic()
    wire.send(request, version)
    with Wire(shared_broker.bootstrap) as other:
        other.produce(topic, batch([b"wake up"]))
    data = only_partition(wire.receive())
    assert [record.value for record in records_of(data)] == [b"wake up"]
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_fetch_of_nothing_waits_as_long_as_it_was_told(wire: Wire, topic: str) -> None:
    request, version = wire.fetch_request(topic, max_wait_ms=150)
    started = time.monotonic()
    data = only_partition(wire.ask(request, version))
    assert time.monotonic() - started >= 0.14
    assert data.error_code == 0
    assert not data.records


def test_min_bytes_are_waited_for(shared_broker: EmbeddedBroker, wire: Wire, topic: str) -> None:
    request, version = wire.fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=5_000)
    wire.send(request, version)
    with Wire(shared_broker.bootstrap) as other:
        for _ in range(5):
            other.produce(topic, batch([bytes(1_000)]))
    data = only_partition(wire.receive())
    assert len(records_of(data)) == 5


def test_an_error_ends_a_long_poll_at_once(wire: Wire, topic: str) -> None:
    started = time.monotonic()
    request, version = wire.fetch_request(topic, 1000, max_wait_ms=LONG_MS)
    data = only_partition(wire.ask(request, version))
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_request_behind_a_long_poll_ends_it(wire: Wire, topic: str) -> None:
    poll = wire.send(*wire.fetch_request(topic, max_wait_ms=LONG_MS))
    behind = wire.send(MetadataRequest(topics=[]))
    started = time.monotonic()
    number, answer = wire.receive_answer()
    assert number == poll
    assert not only_partition(answer).records
    assert wire.receive_answer()[0] == behind
    assert time.monotonic() - started < LONG_MS / 2000


def test_a_fetch_behind_a_long_poll_does_not_end_it(wire: Wire, topic: str) -> None:
    started = time.monotonic()
    for _ in range(2):
        wire.send(*wire.fetch_request(topic, max_wait_ms=150))
    for number in (1, 2):
        assert not only_partition(wire.receive()).records
        assert time.monotonic() - started >= 0.14 * number


def test_a_client_that_goes_away_in_a_long_poll_leaves_nothing_behind(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    for _ in range(20):
        with Wire(shared_broker.bootstrap) as gone:
            request, version = gone.fetch_request(topic, max_wait_ms=LONG_MS)
            gone.send(request, version)
    assert wire.produce(topic, batch([b"still here"])).error_code == 0
    assert wire.values(topic) == [b"still here"]
    assert not [line for line in shared_broker.log_lines if " ERROR " in line]


def test_the_first_batch_comes_whole_however_small_the_bound(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    wire.produce(topic, batch([bytes(5_000)]))
    wire.produce(topic, batch([bytes(5_000)]))
    data = wire.fetch(topic, partition_max_bytes=1, max_bytes=1)
    assert [record.offset for record in records_of(data)] == [0]


def test_a_bound_is_kept_and_reading_goes_on_behind_it(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    for _ in range(10):
        wire.produce(topic, batch([bytes(1_000)]))
    data = wire.fetch(topic, partition_max_bytes=3_500)
    assert len(data.records) <= 3_500
    assert [record.offset for record in records_of(data)] == [0, 1, 2]
    assert len(wire.values(topic, 3)) == 7


def test_a_fetch_from_within_a_batch_brings_the_whole_batch(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    wire.produce(topic, batch([b"0", b"1", b"2"]))
    (found,), _, _ = _core.scan(bytes(wire.fetch(topic, 2).records))
    assert (found.base_offset, found.count) == (0, 3)


def test_what_does_not_exist_is_said_and_the_rest_served(wire: Wire, topic: str) -> None:
    topic_id = wire.topic_id(topic)
    wire.produce(topic, batch([b"here"]))

    def asking(number: int) -> FetchPartition:
        return FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1000)

    by_name = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(topic=topic, partitions=[asking(0), asking(7)]),
            FetchTopic(topic="no-such-topic", partitions=[asking(0)]),
        ],
    )
    here, missing = wire.ask(by_name, 12).responses
    assert [data.error_code for data in here.partitions] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    by_id = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=[
            FetchTopic(topic_id=topic_id, partitions=[asking(0)]),
            FetchTopic(topic_id=b"\x09" * 16, partitions=[asking(0)]),
        ],
    )
    errors = {t.topic_id: t.partitions[0].error_code for t in wire.ask(by_id, FETCH).responses}
    assert errors == {topic_id: 0, b"\x09" * 16: ErrorCode.UNKNOWN_TOPIC_ID}


def test_a_session_carries_only_news(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    wire.produce(topic, batch([b"old"]))
    request, version = wire.fetch_request(topic, session_epoch=0)
    first = wire.ask(request, version)
    session = first.session_id
    assert session > 0
    assert len(records_of(only_partition(first))) == 1

    def next_fetch(epoch: int, *topics: FetchTopic) -> FetchRequest:
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            session_id=session,
            session_epoch=epoch,
            topics=list(topics),
        )

    moved = request.topics[0]
    moved.partitions[0].fetch_offset = 1
    nothing_new = wire.ask(next_fetch(1, moved))
    assert (nothing_new.error_code, nothing_new.session_id) == (0, session)
    assert nothing_new.responses == []
    wire.produce(topic, batch([b"new"]))
    news = only_partition(wire.ask(next_fetch(2)))
    assert [record.value for record in records_of(news)] == [b"new"]
    assert wire.ask(next_fetch(2)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    forgetting = next_fetch(3)
    forgetting.forgotten_topics_data = [
        ForgottenTopic(topic=topic, topic_id=wire.topic_id(topic), partitions=[0])
    ]
    assert wire.ask(forgetting).error_code == 0
    assert wire.ask(next_fetch(4)).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_nobody_began_is_refused(wire: Wire) -> None:
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=12345, session_epoch=3)
    assert wire.ask(request).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
