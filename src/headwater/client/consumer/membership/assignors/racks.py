"""Racks (KIP-881): a member reads cheaper from a replica in its own rack.

The sticky assignors first make loads even, as if there were no racks. Then members exchange
partitions for as long as that brings more of them near and leaves loads as even; what is being
handed out anyway goes first, so that little moves that could have stayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.client.consumer.membership.assignors.model import GroupMember, Topics
from headwater.model import TopicPartition

Parts = Mapping[str, Iterable[TopicPartition]]


def racks_matter(partition_racks: Iterable[frozenset[str]], reader_racks: Iterable[str]) -> bool:
    """Whether some partition is in some reader's rack, and another is not in all racks."""
    racks = list(partition_racks)
    everywhere = frozenset[str]().union(*racks)
    return not everywhere.isdisjoint(reader_racks) and any(each != everywhere for each in racks)


def brought_near(
    topics: Topics,
    members: Mapping[str, GroupMember],
    answer: Parts,
    owners: Mapping[TopicPartition, str],
) -> Parts:
    """The answer, with partitions exchanged. `owners` says who had them so far."""
    racks = {
        TopicPartition(topic, number): each
        for topic, partitions in topics.items()
        for number, each in enumerate(partitions)
    }
    if not racks_matter(racks.values(), (each.rack for each in members.values() if each.rack)):
        return answer
    exchange = _Exchange(racks, members, answer)
    exchange.run({tp for each, mine in answer.items() for tp in mine if owners.get(tp) != each})
    exchange.run(racks.keys())
    return exchange.mine


class _Exchange:
    def __init__(
        self,
        racks: Mapping[TopicPartition, frozenset[str]],
        members: Mapping[str, GroupMember],
        answer: Parts,
    ) -> None:
        self.mine: dict[str, dict[TopicPartition, None]] = {}
        self._racks = racks
        self._members = members
        self._in_rack: dict[str, list[str]] = {}
        # Of each member, what it has in each rack, and what is far from it.
        self._held: dict[str, dict[str, dict[TopicPartition, None]]] = {}
        self._far: dict[str, dict[TopicPartition, None]] = {}
        for member_id in sorted(members):
            self.mine[member_id], self._held[member_id], self._far[member_id] = {}, {}, {}
            if (rack := members[member_id].rack) is not None:
                self._in_rack.setdefault(rack, []).append(member_id)
            for tp in sorted(answer[member_id]):
                self._give(member_id, tp)

    def run(self, movable: Iterable[TopicPartition]) -> None:
        """Exchanges among these, until none helps. Each brings one more near, so this ends."""
        may_move = frozenset(movable)
        improved = True
        while improved:
            improved = False
            for member_id, far in self._far.items():
                for tp in [each for each in far if each in may_move]:
                    improved |= tp in far and self._bring_near(tp, member_id, may_move)

    def _bring_near(
        self, tp: TopicPartition, owner: str, may_move: frozenset[TopicPartition]
    ) -> bool:
        for rack in sorted(self._racks[tp]):
            for taker in self._in_rack.get(rack, ()):
                if tp.topic not in self._members[taker].topics:
                    continue
                has_fewer = len(self.mine[taker]) < len(self.mine[owner])
                back = None if has_fewer else self._returned(taker, owner, may_move)
                if back is None and not has_fewer:
                    continue
                self._move(tp, owner, taker)
                if back is not None:
                    self._move(back, taker, owner)
                return True
        return False

    def _returned(
        self, taker: str, owner: str, may_move: frozenset[TopicPartition]
    ) -> TopicPartition | None:
        """What the taker can give in return: far from itself, or near to the owner."""
        wanted = self._members[owner].topics
        near_owner = self._held[taker].get(self._members[owner].rack or "", {})
        for some in (self._far[taker], near_owner):
            for tp in some:
                if tp in may_move and tp.topic in wanted:
                    return tp
        return None

    def _move(self, tp: TopicPartition, giver: str, taker: str) -> None:
        del self.mine[giver][tp]
        for rack in self._racks[tp]:
            del self._held[giver][rack][tp]
        self._far[giver].pop(tp, None)
        self._give(taker, tp)

    def _give(self, member_id: str, tp: TopicPartition) -> None:
        self.mine[member_id][tp] = None
        for rack in self._racks[tp]:
            self._held[member_id].setdefault(rack, {})[tp] = None
        if self._members[member_id].rack not in self._racks[tp]:
            self._far[member_id][tp] = None
