"""The transaction coordinator's machine, by the rules of Kafka's coordinator."""

from __future__ import annotations

import pytest

from headwater.coordination import Decision, Record
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import SendMarkers
from headwater.transactions.transaction import (
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    STATES_BY_TITLE,
    Identity,
    NeedsProducerId,
    State,
    Transaction,
)
from tests.support.transaction_shards import (
    FIRST_PRODUCER_ID,
    ID,
    TransactionDesk,
    got,
    refused,
    tps,
)

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
LAST_EPOCH = EPOCH_MAX - 1  # the last one that a client gets


def ongoing(desk: TransactionDesk, partitions: str = "orders:0,1") -> Identity:
    client = desk.start()
    assert desk.add(client, partitions) is NONE
    return client


def loaded(
    state: State,
    epoch: int,
    *,
    producer_id: int = 7,
    client_version: int = 2,
    transaction_version: int = 2,
) -> TransactionDesk:
    """A desk whose log has an id with this state and epoch."""
    desk = TransactionDesk(TransactionSettings(transaction_version=transaction_version))
    desk.load(
        TransactionLogValue(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_timeout_ms=60_000,
            transaction_status=state,
            transaction_last_update_timestamp_ms=desk.now_ms,
            transaction_start_timestamp_ms=-1 if state is State.EMPTY else desk.now_ms,
            previous_producer_id=producer_id,
            client_transaction_version=client_version,
        )
    )
    return desk


# InitProducerId


def test_a_new_id_starts_with_epoch_0_and_each_instance_raises_it() -> None:
    desk = TransactionDesk()
    assert got(desk.init()) == (FIRST_PRODUCER_ID, 0)
    assert desk.state() == "Empty"
    assert got(desk.init()) == (FIRST_PRODUCER_ID, 1)
    assert got(desk.init(name="other")) == (FIRST_PRODUCER_ID + 1, 0)


@pytest.mark.parametrize(
    ("timeout_ms", "code"),
    [
        (0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (-1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
    ],
)
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int, code: ErrorCode) -> None:
    desk = TransactionDesk()
    assert refused(desk.init(timeout_ms=timeout_ms)) is code
    assert desk.log == []


def test_an_empty_id_and_half_an_identity_are_refused() -> None:
    desk = TransactionDesk()
    assert refused(desk.init(name="")) is ErrorCode.INVALID_REQUEST
    assert refused(desk.init((7, -1))) is ErrorCode.INVALID_REQUEST
    assert refused(desk.init((-1, 7))) is ErrorCode.INVALID_REQUEST


def test_a_request_that_lacks_a_producer_id_changes_nothing() -> None:
    desk = TransactionDesk()
    request = InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000)
    with pytest.raises(NeedsProducerId) as raised:
        desk.shard.decide_init(1, request, version=5, now=desk.now, now_ms=desk.now_ms)
    assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert desk.described().error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_new_instance_aborts_what_the_old_one_left_open(transaction_version: int) -> None:
    desk = TransactionDesk(TransactionSettings(transaction_version=transaction_version))
    old = ongoing(desk, "orders:0,1")
    assert refused(desk.init()) is CONCURRENT
    (markers,) = desk.markers
    assert markers == SendMarkers(
        ID, old.producer_id, old.epoch + 1, False, tuple(tps("orders:0,1")), transaction_version & 2
    )
    assert desk.state() == "PrepareAbort"
    assert refused(desk.init()) is CONCURRENT
    desk.write_markers()
    assert desk.state() == "CompleteAbort"
    assert got(desk.init()) == (old.producer_id, old.epoch + 2)
    assert desk.add(old) is FENCED
    assert desk.end(old, version=4) is FENCED
    assert desk.end(old, version=5) is FENCED


