"""Offsets of a log: its start and end, lookups by time, and deleting its beginning."""

from __future__ import annotations

import pytest

from harness.wire import Plain, Wire, all_versions, batch
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headwater.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headwater.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def at(*timestamps: int) -> bytes:
    return batch([Plain(b"%d" % timestamp, timestamp=timestamp) for timestamp in timestamps])


@pytest.fixture
def filled(wire: Wire, topic: str) -> str:
    """Offsets 0 to 5 at the moments 1000, 2000, 3000, 2500, 5000, 4000."""
    wire.topic_id(topic)
    for records in (at(1000, 2000), at(3000, 2500), at(5000), at(4000)):
        assert wire.produce(topic, records).error_code == 0
    return topic


@pytest.mark.parametrize("version", all_versions(ApiKey.LIST_OFFSETS))
def test_every_version_knows_both_ends(wire: Wire, filled: str, version: int) -> None:
    assert wire.offset_at(filled, EARLIEST, version=version).offset == 0
    latest = wire.offset_at(filled, LATEST, version=version)
    assert (latest.error_code, latest.offset, latest.timestamp) == (0, 6, -1)


@pytest.mark.parametrize(
    ("moment", "offset", "timestamp"),
    [(0, 0, 1000), (1000, 0, 1000), (1001, 1, 2000), (2001, 2, 3000), (3001, 4, 5000)],
)
def test_the_first_record_at_or_after_a_moment_is_found(
    wire: Wire, filled: str, moment: int, offset: int, timestamp: int
) -> None:
    found = wire.offset_at(filled, moment)
    assert (found.error_code, found.offset, found.timestamp) == (0, offset, timestamp)
    assert found.leader_epoch >= 0


def test_after_the_last_record_there_is_nothing(wire: Wire, filled: str) -> None:
    found = wire.offset_at(filled, 5001)
    assert (found.error_code, found.offset, found.timestamp) == (0, -1, -1)


def test_the_special_moments(wire: Wire, filled: str) -> None:
    newest = wire.offset_at(filled, MAX_TIMESTAMP)
    assert (newest.offset, newest.timestamp) == (4, 5000)
    assert wire.offset_at(filled, EARLIEST_LOCAL).offset == 0
    tiered = wire.offset_at(filled, LATEST_TIERED)
    assert (tiered.error_code, tiered.offset) == (0, -1)


def test_a_special_moment_is_unknown_to_versions_before_it(wire: Wire, filled: str) -> None:
    answer = wire.offset_at(filled, MAX_TIMESTAMP, version=6)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_an_empty_log_has_its_ends_at_zero(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    assert wire.offset_at(topic, EARLIEST).offset == 0
    assert wire.offset_at(topic, LATEST).offset == 0
    assert wire.offset_at(topic, MAX_TIMESTAMP).offset == -1
    assert wire.offset_at(topic, 0).offset == -1


def test_a_partition_that_is_not_there_is_said(wire: Wire, filled: str) -> None:
    answer = wire.offset_at(filled, LATEST, partition=5)
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_leader_epoch_of_the_future_or_the_past_is_refused(wire: Wire, filled: str) -> None:
    def code(epoch: int) -> int:
        wanted = ListOffsetsPartition(
            partition_index=0, current_leader_epoch=epoch, timestamp=LATEST
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=filled, partitions=[wanted])]
        )
        found: int = wire.ask(request).topics[0].partitions[0].error_code
        return found

    current = wire.offset_at(filled, LATEST).leader_epoch
    assert code(current) == 0
    assert code(current + 1) == ErrorCode.UNKNOWN_LEADER_EPOCH


def delete_before(
    wire: Wire, topic: str, offset: int, version: int | None = None
) -> DeleteRecordsPartitionResult:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5000
    )
    answer: DeleteRecordsPartitionResult
    ((answer,),) = (found.partitions for found in wire.ask(request, version).topics)
    return answer


@pytest.mark.parametrize("version", all_versions(ApiKey.DELETE_RECORDS))
def test_deleted_records_are_gone_and_the_rest_stays(wire: Wire, filled: str, version: int) -> None:
    answer = delete_before(wire, filled, 3, version)
    assert (answer.error_code, answer.low_watermark) == (0, 3)
    assert wire.offset_at(filled, EARLIEST).offset == 3
    assert wire.fetch(filled, 2).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.values(filled, 3) == [b"2500", b"5000", b"4000"]
    assert wire.fetch(filled, 3).log_start_offset == 3


def test_all_records_can_be_deleted_and_offsets_go_on(wire: Wire, filled: str) -> None:
    answer = delete_before(wire, filled, -1)
    assert (answer.error_code, answer.low_watermark) == (0, 6)
    assert wire.offset_at(filled, EARLIEST).offset == 6
    assert wire.produce(filled, batch([b"next"])).base_offset == 6
    assert wire.values(filled, 6) == [b"next"]


def test_the_start_never_moves_back_or_past_the_end(wire: Wire, filled: str) -> None:
    assert delete_before(wire, filled, 4).low_watermark == 4
    assert delete_before(wire, filled, 2).low_watermark == 4
    assert delete_before(wire, filled, 7).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert wire.offset_at(filled, EARLIEST).offset == 4


@pytest.mark.parametrize("version", all_versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_the_end_of_the_current_epoch_is_the_end_of_the_log(
    wire: Wire, filled: str, version: int
) -> None:
    epoch = wire.offset_at(filled, LATEST).leader_epoch
    wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(
        topics=[OffsetForLeaderTopic(topic=filled, partitions=[wanted])]
    )
    ((found,),) = (topic.partitions for topic in wire.ask(request, version).topics)
    assert (found.error_code, found.leader_epoch, found.end_offset) == (0, epoch, 6)
