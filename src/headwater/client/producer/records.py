"""What goes into a producer and what comes out: a record, and where it landed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.client.timestamps import Timestamp

# What a user may give as headers: names with bytes, text or nothing behind them.
Headers = Mapping[str, Any] | Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as the user gave it, before it is serialized: what interceptors see."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None  # None: the time at which it is queued
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is. A tuple, since one is made for each awaited record."""

    topic: str
    partition: int
    offset: int  # -1 with acks=0, and where the broker only knows that it has it already
    timestamp: int  # ms since 1970: the record's own, or the broker's if the topic has its time
    key_size: int  # bytes as they were sent; -1: there is none
    value_size: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"
