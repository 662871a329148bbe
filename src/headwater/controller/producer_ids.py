"""Producer ids, handed to brokers in blocks so that the log sees one record for a thousand."""

from __future__ import annotations

from typing import NamedTuple

from headwater.controller.decision import Decision
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.protocol.records.metadata_topics import ProducerIdsRecord

BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    first: int
    size: int


def allocate(
    state: ControllerState, *, broker_id: int, broker_epoch: int
) -> Decision[ProducerIdBlock]:
    state.check_broker_epoch(broker_id, broker_epoch)
    first = state.image.next_producer_id
    if first > _PRODUCER_ID_MAX - BLOCK_SIZE:
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids have been handed out")
    record = ProducerIdsRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision((record,), ProducerIdBlock(first, BLOCK_SIZE))
