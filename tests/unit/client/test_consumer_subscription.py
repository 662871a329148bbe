"""Positions and fetched data of a partition; without a broker."""

from __future__ import annotations

import pytest

from headwater import _core
from headwater.client.consumer.fetch_buffer import CompletedFetch, Frame, Ledger
from headwater.client.consumer.subscription import PartitionState, Phase, Slice, SubscriptionState
from headwater.client.errors import ClientError
from headwater.client.requests.list_offsets import OffsetSpec
from headwater.model import NO_NODE, TopicPartition

TP = TopicPartition("t", 0)


def at(offset: int, epoch: int = -1) -> PartitionState:
    state = PartitionState(TP)
    state.seek(offset, epoch)
    return state


def piece(state: PartitionState, ledger: Ledger, count: int = 3) -> CompletedFetch:
    """So many records from where the partition is fetched next."""
    data = _core.encode([(None, b"v", (), 1)] * count, base_offset=state.fetch_offset)
    return CompletedFetch(data, Frame(ledger, len(data)), TP, from_offset=state.fetch_offset)


def test_a_new_partition_is_not_fetched_before_it_has_a_position() -> None:
    state = PartitionState(TP)
    assert not state.is_fetchable(0.0, 1)
    assert not state.has_position
    state.seek(4)
    assert state.is_fetchable(0.0, 1)
    state.reset(OffsetSpec.EARLIEST)
    assert not state.is_fetchable(0.0, 1)
    assert not state.has_position


def test_a_partition_is_fetched_ahead_up_to_a_bound() -> None:
    ledger = Ledger()
    state = at(0)
    first = piece(state, ledger)
    state.add_fetch(first)
    assert state.fetch_offset == 3
    assert state.position == 0
    assert state.is_fetchable(0.0, len(first) + 1)
    assert not state.is_fetchable(0.0, len(first))


@pytest.mark.parametrize("why", ["paused", "failed", "later"])
def test_a_partition_that_must_wait_is_not_fetched(why: str) -> None:
    state = at(0)
    if why == "paused":
        state.is_paused = True
    elif why == "failed":
        state.fail()
    else:
        state.retry_at = 1.0
    assert not state.is_fetchable(0.5, 1)


def test_a_jump_voids_responses_to_older_requests() -> None:
    ledger = Ledger()
    state = at(0)
    state.add_fetch(piece(state, ledger))
    before = state.position_version
    state.seek(9)
    assert state.position_version != before
    assert not state.fetches
    assert ledger.held == 0
    assert (state.position, state.fetch_offset, state.consumed) == (9, 9, 9)


def test_corrupt_bytes_are_not_fetched_again_and_again() -> None:
    state = at(0)
    data = bytearray(_core.encode([(None, b"v", (), 1)]))
    data[16] = 7  # a format that nobody knows
    state.add_fetch(CompletedFetch(data, Frame(Ledger(), len(data)), TP, from_offset=0))
    assert state.is_corrupt
    assert not state.is_fetchable(0.0, 1 << 20)
    state.seek(1)
    assert state.is_fetchable(0.0, 1 << 20)


def test_a_frame_is_held_until_its_last_fetch_is_used_up() -> None:
    ledger = Ledger()
    data = _core.encode([(None, b"v", (), 1)])
    frame = Frame(ledger, 1000)
    one, other = (CompletedFetch(data, frame, TP, from_offset=0) for _ in range(2))
    assert ledger.held == 1000
    one.release()
    assert ledger.held == 1000
    other.release()
    assert ledger.held == 0


def delivered(state: PartitionState, fetch: CompletedFetch) -> Slice:
    """All records of the fetch, decoded for a loop."""
    start = state.next_offset
    records = fetch.records.take(9)
    state.on_decoded(fetch.records.next_offset, fetch.records.leader_epoch)
    return state.start_delivery(fetch, records, start=start)


def test_decoded_records_that_were_not_taken_are_read_again() -> None:
    state = at(0)
    first = piece(state, Ledger())
    state.add_fetch(first)
    delivery = delivered(state, first)
    next(delivery.iterator)
    state.take_back_delivery()
    assert (state.position, state.consumed) == (1, 0)
    assert [record.offset for record in first.records.take(9)] == [1, 2]


