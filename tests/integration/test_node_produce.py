"""Produce and fetch on a real connection: what goes in comes out, and what cannot is refused."""

from __future__ import annotations

import select
import time
from contextlib import ExitStack

import pytest

from harness.wire import Plain, Wire, all_versions, batch, records_of
from headwater import _core
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.conftest import MakeBroker

CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@pytest.mark.parametrize("version", all_versions(ApiKey.PRODUCE))
def test_every_version_of_produce_appends(wire: Wire, topic: str, version: int) -> None:
    wire.topic_id(topic)
    first = wire.produce(topic, batch([b"a", b"b"]), version=version)
    second = wire.produce(topic, batch([b"c"]), version=version)
    assert (first.error_code, first.base_offset) == (0, 0)
    assert (second.error_code, second.base_offset) == (0, 2)
    assert wire.values(topic) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("version", all_versions(ApiKey.FETCH))
def test_every_version_of_fetch_reads(wire: Wire, topic: str, version: int) -> None:
    wire.topic_id(topic)
    wire.produce(topic, batch([b"a", b"b", b"c"]))
    data = wire.fetch(topic, 1, version=version)
    assert data.error_code == 0
    assert data.high_watermark == 3
    assert data.last_stable_offset == 3
    assert [record.value for record in records_of(data, 1)] == [b"b", b"c"]


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
def test_a_record_comes_back_as_it_was_sent(wire: Wire, topic: str, codec: int) -> None:
    sent = [
        Plain(b"value", b"key", (("h", b"1"), ("h", b"2"), ("empty", b""), ("null", None)), 1000),
        Plain(None, b"tombstone", (), 2000),
        Plain(b"", b"", (), 3000),
        Plain("größer".encode() * 1000, None, (), 4000),
    ]
    wire.topic_id(topic)
    answer = wire.produce(topic, batch(sent, codec=codec))
    assert answer.error_code == 0
    got = [
        Plain(record.value, record.key, record.headers, record.timestamp)
        for record in records_of(wire.fetch(topic))
    ]
    assert got == sent


@pytest.mark.parametrize("acks", [1, -1])
def test_both_acknowledgements_say_where_the_batch_is(wire: Wire, topic: str, acks: int) -> None:
    wire.topic_id(topic)
    assert wire.produce(topic, batch([b"a"]), acks=acks).base_offset == 0
    answer = wire.produce(topic, batch([b"b"]), acks=acks)
    assert (answer.base_offset, answer.log_start_offset, answer.log_append_time_ms) == (1, 0, -1)


def test_acks_zero_is_appended_and_not_answered(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    request, version = wire.produce_request(topic, batch([b"quiet"]), acks=0)
    wire.send(request, version)
    # The next answer on the connection belongs to the next request.
    assert wire.values(topic) == [b"quiet"]


def test_an_acks_that_does_not_exist_is_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    answer = wire.produce(topic, batch([b"x"]), acks=2)
    assert answer.error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert wire.values(topic) == []


def test_one_bad_partition_leaves_the_others_served(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    damaged = bytearray(batch([b"bad"]))
    damaged[-1] ^= 1
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=0, records=batch([b"good"])),
                    PartitionProduceData(index=99, records=batch([b"nowhere"])),
                ],
            ),
            TopicProduceData(
                name=f"{topic}-missing",
                partition_data=[PartitionProduceData(index=0, records=bytes(damaged))],
            ),
        ],
    )
    served, missing = wire.ask(request, 12).responses
    assert [p.error_code for p in served.partition_responses] == [
        0,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert missing.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.values(topic) == [b"good"]


def test_a_topic_id_that_nobody_has_is_refused(wire: Wire) -> None:
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(
                topic_id=b"\x07" * 16,
                partition_data=[PartitionProduceData(index=0, records=batch([b"x"]))],
            )
        ],
    )
    (answer,) = wire.ask(request, 13).responses
    assert answer.partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("position", [17, 30, -1], ids=["crc", "header", "record"])
def test_a_damaged_batch_is_corrupt(wire: Wire, topic: str, position: int) -> None:
    wire.topic_id(topic)
    damaged = bytearray(batch([b"value"]))
    damaged[position] ^= 1
    assert wire.produce(topic, bytes(damaged)).error_code == ErrorCode.CORRUPT_MESSAGE
    assert wire.values(topic) == []


def test_messages_of_before_batches_are_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    old = bytearray(batch([b"value"]))
    old[16] = 1  # the magic
    answer = wire.produce(topic, bytes(old))
    assert answer.error_code in (
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
    )
    assert wire.values(topic) == []


