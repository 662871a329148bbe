"""The `range` assignor: each topic is cut into one run of partitions for each of its readers.

Two topics with as many partitions and the same readers are cut alike, so that a member reads the
same numbers of both, and a join needs no repartitioning. Static members come first, by the names
of their instances: a restart under a new member id then moves nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.groups.consumer.assignment import Assignment, Partitions


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
