"""Random histories of a shard of the transaction coordinator, with the logs that markers go to.

Producers of both versions begin, write and end transactions; instances crash, are replaced, fenced,
and come back from the dead; replies are lost and requests repeated; copies of old requests and old
markers arrive late; the coordinator moves; the level changes; prepared transactions are kept.

After every step a shard that has only read the log equals the living one, and the record that was
written follows from the one before. In the end, when faults are over, nothing is left open, and
each transaction is committed everywhere or nowhere, as its producer was told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random

import pytest

from headwater.coordination import Decision
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import SendMarkers
from headwater.transactions.transaction import EPOCH_MAX, Identity, State, Transaction
from tests.support.transaction_shards import TransactionDesk

IDS = ("one", "two", "three")
PARTITIONS = [TopicPartition("t", index) for index in range(4)]
STEPS = 400
SEEDS = range(60)

PREVIOUS = {
    State.EMPTY: {State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.ONGOING: {State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT},
    State.PREPARE_COMMIT: {State.ONGOING},
    State.PREPARE_ABORT: {
        State.ONGOING,
        State.EMPTY,
        State.COMPLETE_COMMIT,
        State.COMPLETE_ABORT,
    },
    State.COMPLETE_COMMIT: {State.PREPARE_COMMIT},
    State.COMPLETE_ABORT: {State.PREPARE_ABORT},
}


def check_step(before: Transaction | None, after: Transaction) -> None:
    """Checks the invariants between two records of an id."""
    if before is None:
        assert after.state is State.EMPTY
        assert after.producer_epoch == 0
        return
    assert before.state in PREVIOUS[after.state]
    # No identity goes back: neither that of the markers nor that of the client.
    for old, new in ((before.writer, after.writer), (before.client, after.client)):
        if old.producer_id == new.producer_id:
            assert old.epoch <= new.epoch
        else:
            assert old.producer_id < new.producer_id
    assert after.client.epoch < EPOCH_MAX or after.state is not State.EMPTY
    # No partition is lost on the way to its marker.
    if before.state is State.ONGOING:
        assert set(before.partitions) <= set(after.partitions)
        assert after.started_ms == before.started_ms
    if after.is_preparing:
        assert after.partitions == before.partitions
    if after.is_complete or after.state is State.EMPTY:
        assert after.partitions == ()
    assert after.unknown_tags == before.unknown_tags


class CheckedDesk(TransactionDesk):
    """Checks each record against the one before."""

    def __init__(self, settings: TransactionSettings) -> None:
        super().__init__(settings)
        self.latest: dict[str, Transaction] = {}

    def carry_out(self, decision: Decision) -> None:
        for record in decision.records:
            assert isinstance(record.key, TransactionLogKey)
            assert isinstance(record.value, TransactionLogValue)
            name = record.key.transactional_id
            after = Transaction.of(record.value)
            check_step(self.latest.get(name), after)
            self.latest[name] = after
        super().carry_out(decision)


@dataclass(slots=True)
class Story:
    """A transaction as its producer sees it, and what became of its writes."""

    number: int
    told: bool | None = None  # whether it was committed, where the producer knows
    outcomes: dict[TopicPartition, bool | None] = field(default_factory=dict)


class PartitionLog:
    """A partition's state of producers, by the rules of the log."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.epochs: dict[int, int] = {}
        self.coordinators: dict[int, int] = {}
        self.open: dict[int, list[Story]] = {}

    def write(self, who: Identity, story: Story) -> bool:
        if who.epoch < self.epochs.get(who.producer_id, -1):
            return False
        self.epochs[who.producer_id] = who.epoch
        opened = self.open.setdefault(who.producer_id, [])
        assert opened in ([], [story]), "a write joins the transaction of another"
        if not opened:
            opened.append(story)
        story.outcomes[self.tp] = None
        return True

    def mark(self, markers: SendMarkers, coordinator: int) -> bool:
        """Returns whether the marker was taken: not if it is older than what is there."""
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        current = self.epochs.get(producer_id, -1)
        if coordinator < self.coordinators.get(producer_id, -1) or epoch < current:
            return False
        if markers.transaction_version >= 2 and epoch == current:
            return False
        self.coordinators[producer_id] = coordinator
        self.epochs[producer_id] = epoch
        for story in self.open.pop(producer_id, ()):
            assert story.outcomes[self.tp] is None
            story.outcomes[self.tp] = markers.commits
        return True


Request = Callable[[], object]


