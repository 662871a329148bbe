"""Records of transactions: the coordinator's log, and the markers in the logs of partitions."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, message, tag


@message(api=0, versions=(0, 0), flexible=None)
class TransactionLogKey(Message):
    """The message `TransactionLogKey`."""

    transactional_id: str


@message(api=0, versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    """The message `TransactionLogValue`."""

    producer_id: Int64
    previous_producer_id: Annotated[Int64, tag(0, since=1)] = -1
    next_producer_id: Annotated[Int64, tag(1, since=1)] = -1
    producer_epoch: Int16
    next_producer_epoch: Annotated[Int16, tag(3, since=1)] = -1
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Annotated[Int16, tag(2, since=1)] = 0


class PartitionsSchema(Message):
    """A part of `TransactionLogValue`."""

    topic: str
    partition_ids: list[Int32] = []


@message(versions=(0, 0), flexible=None)
class EndTxnMarker(Message):
    """The message `EndTxnMarker`."""

    coordinator_epoch: Int32


@message(versions=(0, 0), flexible=None)
class AbortedTxn(Message):
    """The message `AbortedTxn`."""

    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64


@message(versions=(0, 0), flexible=None)
class ControlRecordTypeSchema(Message):
    """The message `ControlRecordTypeSchema`."""

    type: Int16
