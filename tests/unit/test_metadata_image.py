"""The cluster's image: what records do to it, and that a snapshot of it is the image again."""

from __future__ import annotations

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image, Replay, Resource, ResourceType, topic_names
from headwater.metadata.batches import decode_batches, encode_batch
from headwater.metadata.features import (
    LEVEL_LATEST,
    default_levels,
    downgrade_loses_metadata,
    unmet_need,
)
from headwater.metadata.records import decode_record, encode_record, record_version
from headwater.metadata.snapshot import (
    decode_snapshot,
    encode_snapshot,
    file_name,
    id_from_file_name,
    image_records,
)
from headwater.model import OffsetAndEpoch
from headwater.protocol import DecodeError, Message
from headwater.protocol.records.metadata_nodes import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from headwater.protocol.records.metadata_security import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    EntityData,
    UserScramCredentialRecord,
)
from headwater.protocol.records.metadata_topics import (
    ClearElrRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headwater.quorum import ReplicaKey, Voter, VoterEndpoint, VoterSet

TOPIC_ID = bytes(range(16))
DIRECTORY = b"d" * 16


def broker(broker_id: int = 1, epoch: int = 11, *, fenced: bool = True) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=b"i" * 16,
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
        features=[
            BrokerFeature(
                name="metadata.version", min_supported_version=7, max_supported_version=30
            )
        ],
        rack="r1",
        fenced=fenced,
        log_dirs=[DIRECTORY],
    )


def partition(index: int = 0, topic_id: bytes = TOPIC_ID) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=[1, 2],
        isr=[1, 2],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
        directories=[DIRECTORY, b"e" * 16],
    )


def history() -> list[Message]:
    """Records that leave something of every kind behind."""
    return [
        *(
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in default_levels().items()
        ),
        broker(1),
        broker(2, 12),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=-1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, cordoned_log_dirs=[]),
        RegisterControllerRecord(
            controller_id=1, incarnation_id=b"c" * 16, zk_migration_ready=False
        ),
        TopicRecord(name="a.b", topic_id=TOPIC_ID),
        ConfigRecord(resource_type=2, resource_name="a.b", name="retention.ms", value="5"),
        partition(0),
        partition(1),
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[2], leader=2),
        PartitionChangeRecord(
            partition_id=0, topic_id=TOPIC_ID, eligible_leader_replicas=[2], last_known_elr=[1]
        ),
        ClientQuotaRecord(
            entity=[
                EntityData(entity_type="user", entity_name=None),
                EntityData(entity_type="client-id", entity_name="c"),
            ],
            key="producer_byte_rate",
            value=1.5,
            remove=False,
        ),
        ProducerIdsRecord(broker_id=1, broker_epoch=11, next_producer_id=1000),
        AccessControlEntryRecord(
            id=b"a" * 16,
            resource_type=2,
            resource_name="t",
            pattern_type=3,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        ),
        UserScramCredentialRecord(
            name="u", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        DelegationTokenRecord(
            owner="o",
            requester="r",
            renewers=["x"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="t",
        ),
        NoOpRecord(),
    ]


def replayed(records: list[Message]) -> Image:
    replay = Replay()
    replay.apply(records)
    return replay.image


def test_an_image_replayed_from_its_snapshot_is_the_image_that_wrote_it() -> None:
    image = replayed(history())
    data = encode_snapshot(
        image_records(image), metadata_version=LEVEL_LATEST, epoch=3, timestamp=7, now_ms=9
    )
    snapshot = decode_snapshot(data)
    assert replayed(snapshot.records) == image
    assert snapshot.timestamp == 7
    assert snapshot.kraft_version == 0


def test_a_snapshot_keeps_who_votes() -> None:
    voters = VoterSet.of(Voter(ReplicaKey(1, DIRECTORY), (VoterEndpoint("CONTROLLER", "h", 9093),)))
    data = encode_snapshot(
        (),
        metadata_version=LEVEL_LATEST,
        epoch=0,
        timestamp=0,
        now_ms=0,
        kraft_version=1,
        voters=voters.to_record(),
    )
    snapshot = decode_snapshot(data)
    assert snapshot.kraft_version == 1
    assert snapshot.voters is not None
    assert VoterSet.from_record(snapshot.voters) == voters


def test_a_snapshot_without_its_footer_is_none() -> None:
    data = encode_snapshot((), metadata_version=30, epoch=0, timestamp=0, now_ms=0)
    header_only = data[: next(iter(decode_batches(data))).size]
    with pytest.raises(DecodeError, match="footer"):
        decode_snapshot(header_only)


def test_a_snapshot_is_named_by_where_it_ends() -> None:
    snapshot_id = OffsetAndEpoch(60, 1)
    assert file_name(snapshot_id) == "00000000000000000060-0000000001.checkpoint"
    assert id_from_file_name(file_name(snapshot_id)) == snapshot_id
    assert id_from_file_name("00000000000000000060-0000000001.checkpoint.part") is None


def test_a_frozen_image_stays_as_it_was() -> None:
    image = replayed(history())
    frozen = image.frozen()
    same = replayed(history())
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=-1))
    image.apply(ConfigRecord(resource_type=2, resource_name="a.b", name="x", value="y"))
    image.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert frozen == same