def test_clients_of_old_versions_hear_of_fencing_by_its_old_code() -> None:
    desk = TransactionDesk()
    old = desk.start()
    current = desk.start()
    old_code = ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(desk.init(old, version=3)) is old_code
    assert refused(desk.init(old, version=4)) is FENCED
    assert desk.add(old, version=1) is old_code
    assert desk.add(old, version=2) is FENCED
    assert desk.add_offsets(old, version=1) is old_code
    assert desk.add_offsets(old, version=2) is FENCED
    assert desk.end(old, version=1) is old_code
    assert desk.end(old, version=2) is FENCED
    assert desk.add(current) is NONE


def test_a_client_that_tells_its_epoch_gets_the_next_one() -> None:
    """KIP-360: after an error that it can recover from."""
    desk = TransactionDesk()
    client = desk.start()
    assert got(desk.init(client)) == client.raised


def test_the_same_request_again_gets_the_same_epoch() -> None:
    desk = TransactionDesk()
    client = desk.start()
    raised = got(desk.init(client))
    assert got(desk.init(client)) == raised
    assert got(desk.init(client)) == raised
    assert got(desk.init(raised)) == raised.raised


def test_an_epoch_that_another_instance_has_raised_is_fenced() -> None:
    desk = TransactionDesk()
    client = desk.start()
    other = desk.start()
    assert refused(desk.init(client)) is FENCED
    assert refused(desk.init((client.producer_id + 1, client.epoch))) is FENCED
    assert got(desk.init(other)) == other.raised


def test_a_fenced_instance_does_not_abort_the_transaction_of_the_current_one() -> None:
    desk = TransactionDesk()
    old = desk.start()
    current = ongoing(desk)
    assert refused(desk.init(old)) is FENCED
    assert refused(desk.init((5, 5))) is FENCED
    assert desk.state() == "Ongoing"
    assert desk.end(current) == current.raised


def test_a_client_that_tells_its_epoch_may_abort_its_own_transaction() -> None:
    desk = TransactionDesk()
    client = ongoing(desk)
    assert refused(desk.init(client)) is CONCURRENT
    desk.write_markers()
    # The abort has raised its epoch already.
    assert got(desk.init(client)) == client.raised


def test_an_id_that_has_expired_is_created_again_whatever_epoch_the_client_tells() -> None:
    desk = TransactionDesk()
    assert got(desk.init((99, 5))) == (FIRST_PRODUCER_ID, 0)


# Epochs that run out


def test_an_instance_without_an_epoch_left_gets_a_new_producer_id() -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH)
    assert got(desk.init()) == (FIRST_PRODUCER_ID, 0)


def test_a_client_without_an_epoch_left_gets_a_new_producer_id_as_often_as_it_asks() -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH)
    fresh = got(desk.init((7, LAST_EPOCH)))
    assert fresh == (FIRST_PRODUCER_ID, 0)
    assert got(desk.init((7, LAST_EPOCH))) == fresh
    assert got(desk.init((7, LAST_EPOCH))) == fresh
    assert refused(desk.init((7, LAST_EPOCH - 1))) is FENCED
    assert got(desk.init(fresh)) == fresh.raised
    assert refused(desk.init((7, LAST_EPOCH))) is FENCED


def test_the_last_epoch_is_only_for_fencing() -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH, transaction_version=1)
    assert desk.add((7, LAST_EPOCH), version=3) is NONE
    assert refused(desk.init()) is CONCURRENT
    assert desk.markers[0].producer_epoch == EPOCH_MAX
    desk.write_markers()
    assert desk.who() == (7, EPOCH_MAX)
    assert refused(desk.init((7, LAST_EPOCH))) is FENCED
    assert got(desk.init()) == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_the_end_of_a_transaction_replaces_an_exhausted_id(outcome: str) -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH)
    old = Identity(7, LAST_EPOCH)
    assert desk.add(old) is NONE
    fresh = desk.end(old, outcome)
    assert fresh == (FIRST_PRODUCER_ID, 0)
    (markers,) = desk.markers
    assert (markers.producer_id, markers.producer_epoch) == (7, EPOCH_MAX)
    # The client may use its new id before the markers are written.
    assert desk.add(fresh) is CONCURRENT
    assert desk.end(old, outcome) is CONCURRENT
    assert refused(desk.init(old)) is CONCURRENT
    desk.write_markers()
    assert desk.who() == fresh
    assert desk.end(old, outcome) == fresh
    desk.restart()
    assert desk.end(old, outcome) == fresh
    assert got(desk.init(old)) == fresh
    assert got(desk.init(old)) == fresh
    assert desk.add(fresh) is NONE
    assert desk.end(old, outcome) is MAPPING


