"""The assignors of classic groups: each partition once, even, sticky, the same every time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.consumer.membership.assignors import (
    Assignor,
    CooperativeStickyAssignor,
    GroupMember,
    LastAssignment,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Topics,
)
from headwater.model import TopicPartition

Answer = Mapping[str, list[TopicPartition]]
EAGER: list[Assignor] = [RangeAssignor(), RoundRobinAssignor(), StickyAssignor()]
STICKY = StickyAssignor()
COOPERATIVE = CooperativeStickyAssignor()
RACKS = ["x", "y", "z"]


@st.composite
def groups(draw: st.DrawFn, *, alike: bool = False) -> tuple[Topics, dict[str, GroupMember]]:
    """Topics, and members that own any disjoint part of them, or of what is gone by now."""
    names = ["t", "u", "v"][: draw(st.integers(1, 3))]
    racks = st.frozensets(st.sampled_from(RACKS), max_size=2)
    found: Topics = {
        name: tuple(draw(racks) for _ in range(draw(st.integers(1, 6)))) for name in names
    }
    subsets = st.frozensets(st.sampled_from([*names, "gone"]))
    everybody = draw(subsets)
    ids = [f"m{n}" for n in range(draw(st.integers(1, 5)))]
    owned: dict[str, list[TopicPartition]] = {each: [] for each in ids}
    for name in [*names, "gone"]:
        for number in range(7):
            owner = draw(st.sampled_from([*ids, None]))
            if owner is not None:
                owned[owner].append(TopicPartition(name, number))
    members = {}
    for each in ids:
        wanted = everybody if alike else draw(subsets)
        last = LastAssignment(frozenset(owned[each]), draw(st.integers(0, 3)))
        members[each] = GroupMember(
            wanted,
            tuple(tp for tp in owned[each] if tp.topic in wanted),
            last.generation,
            draw(st.sampled_from([None, f"i-{each[::-1]}"])),
            draw(st.sampled_from([None, *RACKS])),
            STICKY.user_data(last),
        )
    return found, members


def every_partition_once(topics: Topics, members: dict[str, GroupMember], answer: Answer) -> None:
    assert answer.keys() == members.keys()
    given_out = [each for mine in answer.values() for each in mine]
    assert len(given_out) == len(set(given_out))
    for member, mine in answer.items():
        assert {each.topic for each in mine} <= members[member].topics
    wanted = {topic for member in members.values() for topic in member.topics}
    assert set(given_out) == {
        TopicPartition(topic, number)
        for topic in wanted & topics.keys()
        for number in range(len(topics[topic]))
    }


def without_racks(topics: Topics) -> Topics:
    return {name: (frozenset[str](),) * len(each) for name, each in topics.items()}


def shuffled(members: dict[str, GroupMember]) -> dict[str, GroupMember]:
    return dict(reversed(members.items()))


@pytest.mark.parametrize("assignor", EAGER, ids=lambda each: each.name)
@given(group=groups())
def test_every_partition_that_is_wanted_has_one_owner(
    assignor: Assignor, group: tuple[Topics, dict[str, GroupMember]]
) -> None:
    topics, members = group
    answer = assignor.assign(topics, members)
    every_partition_once(topics, members, answer)
    assert assignor.assign(topics, shuffled(members)) == answer


@given(groups())
def test_range_gives_each_reader_of_a_topic_the_floor_or_the_ceiling(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    topics, members = group
    answer = RangeAssignor().assign(topics, members)
    for topic, partitions in topics.items():
        readers = [each for each, member in members.items() if topic in member.topics]
        counts = [sum(tp.topic == topic for tp in answer[each]) for each in readers]
        assert sum(counts) == (len(partitions) if readers else 0)
        assert not counts or max(counts) - min(counts) <= 1


@given(groups())
def test_range_without_racks_gives_runs_that_lie_in_order(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    topics, members = group
    bare = without_racks(topics)
    answer = RangeAssignor().assign(bare, members)
    # The slow twin: who wants it, in order, and cuts at n*i/k as a sum of floors and extras.
    for topic, partitions in bare.items():
        readers = sorted(
            (each for each, member in members.items() if topic in member.topics),
            key=lambda each: (members[each].instance_id is None, members[each].instance_id or each),
        )
        numbers = list(range(len(partitions)))
        for place, reader in enumerate(readers):
            share = len(partitions) // len(readers) + (place < len(partitions) % len(readers))
            mine, numbers = numbers[:share], numbers[share:]
            assert [tp.partition for tp in answer[reader] if tp.topic == topic] == mine


@given(groups(alike=True))
def test_sticky_is_even_and_keeps_as_much_as_any_even_assignment_could(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    topics, members = group
    topics = without_racks(topics)
    answer = STICKY.assign(topics, members)
    sizes = [len(mine) for mine in answer.values()]
    assert max(sizes) - min(sizes) <= 1
    kept = sum(len(set(mine) & set(members[each].owned)) for each, mine in answer.items())
    assert kept == _most_that_can_be_kept(topics, members)


def _most_that_can_be_kept(topics: Topics, members: dict[str, GroupMember]) -> int:
    """By trying who gets one more than the others."""
    wanted = next(iter(members.values())).topics & topics.keys()
    real = {TopicPartition(t, n) for t in wanted for n in range(len(topics[t]))}
    owned = {each: len(real.intersection(member.owned)) for each, member in members.items()}
    share, extra = divmod(len(real), len(members))
    return max(
        sum(min(count, share + (each in more)) for each, count in owned.items())
        for more in combinations(members, extra)
    )


@given(groups())
def test_sticky_brings_partitions_near_and_leaves_loads_as_even(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    topics, members = group
    answer = STICKY.assign(topics, members)
    bare = STICKY.assign(without_racks(topics), members)
    assert _unevenness(answer) <= _unevenness(bare)
    if _unevenness(answer) == _unevenness(bare):
        assert _near(topics, members, answer) >= _near(topics, members, bare)
    if _racks_tell_partitions_apart(topics, members):
        assert not _exchanges_that_would_help(topics, members, answer)


def _unevenness(answer: Answer) -> int:
    return sum(len(mine) ** 2 for mine in answer.values())


def _racks_tell_partitions_apart(topics: Topics, members: dict[str, GroupMember]) -> bool:
    racks = [each for partitions in topics.values() for each in partitions]
    everywhere = frozenset[str]().union(*racks)
    in_use = any(member.rack in everywhere for member in members.values())
    return in_use and any(each != everywhere for each in racks)


def _near(topics: Topics, members: dict[str, GroupMember], answer: Answer) -> int:
    return sum(
        members[each].rack in topics[tp.topic][tp.partition]
        for each, mine in answer.items()
        for tp in mine
    )


def _exchanges_that_would_help(
    topics: Topics, members: dict[str, GroupMember], answer: Answer
) -> list[tuple[TopicPartition, TopicPartition]]:
    """Pairs that two members would both take from each other, and more be near then."""
    before = _near(topics, members, answer)
    found = []
    for one, other in combinations(members, 2):
        for mine in answer[one]:
            for theirs in answer[other]:
                if (
                    mine.topic not in members[other].topics
                    or theirs.topic not in members[one].topics
                ):
                    continue
                swapped = dict(answer) | {
                    one: [theirs if tp == mine else tp for tp in answer[one]],
                    other: [mine if tp == theirs else tp for tp in answer[other]],
                }
                if _near(topics, members, swapped) > before:
                    found.append((mine, theirs))
    return found


@given(groups())
def test_sticky_asked_again_answers_the_same(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    topics, members = group
    answer = STICKY.assign(topics, members)
    assert STICKY.assign(topics, _after(members, answer, 9)) == answer


def _after(
    members: dict[str, GroupMember], answer: Answer, generation: int
) -> dict[str, GroupMember]:
    """The members when they have given back and taken over what the answer says."""
    return {
        each: GroupMember(
            member.topics,
            tuple(answer[each]),
            generation,
            member.instance_id,
            member.rack,
            STICKY.user_data(LastAssignment(frozenset(answer[each]), generation)),
        )
        for each, member in members.items()
    }


_ROUNDS_MAX = 6


@given(groups())
def test_cooperative_rounds_never_give_a_partition_two_owners_and_end_soon(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    topics, members = group
    # One round takes away and one gives. Where members want different topics, what one gives up may
    # be wanted by a third, so there may be some more; but never one for each partition.
    for generation in range(4, 4 + _ROUNDS_MAX):
        answer = COOPERATIVE.assign(topics, members)
        owners: dict[TopicPartition, set[str]] = {}
        for each, mine in answer.items():
            # Until it has heard of the answer, a member owns what it owned, too.
            for partition in {*mine, *members[each].owned}:
                owners.setdefault(partition, set()).add(each)
        assert all(len(who) == 1 for who in owners.values())
        changed = any(set(answer[each]) != set(members[each].owned) for each in members)
        members = _after(members, answer, generation)
        if not changed:
            break
    assert not changed
    every_partition_once(topics, members, answer)


@given(groups(alike=True))
def test_cooperative_members_who_want_the_same_never_get_back_what_they_were_told_to_give_up(
    group: tuple[Topics, dict[str, GroupMember]],
) -> None:
    # Where they want different topics one may: an even share is found by trying then.
    topics, members = group
    # With racks, what is free in the second round may be nearest to who gave it up.
    topics = without_racks(topics)
    first = COOPERATIVE.assign(topics, members)
    second = COOPERATIVE.assign(topics, _after(members, first, 9))
    for each, member in members.items():
        taken = set(member.owned) - set(first[each])
        assert not taken & set(second[each])
