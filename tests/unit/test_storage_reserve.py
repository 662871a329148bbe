"""The reserve: a full disk still serves metadata, and takes records again when there is room."""

from __future__ import annotations

from random import Random

import pytest

from headwater.storage.failures import Health
from headwater.storage.reserve import RESERVE_BYTES, Reserve
from headwater.testing.sim.clock import SimClock
from headwater.testing.sim.disk import SimDisk
from headwater.testing.sim.loop import SimLoop


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(SimClock(SimLoop()), Random(1), 8 * RESERVE_BYTES)
    disk.make_dirs("/data")
    return disk


def fill(disk: SimDisk) -> None:
    disk.capacity_bytes = disk.used_bytes


def test_the_reserve_is_made_where_there_is_room(disk: SimDisk) -> None:
    health = Health("/data")
    reserve = Reserve(disk, "/data")
    reserve.watch(health)
    assert reserve.is_held
    assert not health.is_low
    assert disk.used_bytes >= RESERVE_BYTES


def test_a_reserve_that_is_given_makes_room_and_stops_clients(disk: SimDisk) -> None:
    health = Health("/data")
    reserve = Reserve(disk, "/data")
    reserve.watch(health)
    fill(disk)
    assert reserve.release()
    assert health.is_low
    assert disk.space("/data")[1] >= RESERVE_BYTES
    assert not reserve.release(), "it can be released only once"


def test_clients_are_let_in_again_when_there_is_room_for_more_than_the_reserve(
    disk: SimDisk,
) -> None:
    health = Health("/data")
    reserve = Reserve(disk, "/data")
    reserve.watch(health)
    fill(disk)
    reserve.release()
    assert not reserve.hold(), "what it gave is not enough to take it back"
    assert health.is_low
    disk.capacity_bytes += 4 * RESERVE_BYTES
    assert reserve.hold()
    assert not health.is_low


def test_a_start_on_a_full_disk_finds_the_reserve(disk: SimDisk) -> None:
    Reserve(disk, "/data").watch(Health("/data"))
    fill(disk)
    reserve = Reserve(disk, "/data")
    reserve.release_if_tight()
    assert disk.space("/data")[1] >= RESERVE_BYTES
    health = Health("/data")
    reserve.watch(health)
    assert health.is_low
