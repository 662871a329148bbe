"""The leader's arithmetic: what is committed, who is in sync."""

from __future__ import annotations

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.replication.leader import FetchClock, LeaderState


class Brokers:
    """The registered brokers. Each has its id as epoch; those that are away have none."""

    def __init__(self) -> None:
        self.epochs: dict[int, int] = {1: 1, 2: 2, 3: 3, 4: 4}

    def __call__(self, broker: int) -> int | None:
        return self.epochs.get(broker)


def leader(
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    log_end: int = 10,
    min_isr: int = 1,
    now: float = 0.0,
    brokers: Brokers | None = None,
) -> LeaderState:
    return LeaderState(
        node_id=1,
        epoch=4,
        partition_epoch=8,
        isr=isr,
        replicas=(1, 2, 3),
        log_end=log_end,
        high_watermark=7,
        min_isr=min_isr,
        lag_seconds_max=30.0,
        active_epoch=brokers or Brokers(),
        now=now,
    )


def fetch(state: LeaderState, replica: int, offset: int, now: float = 1.0, **more: int) -> int:
    epoch = more.get("broker_epoch", replica)
    return state.on_fetch(replica, offset=offset, log_start=0, now=now, broker_epoch=epoch)


def commit(state: LeaderState, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> int:
    return state.on_change(isr=isr, replicas=replicas, partition_epoch=state.partition_epoch + 1)


def test_alone_everything_is_committed_at_once() -> None:
    state = leader(isr=(1,))
    assert state.high_watermark == 10
    assert state.on_append(12) == 12


def test_the_slowest_in_sync_replica_holds_the_high_watermark() -> None:
    state = leader()
    assert state.on_append(20) == 7
    fetch(state, 2, 15, 1.0)
    assert state.high_watermark == 7, "replica 3 has not been heard of in this epoch"
    assert fetch(state, 3, 12, 1.0) == 12


def test_the_high_watermark_never_goes_back() -> None:
    state = leader()
    fetch(state, 2, 10, 1.0)
    assert fetch(state, 3, 10, 1.0) == 10
    assert fetch(state, 3, 8, 1.1) == 10


def test_a_smaller_in_sync_set_commits_more() -> None:
    state = leader()
    fetch(state, 2, 10, 1.0)
    assert commit(state, (1, 2)) == 10


def test_fewer_in_sync_than_required_commit_nothing() -> None:
    """KIP-966: what the leader alone has must not be called committed."""
    state = leader(min_isr=2)
    assert commit(state, (1,)) == 7
    assert state.on_append(12) == 7
    assert state.on_min_isr(1) == 12
    assert state.on_append(13) == 13


def test_a_partition_with_fewer_replicas_than_required_needs_those_it_has() -> None:
    state = leader(min_isr=2)
    assert commit(state, (1,), (1,)) == 10
    assert state.on_append(12) == 12


def test_replicas_may_change_within_an_epoch() -> None:
    state = leader()
    commit(state, (1, 2), (1, 2, 4))
    fetch(state, 4, 10, 1.0)
    assert state.may_join(4)
    assert not state.may_join(3), "it was removed"
    assert commit(state, (1, 2, 4), (1, 2, 4)) == 7
    assert fetch(state, 2, 10, 1.0) == 10


def test_the_followers_of_a_new_leader_have_time_to_fetch() -> None:
    state = leader(now=100.0)
    assert state.lagging(120.0) == ()
    assert state.lagging(131.0) == (2, 3)


def test_a_replica_out_of_sync_joins_when_it_has_reached_this_epoch() -> None:
    state = leader(isr=(1, 2))
    state.on_append(20)
    fetch(state, 3, 9, 1.0)
    assert not state.may_join(3), "the epoch began at 10"
    fetch(state, 3, 10, 1.0)
    assert state.may_join(3)
    assert not state.may_join(2), "it is in already"


def test_a_replica_lags_when_it_has_not_caught_up_for_long() -> None:
    state = leader()
    fetch(state, 2, 10, 100.0)
    fetch(state, 3, 10, 100.0)
    state.on_append(20)
    assert state.lagging(120.0) == ()
    fetch(state, 2, 20, 129.0)
    assert state.lagging(131.0) == (3,)


def test_a_replica_that_keeps_up_with_what_was_there_before_does_not_lag() -> None:
    state = leader()
    fetch(state, 2, 10, 100.0)
    for step in range(1, 50):
        state.on_append(10 + 10 * step)
        fetch(state, 2, 10 * step, 100.0 + step)
    assert 2 not in state.lagging(150.0)


# Proposals of another in-sync set


def test_a_replica_that_may_have_joined_holds_the_high_watermark() -> None:
    """KIP-497: the controller may have committed the larger set, and may elect from it."""
    state = leader(isr=(1, 2))
    fetch(state, 3, 10)
    proposal = state.propose_join(3)
    assert proposal is not None
    assert (proposal.isr, proposal.broker_epochs) == ((1, 2, 3), (1, -1, 3))
    assert (proposal.leader_epoch, proposal.partition_epoch) == (4, 8)
    assert state.isr == (1, 2)
    assert state.maximal_isr == (1, 2, 3)
    state.on_append(20)
    assert fetch(state, 2, 20) == 10, "3 has not fetched that"
    assert fetch(state, 3, 15) == 15


def test_a_replica_that_may_have_left_still_holds_the_high_watermark() -> None:
    state = leader()
    state.on_append(20)
    fetch(state, 2, 20, now=31.0)
    proposal = state.propose_shrink(31.0)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert fetch(state, 2, 20, now=32.0) == 7
    assert commit(state, (1, 2)) == 20


def test_one_proposal_is_under_way_at_a_time() -> None:
    state = leader(isr=(1,))
    fetch(state, 2, 10)
    fetch(state, 3, 10)
    assert state.propose_join(2) is not None
    assert state.propose_join(3) is None
    commit(state, (1, 2))
    assert state.propose_join(3) is not None


def test_a_refused_proposal_changes_nothing() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 3, 10, now=-100.0)
    proposal = state.propose_join(3)
    assert proposal is not None
    state.on_append(20)
    fetch(state, 2, 20, now=1.0)
    assert state.on_refused(proposal) == 20
    assert state.maximal_isr == (1, 2)
    assert state.on_refused(proposal) == 20, "once is enough"