def test_the_new_id_survives_a_change_of_the_coordinator_before_the_markers() -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH)
    old = Identity(7, LAST_EPOCH)
    desk.add(old)
    fresh = desk.end(old)
    desk.restart()
    assert desk.state() == "PrepareCommit"
    desk.write_markers()
    assert desk.who() == fresh
    assert desk.end(old) == fresh


def test_an_abort_of_nothing_replaces_an_exhausted_id_too() -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH)
    old = Identity(7, LAST_EPOCH)
    fresh = desk.end(old, "abort")
    assert fresh == (FIRST_PRODUCER_ID, 0)
    assert desk.state() == "CompleteAbort"
    assert desk.end(old, "abort") == fresh


def test_a_timeout_replaces_an_exhausted_id() -> None:
    """Kafka before 4.3 lets the client go on with the last epoch, which can never be raised."""
    desk = loaded(State.EMPTY, LAST_EPOCH)
    old = Identity(7, LAST_EPOCH)
    desk.add(old)
    desk.advance(85)
    assert desk.state() == "Ongoing"
    assert desk.wanted_ids == 2  # it asks again at each check
    desk.give_ids()
    assert desk.state() == "PrepareAbort"
    desk.write_markers()
    assert desk.who() == (FIRST_PRODUCER_ID, 0)
    assert desk.end(old, "abort") == (FIRST_PRODUCER_ID, 0)


def test_an_epoch_that_an_earlier_kafka_should_not_have_used_is_never_given_out() -> None:
    desk = loaded(State.COMPLETE_ABORT, EPOCH_MAX)
    assert desk.end((7, LAST_EPOCH), "abort") is FENCED
    assert got(desk.init((7, LAST_EPOCH))) == (FIRST_PRODUCER_ID, 0)
    assert got(desk.init((7, LAST_EPOCH))) == (FIRST_PRODUCER_ID, 0)


# AddPartitionsToTxn, AddOffsetsToTxn


def test_the_first_partition_starts_a_transaction_and_others_join_it() -> None:
    desk = TransactionDesk()
    client = desk.start()
    assert desk.add(client, "b:1 a:3") is NONE
    started_ms = desk.now_ms
    desk.advance(1)
    assert desk.add(client, "a:0") is NONE
    assert desk.add_offsets(client) is NONE
    found = desk.described()
    assert found.transaction_state == "Ongoing"
    assert found.transaction_start_time_ms == started_ms
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [
        ("__consumer_offsets", [7]),
        ("a", [0, 3]),
        ("b", [1]),
    ]


def test_partitions_that_are_part_of_it_already_are_not_written_again() -> None:
    desk = TransactionDesk()
    client = ongoing(desk, "a:0,1")
    assert desk.add(client, "a:1") is NONE
    assert desk.written == []


def test_partitions_are_refused_to_strangers() -> None:
    desk = TransactionDesk()
    client = desk.start()
    assert desk.add(client, name="never") is MAPPING
    assert desk.add(client, name="") is ErrorCode.INVALID_REQUEST
    assert desk.add((client.producer_id + 1, client.epoch)) is MAPPING
    assert desk.add(client.raised) is FENCED
    assert desk.add_offsets((client.producer_id + 1, client.epoch)) is MAPPING
    assert desk.state() == "Empty"


