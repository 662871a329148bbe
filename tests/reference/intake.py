"""The producer's intake in plain Python: batches are lists, and sizes are found by writing them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.reference.batches import (
    HEADER_BYTES,
    Record,
    encode,
    wrapped,
    write_optional,
    write_varint,
)
from tests.reference.checksums import murmur2

OVERHEAD_MAX = 31  # a record's lengths and deltas, each at its longest
STICKY_NONE = -1


def content(given: Any) -> bytes | None:
    if given is None:
        return None
    return given.encode() if isinstance(given, str) else bytes(given)


def record_of(value: Any, key: Any, headers: Any, timestamp: int) -> Record:
    pairs = headers.items() if isinstance(headers, dict) else headers or ()
    return content(key), content(value), [(name, content(text)) for name, text in pairs], timestamp


def headers_of(record: Record) -> bytes:
    written = write_varint(len(record[2]))
    for name, value in record[2]:
        written += write_optional(name.encode()) + write_optional(value)
    return written


def size_of(records: list[Record]) -> int:
    """Bytes of a batch that is not compressed."""
    size = HEADER_BYTES
    for delta, record in enumerate(records):
        key, value, _, timestamp = record
        body = b"\x00" + write_varint(wrapped(timestamp - records[0][3], bits=64))
        body += write_varint(delta) + write_optional(key) + write_optional(value)
        body += headers_of(record)
        size += len(write_varint(len(body))) + len(body)
    return size


def size_max(record: Record) -> int:
    """Returns the most that a record takes of the buffer, before its place is known."""
    key, value, _, _ = record
    return OVERHEAD_MAX + len(key or b"") + len(value or b"") + len(headers_of(record))


@dataclass
class Topic:
    partitions: int = 0
    open: dict[int, list[Record]] = field(default_factory=dict)
    sticky: int = STICKY_NONE
    sticky_bytes: int = 0
    held: list[tuple[Record, int | None]] = field(default_factory=list)


class Intake:
    """`events` has what the core would call, as tuples; closed batches are in it as bytes."""

    def __init__(
        self, *, batch_bytes: int, buffer_bytes: int, record_bytes_max: int, sticky_bytes: int
    ) -> None:
        self.batch_bytes = batch_bytes
        self.buffer_bytes = buffer_bytes
        self.record_bytes_max = record_bytes_max
        self.sticky_bytes = sticky_bytes
        self.topics: dict[str, Topic] = {}
        self.used = 0
        self.events: list[tuple[Any, ...]] = []
        self.switches = 0

    def submit(self, name: str, record: Record, partition: int | None) -> None:
        size = HEADER_BYTES + size_max(record)
        if size > self.record_bytes_max or size > self.buffer_bytes:
            self.events.append(("too_large", name, size))
            return
        if self.used and self.used + size_max(record) > self.buffer_bytes:
            self.events.append(("full", size))
            return
        topic = self.topics.setdefault(name, Topic())
        if topic.partitions == 0:
            topic.held.append((record, partition))
            self.used += size_max(record)
            if len(topic.held) == 1:
                self.events.append(("unknown", name))
            return
        self._place(name, topic, record, partition)

    def _place(self, name: str, topic: Topic, record: Record, partition: int | None) -> None:
        if partition is not None and partition not in range(topic.partitions):
            self.events.append(("no_partition", name, topic.partitions))
            return
        while True:
            sticks = partition is None and record[0] is None
            if partition is not None:
                chosen = partition
            elif record[0] is not None:
                chosen = (murmur2(record[0]) & 0x7FFFFFFF) % topic.partitions
            else:
                if topic.sticky == STICKY_NONE:
                    self._switch(name, topic)
                chosen = topic.sticky
            batch = topic.open.get(chosen, [])
            if not batch or size_of([*batch, record]) <= self.batch_bytes:
                break
            if sticks and topic.sticky_bytes >= self.sticky_bytes:
                topic.sticky = STICKY_NONE
            self.events.append(("closed", name, chosen, encode(topic.open.pop(chosen))))
        before = size_of(batch) if batch else 0
        topic.open[chosen] = [*batch, record]
        added = size_of(topic.open[chosen]) - before
        self.used += added
        if sticks:
            topic.sticky_bytes += added
        if not batch:
            self.events.append(("opened", name, chosen))

    def _switch(self, name: str, topic: Topic) -> None:
        self.events.append(("switch", name))
        topic.sticky = self.switches % topic.partitions
        topic.sticky_bytes = 0
        self.switches += 1

    def know(self, name: str, partitions: int) -> None:
        topic = self.topics.setdefault(name, Topic())
        topic.partitions = partitions
        if topic.sticky >= partitions:
            topic.sticky = STICKY_NONE
        held, topic.held = topic.held, []
        self.used -= sum(size_max(record) for record, _ in held)
        for record, partition in held:
            self._place(name, topic, record, partition)

    def take(self, name: str, partition: int) -> bytes | None:
        topic = self.topics[name]
        if topic.sticky == partition and topic.sticky_bytes >= self.sticky_bytes:
            topic.sticky = STICKY_NONE
        batch = topic.open.pop(partition, None)
        return None if batch is None else encode(batch)

    def release(self, size: int) -> None:
        self.used -= size
