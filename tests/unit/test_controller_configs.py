"""Settings and features as the controller decides them, and the first records of a cluster."""

from __future__ import annotations

from random import Random

import pytest

from headwater.config import node_config
from headwater.config.alter import Alteration, AlterOperation
from headwater.controller import Controller
from headwater.controller.features import FeatureUpdate, UpgradeType
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import CLUSTER_DEFAULT, Replay, Resource, ResourceType
from headwater.metadata.features import default_levels
from headwater.metadata.records import RecordType
from headwater.metadata.snapshot import feature_records
from headwater.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
)
from tests.support.controllers import Bench

SET, DELETE = AlterOperation.SET, AlterOperation.DELETE
APPEND, SUBTRACT = AlterOperation.APPEND, AlterOperation.SUBTRACT
TOPIC = Resource(ResourceType.TOPIC, "a")


@pytest.fixture
def bench() -> Bench:
    bench = Bench([1])
    bench.create("a")
    return bench


def alter(
    bench: Bench,
    resource: Resource,
    *alterations: tuple[str, AlterOperation, str | None],
    validate_only: bool = False,
) -> int:
    """Incrementally; the error code."""
    changes = [(resource, [Alteration(*alteration) for alteration in alterations])]
    outcome = bench.do(
        bench.machine.decide_incremental_alter_configs(changes, validate_only=validate_only)
    )
    refusal = outcome[resource]
    return 0 if refusal is None else refusal.code


def test_a_setting_is_set_and_taken_back(bench: Bench) -> None:
    assert alter(bench, TOPIC, ("retention.ms", SET, "5")) == 0
    assert bench.machine.image.config(TOPIC) == {"retention.ms": "5"}
    before = bench.offset
    assert alter(bench, TOPIC, ("retention.ms", SET, "5")) == 0
    assert bench.offset == before, "nothing changed, nothing is written"
    assert alter(bench, TOPIC, ("retention.ms", DELETE, None)) == 0
    assert bench.machine.image.config(TOPIC) == {}


def test_lists_are_appended_to_and_subtracted_from(bench: Bench) -> None:
    assert alter(bench, TOPIC, ("cleanup.policy", APPEND, "compact")) == 0
    assert bench.machine.image.config(TOPIC) == {"cleanup.policy": "delete,compact"}
    assert alter(bench, TOPIC, ("cleanup.policy", SUBTRACT, "delete")) == 0
    assert bench.machine.image.config(TOPIC) == {"cleanup.policy": "compact"}
    assert alter(bench, TOPIC, ("retention.ms", APPEND, "5")) == ErrorCode.INVALID_CONFIG


def test_a_resource_changes_whole_or_not_at_all(bench: Bench) -> None:
    both = (("retention.ms", SET, "5"), ("segment.ms", SET, "soon"))
    assert alter(bench, TOPIC, *both) == ErrorCode.INVALID_CONFIG
    assert bench.machine.image.config(TOPIC) == {}


def test_one_bad_resource_leaves_the_others_alone(bench: Bench) -> None:
    never = Resource(ResourceType.TOPIC, "never")
    changes = [
        (never, [Alteration("retention.ms", SET, "5")]),
        (TOPIC, [Alteration("retention.ms", SET, "5")]),
    ]
    outcome = bench.do(bench.machine.decide_incremental_alter_configs(changes, validate_only=False))
    refused = outcome[never]
    assert refused is not None
    assert refused.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome[TOPIC] is None
    assert bench.machine.image.config(TOPIC) == {"retention.ms": "5"}


def test_a_resource_or_a_key_named_twice_is_refused(bench: Bench) -> None:
    twice = (("retention.ms", SET, "5"), ("retention.ms", SET, "6"))
    assert alter(bench, TOPIC, *twice) == ErrorCode.INVALID_REQUEST
    changes = [(TOPIC, [Alteration("retention.ms", SET, "5")])] * 2
    outcome = bench.do(bench.machine.decide_incremental_alter_configs(changes, validate_only=False))
    refused = outcome[TOPIC]
    assert refused is not None
    assert refused.code is ErrorCode.INVALID_REQUEST
    assert bench.machine.image.config(TOPIC) == {}


def test_validate_only_judges_and_writes_nothing(bench: Bench) -> None:
    assert alter(bench, TOPIC, ("retention.ms", SET, "5"), validate_only=True) == 0
    bad = alter(bench, TOPIC, ("retention.ms", SET, "x"), validate_only=True)
    assert bad == ErrorCode.INVALID_CONFIG
    assert bench.machine.image.config(TOPIC) == {}


def test_the_old_way_replaces_everything(bench: Bench) -> None:
    alter(bench, TOPIC, ("retention.ms", SET, "5"), ("segment.ms", SET, "6"))
    wanted = [(TOPIC, [("retention.ms", "7")])]
    bench.do(bench.machine.decide_alter_configs(wanted, validate_only=False))
    assert bench.machine.image.config(TOPIC) == {"retention.ms": "7"}


