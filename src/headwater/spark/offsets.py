"""Offsets of a query: how a checkpoint keeps them, and how many a micro-batch takes.

Pure functions. The JSON is that of Spark's own Kafka source, `{"orders": {"0": 23}}`, and beside
the topics `"@ids"` with the topics' ids, so that a topic that was deleted and created again is
noticed. A checkpoint of Spark's own source, which has no ids, is accepted.
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

_IDS = "@ids"  # not a valid name of a topic

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class SourceOffset:
    """The next offset of each partition, and the ids of the topics."""

    offsets: Offsets
    ids: Mapping[str, bytes] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns JSON in a fixed order: Spark compares texts to find out whether there is data."""
        found: dict[str, Any] = {}
        for tp in sorted(self.offsets):
            found.setdefault(tp.topic, {})[str(tp.partition)] = self.offsets[tp]
        known = {topic: id_text(self.ids[topic]) for topic in sorted(self.ids) if topic in found}
        return found | ({_IDS: known} if known else {})

    @classmethod
    def from_json(cls, parsed: Any, subscription: Subscription) -> SourceOffset:
        """Reads an entry of a checkpoint. CheckpointError if it belongs to another query."""
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
        f"{subscription}: the checkpoint has {json.dumps(parsed)[:200]}, which are not offsets "
        "of topics: it belongs to another query; give this one a checkpoint of its own"
    )


def recreated(start: SourceOffset, end: SourceOffset) -> list[str]:
    """Returns topics whose id has changed. Unknown ids are ignored."""
    return sorted(
        topic
        for topic, now in end.ids.items()
        if ZERO_ID not in (now, start.ids.get(topic, ZERO_ID)) and start.ids[topic] != now
    )


def begin(start: SourceOffset, end: SourceOffset, earliest: Offsets) -> Offsets:
    """Returns the offset at which the read of each partition of `end` begins: where the last read
    ended, or at the log start for new partitions and recreated topics."""
    recreated_topics = set(recreated(start, end))
    return {
        tp: earliest.get(tp, 0)
        if tp.topic in recreated_topics or tp not in start.offsets
        else start.offsets[tp]
        for tp in end.offsets
    }


# The size of a micro-batch


def limited_by_count(start: Offsets, end: Offsets, count_max: int) -> dict[TopicPartition, int]:
    """Limits the end to about `count_max` offsets, each partition by its share of the backlog. A
    partition with a backlog gets at least one, so that none starves."""
    return _limited(start, end, dict.fromkeys(end, 1.0), count_max)


def limited_by_bytes(
    start: Offsets, end: Offsets, bytes_max: int, bytes_each: Mapping[TopicPartition, float]
) -> dict[TopicPartition, int]:
    """Limits the end to about `bytes_max`, with the bytes that each offset of a partition takes."""
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
    """Returns partitions whose unread records are among the oldest in the log, where retention has
    deleted records before: what it deletes next may not have been read."""
    return [
        tp
        for tp, offset in sorted(read_to.items())
        if tp in earliest
        and tp in latest
        and earliest[tp] > 0
        and offset < latest[tp]
        and offset - earliest[tp] < fraction * (latest[tp] - earliest[tp])
    ]
