"""Producer, Consumer and Admin for scripts and threads: the same names and signatures, no `await`.

from headwater.blocking import Producer

with Producer("localhost:9092") as producer:
    producer.send("orders", key="alice", value=b"...")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater._blocking.admin import Admin
    from headwater._blocking.consumer import Consumer
    from headwater._blocking.exactly_once import TransactionBatch, exactly_once
    from headwater._blocking.producer import Producer
    from headwater.client.admin import NewTopic
    from headwater.client.consumer import (
        ConsumedRecord,
        DeadLetter,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RebalanceListener,
    )
    from headwater.client.producer import PreparedTransaction, ProducerRecord, RecordMetadata

__all__ = [
    "Admin",
    "ConsumedRecord",
    "Consumer",
    "DeadLetter",
    "GroupMetadata",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PreparedTransaction",
    "Producer",
    "ProducerRecord",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
    "TransactionBatch",
    "exactly_once",
]

# Everything but the clients is the same as in `headwater`.
_WHERE = dict.fromkeys(__all__, "headwater") | {
    "Admin": "headwater._blocking.admin",
    "Consumer": "headwater._blocking.consumer",
    "Producer": "headwater._blocking.producer",
    "TransactionBatch": "headwater._blocking.exactly_once",
    "exactly_once": "headwater._blocking.exactly_once",
}


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        module = _WHERE.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