def test_every_record_survives_its_frame() -> None:
    for record in history():
        assert decode_record(encode_record(record, LEVEL_LATEST)) == record


def test_records_are_written_so_that_the_oldest_node_can_read_them() -> None:
    assert [record_version(broker(), level) for level in (7, 8, 17, 30)] == [1, 2, 3, 4]
    assert [record_version(partition(), level) for level in (7, 17, 23)] == [0, 1, 2]
    fence = BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1)
    assert record_version(fence, LEVEL_LATEST) == 0
    fence.in_controlled_shutdown = 1
    assert record_version(fence, LEVEL_LATEST) == 1
    fence.log_dirs = [DIRECTORY]
    assert record_version(fence, LEVEL_LATEST) == 2
    fence.cordoned_log_dirs = []
    assert record_version(fence, LEVEL_LATEST) == 3


@pytest.mark.parametrize("value", [None, b"", b"\x00\x02\x00", b"\x01\x63\x00", b"\x01\x02\x09"])
def test_bytes_that_are_no_record_are_refused(value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(value)


def test_a_record_with_something_behind_it_is_refused() -> None:
    with pytest.raises(DecodeError, match="after"):
        decode_record(encode_record(NoOpRecord(), 30) + b"\x00")


def test_a_batch_keeps_its_place_and_epoch() -> None:
    data = encode_batch(history(), metadata_version=LEVEL_LATEST, now_ms=5, base_offset=40, epoch=3)
    (batch,) = decode_batches(data)
    assert (batch.base_offset, batch.epoch, batch.timestamp) == (40, 3, 5)
    assert batch.end_offset == 40 + len(history())
    assert batch.records == history()


# Changes


def test_a_named_leader_is_a_new_epoch_and_every_change_a_new_partition_epoch() -> None:
    image = replayed(history())
    state = image.topics["a.b"].partitions[1]
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 1, 1)
    image.apply(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=2))
    state = image.topics["a.b"].partitions[1]
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (2, 2, 2)
    image.apply(PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, isr=[1, 2]))
    state = image.topics["a.b"].partitions[1]
    assert (state.isr, state.leader_epoch, state.partition_epoch) == ((1, 2), 2, 3)


def test_directories_move_with_their_replicas() -> None:
    image = replayed(history())
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[2, 3]))
    state = image.topics["a.b"].partitions[0]
    assert state.directory_of(2) == b"e" * 16
    assert state.directory_of(3) == bytes(16)


def test_a_removed_topic_leaves_nothing_behind() -> None:
    image = replayed(history())
    image.apply(RemoveTopicRecord(topic_id=TOPIC_ID))
    assert not image.topics
    assert not image.topics_by_id
    assert not image.collisions
    assert Resource(ResourceType.TOPIC, "a.b") not in image.configs


def test_a_cleared_elr_is_a_change_of_the_partition() -> None:
    image = replayed(history())
    before = image.topics["a.b"].partitions[0]
    assert before.elr
    delta = Delta()
    image.apply(ClearElrRecord(topic_name=""), delta)
    after = image.topics["a.b"].partitions[0]
    assert (after.elr, after.last_known_elr) == ((), ())
    assert after.partition_epoch == before.partition_epoch + 1
    assert list(delta.partitions) == [(TOPIC_ID, 0)]


