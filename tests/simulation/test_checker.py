"""The checker sees each kind of anomaly, and none where there is none."""

from __future__ import annotations

from itertools import count

import pytest

from headwater.testing.sim.checker import Action, Anomaly, Checker, Kind, Op, Outcome

TP = "t-0"


class Story:
    """Writes a history operation by operation."""

    def __init__(self) -> None:
        self.checker = Checker()
        self.found: list[Anomaly] = []
        self.ops: list[Op] = []
        self._numbers = count(1)
        self._time = 0.0

    def op(
        self,
        process: str,
        action: Action,
        outcome: Outcome = Outcome.OK,
        *,
        number: int | None = None,
        value: str = "",
        offset: int = -1,
        acks: int = -1,
        idempotent: bool = True,
        group: str = "",
        records: tuple[tuple[int, str], ...] = (),
    ) -> int:
        self._time += 1.0
        number = number or next(self._numbers)
        taken = Op(
            self._time,
            process,
            number,
            outcome,
            action,
            TP,
            value,
            offset,
            acks,
            idempotent,
            group,
            records,
        )
        self.ops.append(taken)
        self.found += self.checker.take(taken)
        return number

    def send(
        self,
        value: str,
        offset: int,
        *,
        process: str = "p",
        acks: int = -1,
        idempotent: bool = True,
        outcome: Outcome = Outcome.OK,
    ) -> None:
        number = self.invoke(value, process=process, acks=acks, idempotent=idempotent)
        self.op(
            process,
            Action.SEND,
            outcome,
            number=number,
            value=value,
            offset=offset,
            acks=acks,
            idempotent=idempotent,
        )

    def invoke(
        self, value: str, *, process: str = "p", acks: int = -1, idempotent: bool = True
    ) -> int:
        return self.op(
            process,
            Action.SEND,
            Outcome.INVOKE,
            value=value,
            acks=acks,
            idempotent=idempotent,
        )

    def poll(self, *records: tuple[int, str], process: str = "c") -> None:
        self.op(process, Action.POLL, records=records)

    def commit(
        self, offset: int, *, process: str = "c", outcome: Outcome | None = Outcome.OK
    ) -> None:
        number = self.op(process, Action.COMMIT, Outcome.INVOKE, offset=offset, group="g")
        if outcome is not None:
            self.op(process, Action.COMMIT, outcome, number=number, offset=offset, group="g")

    def assign(self, process: str = "c", group: str = "g") -> None:
        self.op(process, Action.ASSIGN, group=group)

    def end(self, offset: int) -> None:
        number = self.op("a", Action.LIST_END, Outcome.INVOKE)
        self.op("a", Action.LIST_END, number=number, offset=offset)

    def leads(self, node: str, epoch: int) -> None:
        self.op("cluster", Action.LEADER, value=node, offset=epoch)

    def deposed(self, node: str, epoch: int) -> None:
        self.op("cluster", Action.DEPOSED, value=node, offset=epoch)

    def kinds(self, group: str = "") -> list[Kind]:
        groups = {group: [TP]} if group else {}
        return [found.kind for found in [*self.found, *self.checker.finish(groups)]]


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_history_without_anomalies(story: Story) -> None:
    story.send("a", 0)
    story.send("b", 1, outcome=Outcome.UNKNOWN)
    story.send("c", 2, acks=1)
    story.send("d", -1, outcome=Outcome.FAIL)
    story.poll((0, "a"), (1, "b"))
    story.poll((2, "c"))
    story.end(3)
    assert story.kinds() == []


def test_a_value_at_two_offsets_is_duplicated(story: Story) -> None:
    story.send("a", 0)
    story.poll((0, "a"), (1, "a"))
    assert story.kinds() == [Kind.DUPLICATED]


def test_a_producer_without_sequences_may_write_twice(story: Story) -> None:
    story.send("a", 1, idempotent=False)
    story.poll((0, "a"), (1, "a"))
    assert story.kinds() == []