@pytest.mark.parametrize(
    ("resource", "key", "value", "code"),
    [
        (Resource(ResourceType.TOPIC, ""), "retention.ms", "5", ErrorCode.INVALID_REQUEST),
        (Resource(ResourceType.GROUP, ""), "consumer.session.timeout.ms", "50000", 42),
        (Resource(ResourceType.GROUP, "g"), "consumer.session.timeout.ms", "1", 40),
        (Resource(ResourceType.CLIENT_METRICS, "m"), "interval.ms", "1", 42),
        (Resource(ResourceType.BROKER, "x"), "log.cleaner.threads", "2", 42),
        (Resource(ResourceType.BROKER, "77"), "log.cleaner.threads", "2", 102),
        (Resource(99, "x"), "a", "b", ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_what_cannot_be_set_is_refused(
    bench: Bench, resource: Resource, key: str, value: str, code: int
) -> None:
    assert alter(bench, resource, (key, SET, value)) == code


def test_groups_and_subscriptions_need_not_exist(bench: Bench) -> None:
    group = Resource(ResourceType.GROUP, "g")
    assert alter(bench, group, ("consumer.session.timeout.ms", SET, "50000")) == 0
    metrics = Resource(ResourceType.CLIENT_METRICS, "m")
    assert alter(bench, metrics, ("interval.ms", SET, "5000")) == 0
    assert set(bench.machine.image.configs) >= {group, metrics}


def test_a_setting_of_all_brokers_becomes_the_default_of_topics(bench: Bench) -> None:
    assert alter(bench, CLUSTER_DEFAULT, ("log.retention.ms", SET, "700000000")) == 0
    result = bench.create("b")
    assert result.configs is not None
    retention = next(config for config in result.configs if config.name == "retention.ms")
    assert (retention.value, retention.config_source) == ("700000000", 3)


def test_a_brokers_setting_is_written_even_if_it_is_the_same(bench: Bench) -> None:
    """KAFKA-14136: the record makes it look at its key stores again."""
    broker = Resource(ResourceType.BROKER, "1")
    assert alter(bench, broker, ("log.cleaner.threads", SET, "1")) == 0
    before = bench.offset
    assert alter(bench, broker, ("log.cleaner.threads", SET, "1")) == 0
    assert bench.offset == before + 1


def test_min_insync_is_one_thing_for_the_cluster_while_leaders_are_eligible(bench: Bench) -> None:
    name = "min.insync.replicas"
    assert bench.machine.image.config(CLUSTER_DEFAULT) == {name: "1"}
    invalid = ErrorCode.INVALID_CONFIG
    assert alter(bench, Resource(ResourceType.BROKER, "1"), (name, SET, "1")) == invalid
    assert alter(bench, CLUSTER_DEFAULT, (name, DELETE, None)) == invalid
    decision = bench.machine.decide_incremental_alter_configs(
        [(CLUSTER_DEFAULT, [Alteration(name, SET, "2")])], validate_only=False
    )
    assert [record.API for record in decision.records] == [
        RecordType.CONFIG,
        RecordType.CLEAR_ELR,
    ]


def test_a_controller_without_a_broker_has_settings(bench: Bench) -> None:
    node = Resource(ResourceType.BROKER, "7")
    change = ("log.cleaner.threads", SET, "2")
    assert alter(bench, node, change) == ErrorCode.BROKER_ID_NOT_REGISTERED
    registration = ControllerRegistrationRequest(
        controller_id=7, incarnation_id=b"i" * 16, zk_migration_ready=False
    )
    bench.do(bench.machine.decide_register_controller(registration))
    assert alter(bench, node, change) == 0


# Features


def update(bench: Bench, *updates: FeatureUpdate, validate_only: bool = False) -> int:
    try:
        bench.do(bench.machine.decide_update_features(list(updates), validate_only=validate_only))
    except ApiError as refusal:
        return refusal.code
    return 0


def test_a_feature_goes_up_and_down() -> None:
    bench = Bench([1], metadata_version=25)
    assert "streams.version" not in bench.machine.image.features
    assert update(bench, FeatureUpdate("streams.version", 1)) == 0
    assert bench.machine.image.features["streams.version"] == 1
    down = FeatureUpdate("streams.version", 0, UpgradeType.SAFE_DOWNGRADE)
    assert update(bench, down) == 0
    assert "streams.version" not in bench.machine.image.features


@pytest.mark.parametrize(
    "wrong",
    [
        FeatureUpdate("no.such.feature", 1),
        FeatureUpdate("", 1),
        FeatureUpdate("metadata.version", 32000),
        FeatureUpdate("metadata.version", -1),
        FeatureUpdate("metadata.version", 29),
        FeatureUpdate("metadata.version", 29, UpgradeType.SAFE_DOWNGRADE),
        FeatureUpdate("metadata.version", 29, UpgradeType.UNSAFE_DOWNGRADE),
        FeatureUpdate("transaction.version", 2, 9),
        FeatureUpdate("transaction.version", 1),
        FeatureUpdate("transaction.version", 3),
    ],
)
def test_a_level_that_cannot_be_is_refused(bench: Bench, wrong: FeatureUpdate) -> None:
    assert update(bench, wrong) == ErrorCode.INVALID_UPDATE_VERSION


def test_all_updates_stand_or_fall_together(bench: Bench) -> None:
    down = FeatureUpdate("share.version", 0, UpgradeType.SAFE_DOWNGRADE)
    assert update(bench, down, FeatureUpdate("nothing", 1)) != 0
    assert bench.machine.image.features["share.version"] == 1
    assert update(bench, down, validate_only=True) == 0
    assert bench.machine.image.features["share.version"] == 1


def test_a_feature_that_needs_another_waits_for_it() -> None:
    bench = Bench([1], metadata_version=22)
    eligible = FeatureUpdate("eligible.leader.replicas.version", 1)
    assert update(bench, eligible) == ErrorCode.INVALID_UPDATE_VERSION
    assert update(bench, FeatureUpdate("metadata.version", 30), eligible) == 0
    # With it all must agree on the minimum, so it is written down.
    assert bench.machine.image.config(CLUSTER_DEFAULT) == {"min.insync.replicas": "1"}


def test_a_level_waits_for_controllers_that_have_not_said_what_they_support() -> None:
    settings = {
        "process.roles": "controller",
        "listeners": "CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "3000@h1:9093,3001@h2:9093",
    }
    bench = Bench(metadata_version=25, node_id=3000, settings=settings)
    raised = FeatureUpdate("metadata.version", 30)
    with pytest.raises(ApiError, match="controller 3001 has not registered") as refused:
        bench.machine.decide_update_features([raised], validate_only=False)
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    registration = ControllerRegistrationRequest(
        controller_id=3001,
        incarnation_id=b"i" * 16,
        zk_migration_ready=False,
        features=[
            Feature(
                name="metadata.version",
                min_supported_version=7,
                max_supported_version=30,
            )
        ],
    )
    bench.do(bench.machine.decide_register_controller(registration))
    assert update(bench, raised) == 0


def test_the_level_of_the_quorum_is_checked_and_left_to_the_quorum(bench: Bench) -> None:
    def ask(level: int, kind: UpgradeType, *, at: int) -> int:
        asked = FeatureUpdate("kraft.version", level, kind)
        try:
            decision = bench.machine.decide_update_features(
                [asked], validate_only=False, kraft_version=at
            )
        except ApiError as refusal:
            return refusal.code
        assert not decision.records
        return 0

    up, down = UpgradeType.UPGRADE, UpgradeType.SAFE_DOWNGRADE
    refused = ErrorCode.INVALID_UPDATE_VERSION
    assert ask(1, up, at=0) == ask(1, up, at=1) == ask(1, down, at=1) == 0
    assert ask(1, down, at=0) == ask(0, up, at=1) == ask(0, down, at=1) == refused
    assert ask(2, up, at=1) == refused
    old = bench.registration(2)
    old.features = [each for each in old.features if each.name != "kraft.version"]
    bench.do(bench.machine.decide_register_broker(old, bench.now))
    assert ask(1, up, at=0) == refused


# The first records


def controller() -> Controller:
    config = node_config({"log.dirs": "/d", "min.insync.replicas": "2"})
    return Controller("c", config, Random(1))


def test_a_new_cluster_begins_with_its_features_in_one_transaction() -> None:
    bootstrap = list(feature_records(default_levels()))
    decision = controller().decide_activate(bootstrap, log_is_empty=True)
    kinds = [record.API for record in decision.records]
    assert kinds == [
        RecordType.BEGIN_TRANSACTION,
        *[RecordType.FEATURE_LEVEL] * 6,
        RecordType.CONFIG,
        RecordType.END_TRANSACTION,
    ]
    replay = Replay()
    replay.apply(decision.records)
    assert replay.image.features == default_levels()
    assert replay.image.config(CLUSTER_DEFAULT) == {"min.insync.replicas": "2"}


def test_an_old_level_knows_no_transactions() -> None:
    bootstrap = list(feature_records(default_levels(7)))
    decision = controller().decide_activate(bootstrap, log_is_empty=True)
    assert decision.records == bootstrap


def test_a_transaction_that_was_left_open_is_aborted() -> None:
    bootstrap = list(feature_records(default_levels()))
    machine = controller()
    first = machine.decide_activate(bootstrap, log_is_empty=True)
    machine.apply(first.records[:3], 0)
    again = machine.decide_activate(bootstrap, log_is_empty=True)
    assert again.records[0].API == RecordType.ABORT_TRANSACTION
    machine.apply(again.records, 3)
    assert machine.image.features == default_levels()
    assert not machine.decide_activate(bootstrap, log_is_empty=False).records
