"""The settings by kind of resource, and the broker settings that are defaults of topic settings.

Tables are read on first use: most commands never need them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from headwater.config.definition import ConfigDef, read_table

# Topic setting → broker settings that provide its default, in order of precedence, with the factor
# that converts their unit to the topic's.
TOPIC_SYNONYMS: dict[str, tuple[tuple[str, int], ...]] = {
    "cleanup.policy": (("log.cleanup.policy", 1),),
    "compression.gzip.level": (("compression.gzip.level", 1),),
    "compression.lz4.level": (("compression.lz4.level", 1),),
    "compression.type": (("compression.type", 1),),
    "compression.zstd.level": (("compression.zstd.level", 1),),
    "delete.retention.ms": (("log.cleaner.delete.retention.ms", 1),),
    "file.delete.delay.ms": (("log.segment.delete.delay.ms", 1),),
    "flush.messages": (("log.flush.interval.messages", 1),),
    "flush.ms": (("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)),
    "index.interval.bytes": (("log.index.interval.bytes", 1),),
    "local.retention.bytes": (("log.local.retention.bytes", 1),),
    "local.retention.ms": (("log.local.retention.ms", 1),),
    "max.compaction.lag.ms": (("log.cleaner.max.compaction.lag.ms", 1),),
    "max.message.bytes": (("message.max.bytes", 1),),
    "message.timestamp.after.max.ms": (("log.message.timestamp.after.max.ms", 1),),
    "message.timestamp.before.max.ms": (("log.message.timestamp.before.max.ms", 1),),
    "message.timestamp.type": (("log.message.timestamp.type", 1),),
    "min.cleanable.dirty.ratio": (("log.cleaner.min.cleanable.ratio", 1),),
    "min.compaction.lag.ms": (("log.cleaner.min.compaction.lag.ms", 1),),
    "min.insync.replicas": (("min.insync.replicas", 1),),
    "preallocate": (("log.preallocate", 1),),
    "retention.bytes": (("log.retention.bytes", 1),),
    "retention.ms": (
        ("log.retention.ms", 1),
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", 3_600_000),
    ),
    "segment.bytes": (("log.segment.bytes", 1),),
    "segment.index.bytes": (("log.index.size.max.bytes", 1),),
    "segment.jitter.ms": (("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", 3_600_000)),
    "segment.ms": (("log.roll.ms", 1), ("log.roll.hours", 3_600_000)),
    "unclean.leader.election.enable": (("unclean.leader.election.enable", 1),),
}

# Group settings without a corresponding broker setting; for all others it is `group.` + name.
_GROUP_ONLY = frozenset(
    {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
)

LISTENER_PREFIX = "listener.name."
LISTENER_OVERRIDE = re.compile(r"listener\.name\.[^.]*\.(.*)")

# These follow a SASL mechanism in a listener's override: listener.name.x.plain.sasl.jaas.config.
LISTENER_MECHANISM_SETTINGS = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)

_TIME_FAMILIES = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)


@cache
def broker_definitions() -> Mapping[str, ConfigDef]:
    from headwater.config.tables import (
        cluster,
        coordinators,
        groups,
        headwater,
        log,
        network,
        security,
        tiered,
    )

    definitions: dict[str, ConfigDef] = {}
    for area in (cluster, network, log, groups, coordinators, tiered, security, headwater):
        definitions.update(read_table(area.TABLE))
    return definitions


@cache
def topic_definitions() -> Mapping[str, ConfigDef]:
    from headwater.config.tables import topic

    return read_table(topic.TABLE)


@cache
def group_definitions() -> Mapping[str, ConfigDef]:
    from headwater.config.tables import group

    return read_table(group.TABLE)


@cache
def client_metrics_definitions() -> Mapping[str, ConfigDef]:
    from headwater.config.tables import client_metrics

    return read_table(client_metrics.TABLE)


def broker_definition(name: str) -> ConfigDef | None:
    """Returns the definition of a broker's key, also for a listener's override."""
    definitions = broker_definitions()
    if name in definitions:
        return definitions[name]
    override = LISTENER_OVERRIDE.fullmatch(name)
    return definitions.get(base_name(override[1])) if override else None


def oauth_definition(name: str) -> ConfigDef | None:
    """Returns the definition of a key such as listener.name.x.oauthbearer.sasl.oauthbearer.scope.

    Only the handlers of OAUTHBEARER look behind the mechanism for all of their settings. To the API
    these keys are unknown, as in Kafka, so that `broker_definition` has none for them."""
    override = LISTENER_OVERRIDE.fullmatch(name)
    mechanism, _, key = override[1].partition(".") if override else ("", "", "")
    is_read = mechanism == "oauthbearer" and key.startswith(("sasl.login.", "sasl.oauthbearer."))
    return broker_definitions().get(key) if is_read else None


def base_name(inside_listener: str) -> str:
    """Returns the name of a setting without the SASL mechanism that may precede it."""
    for setting in LISTENER_MECHANISM_SETTINGS:
        if inside_listener.endswith(setting):
            return setting
    return inside_listener


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Returns the names under which a broker setting may be given, in order of precedence."""
    for family in _TIME_FAMILIES:
        if name in family:
            return family
    if name == "log.flush.interval.ms":
        return (name, "log.flush.scheduler.interval.ms")
    override = LISTENER_OVERRIDE.fullmatch(name)
    if override:
        return (name, base_name(override[1]))
    return (name,)


def group_synonym(name: str) -> str | None:
    """Returns the broker setting that provides the default of a group setting, if any."""
    return None if name in _GROUP_ONLY else f"group.{name}"