def test_two_values_at_one_offset_are_inconsistent(story: Story) -> None:
    story.send("a", 0)
    story.send("b", 1, process="q", outcome=Outcome.UNKNOWN)
    story.poll((0, "b"))
    assert Kind.INCONSISTENT in story.kinds()


def test_what_was_acknowledged_and_passed_over_is_lost(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset, process=value)
    story.poll((0, "a"), (2, "c"))
    assert Kind.LOST in story.kinds()


def test_what_was_read_and_is_passed_over_is_lost(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset, process=value, outcome=Outcome.UNKNOWN)
    story.poll((0, "a"), (1, "b"), (2, "c"))
    story.poll((0, "a"), (2, "c"), process="later")
    assert story.kinds() == [Kind.LOST]


def test_what_was_acknowledged_and_never_read_is_unseen(story: Story) -> None:
    story.send("a", 0)
    story.send("b", 1)
    story.poll((0, "a"))
    assert story.kinds() == [Kind.UNSEEN]


def test_a_gap_between_two_reads_is_skipped(story: Story) -> None:
    story.send("a", 0)
    story.send("b", 2, outcome=Outcome.UNKNOWN)
    story.poll((0, "a"))
    story.poll((2, "b"))
    assert story.kinds() == [Kind.SKIPPED]


def test_a_gap_is_allowed_where_records_may_go(story: Story) -> None:
    story.checker.allow_gaps(TP)
    story.send("a", 0)
    story.send("b", 2)
    story.poll((0, "a"), (2, "b"))
    assert story.kinds() == []


def test_a_reader_that_goes_back_is_not_monotonic(story: Story) -> None:
    story.send("a", 0)
    story.poll((0, "a"))
    story.poll((0, "a"))
    assert story.kinds() == [Kind.NONMONOTONIC]


def test_records_out_of_the_order_of_their_sends_are_not_monotonic(story: Story) -> None:
    story.send("a", 1)
    story.send("b", 0)
    story.poll((0, "b"), (1, "a"))
    assert Kind.NONMONOTONIC in story.kinds()


def test_an_end_that_goes_back_is_not_monotonic(story: Story) -> None:
    story.send("a", 0)
    story.poll((0, "a"))
    story.end(1)
    story.end(0)
    assert story.kinds() == [Kind.NONMONOTONIC]


def test_a_leader_that_has_not_heard_of_its_successor_tells_an_old_end(story: Story) -> None:
    story.leads("node 1", 0)
    story.send("a", 0)
    story.leads("node 2", 1)
    story.send("b", 1)
    story.end(1)
    story.poll((0, "a"), (1, "b"))
    assert story.kinds() == []


def test_a_deposed_leader_tells_no_end_from_before_its_successor(story: Story) -> None:
    story.leads("node 1", 0)
    story.send("a", 0)
    story.leads("node 2", 1)
    story.end(0)
    story.poll((0, "a"))
    assert story.kinds() == [Kind.NONMONOTONIC]


def test_a_leader_that_knows_its_successor_tells_no_old_end(story: Story) -> None:
    story.leads("node 1", 0)
    story.send("a", 0)
    story.leads("node 2", 1)
    story.send("b", 1)
    story.deposed("node 1", 0)
    story.end(1)
    story.poll((0, "a"), (1, "b"))
    assert story.kinds() == [Kind.NONMONOTONIC]


def test_a_value_that_was_never_sent_is_a_phantom(story: Story) -> None:
    story.poll((0, "a"))
    assert story.kinds() == [Kind.PHANTOM]


def test_a_value_whose_send_was_refused_is_a_phantom(story: Story) -> None:
    story.send("a", -1, outcome=Outcome.FAIL)
    story.poll((0, "a"))
    assert story.kinds() == [Kind.PHANTOM]


def test_acks_1_may_lose_when_the_leader_changes(story: Story) -> None:
    story.send("a", 0, acks=1)
    story.leads("node 1", 0)
    story.send("b", 0, process="q")
    story.poll((0, "b"))
    assert story.kinds() == []


