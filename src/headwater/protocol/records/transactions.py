"""Records of transactions: the coordinator's log, and the markers in the logs of partitions."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int8, Int16, Int32, Int64, Message, message, tag


@message(api=0, versions=(0, 0), flexible=None)
class TransactionLogKey(Message):
    """Identifies a transactional id."""

    transactional_id: str


@message(api=0, versions=(0, 1), flexible=1)
class TransactionLogValue(Message):
    """The state of a transaction."""

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
    """One of the `transaction_partitions` of `TransactionLogValue`."""

    topic: str
    partition_ids: list[Int32] = []


@message(versions=(0, 0), flexible=None)
class EndTxnMarker(Message):
    """The value of the control record that ends a transaction in a partition."""

    coordinator_epoch: Int32


@message(versions=(0, 0), flexible=None)
class AbortedTxn(Message):
    """An entry of a transaction index: an aborted transaction, and how far it reached."""

    producer_id: Int64
    first_offset: Int64
    last_offset: Int64
    last_stable_offset: Int64


@message(versions=(0, 0), flexible=None)
class ControlRecordTypeSchema(Message):
    """The key of a control record: what kind it is."""

    type: Int16
