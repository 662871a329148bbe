"""The checker of transactions sees each anomaly that is planted, and nothing in a good history."""

from __future__ import annotations

import pytest

from headwater.testing.sim.checker import Outcome
from headwater.testing.sim.transaction_checker import Kind, TransactionChecker, Txn

GROUP = "pipeline"


class History:
    """Two partitions, written and read step by step."""

    def __init__(self) -> None:
        self.checker = TransactionChecker()
        self.found: list[Kind] = []

    def txn(self, name: str, *values: str, group: str = "") -> Txn:
        """A transaction; a value `a0` goes to partition a."""
        txn = self.checker.begin(name, group)
        for value in values:
            self.checker.write(txn, value[0], value)
        return txn

    def end(self, txn: Txn, outcome: Outcome) -> None:
        if outcome is not Outcome.FAIL:
            self.checker.ask(txn)
        self.found += [anomaly.kind for anomaly in self.checker.end(txn, outcome)]

    def poll(self, reader: str, partition: str, *records: tuple[int, str]) -> None:
        self.found += [each.kind for each in self.checker.poll(reader, partition, records)]

    def finish(self, *groups: str, **last: dict[int, str]) -> list[Kind]:
        found = self.checker.finish(last, {group: ["a"] for group in groups})
        return self.found + [anomaly.kind for anomaly in found]


@pytest.fixture
def history() -> History:
    return History()


def test_a_good_history_has_no_anomaly(history: History) -> None:
    first = history.txn("t1", "a0", "b0")
    history.end(first, Outcome.OK)
    aborted = history.txn("t2", "a1", "b1")
    history.end(aborted, Outcome.FAIL)
    unknown = history.txn("t3", "a2", "b2")
    history.end(unknown, Outcome.UNKNOWN)
    moved = history.txn("x1", "b3", group=GROUP)
    history.poll("x1", "a", (0, "a0"), (4, "a2"))
    history.checker.process(moved, "a", 0, "a0")
    history.checker.process(moved, "a", 4, "a2")
    history.end(moved, Outcome.OK)
    assert not history.finish(GROUP, a={0: "a0", 4: "a2"}, b={0: "b0", 4: "b2", 6: "b3"})


def test_a_value_of_an_aborted_transaction(history: History) -> None:
    txn = history.txn("t1", "a0")
    history.end(txn, Outcome.FAIL)
    history.poll("r", "a", (0, "a0"))
    assert history.found == [Kind.ABORTED_READ]


def test_a_value_that_is_read_and_then_aborted(history: History) -> None:
    txn = history.txn("t1", "a0")
    history.checker.ask(txn)
    history.poll("r", "a", (0, "a0"))
    history.found += [each.kind for each in history.checker.end(txn, Outcome.FAIL)]
    assert history.found == [Kind.ABORTED_READ]


def test_a_value_of_a_client_that_died_before_its_commit(history: History) -> None:
    history.txn("t1", "a0")
    assert history.finish(a={0: "a0"}) == [Kind.ABORTED_READ]


def test_a_value_before_its_commit_is_asked_for(history: History) -> None:
    history.txn("t1", "a0")
    history.poll("r", "a", (0, "a0"))
    assert history.found == [Kind.EARLY_READ]


def test_a_transaction_that_reads_its_own_value(history: History) -> None:
    history.txn("x1", "a0", group=GROUP)
    history.poll("x1", "a", (0, "a0"))
    assert history.found == [Kind.EARLY_READ]


def test_half_of_a_transaction(history: History) -> None:
    txn = history.txn("t1", "a0", "b0")
    history.end(txn, Outcome.UNKNOWN)
    assert history.finish(a={0: "a0"}, b={}) == [Kind.TORN]


def test_a_lost_value(history: History) -> None:
    txn = history.txn("t1", "a0", "b0")
    history.end(txn, Outcome.OK)
    assert history.finish(a={0: "a0"}, b={}) == [Kind.LOST]


def test_a_duplicate(history: History) -> None:
    txn = history.txn("t1", "a0")
    history.end(txn, Outcome.OK)
    history.poll("r", "a", (0, "a0"), (2, "a0"))
    assert history.found == [Kind.DUPLICATED]


def test_two_values_at_one_offset(history: History) -> None:
    for value in ("a0", "a1"):
        history.end(history.txn(value, value), Outcome.OK)
    history.poll("r", "a", (0, "a0"))
    assert not history.checker.acknowledged("a", 0, "a0")
    found = history.checker.acknowledged("a", 0, "a1")
    assert [each.kind for each in found] == [Kind.INCONSISTENT]


def test_a_value_from_nowhere(history: History) -> None:
    history.poll("r", "a", (0, "a9"))
    assert history.found == [Kind.PHANTOM]


def test_a_reader_that_goes_back(history: History) -> None:
    history.end(history.txn("t1", "a0", "a1"), Outcome.OK)
    history.poll("r", "a", (1, "a1"), (0, "a0"))
    assert history.found == [Kind.NONMONOTONIC]


def test_a_reader_that_passes_over_an_open_transaction(history: History) -> None:
    for value in ("a0", "a1", "a2"):
        history.end(history.txn(value, value), Outcome.OK)
    history.poll("r", "a", (0, "a0"), (4, "a2"))
    assert history.finish(a={0: "a0", 2: "a1", 4: "a2"}) == [Kind.SKIPPED]


def test_a_new_reader_may_begin_anywhere(history: History) -> None:
    history.end(history.txn("t1", "a0", "a1"), Outcome.OK)
    history.poll("r", "a", (0, "a0"), (1, "a1"))
    history.checker.assign("r", "a")
    history.poll("r", "a", (0, "a0"))
    assert not history.finish(a={0: "a0", 1: "a1"})


def test_transactions_that_read_each_other(history: History) -> None:
    one, other = history.txn("x1", "a0"), history.txn("x2", "b0")
    history.checker.process(one, "b", 0, "b0")
    history.checker.process(other, "a", 0, "a0")
    history.end(one, Outcome.OK)
    history.end(other, Outcome.OK)
    assert history.finish(a={0: "a0"}, b={0: "b0"}) == [Kind.CYCLE]


def test_a_chain_of_reads_is_no_cycle(history: History) -> None:
    one, other = history.txn("x1", "a0"), history.txn("x2", "b0")
    history.checker.process(other, "a", 0, "a0")
    history.end(one, Outcome.OK)
    history.end(other, Outcome.OK)
    assert not history.finish(a={0: "a0"}, b={0: "b0"})


def test_a_record_that_is_processed_twice(history: History) -> None:
    history.end(history.txn("t1", "a0"), Outcome.OK)
    for name, value in (("x1", "b0"), ("x2", "b1")):
        txn = history.txn(name, value, group=GROUP)
        history.checker.process(txn, "a", 0, "a0")
        history.end(txn, Outcome.OK)
    assert history.finish(GROUP, a={0: "a0"}, b={0: "b0", 2: "b1"}) == [Kind.PROCESSED_TWICE]


def test_a_record_that_is_not_processed(history: History) -> None:
    history.end(history.txn("t1", "a0"), Outcome.OK)
    aborted = history.txn("x1", "b0", group=GROUP)
    history.checker.process(aborted, "a", 0, "a0")
    history.end(aborted, Outcome.FAIL)
    assert history.finish(GROUP, a={0: "a0"}, b={}) == [Kind.UNPROCESSED]


def test_a_partition_that_may_lose_records_is_excused(history: History) -> None:
    history.end(history.txn("t1", "a0", "b0"), Outcome.OK)
    history.checker.excused.add("b")
    assert not history.finish(a={0: "a0"}, b={})
