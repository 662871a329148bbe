"""Committing or aborting a transaction."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import Int16, Int32, Int64, Message, ignorable, message, since


@message(api=26, versions=(0, 5), flexible=3)
class EndTxnRequest(Message):
    """Commit, or abort."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    committed: bool


@message(api=26, versions=(0, 5), flexible=3)
class EndTxnResponse(Message):
    """The outcome, and from version 5 on the producer id and epoch to continue with."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Annotated[Int64, since(5), ignorable] = -1
    producer_epoch: Annotated[Int16, since(5), ignorable] = -1
