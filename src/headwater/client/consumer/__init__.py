"""The consumer: records of topics, alone or as a member of a group."""

from __future__ import annotations

from headwater._core import ConsumedRecord
from headwater.client.consumer.bad_records import DeadLetter
from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.consumer.offsets import OffsetAndTimestamp
from headwater.client.requests.offset_commit import OffsetAndMetadata

__all__ = [
    "ConsumedRecord",
    "Consumer",
    "DeadLetter",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
]
