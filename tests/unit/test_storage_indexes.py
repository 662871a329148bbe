"""The three indexes of a segment: their bytes and their answers."""

from __future__ import annotations

from random import Random
from struct import pack

import pytest

from headwater.io.memory import MemoryDisk
from headwater.storage.offset_index import OffsetIndex
from headwater.storage.time_index import TimeIndex
from headwater.storage.txn_index import AbortedTransaction, TransactionIndex
from tests.support.logs import NOW


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def offset_index(disk: MemoryDisk, count: int, *, mapped: bool) -> OffsetIndex:
    """Entries (1000 + 10 i, 100 i) for i from 1."""
    index = OffsetIndex(disk, "/00.index", 1000)
    index.reset()
    for i in range(1, count + 1):
        index.append(1000 + 10 * i, 100 * i)
    if mapped:
        index.save()
        index.unload()
    return index


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("count", [0, 1, 2, 50, 3000])  # past one warm section, and within
def test_a_lookup_gives_the_last_position_at_or_below(
    disk: MemoryDisk, mapped: bool, count: int
) -> None:
    index = offset_index(disk, count, mapped=mapped)
    assert len(index) == count
    assert index.lookup(1000) == 0
    assert index.lookup(1009) == 0
    for i in {1, 2, count // 2, count - 1, count} - {0, -1}:
        if i <= count:
            assert index.lookup(1000 + 10 * i) == 100 * i
            assert index.lookup(1000 + 10 * i + 9) == 100 * i
    assert index.lookup(10**9) == 100 * count


@pytest.mark.parametrize("mapped", [False, True])
def test_the_first_entry_from_a_position_on(disk: MemoryDisk, mapped: bool) -> None:
    index = offset_index(disk, 10, mapped=mapped)
    assert index.first_offset_from(0) == 1010
    assert index.first_offset_from(201) == 1030
    assert index.first_offset_from(1001) is None


def test_an_offset_index_has_kafkas_bytes(disk: MemoryDisk) -> None:
    offset_index(disk, 2, mapped=True)
    assert disk.read("/00.index") == pack(">iiii", 10, 100, 20, 200)


def test_a_truncated_index_can_be_appended_to(disk: MemoryDisk) -> None:
    index = offset_index(disk, 5, mapped=True)
    index.truncate_to(1030)
    assert len(index) == 2
    index.append(1031, 999)
    assert index.lookup(1031) == 999


def test_a_preallocated_index_that_was_not_trimmed_is_read_to_its_last_entry(
    disk: MemoryDisk,
) -> None:
    disk.write_atomically("/00.index", pack(">ii", 10, 100) + bytes(800))
    index = OffsetIndex(disk, "/00.index", 1000)
    index.load()
    assert len(index) == 1


@pytest.mark.parametrize(
    "content",
    [b"1234567", pack(">ii", -5, 100), pack(">ii", 10, 5000), bytes(8)],
)
def test_an_insane_offset_index_is_noticed(disk: MemoryDisk, content: bytes) -> None:
    index = OffsetIndex(disk, "/00.index", 1000)
    assert not index.is_sane(1000)
    disk.write_atomically("/00.index", content)
    assert not index.is_sane(1000)


def test_an_empty_index_is_sane(disk: MemoryDisk) -> None:
    index = offset_index(disk, 1, mapped=False)
    index.reset()
    index.save()
    assert index.is_sane(1000)


def time_index(disk: MemoryDisk, *, mapped: bool) -> TimeIndex:
    index = TimeIndex(disk, "/00.timeindex", 1000)
    for i in range(1, 101):
        index.append(NOW + 10 * i, 1000 + i)
    if mapped:
        index.save()
        index.unload()
    return index


@pytest.mark.parametrize("mapped", [False, True])
def test_a_time_is_found_from_the_last_entry_not_after_it(disk: MemoryDisk, mapped: bool) -> None:
    index = time_index(disk, mapped=mapped)
    assert index.last() == (NOW + 1000, 1100)
    assert index.lookup(NOW) == 1000
    assert index.lookup(NOW + 10) == 1001
    assert index.lookup(NOW + 505) == 1050
    assert index.lookup(NOW + 10**6) == 1100


def test_a_time_index_takes_only_later_times(disk: MemoryDisk) -> None:
    index = TimeIndex(disk, "/00.timeindex", 0)
    for timestamp in (-1, 50, 50, 40, 60):
        index.append(timestamp, 7)
    assert [index.entry(slot) for slot in range(len(index))] == [(50, 7), (60, 7)]


def test_a_time_index_has_kafkas_bytes(disk: MemoryDisk) -> None:
    index = TimeIndex(disk, "/00.timeindex", 1000)
    index.append(NOW, 1004)
    index.save()
    assert disk.read("/00.timeindex") == pack(">qi", NOW, 4)


@pytest.mark.parametrize(
    "content",
    [b"123", pack(">qiqi", NOW, 5, NOW - 1, 6), pack(">qiqi", NOW, 5, NOW + 1, 4), bytes(24)],
)
def test_an_insane_time_index_is_noticed(disk: MemoryDisk, content: bytes) -> None:
    disk.write_atomically("/00.timeindex", content)
    assert not TimeIndex(disk, "/00.timeindex", 0).is_sane()


def test_the_transaction_index_has_kafkas_bytes(disk: MemoryDisk) -> None:
    index = TransactionIndex(disk, "/00.txnindex")
    assert index.entries() == []
    assert not disk.exists("/00.txnindex")
    index.append(AbortedTransaction(7, 10, 20, 15))
    assert disk.read("/00.txnindex") == pack(">hqqqq", 0, 7, 10, 20, 15)
    assert TransactionIndex(disk, "/00.txnindex").entries() == [AbortedTransaction(7, 10, 20, 15)]


def test_a_transaction_that_ends_where_a_range_begins_concerns_it(disk: MemoryDisk) -> None:
    index = TransactionIndex(disk, "/00.txnindex")
    index.append(AbortedTransaction(7, 10, 20, 15))
    index.append(AbortedTransaction(8, 15, 30, 31))
    assert [entry.producer_id for entry in index.collect(20, 40)[0]] == [7, 8]
    assert [entry.producer_id for entry in index.collect(21, 40)[0]] == [8]
    assert [entry.producer_id for entry in index.collect(0, 10)[0]] == []
    assert [entry.producer_id for entry in index.collect(0, 11)[0]] == [7]


def test_the_search_ends_when_nothing_later_can_concern_it(disk: MemoryDisk) -> None:
    index = TransactionIndex(disk, "/00.txnindex")
    index.append(AbortedTransaction(7, 10, 20, 21))
    assert index.collect(0, 21) == ([AbortedTransaction(7, 10, 20, 21)], True)
    assert index.collect(0, 22)[1] is False


def test_truncation_drops_transactions_that_end_there(disk: MemoryDisk) -> None:
    index = TransactionIndex(disk, "/00.txnindex")
    index.append(AbortedTransaction(7, 10, 20, 15))
    index.append(AbortedTransaction(8, 15, 30, 31))
    index.truncate_to(30)
    assert [entry.producer_id for entry in index.entries()] == [7]
    assert disk.size("/00.txnindex") == 34


def test_a_search_in_a_transaction_index_finds_what_a_scan_finds(disk: MemoryDisk) -> None:
    random = Random(5)
    index = TransactionIndex(disk, "/00.txnindex")
    written: list[AbortedTransaction] = []
    end = 0
    for producer_id in range(300):
        end += random.randint(1, 9)
        first, stable = random.randint(max(0, end - 30), end - 1), random.randint(0, end + 1)
        written.append(AbortedTransaction(producer_id, first, end, stable))
        index.append(written[-1])
    assert index.entries() == TransactionIndex(disk, "/00.txnindex").entries() == written
    for _ in range(500):
        begin = random.randint(0, end + 10)
        upto = begin + random.randint(1, 50)
        expected = [each for each in written if begin <= each.last_offset]
        stop = next((n for n, e in enumerate(expected, 1) if e.last_stable_offset >= upto), None)
        found = [each for each in expected[:stop] if each.first_offset < upto]
        assert index.collect(begin, upto) == (found, stop is not None)


def test_a_search_in_a_transaction_index_reads_few_of_many_entries(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = TransactionIndex(disk, "/00.txnindex")
    for number in range(4096):
        index.append(AbortedTransaction(7, 2 * number, 2 * number + 1, 2 * number + 2))
    read: list[int] = []
    original = TransactionIndex._at

    def counted(self: TransactionIndex, number: int) -> AbortedTransaction:
        read.append(number)
        return original(self, number)

    monkeypatch.setattr(TransactionIndex, "_at", counted)
    assert [each.first_offset for each in index.collect(8000, 8004)[0]] == [8000, 8002]
    assert len(read) < 20


def test_a_transaction_index_out_of_order_is_insane(disk: MemoryDisk) -> None:
    for ends, is_sane in (((20, 30), True), ((30, 20), False), ((20, 20), False), ((9, 20), False)):
        rows = [pack(">hqqqq", 0, 7, 5, end, end + 1) for end in ends]
        disk.write_atomically("/00.txnindex", b"".join(rows))
        assert TransactionIndex(disk, "/00.txnindex").is_sane(10) is is_sane
