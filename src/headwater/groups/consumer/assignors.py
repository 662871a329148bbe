"""The assignors of consumer groups: `uniform`, the default, and `range`.

`uniform` gives members equally many partitions and lets them keep what they own. If all members
subscribe to the same topics, each gets the floor or the ceiling of the average, and no partition
moves without need. Otherwise members keep the partitions of topics that they still subscribe to,
free partitions go to the least loaded subscriber, and then partitions are moved from loaded members
to other subscribers until none can be moved to a member that has at least two fewer. Loads can stay
uneven where a topic has no other subscriber, or where only a chain of moves would help.

`range` gives each member of a topic a run of neighbouring partitions. Two topics with as many
partitions and the same members are cut alike, so that a member reads the same numbers of both, and
a join needs no repartitioning. Static members come first, by the names of their instances: a
restart under a new member id then moves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TypeAlias

# Partitions by the id of their topic, never empty.
Partitions: TypeAlias = Mapping[bytes, frozenset[int]]


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as an assignor sees it: the topics it subscribes to, and its current target."""

    topics: Set[bytes]
    current: Partitions
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Assignment:
    """The input of an assignor: the members, and the number of partitions of each topic."""

    members: Mapping[str, Subscriber]
    partitions: Mapping[bytes, int]
    # All members subscribe to the same topics, which allows a simpler and better algorithm.
    homogeneous: bool


Assignor: TypeAlias = Callable[[Assignment], Mapping[str, Partitions]]


def assign_ranges(question: Assignment) -> Mapping[str, Partitions]:
    members = question.members
    order = sorted(
        members,
        key=lambda member: (
            members[member].instance_id is None,
            members[member].instance_id or member,
        ),
    )
    readers: dict[bytes, list[str]] = {}
    for member in order:
        for topic in members[member].topics:
            readers.setdefault(topic, []).append(member)
    answer: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in order}
    for topic, names in readers.items():
        share, extra = divmod(question.partitions[topic], len(names))
        start = 0
        for index, member in enumerate(names):
            end = start + share + (index < extra)
            if end == start:
                break
            answer[member][topic] = frozenset(range(start, end))
            start = end
    return answer


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

    # One more than the floor goes first to members that own more than the floor already; giving it
    # to others would move a partition from one member to another.
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
    """Returns as much of `current` as fits the quota; adds the rest to what is free."""
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


# Topics are levelled one after the other, and levelling one may unlevel another. Each move makes
# the loads more even, so this ends by itself; the limit bounds how long other groups have to wait.
_ROUNDS_MAX = 16


def assign_mixed(question: Assignment) -> Mapping[str, Partitions]:
    names = sorted(question.members)
    readers: dict[bytes, list[int]] = {}
    for index, name in enumerate(names):
        for topic in question.members[name].topics:
            readers.setdefault(topic, []).append(index)
    # The most constrained first: many partitions for few readers.
    topics = sorted(
        readers,
        key=lambda topic: (
            -question.partitions[topic] / len(readers[topic]),
            len(readers[topic]),
            topic,
        ),
    )
    owners: dict[bytes, list[int]] = {topic: [-1] * question.partitions[topic] for topic in topics}
    loads = [0] * len(names)
    for index, name in enumerate(names):
        member = question.members[name]
        for topic, partitions in member.current.items():
            if topic in member.topics:
                for partition in partitions:
                    owners[topic][partition] = index
                loads[index] += len(partitions)
    for topic in topics:
        _hand_out(owners[topic], readers[topic], loads)
    for _ in range(_ROUNDS_MAX):
        if not sum(_level(owners[topic], readers[topic], loads) for topic in topics):
            break
    return _by_member(names, owners)


def _hand_out(owners: list[int], readers: list[int], loads: list[int]) -> None:
    """Gives each partition without an owner to the reader with the fewest."""
    if -1 not in owners:
        return
    least = [(loads[reader], reader) for reader in readers]
    heapify(least)
    for partition, owner in enumerate(owners):
        if owner == -1:
            load, reader = least[0]
            owners[partition] = reader
            loads[reader] = load + 1
            heapreplace(least, (load + 1, reader))


def _level(owners: list[int], readers: list[int], loads: list[int]) -> int:
    """Moves partitions of one topic until its readers are level; returns how many it moved."""
    lowest = min(map(loads.__getitem__, readers))
    highest = max(map(loads.__getitem__, owners), default=0)
    if highest - lowest < 2:
        return 0
    owned: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        owned.setdefault(owner, []).append(partition)
    most = [(-loads[owner], owner) for owner in owned]
    least = [(loads[reader], reader) for reader in readers]
    heapify(most)
    heapify(least)
    moved = 0
    while most:
        load, giver = -most[0][0], most[0][1]
        if load != loads[giver]:  # it has received a partition since it was queued
            heapreplace(most, (-loads[giver], giver))
            continue
        spare, taker = least[0]
        if spare != loads[taker]:
            heapreplace(least, (loads[taker], taker))
            continue
        if load - spare < 2:
            break
        partition = owned[giver].pop()
        owners[partition] = taker
        loads[giver] -= 1
        loads[taker] += 1
        moved += 1
        if owned[giver]:
            heapreplace(most, (-loads[giver], giver))
        else:
            heappop(most)
        heapreplace(least, (loads[taker], taker))
    return moved


def _by_member(names: list[str], owners: dict[bytes, list[int]]) -> Mapping[str, Partitions]:
    found: list[dict[bytes, set[int]]] = [{} for _ in names]
    for topic, topic_owners in owners.items():
        for partition, owner in enumerate(topic_owners):
            found[owner].setdefault(topic, set()).add(partition)
    return {
        name: {topic: frozenset(partitions) for topic, partitions in mine.items()}
        for name, mine in zip(names, found, strict=True)
    }


ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
