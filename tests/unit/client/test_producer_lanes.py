"""Lanes: which batches are due, which may be sent, what order they keep, when to look again."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from headwater.client.producer.batches import Batch
from headwater.client.producer.lanes import Lane, Lanes
from headwater.client.producer.sequences import Identity


def outgoing(count: int = 10) -> Any:
    return SimpleNamespace(count=count)


def lanes(*, linger: float = 0.005, hurries: bool = True, idempotent: bool = False) -> Lanes:
    identity = Identity(7, 0) if idempotent else None
    return Lanes(linger=linger, delivery_timeout=120.0, identity=identity, hurries=hurries)


def queued(all_lanes: Lanes, lane: Lane, now: float = 0.0, count: int = 10) -> Batch:
    all_lanes.opened(lane, now)
    return all_lanes.closed(lane, outgoing(count), now)


def sent(all_lanes: Lanes, lane: Lane, batch: Batch) -> None:
    assert all_lanes.sendable(lane, 0.0) is batch
    if all_lanes.identity is not None:
        lane.sequence.assign(batch, all_lanes.identity)
    all_lanes.sent(lane, batch)


def begun(all_lanes: Lanes, lane: Lane) -> None:
    """A first batch was acknowledged."""
    first = queued(all_lanes, lane)
    sent(all_lanes, lane, first)
    all_lanes.back(lane, first)
    lane.sequence.acknowledged(first)


def test_an_open_batch_lingers() -> None:
    machine = lanes()
    lane = machine.lane("t", 0)
    machine.opened(lane, 1.0)
    assert machine.due(1.003) == []
    assert machine.next_deadline(1.0) == 1.005
    assert machine.due(1.005) == [lane]


def test_batches_that_are_nearly_due_go_along() -> None:
    machine = lanes()
    first, second, third = (machine.lane("t", index) for index in range(3))
    machine.opened(first, 1.0)
    machine.opened(second, 1.0005)
    machine.opened(third, 1.004)
    assert machine.due(1.005) == [first, second]


def test_an_awaited_record_goes_at_once_if_nothing_is_before_it() -> None:
    machine = lanes()
    lane = machine.lane("t", 0)
    machine.opened(lane, 1.0)
    assert machine.urge(lane)
    assert machine.due(1.0) == [lane]


def test_awaited_records_gather_while_a_batch_is_on_its_way() -> None:
    machine = lanes()
    lane = machine.lane("t", 0)
    before = queued(machine, lane)
    sent(machine, lane, before)
    machine.opened(lane, 1.0)
    assert not machine.urge(lane)
    assert machine.due(1.0) == []
    machine.back(lane, before)
    assert machine.due(1.0) == [lane]


def test_a_linger_that_was_asked_for_is_kept() -> None:
    machine = lanes(hurries=False)
    lane = machine.lane("t", 0)
    machine.opened(lane, 1.0)
    assert not machine.urge(lane)
    assert machine.due(1.0) == []


def test_a_batch_that_failed_goes_back_before_the_others() -> None:
    machine = lanes()
    lane = machine.lane("t", 0)
    first, second, third = (queued(machine, lane) for _ in range(3))
    sent(machine, lane, first)
    sent(machine, lane, second)
    machine.back(lane, second)
    machine.requeue(lane, second, 2.0)
    machine.back(lane, first)
    machine.requeue(lane, first, 3.0)
    assert lane.queue == [first, second, third]
    assert machine.sendable(lane, 2.5) is None  # nobody passes the first
    assert machine.next_deadline(2.5) == 3.0
    assert machine.sendable(lane, 3.0) is first


def test_a_partition_that_was_served_goes_to_the_end_of_the_line() -> None:
    machine = lanes()
    one, other = machine.lane("t", 0), machine.lane("t", 1)
    first = queued(machine, one)
    queued(machine, one)
    queued(machine, other)
    sent(machine, one, first)
    assert list(machine.waiting.values()) == [other, one]


def test_a_batch_expires_whether_it_waits_or_is_on_the_wire() -> None:
    machine = lanes()
    lane = machine.lane("t", 0)
    first, second = queued(machine, lane, 1.0), queued(machine, lane, 2.0)
    sent(machine, lane, first)
    assert machine.expired(120.9) == []
    assert machine.next_deadline(100.0) == 121.0
    assert machine.expired(121.0) == [(lane, first)]
    first.settled = True
    assert machine.expired(122.0) == [(lane, second)]


def test_nothing_to_do_has_no_deadline() -> None:
    machine = lanes()
    assert machine.next_deadline(0.0) == inf
    assert machine.is_still


def test_the_parts_of_a_split_batch_stand_in_its_place() -> None:
    machine = lanes(idempotent=True)
    lane = machine.lane("t", 0)
    first, second = queued(machine, lane), queued(machine, lane)
    sent(machine, lane, first)
    machine.back(lane, first)
    parts = machine.split(lane, first, [outgoing(4), outgoing(6)])
    assert lane.queue == [*parts, second]
    (smaller, _) = parts
    sent_again = machine.sendable(lane, 0.0)
    assert sent_again is smaller
    machine.sent(lane, smaller)
    machine.back(lane, smaller)
    pieces = machine.split(lane, smaller, [outgoing(2), outgoing(2)])
    assert lane.queue == [*pieces, parts[1], second]
    assert [each.base_sequence for each in lane.queue[:3]] == [0, 2, 4]


def test_one_bump_serves_all_partitions_that_need_it() -> None:
    machine = lanes(idempotent=True)
    both = [machine.lane("t", index) for index in range(2)]
    for lane in both:
        begun(machine, lane)
        refused, kept = queued(machine, lane), queued(machine, lane)
        sent(machine, lane, refused)
        sent(machine, lane, kept)
        machine.back(lane, refused)
        lane.sequence.refused(refused)
        machine.note_gap(lane)
        assert machine.restart() == []  # the other one is on the wire
        machine.back(lane, kept)
        machine.requeue(lane, kept, 0.0)
        machine.note_gap(lane)
        machine.restarting.pop(lane.tp)
    for lane in both:
        machine.note_gap(lane)
    changed = machine.restart()
    assert [each.tp.partition for each in changed] == [0, 1]
    assert machine.identity == Identity(7, 1)
    assert [(each.epoch, each.base_sequence) for each in changed] == [(1, 0), (1, 0)]
    assert not machine.restarting


def test_a_new_id_serves_those_who_ran_out_of_epochs() -> None:
    machine = lanes(idempotent=True)
    assert machine.identity is not None
    lane = machine.lane("t", 0)
    begun(machine, lane)
    refused, kept = queued(machine, lane), queued(machine, lane)
    sent(machine, lane, refused)
    sent(machine, lane, kept)
    for each in (refused, kept):
        machine.back(lane, each)
    lane.sequence.refused(refused)
    machine.requeue(lane, kept, 0.0)
    machine.note_gap(lane)
    machine.identity.granted(7, 2**15 - 1)
    assert machine.restart() == []
    assert not machine.identity.is_known
    assert machine.granted(8, 0) == [kept]
    assert (kept.producer_id, kept.epoch, kept.base_sequence) == (8, 0, 0)


def test_a_batch_that_is_sent_alone_is_on_the_wire_and_may_come_back() -> None:
    machine = lanes(idempotent=True)
    lane = machine.lane("t", 0)
    assert machine.identity is not None
    assert lane.sequence.may_begin(machine.identity)
    batch = machine.sent_alone(lane, outgoing(1), 1.0)
    lane.sequence.assign(batch, machine.identity)
    assert not lane.sequence.may_begin(machine.identity)
    assert (batch.on_wire, batch.attempts, batch.deadline) == (True, 1, 121.0)
    assert machine.next_deadline(1.0) == 121.0
    machine.back(lane, batch)
    machine.requeue(lane, batch, 0.0)
    assert machine.sendable(lane, 2.0) is batch
