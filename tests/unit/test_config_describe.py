"""DescribeConfigs: names, values, sources and synonyms as Kafka 4.3 answers them."""

from __future__ import annotations

from collections.abc import Iterable

from headwater.config import BrokerLayers, ConfigSource, ConfigType, node_config
from headwater.config.describe import (
    DescribedConfig,
    Synonym,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)

TOPIC = ConfigSource.DYNAMIC_TOPIC
BROKER = ConfigSource.DYNAMIC_BROKER
CLUSTER = ConfigSource.DYNAMIC_DEFAULT_BROKER
STATIC = ConfigSource.STATIC_BROKER
DEFAULT = ConfigSource.DEFAULT
GROUP = ConfigSource.GROUP


def by_name(entries: Iterable[DescribedConfig]) -> dict[str, DescribedConfig]:
    return {entry.name: entry for entry in entries}


def of_kafka(entries: Iterable[DescribedConfig]) -> list[DescribedConfig]:
    return [entry for entry in entries if not entry.name.startswith("headwater.")]


def test_each_resource_has_as_many_settings_as_in_kafka() -> None:
    layers = node_config().layers
    assert len(of_kafka(describe_broker(layers))) == 340
    assert len(describe_topic({}, layers)) == 33
    assert len(describe_group({}, layers)) == 17
    assert len(describe_client_metrics({})) == 3
    assert describe_broker_defaults({}) == []


def test_a_topic_setting_lists_its_override_and_every_layer_below() -> None:
    layers = BrokerLayers(
        {"log.retention.ms": "111"}, {}, {"log.retention.hours": "24", "log.dirs": "/x"}
    )
    entry = by_name(describe_topic({"retention.ms": " 5"}, layers))["retention.ms"]
    assert (entry.value, entry.source, entry.type) == ("5", TOPIC, ConfigType.LONG)
    assert entry.synonyms == (
        Synonym("retention.ms", "5", TOPIC),
        Synonym("log.retention.ms", "111", BROKER),
        Synonym("log.retention.hours", "24", STATIC),
        Synonym("log.retention.hours", "168", DEFAULT),
    )


def test_hours_in_the_file_change_the_value_but_are_no_synonym_of_milliseconds() -> None:
    layers = BrokerLayers({}, {}, {"log.roll.hours": "48"})
    entry = by_name(describe_topic({}, layers))["segment.ms"]
    assert (entry.value, entry.source, entry.synonyms) == ("172800000", DEFAULT, ())
    assert entry.is_default


def test_a_synonym_shows_the_text_as_given_and_the_entry_the_value_as_read() -> None:
    layers = BrokerLayers({}, {}, {"log.cleanup.policy": "compact , delete"})
    entry = by_name(describe_topic({}, layers))["cleanup.policy"]
    assert (entry.value, entry.source) == ("compact,delete", STATIC)
    assert entry.synonyms[0] == Synonym("log.cleanup.policy", "compact , delete", STATIC)


def test_a_dynamic_setting_resets_its_coarser_twin_of_the_file() -> None:
    layers = BrokerLayers({"log.retention.ms": "111"}, {}, {"log.retention.hours": "24"})
    entry = by_name(describe_broker(layers))["log.retention.hours"]
    assert (entry.value, entry.source) == ("168", STATIC)


def test_secrets_and_unknown_keys_are_hidden() -> None:
    layers = BrokerLayers({}, {}, {"ssl.key.password": "hunter2", "my.plugin.token": "hunter2"})
    entries = by_name(describe_broker(layers))
    for name, kind in (
        ("ssl.key.password", ConfigType.PASSWORD),
        ("my.plugin.token", ConfigType.UNKNOWN),
    ):
        entry = entries[name]
        assert (entry.value, entry.is_sensitive, entry.type) == (None, True, kind)
        assert entry.synonyms == (Synonym(name, None, STATIC),)
    assert "hunter2" not in repr(entries)


def test_an_override_of_a_listener_falls_back_to_the_setting_itself() -> None:
    name = "listener.name.inside.max.connections"
    layers = BrokerLayers({name: "100", "max.connections": "1000"}, {}, {name: "500"})
    entry = by_name(describe_broker(layers))[name]
    assert (entry.value, entry.type, entry.read_only) == ("100", ConfigType.INT, True)
    assert entry.synonyms == (
        Synonym(name, "100", BROKER),
        Synonym("max.connections", "1000", BROKER),
        Synonym(name, "500", STATIC),
        Synonym("max.connections", "2147483647", DEFAULT),
    )


def test_only_what_may_change_at_run_time_is_not_read_only() -> None:
    entries = by_name(describe_broker(BrokerLayers()))
    assert entries["num.partitions"].read_only
    assert not entries["log.retention.ms"].read_only
    assert sum(not entry.read_only for entry in of_kafka(entries.values())) == 99


def test_internal_settings_are_shown_only_where_they_are_set() -> None:
    name = "unstable.api.versions.enable"
    assert name not in by_name(describe_broker(BrokerLayers()))
    assert name in by_name(describe_broker(BrokerLayers({}, {}, {name: "true"})))
    assert "internal.segment.bytes" in by_name(
        describe_topic({"internal.segment.bytes": "5"}, BrokerLayers())
    )


def test_the_cluster_resource_has_only_what_is_set_for_all() -> None:
    (entry,) = describe_broker_defaults({"log.cleaner.io.max.bytes.per.second": "5"})
    assert (entry.value, entry.source, entry.type) == ("5", CLUSTER, ConfigType.DOUBLE)
    assert entry.synonyms == (Synonym(entry.name, "5", CLUSTER),)


def test_a_group_takes_its_default_from_the_broker() -> None:
    key = "group.consumer.session.timeout.ms"
    layers = BrokerLayers({}, {}, {key: "50000"})
    inherited = by_name(describe_group({}, layers))["consumer.session.timeout.ms"]
    assert (inherited.value, inherited.source) == ("50000", STATIC)
    own = by_name(describe_group({"consumer.session.timeout.ms": "55000"}, layers))
    assert own["consumer.session.timeout.ms"].synonyms == (
        Synonym("consumer.session.timeout.ms", "55000", GROUP),
        Synonym(key, "50000", STATIC),
        Synonym(key, "45000", DEFAULT),
    )
    assert own["share.isolation.level"].synonyms == (
        Synonym("share.isolation.level", "read_uncommitted", DEFAULT),
    )


def test_a_subscription_has_its_own_source() -> None:
    entries = by_name(describe_client_metrics({"interval.ms": "5000"}))
    assert entries["interval.ms"].source is ConfigSource.CLIENT_METRICS
    assert entries["match"].synonyms == ()
    assert entries["match"].value == ""
