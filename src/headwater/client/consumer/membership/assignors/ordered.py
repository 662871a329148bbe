"""`range` and `roundrobin`: partitions are assigned to the members in order.

`range` cuts each topic into runs of neighbouring partitions, one for each member. Topics with the
same number of partitions and the same readers are cut alike, so that equal keys meet in one member.
Where racks distinguish partitions, members first get partitions with a replica in their rack, as
far as this keeps the runs equally long and co-partitioned topics alike (KIP-881).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headwater.client.consumer.membership.assignors.model import (
    GroupMember,
    LastAssignment,
    Topics,
    in_order,
    racks_matter,
)
from headwater.model import TopicPartition


class RangeAssignor:
    """Kafka's RangeAssignor."""

    name = "range"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        readers: dict[str, list[str]] = {}
        for member_id in in_order(members):
            for topic in members[member_id].topics:
                readers.setdefault(topic, []).append(member_id)
        cuts = [
            _Cut(topic, topics[topic], readers[topic], members)
            for topic in sorted(readers)
            if topics.get(topic)
        ]
        for alike in _co_partitioned(cuts):
            if len(alike) > 1:
                _match_together(alike)
            elif alike[0].racks_matter:
                alike[0].deal(alike[0].in_rack)
        for cut in cuts:
            cut.deal(lambda _member, _number: True)
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for cut in cuts:
            for member_id, numbers in cut.given.items():
                assignment[member_id] += [TopicPartition(cut.topic, n) for n in sorted(numbers)]
        return assignment


class RoundRobinAssignor:
    """Deals out all partitions of all topics, one by one, to the members that read them."""

    name = "roundrobin"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        order = in_order(members)
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in order}
        wanted = frozenset[str]().union(*(member.topics for member in members.values()))
        turn = 0
        for topic in sorted(wanted & topics.keys()):
            for number in range(len(topics[topic])):
                while topic not in members[order[turn % len(order)]].topics:
                    turn += 1
                assignment[order[turn % len(order)]].append(TopicPartition(topic, number))
                turn += 1
        return assignment


class _Cut:
    """One topic while it is being divided."""

    def __init__(
        self,
        topic: str,
        racks: tuple[frozenset[str], ...],
        readers: list[str],
        members: Mapping[str, GroupMember],
    ) -> None:
        self.topic = topic
        self.racks = racks
        self.readers = readers
        self.given: dict[str, list[int]] = {reader: [] for reader in readers}
        self._rack_of = {reader: members[reader].rack for reader in readers}
        self._free = dict.fromkeys(range(len(racks)))
        self._share, self._extra = divmod(len(racks), len(readers))
        self.racks_matter = racks_matter(racks, filter(None, self._rack_of.values()))

    def room(self, reader: str) -> int:
        """Returns how many more partitions this reader may get."""
        return max(0, self._share + (self._extra > 0) - len(self.given[reader]))

    def in_rack(self, reader: str, number: int) -> bool:
        rack = self._rack_of[reader]
        return rack is None or rack in self.racks[number]

    def give(self, reader: str, numbers: Iterable[int]) -> None:
        for number in numbers:
            del self._free[number]
            self.given[reader].append(number)
        if len(self.given[reader]) > self._share:
            self._extra -= 1

    def deal(self, suits: Callable[[str, int], bool]) -> None:
        for reader in self.readers:
            numbers = [number for number in self._free if suits(reader, number)]
            if some := numbers[: self.room(reader)]:
                self.give(reader, some)


def _co_partitioned(cuts: list[_Cut]) -> list[list[_Cut]]:
    """Groups topics with the same readers and number of partitions, if racks matter at all."""
    if not any(cut.racks_matter for cut in cuts):
        return []
    groups: dict[tuple[tuple[str, ...], int], list[_Cut]] = {}
    for cut in cuts:
        groups.setdefault((tuple(cut.readers), len(cut.racks)), []).append(cut)
    return list(groups.values())


def _match_together(cuts: list[_Cut]) -> None:
    """Gives a partition to the first reader in whose rack it is for all of these topics."""
    for number in range(len(cuts[0].racks)):
        for reader in cuts[0].readers:
            if all(cut.room(reader) and cut.in_rack(reader, number) for cut in cuts):
                for cut in cuts:
                    cut.give(reader, [number])
                break
