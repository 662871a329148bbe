"""The `uniform` assignor: members own as many partitions as each other, and keep what they own.

If all members want the same topics, each gets the floor or the ceiling of the average, and no
partition moves that need not. If not, see `uniform_mixed`.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.groups.consumer.assignment import Assignment, Partitions
from headwater.groups.consumer.uniform_mixed import assign_mixed


def assign_uniformly(question: Assignment) -> Mapping[str, Partitions]:
    return _assign_alike(question) if question.homogeneous else assign_mixed(question)


def _assign_alike(question: Assignment) -> Mapping[str, Partitions]:
    members = question.members
    if not members:
        return {}
    order = sorted(members)
    topics = sorted(members[order[0]].topics)
    free = {topic: set(range(question.partitions[topic])) for topic in topics}
    for subscriber in members.values():
        for topic, partitions in subscriber.current.items():
            if topic in free:
                free[topic] -= partitions
    share, extra = divmod(sum(question.partitions[topic] for topic in topics), len(order))

    # One more than the floor is given first to those who own more than the floor already; giving it
    # to others would take a partition from one member to hand it to another.
    owned = {
        member: sum(len(members[member].current.get(topic, ())) for topic in topics)
        for member in order
    }
    favoured = sorted(order, key=lambda member: owned[member] <= share)[:extra]
    quota = dict.fromkeys(order, share) | dict.fromkeys(favoured, share + 1)

    answer: dict[str, Partitions] = {}
    wanting: list[str] = []
    for member in order:
        kept: Partitions = members[member].current
        if owned[member] > quota[member] or any(topic not in free for topic in kept):
            kept = _kept(kept, free, quota[member])
        answer[member] = kept
        if owned[member] < quota[member]:
            wanting.append(member)
    rest = iter([(topic, partition) for topic in topics for partition in sorted(free[topic])])
    for member in wanting:
        added: dict[bytes, set[int]] = {}
        for _, (topic, partition) in zip(range(quota[member] - owned[member]), rest, strict=False):
            added.setdefault(topic, set()).add(partition)
        kept = answer[member]
        answer[member] = {
            **kept,
            **{topic: kept.get(topic, frozenset()) | more for topic, more in added.items()},
        }
    assert next(rest, None) is None, "a partition was left over"
    return answer


def _kept(current: Partitions, free: dict[bytes, set[int]], quota: int) -> Partitions:
    """As much of `current` as fits; the rest is added to what is free."""
    kept: dict[bytes, frozenset[int]] = {}
    for topic in sorted(current):
        if topic not in free:
            continue
        partitions = sorted(current[topic])
        if quota:
            kept[topic] = frozenset(partitions[:quota])
        free[topic].update(partitions[quota:])
        quota -= min(quota, len(partitions))
    return kept
