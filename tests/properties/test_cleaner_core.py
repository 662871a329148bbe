"""Compaction in the Rust core against its plain Python twin, over several rounds."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import hypothesis.strategies as st
from hypothesis import given, settings

from headwater import _core
from tests.reference import batches as twin
from tests.reference import compaction

NOW = 1_750_000_000_000
RETENTION = 1000

Aborted = tuple[int, int, int, int]


class History(NamedTuple):
    data: bytes
    aborted: list[Aborted]
    end: int
    producers: dict[int, tuple[int, int]]


def marker(producer: int, *, abort: bool, offset: int, timestamp: int) -> bytes:
    key = bytes([0, 0, 0, 0 if abort else 1])
    return _core.encode(
        [(key, bytes(6), [], timestamp)],
        base_offset=offset,
        producer_id=producer,
        producer_epoch=3,
        transactional=True,
        control=True,
    )


def history(random: Random, count: int) -> History:
    """Batches of plain, idempotent and transactional producers, all decided in the end."""
    data, offset = b"", 0
    open_since: dict[int, int] = {}
    sequences: dict[int, int] = {}
    aborted: list[Aborted] = []

    def end(producer: int) -> None:
        nonlocal data, offset
        first = open_since.pop(producer)
        abort = random.random() < 0.5
        data += marker(producer, abort=abort, offset=offset, timestamp=NOW)
        if abort:
            stable = min(open_since.values(), default=offset + 1)
            aborted.append((producer, first, offset, stable))
        offset += 1

    for _ in range(count):
        producer = random.choice([-1, -1, 1, 2, 7, 8])
        if producer in open_since and random.random() < 0.4:
            end(producer)
            continue
        transactional = producer >= 7
        rows = [
            (
                random.choice([b"a", b"b", b"c", b"d", b"e", None]),
                random.choice([None, None, b"x", b"yy", random.randbytes(30)]),
                [("h", b"1")] if random.random() < 0.2 else [],
                NOW + random.randint(-50, 50),
            )
            for _ in range(random.randint(1, 4))
        ]
        data += _core.encode(
            rows,
            base_offset=offset,
            leader_epoch=random.randint(0, 3),
            codec=random.randint(0, 4),
            producer_id=producer,
            producer_epoch=3 if producer >= 0 else -1,
            base_sequence=sequences.get(producer, 0) if producer >= 0 else -1,
            transactional=transactional,
            log_append_time=NOW if random.random() < 0.2 else None,
        )
        if transactional:
            open_since.setdefault(producer, offset)
        sequences[producer] = sequences.get(producer, 0) + len(rows)
        offset += len(rows) + random.choice([0, 0, 0, 3])  # gaps, as an earlier round leaves them
    for producer in sorted(open_since):
        end(producer)
    last = {}
    for batch in _core.scan(data)[0]:
        if batch.producer_id >= 0 and batch.producer_id not in last:
            last[batch.producer_id] = (-1, 3)
        if batch.producer_id >= 0 and not batch.is_control:
            last[batch.producer_id] = (batch.last_offset, 3)
    forgotten = [producer for producer in last if random.random() < 0.3]
    for producer in forgotten:
        del last[producer]
    return History(data, aborted, offset, last)


def in_pieces(data: bytes, random: Random) -> list[int]:
    return [random.randint(200, 2000) for _ in range(len(data) // 200 + 2)]


def learned(data: bytes, aborted: list[Aborted], first_dirty: int, random: Random) -> _core.KeyMap:
    keys = _core.KeyMap(1 << 20)
    transactions = _core.Transactions(aborted)
    at = 0
    for size in in_pieces(data, random):
        used, full = keys.learn(data[at : at + size], transactions, first_dirty)
        assert not full
        at += used
        if at == len(data):
            break
    while at < len(data):
        used, _ = keys.learn(data[at:], transactions, first_dirty)
        at += used
    return keys


def shown(data: bytes) -> list[tuple[object, ...]]:
    """Headers and records; the bytes of a compressed payload may differ between compressors."""
    found: list[tuple[object, ...]] = []
    for batch, own in compaction.each(data):
        twin.check_crc(batch, own)
        names = [name for name in twin.Batch.__slots__ if name not in ("length", "crc")]
        found.append(tuple(getattr(batch, name) for name in names))
        found += [
            (record.offset, record.timestamp, record.key, record.value, record.headers)
            for record in twin.records(batch, own)
        ]
    return found


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.integers(1, 25), st.floats(0, 1))
def test_the_core_keeps_what_the_twin_keeps(seed: int, count: int, clean_share: float) -> None:
    random = Random(seed)
    data, aborted, end, producers = history(random, count)
    now = NOW
    first_dirty = int(end * clean_share)
    for _ in range(4):
        keys = learned(data, aborted, first_dirty, random)
        keys.reach(end - 1)
        expected_keys = compaction.learn(data, aborted, first_dirty)
        assert len(keys) == len(expected_keys)
        assert all(keys.get(key) == offset for key, offset in expected_keys.items())
        retainer = _core.Retainer(
            now_ms=now,
            delete_retention_ms=RETENTION,
            upper_bound=end,
            producers=[(producer, *last) for producer, last in producers.items()],
        )
        transactions = _core.Transactions(aborted)
        out, at = b"", 0
        retainer.begin(0, 100)
        points: list[tuple[int, int, int, int]] = []
        while at < len(data):
            used, kept, due = retainer.retain(
                data[at : at + random.randint(500, 4000)], keys, transactions
            )
            at += used
            out += kept
            points += due
        expected, needed = compaction.retain(
            data,
            expected_keys,
            aborted,
            latest_offset=keys.latest_offset,
            now_ms=now,
            delete_retention_ms=RETENTION,
            upper_bound=end,
            producers=producers,
        )
        assert shown(out) == shown(expected)
        assert transactions.take_needed() == needed
        headers = {batch.position: batch for batch in _core.scan(out)[0]}
        for position, last_offset, newest, newest_offset in points:
            assert headers[position].last_offset == last_offset
            so_far = [b for b in headers.values() if b.position <= position]
            assert newest == max(b.max_timestamp for b in so_far)
            assert newest_offset == next(b.last_offset for b in so_far if b.max_timestamp == newest)
        data, aborted, first_dirty = out, needed, end
        now += random.choice([1, RETENTION, 5 * RETENTION])
