"""The core against bytes that Apache Kafka and kafka-python wrote, and what they read of ours."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from headwater import _core
from tests.reference.kafka_recordings import BATCHES, MURMUR2, RECORDS


def content(record: _core.Record) -> tuple[Any, ...]:
    return (record.key, record.value, record.headers, record.timestamp)


@pytest.mark.parametrize("codec", BATCHES)
def test_a_batch_of_kafka_is_read(codec: int) -> None:
    batch = _core.validate(BATCHES[codec])
    assert (batch.codec, batch.base_offset, batch.last_offset) == (codec, 42, 44)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9_000_000_000, 3, 17)
    assert (batch.leader_epoch, batch.magic, batch.count) == (5, 2, 3)
    assert (batch.found_max_timestamp, batch.found_max_timestamp_delta) == (1_700_000_000_500, 1)
    records = _core.decode(BATCHES[codec])
    assert [content(record) for record in records] == RECORDS
    assert [record.offset for record in records] == [42, 43, 44]


def test_a_plain_batch_is_kafkas_to_the_byte() -> None:
    ours = _core.encode(
        RECORDS,
        base_offset=42,
        leader_epoch=5,
        producer_id=9_000_000_000,
        producer_epoch=3,
        base_sequence=17,
    )
    assert ours == BATCHES[0]


@pytest.mark.parametrize("key", MURMUR2)
def test_murmur2_is_javas(key: bytes) -> None:
    assert _core.murmur2(key) == MURMUR2[key]


@pytest.mark.parametrize("codec", [0, 1])
def test_kafka_python_reads_what_we_write(codec: int) -> None:
    read = MemoryRecords(_core.encode(RECORDS, codec=codec, base_offset=7)).next_batch()
    assert read.validate_crc()
    assert [(r.key, r.value, tuple(r.headers), r.timestamp) for r in read] == RECORDS


@pytest.mark.parametrize("codec", [0, 1])
def test_we_read_what_kafka_python_writes(codec: int) -> None:
    builder = MemoryRecordsBuilder(magic=2, compression_type=codec, batch_size=1 << 20)
    for key, value, headers, timestamp in RECORDS:
        builder.append(timestamp=timestamp, key=key, value=value, headers=list(headers))
    builder.close()
    written = bytes(builder.buffer())
    assert _core.validate(written).codec == codec
    assert [content(record) for record in _core.decode(written)] == RECORDS