def test_a_client_may_not_write_control_records(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    control = batch([Plain(b"\0\0\0\0\0\0", b"\0\0\0\0")], control=True)
    assert wire.produce(topic, control).error_code == ErrorCode.INVALID_RECORD
    assert wire.values(topic) == []


def producer_id(wire: Wire) -> tuple[int, int]:
    answer = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
    assert answer.error_code == 0
    return answer.producer_id, answer.producer_epoch


def test_a_batch_sent_again_is_answered_with_the_offset_of_the_first(
    wire: Wire, topic: str
) -> None:
    wire.topic_id(topic)
    mine, epoch = producer_id(wire)
    batches = [
        batch([b"%d" % n, b"-"], producer_id=mine, producer_epoch=epoch, base_sequence=2 * n)
        for n in range(5)
    ]
    offsets = [wire.produce(topic, sent).base_offset for sent in batches]
    assert offsets == [0, 2, 4, 6, 8]
    for sent, offset in zip(batches, offsets, strict=True):
        again = wire.produce(topic, sent)
        assert (again.error_code, again.base_offset) == (0, offset)
    assert len(wire.values(topic)) == 10


def test_a_gap_in_the_sequence_is_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    mine, epoch = producer_id(wire)
    wire.produce(topic, batch([b"0"], producer_id=mine, producer_epoch=epoch, base_sequence=0))
    gap = batch([b"2"], producer_id=mine, producer_epoch=epoch, base_sequence=2)
    assert wire.produce(topic, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert wire.values(topic) == [b"0"]


def test_an_older_epoch_of_a_producer_is_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    mine, epoch = producer_id(wire)
    new = batch([b"new"], producer_id=mine, producer_epoch=epoch + 1, base_sequence=0)
    old = batch([b"old"], producer_id=mine, producer_epoch=epoch, base_sequence=0)
    assert wire.produce(topic, new).error_code == 0
    assert wire.produce(topic, old).error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert wire.values(topic) == [b"new"]


def test_every_producer_gets_an_id_of_its_own(wire: Wire) -> None:
    ids = [producer_id(wire)[0] for _ in range(50)]
    assert len(set(ids)) == 50


def test_large_values_pass_through(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    value = bytes(range(256)) * 3900
    assert wire.produce(topic, batch([value])).error_code == 0
    assert wire.values(topic) == [value]


def test_a_batch_larger_than_the_broker_allows_is_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    too_large = batch([bytes(1_100_000)])
    assert wire.produce(topic, too_large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert wire.values(topic) == []


def test_a_timestamp_far_in_the_future_is_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    in_two_hours = int(time.time() * 1000) + 7_200_000
    answer = wire.produce(topic, batch([Plain(b"x", timestamp=in_two_hours)]))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in answer.record_errors] == [0]


def test_the_batch_on_the_wire_is_the_batch_that_was_sent(wire: Wire, topic: str) -> None:
    """But for the base offset and the leader epoch, which the broker writes outside the CRC."""
    wire.topic_id(topic)
    sent = batch([b"a", b"b"], codec=CODECS["zstd"])
    wire.produce(topic, batch([b"before"]))
    wire.produce(topic, sent)
    got = bytes(wire.fetch(topic, 1).records)
    (found,), _, _ = _core.scan(got)
    assert found.base_offset == 1
    assert found.leader_epoch >= 0
    assert got[16:] == sent[16:]


def test_a_client_that_asks_for_many_producer_ids_has_to_wait(make_broker: MakeBroker) -> None:
    broker = make_broker({"headwater.producer.ids.per.second.max": "1"})
    with ExitStack() as open_wires:
        waiting: list[Wire] = []
        answered = select.poll()  # `select` is for the first 1,024 descriptors of a process
        for _ in range(200):
            wire = open_wires.enter_context(Wire(broker.bootstrap))
            answered.register(wire.socket, select.POLLIN)
            wire.send(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
            waiting.append(wire)
            readable = {descriptor for descriptor, _ in answered.poll(0)}
            ready = [each for each in waiting if each.socket.fileno() in readable]
            answers = [each.receive() for each in ready]
            waiting = [each for each in waiting if each not in ready]
            assert all(each.producer_id >= 0 for each in answers if not each.error_code)
            codes = {each.error_code for each in answers} - {0}
            if codes:
                break
        assert codes == {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
        assert waiting  # each answer comes in its turn, and the first in about a second
        assert waiting[0].receive().producer_id >= 0
    assert sum("producer ids a second" in line for line in broker.log_lines) >= 1
