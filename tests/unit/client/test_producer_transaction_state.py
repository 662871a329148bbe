"""The machine of a producer's transaction: phases, errors, and what is asked to end one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.client.errors import (
    AbortableError,
    ClientError,
    DeliveryTimedOut,
    FatalError,
    InvalidRecord,
    InvalidTransactionState,
    ProducerFenced,
    RequestTimedOut,
    TopicForbidden,
    TransactionForbidden,
    UnsupportedVersion,
    error_for,
)
from headwater.client.producer.transaction_state import EndStep, Phase, TransactionState
from headwater.client.requests.transactions import (
    PreparedTransaction,
    TransactionHandle,
    Verdict,
    judged,
    verdict,
)
from headwater.errors import RETRIABLE, ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.apis import ApiKey

ORDERS = TopicPartition("orders", 0)
BILLS = TopicPartition("bills", 3)


def handle(epoch: int = 0, *, uses_v2: bool = True) -> TransactionHandle:
    return TransactionHandle("t", 7, epoch, uses_v2)


def ready(*, uses_v2: bool = True) -> TransactionState:
    state = TransactionState()
    state.initialized(handle(uses_v2=uses_v2))
    return state


def active(*, uses_v2: bool = True, writes: bool = True) -> TransactionState:
    state = ready(uses_v2=uses_v2)
    state.begin()
    if writes:
        state.write(ORDERS)
        if not uses_v2:
            state.on_added(state.take_wanted())
    return state


# Phases


def test_records_are_taken_only_between_begin_and_end() -> None:
    state = ready()
    with pytest.raises(InvalidTransactionState, match="no transaction is open"):
        state.check_writable()
    state.begin()
    state.check_writable()
    state.begin_commit()
    with pytest.raises(InvalidTransactionState, match="being committed"):
        state.check_writable()
    with pytest.raises(InvalidTransactionState):
        state.begin()
    state.finish()
    state.begin()


def test_a_record_that_waited_for_room_does_not_get_into_the_next_transaction() -> None:
    state = active(writes=False)
    serial = state.serial
    state.begin_abort()
    state.finish()
    state.begin()
    with pytest.raises(InvalidTransactionState, match="ended while the record waited"):
        state.check_writable(serial)


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_without_records_asks_nobody(commits: bool) -> None:
    state = active(writes=False)
    state.begin_commit() if commits else state.begin_abort()
    assert state.next_step() is EndStep.DONE


def test_in_the_second_generation_batches_wait_for_nothing_and_the_end_brings_an_epoch() -> None:
    state = active(writes=False)
    assert not state.write(ORDERS)
    assert state.may_send(ORDERS)
    state.begin_commit()
    assert state.may_send(ORDERS)  # what was added is still sent
    assert state.next_step() is EndStep.TELL
    state.on_end_asked()
    state.on_ended(handle(1))
    state.finish()
    assert state.handle.producer_epoch == 1
    assert not state.needs_epoch


def test_in_the_first_generation_partitions_are_added_before_batches_are_sent() -> None:
    state = active(uses_v2=False, writes=False)
    assert state.write(ORDERS)
    assert not state.write(ORDERS)
    assert state.write(BILLS)
    assert not state.may_send(ORDERS)
    wanted = state.take_wanted()
    assert wanted == [ORDERS, BILLS]
    state.on_added(wanted)
    assert state.may_send(ORDERS)
    assert not state.write(ORDERS)
    assert state.take_wanted() == []
    state.begin_commit()
    assert state.next_step() is EndStep.TELL
    state.on_end_asked()
    state.on_ended(handle(uses_v2=False))
    state.finish()
    state.begin()
    assert not state.may_send(ORDERS)  # it has to be added to each transaction


def test_nothing_is_sent_once_the_transaction_can_only_be_aborted() -> None:
    state = active()
    state.on_record_failed(InvalidRecord("too large"), was_sent=True)
    assert not state.may_send(ORDERS)


# The outcome of a commit


def test_once_the_commit_was_asked_for_only_the_commit_may_be_asked_again() -> None:
    state = active()
    state.begin_commit()
    state.on_end_asked()
    assert state.is_commit_unknown
    for call in (state.begin_abort, state.begin, state.check_writable, state.prepare):
        with pytest.raises(InvalidTransactionState, match="commit again"):
            call()
    state.begin_commit()
    assert state.next_step() is EndStep.TELL
    state.on_ended(handle(1))
    state.finish()
    assert state.phase is Phase.READY


def test_a_commit_that_was_not_asked_for_yet_can_still_be_aborted() -> None:
    state = active()
    state.begin_commit()
    state.begin_abort()
    assert state.next_step() is EndStep.TELL


def test_a_commit_that_is_refused_as_abortable_is_known_not_to_have_happened() -> None:
    state = active()
    state.begin_commit()
    state.on_end_asked()
    state.on_failed(error_for(ErrorCode.TRANSACTION_ABORTABLE, "commit"))
    assert not state.is_commit_unknown
    state.begin_abort()
    assert state.next_step() is EndStep.TELL


def test_an_abort_without_an_answer_may_be_asked_again() -> None:
    state = active()
    state.begin_abort()
    state.on_end_asked()
    with pytest.raises(InvalidTransactionState, match="being aborted"):
        state.begin_commit()
    state.begin_abort()
    assert state.next_step() is EndStep.TELL


# The first generation: epochs, and what the coordinator may not know


def test_a_batch_that_was_sent_and_failed_needs_another_epoch_in_the_first_generation() -> None:
    state = active(uses_v2=False)
    state.on_record_failed(DeliveryTimedOut("late"), was_sent=True)
    state.begin_abort()
    assert state.next_step() is EndStep.TELL
    state.on_end_asked()
    state.on_ended(handle(uses_v2=False))
    assert state.next_step() is EndStep.RENEW
    state.on_renewed(handle(1, uses_v2=False))
    state.finish()
    assert not state.needs_epoch


def test_a_batch_that_was_never_sent_needs_no_other_epoch() -> None:
    state = active(uses_v2=False)
    state.on_record_failed(DeliveryTimedOut("no leader"), was_sent=False)
    state.begin_abort()
    state.on_end_asked()
    state.on_ended(handle(uses_v2=False))
    assert state.next_step() is EndStep.DONE


def test_the_second_generation_needs_no_request_for_an_epoch() -> None:
    state = active()
    state.on_record_failed(DeliveryTimedOut("late"), was_sent=True)
    state.begin_abort()
    state.on_end_asked()
    state.on_ended(handle(1))
    assert state.next_step() is EndStep.DONE


def test_what_the_coordinator_never_heard_of_is_ended_by_another_epoch() -> None:
    """It refuses to abort what it does not know; the request that it missed may still arrive."""
    state = active(uses_v2=False, writes=False)
    state.write(ORDERS)
    state.take_wanted()
    state.on_failed(RequestTimedOut("no answer"))
    state.begin_abort()
    assert state.next_step() is EndStep.TELL
    assert state.may_be_unknown
    state.on_never_begun()
    assert state.next_step() is EndStep.RENEW
    state.on_renewed(handle(1, uses_v2=False))
    state.finish()


def test_offsets_without_an_answer_are_aborted_at_the_coordinator() -> None:
    state = active(writes=False)
    state.send_offsets()
    state.on_failed(RequestTimedOut("no answer"))
    assert state.phase is Phase.ABORTABLE
    state.begin_abort()
    assert state.next_step() is EndStep.TELL


def test_after_an_upgrade_the_next_transaction_has_another_epoch() -> None:
    state = active(uses_v2=False)
    state.begin_commit()
    state.on_end_asked()
    state.on_ended(handle(uses_v2=False))
    state.on_upgrade()
    assert state.next_step() is EndStep.DONE  # the commit does not depend on it
    state.finish()
    assert state.needs_epoch
    state.on_renewed(handle(1))
    state.begin()


# Errors


def test_a_failed_transaction_raises_its_reason_until_it_is_aborted() -> None:
    state = active()
    reason = error_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "orders")
    state.on_record_failed(reason, was_sent=True)
    for call in (state.begin_commit, state.check_writable, state.begin, state.send_offsets):
        with pytest.raises(AbortableError) as raised:
            call()
        assert raised.value.__cause__ is reason
        assert isinstance(raised.value.__cause__, TopicForbidden)
    state.begin_abort()
    state.on_end_asked()
    state.on_ended(handle(1))
    state.finish()
    state.begin()


def test_the_first_failure_is_the_one_that_is_raised() -> None:
    state = active()
    state.on_record_failed(InvalidRecord("first"), was_sent=True)
    state.on_record_failed(InvalidRecord("second"), was_sent=True)
    with pytest.raises(AbortableError, match="first"):
        state.begin_commit()


@pytest.mark.parametrize(
    "error",
    [
        error_for(ErrorCode.PRODUCER_FENCED, "t"),
        error_for(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "t"),
        UnsupportedVersion("too old"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("phase", ["active", "committing", "aborting"])
def test_a_fatal_error_ends_everything(error: ClientError, phase: str) -> None:
    state = active()
    if phase == "committing":
        state.begin_commit()
    elif phase == "aborting":
        state.begin_abort()
    state.on_record_failed(error, was_sent=True)
    assert state.phase is Phase.FATAL
    for call in (state.begin, state.begin_commit, state.begin_abort, state.check_writable):
        with pytest.raises(type(error)):
            call()


def test_a_failure_after_the_abort_has_begun_changes_nothing() -> None:
    state = active()
    state.begin_abort()
    state.on_record_failed(DeliveryTimedOut("dropped"), was_sent=False)
    assert state.phase is Phase.ABORTING


def test_an_epoch_that_is_too_old_for_a_broker_is_left_to_the_coordinator() -> None:
    state = active()
    state.on_record_failed(error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "x"), was_sent=True)
    assert state.phase is Phase.ABORTABLE
    state.begin_abort()
    state.on_end_asked()
    state.on_failed(judged(ApiKey.END_TXN, error_for(ErrorCode.PRODUCER_FENCED, "t")))
    with pytest.raises(ProducerFenced):
        state.begin()


# Two-phase commit and transactions of others


def test_a_prepared_transaction_is_only_ended() -> None:
    state = active()
    state.begin_commit()
    prepared = state.prepare()
    assert prepared == PreparedTransaction(7, 0)
    assert PreparedTransaction.parse(str(prepared)) == prepared
    for call in (state.begin, state.check_writable, state.send_offsets):
        with pytest.raises(InvalidTransactionState, match="is prepared"):
            call()
    state.begin_commit()
    assert state.next_step() is EndStep.TELL


def test_a_prepared_transaction_of_a_predecessor_is_found_at_the_start() -> None:
    state = TransactionState()
    state.initialized(handle(5), PreparedTransaction(7, 3))
    assert state.phase is Phase.PREPARED
    state.begin_abort()
    assert state.next_step() is EndStep.TELL
    state.on_end_asked()
    state.on_ended(handle(6))
    state.finish()
    assert state.prepared is None


@pytest.mark.parametrize("text", ["", "7", "a:1", "7:b"])
def test_what_is_no_prepared_transaction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"id:epoch|invalid literal"):
        PreparedTransaction.parse(text)


def test_a_transaction_of_another_process_cannot_be_ended_here() -> None:
    state = TransactionState()
    state.joined(handle(2))
    state.check_writable()
    assert not state.is_open
    calls: list[Callable[[], object]] = [state.begin, state.begin_commit, state.begin_abort]
    for call in calls:
        with pytest.raises(InvalidTransactionState, match="another process"):
            call()
    state.on_record_failed(InvalidRecord("too large"), was_sent=True)
    with pytest.raises(AbortableError):
        state.check_writable()


# What an error code means

FENCED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH}
FOREIGN = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
}
REQUESTS = (
    ApiKey.PRODUCE,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
)
CODES = sorted(set(ErrorCode) - {ErrorCode.NONE})


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: api.name)
def test_every_code_is_retried_abortable_or_fatal(api: ApiKey) -> None:
    for code in CODES:
        found = verdict(api, code)
        assert (found is Verdict.RETRY) == (code in RETRIABLE), code
        if code in FOREIGN or (code in FENCED and api is not ApiKey.PRODUCE):
            assert found is Verdict.FAIL, code
        if code == ErrorCode.TRANSACTION_ABORTABLE and api is not ApiKey.INIT_PRODUCER_ID:
            assert found is Verdict.ABORT
        error = judged(api, error_for(code, "x"))
        assert isinstance(error, AbortableError) == (found is Verdict.ABORT), code
        assert error.code == code


def test_an_abort_is_never_answered_with_another_abort() -> None:
    for code in CODES:
        assert verdict(ApiKey.END_TXN, code, aborting=True) is not Verdict.ABORT, code


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (ApiKey.ADD_OFFSETS_TO_TXN, ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_MEMBER_ID),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.FENCED_INSTANCE_ID),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.STALE_MEMBER_EPOCH),
        (ApiKey.END_TXN, ErrorCode.UNKNOWN_PRODUCER_ID),
        (ApiKey.PRODUCE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (ApiKey.PRODUCE, ErrorCode.INVALID_TXN_STATE),
        (ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_these_end_the_transaction_and_not_its_producer(api: ApiKey, code: ErrorCode) -> None:
    assert verdict(api, code) is Verdict.ABORT


@pytest.mark.parametrize(
    ("api", "code"),
    [
        (ApiKey.END_TXN, ErrorCode.INVALID_TXN_STATE),
        (ApiKey.ADD_PARTITIONS_TO_TXN, ErrorCode.INVALID_TXN_STATE),
        (ApiKey.PRODUCE, ErrorCode.PRODUCER_FENCED),
        (ApiKey.INIT_PRODUCER_ID, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
    ],
)
def test_these_are_permanent(api: ApiKey, code: ErrorCode) -> None:
    assert verdict(api, code) is Verdict.FAIL


def test_a_permanent_refusal_keeps_its_class() -> None:
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert isinstance(judged(ApiKey.END_TXN, error_for(code, "t")), TransactionForbidden)
    abort = error_for(ErrorCode.TRANSACTION_ABORTABLE, "t")
    assert isinstance(judged(ApiKey.END_TXN, abort, aborting=True), FatalError)
