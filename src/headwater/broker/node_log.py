"""Log lines about a node and its metadata, and the levels of its loggers (KIP-412).

Levels can be changed while a node runs and are not stored: they last until it stops.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headwater import __version__
from headwater.broker.authorization import AUTHORIZER
from headwater.broker.config_gate import check_is_here
from headwater.config import NodeConfig
from headwater.config.alter import Alteration, AlterOperation
from headwater.config.catalog import broker_definition
from headwater.config.definition import parse
from headwater.config.implied import implied_properties
from headwater.config.known import OF_AUTHORIZER
from headwater.config.values import shown
from headwater.errors import ApiError, ErrorCode
from headwater.io import process_id
from headwater.metadata import Image, ResourceType
from headwater.metadata.model import NO_LEADER_CHANGE
from headwater.metadata.records import RecordType
from headwater.model import NO_NODE
from headwater.observability import ROOT, Log, printable
from headwater.protocol import Message
from headwater.protocol.records.metadata_nodes import BrokerRegistrationChangeRecord
from headwater.protocol.records.metadata_security import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from headwater.protocol.records.metadata_topics import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from headwater.security.acls import Rule
from headwater.security.sasl import SCRAM_NAMES

if TYPE_CHECKING:
    from headwater.broker.broker import Broker
    from headwater.broker.controller_role import ControllerRole

# The parts of a node that have a logger of their own.
AUTHENTICATION = "headwater.authentication"
REQUESTS = "headwater.requests"
CONNECTIONS = "headwater.connections"
CONTROLLER = "headwater.controller"
GROUPS = "headwater.groups"
REPLICATION = "headwater.replication"
STORAGE = "headwater.storage"
TRANSACTIONS = "headwater.transactions"
LOGGERS = (
    AUTHENTICATION,
    AUTHORIZER,
    CONNECTIONS,
    CONTROLLER,
    GROUPS,
    REPLICATION,
    REQUESTS,
    STORAGE,
    TRANSACTIONS,
)

# Kafka's names for levels, and which of ours they mean.
_LEVELS = {
    "FATAL": "error",
    "ERROR": "error",
    "WARN": "warn",
    "INFO": "info",
    "DEBUG": "debug",
    "TRACE": "debug",
}
_HIDDEN = "[hidden]"
_LEADERS_SHOWN = 20  # partitions of one decision that are named

# Shown elsewhere in the line.
_IN_START_LINE = frozenset({"node.id", "broker.id", "process.roles", "listeners", "log.dirs"})


def start_line(config: NodeConfig) -> str:
    """Describes a node that starts: version, process, identity, and settings that differ from
    their defaults, without secrets."""
    parts = [
        f"starting headwater {__version__}:",
        f"pid={process_id()}",
        f"node={config.node_id}",
        f"roles={','.join(config.process_roles)}",
        f"listeners={','.join(map(str, config.listeners))}",
        f"directories={','.join(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))}",
    ]
    implied = implied_properties({})
    for key, text in sorted(config.properties.items()):
        if key in _IN_START_LINE or implied.get(key) == text:
            continue
        if not _is_default(key, text):
            parts.append(f"{key}={_shown(key, text)}")
    return " ".join(parts)


def _is_default(key: str, text: str) -> bool:
    definition = broker_definition(key)
    return definition is not None and parse(definition, text) == definition.default


def _shown(key: str, text: str) -> str:
    """Returns a broker setting for the log. An unknown key may be a plugin's password: hidden."""
    definition = broker_definition(key)
    if key in OF_AUTHORIZER:
        return printable(text)
    if definition is None or definition.sensitive:
        return _HIDDEN
    return printable(shown(text))


def change_lines(records: Iterable[Message], before: Image) -> Iterator[str]:
    """Describes changes of topics, leaders, settings, users and rules in metadata records. `before`
    is the image that they were decided on."""
    created: dict[bytes, str] = {}
    settings: dict[str, list[str]] = {}  # of topics that are created
    partitions: Counter[bytes] = Counter()
    others: list[str] = []
    elected: list[PartitionChangeRecord] = []
    for record in records:
        match record:
            case TopicRecord():
                created[record.topic_id] = record.name
                settings[record.name] = []
            case PartitionRecord():
                partitions[record.topic_id] += 1
            case RemoveTopicRecord():
                found = before.topics_by_id.get(record.topic_id)
                others.append(f"topic {found.name if found else record.topic_id.hex()} deleted")
            case ConfigRecord(resource_type=ResourceType.TOPIC) if record.resource_name in settings:
                settings[record.resource_name].append(f", {record.name}={record.value}")
            case ConfigRecord():
                others.append(_config_line(record))
            case PartitionChangeRecord() if record.leader != NO_LEADER_CHANGE:
                elected.append(record)
            case BrokerRegistrationChangeRecord(fenced=fenced) if fenced:
                state = "fenced" if fenced > 0 else "unfenced"
                if len(before.brokers) > 1:
                    others.append(f"broker {record.broker_id} is {state}")
            case AccessControlEntryRecord():
                others.append(f"rule created: {printable(str(Rule.from_record(record)))}")
            case RemoveAccessControlEntryRecord(id=rule_id) if rule_id in before.acls:
                rule = Rule.from_record(before.acls[rule_id])
                others.append(f"rule deleted: {printable(str(rule))}")
            case _ if record.API in _SECURITY_LINES:
                others.append(_SECURITY_LINES[record.API](record))
    for topic_id, name in created.items():
        yield f"topic {name} created: partitions={partitions[topic_id]}{''.join(settings[name])}"
    for topic_id, count in partitions.items():
        if topic_id not in created and topic_id in before.topics_by_id:
            topic = before.topics_by_id[topic_id]
            yield f"topic {topic.name} has {len(topic.partitions) + count} partitions now"
    yield from others
    if elected and len(before.brokers) > 1:  # nobody else could lead a node's own partitions
        yield _leaders_line(elected, before)


