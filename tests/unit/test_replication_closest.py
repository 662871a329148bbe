"""The choice of the replica that a consumer reads (KIP-392)."""

from __future__ import annotations

from headwater.replication.closest import closest_replica
from headwater.replication.leader import LeaderState

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


def leader(isr: tuple[int, ...] = (1, 2, 3, 4), **ends: int) -> LeaderState:
    """Node 1 leads; `n2=7` says that node 2 has everything below 7."""
    state = LeaderState(
        node_id=1,
        epoch=5,
        partition_epoch=0,
        isr=isr,
        replicas=(1, 2, 3, 4),
        log_end=10,
        high_watermark=0,
        min_isr=1,
        lag_seconds_max=30.0,
        active_epoch=lambda node: node,
        now=0.0,
    )
    for name, end in ends.items():
        state.on_fetch(int(name[1:]), offset=end, log_start=2, now=1.0)
    return state


def test_a_replica_in_the_rack_that_is_furthest_ahead_is_chosen() -> None:
    state = leader(n2=7, n3=9)
    assert closest_replica(state, RACKS, rack="b", offset=5) == 3


def test_the_leader_is_as_good_in_its_own_rack() -> None:
    state = leader(n2=10)
    assert closest_replica(state, RACKS | {2: "a"}, rack="a", offset=5) is None


def test_another_rack_reads_from_the_leader() -> None:
    assert closest_replica(leader(n2=10, n3=10), RACKS, rack="z", offset=5) is None


def test_a_replica_that_lacks_the_offset_is_not_chosen() -> None:
    state = leader(n2=7, n3=4)
    assert closest_replica(state, RACKS, rack="b", offset=7) == 2
    assert closest_replica(state, RACKS, rack="b", offset=8) is None
    assert closest_replica(state, RACKS, rack="b", offset=1) is None, "it has deleted that"


def test_a_replica_that_has_not_fetched_yet_is_not_chosen() -> None:
    assert closest_replica(leader(n3=4), RACKS, rack="c", offset=0) is None


def test_a_replica_out_of_sync_is_not_chosen() -> None:
    state = leader(isr=(1, 2), n2=7, n3=9)
    assert closest_replica(state, RACKS, rack="b", offset=5) == 2


def test_a_replica_that_the_consumer_cannot_reach_is_not_chosen() -> None:
    state = leader(n2=7, n3=9)
    assert closest_replica(state, {1: "a", 2: "b"}, rack="b", offset=5) == 2


def test_of_equal_ones_the_last_to_be_caught_up_is_chosen() -> None:
    state = leader(n2=10, n3=10)
    state.on_fetch(2, offset=10, log_start=0, now=2.0)
    assert closest_replica(state, RACKS, rack="b", offset=5) == 2
