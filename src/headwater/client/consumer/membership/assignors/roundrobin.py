"""`roundrobin`: all partitions of all topics, dealt out like cards to those who want them."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.client.consumer.membership.assignors.model import (
    GroupMember,
    LastAssignment,
    Topics,
    in_order,
)
from headwater.model import TopicPartition


class RoundRobinAssignor:
    name = "roundrobin"
    cooperative = False

    def user_data(self, last: LastAssignment | None) -> bytes | None:
        return None

    def assign(
        self, topics: Topics, members: Mapping[str, GroupMember]
    ) -> dict[str, list[TopicPartition]]:
        order = in_order(members)
        answer: dict[str, list[TopicPartition]] = {member_id: [] for member_id in order}
        wanted = frozenset[str]().union(*(member.topics for member in members.values()))
        turn = 0
        for topic in sorted(wanted & topics.keys()):
            for number in range(len(topics[topic])):
                while topic not in members[order[turn % len(order)]].topics:
                    turn += 1
                answer[order[turn % len(order)]].append(TopicPartition(topic, number))
                turn += 1
        return answer