def _leaders_line(elected: Sequence[PartitionChangeRecord], before: Image) -> str:
    """Describes new leaders in one line: a broker that fails may lead thousands of partitions."""
    shown: list[str] = []
    for record in elected[:_LEADERS_SHOWN]:
        topic = before.topics_by_id.get(record.topic_id)
        old = topic.partitions.get(record.partition_id) if topic is not None else None
        if topic is None or old is None:
            continue
        was, now = (str(n) if n != NO_NODE else "none" for n in (old.leader, record.leader))
        shown.append(f"{topic.name}-{record.partition_id} {was} to {now}")
    rest = len(elected) - len(shown)
    more = f" and {rest} more" if rest else ""
    return f"leaders of partitions changed: {', '.join(shown)}{more}"


_KINDS = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.CLIENT_METRICS: "client metrics",
    ResourceType.GROUP: "group",
}


def _scram_line(record: Any, what: str) -> str:
    mechanism = SCRAM_NAMES.get(record.mechanism, record.mechanism)
    return f"user {printable(record.name)}: the {mechanism} credential was {what}"


def _quota_line(record: Any) -> str:
    parts = (
        f"default {part.entity_type}"
        if part.entity_name is None
        else f"{part.entity_type} {printable(part.entity_name)}"
        for part in record.entity
    )
    what = "was removed" if record.remove else f"was set to {record.value:.15g}"
    return f"quota {printable(record.key)} of {', '.join(parts)} {what}"


# By type: the classes of these records are loaded with the first one.
_SECURITY_LINES: dict[int, Callable[[Any], str]] = {
    RecordType.USER_SCRAM_CREDENTIAL: lambda record: _scram_line(record, "set"),
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: lambda record: _scram_line(record, "deleted"),
    RecordType.DELEGATION_TOKEN: lambda record: (
        f"delegation token {record.token_id} of {printable(record.owner)} expires at "
        f"{record.expiration_timestamp} ms"
    ),
    RecordType.REMOVE_DELEGATION_TOKEN: lambda record: (
        f"delegation token {printable(record.token_id)} has ended"
    ),
    RecordType.CLIENT_QUOTA: lambda record: _quota_line(record),
}


def _config_line(record: ConfigRecord) -> str:
    kind = _KINDS[record.resource_type]
    what = f"{kind} {printable(record.resource_name)}" if record.resource_name else f"all {kind}s"
    if record.value is None:
        return f"{what}: {record.name} was reset to its default"
    is_broker = record.resource_type == ResourceType.BROKER
    value = _shown(record.name, record.value) if is_broker else printable(record.value)
    return f"{what}: {record.name} was set to {value}"


def log_levels(node: Broker | ControllerRole) -> dict[str, str]:
    return {name: log.level.upper() for name, log in node.log.loggers().items()}


def alter_log_levels(
    node: Broker | ControllerRole,
    name: str,
    alterations: Sequence[Alteration],
    *,
    validate_only: bool,
) -> None:
    if any(count > 1 for count in Counter(a.name for a in alterations).values()):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a logger is named more than once")
    check_is_here(node, name)
    loggers = node.log.loggers()
    levels = {each.name: _checked(each, loggers) for each in alterations}
    if validate_only:
        return
    for logger, level in levels.items():
        if level is None:
            loggers[logger].follow(node.log)
            node.log.info(f"logger {logger} follows {ROOT} again")
        else:
            node.log.info(f"logger {logger} was set to {level.upper()}")
            loggers[logger].level = level


def _checked(alteration: Alteration, loggers: dict[str, Log]) -> str | None:
    """Returns the level to set, or None where the logger goes back to that of `root`."""
    logger, operation, value = alteration
    if operation is not AlterOperation.DELETE and value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{logger}: expected a value, not null")
    if operation not in (AlterOperation.SET, AlterOperation.DELETE):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{logger}: a level is not a list")
    if logger not in loggers:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"unknown logger {logger!r}, expected one of {', '.join(loggers)}",
        )
    if operation is AlterOperation.DELETE:
        if logger == ROOT:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{ROOT} has no level to go back to")
        return None
    if value not in _LEVELS:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"level {value!r}, expected one of {', '.join(_LEVELS)}"
        )
    return _LEVELS[value]
