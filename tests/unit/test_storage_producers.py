"""Idempotent and transactional producers, as the log sees them."""

from __future__ import annotations

import pytest

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.io.memory import MemoryDisk
from headwater.storage import UNGUARDED, AbortedTransaction, Log, Origin, Verification
from headwater.storage.producer_state import (
    ProducerStates,
    SentBatch,
    SnapshotCorrupt,
    decrement_sequence,
    increment_sequence,
)
from tests.support.logs import NOW, TP, append, batch, marker, open_log, reopen, sent, settings

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


@pytest.mark.parametrize("clean", [True, False])
def test_the_last_five_batches_are_known_after_a_restart(clean: bool) -> None:
    """A snapshot has only the last one of each producer, as Kafka's: the others are in the log."""
    disk = MemoryDisk()
    log = open_log(disk)
    for sequence in range(6):
        append(log, sent(9, sequence))
        append(log, sent(8, sequence % 3, epoch=sequence // 3))
        if sequence in (1, 4):
            log.roll(NOW)
    log = reopen(disk, log, clean=clean)
    append(log, sent(9, 6))
    for sequence in range(2, 7):
        again = log.append_as_leader(sent(9, sequence), epoch=0, now_ms=NOW)
        assert (again.duplicate, again.base_offset) == (True, 2 * sequence)
    assert code_of(log, sent(9, 1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, sent(9, 8)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(log, sent(8, 2, epoch=0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    again = log.append_as_leader(sent(8, 0, epoch=1), epoch=0, now_ms=NOW)
    assert (again.duplicate, again.base_offset) == (True, 7)


def test_batches_are_known_after_a_truncation() -> None:
    log = open_log()
    for sequence in range(3):
        append(log, sent(9, sequence))
    log.roll(NOW)
    append(log, sent(9, 3))
    append(log, sent(9, 4))
    log.truncate_to(4)
    assert log.append_as_leader(sent(9, 1), epoch=0, now_ms=NOW).base_offset == 1
    append(log, sent(9, 4))


def test_the_log_is_read_for_forgotten_batches_once() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, sent(9, 0))
    append(log, sent(9, 1))
    log = reopen(disk, log, clean=True)
    assert log.producers.has_forgotten(9, 0)
    assert code_of(log, sent(9, 5)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert not log.producers.has_forgotten(9, 0)
    assert log.append_as_leader(sent(9, 0), epoch=0, now_ms=NOW).duplicate


def test_forgotten_batches_are_looked_for_in_the_last_bytes_only() -> None:
    disk = MemoryDisk()
    log = open_log(disk, settings(index_interval_bytes=1))
    for sequence in range(4):
        append(log, sent(9, sequence))
        if sequence == 1:
            log.roll(NOW)
    size = log.segments[1].size // 2  # of one batch
    sequences = [
        [batch.base_sequence for batch in log.segments.last_batches(count * size)]
        for count in range(6)
    ]
    assert sequences == [[], [3], [2, 3], [1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]]


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


# Verification (KIP-890) and the epochs of markers (KIP-1228).


def verification(
    log: Log, producer_id: int, *, sequence: int = 0, epoch: int = 0, bumps_epoch: bool = False
) -> Verification:
    guard = log.producers.begin_verification(
        producer_id, epoch=epoch, sequence=sequence, bumps_epoch=bumps_epoch, now_ms=NOW
    )
    assert guard is not None
    return guard


def code_of_guarded(log: Log, data: bytearray, guard: Verification | None) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        log.append_as_leader(data, epoch=0, now_ms=NOW, guard=guard)
    return raised.value.code


def write_marker(log: Log, producer_id: int, *, epoch: int = 0, version: int = 0) -> int:
    return log.append_marker(
        producer_id,
        epoch,
        commits=True,
        coordinator_epoch=0,
        transaction_version=version,
        epoch=0,
        now_ms=NOW,
    ).base_offset


@pytest.mark.parametrize("origin", [Origin.CLIENT, Origin.COORDINATOR])
def test_a_transaction_begins_only_with_the_guard_of_its_verification(origin: Origin) -> None:
    log = open_log()
    first = sent(9, 0, transactional=True)
    assert code_of(log, first, origin) == ErrorCode.INVALID_TXN_STATE
    guard = verification(log, 9)
    assert code_of(log, first, origin) == ErrorCode.INVALID_TXN_STATE
    other = verification(open_log(), 9)
    assert code_of_guarded(log, first, other) == ErrorCode.INVALID_TXN_STATE
    append(log, first, guard=guard, origin=origin)
    append(log, sent(9, 1, transactional=True), guard=None, origin=origin)
    assert log.first_unstable_offset == 0


def test_an_open_transaction_needs_no_verification_in_its_epoch() -> None:
    log = open_log()
    append(log, sent(9, 0, epoch=1, transactional=True))
    begin = log.producers.begin_verification
    assert begin(9, epoch=1, sequence=1, bumps_epoch=False, now_ms=NOW) is None
    assert begin(9, epoch=2, sequence=0, bumps_epoch=False, now_ms=NOW) is not None
    with pytest.raises(ApiError) as raised:
        begin(9, epoch=0, sequence=1, bumps_epoch=False, now_ms=NOW)
    assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_answer_about_an_ended_transaction_begins_no_other() -> None:
    """The coordinator confirms the partition, then the transaction is aborted, and the batch comes
    last: it must not become part of the next transaction."""
    log = open_log()
    late = verification(log, 9)
    end_transaction(log, 9, abort=True)
    assert code_of_guarded(log, sent(9, 0, transactional=True), late) == ErrorCode.INVALID_TXN_STATE
    assert verification(log, 9) is not late
    assert code_of_guarded(log, sent(9, 0, transactional=True), late) == ErrorCode.INVALID_TXN_STATE
    assert log.first_unstable_offset is None


def test_a_late_marker_leaves_the_verification_of_the_next_epoch() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    coming = verification(log, 9, epoch=1, bumps_epoch=True)
    write_marker(log, 9, epoch=1, version=2)
    append(log, sent(9, 0, epoch=1, transactional=True), guard=coming)


def test_a_marker_ends_the_verification_of_an_epoch_that_several_transactions_share() -> None:
    log = open_log()
    guard = verification(log, 9, epoch=1, bumps_epoch=False)
    write_marker(log, 9, epoch=1)
    data = sent(9, 0, epoch=1, transactional=True)
    assert code_of_guarded(log, data, guard) == ErrorCode.INVALID_TXN_STATE


def test_no_batch_begins_a_transaction_before_one_of_a_lower_sequence() -> None:
    log = open_log()
    guard = verification(log, 9, sequence=4)
    assert verification(log, 9, sequence=5) is guard  # 4 was refused, and is tried again
    later = sent(9, 5, transactional=True)
    assert code_of_guarded(log, later, guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(log, sent(9, 4, transactional=True), guard=guard)
    append(log, later, guard=None)


def test_a_higher_epoch_begins_its_own_lowest_sequence() -> None:
    log = open_log()
    guard = verification(log, 9, sequence=0)
    assert verification(log, 9, sequence=3, epoch=1) is guard
    append(log, sent(9, 3, epoch=1, transactional=True), guard=guard)


def test_with_an_epoch_for_each_transaction_an_unknown_producer_begins_at_zero() -> None:
    log = open_log()
    guard = verification(log, 9, sequence=7, bumps_epoch=True)
    data = sent(9, 7, transactional=True)
    assert code_of_guarded(log, data, guard) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_old_epoch_is_fenced_before_its_verification_is_looked_at() -> None:
    log = open_log()
    write_marker(log, 9, epoch=3)
    data = sent(9, 0, epoch=2, transactional=True)
    assert code_of_guarded(log, data, None) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_verification_that_nothing_came_of_expires() -> None:
    log = open_log()
    guard = verification(log, 9)
    log.expire_producers(NOW + DAY_MS - 1)
    assert verification(log, 9) is guard
    log.expire_producers(NOW + DAY_MS)
    assert verification(log, 9) is not guard


def test_replicas_need_no_verification() -> None:
    leader, follower = open_log(), open_log()
    append(leader, sent(9, 0, 2, transactional=True))
    write_marker(leader, 9, epoch=1, version=2)
    found = leader.read(0, bytes_max=1 << 20, upto=leader.end).slice
    assert found is not None
    follower.append_as_follower(found.read(), now_ms=NOW)
    assert follower.producers.render() == leader.producers.render()
    assert follower.last_stable_offset(3) == 3


@pytest.mark.parametrize(
    ("version", "open_epoch", "marker_epoch", "accepted"),
    [
        (1, 3, 3, True),
        (1, 3, 4, True),
        (1, 3, 2, False),
        (2, 3, 4, True),
        (2, 3, 3, False),
        (2, 3, 2, False),
        (2, 2**15 - 1, 2**15 - 1, True),
    ],
)
def test_a_marker_ends_a_transaction_by_the_rule_of_its_version(
    version: int, open_epoch: int, marker_epoch: int, accepted: bool
) -> None:
    log = open_log()
    append(log, sent(9, 0, epoch=open_epoch, transactional=True))
    if accepted:
        write_marker(log, 9, epoch=marker_epoch, version=version)
        assert log.last_stable_offset(2) == 2
    else:
        with pytest.raises(ApiError) as raised:
            write_marker(log, 9, epoch=marker_epoch, version=version)
        assert raised.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
        assert log.first_unstable_offset == 0


def test_a_marker_that_is_sent_again_is_written_again() -> None:
    log = open_log()
    append(log, sent(9, 0, transactional=True))
    assert write_marker(log, 9, epoch=1, version=2) == 1
    assert write_marker(log, 9, epoch=1, version=2) == 2
    with pytest.raises(ApiError):
        write_marker(log, 9, epoch=0, version=2)
    assert log.last_stable_offset(3) == 3


def test_a_marker_is_what_kafka_writes() -> None:
    log = open_log(config=settings(message_timestamp_type="LogAppendTime"))
    append(log, sent(9, 0, transactional=True))
    log.append_marker(
        9, 1, commits=True, coordinator_epoch=5, transaction_version=2, epoch=3, now_ms=NOW
    )
    found = log.read(1, bytes_max=1 << 20, upto=log.end).slice
    assert found is not None
    data = found.read()
    (header,) = _core.scan(data)[0]
    assert (header.is_control, header.is_transactional, header.base_sequence) == (True, True, -1)
    assert (header.producer_id, header.producer_epoch, header.leader_epoch) == (9, 1, 3)
    assert (header.is_log_append_time, header.max_timestamp) == (True, NOW)
    (record,) = _core.decode(data)
    assert record.key == bytes([0, 0, 0, 1])
    assert record.value == bytes([0, 0, 0, 0, 0, 5])


def test_the_sequences_of_an_aborted_transaction_are_new_in_the_next_epoch() -> None:
    """After an abort a producer may send other records with the same sequence: they must not be
    taken for those that were aborted."""
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, sent(9, 0, transactional=True))
    end_transaction(log, 9, abort=True, epoch=1)
    log = reopen(disk, log, clean=False)
    again = log.append_as_leader(
        sent(9, 0, epoch=1, transactional=True), epoch=0, now_ms=NOW, guard=UNGUARDED
    )
    assert (again.duplicate, again.base_offset) == (False, 2)


def test_open_transactions_are_ordered_by_their_start_after_a_restart() -> None:
    disk = MemoryDisk()
    log = open_log(disk)
    append(log, sent(9, 0))  # known first, in a transaction last
    append(log, sent(8, 0, transactional=True))
    append(log, sent(9, 1, transactional=True))
    log = reopen(disk, log, clean=True)
    assert log.first_unstable_offset == 1
    end_transaction(log, 8, abort=True)
    assert [entry.last_stable_offset for entry in log.aborted(0, 9)] == [2]
    assert log.last_stable_offset(4) == 2
