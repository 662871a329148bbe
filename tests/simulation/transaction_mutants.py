"""Bugs planted in transactions: in coordinators, in the logs they write to, in their clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headwater.broker.coordinators.driver import CoordinatorDriver
from headwater.broker.coordinators.markers import MarkerSender
from headwater.broker.transaction_verification import TransactionVerification, Verified
from headwater.client import exactly_once
from headwater.coordination import Decision, Effect
from headwater.groups.shard import GroupShard
from headwater.model import TopicPartition
from headwater.protocol.messages.init_producer_id import InitProducerIdResponse
from headwater.storage import UNGUARDED, Log
from headwater.storage.producer_state import CompletedTransaction, ProducerStates, SentBatch
from headwater.storage.txn_index import TransactionIndex
from headwater.transactions.shard import SendMarkers, TransactionShard
from headwater.transactions.transaction import Identity, State, Transaction
from tests.simulation.cluster_mutants import CRASHES, Planted, Wanted, planted

# The coordinator


def a_late_end_is_accepted() -> Planted:
    """EndTxn of an earlier transaction ends the one that is open now."""
    original = Transaction.check_client

    def check_client(self: Transaction, asked: Identity) -> None:
        if asked.producer_id == self.client.producer_id and asked.epoch <= self.client.epoch:
            return
        original(self, asked)

    return planted(
        (Transaction, "check_client", check_client),
        (Transaction, "has_missed_the_end", lambda self, asked: False),
    )


def a_new_instance_does_not_fence() -> Planted:
    """The older instance of a producer keeps its epoch, and may go on with it."""
    return planted((Transaction, "next_client", lambda self, expected, **more: self.client))


def a_new_instance_forgets_what_is_open() -> Planted:
    """Nobody aborts what the instance before has left open."""
    original = TransactionShard._init

    def init(self: TransactionShard, request: Any, builder: Any, new_producer_id: Any) -> Any:
        before = self._transactions.get(request.transactional_id)
        if before is None or before.state is not State.ONGOING:
            return original(self, request, builder, new_producer_id)
        client = before.client.raised
        after = before.initialized(client, timeout_ms=before.timeout_ms, now_ms=builder.now_ms)
        self._write(request.transactional_id, after, builder)
        return InitProducerIdResponse(producer_id=client.producer_id, producer_epoch=client.epoch)

    return planted((TransactionShard, "_init", init))


def markers_leave_before_the_outcome_is_committed() -> Planted:
    """A coordinator that is replaced may have committed what its successor aborts."""

    def carry_out_now(self: CoordinatorDriver[Any], effects: Sequence[Effect]) -> None:
        self._carry_out(effects)

    return planted((CoordinatorDriver, "_carry_out_when_committed", carry_out_now))


def a_coordinator_answers_before_its_record_is_committed() -> Planted:
    """Its successor does not know of the partitions that were added, nor of the end."""
    return planted((CoordinatorDriver, "_is_committed", lambda self: True))


def one_marker_completes_a_transaction() -> Planted:
    original = TransactionShard.on_markers_written

    def on_markers_written(
        self: TransactionShard,
        markers: SendMarkers,
        partitions: Iterable[TopicPartition],
        *,
        now_ms: int,
    ) -> Decision:
        return original(self, markers, markers.partitions if partitions else (), now_ms=now_ms)

    return planted(
        (TransactionShard, "on_markers_written", on_markers_written),
        (MarkerSender, "_pause", lambda self, errand: None),
    )


def a_marker_that_fails_is_given_up() -> Planted:
    return planted((MarkerSender, "_pause", lambda self, errand: None))


def markers_are_not_sent_again_by_the_next_coordinator() -> Planted:
    original = TransactionShard.on_loaded

    def on_loaded(self: TransactionShard, now: float) -> Decision:
        decision = original(self, now)
        return Decision(decision.records, decision.replies, decision.notes)

    return planted((TransactionShard, "on_loaded", on_loaded))


def the_next_coordinator_forgets_open_transactions() -> Planted:
    original = CoordinatorDriver._replay

    def replay(self: CoordinatorDriver[Any], machine: Any, *arguments: Any) -> int:
        count = original(self, machine, *arguments)
        for found in getattr(machine, "_transactions", {}).values():
            if found.state is State.ONGOING:
                object.__setattr__(found, "partitions", found.partitions[:1])
        return count

    return planted((CoordinatorDriver, "_replay", replay))


# The logs


def markers_of_any_epoch_are_taken() -> Planted:
    """A marker that comes late ends a later transaction."""
    return planted((ProducerStates, "check_marker", lambda self, *arguments, **more: None))


def batches_of_any_epoch_are_taken() -> Planted:
    """A batch of an earlier transaction that comes late is part of a later one."""
    return planted(
        (ProducerStates, "check", lambda self, batch, *, sequenced: None),
        (ProducerStates, "check_verified", lambda self, *arguments: None),
    )


def leaders_do_not_tell_the_coordinator() -> Planted:
    """Nobody verifies what is written, nor adds it to the transaction."""

    def verify(
        self: TransactionVerification, producer: Any, sequences: Any, generation: Any
    ) -> Verified:
        return Verified({}, dict.fromkeys(sequences, UNGUARDED))

    return planted((TransactionVerification, "verify", verify))


def the_last_stable_offset_is_inclusive() -> Planted:
    """Readers see the first batch of an open transaction."""

    def last_stable_offset(self: Log, high_watermark: int) -> int:
        self.producers.high_watermark_at(high_watermark)
        first = self.first_unstable_offset
        return high_watermark if first is None else min(first + 1, high_watermark)

    return planted((Log, "last_stable_offset", last_stable_offset))


def a_transaction_is_stable_before_its_marker_is_replicated() -> Planted:
    def complete(self: ProducerStates, completed: CompletedTransaction) -> None:
        del self._ongoing[completed.first_offset]

    return planted((ProducerStates, "complete", complete))


def the_dedupe_window_outlives_a_transaction() -> Planted:
    """The sequences of a transaction begin again, and its records are taken for earlier ones."""

    def find_duplicate(
        self: ProducerStates, producer_id: int, epoch: int, first: int, last: int
    ) -> SentBatch | None:
        entry = self._entries.get(producer_id)
        batches = windows.get((id(self), producer_id), []) if entry is not None else []
        return next(
            (b for b in batches if (b.first_sequence, b.last_sequence) == (first, last)), None
        )

    windows: dict[tuple[int, int], list[SentBatch]] = {}
    original = ProducerStates.add

    def add(
        self: ProducerStates, producer_id: int, epoch: int, batch: SentBatch, **more: Any
    ) -> None:
        original(self, producer_id, epoch, batch, **more)
        windows.setdefault((id(self), producer_id), []).append(batch)

    return planted((ProducerStates, "find_duplicate", find_duplicate), (ProducerStates, "add", add))


def aborts_are_not_indexed() -> Planted:
    return planted((TransactionIndex, "append", lambda self, transaction: None))


def the_index_ends_with_the_first_abort() -> Planted:
    original = Log.aborted

    def aborted(self: Log, from_offset: int, to_offset: int) -> list[Any]:
        return original(self, from_offset, to_offset)[:1]

    return planted((Log, "aborted", aborted))


# Groups


def markers_pass_the_groups_by() -> Planted:
    """The log of the offsets has the marker, the shard in memory does not know of it."""

    original = CoordinatorDriver.write_marker

    def write_marker(self: CoordinatorDriver[Any], *arguments: Any, **more: Any) -> Any:
        with planted((GroupShard, "apply_marker", lambda self, producer_id, *, commits: None)):
            return original(self, *arguments, **more)

    return planted((CoordinatorDriver, "write_marker", write_marker))


# The clients


def the_consumer_does_not_go_back() -> Planted:
    """Skips the input of a transaction that was aborted."""
    return planted((exactly_once, "first_offsets", lambda records: {}))


# Those that every change has to face: they are found soon.
_QUICK = (
    a_late_end_is_accepted,
    leaders_do_not_tell_the_coordinator,
    the_last_stable_offset_is_inclusive,
    the_dedupe_window_outlives_a_transaction,
)
_ANY: tuple[str, ...] = ()
_MOVES = (*CRASHES, "isolate")
_CLIENTS = ("kill client", "pause client")

TRANSACTION_MUTANTS: dict[str, Wanted] = {
    plant.__name__.replace("_", " "): Wanted(
        plant, "transactions", faults, is_quick=plant in _QUICK
    )
    for plant, faults in (
        (a_late_end_is_accepted, _ANY),
        (a_new_instance_does_not_fence, _ANY),
        (a_new_instance_forgets_what_is_open, _ANY),
        (markers_leave_before_the_outcome_is_committed, _MOVES),
        (a_coordinator_answers_before_its_record_is_committed, _MOVES),
        (one_marker_completes_a_transaction, _MOVES),
        (a_marker_that_fails_is_given_up, _MOVES),
        (markers_are_not_sent_again_by_the_next_coordinator, _MOVES),
        (the_next_coordinator_forgets_open_transactions, _MOVES),
        (markers_of_any_epoch_are_taken, _ANY),
        (batches_of_any_epoch_are_taken, _ANY),
        (leaders_do_not_tell_the_coordinator, _ANY),
        (the_last_stable_offset_is_inclusive, _ANY),
        (a_transaction_is_stable_before_its_marker_is_replicated, _MOVES),
        (the_dedupe_window_outlives_a_transaction, _ANY),
        (aborts_are_not_indexed, _ANY),
        (the_index_ends_with_the_first_abort, _ANY),
        (markers_pass_the_groups_by, _ANY),
        (the_consumer_does_not_go_back, _CLIENTS),
    )
}
