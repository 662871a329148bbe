"""A setting is marked as supported if, and only if, the node reads it.

A key with a wrong `+` would be taken without a warning and do nothing; one with a wrong `-` warns
that it does nothing, and acts.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import headwater
from headwater.config import NodeConfig
from headwater.config.catalog import TOPIC_SYNONYMS, broker_definitions
from headwater.config.definition import read_table
from headwater.config.tables import cluster

# Read while the settings themselves are put together, under another name or as part of another.
_READ_BY_CONFIG = {
    "broker.id": "node.id stands for it",
    "config.providers": "config/providers.py, before a node sees its settings",
    "controller.listener.names": "NodeConfig.controller_listeners",
    "controller.quorum.bootstrap.servers": "NodeConfig.alone",
    "headwater.metrics.listen": "NodeConfig.metrics_listener",
    "headwater.otlp.endpoint": "NodeConfig.otlp",
    "headwater.otlp.headers": "NodeConfig.otlp",
    "headwater.otlp.interval.ms": "NodeConfig.otlp",
    "inter.broker.listener.name": "config/support.py: must be a plain listener",
    "listener.security.protocol.map": "Listener.protocol",
    "log.dir": "NodeConfig.log_dirs",
    "process.roles": "NodeConfig.is_broker, is_controller",
    "sasl.login.callback.handler.class": "config/support.py: only what a node does itself",
    "sasl.oauthbearer.jwt.validator.class": "config/support.py: only what a node does itself",
    "sasl.server.callback.handler.class": "config/support.py: only what a node does itself",
    "security.inter.broker.protocol": "NodeConfig.inter_broker_listener_name",
}
_DEFAULTS_OF_TOPICS = {name for names in TOPIC_SYNONYMS.values() for name, _ in names}
# Settings of groups, read with what a group has of its own on top of them.
_DEFAULTS_OF_GROUPS = re.compile(
    r"group\.consumer\.(min\.|max\.)?(assignment|heartbeat|session)\.(interval|timeout)\.ms"
)
_NOT_A_NODE = ("client", "cli", "spark", "_blocking", "config", "testing")


@cache
def _sources() -> str:
    root = Path(headwater.__file__).parent
    return "\n".join(
        path.read_text()
        for path in sorted(root.rglob("*.py"))
        if path.relative_to(root).parts[0] not in _NOT_A_NODE
    )


def _is_read(name: str) -> bool:
    attribute = name.replace(".", "_")
    return (
        name in _READ_BY_CONFIG
        or _DEFAULTS_OF_GROUPS.fullmatch(name) is not None
        or re.search(rf'\.{attribute}\b|"{re.escape(name)}"', _sources()) is not None
    )


def test_a_setting_is_marked_as_supported_if_and_only_if_a_node_reads_it() -> None:
    wrong = [
        f"{name} is marked {'+' if definition.supported else '-'}"
        for name, definition in broker_definitions().items()
        if name not in _DEFAULTS_OF_TOPICS and definition.supported != _is_read(name)
    ]
    assert wrong == [], ", ".join(wrong)


def test_an_attribute_of_the_node_settings_exists_only_if_something_reads_it() -> None:
    """Any other setting is still validated, and `NodeConfig.value` gives it."""
    rules = (Path(headwater.__file__).parent / "config" / "node_rules.py").read_text()
    tests = "\n".join(path.read_text() for path in Path(__file__).parent.glob("test_config*.py"))
    text = _sources() + rules + tests
    properties = ("layers", "warnings", "topic_defaults", "controller_listener_names")
    unread = [
        name
        for name in NodeConfig._fields
        if name not in properties and not re.search(rf"\.{name}\b", text)
    ]
    assert unread == [], ", ".join(unread)


# Why a setting has no effect. The documentation of a setting that never will have one says why.
_NOT_YET = {
    "controller.performance.always.log.threshold.ms": "internal",
    "controller.performance.sample.period.ms": "internal",
    "internal.metadata.delete.delay.millis": "internal",
    "internal.metadata.log.segment.bytes": "internal",
    "internal.metadata.max.batch.size.in.bytes": "internal",
    "replica.socket.receive.buffer.bytes": "the kernel sizes buffers by itself",
    "replication.quota.window.num": "no quotas yet",
    "replication.quota.window.size.seconds": "no quotas yet",
    "server.max.startup.time.ms": "internal",
    "unstable.feature.versions.enable": "internal",
}


def test_every_setting_of_the_cluster_takes_effect_or_has_a_reason() -> None:
    without = {
        name: definition.why_without_meaning
        for name, definition in read_table(cluster.TABLE).items()
        if not definition.supported
    }
    unexplained = {name for name, reason in without.items() if reason is None}
    assert unexplained == set(_NOT_YET)


def test_what_has_no_meaning_on_one_loop_says_so() -> None:
    for name in ("num.io.threads", "num.network.threads", "num.replica.fetchers"):
        definition = broker_definitions()[name]
        assert definition.why_without_meaning is not None
        assert not definition.supported
