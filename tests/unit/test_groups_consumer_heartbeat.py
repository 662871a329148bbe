"""ConsumerGroupHeartbeat: joining, staying, leaving, and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ErrorCode
from headwater.groups.consumer.group import ConsumerGroup
from headwater.groups.describe import consumer_describe
from headwater.groups.settings import GroupSettings
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequestTopicPartitions as Owned,
)
from tests.reference.consumers import Consumer, Harness, settle, topic_id

T = topic_id("t")


def joined(harness: Harness, *names: str, **attributes: Any) -> list[Consumer]:
    consumers = [Consumer(harness, name, ["t"]) for name in names]
    for consumer in consumers:
        for attribute, value in attributes.items():
            setattr(consumer, attribute, value)
        assert consumer.beat().error_code == 0
    settle(harness, consumers)
    return consumers


def test_the_first_member_gets_everything_in_its_first_answer() -> None:
    harness = Harness(t=3)
    answer = Consumer(harness, "m", ["t"]).beat()
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (0, "m", 2)
    assert answer.heartbeat_interval_ms == 5000
    assert answer.assignment is not None
    assert [topic.partitions for topic in answer.assignment.topic_partitions] == [[0, 1, 2]]
    assert harness.group.state.name == "Stable"


def test_the_coordinator_makes_the_id_of_a_version_0_member() -> None:
    harness = Harness(t=1)
    answer = harness.ask(
        "",
        version=0,
        rebalance_timeout_ms=1,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert answer.error_code == 0
    assert answer.member_id is not None
    assert len(answer.member_id) == 22


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "  "}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        (
            {"rebalance_timeout_ms": -1},
            "RebalanceTimeoutMs must be provided in first request.",
        ),
        (
            {"topic_partitions": [Owned(topic_id=T, partitions=[0])]},
            "TopicPartitions must be empty when (re-)joining.",
        ),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
            "(re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_a_bad_request_is_refused_in_kafkas_words(changes: dict[str, Any], message: str) -> None:
    harness = Harness(t=1)
    good = {
        "rebalance_timeout_ms": 1000,
        "subscribed_topic_names": ["t"],
        "topic_partitions": [],
    }
    answer = harness.ask(**{**good, **changes})
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert harness.log == []


def test_an_assignor_that_is_not_there_is_refused() -> None:
    consumer = Consumer(Harness(t=1), "m", ["t"])
    consumer.assignor = "magic"
    answer = consumer.beat()
    assert answer.error_code == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert answer.error_message == (
        "ServerAssignor magic is not supported. Supported assignors: uniform, range."
    )


def assignor(group: ConsumerGroup) -> str:
    (described,) = consumer_describe({group.id: group}, [group.id])
    return described.assignor_name


def test_most_votes_choose_the_assignor() -> None:
    harness = Harness(t=4)
    first, second, third = (Consumer(harness, name, ["t"]) for name in "abc")
    assert assignor(harness.group) == "uniform"
    first.assignor, second.assignor, third.assignor = "range", "range", "uniform"
    for consumer in (first, second, third):
        consumer.beat()
    settle(harness, [first, second, third])
    assert assignor(harness.group) == "range"
    assert first.owned == {T: frozenset((0, 1))}
    second.beat(server_assignor="uniform")
    assert assignor(harness.group) == "uniform"


def test_a_second_member_waits_until_the_first_has_given_up_its_share() -> None:
    harness = Harness(t=4)
    first, second = Consumer(harness, "a", ["t"]), Consumer(harness, "b", ["t"])
    first.beat()
    harness.tick(2)
    assert second.beat().member_epoch == 3
    assert second.count == 0
    assert harness.group.state.name == "Reconciling"
    told = harness.ask("a", first.epoch)
    assert told.member_epoch == 2  # it keeps its epoch, to commit what it gives up
    first.took(told)
    second.beat()
    assert second.count == 0
    assert first.beat().member_epoch == 3
    second.beat()
    assert (first.count, second.count) == (2, 2)
    assert harness.group.state.name == "Stable"


def test_members_that_come_together_share_one_assignment() -> None:
    harness = Harness(t=4)
    consumers = [Consumer(harness, name, ["t"]) for name in "abcd"]
    for consumer in consumers:
        consumer.beat()
    assert harness.group.state.target_epoch == 2  # the first one's; the rest waits a second
    assert harness.group.state.name == "Assigning"
    harness.tick(1.0)
    consumers[0].beat()
    assert harness.group.state.target_epoch == harness.group.state.epoch == 5


def test_an_assignment_of_a_clock_that_was_ahead_delays_nothing() -> None:
    harness = Harness(t=4)
    harness.tick(3600.0)
    Consumer(harness, "a", ["t"]).beat()
    harness.tick(-3600.0)
    Consumer(harness, "b", ["t"]).beat()
    assert harness.group.state.target_epoch == harness.group.state.epoch == 3


def test_no_assignment_interval_means_at_once() -> None:
    harness = Harness(settings=GroupSettings(consumer_assignment_interval_ms=0), t=4)
    for name in "ab":
        Consumer(harness, name, ["t"]).beat()
    assert harness.group.state.target_epoch == harness.group.state.epoch == 3


def test_an_epoch_from_the_future_or_long_ago_is_fenced() -> None:
    harness = Harness(t=2)
    (member,) = joined(harness, "m")
    for epoch, word in ((member.epoch + 1, "greater"), (1, "smaller")):
        answer = harness.ask("m", epoch)
        assert answer.error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert answer.error_message == (
            f"The consumer group member has a {word} member epoch ({epoch}) than the one known by "
            f"the group coordinator (2). The member must abandon all its partitions and rejoin."
        )


def test_the_epoch_before_is_accepted_if_the_response_that_raised_it_may_be_lost() -> None:
    harness = Harness(t=2)
    first, second = joined(harness, "a", "b")
    second.leave()
    harness.tick(2)
    before = first.epoch
    mine = [Owned(topic_id=T, partitions=sorted(first.owned[T]))]
    first.beat()
    assert first.epoch > before
    assert harness.ask("a", before, topic_partitions=mine).member_epoch == first.epoch
    assert harness.ask("a", before).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    too_much = [Owned(topic_id=T, partitions=[0, 1, 7])]
    fenced = harness.ask("a", before, topic_partitions=too_much)
    assert fenced.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_an_unknown_member_is_told_so() -> None:
    harness = Harness(t=1)
    joined(harness, "m")
    for epoch in (3, -1):
        answer = harness.ask("x", epoch)
        assert answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert answer.error_message == "Member x is not a member of group g."


def test_a_full_group_takes_no_more_members() -> None:
    harness = Harness(settings=GroupSettings(consumer_group_size_max=1), t=1)
    joined(harness, "m")
    answer = Consumer(harness, "n", ["t"]).beat()
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert (
        answer.error_message == "The consumer group has reached its maximum capacity of 1 members."
    )
    assert harness.ask("m", 2).error_code == 0


def test_a_member_that_leaves_frees_its_partitions_and_is_forgotten() -> None:
    harness = Harness(t=2)
    first, second = joined(harness, "a", "b")
    answer = second.leave()
    assert (answer.error_code, answer.member_epoch) == (0, -1)
    settle(harness, [first])
    assert first.count == 2
    first.leave()
    assert harness.group.state.name == "Empty"
    assert harness.group.state.target == {}


def test_a_silent_member_is_out_when_its_session_ends() -> None:
    harness = Harness(t=2)
    joined(harness, "a", "b")
    for _ in range(9):
        harness.tick(5.2)
        harness.ask("a", harness.group.state.members["a"].epoch)
    assert set(harness.group.state.members) == {"a"}


def test_a_heartbeat_puts_the_end_of_the_session_off() -> None:
    harness = Harness(t=1)
    joined(harness, "m")
    for _ in range(20):
        harness.tick(40)
        assert harness.ask("m", 2).error_code == 0


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    harness = Harness(t=2)
    slow = Consumer(harness, "a", ["t"])
    slow.slow, slow.rebalance_timeout_ms = True, 10_000
    slow.beat()
    harness.tick(2)
    other = Consumer(harness, "b", ["t"])
    other.beat()
    slow.beat()
    for _ in range(3):
        harness.tick(3)
        assert slow.beat().error_code == 0
    harness.tick(3)
    assert slow.beat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    settle(harness, [other])
    assert other.count == 2


def test_a_static_member_comes_back_to_its_partitions() -> None:
    harness = Harness(t=4)
    old, other = joined(harness, "a", "b")
    old.leave()
    static = Consumer(harness, "s1", ["t"])
    static.instance_id = "i"
    static.beat()
    settle(harness, [static, other])
    owned, epoch = static.owned, harness.group.state.epoch

    stranger = Consumer(harness, "s2", ["t"])
    stranger.instance_id = "i"
    refused = stranger.beat()
    assert refused.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert refused.error_message == (
        "Static member s2 with instance id i cannot join the group because the instance id is "
        "owned by s1 member."
    )
    assert static.leave(-2).member_epoch == -2
    settle(harness, [other])
    assert other.count == 2  # nobody takes what waits for it
    assert stranger.beat().error_code == 0
    settle(harness, [stranger, other])
    assert stranger.owned == owned
    assert harness.group.state.epoch == epoch
    fenced = harness.ask("s1", epoch, instance_id="i")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID
    unknown = harness.ask("s1", epoch, instance_id="j")
    assert unknown.error_message == "Instance id j is unknown."


def test_a_static_member_that_stays_away_is_out_in_the_end() -> None:
    harness = Harness(t=2)
    (static,) = joined(harness, "s", instance_id="i")
    static.leave(-2)
    harness.tick(46)
    assert harness.group.is_empty


def test_a_topic_that_grows_raises_the_epoch_at_the_next_heartbeat() -> None:
    harness = Harness(t=2)
    (member,) = joined(harness, "m")
    harness.world.counts["t"] = 5
    harness.topics_changed()
    assert harness.group.state.epoch == 2
    harness.tick(2)
    member.took(harness.ask("m", member.epoch))
    assert (member.epoch, member.count) == (3, 5)


def test_a_topic_that_goes_is_taken_back() -> None:
    harness = Harness(t=2, u=1)
    member = Consumer(harness, "m", ["t", "u"])
    member.beat()
    del harness.world.counts["t"]
    harness.topics_changed()
    settle(harness, [member])
    assert member.owned == {topic_id("u"): frozenset((0,))}


def test_a_subscription_to_a_topic_of_the_future_waits_for_it() -> None:
    harness = Harness()
    member = Consumer(harness, "m", ["t"])
    member.beat()
    assert member.count == 0
    harness.world.counts["t"] = 2
    harness.topics_changed()
    settle(harness, [member])
    assert member.count == 2


def test_unsubscribing_revokes_at_once() -> None:
    harness = Harness(t=2)
    (member,) = joined(harness, "m")
    answer = member.beat(subscribed_topic_names=[])
    assert answer.assignment is not None
    assert answer.assignment.topic_partitions == []
    settle(harness, [member])
    assert harness.group.state.name == "Stable"


def test_settings_of_the_group_are_bounded_by_those_of_the_node() -> None:
    harness = Harness(t=1)
    harness.group.on_config(
        {"consumer.session.timeout.ms": "1000000", "consumer.heartbeat.interval.ms": "6000"}
    )
    (member,) = joined(harness, "m")
    assert member.beat().heartbeat_interval_ms == 6000
    harness.tick(59)
    assert not harness.group.is_empty
    harness.tick(2)
    assert harness.group.is_empty


def test_commits_of_an_older_epoch_are_accepted_for_partitions_held_since_then() -> None:
    harness = Harness(t=4)
    first, second = joined(harness, "a", "b")
    group, epoch = harness.group, first.epoch

    def commit(member: Consumer, at: int, partition: int, version: int = 10) -> ErrorCode:
        return group.check_commit(
            member.id,
            None,
            at,
            version=version,
            transactional=False,
            partitions=[(T, partition)],
        )

    kept, got = min(first.owned[T]), min(second.owned[T])
    assert commit(first, epoch, kept) == ErrorCode.NONE
    assert commit(first, epoch, kept, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert commit(first, epoch + 1, kept) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(first, epoch - 1, kept) == ErrorCode.NONE
    assert commit(second, epoch - 1, got) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(first, epoch - 1, got) == ErrorCode.STALE_MEMBER_EPOCH
    assert (
        group.check_commit("x", None, 1, version=10, transactional=False, partitions=[])
        == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert group.check_fetch("a", epoch) == ErrorCode.NONE
    assert group.check_fetch("a", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert group.check_fetch(None, -1) == ErrorCode.NONE


def test_a_loaded_group_gives_everybody_a_new_session() -> None:
    harness = Harness(t=2)
    joined(harness, "a", "b")
    harness.now += 100
    harness.group.on_loaded(harness.now)
    harness.tick(44)
    assert len(harness.group.state.members) == 2
    harness.tick(2)
    assert harness.group.is_empty


def test_a_deleted_group_leaves_nothing() -> None:
    harness = Harness(t=2)
    (member,) = joined(harness, "m")
    member.leave()
    for record in harness.group.tombstones():
        assert record.value is None
        harness.group.apply(record)
    assert harness.group.is_gone
