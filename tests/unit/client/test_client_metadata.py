"""A client's picture of the cluster is the newest, whatever order the answers come in."""

from __future__ import annotations

from headwater.client.metadata import Broker, ClusterMetadata
from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import NO_NODE, TopicPartition
from headwater.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

ONE = bytes(15) + b"\x01"
TWO = bytes(15) + b"\x02"
FIRST = TopicPartition("a", 0)


def partition(index: int = 0, *, leader: int = 1, epoch: int = 0) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=epoch,
        replica_nodes=[1, 2],
        isr_nodes=[1],
        offline_replicas=[2],
    )


def topic(
    *partitions: MetadataResponsePartition,
    name: str | None = "a",
    topic_id: bytes = ONE,
    code: int = 0,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, error_code=code, partitions=list(partitions)
    )


def answer(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (1, 2)) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="c",
        controller_id=1,
        brokers=[
            MetadataResponseBroker(node_id=each, host="h", port=9000 + each) for each in brokers
        ],
        topics=list(topics),
    )


def test_an_answer_says_what_there_is() -> None:
    metadata = ClusterMetadata()
    change = metadata.update(answer(topic(partition(1, leader=2), partition(0))))
    assert change.topics == ("a",)
    assert change.brokers
    assert metadata.leader(TopicPartition("a", 1)) == 2
    assert metadata.brokers[2] == Broker(2, Address("h", 9002))
    assert metadata.names[ONE] == "a"
    found = metadata.partition(FIRST)
    assert found is not None
    assert (found.replicas, found.isr, found.offline) == ((1, 2), (1,), (2,))


def test_the_same_answer_again_changes_nothing() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition())))
    assert not metadata.update(answer(topic(partition())))


def test_what_is_unknown_is_none() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition())))
    assert metadata.leader(TopicPartition("b", 0)) is None
    assert metadata.leader(TopicPartition("a", 1)) is None
    assert metadata.leader(TopicPartition("a", -1)) is None


def test_a_leader_epoch_never_goes_back() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(leader=2, epoch=5))))
    change = metadata.update(answer(topic(partition(leader=1, epoch=4))))
    assert not change.topics
    assert metadata.leader(FIRST) == 2
    metadata.update(answer(topic(partition(leader=1, epoch=6))))
    assert metadata.leader(FIRST) == 1


def test_partitions_whose_epochs_are_newer_are_taken_one_by_one() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(0, epoch=5), partition(1, epoch=1))))
    metadata.update(answer(topic(partition(0, leader=2, epoch=4), partition(1, leader=2, epoch=2))))
    assert metadata.leader(FIRST) == 1
    assert metadata.leader(TopicPartition("a", 1)) == 2


def test_a_recreated_topic_begins_anew() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(0, leader=2, epoch=5), partition(1))))
    change = metadata.update(answer(topic(partition(0, epoch=0), topic_id=TWO)))
    assert change.recreated == ("a",)
    assert metadata.leader(FIRST) == 1
    assert len(metadata.topics["a"].partitions) == 1
    assert metadata.names == {TWO: "a"}


def test_an_answer_with_fewer_partitions_is_an_old_one() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(0), partition(1, leader=2))))
    assert not metadata.update(answer(topic(partition(0)))).topics
    assert metadata.leader(TopicPartition("a", 1)) == 2


def test_brokers_without_epochs_and_ids_are_believed() -> None:
    metadata = ClusterMetadata()
    old = bytes(16)
    metadata.update(answer(topic(partition(leader=2, epoch=-1), partition(1), topic_id=old)))
    metadata.update(answer(topic(partition(leader=1, epoch=-1), topic_id=old)))
    assert metadata.leader(FIRST) == 1
    assert len(metadata.topics["a"].partitions) == 1
    assert metadata.names == {}


def test_a_deleted_topic_is_gone() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition())))
    change = metadata.update(answer(topic(code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)))
    assert change.gone == ("a",)
    assert metadata.topics == {}
    assert metadata.names == {}
    assert metadata.errors == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    metadata.update(answer(topic(partition(), topic_id=TWO)))
    assert metadata.errors == {}


def test_a_topic_without_a_leader_for_a_moment_is_not_gone() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition())))
    assert not metadata.update(answer(topic(code=ErrorCode.LEADER_NOT_AVAILABLE)))
    assert metadata.leader(FIRST) == 1


def test_an_answer_about_all_topics_takes_away_those_it_does_not_have() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition()), topic(partition(), name="b", topic_id=TWO)))
    assert metadata.update(answer(topic(partition())), is_all=True).gone == ("b",)
    assert list(metadata.topics) == ["a"]


def test_a_partition_without_a_leader_is_noticed() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(leader=-1))))
    assert metadata.leaderless
    assert metadata.leader(FIRST) is None
    assert metadata.topics["a"].partitions[0].leader == NO_NODE
    metadata.update(answer(topic(partition(epoch=1))))
    assert not metadata.leaderless


def test_no_brokers_in_an_answer_is_not_no_brokers() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer())
    metadata.update(answer(brokers=()))
    assert set(metadata.brokers) == {1, 2}


def test_partitions_that_lie_about_their_numbers_are_cut_off() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(0), partition(2_000_000_000))))
    assert len(metadata.topics["a"].partitions) == 1


# Hints (KIP-951)


def test_a_newer_leader_is_learned_from_a_hint() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(epoch=3))))
    assert metadata.learn_leader(FIRST, 2, 4)
    assert metadata.leader(FIRST) == 2


def test_an_older_hint_and_one_for_nothing_known_are_left_aside() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition(epoch=3))))
    assert not metadata.learn_leader(FIRST, 2, 3)
    assert not metadata.learn_leader(FIRST, -1, 9)
    assert not metadata.learn_leader(TopicPartition("b", 0), 2, 9)
    assert metadata.leader(FIRST) == 1


def test_a_broker_is_learned_from_a_hint() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer())
    moved = Broker(2, Address("elsewhere", 1))
    assert metadata.learn_broker(moved)
    assert not metadata.learn_broker(moved)
    assert metadata.brokers[2] == moved


def test_a_topic_asked_for_by_id_is_found_by_its_name() -> None:
    metadata = ClusterMetadata()
    metadata.update(answer(topic(partition())))
    metadata.update(answer(topic(partition(epoch=1, leader=2), name=None)))
    assert metadata.leader(FIRST) == 2
    metadata.update(answer(topic(partition(), name=None, topic_id=TWO)))
    assert list(metadata.topics) == ["a"]
