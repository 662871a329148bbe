"""The consumer: records of topics, alone or as a member of a group."""

from __future__ import annotations

from types import GenericAlias

from headwater._core import ConsumedRecord
from headwater.client.consumer.bad_records import DeadLetter
from headwater.client.consumer.consumer import Consumer
from headwater.client.consumer.listener import RebalanceListener
from headwater.client.requests.list_offsets import OffsetAndTimestamp
from headwater.client.requests.offset_commit import GroupMetadata, OffsetAndMetadata

# Type checkers know records as generic; annotations that are evaluated need a subscript, too.
ConsumedRecord.__class_getitem__ = classmethod(GenericAlias)  # type: ignore[attr-defined]

__all__ = [
    "ConsumedRecord",
    "Consumer",
    "DeadLetter",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
]
