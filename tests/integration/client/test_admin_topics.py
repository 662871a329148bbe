"""`Admin` on topics, their configs and their records.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from harness.wire import Plain, Wire, batch, until
from headwater.blocking import Admin
from headwater.client.admin import (
    HIGH_WATERMARK,
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetFound,
    OffsetSpec,
    ResourceType,
    Subtract,
    Topic,
    TopicCreated,
    broker_config,
    or_raise,
    topic_config,
)
from headwater.client.errors import (
    ClientError,
    InvalidTopic,
    OffsetOutOfRange,
    Refused,
    TopicExists,
    UnknownTopic,
)
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.testing import EmbeddedBroker


@pytest.fixture
def admin(shared_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(shared_broker.bootstrap) as connected:
        yield connected


def fill(wire: Wire, topic: str, timestamps: list[int], partition: int = 0) -> None:
    records = [Plain(b"v", timestamp=at) for at in timestamps]
    assert wire.produce(topic, batch(records), partition=partition).error_code == 0


def test_a_topic_is_made_as_asked(admin: Admin, topic: str) -> None:
    made = admin.create_topic(topic, partitions=3, replication=1, configs={"retention.ms": 60_000})
    assert (made.name, made.partitions, made.replication) == (topic, 3, 1)
    assert made.configs["retention.ms"].value == "60000"
    about = admin.describe_topic(topic)
    assert (about.id, len(about.partitions), about.is_internal) == (made.id, 3, False)
    (first, *_) = about.partitions
    assert first.replicas == first.in_sync == (first.leader,)
    (listed,) = [each for each in admin.list_topics() if each.name == topic]
    assert (listed.partitions, listed.replication) == (3, 1)


def test_what_is_left_out_is_the_clusters_choice(admin: Admin, topic: str) -> None:
    made = admin.create_topics([topic])[topic]
    assert isinstance(made, TopicCreated)
    assert made.partitions == len(admin.describe_topic(topic).partitions)


def test_replicas_may_be_given_by_hand(admin: Admin, topic: str) -> None:
    (node,) = admin.describe_cluster().nodes
    admin.create_topic(topic, assignments={0: [node.id], 1: [node.id]})
    assert [each.leader for each in admin.describe_topic(topic).partitions] == [node.id, node.id]


def test_of_many_topics_each_has_its_own_end(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    new = f"{topic}-new"
    made = admin.create_topics([NewTopic(new, 2), NewTopic(topic), "no name at all"])
    assert isinstance(made[new], TopicCreated)
    assert isinstance(made[topic], TopicExists)
    assert isinstance(made["no name at all"], InvalidTopic)
    assert topic in str(made[topic])
    with pytest.raises(TopicExists):
        or_raise(made)
    with pytest.raises(TopicExists):
        admin.create_topic(topic)


def test_validating_makes_nothing(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=2, validate_only=True)
    with pytest.raises(UnknownTopic):
        admin.describe_topic(topic)
    with pytest.raises(Refused) as caught:
        admin.create_topic(topic, configs={"retention.ms": "soon"}, validate_only=True)
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_topics_are_deleted_by_name_and_by_id(admin: Admin, topic: str) -> None:
    other = f"{topic}-2"
    made = or_raise(admin.create_topics([topic, other]))
    unknown = f"{topic}-unknown"
    by_id = made[other].id
    assert by_id is not None
    gone = admin.delete_topics([topic, unknown], ids=[by_id])
    assert (gone[topic], gone[by_id]) == (None, None)
    assert isinstance(gone[unknown], UnknownTopic)
    until(lambda: not {topic, other} & {each.name for each in admin.list_topics()}, "their end")


def test_topics_are_described_by_id(admin: Admin, topic: str) -> None:
    made = admin.create_topic(topic)
    assert made.id is not None
    about = admin.describe_topics(ids=[made.id])[made.id]
    assert isinstance(about, Topic)
    assert about.name == topic


def test_what_one_may_do_is_told_to_those_who_ask(admin: Admin, topic: str) -> None:
    made = admin.create_topic(topic)
    assert made.id is not None
    assert admin.describe_topic(topic).operations is None
    assert "DELETE" in (admin.describe_topic(topic, operations=True).operations or ())
    by_id = or_raise(admin.describe_topics(ids=[made.id], operations=True))[made.id]
    assert "DELETE" in (by_id.operations or ())


def test_a_mistyped_name_does_not_wait_with_a_topic_that_was_just_made(
    admin: Admin, topic: str
) -> None:
    """The client waits only for the topic that it knows to exist."""
    admin.create_topic(topic)
    mistyped = f"{topic}-mistyped"
    here, nowhere = TopicPartition(topic, 0), TopicPartition(mistyped, 0)
    began = time.monotonic()
    told = admin.describe_topics([topic, mistyped])
    assert isinstance(told[topic], Topic)
    assert isinstance(told[mistyped], UnknownTopic)
    configs = admin.describe_configs([topic_config(topic), topic_config(mistyped)])
    assert isinstance(configs[topic_config(mistyped)], UnknownTopic)
    offsets = admin.list_offsets({here: OffsetSpec.LATEST, nowhere: OffsetSpec.LATEST})
    assert isinstance(offsets[nowhere], UnknownTopic)
    assert time.monotonic() - began < 30.0  # of a minute


def test_a_topic_of_many_pages_is_described_whole(
    admin: Admin, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages end within topics."""
    monkeypatch.setattr("headwater.client.admin.topics.PAGE_PARTITIONS", 4)
    first, second = f"{topic}-a", f"{topic}-b"
    or_raise(admin.create_topics([NewTopic(first, 6), NewTopic(second, 7)]))
    about = or_raise(admin.describe_topics([second, first]))
    for name, count in ((first, 6), (second, 7)):
        assert [each.index for each in about[name].partitions] == list(range(count))