def test_a_verification_tells_which_partitions_are_part_of_the_transaction() -> None:
    desk = TransactionDesk()
    client = ongoing(desk, "a:0")
    assert desk.add(client, "a:0", verify=True) is NONE
    assert desk.add(client, "a:0,1", verify=True) == {
        TopicPartition("a", 0): NONE,
        TopicPartition("a", 1): ErrorCode.TRANSACTION_ABORTABLE,
    }
    assert desk.add(client.raised, "a:0", verify=True) is FENCED
    assert desk.add((1, 0), "a:0", verify=True) is MAPPING
    assert desk.add(client, "a:0", verify=True, name="") is ErrorCode.INVALID_REQUEST
    assert desk.add(client, "a:0", verify=True, name="never") is MAPPING
    desk.end(client, version=4)
    assert desk.add(client, "a:0", verify=True) is CONCURRENT
    desk.write_markers()
    assert desk.add(client, "a:0", verify=True) is ErrorCode.TRANSACTION_ABORTABLE


# EndTxn, version 1


@pytest.mark.parametrize(("outcome", "title"), [("commit", "Commit"), ("abort", "Abort")])
def test_with_version_1_the_epoch_stays(outcome: str, title: str) -> None:
    desk = TransactionDesk()
    client = desk.start()
    desk.add(client, "a:0", version=3)
    assert desk.end(client, outcome, version=4) is NONE
    assert desk.state() == f"Prepare{title}"
    (markers,) = desk.markers
    commits = outcome == "commit"
    assert markers == SendMarkers(ID, *client, commits, tuple(tps("a:0")), 0)
    assert desk.add(client, "a:1", version=3) is CONCURRENT
    assert desk.end(client, "commit", version=4) is CONCURRENT
    assert desk.end(client, "abort", version=4) is CONCURRENT
    desk.write_markers()
    assert desk.state() == f"Complete{title}"
    assert desk.who() == client
    other = "abort" if commits else "commit"
    assert desk.end(client, outcome, version=4) is NONE  # repeated
    assert desk.end(client, other, version=4) is INVALID_STATE
    assert desk.add(client, "a:0", version=3) is NONE
    assert desk.state() == "Ongoing"


def test_with_version_1_nothing_cannot_be_ended() -> None:
    desk = TransactionDesk()
    client = desk.start()
    assert desk.end(client, "commit", version=4) is INVALID_STATE
    assert desk.end(client, "abort", version=4) is INVALID_STATE


# EndTxn, version 2


@pytest.mark.parametrize(("outcome", "title"), [("commit", "Commit"), ("abort", "Abort")])
def test_with_version_2_each_end_raises_the_epoch(outcome: str, title: str) -> None:
    desk = TransactionDesk()
    client = ongoing(desk, "a:0")
    raised = desk.end(client, outcome)
    assert raised == client.raised
    (markers,) = desk.markers
    assert markers == SendMarkers(ID, *raised, outcome == "commit", tuple(tps("a:0")), 2)
    assert desk.end(client, outcome) is CONCURRENT
    assert desk.add(raised) is CONCURRENT
    assert desk.add(client) is CONCURRENT
    desk.write_markers()
    assert desk.state() == f"Complete{title}"
    assert desk.add(client) is FENCED
    assert desk.add(raised) is NONE


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize(
    ("ended", "outcome", "is_repeated", "expected"),
    [
        # The table in the comment above Kafka's endTransaction.
        (None, "abort", True, FENCED),
        (None, "abort", False, "raised"),
        (None, "commit", True, FENCED),
        (None, "commit", False, INVALID_STATE),
        ("abort", "abort", True, "same"),
        ("abort", "abort", False, "raised"),
        ("abort", "commit", True, INVALID_STATE),
        ("abort", "commit", False, INVALID_STATE),
        ("commit", "abort", True, INVALID_STATE),
        ("commit", "abort", False, "raised"),
        ("commit", "commit", True, "same"),
        ("commit", "commit", False, INVALID_STATE),
    ],
)
def test_with_version_2_a_repeated_end_is_told_from_a_new_one(
    ended: str | None, outcome: str, is_repeated: bool, expected: object, restarts: bool
) -> None:
    desk = TransactionDesk()
    old = desk.start()
    if ended is None:
        current = desk.start()
    else:
        desk.add(old)
        current = old.raised
        assert desk.end(old, ended) == current
        desk.write_markers()
    if restarts:
        desk.restart()
    said = desk.end(old if is_repeated else current, outcome)
    if expected == "same":
        assert said == current
        assert desk.written == []
    elif expected == "raised":
        assert said == current.raised
        assert desk.state() == "CompleteAbort"
        assert desk.markers == []
    else:
        assert said is expected


