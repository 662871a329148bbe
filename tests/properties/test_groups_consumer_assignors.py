"""The server-side assignors: each partition once, even, sticky; against slow twins."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.groups.consumer.assignors import (
    Assignment,
    Assignor,
    Partitions,
    Subscriber,
    assign_ranges,
    assign_uniformly,
)
from tests.reference import assignors as twins


@st.composite
def questions(draw: st.DrawFn, *, homogeneous: bool) -> Assignment:
    topics = {bytes([65 + n]) * 16: draw(st.integers(1, 6)) for n in range(draw(st.integers(1, 4)))}
    names = [f"m{n}" for n in range(draw(st.integers(1, 6)))]
    subsets = st.frozensets(st.sampled_from(sorted(topics)))
    everybody = draw(subsets)
    wanted = {name: everybody if homogeneous else draw(subsets) for name in names}
    # What was so far: any disjoint holdings, also of topics that are not wanted any more, and of
    # somebody who has gone.
    current: dict[str, dict[bytes, set[int]]] = {name: {} for name in names}
    for topic, count in topics.items():
        for number in range(count):
            owner = draw(st.sampled_from([*names, None]))
            if owner is not None:
                current[owner].setdefault(topic, set()).add(number)
    instances = {name: draw(st.sampled_from([None, f"i{name[::-1]}"])) for name in names}
    members = {
        name: Subscriber(
            wanted[name],
            {topic: frozenset(numbers) for topic, numbers in current[name].items()},
            instances[name],
        )
        for name in names
    }
    return Assignment(members, topics, homogeneous)


def after(question: Assignment, answer: Mapping[str, Partitions]) -> Assignment:
    members = {
        name: Subscriber(member.topics, answer[name], member.instance_id)
        for name, member in question.members.items()
    }
    return Assignment(members, question.partitions, question.homogeneous)


@given(questions(homogeneous=True))
def test_uniform_is_even_and_moves_no_more_than_it_must(question: Assignment) -> None:
    answer = assign_uniformly(question)
    twins.every_partition_once(question, answer)
    loads = twins.loads(answer).values()
    assert max(loads) - min(loads) <= 1
    assert twins.moved(question, answer) == twins.fewest_moves(question)
    assert assign_uniformly(after(question, answer)) == answer


@given(questions(homogeneous=False))
def test_uniform_with_mixed_subscriptions_leaves_no_single_move_that_helps(
    question: Assignment,
) -> None:
    answer = assign_uniformly(question)
    twins.every_partition_once(question, answer)
    assert twins.single_moves(question, answer) == []
    assert assign_uniformly(after(question, answer)) == answer


@given(questions(homogeneous=False))
def test_range_is_its_slow_twin(question: Assignment) -> None:
    answer = assign_ranges(question)
    twins.every_partition_once(question, answer)
    assert answer == twins.ranges(question)


@given(questions(homogeneous=True), st.integers(1, 6))
def test_range_cuts_topics_of_one_size_alike(question: Assignment, count: int) -> None:
    same = Assignment(question.members, dict.fromkeys(question.partitions, count), True)
    for partitions in assign_ranges(same).values():
        assert len(set(partitions.values())) <= 1


@given(questions(homogeneous=True), st.data())
def test_a_member_that_goes_moves_only_what_it_had(
    question: Assignment, data: st.DataObject
) -> None:
    settled = after(question, assign_uniformly(question))
    gone = data.draw(st.sampled_from(sorted(settled.members)))
    left = {name: member for name, member in settled.members.items() if name != gone}
    if left:
        smaller = Assignment(left, settled.partitions, True)
        assert twins.moved(smaller, assign_uniformly(smaller)) == 0


@pytest.mark.parametrize("assignor", [assign_uniformly, assign_ranges])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize(("topics", "partitions"), [(1, 1000), (100, 10), (1000, 1)])
def test_a_thousand_members_share_a_thousand_partitions_and_keep_them(
    assignor: Assignor, topics: int, partitions: int, *, mixed: bool
) -> None:
    random = Random(1)
    ids = [n.to_bytes(16, "big") for n in range(topics)]
    everything = frozenset(ids)
    members = {
        f"m{n:04}": Subscriber(
            frozenset(random.sample(ids, max(1, topics // 2))) if mixed else everything, {}
        )
        for n in range(1000)
    }
    question = Assignment(members, dict.fromkeys(ids, partitions), not mixed)
    answer = assignor(question)
    given = [
        (topic, index)
        for partitions_of in answer.values()
        for topic, indexes in partitions_of.items()
        for index in indexes
    ]
    assert len(given) == len(set(given)) == topics * partitions
    assert assignor(after(question, answer)) == answer