def test_older_metadata_does_not_undo_an_answered_proposal() -> None:
    state = leader(isr=(1, 2))
    fetch(state, 3, 10)
    state.propose_join(3)
    commit(state, (1, 2, 3))
    state.on_change(isr=(1, 2), replicas=(1, 2, 3), partition_epoch=8)
    assert state.isr == (1, 2, 3)


def test_metadata_of_the_same_epoch_does_not_end_a_proposal() -> None:
    """The answer to the proposal before came first; this one may be committed by now."""
    state = leader(isr=(1,))
    fetch(state, 2, 10)
    state.propose_join(2)
    commit(state, (1, 2))
    fetch(state, 3, 10)
    state.propose_join(3)
    state.on_change(isr=(1, 2), replicas=(1, 2, 3), partition_epoch=9)
    assert state.maximal_isr == (1, 2, 3)


def test_a_leader_that_is_alone_waits_for_a_replica_that_keeps_up() -> None:
    """Otherwise the high watermark would stay ahead of it, and it could never join."""
    state = leader(isr=(1,))
    fetch(state, 2, 10, now=5.0)
    state.on_append(20)
    assert state.high_watermark == 10
    assert fetch(state, 2, 20, now=6.0) == 20
    state.on_append(30)
    assert state.on_tick(30.0) == 20
    assert state.on_tick(40.0) == 30, "it stopped fetching"


def test_only_an_active_broker_of_the_same_incarnation_may_join() -> None:
    brokers = Brokers()
    state = leader(isr=(1, 2), brokers=brokers)
    fetch(state, 3, 10, broker_epoch=2)
    assert not state.may_join(3), "this fetch came from its last life"
    fetch(state, 3, 10)
    assert state.may_join(3)
    del brokers.epochs[3]
    assert not state.may_join(3), "fenced, or shutting down"
    brokers.epochs[3] = 33
    assert not state.may_join(3), "it has started again, and may have lost records"
    fetch(state, 3, 10, broker_epoch=33)
    assert state.may_join(3)


def test_fetches_are_fenced() -> None:
    state = leader()
    fetch(state, 3, 10)
    with pytest.raises(ApiError) as stale:
        state.check_fetch(3, broker_epoch=2, knows_epoch=True)
    assert stale.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(ApiError) as stranger:
        state.check_fetch(4, broker_epoch=4, knows_epoch=True)
    assert stranger.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH
    state.check_fetch(3, broker_epoch=-1, knows_epoch=True)


def test_a_follower_with_an_idle_session_does_not_lag_when_something_is_appended() -> None:
    """A session repeats the position of a partition without naming it."""
    state, clock = leader(now=0.0), FetchClock()
    for replica in (2, 3):
        state.on_fetch(replica, offset=10, log_start=0, now=1.0, broker_epoch=replica, clock=clock)
    clock.at = 1000.0
    state.on_append(20)
    assert state.lagging(1001.0) == ()
    assert state.lagging(1031.0) == (2, 3)


def test_the_low_watermark_is_that_of_the_live_replicas() -> None:
    brokers = Brokers()
    state = leader(brokers=brokers)
    assert state.low_watermark(5) == -1, "nobody has fetched"
    state.on_fetch(2, offset=10, log_start=3, now=1.0)
    state.on_fetch(3, offset=10, log_start=0, now=1.0)
    assert state.low_watermark(5) == 0
    del brokers.epochs[3]
    assert state.low_watermark(5) == 3
