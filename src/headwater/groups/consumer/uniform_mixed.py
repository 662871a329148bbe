"""The `uniform` assignor for members that want different topics.

Members keep what they own and still want; what is free goes to the least loaded of those who want
it; then partitions are handed down from loaded members to others that want them too, until no
single partition can be moved to someone who has at least two fewer. Loads can stay uneven where
nobody else wants a topic, or where only a chain of moves would help.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heapreplace

from headwater.groups.consumer.assignment import Assignment, Partitions

# Topic after topic is levelled, and levelling one may unlevel another. Each move makes the loads
# more even, so this ends by itself; the bound is for how long a group may make others wait.
_ROUNDS_MAX = 16


def assign_mixed(question: Assignment) -> Mapping[str, Partitions]:
    names = sorted(question.members)
    readers: dict[bytes, list[int]] = {}
    for index, name in enumerate(names):
        for topic in question.members[name].topics:
            readers.setdefault(topic, []).append(index)
    # The hardest first: many partitions for few readers.
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
    """Give each partition that has no owner to the reader with the least."""
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
    """Move partitions of one topic until its owners and readers are level; how many moved."""
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
        if load != loads[giver]:  # it has been given something meanwhile, and is no giver now
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
