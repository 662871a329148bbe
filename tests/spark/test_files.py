"""Batch reads of the segment files beside a running broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.client.ranges import Chunk
from headwater.io import Host
from headwater.spark.errors import CorruptSegment, FilesNotVisible, NotInFiles
from headwater.spark.files import file_chunks
from headwater.spark.ranges import OffsetRange
from tests.conftest import MakeBroker
from tests.spark.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.testing import EmbeddedBroker

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(make_broker: MakeBroker, tmp_path: Path) -> EmbeddedBroker:
    return make_broker({"log.segment.bytes": "1048576"}, data=tmp_path / "data")


def chunks(folder: Path, start: int, end: int, *, log_start: int = 0) -> list[Chunk]:
    found = file_chunks(
        Host.system().disk,
        str(folder),
        OffsetRange("orders", 0, start, end),
        read_committed=False,
        log_start=lambda: log_start,
    )
    return [
        Chunk(bytes(each.data), each.from_offset, each.next_offset, each.timestamp_types, [])
        for each in found
    ]


def offsets(folder: Path, start: int, end: int, *, log_start: int = 0) -> list[int]:
    from headwater import _core

    return [
        record.offset
        for chunk in chunks(folder, start, end, log_start=log_start)
        for record in _core.decode(chunk.data, from_offset=chunk.from_offset)
        if record.offset < end
    ]


def filled(broker: EmbeddedBroker, count: int = 300) -> Topics:
    topics = Topics(broker.bootstrap)
    topics.create("orders")
    for number in range(count // 10):
        topics.write("orders", [f"{at:020000}" for at in range(number * 10, number * 10 + 10)])
    return topics


def test_files_give_what_the_broker_gives(
    spark: SparkSession, broker: EmbeddedBroker, tmp_path: Path
) -> None:
    topics = filled(broker)
    topics.write("orders", ["last"], timestamp=5)
    assert len(list((tmp_path / "data" / "orders-0").glob("*.log"))) > 4

    def rows(**options: str) -> list[tuple[object, ...]]:
        reader = spark.read.format("headwater").option("subscribe", "orders")
        reader = reader.option("kafka.bootstrap.servers", broker.bootstrap)
        return sorted(tuple(row) for row in reader.options(**options).load().collect())

    starting = '{"orders": {"0": 33}}'
    from_files = rows(**{"read.from": "files", "startingOffsets": starting})
    assert len(from_files) == 268
    assert from_files == rows(startingOffsets=starting)


def test_any_range_is_found_through_the_index(broker: EmbeddedBroker, tmp_path: Path) -> None:
    filled(broker)
    for start, end in ((0, 300), (0, 1), (57, 58), (123, 280), (299, 300)):
        assert offsets(tmp_path / "data", start, end) == list(range(start, end))


def test_a_segment_that_retention_took_is_left_to_the_broker(
    broker: EmbeddedBroker, tmp_path: Path
) -> None:
    filled(broker)
    segments = sorted((tmp_path / "data" / "orders-0").glob("*.log"))
    segments[0].unlink()
    with pytest.raises(NotInFiles) as missing:
        chunks(tmp_path / "data", 0, 300)
    assert missing.value.offset == 0
    first = int(segments[1].stem)
    segments[3].unlink()
    with pytest.raises(NotInFiles) as missing:
        chunks(tmp_path / "data", first, 300, log_start=int(segments[4].stem))
    assert missing.value.offset == int(segments[3].stem)


def test_a_gap_that_compaction_left_is_no_loss(broker: EmbeddedBroker, tmp_path: Path) -> None:
    filled(broker)
    segments = sorted((tmp_path / "data" / "orders-0").glob("*.log"))
    segments[2].unlink()
    gone = range(int(segments[2].stem), int(segments[3].stem))
    assert offsets(tmp_path / "data", 0, 300) == [at for at in range(300) if at not in gone]


def test_room_that_was_taken_in_advance_is_the_end(broker: EmbeddedBroker, tmp_path: Path) -> None:
    filled(broker, 10)
    broker.stop()
    [segment] = (tmp_path / "data" / "orders-0").glob("*.log")
    with segment.open("ab") as file:
        file.write(bytes(500))
    assert offsets(tmp_path / "data", 0, 10) == list(range(10))
    with segment.open("ab") as file:
        file.write(b"\x01" * 500)
    with pytest.raises(NotInFiles):
        chunks(tmp_path / "data", 0, 20)


def test_a_damaged_segment_is_named_with_its_place(broker: EmbeddedBroker, tmp_path: Path) -> None:
    filled(broker, 10)
    broker.stop()
    [segment] = (tmp_path / "data" / "orders-0").glob("*.log")
    damaged = bytearray(segment.read_bytes())
    damaged[16] = 9  # the magic byte
    segment.write_bytes(damaged)
    with pytest.raises(CorruptSegment, match=r"00000000000000000000\.log: .* at byte"):
        chunks(tmp_path / "data", 0, 10)


def test_a_host_that_does_not_see_the_directory_says_so(tmp_path: Path) -> None:
    with pytest.raises(FilesNotVisible, match="is not on this host"):
        chunks(tmp_path / "elsewhere", 0, 10)
