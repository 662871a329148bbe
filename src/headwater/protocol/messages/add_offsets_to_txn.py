"""Telling the coordinator that a transaction will commit a group's offsets."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Int64, Message, message


@message(api=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest(Message):
    """Add the offsets partition of this group."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message(api=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