def test_strangers_end_nothing() -> None:
    desk = TransactionDesk()
    client = ongoing(desk)
    for version in (4, 5):
        assert desk.end(client, version=version, name="never") is MAPPING
        assert desk.end(client, version=version, name="") is ErrorCode.INVALID_REQUEST
        assert desk.end((client.producer_id + 1, client.epoch), version=version) is MAPPING
        assert desk.end(client.raised, version=version) is FENCED
        assert desk.end((client.producer_id, client.epoch - 1), version=version) is FENCED
    assert desk.state() == "Ongoing"


def test_a_late_commit_of_an_earlier_transaction_does_not_end_a_later_one() -> None:
    """KAFKA-17754: what version 2 is for."""
    desk = TransactionDesk()
    first = ongoing(desk)
    second = desk.end(first)
    assert isinstance(second, Identity)
    desk.write_markers()
    assert desk.add(second) is NONE
    assert desk.end(first) is FENCED
    assert desk.state() == "Ongoing"


def test_a_fenced_client_does_not_take_the_commit_of_an_older_version_for_its_own() -> None:
    """A commit of version 1 does not raise the epoch. One epoch behind it is therefore not the
    client that committed and missed the reply, but the instance that this one has fenced."""
    desk = TransactionDesk()
    fenced = ongoing(desk)
    desk.init()
    desk.write_markers()
    current = got(desk.init())
    assert current == (fenced.producer_id, fenced.epoch + 2)
    between = Identity(fenced.producer_id, fenced.epoch + 1)
    desk.add(current, version=3)
    assert desk.end(current, version=4) is NONE
    desk.write_markers()
    assert desk.end(between, version=5) is FENCED
    assert desk.end(fenced, version=5) is FENCED


def test_versions_may_alternate() -> None:
    desk = TransactionDesk()
    client = desk.start()
    desk.add(client, version=3)
    raised = desk.end(client, version=5)
    assert raised == client.raised
    assert isinstance(raised, Identity)
    assert desk.markers[0].transaction_version == 2
    desk.write_markers()
    desk.add(raised, version=5)
    assert desk.end(raised, version=4) is NONE
    assert desk.markers[0].transaction_version == 0
    assert desk.markers[0].producer_epoch == raised.epoch
    desk.write_markers()
    assert desk.who() == raised
    assert desk.end(raised, version=4) is NONE
    desk.add(raised, version=5)
    assert desk.end(raised, version=5) == raised.raised


# Markers


def test_a_transaction_is_complete_when_its_last_marker_is_written() -> None:
    desk = TransactionDesk()
    client = ongoing(desk, "a:0,1 b:0")
    desk.end(client)
    desk.write_markers(tps("a:1"))
    assert desk.state() == "PrepareCommit"
    assert [(t.topic, t.partitions) for t in desk.described().topics] == [("a", [0]), ("b", [0])]
    desk.write_markers(tps("a:0 a:1"))
    assert desk.written == []
    desk.write_markers(tps("b:0"))
    assert desk.state() == "CompleteCommit"
    assert desk.described().topics == []


