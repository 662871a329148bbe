"""The explanation of an unstable group: one sentence that names the members it waits for."""

from __future__ import annotations

from typing import Any

from headwater.cli.group_describe import why_not_stable
from headwater.client.admin import Group, Member
from headwater.model import TopicPartition
from headwater.protocol.liveness import MemberLiveness


def partitions(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("orders", number) for number in numbers)


def member(name: str, **about: Any) -> Member:
    return Member(id=f"{name}-1", client_id=name, host="/10.0.0.7", **about)


def classic(state: str, *members: Member) -> Group:
    return Group("billing", "classic", state, "127.0.0.1:9092", members=members)


def consumer(state: str, *members: Member, epoch: int = 6, assignment_epoch: int = 6) -> Group:
    return Group(
        "billing",
        "consumer",
        state,
        "127.0.0.1:9092",
        epoch=epoch,
        assignment_epoch=assignment_epoch,
        members=members,
    )


def why(group: Group) -> str:
    sentence = why_not_stable(group)
    assert sentence is not None
    assert "\n" not in sentence
    return sentence


def test_a_stable_group_needs_no_explanation() -> None:
    assert why_not_stable(classic("Stable", member("a"))) is None


def test_an_empty_group_has_no_members() -> None:
    assert why(classic("Empty")).startswith("it has no members")


def test_a_silent_member_that_has_not_rejoined_is_named() -> None:
    group = classic(
        "PreparingRebalance",
        member("quick", liveness=MemberLiveness(False, 100, 45_000)),
        member("dead", liveness=MemberLiveness(True, 20_000, 45_000)),
    )
    sentence = why(group)
    assert sentence.startswith("it waits for dead (10.0.0.7) to rejoin: its heartbeat")
    assert "the last one came 20 s ago, and its session expires after 45 s" in sentence
    assert "quick" not in sentence


def test_a_member_whose_heartbeats_come_but_does_not_join_polls_too_slowly() -> None:
    group = classic(
        "PreparingRebalance",
        member("quick", liveness=MemberLiveness(False, 100, 45_000)),
        member("slow", liveness=MemberLiveness(True, 1_000, 45_000)),
    )
    assert "slow" in why(group)
    assert "polls too slowly" in why(group)


def test_a_group_whose_members_have_all_joined_waits_for_the_delay() -> None:
    group = classic("PreparingRebalance", member("a", liveness=MemberLiveness(False, None, 45_000)))
    assert "its one member has joined" in why(group)
    assert "group.initial.rebalance.delay.ms" in why(group)


def test_a_classic_group_of_kafka_names_only_candidates() -> None:
    sentence = why(classic("PreparingRebalance", *(member(name) for name in "abcde")))
    assert "does not report which" in sentence
    assert "a (10.0.0.7), b (10.0.0.7), c (10.0.0.7) and 2 more" in sentence


def test_a_leader_that_does_not_assign_is_named() -> None:
    group = classic(
        "CompletingRebalance",
        member("leader", liveness=MemberLiveness(True, 2_000, 45_000)),
        member("other", liveness=MemberLiveness(False, 0, 45_000)),
    )
    assert why(group).startswith("its leader leader (10.0.0.7) has not assigned")


def test_a_consumer_that_must_give_up_a_partition_is_named_with_it() -> None:
    group = consumer(
        "Reconciling",
        member("holder", epoch=5, assigned=partitions(0, 1), target=partitions(0)),
        member("waiter", epoch=6, assigned=partitions(), target=partitions(1)),
    )
    sentence = why(group)
    assert sentence.startswith("holder (10.0.0.7) is at epoch 5 of 6 and must give up orders:1")
    assert "waiter" not in sentence


def test_a_partition_without_an_owner_is_being_revoked() -> None:
    group = consumer(
        "Reconciling",
        member("holder", epoch=5, assigned=partitions(0), target=partitions(0)),
        member("waiter", epoch=6, assigned=partitions(), target=partitions(1)),
    )
    assert "holder (10.0.0.7) is at epoch 5 of 6 and must give up orders:1" in why(group)


def test_a_consumer_that_has_yet_to_see_the_new_epoch_is_named() -> None:
    group = consumer(
        "Reconciling",
        member(
            "late",
            epoch=5,
            assigned=partitions(0),
            target=partitions(0),
            liveness=MemberLiveness(True, 9_000, 45_000),
        ),
        member("new", epoch=6, assigned=partitions(1), target=partitions(1)),
    )
    assert "must acknowledge the new assignment: its heartbeat is late" in why(group)


def test_a_free_partition_is_assigned_with_the_next_heartbeat() -> None:
    group = consumer(
        "Reconciling", member("waiter", epoch=6, assigned=partitions(), target=partitions(1))
    )
    assert why(group).startswith("waiter (10.0.0.7) will get orders:1 with the next")


def test_an_assignment_behind_the_group_epoch_is_up_to_the_coordinator() -> None:
    group = consumer("Assigning", member("a", epoch=5), epoch=6, assignment_epoch=5)
    assert "has yet to assign partitions for epoch 6" in why(group)