@dataclass(slots=True)
class Producer:
    """An instance of a producer, which may be out of date."""

    name: str
    version: int
    two_phases: bool = False
    identity: Identity | None = None
    story: Story | None = None
    # An end whose reply has not come: it is repeated until it comes.
    ending: bool | None = None
    is_dead: bool = False


class History:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        level = self.random.choice((0, 1, 2, 2, 2))
        settings = TransactionSettings(
            transaction_version=level, two_phase_commit=True, id_expiration_ms=2**40
        )
        self.desk = CheckedDesk(settings)
        self.logs = {tp: PartitionLog(tp) for tp in PARTITIONS}
        self.producers: list[Producer] = []
        self.stories: list[Story] = []
        self.late: list[Request] = []
        self.late_markers: list[tuple[SendMarkers, int]] = []
        self.waiting: list[tuple[SendMarkers, set[TopicPartition]]] = []
        # Prepared transactions that were left behind, by the identity that wrote them.
        self.prepared: dict[Identity, Story] = {}
        self.coordinator = 0
        if self.random.random() < 0.3:  # an id whose epochs run out soon
            first = Identity(self.desk.new_id(), EPOCH_MAX - self.random.randint(1, 8))
            created = Transaction.created(first, timeout_ms=60_000, now_ms=self.desk.now_ms)
            self.desk.latest[IDS[0]] = created
            self.desk.load(created.value(level), name=IDS[0])

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    # Steps

    def step(self) -> None:
        actions = [self.act] * 10 + [self.deliver] * 6 + [self.pass_time, self.start]
        actions += [self.repeat] * 2 + [self.repeat_marker]
        if self.chance(0.03):
            actions = [self.restart]
        elif self.chance(0.02):
            actions = [self.change_level]
        self.random.choice(actions)()
        self.gather()

    def gather(self) -> None:
        for markers in self.desk.markers:
            if not any(markers is known for known, _ in self.waiting):
                self.waiting.append((markers, set(markers.partitions)))
        if self.chance(0.5):
            self.desk.give_ids()

    def restart(self) -> None:
        for markers, _ in self.waiting:
            if markers.transaction_version >= 2:
                self.late_markers.append((markers, self.coordinator))
        self.waiting = []
        self.coordinator += 1
        self.desk.restart()

    def change_level(self) -> None:
        settings = TransactionSettings(
            transaction_version=self.random.choice((0, 1, 2)),
            two_phase_commit=True,
            id_expiration_ms=2**40,
        )
        self.desk.settings = settings
        self.desk.shard.on_settings(settings)

    def pass_time(self) -> None:
        self.desk.advance(self.random.choice((0.1, 1.0, 15.0)))

    def start(self) -> None:
        alive = sum(not producer.is_dead for producer in self.producers)
        if alive < 5:
            version = self.random.choice((1, 2, 2))
            two_phases = version == 2 and self.chance(0.2)
            self.producers.append(Producer(self.random.choice(IDS), version, two_phases))

    # Markers

    def deliver(self) -> None:
        """Writes a marker of one partition; the report about it may get lost."""
        if not self.waiting:
            return
        markers, missing = self.random.choice(self.waiting)
        tp = self.random.choice(sorted(missing))
        self.logs[tp].mark(markers, self.coordinator)
        if markers.transaction_version >= 2:
            self.late_markers.append((markers, self.coordinator))
        if self.chance(0.2):
            return
        missing.discard(tp)
        self.desk.report(markers, [tp])
        if not missing:
            self.waiting = [entry for entry in self.waiting if entry[0] is not markers]
            self.desk.markers = [known for known in self.desk.markers if known is not markers]

    def repeat_marker(self) -> None:
        """A marker that was sent before arrives once more, and is reported once more."""
        if self.late_markers:
            markers, coordinator = self.random.choice(self.late_markers)
            tp = self.random.choice(markers.partitions)
            self.logs[tp].mark(markers, coordinator)
            self.desk.report(markers, [tp])

    # Requests

    def repeat(self) -> None:
        """A request that was sent before arrives once more; nobody hears the reply."""
        if self.late:
            self.random.choice(self.late)()

    def send(self, request: Request, *, may_come_late: bool) -> object | None:
        """Returns the reply; None if it got lost."""
        if may_come_late:
            self.late.append(request)
        reply = request()
        return None if self.chance(0.15) else reply

    def act(self) -> None:
        alive = [producer for producer in self.producers if not producer.is_dead]
        if not alive:
            return
        producer = self.random.choice(alive)
        if self.chance(0.02):
            self.crash(producer)
        elif producer.identity is None:
            self.init(producer)
        elif producer.ending is not None:
            self.end(producer, commits=producer.ending)
        elif producer.story is None:
            if self.chance(0.1):
                self.init(producer)
            elif self.chance(0.1) and producer.version == 2:
                self.end(producer, commits=False)
            else:
                producer.story = Story(len(self.stories))
                self.stories.append(producer.story)
                self.write(producer)
        elif self.chance(0.6):
            self.write(producer)
        else:
            self.end(producer, commits=self.chance(0.7))

    def crash(self, producer: Producer) -> None:
        producer.is_dead = True
        if producer.two_phases and producer.story is not None and producer.ending is None:
            assert producer.identity is not None
            self.prepared[producer.identity] = producer.story

    def init(self, producer: Producer) -> None:
        request = partial(
            self.desk.init,
            producer.identity,
            name=producer.name,
            version=6,
            enable_2pc=producer.two_phases,
            keep=producer.two_phases,
        )
        response = self.send(request, may_come_late=producer.identity is not None)
        if response is None:
            return
        code = ErrorCode(response.error_code)  # type: ignore[attr-defined]
        if code is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        if code is not ErrorCode.NONE:
            producer.is_dead = True
            return
        producer.identity = Identity(response.producer_id, response.producer_epoch)  # type: ignore[attr-defined]
        ongoing = Identity(
            response.ongoing_txn_producer_id,  # type: ignore[attr-defined]
            response.ongoing_txn_producer_epoch,  # type: ignore[attr-defined]
        )
        if ongoing.producer_id >= 0:
            # It decides about the prepared transaction of another instance, if it knows of it.
            producer.story = self.prepared.get(ongoing)
            producer.ending = self.chance(0.5)

    def write(self, producer: Producer) -> None:
        story, who = producer.story, producer.identity
        assert story is not None
        assert who is not None
        tp = self.random.choice(PARTITIONS)
        version = 5 if producer.version == 2 else 3
        request = partial(self.desk.add, who, str(tp).replace("-", ":"), name=producer.name)
        code = self.send(partial(request, version=version), may_come_late=producer.version == 2)
        if code is ErrorCode.NONE:
            # A broker appends only while the coordinator says that the partition takes part.
            if not self.logs[tp].write(who, story):
                producer.is_dead = True
        elif code not in (None, ErrorCode.CONCURRENT_TRANSACTIONS):
            producer.is_dead = True

    def end(self, producer: Producer, *, commits: bool) -> None:
        assert producer.identity is not None
        producer.ending = commits
        request = partial(
            self.desk.end,
            producer.identity,
            "commit" if commits else "abort",
            name=producer.name,
            version=5 if producer.version == 2 else 4,
        )
        # With version 1 a late end cannot be told from that of the next transaction.
        said = self.send(request, may_come_late=producer.version == 2)
        if said is None or said is ErrorCode.CONCURRENT_TRANSACTIONS:
            return
        producer.ending = None
        story, producer.story = producer.story, None
        if isinstance(said, Identity):
            producer.identity = said
        elif said is ErrorCode.INVALID_TXN_STATE and story is not None and not story.outcomes:
            return  # nothing was written, so that there was nothing to end
        elif said is not ErrorCode.NONE:
            producer.is_dead = True
            return
        if story is not None:
            story.told = commits

    # The end

    def finish(self) -> None:
        """Faults are over: markers arrive, and what nobody ends is aborted."""
        for name in IDS:
            self.gather()
            found = self.desk.described(name)
            if found.transaction_state == "Ongoing":
                response = self.desk.init(name=name)
                assert response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
        self.gather()
        while self.waiting:
            for markers, missing in self.waiting:
                for tp in sorted(missing):
                    self.logs[tp].mark(markers, self.coordinator)
                self.desk.report(markers, missing)
                self.desk.markers = [known for known in self.desk.markers if known is not markers]
            self.waiting = []
            self.gather()

    def judge(self) -> None:
        for name in IDS:
            found = self.desk.described(name)
            assert found.transaction_state in ("", "Empty", "CompleteCommit", "CompleteAbort")
        for log in self.logs.values():
            assert log.open == {}, f"{log.tp} has transactions that never end"
        for story in self.stories:
            outcomes = set(story.outcomes.values())
            assert len(outcomes) <= 1, f"{story} is neither committed nor aborted"
            if story.told is not None and outcomes:
                assert outcomes == {story.told}, f"{story} is not as its producer was told"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_transaction_is_committed_everywhere_or_nowhere(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    history.finish()
    history.judge()