def test_all_markers_are_sent_again_after_a_change_of_the_coordinator() -> None:
    desk = TransactionDesk()
    client = ongoing(desk, "a:0,1")
    desk.end(client)
    (before,) = desk.markers
    desk.write_markers(tps("a:1"))
    desk.restart()
    (after,) = desk.markers
    assert after == before
    assert after is not before
    desk.report(before, tps("a:0"))  # to nobody
    assert desk.state() == "PrepareCommit"
    desk.write_markers()
    assert desk.state() == "CompleteCommit"


def test_a_late_report_about_the_transaction_before_is_not_taken_for_this_one() -> None:
    desk = TransactionDesk()
    client = desk.start()
    desk.add(client, "a:0", version=3)
    desk.end(client, version=4)
    (first,) = desk.markers
    desk.write_markers()
    desk.add(client, "a:0", version=3)
    desk.end(client, version=4)
    (second,) = desk.markers
    assert second == first
    desk.report(first, tps("a:0"))
    assert desk.state() == "PrepareCommit"
    desk.report(second, tps("a:0"))
    assert desk.state() == "CompleteCommit"
    desk.report(second, tps("a:0"))
    assert desk.written == []


def test_a_transaction_that_was_loaded_without_partitions_is_completed() -> None:
    """Kafka writes such a record when a client aborts nothing, and may stop right after it."""
    desk = loaded(State.PREPARE_ABORT, 4)
    assert desk.state() == "CompleteAbort"
    assert desk.who() == (7, 4)


# Timeouts


@pytest.mark.parametrize("transaction_version", [1, 2])
def test_a_transaction_that_is_not_ended_in_time_is_aborted(transaction_version: int) -> None:
    desk = TransactionDesk(TransactionSettings(transaction_version=transaction_version))
    client = desk.start(timeout_ms=5000)
    desk.add(client)
    desk.advance(4.9)
    assert desk.state() == "Ongoing"
    desk.advance(10.2)
    assert desk.state() == "PrepareAbort"
    desk.write_markers()
    assert desk.who() == client.raised
    assert [note.text for note in desk.notes] == [
        f"transactional id {ID}: aborted a transaction that was not ended within 5000 ms"
    ]
    version = 5 if transaction_version == 2 else 4
    too_late = INVALID_STATE if transaction_version == 2 else FENCED
    assert desk.end(client, "commit", version=version) is too_late


def test_with_version_2_the_client_goes_on_after_a_timeout() -> None:
    desk = TransactionDesk()
    client = desk.start(timeout_ms=5000)
    desk.add(client)
    desk.advance(20)
    desk.write_markers()
    assert desk.end(client, "abort") == client.raised


def test_timeouts_go_on_after_a_change_of_the_coordinator() -> None:
    desk = TransactionDesk()
    client = desk.start(timeout_ms=60_000)
    desk.add(client)
    desk.advance(30)
    desk.restart()
    desk.advance(29)
    assert desk.state() == "Ongoing"
    desk.advance(12)
    assert desk.state() == "PrepareAbort"


def test_an_idle_shard_does_not_look_for_timeouts() -> None:
    desk = TransactionDesk()
    idle = desk.shard.next_deadline()
    client = ongoing(desk)
    assert desk.shard.next_deadline() == desk.now + 10
    desk.end(client)
    desk.write_markers()
    desk.advance(20)
    assert desk.shard.next_deadline() == idle


# Expiration


