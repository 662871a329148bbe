"""The key map and the retainer of the Rust core at their edges."""

from __future__ import annotations

import pytest

from headwater import _core
from tests.support.logs import NOW, batch, records

NONE: list[tuple[int, int, int, int]] = []


def rows(*keys: bytes) -> list[tuple[bytes | None, bytes | None, list[object], int]]:
    return [(key, b"value", [], NOW) for key in keys]


def test_a_map_that_holds_no_key_is_refused() -> None:
    with pytest.raises(ValueError, match="47 bytes"):
        _core.KeyMap(47, load_factor=0.4)


def test_a_full_map_stops_before_the_batch_that_does_not_fit() -> None:
    keys = _core.KeyMap(24 * 10, load_factor=0.5)
    first = bytes(records(rows(b"a", b"b", b"c")))
    second = bytes(records(rows(b"d", b"e", b"f"), base_offset=3))
    used, full = keys.learn(first + second, _core.Transactions(NONE), 0)
    assert (used, full) == (len(first), True)
    assert keys.latest_offset == 2
    assert len(keys) == keys.keys_max == 5


def test_a_map_grows_up_to_its_bound_and_forgets_nothing() -> None:
    keys = _core.KeyMap(24 * 50_000)
    for first in range(0, 40_000, 1000):
        data = records(rows(*(b"%d" % i for i in range(first, first + 1000))), base_offset=first)
        assert keys.learn(data, _core.Transactions(NONE), 0) == (len(data), False)
    assert len(keys) == 40_000
    assert all(keys.get(b"%d" % i) == i for i in range(40_000))
    assert keys.get(b"40000") == -1


def test_a_batch_cut_short_is_left_for_the_next_piece() -> None:
    keys = _core.KeyMap(1 << 16)
    whole = bytes(batch(b"x"))
    used, full = keys.learn(whole + whole[:40], _core.Transactions(NONE), 0)
    assert (used, full) == (len(whole), False)


def test_a_batch_with_a_wrong_checksum_is_never_rewritten() -> None:
    keys = _core.KeyMap(1 << 16)
    data = batch(b"x", b"y")
    keys.learn(data, _core.Transactions(NONE), 0)
    data[-1] ^= 1
    retainer = _core.Retainer(now_ms=NOW, delete_retention_ms=0, upper_bound=2, producers=[])
    with pytest.raises(_core.CorruptBatch, match="crc"):
        retainer.retain(data, keys, _core.Transactions(NONE))
    with pytest.raises(_core.CorruptBatch, match="crc"):
        keys.learn(data, _core.Transactions(NONE), 0)


def test_records_without_a_key_are_dropped_and_counted() -> None:
    data = records([(None, b"x", [], NOW), (b"k", b"y", [], NOW)])
    keys = _core.KeyMap(1 << 16)
    keys.learn(data, _core.Transactions(NONE), 0)
    retainer = _core.Retainer(now_ms=NOW, delete_retention_ms=0, upper_bound=9, producers=[])
    _, kept, _ = retainer.retain(data, keys, _core.Transactions(NONE))
    assert [record.value for record in _core.decode(kept)] == [b"y"]
    assert (retainer.records_read, retainer.records_kept, retainer.keyless) == (2, 1, 1)


def test_what_comes_after_the_mapped_part_is_left_alone() -> None:
    data = bytes(records(rows(b"a", b"a"))) + bytes(records(rows(b"a", b"a"), base_offset=2))
    keys = _core.KeyMap(1 << 16)
    keys.learn(data[: len(data) // 2], _core.Transactions(NONE), 0)
    retainer = _core.Retainer(now_ms=NOW, delete_retention_ms=0, upper_bound=4, producers=[])
    _, kept, _ = retainer.retain(data, keys, _core.Transactions(NONE))
    assert [record.offset for record in _core.decode(kept)] == [1, 2, 3]
