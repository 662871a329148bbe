"""CreateTopics, DeleteTopics, CreatePartitions and ElectLeaders: what handlers add to decisions."""

from __future__ import annotations

import pytest

from headwater.broker.controller_handlers import (
    create_partitions,
    create_topics,
    delete_topics,
    elect_leaders,
)
from headwater.errors import ErrorCode
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tests.support.handlers import HandlerBench


def creation(*names: str, partitions: int = 1, timeout_ms: int = 1000) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ],
        timeout_ms=timeout_ms,
    )


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_every_version(version: int) -> None:
    bench = HandlerBench()
    (result,) = bench.ask(create_topics, creation("t", partitions=3), version).topics
    assert (result.name, result.error_code, result.error_message) == ("t", 0, None)
    assert len(bench.image.topics["t"].partitions) == 3
    assert result.num_partitions == (3 if version >= 5 else -1)


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_a_request_that_leaves_no_time_does_nothing(timeout_ms: int) -> None:
    bench = HandlerBench()
    (result,) = bench.ask(create_topics, creation("t", timeout_ms=timeout_ms), 7).topics
    assert (result.error_code, result.error_message) == (ErrorCode.REQUEST_TIMED_OUT, None)
    assert "t" not in bench.image.topics
    bench.ask(create_topics, creation("t"), 7)
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=2, assignments=None)],
        timeout_ms=timeout_ms,
        validate_only=False,
    )
    (grown,) = bench.ask(create_partitions, request, 3).results
    assert grown.error_code == ErrorCode.REQUEST_TIMED_OUT
    gone = DeleteTopicsRequest(topic_names=["t"], timeout_ms=timeout_ms)
    (deleted,) = bench.ask(delete_topics, gone, 5).responses
    assert deleted.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert len(bench.image.topics["t"].partitions) == 1


def test_more_records_than_a_batch_may_have_refuse_all_topics_of_the_request() -> None:
    bench = HandlerBench()
    results = bench.ask(create_topics, creation("a", "b", partitions=6000), 7).topics
    assert [r.error_code for r in results] == [ErrorCode.POLICY_VIOLATION] * 2
    assert not bench.image.topics


@pytest.mark.parametrize(
    ("version", "code"),
    [(2, ErrorCode.INVALID_REQUEST), (3, ErrorCode.TOPIC_DELETION_DISABLED)],
)
def test_topics_are_not_deleted_where_that_is_switched_off(version: int, code: ErrorCode) -> None:
    bench = HandlerBench({"delete.topic.enable": "false"})
    bench.ask(create_topics, creation("t"), 7)
    request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000)
    (result,) = bench.ask(delete_topics, request, version).responses
    assert (result.name, result.error_code) == ("t", code)
    assert "t" in bench.image.topics


def test_a_topic_is_deleted_by_its_id() -> None:
    bench = HandlerBench()
    (made,) = bench.ask(create_topics, creation("t"), 7).topics
    asked = DeleteTopicState(name=None, topic_id=made.topic_id)
    request = DeleteTopicsRequest(topics=[asked], timeout_ms=1000)
    (result,) = bench.ask(delete_topics, request, 6).responses
    assert (result.name, result.topic_id, result.error_code) == ("t", made.topic_id, 0)
    assert not bench.image.topics


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_election_without_time_is_refused_for_each_partition(version: int) -> None:
    bench = HandlerBench()
    bench.ask(create_topics, creation("t"), 7)
    wanted = [TopicPartitions(topic="t", partitions=[0])]
    request = ElectLeadersRequest(topic_partitions=wanted, timeout_ms=0)
    answer = bench.ask(elect_leaders, request, version)
    # Version 0 has no code for the whole request.
    assert answer.error_code == (ErrorCode.REQUEST_TIMED_OUT if version else 0)
    ((partition,),) = [t.partition_result for t in answer.replica_election_results]
    assert partition.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_an_election_of_an_unknown_kind_is_refused_as_a_whole() -> None:
    bench = HandlerBench()
    request = ElectLeadersRequest(election_type=9, topic_partitions=None, timeout_ms=1000)
    answer = bench.ask(elect_leaders, request, 2)
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.replica_election_results == []


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_number_of_partitions_costs_no_more_than_a_number(validate_only: bool) -> None:
    bench = HandlerBench()
    bench.ask(create_topics, creation("t"), 7)
    request = creation("u", "v", partitions=2**31 - 1)
    request.validate_only = validate_only
    results = bench.ask(create_topics, request, 7).topics
    assert [r.error_code for r in results] == [ErrorCode.POLICY_VIOLATION] * 2
    growth = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=2**31 - 1, assignments=None)],
        timeout_ms=1000,
        validate_only=validate_only,
    )
    (result,) = bench.ask(create_partitions, growth, 3).results
    assert result.error_code == ErrorCode.POLICY_VIOLATION
    assert len(bench.image.topics["t"].partitions) == 1
