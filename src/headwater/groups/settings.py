"""The settings of groups, taken from a node's configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from headwater.config.node import NodeConfig

# A new member cannot send heartbeats while its JoinGroup is parked, so that it is parked for at
# most this long. The number is Kafka's, which has no setting for it either.
NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """Limits and intervals of groups and their offsets, with Kafka's defaults."""

    # Classic groups.
    initial_rebalance_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    group_size_max: int = 2**31 - 1

    # Consumer groups. The session, heartbeat and assignment periods may be overridden by a group's
    # own settings, within their bounds.
    consumer_session_timeout_ms: int = 45_000
    consumer_session_timeout_ms_min: int = 45_000
    consumer_session_timeout_ms_max: int = 60_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_heartbeat_interval_ms_min: int = 5000
    consumer_heartbeat_interval_ms_max: int = 15_000
    consumer_assignment_interval_ms: int = 1000
    consumer_assignment_interval_ms_min: int = 0
    consumer_assignment_interval_ms_max: int = 15_000
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_group_size_max: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_migration_policy: str = "bidirectional"

    # Offsets.
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1000
    offsets_retention_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, config: NodeConfig) -> GroupSettings:
        def number(key: str) -> int:
            return cast(int, config.value(key))

        return cls(
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            group_size_max=config.group_max_size,
            consumer_session_timeout_ms=number("group.consumer.session.timeout.ms"),
            consumer_session_timeout_ms_min=number("group.consumer.min.session.timeout.ms"),
            consumer_session_timeout_ms_max=number("group.consumer.max.session.timeout.ms"),
            consumer_heartbeat_interval_ms=number("group.consumer.heartbeat.interval.ms"),
            consumer_heartbeat_interval_ms_min=number("group.consumer.min.heartbeat.interval.ms"),
            consumer_heartbeat_interval_ms_max=number("group.consumer.max.heartbeat.interval.ms"),
            consumer_assignment_interval_ms=number("group.consumer.assignment.interval.ms"),
            consumer_assignment_interval_ms_min=number("group.consumer.min.assignment.interval.ms"),
            consumer_assignment_interval_ms_max=number("group.consumer.max.assignment.interval.ms"),
            consumer_regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            consumer_group_size_max=config.group_consumer_max_size,
            consumer_assignors=config.group_consumer_assignors,
            consumer_migration_policy=config.group_consumer_migration_policy.lower(),
            offset_metadata_bytes_max=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * 60_000,
            offsets_retention_check_interval_ms=config.offsets_retention_check_interval_ms,
        )
