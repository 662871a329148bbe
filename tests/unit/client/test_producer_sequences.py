"""Sequences: what a batch is numbered, and when the producer takes another epoch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headwater.client.producer.accumulator import Batch
from headwater.client.producer.sequences import (
    EPOCH_MAX,
    SEQUENCE_MAX,
    Identity,
    PartitionSequence,
    sequence_after,
)
from headwater.model import NO_SEQUENCE, TopicPartition

TP = TopicPartition("t", 0)


def batch(number: int, count: int = 10) -> Batch:
    outgoing: Any = SimpleNamespace(count=count)
    return Batch(outgoing, TP, 0.0, 120.0, number)


def started(*batches: Batch) -> tuple[PartitionSequence, Identity]:
    """A partition that has sent these batches, after some others."""
    sequence, identity = PartitionSequence(7, 0, has_begun=True), Identity(7, 0)
    for each in batches:
        assert sequence.may_send(each, identity)
        sequence.assign(each, identity)
        each.is_in_flight = True
    return sequence, identity


def test_batches_are_numbered_by_their_records() -> None:
    first, second = batch(0), batch(1, count=5)
    sequence, _ = started(first, second)
    assert [first.base_sequence, second.base_sequence, sequence.next] == [0, 10, 15]
    assert (first.producer_id, first.epoch) == (7, 0)


def test_sequences_start_anew_behind_the_largest_one() -> None:
    assert sequence_after(SEQUENCE_MAX, 1) == 0
    assert sequence_after(SEQUENCE_MAX - 1, 3) == 1


def test_nothing_is_sent_before_there_is_an_id() -> None:
    assert not PartitionSequence().may_send(batch(0), Identity())


def test_the_first_batch_of_an_epoch_goes_alone() -> None:
    first, second = batch(0), batch(1)
    sequence, identity = PartitionSequence(), Identity(7, 0)
    sequence.assign(first, identity)
    assert not sequence.may_send(second, identity)
    sequence.acknowledged(first)
    sequence.assign(second, identity)
    assert sequence.may_send(batch(2), identity)


def test_a_retry_waits_for_those_before_it() -> None:
    first, second = batch(0), batch(1)
    sequence, identity = started(first, second)
    assert not sequence.may_send(second, identity)
    sequence.acknowledged(first)
    assert sequence.may_send(second, identity)


def test_a_gap_behind_a_batch_that_is_sent_again_needs_no_epoch() -> None:
    first, second = batch(0), batch(1)
    sequence, _ = started(first, second)
    sequence.out_of_order(second)  # since the first one failed, and comes again
    assert not sequence.needs_epoch


def test_a_broker_that_has_forgotten_us_makes_a_new_epoch() -> None:
    first, second = batch(0), batch(1)
    sequence, identity = started(first, second)
    sequence.acknowledged(first)
    sequence.out_of_order(second)
    assert sequence.needs_epoch
    second.is_in_flight = False
    assert sequence.may_restart
    assert identity.bump()
    assert sequence.restart(identity) == [second]
    assert (second.epoch, second.base_sequence, sequence.next) == (1, 0, 10)


def test_sequences_are_not_rewritten_while_one_is_on_the_wire() -> None:
    first, second = batch(0), batch(1)
    sequence, identity = started(first, second)
    first.is_in_flight = False
    sequence.refused(first)
    assert sequence.needs_epoch
    assert not sequence.may_restart  # the second may yet be written under its old sequence
    assert not sequence.may_send(batch(2), identity)
    second.is_in_flight = False
    assert sequence.may_restart


def test_what_stands_before_a_gap_is_settled_under_its_old_sequence() -> None:
    undecided, refused, behind = batch(0), batch(1), batch(2)
    sequence, identity = started(undecided, refused, behind)
    for each in (undecided, refused, behind):
        each.is_in_flight = False
    sequence.refused(refused)
    assert not sequence.may_restart  # the first one may have been written
    assert sequence.may_send(undecided, identity)
    assert not sequence.may_send(behind, identity)
    sequence.acknowledged(undecided)
    assert sequence.may_restart


def test_a_batch_that_was_given_up_holds_new_ones_until_the_others_are_settled() -> None:
    first, second = batch(0), batch(1)
    sequence, identity = started(first, second)
    sequence.given_up(first)
    assert not sequence.may_send(batch(2), identity)
    assert sequence.may_send(second, identity)
    sequence.acknowledged(second)  # the broker took it, so it has the first one
    assert not sequence.needs_epoch
    assert sequence.may_send(batch(2), identity)


def test_a_batch_that_was_given_up_and_not_written_makes_a_new_epoch() -> None:
    first, second = batch(0), batch(1)
    sequence, _ = started(first, second)
    sequence.given_up(first)
    sequence.out_of_order(second)
    assert sequence.needs_epoch


def test_the_last_batch_given_up_leaves_a_gap() -> None:
    only = batch(0)
    sequence, _ = started(only)
    sequence.given_up(only)
    assert sequence.needs_epoch


def test_an_answer_that_comes_too_late_still_says_that_there_is_no_gap() -> None:
    first, second = batch(0), batch(1)
    sequence, _ = started(first, second)
    sequence.given_up(first)
    sequence.acknowledged(first)
    sequence.given_up(second)
    sequence.acknowledged(second)
    assert sequence.expected == sequence.next


def test_a_late_refusal_of_a_batch_that_was_given_up_changes_nothing() -> None:
    first, second = batch(0), batch(1)
    sequence, identity = started(first)
    sequence.given_up(first)
    assert identity.bump()
    sequence.restart(identity)
    sequence.assign(second, identity)
    sequence.refused(first)
    sequence.out_of_order(first)
    assert not sequence.needs_epoch  # the second may have been written under this epoch


def test_batches_of_the_old_epoch_come_first() -> None:
    first = batch(0)
    sequence, identity = started(first)
    assert identity.bump()  # another partition needed it
    assert not sequence.may_send(batch(1), identity)
    sequence.acknowledged(first)
    later = batch(1)
    assert sequence.may_send(later, identity)
    sequence.assign(later, identity)
    assert (later.epoch, later.base_sequence) == (1, 0)


def test_parts_have_the_sequences_of_the_whole() -> None:
    first, second = batch(0), batch(1)
    sequence, _ = started(first, second)
    parts = [batch(0, count=4), batch(0, count=6)]
    parts[1].number = 0.5
    sequence.split(first, parts)
    assert [each.base_sequence for each in parts] == [0, 4]
    assert sequence.sent == [*parts, second]


def test_epochs_end_and_then_a_new_id_is_needed() -> None:
    identity = Identity(producer_id=7, epoch=EPOCH_MAX)
    assert not identity.bump()
    assert not identity.is_known


def test_without_idempotence_nothing_is_numbered() -> None:
    lone = batch(0)
    sequence = PartitionSequence()
    sequence.acknowledged(lone)
    sequence.refused(lone)
    sequence.given_up(lone)
    assert lone.base_sequence == NO_SEQUENCE
    assert not sequence.needs_epoch
