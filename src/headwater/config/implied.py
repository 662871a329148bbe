"""Settings that are added to the user's, so that a node without settings runs by itself.

Kafka has no defaults for them, or defaults that need three brokers. DescribeConfigs shows them as
static settings of the broker.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.config.values import ConfigError

CONTROLLER_LISTENER = "CONTROLLER"
_BROKER_LISTENER = "PLAINTEXT://127.0.0.1:9092"

# A node by itself cannot keep three copies of its internal topics.
_ONE_COPY = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.min.isr",
)


def implied_properties(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings to add to those given; none of them was given. A node of a quorum must
    be told who it is: two that assumed the same would be taken for one."""
    implied: dict[str, str] = {}
    if _names_a_quorum(given):
        _require_identity(given)
    if "process.roles" not in given:
        implied["process.roles"] = "broker,controller"
    roles = _items(given.get("process.roles", "broker,controller"))
    if "node.id" not in given:
        broker_id = given.get("broker.id", "").strip()
        implied["node.id"] = broker_id if broker_id.isdigit() else "1"
    if "broker.id" not in given:
        implied["broker.id"] = given.get("node.id", implied.get("node.id", "1"))
    implied |= _implied_listeners(given, roles)
    if "controller" in roles and not _names_a_quorum(given):
        implied |= {key: "1" for key in _ONE_COPY if key not in given}
    return implied


def _implied_listeners(given: Mapping[str, str], roles: list[str]) -> dict[str, str]:
    """Brokers get a listener on loopback. Controllers get none: the only controller of a node that
    is alone is in the same process, and a listener that is not open must not be shown."""
    listeners = _items(given.get("listeners", _BROKER_LISTENER if "broker" in roles else ""))
    implied: dict[str, str] = {}
    if "listeners" not in given and listeners:
        implied["listeners"] = ",".join(listeners)
    named = {item.partition("://")[0].upper() for item in listeners}
    if "controller.listener.names" not in given and CONTROLLER_LISTENER in named:
        implied["controller.listener.names"] = CONTROLLER_LISTENER
    return implied


def _require_identity(given: Mapping[str, str]) -> None:
    if "node.id" not in given and "broker.id" not in given:
        raise ConfigError(
            "node.id", "", "expected an id that no other node of the cluster has, such as 1"
        )
    if "process.roles" not in given:
        raise ConfigError(
            "process.roles", "", "expected broker, controller, or broker,controller for both"
        )


def _names_a_quorum(given: Mapping[str, str]) -> bool:
    keys = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
    return any(given.get(key, "").strip() for key in keys)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]
