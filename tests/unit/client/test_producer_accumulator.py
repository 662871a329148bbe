"""Batches that are due or may be sent, their order, and the time of the next look."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any

from headwater.client.producer.accumulator import Accumulator, Batch, PartitionQueue
from headwater.client.producer.sequences import Identity


def outgoing(count: int = 10) -> Any:
    return SimpleNamespace(count=count)


def accumulator(
    *, linger: float = 0.005, sends_awaited_at_once: bool = True, idempotent: bool = False
) -> Accumulator:
    identity = Identity(7, 0) if idempotent else None
    return Accumulator(
        linger=linger,
        delivery_timeout=120.0,
        identity=identity,
        sends_awaited_at_once=sends_awaited_at_once,
    )


def queued(machine: Accumulator, queue: PartitionQueue, now: float = 0.0, count: int = 10) -> Batch:
    machine.opened(queue, now)
    return machine.closed(queue, outgoing(count), now)


def sent(machine: Accumulator, queue: PartitionQueue, batch: Batch) -> None:
    assert machine.sendable(queue, 0.0) is batch
    if machine.identity is not None:
        queue.sequence.assign(batch, machine.identity)
    machine.sent(queue, batch)


def begun(machine: Accumulator, queue: PartitionQueue) -> None:
    """A first batch was acknowledged."""
    first = queued(machine, queue)
    sent(machine, queue, first)
    machine.landed(queue, first)
    queue.sequence.acknowledged(first)


def test_an_open_batch_lingers() -> None:
    machine = accumulator()
    queue = machine.queue("t", 0)
    machine.opened(queue, 1.0)
    assert machine.due(1.003) == []
    assert machine.next_deadline(1.0) == 1.005
    assert machine.due(1.005) == [queue]


def test_batches_that_are_nearly_due_go_along() -> None:
    machine = accumulator()
    first, second, third = (machine.queue("t", index) for index in range(3))
    machine.opened(first, 1.0)
    machine.opened(second, 1.0005)
    machine.opened(third, 1.004)
    assert machine.due(1.005) == [first, second]


def test_an_awaited_record_goes_at_once_if_nothing_is_before_it() -> None:
    machine = accumulator()
    queue = machine.queue("t", 0)
    machine.opened(queue, 1.0)
    assert machine.urge(queue)
    assert machine.due(1.0) == [queue]


def test_awaited_records_gather_while_a_batch_is_on_its_way() -> None:
    machine = accumulator()
    queue = machine.queue("t", 0)
    before = queued(machine, queue)
    sent(machine, queue, before)
    machine.opened(queue, 1.0)
    assert not machine.urge(queue)
    assert machine.due(1.0) == []
    machine.landed(queue, before)
    assert machine.due(1.0) == [queue]


def test_a_linger_that_was_asked_for_is_kept() -> None:
    machine = accumulator(sends_awaited_at_once=False)
    queue = machine.queue("t", 0)
    machine.opened(queue, 1.0)
    assert not machine.urge(queue)
    assert machine.due(1.0) == []


def test_a_batch_that_failed_goes_back_before_the_others() -> None:
    machine = accumulator()
    queue = machine.queue("t", 0)
    first, second, third = (queued(machine, queue) for _ in range(3))
    sent(machine, queue, first)
    sent(machine, queue, second)
    machine.landed(queue, second)
    machine.requeue(queue, second, 2.0)
    machine.landed(queue, first)
    machine.requeue(queue, first, 3.0)
    assert queue.queued == [first, second, third]
    assert machine.sendable(queue, 2.5) is None  # nobody passes the first
    assert machine.next_deadline(2.5) == 3.0
    assert machine.sendable(queue, 3.0) is first


def test_a_partition_that_was_served_goes_to_the_end_of_the_line() -> None:
    machine = accumulator()
    one, other = machine.queue("t", 0), machine.queue("t", 1)
    first = queued(machine, one)
    queued(machine, one)
    queued(machine, other)
    sent(machine, one, first)
    assert list(machine.waiting.values()) == [other, one]


def test_a_batch_expires_whether_it_waits_or_is_on_the_wire() -> None:
    machine = accumulator()
    queue = machine.queue("t", 0)
    first, second = queued(machine, queue, 1.0), queued(machine, queue, 2.0)
    sent(machine, queue, first)
    assert machine.expired(120.9) == []
    assert machine.next_deadline(100.0) == 121.0
    assert machine.expired(121.0) == [(queue, first)]
    first.settled = True
    assert machine.expired(122.0) == [(queue, second)]


def test_nothing_to_do_has_no_deadline() -> None:
    machine = accumulator()
    assert machine.next_deadline(0.0) == inf
    assert machine.is_still


def test_the_parts_of_a_split_batch_stand_in_its_place() -> None:
    machine = accumulator(idempotent=True)
    queue = machine.queue("t", 0)
    first, second = queued(machine, queue), queued(machine, queue)
    sent(machine, queue, first)
    machine.landed(queue, first)
    parts = machine.split(queue, first, [outgoing(4), outgoing(6)])
    assert queue.queued == [*parts, second]
    (smaller, _) = parts
    sent_again = machine.sendable(queue, 0.0)
    assert sent_again is smaller
    machine.sent(queue, smaller)
    machine.landed(queue, smaller)
    pieces = machine.split(queue, smaller, [outgoing(2), outgoing(2)])
    assert queue.queued == [*pieces, parts[1], second]
    assert [each.base_sequence for each in queue.queued[:3]] == [0, 2, 4]


def test_one_bump_serves_all_partitions_that_need_it() -> None:
    machine = accumulator(idempotent=True)
    both = [machine.queue("t", index) for index in range(2)]
    for queue in both:
        begun(machine, queue)
        refused, kept = queued(machine, queue), queued(machine, queue)
        sent(machine, queue, refused)
        sent(machine, queue, kept)
        machine.landed(queue, refused)
        queue.sequence.refused(refused)
        machine.note_gap(queue)
        assert machine.restart() == []  # the other one is on the wire
        machine.landed(queue, kept)
        machine.requeue(queue, kept, 0.0)
        machine.note_gap(queue)
        machine.restarting.pop(queue.tp)
    for queue in both:
        machine.note_gap(queue)
    changed = machine.restart()
    assert [each.tp.partition for each in changed] == [0, 1]
    assert machine.identity == Identity(7, 1)
    assert [(each.epoch, each.base_sequence) for each in changed] == [(1, 0), (1, 0)]
    assert not machine.restarting


def test_a_new_id_serves_those_who_ran_out_of_epochs() -> None:
    machine = accumulator(idempotent=True)
    assert machine.identity is not None
    queue = machine.queue("t", 0)
    begun(machine, queue)
    refused, kept = queued(machine, queue), queued(machine, queue)
    sent(machine, queue, refused)
    sent(machine, queue, kept)
    for each in (refused, kept):
        machine.landed(queue, each)
    queue.sequence.refused(refused)
    machine.requeue(queue, kept, 0.0)
    machine.note_gap(queue)
    machine.identity.granted(7, 2**15 - 1)
    assert machine.restart() == []
    assert not machine.identity.is_known
    assert machine.granted(8, 0) == [kept]
    assert (kept.producer_id, kept.epoch, kept.base_sequence) == (8, 0, 0)


def test_a_batch_that_is_sent_single_is_on_the_wire_and_may_come_back() -> None:
    machine = accumulator(idempotent=True)
    queue = machine.queue("t", 0)
    assert machine.identity is not None
    assert queue.sequence.may_begin(machine.identity)
    batch = machine.sent_single(queue, outgoing(1), 1.0)
    queue.sequence.assign(batch, machine.identity)
    assert not queue.sequence.may_begin(machine.identity)
    assert (batch.is_in_flight, batch.attempts, batch.deadline) == (True, 1, 121.0)
    assert machine.next_deadline(1.0) == 121.0
    machine.landed(queue, batch)
    machine.requeue(queue, batch, 0.0)
    assert machine.sendable(queue, 2.0) is batch
