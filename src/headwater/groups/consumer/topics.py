"""What the consumer groups of a shard know of the topics; each topic is hashed once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from headwater.groups.consumer.assignment import Partitions
from headwater.groups.consumer.hashing import group_hash, topic_hash
from headwater.groups.decision import TopicsView
from headwater.model import TopicPartition


class _Hashed(NamedTuple):
    id: bytes
    partitions: int
    racks: Sequence[frozenset[str]]
    hash: int
    seen: int  # in which look at the topics it was last found right


class Topics:
    """The topics as they are now, shared by all groups of a shard."""

    def __init__(self) -> None:
        self._view: TopicsView | None = None
        self._looked_at = 0.0
        self._looks = 0
        self._hashes: dict[str, _Hashed] = {}
        self.names: frozenset[str] = frozenset()
        # Goes up when topics were created: what patterns have matched may be too little now.
        self.version = 0

    def update(self, view: TopicsView, now: float) -> None:
        """Something has changed. Every group passes this on, and the first one's word is enough."""
        if view is self._view and now == self._looked_at:
            return
        self._view, self._looked_at = view, now
        self._looks += 1
        names = frozenset(view.names())
        if not names <= self.names:
            self.version += 1
        self.names = names

    def name(self, topic_id: bytes) -> str | None:
        return self._view.name(topic_id) if self._view is not None else None

    def id(self, name: str) -> bytes | None:
        return self._view.id(name) if self._view is not None else None

    def ids(self, names: Iterable[str]) -> Set[bytes]:
        """The ids of those that exist."""
        if self._view is None:
            return frozenset()
        return {found for name in names if (found := self._view.id(name)) is not None}

    def by_id(self, named: Iterable[TopicPartition]) -> Partitions:
        """Groups partitions by the ids of their topics; topics that do not exist are left out."""
        found: dict[bytes, set[int]] = {}
        for name, number in named:
            topic_id = self.id(name)
            if topic_id is not None:
                found.setdefault(topic_id, set()).add(number)
        return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}

    def by_name(self, partitions: Mapping[bytes, Iterable[int]]) -> list[TopicPartition]:
        """Names the topics of these partitions; topics that do not exist are left out."""
        return [
            TopicPartition(name, number)
            for topic_id, numbers in partitions.items()
            if (name := self.name(topic_id)) is not None
            for number in numbers
        ]

    def partitions(self, names: Iterable[str]) -> dict[bytes, int]:
        """How many partitions those that exist have, by their ids."""
        counts: dict[bytes, int] = {}
        if self._view is not None:
            for name in names:
                topic_id, count = self._view.id(name), self._view.partitions(name)
                if topic_id is not None and count is not None:
                    counts[topic_id] = count
        return counts

    def hash(self, names: Iterable[str]) -> int:
        """One number for all that a group must know of its topics."""
        hashes = ((name, self._hash(name)) for name in names)
        return group_hash((name, found) for name, found in hashes if found is not None)

    def _hash(self, name: str) -> int | None:
        known = self._hashes.get(name)
        if known is not None and known.seen == self._looks:
            return known.hash
        view = self._view
        topic_id = view.id(name) if view is not None else None
        count = view.partitions(name) if view is not None else None
        if view is None or topic_id is None or count is None:
            self._hashes.pop(name, None)
            return None
        racks = view.racks(name)
        if known is not None and known[:3] == (topic_id, count, racks):
            hashed = known.hash
        else:
            hashed = topic_hash(topic_id, name, count, racks)
        self._hashes[name] = _Hashed(topic_id, count, racks, hashed, self._looks)
        return hashed