def test_internal_topics_are_listed_when_asked_for(admin: Admin, topic: str) -> None:
    admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 1})
    until(
        lambda: "__consumer_offsets" in {each.name for each in admin.list_topics(internal=True)},
        "the topic of groups",
    )
    assert "__consumer_offsets" not in {each.name for each in admin.list_topics()}


def test_topics_grow_and_never_shrink(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=2)
    unknown = f"{topic}-unknown"
    grown = admin.create_partitions({topic: 4, unknown: 2})
    assert grown[topic] is None
    assert isinstance(grown[unknown], UnknownTopic)
    until(lambda: len(admin.describe_topic(topic).partitions) == 4, "four partitions")
    refused = admin.create_partitions({topic: NewPartitions(3)})[topic]
    assert isinstance(refused, ClientError)
    assert refused.code == ErrorCode.INVALID_PARTITIONS
    assert admin.create_partitions({topic: 9}, validate_only=True) == {topic: None}
    assert len(admin.describe_topic(topic).partitions) == 4


def test_offsets_are_found_by_spec_and_by_time(admin: Admin, wire: Wire, topic: str) -> None:
    admin.create_topic(topic)
    fill(wire, topic, [1_000, 3_000, 2_000])
    where = TopicPartition(topic, 0)
    for question, offset, timestamp in (
        (OffsetSpec.EARLIEST, 0, None),
        (OffsetSpec.LATEST, 3, None),
        (OffsetSpec.MAX_TIMESTAMP, 1, 3_000),
        (2_500, 1, 3_000),
        (datetime.fromtimestamp(1, UTC), 0, 1_000),
        (9_000, None, None),
    ):
        found = or_raise(admin.list_offsets({where: question}))[where]
        assert (found.offset, found.timestamp) == (offset, timestamp), question
    assert admin.topic_offsets(topic)[0].offset == 3


