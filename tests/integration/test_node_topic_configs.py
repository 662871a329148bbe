"""Effects of a topic's configs on produce and fetch."""

from __future__ import annotations

import time

import pytest

from harness.wire import Plain, Wire, batch, records_of
from headwater import _core
from headwater.errors import ErrorCode

CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_topic_recompresses_what_comes_in_another_codec(
    wire: Wire, topic: str, codec: int
) -> None:
    name = next(name for name, number in CODECS.items() if number == codec)
    wire.create_topic(topic, compression_type=name)
    for sent in CODECS.values():
        answer = wire.produce(topic, batch([b"a" * 500, b"b" * 500], codec=sent))
        assert answer.error_code == 0
    batches, _, problem = _core.scan(bytes(wire.fetch(topic).records))
    assert problem is None
    assert [found.codec for found in batches] == [codec] * 5
    assert wire.values(topic) == [b"a" * 500, b"b" * 500] * 5


def test_with_log_append_time_the_broker_says_when(wire: Wire, topic: str) -> None:
    wire.create_topic(topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    answer = wire.produce(topic, batch([Plain(b"a", timestamp=5), Plain(b"b", timestamp=6)]))
    after = int(time.time() * 1000)
    assert before <= answer.log_append_time_ms <= after
    data = bytes(wire.fetch(topic).records)
    (found,), _, _ = _core.scan(data)
    assert found.is_log_append_time
    assert {record.timestamp for record in _core.decode(data)} == {answer.log_append_time_ms}


def test_a_batch_larger_than_the_topic_allows_is_refused(wire: Wire, topic: str) -> None:
    wire.create_topic(topic, max_message_bytes="1000")
    assert wire.produce(topic, batch([bytes(900)])).error_code == 0
    assert wire.produce(topic, batch([bytes(1000)])).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.values(topic) == [bytes(900)]


def test_a_compacted_topic_wants_keys(wire: Wire, topic: str) -> None:
    wire.create_topic(topic, cleanup_policy="compact")
    answer = wire.produce(topic, batch([Plain(b"a", b"k"), Plain(b"b"), Plain(b"c")]))
    assert answer.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in answer.record_errors] == [1, 2]
    assert wire.produce(topic, batch([Plain(b"a", b"k")])).error_code == 0


def test_a_topic_sets_its_own_bounds_of_time(wire: Wire, topic: str) -> None:
    wire.create_topic(
        topic, message_timestamp_before_max_ms="1000", message_timestamp_after_max_ms="86400000"
    )
    now_ms = int(time.time() * 1000)
    old = wire.produce(topic, batch([Plain(b"x", timestamp=now_ms - 60_000)]))
    assert old.error_code == ErrorCode.INVALID_TIMESTAMP
    ahead = wire.produce(topic, batch([Plain(b"y", timestamp=now_ms + 7_200_000)]))
    assert ahead.error_code == 0


def test_a_small_segment_rolls_and_reads_go_on(wire: Wire, topic: str) -> None:
    wire.create_topic(topic, segment_bytes=str(1024 * 1024))
    values = [b"%04d" % number + bytes(50_000) for number in range(60)]
    for value in values:
        assert wire.produce(topic, batch([value])).error_code == 0
    assert wire.values(topic) == values
    assert [record.offset for record in records_of(wire.fetch(topic, 59), 59)] == [59]
