"""The settings of a topic, typed: the log and the broker read them for each append and fetch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headwater.config.catalog import TOPIC_SYNONYMS, topic_definitions
from headwater.config.definition import parse
from headwater.config.layers import BrokerLayers
from headwater.config.values import ConfigError, ConfigValue

UNLIMITED = -1
_AS_RETENTION = -2  # local.retention.* follows retention.* until it is set


class TopicConfig(NamedTuple):
    """The settings of a topic. Immutable: an alteration creates a new object."""

    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    segment_index_bytes: int
    index_interval_bytes: int
    preallocate: bool
    file_delete_delay_ms: int
    flush_messages: int
    flush_ms: int
    retention_ms: int
    retention_bytes: int
    compact: bool
    delete: bool
    delete_retention_ms: int
    min_compaction_lag_ms: int
    max_compaction_lag_ms: int
    min_cleanable_dirty_ratio: float
    max_message_bytes: int
    log_append_time: bool
    timestamp_before_max_ms: int
    timestamp_after_max_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    min_insync_replicas: int
    unclean_leader_election_enable: bool
    leader_throttled_replicas: tuple[str, ...]
    follower_throttled_replicas: tuple[str, ...]
    remote_storage_enable: bool
    remote_log_copy_disable: bool
    remote_log_delete_on_disable: bool
    local_retention_ms: int
    local_retention_bytes: int

    @property
    def compression_level(self) -> int | None:
        """The compression level of the topic's codec, or None if the codec has no levels."""
        match self.compression_type:
            case "gzip":
                return self.compression_gzip_level
            case "lz4":
                return self.compression_lz4_level
            case "zstd":
                return self.compression_zstd_level
        return None

    @property
    def segment_ms_max(self) -> int:
        """The maximum age of the active segment, which compaction never touches."""
        if self.compact and self.max_compaction_lag_ms > 0:
            return min(self.max_compaction_lag_ms, self.segment_ms)
        return self.segment_ms


class TopicDefaults:
    """The default settings of topics on a broker; created again when they change."""

    __slots__ = ("_plain", "values")

    def __init__(self, layers: BrokerLayers | None = None) -> None:
        self.values = topic_default_values(layers or BrokerLayers())
        self._plain: TopicConfig | None = None

    def config(self, overrides: Mapping[str, str] | None = None) -> TopicConfig:
        """Returns the settings of a topic with these overrides; topics without any share one
        object."""
        if not overrides:
            if self._plain is None:
                self._plain = _typed(self.values)
            return self._plain
        return _typed(self.values | parse_topic_overrides(overrides))


def topic_config(
    overrides: Mapping[str, str] | None = None, layers: BrokerLayers | None = None
) -> TopicConfig:
    """Returns the settings of a topic: its overrides, then the broker's, then Kafka's defaults."""
    return TopicDefaults(layers).config(overrides)


def parse_topic_overrides(overrides: Mapping[str, str]) -> dict[str, ConfigValue]:
    """Returns typed overrides by name; raises ConfigError for an unknown name or invalid value."""
    definitions = topic_definitions()
    values: dict[str, ConfigValue] = {}
    for name, text in overrides.items():
        if name not in definitions:
            raise ConfigError(name, text, "not a topic setting")
        values[name] = parse(definitions[name], text)
    return values


def topic_default_values(layers: BrokerLayers) -> dict[str, ConfigValue]:
    """Returns the value of every topic setting without override, by name."""
    values: dict[str, ConfigValue] = {}
    for name, definition in topic_definitions().items():
        values[name] = definition.default
        for key, factor in TOPIC_SYNONYMS.get(name, ()):
            value = layers.value(key)
            if value is not None:
                values[name] = value if factor == 1 else int(str(value)) * factor
                break
    retention = values["retention.ms"]
    if isinstance(retention, int) and retention < 0:
        values["retention.ms"] = UNLIMITED
    return values


def _typed(values: Mapping[str, Any]) -> TopicConfig:
    policy = values["cleanup.policy"]
    local_ms, local_bytes = values["local.retention.ms"], values["local.retention.bytes"]
    return TopicConfig(
        segment_bytes=values["internal.segment.bytes"] or values["segment.bytes"],
        segment_ms=values["segment.ms"],
        segment_jitter_ms=values["segment.jitter.ms"],
        segment_index_bytes=values["segment.index.bytes"],
        index_interval_bytes=values["index.interval.bytes"],
        preallocate=values["preallocate"],
        file_delete_delay_ms=values["file.delete.delay.ms"],
        flush_messages=values["flush.messages"],
        flush_ms=values["flush.ms"],
        retention_ms=values["retention.ms"],
        retention_bytes=values["retention.bytes"],
        compact="compact" in policy,
        delete="delete" in policy,
        delete_retention_ms=values["delete.retention.ms"],
        min_compaction_lag_ms=values["min.compaction.lag.ms"],
        max_compaction_lag_ms=values["max.compaction.lag.ms"],
        min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
        max_message_bytes=values["max.message.bytes"],
        log_append_time=values["message.timestamp.type"] == "LogAppendTime",
        timestamp_before_max_ms=values["message.timestamp.before.max.ms"],
        timestamp_after_max_ms=values["message.timestamp.after.max.ms"],
        compression_type=values["compression.type"],
        compression_gzip_level=values["compression.gzip.level"],
        compression_lz4_level=values["compression.lz4.level"],
        compression_zstd_level=values["compression.zstd.level"],
        min_insync_replicas=values["min.insync.replicas"],
        unclean_leader_election_enable=values["unclean.leader.election.enable"],
        leader_throttled_replicas=values["leader.replication.throttled.replicas"],
        follower_throttled_replicas=values["follower.replication.throttled.replicas"],
        remote_storage_enable=values["remote.storage.enable"],
        remote_log_copy_disable=values["remote.log.copy.disable"],
        remote_log_delete_on_disable=values["remote.log.delete.on.disable"],
        local_retention_ms=values["retention.ms"] if local_ms == _AS_RETENTION else local_ms,
        local_retention_bytes=(
            values["retention.bytes"] if local_bytes == _AS_RETENTION else local_bytes
        ),
    )