def test_what_is_not_there_has_its_own_error(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    here, beyond = TopicPartition(topic, 0), TopicPartition(topic, 7)
    unknown = TopicPartition(f"{topic}-unknown", 0)
    found = admin.list_offsets(dict.fromkeys((here, beyond, unknown), OffsetSpec.LATEST))
    assert isinstance(found[here], OffsetFound)
    assert isinstance(found[beyond], UnknownTopic)
    assert isinstance(found[unknown], UnknownTopic)
    assert f"{topic}-7" in str(found[beyond])


def test_records_are_deleted_up_to_an_offset(admin: Admin, wire: Wire, topic: str) -> None:
    admin.create_topic(topic, partitions=2)
    for partition in (0, 1):
        fill(wire, topic, [1, 2, 3, 4], partition)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.delete_records({first: 3, second: HIGH_WATERMARK}) == {first: 3, second: 4}
    starts = admin.topic_offsets(topic, OffsetSpec.EARLIEST)
    assert {index: found.offset for index, found in starts.items()} == {0: 3, 1: 4}
    beyond = admin.delete_records({first: 99})[first]
    assert isinstance(beyond, OffsetOutOfRange)
    assert "99" in str(beyond)


def test_configs_are_changed_one_by_one(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, configs={"segment.bytes": 1_048_576})
    of_topic = topic_config(topic)

    def policy() -> str | None:
        (only,) = admin.describe_config(of_topic, names=["cleanup.policy"]).values()
        return only.value

    admin.alter_config(
        of_topic,
        {"retention.ms": 60_000, "cleanup.policy": Append("compact"), "segment.bytes": None},
    )
    until(lambda: admin.describe_config(of_topic)["retention.ms"].value == "60000", "the change")
    configs = admin.describe_config(of_topic)
    retention = configs["retention.ms"]
    assert retention.source == ConfigSource.TOPIC
    assert (retention.is_own, retention.is_default, retention.type) == (True, False, "long")
    assert configs["cleanup.policy"].value == "delete,compact"
    assert configs["cleanup.policy"].default == "delete"
    assert configs["segment.bytes"].is_default
    admin.alter_config(of_topic, {"cleanup.policy": Subtract("delete")})
    until(lambda: policy() == "compact", "the policy")


def test_a_config_that_cannot_be_changes_nothing(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    unknown = topic_config(f"{topic}-unknown")
    changed = admin.alter_configs(
        {
            topic_config(topic): {"retention.ms": "soon", "segment.ms": 5},
            unknown: {"retention.ms": 1},
        }
    )
    refused = changed[topic_config(topic)]
    assert isinstance(refused, ClientError)
    assert refused.code == ErrorCode.INVALID_CONFIG
    assert isinstance(changed[unknown], UnknownTopic)
    assert admin.describe_config(topic_config(topic))["segment.ms"].is_default
    admin.alter_config(topic_config(topic), {"segment.ms": 5}, validate_only=True)
    assert admin.describe_config(topic_config(topic))["segment.ms"].is_default


def test_a_broker_is_a_number(admin: Admin) -> None:
    with pytest.raises(ValueError, match="broker one: expected the number of a broker"):
        admin.describe_config(ConfigResource(ResourceType.BROKER, "one"))


def test_brokers_tell_their_configs(admin: Admin) -> None:
    (node,) = admin.describe_cluster().nodes
    configs = admin.describe_config(broker_config(node.id), documentation=True)
    assert configs["node.id"].value == str(node.id)
    assert configs["node.id"].is_read_only
    admin.alter_config(broker_config(node.id), {"log.cleaner.backoff.ms": 14_000})

    def backoff() -> ConfigEntry:
        return admin.describe_config(broker_config(node.id))["log.cleaner.backoff.ms"]

    until(lambda: backoff().value == "14000", "the new value")
    assert backoff().source == ConfigSource.BROKER
    admin.alter_config(broker_config(node.id), {"log.cleaner.backoff.ms": None})
    until(lambda: backoff().is_default, "the default")


def test_what_has_configs_is_listed(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    until(lambda: topic_config(topic) in admin.list_config_resources(), "the topic in the list")
