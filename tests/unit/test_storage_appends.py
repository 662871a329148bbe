"""Batches that a leader's log accepts, and those it refuses with Kafka's codes."""

from __future__ import annotations

import pytest

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.storage import Log, Origin, RecordsRefused
from tests.support.logs import (
    NOW,
    append,
    batch,
    contents,
    marker,
    open_log,
    records,
    sent,
    settings,
)


def refusal(log: Log, data: bytearray, *, now_ms: int = NOW) -> ApiError:
    """The error an append gives, once it is seen to have changed nothing."""
    before = (log.end, log.size, log.latest_epoch, len(log.producers), contents(log))
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(data, epoch=7, now_ms=now_ms)
    assert (log.end, log.size, log.latest_epoch, len(log.producers), contents(log)) == before
    return raised.value


def test_a_batch_gets_the_next_offsets_and_the_leaders_epoch() -> None:
    log = open_log()
    append(log, batch(b"a", b"b"), epoch=4)
    data = batch(b"c")
    appended = log.append_as_leader(data, epoch=5, now_ms=NOW)
    assert (appended.base_offset, appended.last_offset, appended.bytes) == (2, 2, len(data))
    assert appended.log_append_time == -1
    [first, second], _, _ = _core.scan(log.read(0, bytes_max=1000, upto=3).slice.read())  # type: ignore[union-attr]
    assert (first.base_offset, first.leader_epoch) == (0, 4)
    assert (second.base_offset, second.leader_epoch) == (2, 5)
    assert log.epochs.entries == [(4, 0), (5, 2)]


def test_bytes_that_cannot_be_written_to_are_appended_too() -> None:
    log = open_log()
    log.append_as_leader(bytes(batch(b"a")), epoch=0, now_ms=NOW)
    assert contents(log) == [(0, b"a")]


def test_a_wrong_checksum_is_a_corrupt_message() -> None:
    data = batch(b"hello")
    data[-1] ^= 1
    assert refusal(open_log(), data).code == ErrorCode.CORRUPT_MESSAGE


def test_a_batch_cut_short_is_no_record_batch() -> None:
    assert refusal(open_log(), batch(b"hello")[:-3]).code == ErrorCode.INVALID_RECORD
    assert refusal(open_log(), bytearray()).code == ErrorCode.INVALID_RECORD


def test_a_batch_of_an_older_format_is_refused() -> None:
    data = batch(b"hello")
    data[16] = 1
    assert refusal(open_log(), data).code == ErrorCode.INVALID_RECORD


def test_a_client_sends_one_batch_at_a_time() -> None:
    assert refusal(open_log(), batch(b"a") + batch(b"b")).code == ErrorCode.INVALID_RECORD


def test_a_broken_piece_after_the_batch_is_left_out() -> None:
    log = open_log()
    append(log, batch(b"a") + batch(b"b")[:-2])
    assert contents(log) == [(0, b"a")]
    assert log.size == len(batch(b"a"))


def test_a_client_does_not_choose_offsets() -> None:
    assert refusal(open_log(), batch(b"a", base_offset=5)).code == ErrorCode.INVALID_RECORD


def test_a_batch_above_max_message_bytes_is_too_large() -> None:
    log = open_log(config=settings(max_message_bytes=200))
    assert refusal(log, batch(b"x" * 200)).code == ErrorCode.MESSAGE_TOO_LARGE
    append(log, batch(b"x" * 100))


def test_too_large_is_found_before_a_wrong_checksum() -> None:
    data = batch(b"x" * 200)
    data[-1] ^= 1
    log = open_log(config=settings(max_message_bytes=200))
    assert refusal(log, data).code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_no_segment_holds_is_a_list_too_large() -> None:
    log = open_log(config=settings(segment_bytes=150))
    assert refusal(log, batch(b"x" * 150)).code == ErrorCode.RECORD_LIST_TOO_LARGE


def test_clients_write_no_control_records() -> None:
    assert refusal(open_log(), marker(1, abort=True)).code == ErrorCode.INVALID_RECORD


def test_a_producer_id_needs_a_sequence() -> None:
    data = batch(b"a", producer_id=5, producer_epoch=0)
    assert refusal(open_log(), data).code == ErrorCode.INVALID_RECORD


def test_compacted_topics_take_no_record_without_a_key() -> None:
    log = open_log(config=settings(cleanup_policy="compact"))
    error = refusal(log, records([(b"k", b"1", [], NOW), (None, b"2", [], NOW)]))
    assert isinstance(error, RecordsRefused)
    assert error.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1]


def test_a_timestamp_out_of_bounds_names_its_record() -> None:
    log = open_log(
        config=settings(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=1000)
    )
    deltas = (0, 1000, 1001, -1000, -1001)
    error = refusal(log, records([(b"k", b"", [], NOW + delta) for delta in deltas]))
    assert isinstance(error, RecordsRefused)
    assert error.code == ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [2, 4]


def test_a_record_without_a_timestamp_is_never_too_old() -> None:
    log = open_log(config=settings(message_timestamp_before_max_ms=1000))
    append(log, batch(b"a", timestamp=-1))
    assert log.end == 1


def test_log_append_time_is_stamped_into_the_batch() -> None:
    log = open_log(config=settings(message_timestamp_type="LogAppendTime"))
    appended = log.append_as_leader(batch(b"a", timestamp=5), epoch=0, now_ms=NOW + 9)
    assert appended.log_append_time == NOW + 9
    read = log.read(0, bytes_max=1000, upto=1).slice
    assert read is not None
    [record] = _core.decode(read.read())
    assert record.timestamp == NOW + 9
    assert _core.scan(read.read())[0][0].is_log_append_time