def test_acks_1_may_not_lose_while_the_leader_stays(story: Story) -> None:
    story.send("a", 0, acks=1)
    story.send("b", 0, process="q")
    story.poll((0, "b"))
    assert Kind.INCONSISTENT in story.kinds()


def test_acks_1_answered_after_a_change_may_be_the_old_leaders(story: Story) -> None:
    number = story.invoke("a", acks=1)
    story.leads("node 1", 0)
    story.op("p", Action.SEND, number=number, value="a", offset=0, acks=1)
    story.send("b", 0, process="q")
    story.poll((0, "b"))
    assert story.kinds() == []


def test_acks_1_of_a_leader_that_has_not_heard_of_its_successor_may_go(story: Story) -> None:
    story.leads("node 1", 0)
    story.leads("node 2", 1)
    story.send("a", 0, acks=1)
    story.send("b", 0, process="q")
    story.deposed("node 1", 0)
    story.poll((0, "b"))
    assert story.kinds() == []


def test_acks_1_may_not_be_lost_when_the_old_leader_knows(story: Story) -> None:
    story.leads("node 1", 0)
    story.leads("node 2", 1)
    story.deposed("node 1", 0)
    story.send("a", 0, acks=1)
    story.send("b", 0, process="q")
    assert Kind.INCONSISTENT in story.kinds()


def test_what_a_reader_saw_stays_though_the_leader_changes(story: Story) -> None:
    story.send("a", 0, acks=1)
    story.poll((0, "a"))
    story.leads("node 1", 0)
    story.send("b", 0, process="q")
    assert Kind.INCONSISTENT in story.kinds()


def test_a_partition_that_may_lose_is_excused_but_not_for_phantoms(story: Story) -> None:
    story.send("a", 0)
    story.op("cluster", Action.MAY_LOSE)
    story.send("b", 0, process="q")
    story.poll((0, "b"))
    assert story.kinds() == []
    story.poll((1, "z"))
    assert story.kinds() == [Kind.PHANTOM]


def test_a_group_continues_where_it_committed(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.assign("c")
    story.poll((0, "a"), (1, "b"))
    story.commit(1)
    story.assign("d")
    story.poll((1, "b"), (2, "c"), process="d")
    assert story.kinds("g") == []


def test_a_commit_that_went_back_is_not_monotonic(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.assign("c")
    story.poll((0, "a"), (1, "b"), (2, "c"))
    story.commit(1)
    story.commit(3)
    story.assign("d")
    story.poll((1, "b"), (2, "c"), process="d")
    assert story.kinds() == [Kind.NONMONOTONIC]


def test_a_commit_without_an_answer_may_count_late(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.assign("c")
    story.poll((0, "a"), (1, "b"), (2, "c"))
    story.commit(1, outcome=Outcome.UNKNOWN)
    story.commit(3)
    story.assign("d")
    story.poll((1, "b"), (2, "c"), process="d")
    assert story.kinds() == []


def test_a_group_that_begins_behind_its_commit_skips(story: Story) -> None:
    for offset, value in enumerate("abc"):
        story.send(value, offset)
    story.assign("c")
    story.poll((0, "a"))
    story.commit(1)
    story.assign("d")
    story.poll((2, "c"), process="d")
    assert Kind.SKIPPED in story.kinds()


def test_what_a_group_did_not_read_is_unseen(story: Story) -> None:
    story.send("a", 0)
    story.send("b", 1)
    story.poll((0, "a"), (1, "b"), process="reader")
    story.assign("c")
    story.poll((0, "a"))
    assert story.kinds("g") == [Kind.UNSEEN]


def test_a_history_can_be_written_and_read_again(story: Story) -> None:
    story.send("a", 0)
    story.poll((0, "a"), (1, "a"))
    lines = [op.line() for op in story.ops]
    checker = Checker()
    found = checker.take_all(map(Op.of_line, lines))
    assert found == story.found
    assert str(found[0]) == "duplicated: t-0: a is at 0 and at 1"