def test_ids_that_nobody_uses_expire() -> None:
    settings = TransactionSettings(id_expiration_ms=5_000_000, timeout_ms_max=2**30)
    desk = TransactionDesk(settings)
    desk.init(name="idle")
    done = desk.start(name="done")
    desk.add(done, name="done")
    desk.end(done, name="done")
    desk.write_markers()
    opened = desk.start(name="open", timeout_ms=2**30)
    desk.add(opened, name="open")
    half = desk.start(name="half")
    desk.add(half, name="half")
    desk.end(half, name="half")
    desk.advance(3599)
    desk.init(name="used")
    desk.advance(3601)
    listed = desk.shard.list_transactions(now_ms=desk.now_ms)
    assert [found.transactional_id for found in listed] == ["open", "half", "used"]
    desk.restart()
    listed = desk.shard.list_transactions(now_ms=desk.now_ms)
    assert [found.transactional_id for found in listed] == ["open", "half", "used"]
    assert desk.add(done, name="done") is MAPPING


def test_many_ids_expire_in_several_decisions() -> None:
    desk = TransactionDesk(TransactionSettings(id_expiration_ms=1000))
    created = Transaction.created(Identity(1, 0), timeout_ms=1000, now_ms=desk.now_ms).value(2)
    keys = [TransactionLogKey(transactional_id=f"id-{number}") for number in range(2500)]
    desk.carry_out(Decision([Record(key, created) for key in keys]))
    desk.advance(3601)
    assert desk.shard.list_transactions(now_ms=desk.now_ms) == []
    assert len(desk.written) == 500


# Two-phase commit (KIP-939)

TWO_PHASES = TransactionSettings(two_phase_commit=True)


def test_two_phase_commit_must_be_allowed() -> None:
    desk = TransactionDesk()
    code = refused(desk.init(version=6, enable_2pc=True))
    assert code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert desk.log == []


def test_a_transaction_of_a_two_phase_commit_never_times_out() -> None:
    desk = TransactionDesk(TWO_PHASES)
    client = got(desk.init(version=6, enable_2pc=True, timeout_ms=0))
    assert desk.described().transaction_timeout_ms == NO_TIMEOUT_MS
    desk.add(client)
    desk.advance(30 * 24 * 3600)
    assert desk.state() == "Ongoing"


