"""The leader's arithmetic: what is committed, who is in sync."""

from __future__ import annotations

from headwater.replication.leader import LeaderState


def leader(
    *, isr: tuple[int, ...] = (1, 2, 3), log_end: int = 10, min_isr: int = 1, now: float = 0.0
) -> LeaderState:
    return LeaderState(
        node_id=1,
        epoch=4,
        isr=isr,
        replicas=(1, 2, 3),
        log_end=log_end,
        high_watermark=7,
        min_isr=min_isr,
        now=now,
    )


def test_alone_everything_is_committed_at_once() -> None:
    state = leader(isr=(1,))
    assert state.high_watermark == 10
    assert state.on_append(12) == 12


def test_the_slowest_in_sync_replica_holds_the_high_watermark() -> None:
    state = leader()
    assert state.on_append(20) == 7
    state.on_fetch(2, offset=15, log_start=0, now=1.0)
    assert state.high_watermark == 7, "replica 3 has not been heard of in this epoch"
    assert state.on_fetch(3, offset=12, log_start=0, now=1.0) == 12


def test_the_high_watermark_never_goes_back() -> None:
    state = leader()
    state.on_fetch(2, offset=10, log_start=0, now=1.0)
    assert state.on_fetch(3, offset=10, log_start=0, now=1.0) == 10
    assert state.on_fetch(3, offset=8, log_start=0, now=1.1) == 10


def test_a_smaller_in_sync_set_commits_more() -> None:
    state = leader()
    state.on_fetch(2, offset=10, log_start=0, now=1.0)
    assert state.on_change(isr=(1, 2), replicas=(1, 2, 3)) == 10


def test_fewer_in_sync_than_required_commit_nothing() -> None:
    """KIP-966: what the leader alone has must not be called committed."""
    state = leader(min_isr=2)
    assert state.on_change(isr=(1,), replicas=(1, 2, 3)) == 7
    assert state.on_append(12) == 7
    assert state.on_min_isr(1) == 12
    assert state.on_append(13) == 13


def test_a_partition_with_fewer_replicas_than_required_needs_those_it_has() -> None:
    state = leader(min_isr=2)
    assert state.on_change(isr=(1,), replicas=(1,)) == 10
    assert state.on_append(12) == 12


def test_replicas_may_change_within_an_epoch() -> None:
    state = leader()
    state.on_change(isr=(1, 2), replicas=(1, 2, 4))
    state.on_fetch(4, offset=10, log_start=0, now=1.0)
    assert state.may_join(4)
    assert not state.may_join(3), "it was removed"
    assert state.on_change(isr=(1, 2, 4), replicas=(1, 2, 4)) == 7
    assert state.on_fetch(2, offset=10, log_start=0, now=1.0) == 10


def test_the_followers_of_a_new_leader_have_time_to_fetch() -> None:
    state = leader(now=100.0)
    assert state.lagging(now=120.0, lag_seconds_max=30.0) == ()
    assert state.lagging(now=131.0, lag_seconds_max=30.0) == (2, 3)


def test_a_replica_out_of_sync_joins_when_it_has_reached_this_epoch() -> None:
    state = leader(isr=(1, 2))
    state.on_append(20)
    state.on_fetch(3, offset=9, log_start=0, now=1.0)
    assert not state.may_join(3), "the epoch began at 10"
    state.on_fetch(3, offset=10, log_start=0, now=1.0)
    assert state.may_join(3)
    assert not state.may_join(2), "it is in already"


def test_a_replica_lags_when_it_has_not_caught_up_for_long() -> None:
    state = leader()
    state.on_fetch(2, offset=10, log_start=0, now=100.0)
    state.on_fetch(3, offset=10, log_start=0, now=100.0)
    state.on_append(20)
    assert state.lagging(now=120.0, lag_seconds_max=30.0) == ()
    state.on_fetch(2, offset=20, log_start=0, now=129.0)
    assert state.lagging(now=131.0, lag_seconds_max=30.0) == (3,)


def test_a_replica_that_keeps_up_with_what_was_there_before_does_not_lag() -> None:
    state = leader()
    state.on_fetch(2, offset=10, log_start=0, now=100.0)
    for step in range(1, 50):
        state.on_append(10 + 10 * step)
        state.on_fetch(2, offset=10 * step, log_start=0, now=100.0 + step)
    assert 2 not in state.lagging(now=150.0, lag_seconds_max=30.0)
