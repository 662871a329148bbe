"""TopicConfig: the chain from a topic's override down to Kafka's default."""

from __future__ import annotations

import pytest

from headwater.config import BrokerLayers, ConfigError, TopicDefaults, topic_config

HOUR_MS = 3_600_000


def test_a_topic_without_settings_has_kafkas_defaults() -> None:
    config = topic_config()
    assert config.segment_bytes == 1 << 30
    assert config.segment_ms == config.retention_ms == 168 * HOUR_MS
    assert config.retention_bytes == -1
    assert (config.delete, config.compact) == (True, False)
    assert config.flush_messages == config.flush_ms == 2**63 - 1
    assert config.max_message_bytes == 1_048_588
    assert not config.log_append_time
    assert config.compression_type == "producer"
    assert config.compression_level is None
    assert config.min_insync_replicas == 1


def test_the_strongest_layer_wins() -> None:
    key = "message.max.bytes"
    static = {key: "1"}
    assert topic_config({}, BrokerLayers({}, {}, static)).max_message_bytes == 1
    assert topic_config({}, BrokerLayers({}, {key: "2"}, static)).max_message_bytes == 2
    layers = BrokerLayers({key: "3"}, {key: "2"}, static)
    assert topic_config({}, layers).max_message_bytes == 3
    assert topic_config({"max.message.bytes": "4"}, layers).max_message_bytes == 4


def test_a_finer_unit_hides_a_coarser_one_whatever_its_layer() -> None:
    static = {"log.retention.hours": "1", "log.roll.hours": "2", "log.roll.jitter.hours": "3"}
    config = topic_config({}, BrokerLayers({}, {}, static))
    assert config.retention_ms == HOUR_MS
    assert config.segment_ms == 2 * HOUR_MS
    assert config.segment_jitter_ms == 3 * HOUR_MS
    minutes = BrokerLayers({}, {}, static | {"log.retention.minutes": "5"})
    assert topic_config({}, minutes).retention_ms == 300_000
    dynamic = BrokerLayers({}, {"log.retention.ms": "7"}, static | {"log.retention.minutes": "5"})
    assert topic_config({}, dynamic).retention_ms == 7


def test_a_negative_retention_of_any_unit_means_for_ever() -> None:
    layers = BrokerLayers({}, {}, {"log.retention.hours": "-1"})
    assert topic_config({}, layers).retention_ms == -1


def test_the_flush_interval_falls_back_to_the_schedulers() -> None:
    layers = BrokerLayers({}, {}, {"log.flush.scheduler.interval.ms": "50"})
    assert topic_config({}, layers).flush_ms == 50


def test_local_retention_follows_retention_until_it_is_set() -> None:
    config = topic_config({"retention.ms": "1000", "retention.bytes": "10"})
    assert (config.local_retention_ms, config.local_retention_bytes) == (1000, 10)
    assert topic_config({"local.retention.ms": "5"}).local_retention_ms == 5


def test_the_level_is_that_of_the_chosen_codec() -> None:
    assert topic_config({"compression.type": "zstd"}).compression_level == 3
    assert topic_config({"compression.type": "lz4"}).compression_level == 9
    assert topic_config({"compression.type": "snappy"}).compression_level is None


def test_a_compacted_log_rolls_in_time_for_its_compaction_lag() -> None:
    lag = {"max.compaction.lag.ms": "1000"}
    assert topic_config(lag).segment_ms_max == 168 * HOUR_MS
    assert topic_config(lag | {"cleanup.policy": "compact"}).segment_ms_max == 1000


def test_topics_without_overrides_share_one_config() -> None:
    defaults = TopicDefaults()
    assert defaults.config() is defaults.config({})
    assert defaults.config({"retention.ms": "1"}) is not defaults.config()


def test_a_topic_config_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        topic_config().retention_ms = 5  # type: ignore[misc]


def test_an_unknown_or_wrong_override_names_itself() -> None:
    with pytest.raises(ConfigError, match=r"no\.such"):
        topic_config({"no.such": "1"})
    with pytest.raises(ConfigError, match=r"retention\.ms='soon'"):
        topic_config({"retention.ms": "soon"})
