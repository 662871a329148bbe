"""Idempotent and transactional producers, as the log sees them."""

from __future__ import annotations

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.storage import AbortedTransaction, Log, Origin
from headwater.storage.producer_state import (
    ProducerStates,
    SentBatch,
    SnapshotCorrupt,
    decrement_sequence,
    increment_sequence,
)
from tests.support.logs import NOW, TP, append, batch, marker, open_log, reopen, sent

DAY_MS = 86_400_000


def code_of(log: Log, data: bytearray, origin: Origin = Origin.CLIENT) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(data, epoch=0, now_ms=NOW, origin=origin)
    return raised.value.code


def end_transaction(log: Log, producer_id: int, *, abort: bool, **options: int) -> None:
    data = marker(producer_id, abort=abort, **options)
    log.append_as_leader(data, epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)


def test_a_batch_sent_twice_is_answered_with_its_first_offsets() -> None:
    log = open_log()
    append(log, batch(b"other"))
    append(log, sent(9, 0, 3))
    again = log.append_as_leader(sent(9, 0, 3), epoch=0, now_ms=NOW)
    assert again.duplicate
    assert (again.base_offset, again.last_offset, again.log_append_time) == (1, 3, NOW)
    assert log.end == 4


def test_the_last_five_batches_are_known() -> None:
    log = open_log()
    for sequence in range(7):
        append(log, sent(9, sequence))
    for sequence in range(2, 7):
        again = log.append_as_leader(sent(9, sequence), epoch=0, now_ms=NOW)
        assert again.duplicate
        assert again.base_offset == sequence
    assert code_of(log, sent(9, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_out_of_order() -> None:
    log = open_log()
    append(log, sent(9, 0))
    assert code_of(log, sent(9, 2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, sent(9, 1))


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    log = open_log()
    append(log, sent(9, 40))
    append(log, sent(9, 41))


def test_a_new_epoch_begins_at_sequence_zero() -> None:
    log = open_log()
    append(log, sent(9, 0))
    assert code_of(log, sent(9, 1, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, sent(9, 0, epoch=1))
    assert code_of(log, sent(9, 1, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_same_sequence_in_a_new_epoch_is_not_a_duplicate() -> None:
    log = open_log()
    append(log, sent(9, 0))
    assert not log.append_as_leader(sent(9, 0, epoch=1), epoch=0, now_ms=NOW).duplicate


def test_sequences_wrap_to_zero() -> None:
    log = open_log()
    append(log, sent(9, 2**31 - 2, 1))
    append(log, sent(9, 2**31 - 1, 1))
    append(log, sent(9, 0))
    assert increment_sequence(2**31 - 1, 2) == 1
    assert decrement_sequence(1, 2) == 2**31 - 1


def test_a_producer_that_was_refused_leaves_no_trace() -> None:
    log = open_log()
    data = sent(9, 0)
    data[-1] ^= 1
    assert code_of(log, data) == ErrorCode.CORRUPT_MESSAGE
    assert len(log.producers) == 0


def test_an_open_transaction_holds_back_readers_of_committed_data() -> None:
    log = open_log()
    append(log, batch(b"before"))
    append(log, sent(9, 0, transactional=True))
    append(log, batch(b"after"))
    assert log.first_unstable_offset == 1
    assert log.last_stable_offset(high_watermark=3) == 1
    assert log.last_stable_offset(high_watermark=1) == 1
    assert log.last_stable_offset(high_watermark=0) == 0


def test_the_end_of_a_transaction_counts_when_it_is_replicated() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    end_transaction(log, 9, abort=False)
    assert log.last_stable_offset(high_watermark=1) == 0
    assert log.last_stable_offset(high_watermark=2) == 2
    assert log.first_unstable_offset is None


def test_an_aborted_transaction_is_found_by_those_it_concerns() -> None:
    log = open_log()
    append(log, sent(8, 0, transactional=True))  # 0, open
    append(log, sent(9, 0, 2, transactional=True))  # 1-2
    end_transaction(log, 9, abort=True)  # 3
    aborted = AbortedTransaction(9, first_offset=1, last_offset=3, last_stable_offset=0)
    assert log.aborted(0, 4) == [aborted]
    assert log.aborted(3, 4) == [aborted]
    assert log.aborted(0, 1) == []
    assert log.aborted(4, 9) == []


def test_a_committed_transaction_is_not_in_the_index() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    end_transaction(log, 9, abort=False)
    assert log.aborted(0, 2) == []


def test_after_a_transaction_the_producer_goes_on_with_its_sequence() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    end_transaction(log, 9, abort=True)
    append(log, sent(9, 1, transactional=True))
    assert code_of(log, sent(9, 5, transactional=True)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_within_a_transaction_all_writes_belong_to_it() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    assert code_of(log, sent(9, 1)) == ErrorCode.INVALID_TXN_STATE


def test_a_marker_of_an_old_producer_or_coordinator_is_fenced() -> None:
    log = open_log()
    append(log, sent(9, 0, epoch=3, transactional=True))
    old = marker(9, abort=True, epoch=2)
    assert code_of(log, old, Origin.COORDINATOR) == ErrorCode.INVALID_PRODUCER_EPOCH
    end_transaction(log, 9, abort=True, epoch=3, coordinator_epoch=5)
    late = marker(9, abort=True, epoch=3, coordinator_epoch=4)
    assert code_of(log, late, Origin.COORDINATOR) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_marker_may_bump_the_epoch_and_begin_the_sequence_anew() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    end_transaction(log, 9, abort=False, epoch=1)
    assert code_of(log, sent(9, 1, transactional=True)) == ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, sent(9, 0, epoch=1, transactional=True))


def test_silent_producers_are_forgotten_but_not_within_a_transaction() -> None:
    log = open_log()
    append(log, sent(7, 0))
    append(log, sent(8, 0, transactional=True))
    append(log, sent(9, 0, timestamp=NOW + 5))
    log.expire_producers(NOW + DAY_MS - 1)
    assert [entry.producer_id for entry in log.producers] == [7, 8, 9]
    log.expire_producers(NOW + DAY_MS)
    assert [entry.producer_id for entry in log.producers] == [8, 9]


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_a_restart(clean: bool) -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, sent(7, 0, 3))
    append(log, sent(8, 0, transactional=True))
    append(log, sent(9, 0, transactional=True))
    end_transaction(log, 9, abort=True)
    log = reopen(disk, log, clean=clean)
    assert log.first_unstable_offset == 3
    assert [entry.producer_id for entry in log.aborted(0, 9)] == [9]
    assert log.append_as_leader(sent(7, 0, 3), epoch=0, now_ms=NOW).duplicate
    append(log, sent(7, 3))
    assert code_of(log, sent(7, 9)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_truncation_takes_producers_back() -> None:
    log = open_log()
    append(log, sent(9, 0))
    log.roll(NOW)
    append(log, sent(9, 1))
    append(log, sent(8, 0, transactional=True))
    log.truncate_to(1)
    assert log.first_unstable_offset is None
    assert [(entry.producer_id, entry.last_sequence) for entry in log.producers] == [(9, 0)]
    append(log, sent(9, 1))


def states() -> ProducerStates:
    producers = ProducerStates(TP)
    producers.add(5, 2, SentBatch(10, 12, 100, 102, NOW), transactional=True)
    producers.add(6, 0, SentBatch(0, 0, 103, 103, NOW + 1), transactional=False)
    return producers


def test_a_snapshot_has_kafkas_bytes() -> None:
    data = states().render()
    assert data[:2] == b"\x00\x01"
    assert data[6:10] == b"\x00\x00\x00\x02"
    assert len(data) == 10 + 2 * 46
    assert data[10:18] == (5).to_bytes(8, "big")
    assert data[18:20] == (2).to_bytes(2, "big")
    assert data[20:24] == (12).to_bytes(4, "big")
    assert data[24:32] == (102).to_bytes(8, "big")
    assert data[32:36] == (2).to_bytes(4, "big")
    assert data[36:44] == NOW.to_bytes(8, "big")
    assert data[44:48] == b"\xff\xff\xff\xff"
    assert data[48:56] == (100).to_bytes(8, "big")


def test_a_snapshot_gives_back_what_it_was_made_of() -> None:
    loaded = ProducerStates(TP)
    loaded.load(states().render(), now_ms=NOW, expiration_ms=DAY_MS)
    assert loaded.render() == states().render()
    assert loaded.first_unstable_offset == 100
    assert loaded.find_duplicate(5, 2, 10, 12) == SentBatch(10, 12, 100, 102, NOW)


@pytest.mark.parametrize("at", [0, 3, 8, 20, 60])
def test_a_damaged_snapshot_is_not_believed(at: int) -> None:
    data = bytearray(states().render())
    data[at] ^= 0x40
    producers = ProducerStates(TP)
    with pytest.raises(SnapshotCorrupt):
        producers.load(bytes(data), now_ms=NOW, expiration_ms=DAY_MS)
    assert len(producers) == 0
