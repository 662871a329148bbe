"""The follower's decisions: where to cut, and what it counts as committed."""

from __future__ import annotations

from headwater.model import OffsetAndEpoch
from headwater.replication.follower import Cut, FollowerState
from headwater.storage.epochs import EpochCache


def follower(high_watermark: int = 5) -> FollowerState:
    return FollowerState(leader_id=2, epoch=9, high_watermark=high_watermark)


def diverge(
    own: list[tuple[int, int]], log_end: int, *, leaders_epoch: int, leaders_end: int
) -> Cut:
    cache = EpochCache(own)
    return follower().decide_divergence(
        OffsetAndEpoch(leaders_end, leaders_epoch),
        log_end=log_end,
        own=lambda epoch: cache.end_of(epoch, log_end),
    )


def test_the_log_is_cut_where_the_common_epoch_ends_first() -> None:
    assert diverge([(1, 0), (3, 10)], 20, leaders_epoch=1, leaders_end=7) == Cut(7)
    assert diverge([(1, 0), (3, 10)], 20, leaders_epoch=1, leaders_end=15) == Cut(10)
    assert diverge([(1, 0)], 8, leaders_epoch=1, leaders_end=15) == Cut(8)


def test_an_epoch_that_only_the_leader_has_is_compared_again() -> None:
    """KIP-279: after fast consecutive elections both may have epochs that the other lacks."""
    assert diverge([(1, 0), (3, 10)], 20, leaders_epoch=2, leaders_end=18) == Cut(10)


def test_without_epochs_only_what_is_committed_stays() -> None:
    assert follower().decide_start(log_end=9, latest_epoch=-1) == Cut(5)
    assert follower().decide_start(log_end=5, latest_epoch=-1) is None
    assert follower().decide_start(log_end=9, latest_epoch=3) is None


def test_a_leader_that_has_deleted_what_comes_next_is_followed_from_its_start() -> None:
    state = follower()
    cut = state.decide_out_of_range(log_end=9, leader_start=100, leader_end=200)
    assert cut == Cut(100, begins_anew=True)
    state.on_cut(cut)
    assert state.high_watermark == 100


def test_a_leader_that_has_less_cuts_its_follower() -> None:
    state = follower()
    cut = state.decide_out_of_range(log_end=9, leader_start=0, leader_end=3)
    assert cut == Cut(3)
    state.on_cut(cut)
    assert state.high_watermark == 3


def test_a_range_that_has_changed_meanwhile_needs_no_cut() -> None:
    assert follower().decide_out_of_range(log_end=9, leader_start=0, leader_end=9) is None


def test_the_high_watermark_is_the_leaders_as_far_as_the_log_reaches() -> None:
    state = follower()
    assert state.on_fetched(leader_high_watermark=20, log_end=12)
    assert state.high_watermark == 12
    assert not state.on_fetched(leader_high_watermark=8, log_end=15)
    assert state.high_watermark == 12, "a new leader's may lag"


def test_the_log_starts_where_the_leaders_does_within_what_is_committed() -> None:
    state = follower(high_watermark=5)
    assert state.log_start(leader_start=3, log_start=0) == 3
    assert state.log_start(leader_start=9, log_start=0) == 5
    assert state.log_start(leader_start=1, log_start=2) == 2
