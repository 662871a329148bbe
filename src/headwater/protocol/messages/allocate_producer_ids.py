"""Getting a block of producer ids from the controller."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Int64, Message, message


@message(api=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsRequest(Message):
    """Asks for a block of producer ids."""

    broker_id: Int32
    broker_epoch: Int64 = -1


@message(api=67, versions=(0, 0), flexible=0)
class AllocateProducerIdsResponse(Message):
    """The block."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id_start: Int64 = 0
    producer_id_len: Int32 = 0
