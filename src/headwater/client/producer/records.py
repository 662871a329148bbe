"""The records that go into a producer, and where they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from headwater.client.timestamps import Timestamp

# A mapping or pairs: names with bytes, text or None.
Headers = Mapping[str, Any] | Sequence[tuple[str, Any]]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as the user wrote it, before serialization; interceptors see it."""

    topic: str
    value: Any = None
    key: Any = None
    headers: Headers | None = None
    timestamp: Timestamp | None = None  # None: the time at which it is queued
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """The place of an acknowledged record. A tuple, since one is made for each awaited record."""

    topic: str
    partition: int
    offset: int  # -1 with acks=0, and where the broker knows only that it is a duplicate
    timestamp: int  # ms since 1970: the record's, or the broker's if the topic uses log append time
    key_size: int  # bytes as sent; -1 if there is none
    value_size: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"
