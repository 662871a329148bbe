"""Slow, plain twins of the assignors: they say how good an assignment can be, by trying."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

from headwater.groups.consumer.assignors import Assignment, Partitions


def every_partition_once(question: Assignment, answer: Mapping[str, Partitions]) -> None:
    """Each partition that somebody wants has one owner, who wants it."""
    owners: dict[tuple[bytes, int], str] = {}
    for member, partitions in answer.items():
        for topic, numbers in partitions.items():
            assert numbers, "an empty set is no assignment"
            assert topic in question.members[member].topics
            for number in numbers:
                assert (topic, number) not in owners
                assert 0 <= number < question.partitions[topic]
                owners[topic, number] = member
    wanted = {topic for member in question.members.values() for topic in member.topics}
    assert set(owners) == {(t, n) for t in wanted for n in range(question.partitions[t])}


def loads(answer: Mapping[str, Partitions]) -> dict[str, int]:
    return {member: sum(map(len, mine.values())) for member, mine in answer.items()}


def moved(question: Assignment, answer: Mapping[str, Partitions]) -> int:
    """Counts the partitions that were taken from members that still want them."""
    return sum(
        len(numbers - answer[member].get(topic, frozenset()))
        for member, subscriber in question.members.items()
        for topic, numbers in subscriber.current.items()
        if topic in subscriber.topics
    )


def fewest_moves(question: Assignment) -> int:
    """The fewest that any even assignment moves, where all members want the same: by trying who
    gets one more than the floor."""
    members = list(question.members)
    topics = question.members[members[0]].topics
    total = sum(question.partitions[topic] for topic in topics)
    floor, extra = divmod(total, len(members))
    owned = [
        sum(len(question.members[member].current.get(topic, ())) for topic in topics)
        for member in members
    ]
    return min(
        sum(max(0, have - floor - more) for have, more in zip(owned, choice, strict=True))
        for choice in product((0, 1), repeat=len(members))
        if sum(choice) == extra
    )


def single_moves(question: Assignment, answer: Mapping[str, Partitions]) -> list[str]:
    """Partitions that could go to somebody who wants them and has at least two fewer."""
    count = loads(answer)
    return [
        f"{topic!r}: {giver} ({count[giver]}) to {taker} ({count[taker]})"
        for giver, partitions in answer.items()
        for topic in partitions
        for taker, subscriber in question.members.items()
        if topic in subscriber.topics and count[giver] - count[taker] >= 2
    ]


def ranges(question: Assignment) -> dict[str, dict[bytes, frozenset[int]]]:
    """The `range` assignor, one partition at a time."""
    answer: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in question.members}
    for topic, count in question.partitions.items():
        static = sorted(
            (subscriber.instance_id, member)
            for member, subscriber in question.members.items()
            if topic in subscriber.topics and subscriber.instance_id is not None
        )
        dynamic = sorted(
            member
            for member, subscriber in question.members.items()
            if topic in subscriber.topics and subscriber.instance_id is None
        )
        readers = [member for _, member in static] + dynamic
        if not readers:
            continue
        sizes = [0] * len(readers)
        for turn in range(count):
            sizes[turn % len(readers)] += 1
        start = 0
        for reader, size in zip(readers, sizes, strict=True):
            if size:
                answer[reader][topic] = frozenset(range(start, start + size))
            start += size
    return answer