def test_a_config_set_to_null_is_gone() -> None:
    image = replayed(history())
    image.apply(ConfigRecord(resource_type=2, resource_name="a.b", name="retention.ms", value=None))
    assert image.configs == {}


def test_a_record_for_another_broker_epoch_is_a_bug() -> None:
    image = replayed(history())
    with pytest.raises(AssertionError):
        image.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=99))


# Deltas


def test_a_delta_says_what_changed_and_what_it_was() -> None:
    image = replayed(history())
    was = image.topics["a.b"].partitions[0]
    delta = Delta()
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=2), delta)
    image.apply(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=1), delta)
    image.apply(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=11, fenced=1), delta)
    assert delta.partitions == {(TOPIC_ID, 0): was}
    previous = delta.brokers[1]
    assert previous is not None
    assert not previous.fenced
    assert delta.topics_changed() == {TOPIC_ID}
    assert not delta.topics_created


def test_a_topic_that_came_and_went_in_one_batch_is_no_news() -> None:
    replay = Replay()
    delta = replay.apply(
        [
            TopicRecord(name="x", topic_id=TOPIC_ID),
            partition(0),
            RemoveTopicRecord(topic_id=TOPIC_ID),
        ]
    )
    assert not delta


def test_a_deleted_topic_is_in_the_delta_as_it_was() -> None:
    image = replayed(history())
    delta = Delta()
    image.apply(RemoveTopicRecord(topic_id=TOPIC_ID), delta)
    assert delta.topics_deleted[TOPIC_ID].name == "a.b"
    assert len(delta.topics_deleted[TOPIC_ID].partitions) == 2
    assert delta.configs == {Resource(ResourceType.TOPIC, "a.b")}


# Transactions


def test_a_transaction_shows_all_at_once_at_its_end() -> None:
    replay = Replay()
    delta = replay.apply(
        [BeginTransactionRecord(name="t"), TopicRecord(name="x", topic_id=TOPIC_ID)]
    )
    assert not delta
    assert not replay.image.topics
    assert replay.in_transaction
    delta = replay.apply([partition(0), EndTransactionRecord()])
    assert delta.topics_created == {TOPIC_ID}
    assert len(replay.image.topics["x"].partitions) == 1
    assert not replay.in_transaction


def test_an_aborted_transaction_never_was() -> None:
    replay = Replay()
    replay.apply([BeginTransactionRecord(), TopicRecord(name="x", topic_id=TOPIC_ID)])
    replay.apply(
        [AbortTransactionRecord(reason="failover"), TopicRecord(name="y", topic_id=TOPIC_ID)]
    )
    assert list(replay.image.topics) == ["y"]


# Names and features


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a" * 250, "a b", "../x", "a/b", "ä", "a\n", "a\0"]
)
def test_a_name_that_is_no_topic_is_refused(name: str) -> None:
    with pytest.raises(ApiError) as refused:
        topic_names.check(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("name", ["a", "a" * 249, "...", "A-z_0.9", "__consumer_offsets"])
def test_a_good_name_passes(name: str) -> None:
    topic_names.check(name)


def test_a_new_cluster_has_the_levels_that_go_with_its_metadata_version() -> None:
    assert next(iter(default_levels())) == "metadata.version"
    assert default_levels() == {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    assert default_levels(21) == {"metadata.version": 21}
    assert default_levels(24) == {
        "metadata.version": 24,
        "group.version": 1,
        "transaction.version": 2,
    }


def test_a_feature_says_what_it_needs() -> None:
    name = "eligible.leader.replicas.version"
    assert unmet_need(name, 1, {"metadata.version": 22}) is not None
    assert unmet_need(name, 1, {"metadata.version": 23}) is None
    assert unmet_need(name, 0, {"metadata.version": 7}) is None


def test_going_down_loses_metadata_where_a_level_between_brought_some() -> None:
    assert downgrade_loses_metadata(current=30, target=29)
    assert not downgrade_loses_metadata(current=29, target=24)
    assert downgrade_loses_metadata(current=24, target=22)
    assert not downgrade_loses_metadata(current=30, target=30)