def test_a_producer_that_sets_log_append_time_itself_is_refused() -> None:
    log = open_log(config=settings(message_timestamp_type="LogAppendTime"))
    error = refusal(log, batch(b"a", log_append_time=NOW))
    assert error.code == ErrorCode.INVALID_TIMESTAMP


def test_on_a_topic_with_create_time_that_claim_is_taken_back() -> None:
    log = open_log()
    append(log, batch(b"a", log_append_time=NOW))
    read = log.read(0, bytes_max=1000, upto=1).slice
    assert read is not None
    [found], _, reason = _core.scan(read.read())
    assert reason is None
    assert not found.is_log_append_time


def test_a_wrong_max_timestamp_is_corrected() -> None:
    log = open_log()
    data = batch(b"a", timestamp=NOW)
    _core.restamp(data, base_offset=0, leader_epoch=-1, max_timestamp=NOW + 50)
    append(log, data)
    assert log.max_timestamp() == (NOW, 0, 0)
    assert contents(log) == [(0, b"a")]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topics_codec_replaces_that_of_the_producer(codec: int, target: str) -> None:
    log = open_log(config=settings(compression_type=target))
    append(log, batch(b"one", b"two" * 50, codec=codec))
    read = log.read(0, bytes_max=1 << 20, upto=2).slice
    assert read is not None
    [stored], _, reason = _core.scan(read.read())
    assert reason is None
    assert stored.codec == ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(target)
    assert contents(log) == [(0, b"one"), (1, b"two" * 50)]


def test_the_producers_codec_stays_by_default() -> None:
    log = open_log()
    append(log, batch(b"one", codec=3))
    read = log.read(0, bytes_max=1000, upto=1).slice
    assert read is not None
    assert _core.scan(read.read())[0][0].codec == 3


def test_settings_take_effect_with_the_next_append() -> None:
    log = open_log()
    append(log, batch(b"x" * 300))
    log.configure(settings(max_message_bytes=100))
    assert refusal(log, batch(b"x" * 300)).code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_coordinator_may_write_markers_and_several_batches() -> None:
    log = open_log()
    append(log, sent(5, 0, transactional=True))
    data = marker(5, abort=False) + batch(b"more")
    appended = log.append_as_leader(data, epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    assert (appended.base_offset, appended.last_offset) == (1, 2)
    assert log.producers.first_unstable_offset == 0  # until replication passes the marker
    assert log.last_stable_offset(high_watermark=3) == 3


def test_the_metadata_log_keeps_the_offsets_it_is_given() -> None:
    log = open_log()
    data = batch(b"a", b"b", base_offset=0, leader_epoch=3)
    log.append_as_leader(data, epoch=3, now_ms=NOW, origin=Origin.RAFT)
    assert contents(log) == [(0, b"a"), (1, b"b")]
    with pytest.raises(ApiError, match="epoch"):
        log.append_as_leader(
            batch(b"c", base_offset=2, leader_epoch=2), epoch=3, now_ms=NOW, origin=Origin.RAFT
        )


def test_a_follower_takes_offsets_as_they_come_but_not_twice() -> None:
    log = open_log()
    data = batch(b"a", base_offset=3, leader_epoch=1) + batch(b"b", base_offset=7, leader_epoch=2)
    log.append_as_follower(data + batch(b"cut", base_offset=8)[:-1], now_ms=NOW)
    assert contents(log) == [(3, b"a"), (7, b"b")]
    assert log.end == 8
    assert log.epochs.entries == [(1, 3), (2, 7)]
    with pytest.raises(ApiError) as raised:
        log.append_as_follower(batch(b"b", base_offset=7), now_ms=NOW)
    assert raised.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_checks_checksums() -> None:
    data = batch(b"a", base_offset=0)
    data[-1] ^= 1
    log = open_log()
    with pytest.raises(ApiError) as raised:
        log.append_as_follower(data, now_ms=NOW)
    assert raised.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.end == 0


def test_a_fetch_larger_than_a_segment_is_spread_over_segments() -> None:
    log = open_log(config=settings(segment_bytes=200))
    data = bytearray()
    for offset in range(6):
        data += batch(b"x" * 50, base_offset=offset)
    log.append_as_follower(data, now_ms=NOW)
    assert [offset for offset, _ in contents(log)] == list(range(6))
    assert len(log.segments) > 2


def test_a_large_fetch_of_small_batches_takes_little_memory() -> None:
    log = open_log()
    small = [batch(b"x", base_offset=offset) for offset in range(3000)]
    log.append_as_follower(bytearray(b"".join(small[:10])), now_ms=NOW)
    log.append_as_follower(bytearray(b"".join(small[10:2900])), now_ms=NOW)
    log.append_as_follower(bytearray(b"".join(small[2900:])), now_ms=NOW)
    cached = log.segments._newer, log.segments._older
    assert [len(each) for each in cached] == [100, 256]
    for offset in (0, 9, 10, 1500, 2899, 2900, 2999):
        found = log.read(offset, bytes_max=1, upto=3000).slice
        assert found is not None
        assert _core.scan(found.read())[0][0].base_offset == offset


def test_a_memory_disk_and_all_its_files_are_enough() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, batch(b"a"))
    assert disk.exists("/data/orders-3/00000000000000000000.log")
