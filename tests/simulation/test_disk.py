"""Files that forget what was not synced, fill up, and fail."""

from __future__ import annotations

import errno
from struct import pack_into, unpack_from

import pytest

from headwater.io import SyncFailed
from headwater.testing.sim.disk import PAGE_BYTES, SimDisk
from headwater.testing.sim.world import Machine, World

SEEDS = range(60)


def _machine(seed: int) -> tuple[Machine, SimDisk]:
    machine = World(seed).machine("m")
    machine.boot()
    machine.disk.make_dirs("/d")
    machine.disk.sync_dir("/")
    return machine, machine.disk


def _after_power_cut(machine: Machine) -> SimDisk:
    machine.crash(power_cut=True)
    machine.boot()
    return machine.disk


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_synced_survives_and_what_was_not_is_old_new_or_torn(seed: int) -> None:
    machine, disk = _machine(seed)
    file = disk.open("/d/f", create=True)
    file.append(b"a" * 10_000)
    file.sync()
    disk.sync_dir("/d")
    file.append(b"b" * 10_000)

    content = _after_power_cut(machine).read("/d/f")

    assert content[:10_000] == b"a" * 10_000
    assert set(content[10_000:]) <= set(b"b\0")


def test_unsynced_bytes_are_lost_kept_and_torn_by_chance() -> None:
    seen = set()
    for seed in SEEDS:
        machine, disk = _machine(seed)
        file = disk.open("/d/f", create=True)
        file.sync()
        disk.sync_dir("/d")
        file.append(b"b" * 3 * PAGE_BYTES)
        content = _after_power_cut(machine).read("/d/f")
        lengths = "none" if not content else "all" if len(content) == 3 * PAGE_BYTES else "some"
        seen.add((lengths, b"\0" in content))
    assert {("none", False), ("all", False), ("all", True)} <= seen
    assert len(seen) >= 4


@pytest.mark.parametrize("seed", SEEDS)
def test_a_file_whose_name_was_not_synced_may_be_gone_but_a_move_is_whole(seed: int) -> None:
    machine, disk = _machine(seed)
    disk.write_atomically("/d/f", b"old")
    new = disk.open("/d/f.tmp", create=True)
    new.append(b"new")
    new.sync()
    disk.rename("/d/f.tmp", "/d/f")

    after = _after_power_cut(machine)

    assert after.read("/d/f") in (b"old", b"new")


@pytest.mark.parametrize("seed", SEEDS)
def test_an_atomic_write_is_there_when_it_returns(seed: int) -> None:
    machine, disk = _machine(seed)
    disk.write_atomically("/d/f", b"one")
    disk.write_atomically("/d/f", b"two")

    after = _after_power_cut(machine)

    assert after.read("/d/f") == b"two"
    assert after.list("/d") == ["f"]


def test_names_that_were_not_synced_come_and_go_by_chance() -> None:
    seen = set()
    for seed in SEEDS:
        machine, disk = _machine(seed)
        for name in "ab":
            disk.open(f"/d/{name}", create=True)
        disk.sync_dir("/d")
        disk.remove("/d/a")
        disk.rename("/d/b", "/d/c")
        disk.open("/d/e", create=True)
        names = tuple(_after_power_cut(machine).list("/d"))
        assert ("b" in names) != ("c" in names)
        seen.add(names)
    assert len(seen) >= 6


def test_a_killed_process_loses_nothing() -> None:
    machine, disk = _machine(1)
    file = disk.open("/d/f", create=True)
    file.append(b"abc")
    mapping = disk.map("/d/index", 16)
    pack_into(">q", mapping, 8, 7)

    machine.crash(power_cut=False)
    machine.boot()

    assert machine.disk.read("/d/f") == b"abc"
    assert unpack_from(">qq", machine.disk.map("/d/index")) == (0, 7)
    with pytest.raises(OSError, match="crashed"):
        file.append(b"from the grave")


def test_a_full_disk_refuses_and_leaves_the_file_as_it_was() -> None:
    _, disk = _machine(1)
    file = disk.open("/d/f", create=True)
    disk.capacity_bytes = disk.used_bytes + 10
    file.append(b"0123456789")
    with pytest.raises(OSError, match="No space") as caught:
        file.append(b"x", b"y")
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"0123456789"
    disk.remove("/d/f")
    disk.open("/d/g", create=True).append(b"0123456789")


@pytest.mark.parametrize("seed", SEEDS)
def test_after_a_failed_sync_a_second_one_proves_nothing(seed: int) -> None:
    machine, disk = _machine(seed)
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    file.append(b"lost")
    disk.faults.error_on_call["sync"] = 1
    with pytest.raises(SyncFailed):
        file.sync()
    file.sync()

    assert b"lost" not in _after_power_cut(machine).read("/d/f")


def test_a_lock_is_held_by_one_and_ends_with_the_process() -> None:
    machine, disk = _machine(1)
    lock = disk.lock("/d/.lock", "node 1")
    with pytest.raises(BlockingIOError, match="node 1"):
        disk.lock("/d/.lock", "node 2")
    lock.release()
    disk.lock("/d/.lock", "node 2")
    machine.crash(power_cut=False)
    machine.boot()
    machine.disk.lock("/d/.lock", "node 3")


def test_a_sync_copies_only_what_changed_and_a_lost_page_stays_lost() -> None:
    _, disk = _machine(1)
    file = disk.open("/d/f", create=True)
    file.append(b"a" * PAGE_BYTES)
    file.sync()
    file.append(b"b" * PAGE_BYTES)
    disk.faults.error_on_call["sync"] = 1
    with pytest.raises(SyncFailed):
        file.sync()
    file.append(b"c" * 100)
    file.pwrite(b"A", 0)
    file.sync()
    durable = bytes(file.inode.durable)
    assert durable == b"A" + b"a" * (PAGE_BYTES - 1) + bytes(PAGE_BYTES) + b"c" * 100


@pytest.mark.parametrize("seed", SEEDS)
def test_a_page_whose_sync_failed_is_saved_when_it_is_written_again(seed: int) -> None:
    machine, disk = _machine(seed)
    file = disk.open("/d/f", create=True)
    disk.sync_dir("/d")
    file.append(b"a" * 100)
    file.sync()
    file.append(b"b" * 100)
    disk.faults.error_on_call["sync"] = 1
    with pytest.raises(SyncFailed):
        file.sync()
    file.pwrite(file.pread(1, 150), 150)
    file.sync()

    assert _after_power_cut(machine).read("/d/f") == b"a" * 100 + b"b" * 100


def test_a_machine_whose_disk_is_lost_comes_back_empty() -> None:
    machine, disk = _machine(1)
    disk.write_atomically("/d/f", b"text")
    machine.crash(power_cut=False)
    machine.lose_disk()
    machine.boot()
    assert machine.disk.list("/") == []
    assert machine.disk.used_bytes == 0
