"""Which topics a producer has stopped sending to (KIP-526).

A machine. What is followed is asked for again and again, and a broker that creates topics on demand
would bring back one that was deleted long after the last record.
"""

from __future__ import annotations

from collections.abc import Mapping

_BUSY = -1  # differs from whatever is counted next


class IdleTopics:
    """Looked at every metadata.max.idle.ms. Between two looks only batches are counted, which is
    done anyway; so a topic is let go after once to twice that time, and a record costs nothing."""

    def __init__(self) -> None:
        self._batches: dict[str, int] = {}  # of each topic at the last look

    def follow(self, topic: str) -> None:
        self._batches[topic] = _BUSY

    def look(self, activity: Mapping[str, int | None]) -> list[str]:
        """The topics that have had no batch since the last look; they are followed no more.
        `activity` has how many they have had by now, or None while one is open or under way."""
        idle = []
        for topic, before in self._batches.items():
            count = activity.get(topic, 0)
            if count == before:
                idle.append(topic)
            else:
                self._batches[topic] = _BUSY if count is None else count
        for topic in idle:
            del self._batches[topic]
        return idle
