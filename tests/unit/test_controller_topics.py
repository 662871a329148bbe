"""Topics as the controller decides them."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from headwater.controller.placement import UsableBroker, place
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Resource, ResourceType
from headwater.model import ZERO_ID
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from headwater.protocol.messages.create_topics import CreateTopicsRequest
from headwater.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from headwater.protocol.records.metadata_topics import ConfigRecord, PartitionRecord, TopicRecord
from tests.support.controllers import Bench, directory_of, topic


@pytest.fixture
def bench() -> Bench:
    return Bench([1, 2, 3])


def test_a_topic_is_its_record_then_its_configs_then_its_partitions(bench: Bench) -> None:
    request = CreateTopicsRequest(topics=[topic("a", 2, 3, configs={"retention.ms": "5000"})])
    decision = bench.machine.decide_create_topics(request)
    assert [type(record) for record in decision.records] == [
        TopicRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    (result,) = bench.do(decision)
    assert (result.error_code, result.error_message) == (0, None)
    assert (result.num_partitions, result.replication_factor) == (2, 3)
    assert result.topic_id == bench.machine.image.topics["a"].id
    partition = bench.partition("a")
    assert sorted(partition.replicas) == [1, 2, 3]
    assert partition.isr == partition.replicas
    assert partition.leader == partition.replicas[0]
    assert partition.directories == tuple(directory_of(r) for r in partition.replicas)
    assert bench.machine.image.config(Resource(ResourceType.TOPIC, "a")) == {"retention.ms": "5000"}


def test_the_answer_has_every_setting_with_its_source(bench: Bench) -> None:
    result = bench.create("a", configs={"retention.ms": "5000"})
    assert result.configs is not None
    configs = {config.name: config for config in result.configs}
    assert list(configs) == sorted(configs)
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5000", 1)
    assert configs["segment.bytes"].config_source == 5
    # The cluster's first records set this one for all.
    assert configs["min.insync.replicas"].config_source == 3


def test_one_who_may_not_describe_gets_no_configs(bench: Bench) -> None:
    request = CreateTopicsRequest(topics=[topic("a")])
    decision = bench.machine.decide_create_topics(request, may_describe=lambda _: False)
    (result,) = bench.do(decision)
    assert result.error_code == 0
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert result.num_partitions == -1


def test_defaults_come_from_the_settings() -> None:
    bench = Bench([1, 2], settings={"num.partitions": "4", "default.replication.factor": "2"})
    result = bench.create("a", -1, -1)
    assert (result.num_partitions, result.replication_factor) == (4, 2)


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (-2, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, -2, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 4, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(
    bench: Bench, partitions: int, replicas: int, code: ErrorCode
) -> None:
    assert bench.create("a", partitions, replicas).error_code == code
    assert "a" not in bench.machine.image.topics


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a" * 250, "a b"])
def test_a_bad_name_is_refused(bench: Bench, name: str) -> None:
    result = bench.create(name)
    assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert result.error_message


def test_a_name_that_looks_the_same_in_metrics_is_refused(bench: Bench) -> None:
    assert bench.create("a.b_c").error_code == 0
    assert bench.create("a_b.c").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert bench.create("a-b-c").error_code == 0


def test_a_topic_that_exists_is_refused(bench: Bench) -> None:
    bench.create("a")
    assert bench.create("a").error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_clusters_own_log_is_no_topic(bench: Bench) -> None:
    assert bench.create("__cluster_metadata").error_code == ErrorCode.INVALID_REQUEST


def test_a_name_given_twice_is_refused_once_and_the_others_stand(bench: Bench) -> None:
    request = CreateTopicsRequest(topics=[topic("a"), topic("b"), topic("a")])
    results = bench.do(bench.machine.decide_create_topics(request))
    assert {result.name: result.error_code for result in results} == {
        "a": ErrorCode.INVALID_REQUEST,
        "b": 0,
    }
    assert list(bench.machine.image.topics) == ["b"]


def test_validate_only_answers_and_writes_nothing(bench: Bench) -> None:
    result = bench.create("a", 2, validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 2)
    assert not bench.machine.image.topics


@pytest.mark.parametrize("value", ["soon", None])
def test_a_bad_config_refuses_the_topic(bench: Bench, value: str | None) -> None:
    result = bench.create("a", configs={"retention.ms": value})
    assert result.error_code == ErrorCode.INVALID_CONFIG
    assert not bench.machine.image.topics


@pytest.mark.parametrize(
    ("assignments", "code"),
    [
        ([(0, [4242])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1, 1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (2, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (0, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(-1, [1])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([(0, [1]), (1, [1, 2])], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_impossible_assignment_is_refused(
    bench: Bench, assignments: list[tuple[int, list[int]]], code: ErrorCode
) -> None:
    assert bench.create("a", -1, -1, assignments=assignments).error_code == code


def test_an_assignment_is_taken_as_given(bench: Bench) -> None:
    bench.create("a", -1, -1, assignments=[(1, [3, 1]), (0, [2, 3])])
    assert bench.partition("a", 0).replicas == (2, 3)
    assert bench.partition("a", 1).leader == 3
    result = bench.create("b", 1, 1, assignments=[(0, [1])])
    assert result.error_code == ErrorCode.INVALID_REQUEST


def test_a_fenced_broker_gets_replicas_but_does_not_lead(bench: Bench) -> None:
    bench.fence(2)
    bench.create("a", -1, -1, assignments=[(0, [2, 3])])
    assert bench.partition("a").leader == 3
    assert bench.partition("a").isr == (3,)
    result = bench.create("b", -1, -1, assignments=[(0, [2])])
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_with_all_brokers_fenced_nothing_is_placed(bench: Bench) -> None:
    for broker_id in (1, 2, 3):
        bench.fence(broker_id)
    assert bench.create("a").error_code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_too_much_at_once_is_refused(bench: Bench) -> None:
    with pytest.raises(ApiError) as refused:
        bench.create("a", 20_000)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


# Deleting


def delete(
    bench: Bench, *names: str, ids: tuple[bytes, ...] = ()
) -> dict[str | bytes, DeletableTopicResult]:
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name, topic_id=ZERO_ID) for name in names]
        + [DeleteTopicState(name=None, topic_id=topic_id) for topic_id in ids],
        timeout_ms=0,
    )
    results = bench.do(bench.machine.decide_delete_topics(request))
    return {result.name or result.topic_id: result for result in results}


def test_topics_go_by_name_and_by_id(bench: Bench) -> None:
    first, second = bench.create("a").topic_id, bench.create("b").topic_id
    results = delete(bench, "a", ids=(second,))
    assert not bench.machine.image.topics
    assert results["a"].topic_id == first
    assert results["b"].error_code == 0


def test_what_is_not_there_cannot_be_deleted(bench: Bench) -> None:
    results = delete(bench, "never", ids=(b"n" * 16,))
    assert results["never"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert results[b"n" * 16].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_named_twice_or_by_both_stays(bench: Bench) -> None:
    bench.create("a")
    second = bench.create("b").topic_id
    results = delete(bench, "a", "a", "b", ids=(second,))
    assert results["a"].error_code == ErrorCode.INVALID_REQUEST
    assert results["b"].error_code == ErrorCode.INVALID_REQUEST
    assert set(bench.machine.image.topics) == {"a", "b"}


# More partitions


def grow(
    bench: Bench,
    name: str,
    count: int,
    assignments: list[list[int]] | None = None,
    *,
    validate_only: bool = False,
) -> CreatePartitionsTopicResult:
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(
                name=name,
                count=count,
                assignments=None
                if assignments is None
                else [CreatePartitionsAssignment(broker_ids=ids) for ids in assignments],
            )
        ],
        timeout_ms=0,
        validate_only=validate_only,
    )
    (result,) = bench.do(bench.machine.decide_create_partitions(request))
    return result


def test_a_topic_grows_with_as_many_replicas_as_it_has(bench: Bench) -> None:
    bench.create("a", 2, 2)
    assert grow(bench, "a", 4).error_code == 0
    partitions = bench.machine.image.topics["a"].partitions
    assert list(partitions) == [0, 1, 2, 3]
    assert len(partitions[3].replicas) == 2


@pytest.mark.parametrize("count", [2, 1, 0, -1])
def test_a_topic_does_not_shrink(bench: Bench, count: int) -> None:
    bench.create("a", 2)
    assert grow(bench, "a", count).error_code == ErrorCode.INVALID_PARTITIONS


def test_growing_refuses_what_creating_refuses(bench: Bench) -> None:
    bench.create("a")
    wrong = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    impossible: list[list[list[int]]] = [[[4242]], [[1], [2]], [[]], [[1, 2]], [[1, 1]]]
    for assignments in impossible:
        assert grow(bench, "a", 2, assignments).error_code == wrong
    assert grow(bench, "never", 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow(bench, "a", 2, [[3]], validate_only=True).error_code == 0
    assert len(bench.machine.image.topics["a"].partitions) == 1
    assert grow(bench, "a", 2, [[3]]).error_code == 0
    assert bench.partition("a", 1).replicas == (3,)


# Placement


def brokers(racks: dict[int, str | None], fenced: tuple[int, ...] = ()) -> list[UsableBroker]:
    return [UsableBroker(n, rack, n in fenced) for n, rack in racks.items()]


@pytest.mark.parametrize("seed", range(20))
def test_replicas_of_a_partition_are_on_different_brokers_and_racks(seed: int) -> None:
    racks: dict[int, str | None] = {n: f"r{n % 3}" for n in range(9)}
    placed = place(brokers(racks), partitions=30, replicas=3, random=Random(seed))
    for replicas in placed:
        assert len(set(replicas)) == 3
        assert len({racks[replica] for replica in replicas}) == 3
    leading = Counter(racks[replicas[0]] for replicas in placed)
    assert leading == dict.fromkeys(("r0", "r1", "r2"), 10)


@pytest.mark.parametrize("seed", range(10))
def test_leadership_takes_turns_without_racks(seed: int) -> None:
    placed = place(brokers(dict.fromkeys(range(4))), partitions=8, replicas=2, random=Random(seed))
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(4), 2)


@pytest.mark.parametrize("seed", range(10))
def test_fenced_brokers_come_last_and_never_lead(seed: int) -> None:
    racks = dict.fromkeys(range(4))
    placed = place(brokers(racks, fenced=(0,)), partitions=9, replicas=3, random=Random(seed))
    assert all(0 not in replicas for replicas in placed)
    placed = place(brokers(racks, fenced=(0, 1)), partitions=9, replicas=3, random=Random(seed))
    assert all(replicas[0] in (2, 3) for replicas in placed)
    assert all(len(set(replicas)) == 3 for replicas in placed)
