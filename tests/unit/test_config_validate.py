"""Alterations: what they make of a resource's settings, and which Kafka would refuse."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headwater.config import NodeConfig, TopicDefaults, node_config, topic_definitions
from headwater.config.alter import Alteration, AlterOperation, altered
from headwater.config.validate import (
    validate_client_metrics,
    validate_group_configs,
    validate_topic_configs,
)
from headwater.config.validate_broker import validate_broker_configs
from headwater.errors import ApiError, ErrorCode

INVALID_CONFIG = ErrorCode.INVALID_CONFIG
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


@pytest.fixture(scope="module")
def node() -> NodeConfig:
    return node_config({"log.dirs": "/data"})


@pytest.mark.parametrize(
    "configs",
    [
        {"no.such": "1"},
        {"retention.ms": None},
        {"retention.ms": "soon"},
        {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
        {"remote.storage.enable": "true"},
    ],
)
def test_a_topic_is_refused_what_it_cannot_have(configs: Mapping[str, str | None]) -> None:
    with pytest.raises(ApiError) as refused:
        validate_topic_configs(configs, TopicDefaults())
    assert refused.value.code is INVALID_CONFIG
    assert next(iter(configs)) in (refused.value.message or "")


def test_local_retention_is_judged_only_where_storage_is_tiered() -> None:
    configs = {"local.retention.ms": "5000", "retention.ms": "1000"}
    validate_topic_configs(configs, TopicDefaults())
    tiered = configs | {"remote.storage.enable": "true"}
    with pytest.raises(ApiError, match=r"local\.retention\.ms"):
        validate_topic_configs(tiered, TopicDefaults(), remote_storage_enabled=True)
    fits = tiered | {"local.retention.ms": "500"}
    validate_topic_configs(fits, TopicDefaults(), remote_storage_enabled=True)
    with pytest.raises(ApiError, match=r"local\.retention\.ms"):
        validate_topic_configs(
            fits | {"remote.log.copy.disable": "true"}, TopicDefaults(), remote_storage_enabled=True
        )
    with pytest.raises(ApiError, match=r"cleanup\.policy"):
        validate_topic_configs(
            fits | {"cleanup.policy": "compact"}, TopicDefaults(), remote_storage_enabled=True
        )


def test_tiered_storage_is_not_turned_off_while_data_would_be_forgotten() -> None:
    existing = {"remote.storage.enable": "true"}
    with pytest.raises(ApiError, match=r"remote\.storage\.enable"):
        validate_topic_configs({}, TopicDefaults(), existing=existing)
    validate_topic_configs(
        {"remote.log.delete.on.disable": "true"}, TopicDefaults(), existing=existing
    )


@pytest.mark.parametrize(
    "configs",
    [
        {"no.such": "1"},
        {"consumer.session.timeout.ms": "1"},
        {"consumer.session.timeout.ms": "60001"},
        {"consumer.heartbeat.interval.ms": "4999"},
        {"share.record.lock.duration.ms": "14999"},
        {"share.delivery.count.limit": "11"},
        {"streams.num.standby.replicas": "3"},
        {"share.isolation.level": "READ_COMMITTED"},
    ],
)
def test_a_group_stays_between_the_brokers_bounds(
    configs: Mapping[str, str], node: NodeConfig
) -> None:
    with pytest.raises(ApiError) as refused:
        validate_group_configs(configs, node.layers)
    assert refused.value.code is INVALID_CONFIG


def test_a_heartbeat_must_fit_into_its_session() -> None:
    node = node_config({"group.consumer.min.session.timeout.ms": "1000"})
    with pytest.raises(ApiError, match=r"consumer\.heartbeat\.interval\.ms=5000"):
        validate_group_configs({"consumer.session.timeout.ms": "5000"}, node.layers)
    validate_group_configs({"consumer.session.timeout.ms": "5001"}, node.layers)


@pytest.mark.parametrize(
    ("configs", "code"),
    [
        ({"interval.ms": "99"}, INVALID_REQUEST),
        ({"interval.ms": "3600001"}, INVALID_REQUEST),
        ({"interval.ms": "x"}, INVALID_CONFIG),
        ({"nothing": "1"}, INVALID_REQUEST),
        ({"match": "client_id"}, INVALID_CONFIG),
        ({"match": "client_id=["}, INVALID_CONFIG),
        ({"match": "client_id=a=b"}, INVALID_CONFIG),
        ({"match": "color=blue"}, INVALID_CONFIG),
        ({"interval.ms": "100", "match": " client_id = a.* ,client_source_port=1"}, None),
    ],
)
def test_a_subscription_is_judged_as_by_kafka(
    configs: Mapping[str, str], code: ErrorCode | None
) -> None:
    if code is None:
        validate_client_metrics(configs)
        return
    with pytest.raises(ApiError) as refused:
        validate_client_metrics(configs)
    assert refused.value.code is code


@pytest.mark.parametrize(
    ("configs", "per_broker"),
    [
        ({"num.partitions": "3"}, True),
        ({"log.retention.ms": "x"}, True),
        ({"log.retention.ms": "0"}, True),
        ({"ssl.keystore.location": "/x"}, True),
        ({"listener.name.inside.max.connections": "x"}, True),
        ({"listener.name.inside.ssl.keystore.location": "/x"}, False),
        ({"listeners": "PLAINTEXT://:1"}, False),
        ({"cordoned.log.dirs": "*"}, False),
        ({"cordoned.log.dirs": "/other"}, True),
        ({"num.io.threads": "17"}, False),
        ({"num.io.threads": "3"}, False),
        ({"leader.replication.throttled.rate": "-1"}, True),
        ({"log.local.retention.ms": "604800001"}, True),
        ({"max.connections.per.ip": "0"}, True),
        # They ask for protection that does not exist.
        ({"listener.name.plaintext.ssl.engine.factory.class": "org.apache.kafka.Own"}, True),
        ({"listeners": "PLAINTEXT://:9092,SASL_SSL://:9094"}, True),
    ],
)
def test_a_broker_is_refused_what_it_cannot_have(
    configs: Mapping[str, str], per_broker: bool, node: NodeConfig
) -> None:
    with pytest.raises(ApiError) as refused:
        validate_broker_configs(configs, node, per_broker=per_broker)
    assert refused.value.code is INVALID_REQUEST


@pytest.mark.parametrize(
    ("configs", "per_broker"),
    [
        ({"no.such": "1"}, True),
        ({"listener.name.inside.ssl.keystore.location": "/x"}, True),
        ({"listener.name.inside.max.connections": "5"}, False),
        ({"cordoned.log.dirs": "/data"}, True),
        ({"num.io.threads": "16"}, False),
        ({"num.io.threads": "4"}, False),
        ({"log.retention.ms": "-1"}, False),
        ({"leader.replication.throttled.rate": "1000"}, True),
    ],
)
def test_a_broker_gets_what_kafka_allows(
    configs: Mapping[str, str], per_broker: bool, node: NodeConfig
) -> None:
    validate_broker_configs(configs, node, per_broker=per_broker)


def test_with_eligible_leader_replicas_no_broker_has_its_own_min_insync(node: NodeConfig) -> None:
    configs = {"min.insync.replicas": "2"}
    validate_broker_configs(configs, node, per_broker=True)
    validate_broker_configs(configs, node, per_broker=False, eligible_leader_replicas=True)
    with pytest.raises(ApiError) as refused:
        validate_broker_configs(configs, node, per_broker=True, eligible_leader_replicas=True)
    assert refused.value.code is INVALID_CONFIG


def test_operations_set_delete_append_and_subtract() -> None:
    steps = (
        Alteration("retention.ms", AlterOperation.SET, "5"),
        Alteration("segment.ms", AlterOperation.DELETE, None),
        Alteration("no.such", AlterOperation.DELETE, None),
        Alteration("cleanup.policy", AlterOperation.APPEND, "compact,delete"),
    )
    after = altered({"segment.ms": "9", "flush.ms": "1"}, steps, topic_definitions())
    assert after == {"retention.ms": "5", "flush.ms": "1", "cleanup.policy": "delete,compact"}
    less = Alteration("cleanup.policy", AlterOperation.SUBTRACT, "delete,none")
    assert altered(after, [less], topic_definitions())["cleanup.policy"] == "compact"


@pytest.mark.parametrize("operation", [AlterOperation.APPEND, AlterOperation.SUBTRACT])
@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
def test_only_lists_can_be_appended_to(name: str, operation: AlterOperation) -> None:
    with pytest.raises(ApiError) as refused:
        altered({}, [Alteration(name, operation, "1")], topic_definitions())
    assert refused.value.code is INVALID_CONFIG
