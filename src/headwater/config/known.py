"""The keys that a node accepts: those it acts on, and, with a warning, others that Kafka knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headwater.config.catalog import (
    TOPIC_SYNONYMS,
    broker_definition,
    broker_definitions,
    oauth_definition,
    topic_definitions,
)
from headwater.config.values import ConfigError

# Broker settings that are new in Kafka 4.4, after the release of our tables.
_NEWER = """
errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
group.consumer.assignor.offload.enable group.share.assignor.offload.enable
group.share.dlq.manager.class.name group.streams.acceptable.recovery.lag
group.streams.assignor.offload.enable group.streams.assignors
group.streams.max.warmup.replicas group.streams.min.task.offset.interval.ms
group.streams.num.warmup.replicas group.streams.rack.aware.assignment.tags
group.streams.task.offset.interval.ms group.streams.topology.description.plugin.class
log.remote.copy.lag.bytes log.remote.copy.lag.ms
sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
"""

# Settings removed in Kafka 4.0 that older server.properties files may still contain.
_OLDER = """
advertised.host.name advertised.port broker.id.generation.enable control.plane.listener.name
controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
delegation.token.master.key eligible.leader.replicas.enable group.coordinator.new.enable
host.name inter.broker.protocol.version leader.imbalance.per.broker.percentage
log.message.downconversion.enable log.message.format.version
log.message.timestamp.difference.max.ms offsets.commit.required.acks port
reserved.broker.max.id zookeeper.clientCnxnSocket zookeeper.connect
zookeeper.connection.timeout.ms zookeeper.max.in.flight.requests
zookeeper.metadata.migration.enable zookeeper.metadata.migration.min.batch.size
zookeeper.session.timeout.ms zookeeper.set.acl
"""

# Known to Kafka without being in its table of broker settings: dynamic throttles.
_ELSEWHERE = """
follower.replication.throttled.rate leader.replication.throttled.rate
replica.alter.log.dirs.io.max.bytes.per.second
"""

# What the standard authorizer reads, which are none of Kafka's broker settings either.
OF_AUTHORIZER = frozenset({"allow.everyone.if.no.acl.found", "super.users"})

# Prefixes of plugin settings, which Kafka passes on without knowing the names.
_OPEN_PREFIXES = (
    "kafka.metrics.",
    "listener.name.",
    "metrics.",
    "metric.reporters.",
    "password.encoder.",
    "rlmm.config.",
    "rsm.config.",
    "sasl.",
    "security.",
    "ssl.",
    "zookeeper.ssl.",
)


# Settings that a listener may have of its own. (In Kafka it cannot have `max.connections.per.ip`.)
_IN_LISTENERS = frozenset(
    {
        "connections.max.reauth.ms",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "principal.builder.class",
    }
)


def warnings_for(properties: Mapping[str, str]) -> list[str]:
    """Returns a line for each key that is accepted without effect; raises ConfigError for an
    unknown key."""
    lines = []
    for key, text in properties.items():
        definition = broker_definition(key) or oauth_definition(key)
        if definition is not None and definition.supported:
            name = definition.name
            if name == key or name in _IN_LISTENERS or name.startswith(("sasl.", "ssl.")):
                continue
            lines.append(f"{key} has no effect: {definition.name} is not a setting of listeners")
            continue
        if key in OF_AUTHORIZER:
            if not properties.get("authorizer.class.name"):
                lines.append(f"{key} has no effect: authorizer.class.name is not set")
            continue
        if key.startswith("config.providers."):
            continue  # parameters of providers, which have been read by now
        reason = definition.why_without_meaning if definition is not None else None
        if reason is not None:
            lines.append(f"{key} has no effect: {reason}")
        else:
            lines.append(_warning(key, text, known=definition is not None))
    return lines


def _warning(key: str, text: str, *, known: bool) -> str:
    if known or key in _NEWER.split() or key in _ELSEWHERE.split():
        return f"{key} has no effect: Headwater does not support this Kafka setting yet"
    if key in _OLDER.split():
        return f"{key} has no effect: it was removed from Kafka"
    if key in topic_definitions():
        instead = f"; for a node, set {TOPIC_SYNONYMS[key][0][0]}" if key in TOPIC_SYNONYMS else ""
        return f"{key} has no effect: it is a topic setting{instead}"
    if key.startswith(_OPEN_PREFIXES):
        return f"{key} has no effect: unknown setting{_closest(key)}"
    raise ConfigError(key, text, f"unknown setting{_closest(key)}")


def _closest(key: str) -> str:
    return suggestion(key, broker_definitions())


def suggestion(key: str, names: Iterable[str]) -> str:
    """Returns `, did you mean ...?` with the closest name, or an empty string."""
    import difflib  # slow to import, and only needed to help with a typo

    close = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
    return f", did you mean {close[0]}?" if close else ""