@pytest.mark.parametrize("outcome", ["commit", "abort"])
@pytest.mark.parametrize("version", [4, 5])
def test_a_prepared_transaction_is_kept_for_a_new_instance(outcome: str, version: int) -> None:
    desk = TransactionDesk(TWO_PHASES)
    first = got(desk.init(version=6, enable_2pc=True))
    desk.add(first, "a:0")
    response = desk.init(version=6, enable_2pc=True, keep=True)
    second = got(response)
    assert second == first.raised
    ongoing_of = (response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
    assert ongoing_of == first
    desk.restart()
    assert desk.state() == "Ongoing"
    assert desk.end(first, version=version) is FENCED
    assert desk.add(first, "a:1") is FENCED
    assert desk.add(second, "a:1") is INVALID_STATE
    assert desk.add(second, "a:0", verify=True) is INVALID_STATE
    third = got(desk.init(version=6, enable_2pc=True, keep=True))
    assert third == second.raised
    assert desk.end(second, version=version) is FENCED
    said = desk.end(third, outcome, version=version)
    (markers,) = desk.markers
    assert markers.commits == (outcome == "commit")
    if version == 5:
        assert (markers.producer_id, markers.producer_epoch) == first.raised
        assert said == third.raised
    else:
        assert (markers.producer_id, markers.producer_epoch) == first
        assert said is NONE
    assert desk.end(third, outcome, version=version) is CONCURRENT
    desk.restart()
    desk.write_markers()
    after = third.raised if version == 5 else third
    assert desk.who() == after
    assert desk.end(third, outcome, version=version) == said
    assert desk.add(after) is NONE


def test_a_kept_transaction_is_aborted_by_an_instance_that_does_not_keep_it() -> None:
    desk = TransactionDesk(TWO_PHASES)
    first = got(desk.init(version=6, enable_2pc=True))
    desk.add(first, "a:0")
    second = got(desk.init(version=6, enable_2pc=True, keep=True))
    assert refused(desk.init(version=6)) is CONCURRENT
    (markers,) = desk.markers
    assert (markers.producer_id, markers.producer_epoch) == first.raised
    assert not markers.commits
    desk.write_markers()
    assert desk.who() == second.raised
    assert got(desk.init(version=6)) == second.raised.raised


def test_keeping_nothing_is_a_plain_start() -> None:
    desk = TransactionDesk(TWO_PHASES)
    response = desk.init(version=6, keep=True)
    assert got(response) == (FIRST_PRODUCER_ID, 0)
    assert response.ongoing_txn_producer_id == -1
    assert response.ongoing_txn_producer_epoch == -1


def test_a_kept_transaction_whose_epochs_run_out_gets_a_new_producer_id() -> None:
    desk = loaded(State.EMPTY, LAST_EPOCH)
    first = Identity(7, LAST_EPOCH)
    desk.add(first, "a:0")
    response = desk.init(version=6, keep=True)
    second = got(response)
    assert second == (FIRST_PRODUCER_ID, 0)
    assert response.ongoing_txn_producer_id == 7
    assert desk.end(first) is MAPPING
    assert desk.end(second) == second.raised
    assert desk.markers[0].producer_id == 7
    assert desk.markers[0].producer_epoch == EPOCH_MAX
    desk.write_markers()
    assert desk.end(second) == second.raised
    assert desk.who() == second.raised


def test_a_kept_transaction_without_two_phases_times_out() -> None:
    desk = TransactionDesk(TWO_PHASES)
    first = got(desk.init(version=6, timeout_ms=5000))
    desk.add(first)
    second = got(desk.init(version=6, keep=True, timeout_ms=5000))
    desk.advance(20)
    assert desk.state() == "PrepareAbort"
    desk.write_markers()
    assert desk.who() == second.raised


def test_a_prepared_transaction_does_not_time_out_when_it_is_kept_without_two_phases() -> None:
    desk = TransactionDesk(TWO_PHASES)
    first = got(desk.init(version=6, enable_2pc=True))
    desk.add(first)
    desk.init(version=6, keep=True, timeout_ms=5000)
    desk.advance(3600)
    assert desk.state() == "Ongoing"


def test_a_repeated_request_to_keep_gets_the_same_epoch() -> None:
    desk = TransactionDesk(TWO_PHASES)
    first = got(desk.init(version=6, enable_2pc=True))
    desk.add(first)
    second = got(desk.init(first, version=6, enable_2pc=True, keep=True))
    assert got(desk.init(first, version=6, enable_2pc=True, keep=True)) == second
    assert refused(desk.init((first.producer_id, 9), version=6, keep=True)) is FENCED


# Administration


def test_lists_are_filtered() -> None:
    desk = TransactionDesk()
    one = desk.start(name="one")
    desk.start(name="two")
    desk.add(one, name="one")
    desk.advance(5)

    def names(**filters: object) -> list[str]:
        listed = desk.shard.list_transactions(now_ms=desk.now_ms, **filters)  # type: ignore[arg-type]
        return [found.transactional_id for found in listed]

    assert names() == ["one", "two"]
    assert names(states={State.ONGOING}) == ["one"]
    assert names(states=set()) == []
    assert names(producer_ids=[one.producer_id]) == ["one"]
    assert names(duration_ms=4999) == ["one", "two"]  # one that never began is the oldest
    assert names(duration_ms=5000) == ["two"]
    assert names(matches="two".__eq__) == ["two"]
    found = desk.shard.list_transactions(now_ms=desk.now_ms)[0]
    assert (found.producer_id, found.transaction_state) == (one.producer_id, "Ongoing")


def test_what_is_unknown_cannot_be_described() -> None:
    desk = TransactionDesk()
    assert desk.described("never").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert desk.described("").error_code == ErrorCode.INVALID_REQUEST


def test_states_have_kafkas_names() -> None:
    assert list(STATES_BY_TITLE) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]
