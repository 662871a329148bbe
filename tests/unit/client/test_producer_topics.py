"""Topics that a producer has stopped sending to."""

from __future__ import annotations

from headwater.client.producer.topics import IdleTopics


def test_a_topic_is_idle_when_it_had_no_batch_between_two_looks() -> None:
    topics = IdleTopics()
    topics.follow("quiet")
    topics.follow("busy")
    assert topics.look({"quiet": 1, "busy": 1}) == []
    assert topics.look({"quiet": 1, "busy": 2}) == ["quiet"]
    assert topics.look({"quiet": 1, "busy": 2}) == ["busy"]
    assert topics.look({"quiet": 1, "busy": 2}) == []


def test_a_topic_with_a_batch_under_way_is_not_idle() -> None:
    topics = IdleTopics()
    topics.follow("t")
    for _ in range(3):
        assert topics.look({"t": None}) == []
    assert topics.look({"t": 1}) == []
    assert topics.look({"t": 1}) == ["t"]


def test_a_topic_that_was_only_asked_for_is_let_go() -> None:
    topics = IdleTopics()
    topics.follow("t")
    assert topics.look({}) == []
    assert topics.look({}) == ["t"]


def test_a_topic_that_comes_back_has_its_time_again() -> None:
    topics = IdleTopics()
    topics.follow("t")
    topics.look({"t": 1})
    topics.follow("t")
    assert topics.look({"t": 1}) == []
    assert topics.look({"t": 1}) == ["t"]
