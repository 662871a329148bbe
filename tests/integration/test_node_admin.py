"""Administration of a node: log directories, the quorum, and every version of each admin API."""

from __future__ import annotations

import pytest

from harness.wire import Wire, all_versions, batch, until
from headwater.errors import ErrorCode
from headwater.model import METADATA_TOPIC
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages import incremental_alter_configs as new
from headwater.protocol.messages.alter_configs import AlterConfigsRequest
from headwater.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
)
from headwater.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from headwater.protocol.messages.elect_leaders import ElectLeadersRequest
from headwater.protocol.messages.list_config_resources import ListConfigResourcesRequest
from headwater.protocol.messages.unregister_broker import UnregisterBrokerRequest
from headwater.protocol.messages.update_features import UpdateFeaturesRequest
from tests.conftest import MakeBroker

TOPIC = 2
TWO_DIRECTORIES = {"log.dirs": "/memory/one,/memory/two"}

REQUESTS: dict[ApiKey, Message] = {
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="never", count=2, assignments=None)],
        timeout_ms=1000,
        validate_only=False,
    ),
    ApiKey.DESCRIBE_CONFIGS: DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=4, resource_name="1")],
        include_synonyms=True,
    ),
    ApiKey.ALTER_CONFIGS: AlterConfigsRequest(resources=[], validate_only=False),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: new.IncrementalAlterConfigsRequest(
        resources=[new.AlterConfigsResource(resource_type=TOPIC, resource_name="never")],
        validate_only=False,
    ),
    ApiKey.LIST_CONFIG_RESOURCES: ListConfigResourcesRequest(),
    ApiKey.DESCRIBE_LOG_DIRS: DescribeLogDirsRequest(topics=None),
    ApiKey.ALTER_REPLICA_LOG_DIRS: AlterReplicaLogDirsRequest(),
    ApiKey.ELECT_LEADERS: ElectLeadersRequest(topic_partitions=None),
    ApiKey.DESCRIBE_QUORUM: DescribeQuorumRequest(
        topics=[
            DescribeQuorumRequestTopicData(
                topic_name=METADATA_TOPIC,
                partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
            )
        ]
    ),
    ApiKey.UPDATE_FEATURES: UpdateFeaturesRequest(),
    ApiKey.UNREGISTER_BROKER: UnregisterBrokerRequest(broker_id=4242),
}


@pytest.mark.parametrize("api", REQUESTS, ids=lambda api: api.name)
def test_every_version_is_answered(wire: Wire, api: ApiKey) -> None:
    for version in all_versions(api):
        answer = wire.ask(REQUESTS[api], version)
        assert getattr(answer, "error_code", 0) != ErrorCode.UNKNOWN_SERVER_ERROR, version


def test_the_quorum_of_a_node_alone_is_that_node(wire: Wire) -> None:
    answer = wire.ask(REQUESTS[ApiKey.DESCRIBE_QUORUM])
    ((partition,),) = [topic.partitions for topic in answer.topics]
    assert partition.error_code == 0
    (voter,) = partition.current_voters
    assert voter.replica_id == partition.leader_id == answer.nodes[0].node_id
    assert voter.log_end_offset >= partition.high_watermark > 0
    assert partition.observers == []


def places(wire: Wire, topic: str) -> dict[str, DescribeLogDirsPartition]:
    """Returns the directory of partition 0 of a topic; a copy under way is left out."""
    asked = DescribableLogDirTopic(topic=topic, partitions=[0])
    answer = wire.ask(DescribeLogDirsRequest(topics=[asked]))
    return {
        result.log_dir: partition
        for result in answer.results
        for about in result.topics
        for partition in about.partitions
        if not partition.is_future_key
    }


def move(wire: Wire, topic: str, path: str, partition: int = 0) -> int:
    to = AlterReplicaLogDirTopic(name=topic, partitions=[partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[to])])
    ((result,),) = [topic.partitions for topic in wire.ask(request).results]
    code: int = result.error_code
    return code


def await_place(wire: Wire, topic: str, path: str) -> DescribeLogDirsPartition:
    return until(lambda: places(wire, topic).get(path), f"{topic} in {path}")


def test_a_log_moves_to_another_directory_with_all_it_has(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker(TWO_DIRECTORIES)
    with Wire(broker.bootstrap) as wire:
        wire.create_topic(topic, segment_bytes="1048576")
        for number in range(40):
            wire.produce(topic, batch([b"%d" % number * 50_000]))
        (source,) = places(wire, topic)
        (target,) = {"/memory/one", "/memory/two"} - {source}
        assert move(wire, topic, target) == 0
        # What comes while it moves must be in the copy as well.
        for number in range(40, 60):
            assert wire.produce(topic, batch([b"%d" % number])).base_offset == number
        moved = await_place(wire, topic, target)
        assert list(places(wire, topic)) == [target]
        assert moved.offset_lag == 0
        assert wire.produce(topic, batch([b"60"])).base_offset == 60
        before = wire.values(topic)
        assert before == [b"%d" % n * (50_000 if n < 40 else 1) for n in range(61)]
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert list(places(wire, topic)) == [target]
        assert wire.values(topic) == before
        assert wire.produce(topic, batch([b"61"])).base_offset == 61


def test_a_log_moves_from_where_it_starts(make_broker: MakeBroker, topic: str) -> None:
    from headwater.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    with Wire(make_broker(TWO_DIRECTORIES).bootstrap) as wire:
        wire.create_topic(topic)
        wire.produce(topic, batch([b"%d" % number for number in range(10)]))
        wire.produce(topic, batch([b"10"]))
        start = DeleteRecordsPartition(partition_index=0, offset=4)
        wire.ask(
            DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[start])], timeout_ms=1000
            )
        )
        (source,) = places(wire, topic)
        (target,) = {"/memory/one", "/memory/two"} - {source}
        assert move(wire, topic, target) == 0
        await_place(wire, topic, target)
        assert wire.offset_at(topic, -2).offset == 4
        assert wire.offset_at(topic, -1).offset == 11


@pytest.mark.parametrize(
    ("path", "partition", "code"),
    [
        ("/no/such/directory", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/memory/one/", 0, ErrorCode.LOG_DIR_NOT_FOUND),
        ("/memory/one", 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_moves_that_are_refused(
    make_broker: MakeBroker, topic: str, path: str, partition: int, code: ErrorCode
) -> None:
    with Wire(make_broker(TWO_DIRECTORIES).bootstrap) as wire:
        wire.create_topic(topic)
        assert move(wire, topic, path, partition) == code


def test_a_log_that_is_where_it_should_be_stays(make_broker: MakeBroker, topic: str) -> None:
    with Wire(make_broker(TWO_DIRECTORIES).bootstrap) as wire:
        wire.create_topic(topic)
        (source,) = places(wire, topic)
        assert move(wire, topic, source) == 0
        assert list(places(wire, topic)) == [source]
