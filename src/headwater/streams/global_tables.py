"""Copies of whole topics in Spark's workers, for joins by any column of a stream.

A worker keeps its copy from one micro-batch to the next and reads on where it was: up to the
offsets that the driver has looked up for the batch, so that all tasks of a batch see as much.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from headwater.blocking import Consumer, TopicPartition
from headwater.io import process_id
from headwater.streams.serde import Serde
from headwater.streams.types import Shape

Offsets = Mapping[int, int]  # where each partition ends
_OPEN_MAX = 8  # copies in a worker


class Copies(Protocol):
    """The source from which workers copy a topic. It is sent to them."""

    def ends(self) -> Offsets | None:
        """Returns where the topic ends now. Called on the driver, for each micro-batch."""
        ...

    def open(self, ends: Offsets | None) -> Mapping[bytes, bytes]:
        """Returns the latest value of each key, up to these offsets at least; None: as it is now.
        Called in the workers."""
        ...


@dataclass(frozen=True, slots=True)
class TopicCopies:
    """Copies of a topic of a cluster."""

    bootstrap: str
    settings: tuple[tuple[str, str], ...]
    topic: str

    def ends(self) -> Offsets | None:
        with self._consumer() as consumer:
            partitions = consumer.partitions_for(self.topic)
            found = consumer.end_offsets(*partitions)
        return {each.partition: found[each] for each in partitions}

    def open(self, ends: Offsets | None) -> Mapping[bytes, bytes]:
        name = (process_id(), self)
        copy = _copies.pop(name, None)
        if copy is None:
            copy = _Copy(self._consumer(), self.topic)
        _copies[name] = copy  # in the order of their last use
        while len(_copies) > _OPEN_MAX:
            _copies.pop(next(iter(_copies))).close()
        copy.catch_up(ends)
        return copy.values

    def _consumer(self) -> Consumer[Any, Any]:
        return Consumer(
            self.bootstrap,
            config=dict(self.settings),
            isolation_level="read_committed",
            allow_auto_create_topics=False,
        )


class _Copy:
    def __init__(self, consumer: Consumer[Any, Any], topic: str) -> None:
        self.values: dict[bytes, bytes] = {}
        self._consumer = consumer
        self._topic = topic
        self._partitions: list[TopicPartition] = []
        consumer.__enter__()
        self._read(consumer.partitions_for(topic))

    def _read(self, partitions: Sequence[TopicPartition]) -> None:
        """Reads these partitions as well, from their beginning."""
        new = [each for each in partitions if each not in self._partitions]
        if new:
            self._partitions += new
            self._consumer.assign(self._partitions)
            self._consumer.seek_to_beginning(*new)

    def catch_up(self, ends: Offsets | None) -> None:
        if ends is None:
            found = self._consumer.end_offsets(*self._partitions)
            ends = {each.partition: offset for each, offset in found.items()}
        self._read([TopicPartition(self._topic, number) for number in ends])  # it may have grown
        while any(
            self._consumer.position(each) < ends.get(each.partition, 0) for each in self._partitions
        ):
            for record in self._consumer.poll(timeout_ms=1000):
                if record.key is None:
                    continue
                if record.value is None:
                    self.values.pop(record.key, None)
                else:
                    self.values[record.key] = record.value

    def close(self) -> None:
        self._consumer.close()


# Keyed by process, because a fork must not use its parent's sockets.
_copies: dict[tuple[int, TopicCopies], _Copy] = {}


class Lookup:
    """Joins the columns of a row with those of the table's value for its key."""

    def __init__(
        self,
        copies: Copies,
        ends: Offsets | None,
        *,
        column: str,
        how: str,
        combine: Callable[[Any, Any], dict[str, Any] | None],
        key: Serde[Any],
        load_key: Callable[[Any], Any],
        value: Serde[Any],
        shape: Shape,
    ) -> None:
        self._copies = copies
        self._ends = ends
        self._column = column
        self._how = how
        self._combine = combine
        self._key = key
        self._load_key = load_key
        self._value = value
        self._shape = shape
        self._table: Mapping[bytes, bytes] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def __call__(self, columns: dict[str, Any]) -> list[dict[str, Any]]:
        if self._table is None:
            self._table = self._copies.open(self._ends)
        left = dict(columns)
        key = left.pop(self._column)
        data = None
        if key is not None:
            data = self._table.get(self._key.encode(self._load_key(key)))
        if data is None and self._how == "inner":
            return []
        right = None if data is None else self._shape.to_row(self._value.decode(data))
        found = self._combine(left, right)
        return [] if found is None else [found]
