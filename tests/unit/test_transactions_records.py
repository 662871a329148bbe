"""The records of transactional ids: which version is written, and what survives it."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode
from headwater.protocol import decode, encode
from headwater.protocol.records.transactions import PartitionsSchema, TransactionLogValue
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.transaction import EPOCH_MAX, Identity, State, Transaction
from tests.support.transaction_shards import FIRST_PRODUCER_ID, TransactionDesk, got, refused, tps

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


def desk_at(transaction_version: int) -> TransactionDesk:
    return TransactionDesk(TransactionSettings(transaction_version=transaction_version))


def value_of(desk: TransactionDesk) -> TransactionLogValue:
    _, version, data = desk.log[-1]
    assert data is not None
    return decode(TransactionLogValue, data, version, 0)


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_values_have_tagged_fields_from_level_1_on(level: int, version: int) -> None:
    desk = desk_at(level)
    client = desk.start()
    desk.add(client, version=3)
    desk.end(client, version=4)
    desk.write_markers()
    assert desk.versions() == [version] * 4
    assert value_of(desk).previous_producer_id == (client.producer_id if version else -1)


def test_an_id_without_a_transaction_has_no_list_of_partitions() -> None:
    desk = desk_at(2)
    client = desk.start()
    assert value_of(desk).transaction_partitions is None
    assert value_of(desk).transaction_start_timestamp_ms == -1
    desk.add(client, "b:0 a:2,1")
    partitions = value_of(desk).transaction_partitions
    assert partitions == [
        PartitionsSchema(topic="a", partition_ids=[1, 2]),
        PartitionsSchema(topic="b", partition_ids=[0]),
    ]
    desk.end(client)
    assert value_of(desk).transaction_partitions == partitions
    desk.write_markers()
    assert value_of(desk).transaction_partitions == []
    assert value_of(desk).transaction_start_timestamp_ms == desk.now_ms


def test_a_raise_of_the_level_leaves_open_transactions_as_they_are() -> None:
    desk = desk_at(0)
    client = desk.start()
    desk.add(client, "a:0", version=3)
    desk.set_version(2)
    assert desk.add(client, "a:1", version=3) is NONE
    assert desk.end(client, version=4) is NONE
    assert desk.markers[0].producer_epoch == client.epoch
    assert desk.markers[0].transaction_version == 0
    desk.write_markers()
    assert desk.versions() == [0, 0, 1, 1, 1]
    assert desk.add(client, "a:0", version=5) is NONE
    assert desk.end(client, version=5) == client.raised


def test_a_client_of_version_2_ends_its_transaction_after_a_downgrade_to_level_0() -> None:
    desk = desk_at(2)
    client = desk.start()
    desk.add(client, "a:0")
    desk.set_version(0)
    assert desk.add(client, "a:1") is NONE
    assert desk.end(client) == client.raised
    desk.restart()
    assert desk.markers[0].transaction_version == 2
    desk.write_markers()
    desk.restart()
    assert desk.end(client) == client.raised  # repeated
    assert desk.versions() == [1] * 5  # or a new coordinator could not tell
    # A new instance begins with values that anybody reads.
    again = desk.start()
    desk.add(again, version=3)
    desk.end(again, version=4)
    desk.write_markers()
    assert desk.versions()[5:] == [0] * 4


def test_a_new_producer_id_survives_a_downgrade_to_level_0() -> None:
    desk = desk_at(0)
    desk.load(
        TransactionLogValue(
            producer_id=7,
            producer_epoch=EPOCH_MAX - 1,
            transaction_timeout_ms=60_000,
            transaction_status=State.EMPTY,
            transaction_partitions=None,
            transaction_last_update_timestamp_ms=desk.now_ms,
            transaction_start_timestamp_ms=-1,
        )
    )
    old = Identity(7, EPOCH_MAX - 1)
    desk.add(old)
    assert desk.end(old) == (FIRST_PRODUCER_ID, 0)
    desk.restart()
    desk.write_markers()
    assert desk.who() == (FIRST_PRODUCER_ID, 0)
    assert desk.end(old) == (FIRST_PRODUCER_ID, 0)


@pytest.mark.parametrize("level", [0, 1])
def test_below_level_2_a_fenced_transaction_has_markers_of_version_1(level: int) -> None:
    desk = desk_at(level)
    client = desk.start()
    desk.add(client, version=5)
    assert refused(desk.init()) is CONCURRENT
    assert desk.markers[0].transaction_version == 0
    assert desk.markers[0].producer_epoch == client.epoch + 1


def test_fields_of_a_newer_version_are_kept() -> None:
    desk = desk_at(2)
    tags = {9: b"later", 70: b""}
    desk.load(
        TransactionLogValue(
            producer_id=7,
            producer_epoch=3,
            transaction_timeout_ms=60_000,
            transaction_status=State.ONGOING,
            transaction_partitions=[PartitionsSchema(topic="a", partition_ids=[0])],
            transaction_last_update_timestamp_ms=desk.now_ms,
            transaction_start_timestamp_ms=desk.now_ms,
            previous_producer_id=7,
            client_transaction_version=2,
            unknown_tags=tags,
        )
    )
    client = Identity(7, 3)
    for step in (
        lambda: desk.add(client, "a:1"),
        lambda: desk.end(client),
        lambda: desk.write_markers(),
        lambda: desk.init(),
    ):
        step()
        assert value_of(desk).unknown_tags == tags
        assert desk.written
    desk.set_version(0)
    assert got(desk.init()) == (7, 6)
    assert value_of(desk).unknown_tags is None  # values of level 0 have no place for them
    assert desk.versions()[-1] == 0


@pytest.mark.parametrize("level", [1, 2])
def test_a_transaction_is_what_its_value_says(level: int) -> None:
    transaction = Transaction(
        State.ONGOING,
        producer_id=7,
        producer_epoch=3,
        timeout_ms=1000,
        updated_ms=20,
        started_ms=10,
        partitions=tuple(tps("a:0,2 b:1")),
        previous_producer_id=6,
        next_producer_id=8,
        next_producer_epoch=0,
        client_version=2,
        unknown_tags={5: b"x"},
    )
    value = transaction.value(level)
    assert Transaction.of(decode(TransactionLogValue, encode(value, 1), 1, 0)) == transaction


def test_a_state_that_no_kafka_writes_is_not_accepted() -> None:
    value = Transaction.created(Identity(1, 0), timeout_ms=1, now_ms=0).value(2)
    value.transaction_status = 9
    with pytest.raises(ValueError, match="9"):
        Transaction.of(value)