def test_records_of_a_fetch_that_was_released_are_fetched_again() -> None:
    state = at(0)
    first, second = piece(state, Ledger()), None
    state.add_fetch(first)
    second = piece(state, Ledger())
    state.add_fetch(second)
    next(delivered(state, first).iterator)
    state.drop_fetch()
    before = state.position_version
    state.take_back_delivery()
    assert (state.position, state.fetch_offset, list(state.fetches)) == (1, 1, [])
    assert state.position_version != before


@pytest.mark.parametrize("phase", [Phase.COMMITTED, Phase.RESET, Phase.VALIDATING])
def test_a_void_request_is_sent_again(phase: Phase) -> None:
    state = at(0)
    state.phase = phase
    state.is_busy = True
    state.evict()
    assert not state.is_busy


def test_fetched_records_are_returned_before_an_offset_out_of_range_matters() -> None:
    state = at(0)
    state.add_fetch(piece(state, Ledger()))
    state.is_out_of_range = True
    assert not state.is_fetchable(0.0, 1 << 20)
    state.drop_fetch()
    assert state.is_fetchable(0.0, 1 << 20)
    state.seek(0)
    assert not state.is_out_of_range


# New leaders (KIP-320)


def test_a_position_without_an_epoch_needs_no_check() -> None:
    state = at(5)
    assert not state.on_leader_epoch(1)
    assert not state.on_leader_epoch(2)
    assert state.phase is Phase.READING


def test_a_position_is_checked_when_the_leader_is_new() -> None:
    state = at(5, epoch=1)
    assert not state.on_leader_epoch(1)
    assert not state.on_leader_epoch(1)
    state.preferred_replica = 4
    assert state.on_leader_epoch(2)
    phases = [state.phase]
    assert state.preferred_replica == NO_NODE
    assert not state.is_fetchable(0.0, 1)
    assert state.on_validated(end_epoch=1, end_offset=5) is None
    assert [*phases, state.phase] == [Phase.VALIDATING, Phase.READING]


def test_a_committed_position_of_an_older_epoch_is_checked_at_once() -> None:
    state = at(5, epoch=1)
    assert state.on_leader_epoch(3)


@pytest.mark.parametrize(
    ("end_epoch", "end_offset", "parted"), [(1, 3, 3), (0, 9, 5), (-1, -1, -1)]
)
def test_a_truncated_log_is_detected(end_epoch: int, end_offset: int, parted: int) -> None:
    state = at(5, epoch=1)
    state.on_leader_epoch(2)
    assert state.on_validated(end_epoch, end_offset) == parted


def test_what_was_fetched_from_the_old_leader_is_dropped() -> None:
    state = at(0, epoch=1)
    state.on_leader_epoch(1)
    state.add_fetch(piece(state, Ledger()))
    state.on_leader_epoch(2)
    assert not state.fetches
    assert state.fetch_offset == state.position == 0


# Subscriptions


def test_topics_and_partitions_exclude_each_other() -> None:
    wanted = SubscriptionState()
    wanted.subscribe(topics=["t"])
    with pytest.raises(ClientError, match="unsubscribe"):
        wanted.assign([TP])
    wanted.unsubscribe()
    wanted.assign([TP])
    with pytest.raises(ClientError, match="unsubscribe"):
        wanted.subscribe(topics=["t"])
    with pytest.raises(ClientError, match="give either names of topics or a pattern"):
        SubscriptionState().subscribe()


def test_an_assignment_keeps_the_positions_of_partitions_that_stay() -> None:
    wanted = SubscriptionState()
    wanted.assign([TP, TopicPartition("t", 1)])
    wanted.partitions[TP].seek(7)
    wanted.assign([TP, TopicPartition("t", 2)])
    assert wanted.partitions[TP].position == 7
    assert sorted(wanted.partitions) == [TP, TopicPartition("t", 2)]
    with pytest.raises(ClientError, match=r"t-1 is not assigned.*t-0, t-2"):
        wanted.state(TopicPartition("t", 1))
    assert wanted.partitions[TP].reset_to == OffsetSpec.LATEST
