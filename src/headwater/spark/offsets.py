"""Positions in topics: how a checkpoint keeps them, and what lies between two of them.

Pure functions. The JSON is that of Spark's own Kafka source, `{"orders": {"0": 23}}`, and beside
the topics `"@ids"` with the topics' ids, so that a topic that was deleted and made anew is noticed.
A checkpoint that Spark's source wrote is taken as it is: it has no ids.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.model import ZERO_ID, TopicPartition, id_from_text, id_text
from headwater.spark.errors import CheckpointError
from headwater.spark.options import Subscription

_IDS = "@ids"  # no topic can be called so

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset of each partition, and which topics they belong to."""

    offsets: Offsets
    ids: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """In a fixed order: Spark compares the text to find out whether anything is new."""
        found: dict[str, Any] = {}
        for tp in sorted(self.offsets):
            found.setdefault(tp.topic, {})[str(tp.partition)] = self.offsets[tp]
        known = {topic: id_text(self.ids[topic]) for topic in sorted(self.ids) if topic in found}
        return found | ({_IDS: known} if known else {})

    @classmethod
    def from_json(cls, parsed: Any, subscription: Subscription) -> Position:
        """Reads what a checkpoint has, or CheckpointError."""
        if not isinstance(parsed, Mapping):
            raise _foreign(parsed, subscription)
        offsets: dict[TopicPartition, int] = {}
        ids: dict[str, bytes] = {}
        for topic, content in parsed.items():
            if not isinstance(content, Mapping):
                raise _foreign(parsed, subscription)
            for name, value in content.items():
                if topic == _IDS:
                    ids[name] = id_from_text(value)
                elif name.isdigit() and isinstance(value, int):
                    offsets[TopicPartition(topic, int(name))] = value
                else:
                    raise _foreign(parsed, subscription)
        strangers = sorted({tp.topic for tp in offsets if not subscription.wants(tp)})
        if strangers:
            raise CheckpointError(
                f"the checkpoint has offsets of {', '.join(strangers)}, which this query does not "
                f"read ({subscription}): give the query a checkpoint of its own"
            )
        return cls(offsets, ids)


def _foreign(parsed: Any, subscription: Subscription) -> CheckpointError:
    return CheckpointError(
        f"{subscription}: the checkpoint has {json.dumps(parsed)[:200]}, which are no offsets of "
        "topics: it belongs to another query; give this one a checkpoint of its own"
    )


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """Offsets of one partition, `end` exclusive."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = ZERO_ID

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be read, and each way in which records may have been lost, as a sentence."""

    ranges: tuple[Range, ...]
    losses: tuple[str, ...] = ()


def recreated(start: Position, end: Position) -> list[str]:
    """Topics that have another id than before. An id that is not known is no reason to doubt."""
    return sorted(
        topic
        for topic, now in end.ids.items()
        if ZERO_ID not in (now, start.ids.get(topic, ZERO_ID)) and start.ids[topic] != now
    )


def begin(start: Position, end: Position, earliest: Offsets) -> Offsets:
    """Where the reading of each partition of `end` begins: where it stopped, or, for partitions
    that are new and for topics that were made anew, at the first record there is."""
    anew = set(recreated(start, end))
    return {
        tp: earliest.get(tp, 0)
        if tp.topic in anew or tp not in start.offsets
        else start.offsets[tp]
        for tp in end.offsets
    }


def plan(start: Position, end: Position, earliest: Offsets) -> Plan:
    """The ranges between two positions. `earliest` has the first offsets of new partitions, and
    of others if they are known."""
    losses = [
        f"topic {topic} was deleted and made anew: its id was {id_text(start.ids[topic])} and is "
        f"{id_text(end.ids[topic])}; what was not read of the old one is gone"
        for topic in recreated(start, end)
    ]
    losses += [
        f"{tp} is gone; it was read up to offset {start.offsets[tp]}"
        for tp in sorted(start.offsets)
        if tp not in end.offsets
    ]
    anew = set(recreated(start, end))
    ranges = []
    for tp, first in sorted(begin(start, end, earliest).items()):
        last = end.offsets[tp]
        if tp.topic not in anew:
            if tp not in start.offsets and first > 0:
                losses.append(f"{tp} is new and starts at offset {first} instead of 0")
            if last < first:
                losses.append(f"{tp} was read up to offset {first} and ends at {last} now")
            elif tp in start.offsets and first < min(earliest.get(tp, 0), last):
                losses.append(
                    f"{tp} was read up to offset {first}; the records up to "
                    f"{min(earliest[tp], last)} are gone, by retention or deletion"
                )
                first = min(earliest[tp], last)
        if last > first:
            ranges.append(
                Range(tp.topic, tp.partition, first, last, end.ids.get(tp.topic, ZERO_ID))
            )
    return Plan(tuple(ranges), tuple(losses))


# How much of what is there one micro-batch takes


def limited_by_count(start: Offsets, end: Offsets, count_max: int) -> dict[TopicPartition, int]:
    """At most about so many offsets, each partition by its share of what waits; every partition
    that has something gets at least one, so that none starves."""
    return _limited(start, end, dict.fromkeys(end, 1.0), count_max)


def limited_by_bytes(
    start: Offsets, end: Offsets, bytes_max: int, bytes_each: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """At most about so many bytes, where an offset of a partition stands for so many."""
    return _limited(start, end, bytes_each, bytes_max)


def _limited(
    start: Offsets, end: Offsets, weights: Mapping[TopicPartition, float], most: float
) -> dict[TopicPartition, int]:
    waiting = {tp: max(0, last - start.get(tp, 0)) for tp, last in end.items()}
    total = sum(count * weights[tp] for tp, count in waiting.items())
    if total <= most:
        return dict(end)
    share = most / total
    limited = {}
    for tp, last in end.items():
        count = waiting[tp] * share
        whole = math.ceil(count) if count < 1 else math.floor(count)
        limited[tp] = min(last, start.get(tp, 0) + whole) if waiting[tp] else last
    return limited


def waiting_count(start: Offsets, end: Offsets) -> int:
    return sum(max(0, last - start.get(tp, 0)) for tp, last in end.items())


def near_the_end_of_retention(
    read_to: Offsets, earliest: Offsets, latest: Offsets, fraction: float
) -> list[TopicPartition]:
    """Partitions with unread records among the oldest that are left: retention has taken records
    before, and what it takes next is not far from what we have not read."""
    return [
        tp
        for tp, offset in sorted(read_to.items())
        if tp in earliest
        and tp in latest
        and earliest[tp] > 0
        and offset < latest[tp]
        and offset - earliest[tp] < fraction * (latest[tp] - earliest[tp])
    ]
