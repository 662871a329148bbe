"""The rights that each API needs, as data, and a check that a node asks for exactly these.

A row is a request, and the rights with which nobody is refused anything in it. `Guard` sends it
without any right, with all of them, and with all but one, and reduces the answers to what depends
on rights: error codes, bit fields of operations, and which names are listed. No login is needed:
rules name the hosts of clients, and 127.0.0.2 is another host than 127.0.0.1.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from harness.wire import Closed, Wire, batch, newest, until
from headwater.model import METADATA_TOPIC, METADATA_TOPIC_ID
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey, request_class
from headwater.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.protocol.schema import empty, fields_of
from headwater.security.acls import CLUSTER_NAME, AclPattern, AclPermission, AclResource
from headwater.security.operations import Operation

M = TypeVar("M", bound=Message)

ADMIN_HOST = "127.0.0.1"
CLIENT_HOST = "127.0.0.2"
PRINCIPAL = "User:ANONYMOUS"

SEEN, MISSING = "seen", "missing"  # a topic that is there, one that is not
GROUP, TRANSACTION = "group", "transaction"
BUSY_GROUP = "busy-group"  # it has a member, who has the topic
SEEN_ID = object()  # stands for the id of the topic
RECORDS = batch([b"v"])


class Right(NamedTuple):
    operation: Operation
    resource: AclResource
    name: str = CLUSTER_NAME

    def __str__(self) -> str:
        return f"{self.operation.name} {self.resource.name} {self.name}"


class Row(NamedTuple):
    api: ApiKey
    fields: Mapping[str, Any]
    rights: tuple[Right, ...]
    version: int | None = None  # None: the newest
    on_controller: bool = False
    note: str = ""

    def __str__(self) -> str:
        parts = [self.api.name.lower()]
        if self.version is not None:
            parts.append(f"v{self.version}")
        return "-".join(parts + [self.note] * bool(self.note) + ["controller"] * self.on_controller)


def _topic(operation: Operation, name: str = SEEN) -> Right:
    return Right(operation, AclResource.TOPIC, name)


def _group(operation: Operation) -> Right:
    return Right(operation, AclResource.GROUP, GROUP)


def _transaction(operation: Operation) -> Right:
    return Right(operation, AclResource.TRANSACTIONAL_ID, TRANSACTION)


def _cluster(operation: Operation) -> Right:
    return Right(operation, AclResource.CLUSTER)


_O = Operation
_K = ApiKey
_READ_GROUP = _group(_O.READ)
_WRITE_TRANSACTION = _transaction(_O.WRITE)
_ACTION = _cluster(_O.CLUSTER_ACTION)
_BOTH = [{"name": SEEN}, {"name": MISSING}]
_QUORUM = [{"topic_name": METADATA_TOPIC, "partitions": [{}]}]


def _both(**partition: Any) -> list[dict[str, Any]]:
    return [{"name": name, "partitions": [partition]} for name in (SEEN, MISSING)]


def _produce(name: str) -> dict[str, Any]:
    return {"name": name, "partition_data": [{"index": 0, "records": RECORDS}]}


def _config(kind: int, name: str) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name}


_FETCH = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20}
_FETCHED = [{"partition": 0, "partition_max_bytes": 1 << 20}]
_COMMITS = [{"partition_index": 0, "committed_offset": 1}]
_IDS = [{"topic_id": SEEN_ID, "partitions": _COMMITS}]
_ANY_ACL = {
    "resource_type_filter": AclResource.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": AclPattern.ANY,
    "principal_filter": "User:nobody",
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": AclPermission.ANY,
}
_NEW_ACL = {
    "resource_type": AclResource.TOPIC,
    "resource_name": "",  # refused, but only after the right was checked
    "resource_pattern_type": AclPattern.LITERAL,
    "principal": "User:nobody",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": AclPermission.ALLOW,
}
_NEW_QUOTA = {
    "entries": [
        {
            "entity": [{"entity_type": "user", "entity_name": "nobody"}],
            "ops": [{"key": "producer_byte_rate", "value": 1e9, "remove": False}],
        }
    ],
    "validate_only": True,
}

ROWS = (
    # Records
    Row(
        _K.PRODUCE,
        {"acks": -1, "timeout_ms": 5000, "topic_data": [_produce(SEEN), _produce(MISSING)]},
        (_topic(_O.WRITE), _topic(_O.WRITE, MISSING)),
        version=12,
    ),
    Row(
        _K.PRODUCE,
        {"acks": -1, "timeout_ms": 5000, "topic_data": [_produce(SEEN) | {"topic_id": SEEN_ID}]},
        (_topic(_O.WRITE),),
    ),
    Row(
        _K.FETCH,
        _FETCH | {"topics": [{"topic": name, "partitions": _FETCHED} for name in (SEEN, MISSING)]},
        (_topic(_O.READ), _topic(_O.READ, MISSING)),
        version=12,
    ),
    Row(
        _K.FETCH,
        _FETCH | {"topics": [{"topic_id": SEEN_ID, "partitions": _FETCHED}]},
        (_topic(_O.READ),),
    ),
    Row(
        _K.FETCH,
        _FETCH | {"replica_id": 7, "topics": [{"topic": SEEN, "partitions": _FETCHED}]},
        (_ACTION,),
        version=12,
        note="follower",
    ),
    Row(
        _K.LIST_OFFSETS,
        {"replica_id": -1, "topics": _both(timestamp=-1)},
        (_topic(_O.DESCRIBE), _topic(_O.DESCRIBE, MISSING)),
    ),
    Row(
        _K.OFFSET_FOR_LEADER_EPOCH,
        {
            "topics": [
                {"topic": name, "partitions": [{"leader_epoch": 0}]} for name in (SEEN, MISSING)
            ]
        },
        (_topic(_O.DESCRIBE), _topic(_O.DESCRIBE, MISSING)),
    ),
    Row(
        _K.OFFSET_FOR_LEADER_EPOCH,
        {"topics": [{"topic": SEEN, "partitions": [{"leader_epoch": 0}]}]},
        (_ACTION,),
        note="follower",
    ),
    Row(
        _K.DELETE_RECORDS,
        {"timeout_ms": 5000, "topics": _both(offset=0)},
        (_topic(_O.DELETE), _topic(_O.DELETE, MISSING)),
    ),
    Row(
        _K.DESCRIBE_PRODUCERS,
        {"topics": [{"name": name, "partition_indexes": [0]} for name in (SEEN, MISSING)]},
        (_topic(_O.READ), _topic(_O.READ, MISSING)),
    ),
    # Metadata
    Row(
        _K.METADATA,
        {
            "topics": _BOTH,
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": True,
        },
        (_topic(_O.DESCRIBE), _topic(_O.DESCRIBE, MISSING)),
    ),
    Row(
        _K.METADATA,
        {
            "topics": _BOTH,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": True,
        },
        (_topic(_O.READ), _cluster(_O.DESCRIBE)),
        version=9,
    ),
    Row(
        _K.METADATA,
        {"topics": [{"name": None, "topic_id": SEEN_ID}]},
        (_topic(_O.DESCRIBE),),
        note="id",
    ),
    Row(
        _K.METADATA,
        {"topics": None, "include_topic_authorized_operations": True},
        (_topic(_O.ALTER),),
        note="all",
    ),
    Row(
        _K.METADATA,
        {"topics": [{"name": "made"}], "allow_auto_topic_creation": True},
        (_topic(_O.DESCRIBE, "made"),),
        note="creation-refused",
    ),
    Row(
        _K.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": _BOTH},
        (_topic(_O.DESCRIBE), _topic(_O.DESCRIBE, MISSING)),
    ),
    Row(_K.DESCRIBE_TOPIC_PARTITIONS, {"topics": []}, (_topic(_O.WRITE),), note="all"),
    Row(
        _K.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True},
        (_cluster(_O.DESCRIBE),),
    ),
    Row(
        _K.DESCRIBE_CLUSTER,
        {"include_cluster_authorized_operations": True},
        (_cluster(_O.ALTER), _cluster(_O.ALTER_CONFIGS)),
        note="implied",
    ),
    Row(
        _K.DESCRIBE_CLUSTER,
        {"endpoint_type": 2, "include_cluster_authorized_operations": True},
        (_cluster(_O.ALTER),),
        on_controller=True,
    ),
    # Groups
    Row(_K.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]}, (_group(_O.DESCRIBE),)),
    Row(_K.FIND_COORDINATOR, {"key_type": 0, "key": GROUP}, (_group(_O.DESCRIBE),), version=3),
    Row(
        _K.FIND_COORDINATOR,
        {"key_type": 1, "coordinator_keys": [TRANSACTION]},
        (_transaction(_O.DESCRIBE),),
        note="transaction",
    ),
    Row(
        _K.JOIN_GROUP,
        {
            "group_id": GROUP,
            "session_timeout_ms": 10000,
            "rebalance_timeout_ms": 1000,
            "protocol_type": "consumer",
            "protocols": [{"name": "range"}],
        },
        (_READ_GROUP,),
    ),
    Row(
        _K.SYNC_GROUP,
        {
            "group_id": GROUP,
            "member_id": "m",
            "protocol_type": "consumer",
            "protocol_name": "range",
        },
        (_READ_GROUP,),
    ),
    Row(_K.HEARTBEAT, {"group_id": GROUP, "member_id": "m"}, (_READ_GROUP,)),
    Row(_K.LEAVE_GROUP, {"group_id": GROUP, "members": [{"member_id": "m"}]}, (_READ_GROUP,)),
    Row(
        _K.CONSUMER_GROUP_HEARTBEAT,
        {"group_id": GROUP, "member_id": "m", "member_epoch": 5},
        (_READ_GROUP,),
    ),
    Row(
        _K.CONSUMER_GROUP_HEARTBEAT,
        {
            "group_id": GROUP,
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [SEEN, MISSING],
        },
        (_READ_GROUP, _topic(_O.DESCRIBE), _topic(_O.DESCRIBE, MISSING)),
        note="topics",
    ),
    Row(
        _K.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [GROUP], "include_authorized_operations": True},
        (_group(_O.DESCRIBE),),
    ),
    Row(
        _K.CONSUMER_GROUP_DESCRIBE,
        {"group_ids": [BUSY_GROUP], "include_authorized_operations": True},
        (Right(_O.DESCRIBE, AclResource.GROUP, BUSY_GROUP), _topic(_O.DESCRIBE)),
        note="topics",
    ),
    Row(
        _K.DESCRIBE_GROUPS,
        {"groups": [GROUP], "include_authorized_operations": True},
        (_group(_O.DESCRIBE),),
    ),
    Row(
        _K.DESCRIBE_GROUPS,
        {"groups": [GROUP], "include_authorized_operations": True},
        (_group(_O.DELETE),),
        note="implied",
    ),
    Row(_K.LIST_GROUPS, {}, (_group(_O.DESCRIBE),)),
    Row(_K.LIST_GROUPS, {}, (_cluster(_O.DESCRIBE),), note="cluster"),
    Row(
        _K.OFFSET_COMMIT,
        {
            "group_id": GROUP,
            "topics": [{"name": name, "partitions": _COMMITS} for name in (SEEN, MISSING)],
        },
        (_READ_GROUP, _topic(_O.READ), _topic(_O.READ, MISSING)),
        version=9,
    ),
    Row(_K.OFFSET_COMMIT, {"group_id": GROUP, "topics": _IDS}, (_READ_GROUP, _topic(_O.READ))),
    Row(
        _K.OFFSET_FETCH,
        {
            "groups": [
                {
                    "group_id": GROUP,
                    "topics": [
                        {"name": name, "partition_indexes": [0]} for name in (SEEN, MISSING)
                    ],
                }
            ]
        },
        (_group(_O.DESCRIBE), _topic(_O.DESCRIBE), _topic(_O.DESCRIBE, MISSING)),
        version=9,
    ),
    Row(
        _K.OFFSET_FETCH,
        {
            "groups": [
                {"group_id": GROUP, "topics": [{"topic_id": SEEN_ID, "partition_indexes": [0]}]}
            ]
        },
        (_group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
    ),
    Row(
        _K.OFFSET_FETCH,
        {"groups": [{"group_id": GROUP, "topics": None}]},
        (_group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
        note="all",
    ),
    Row(
        _K.OFFSET_FETCH,
        {"group_id": GROUP, "topics": [{"name": SEEN, "partition_indexes": [0]}]},
        (_group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
        version=5,
    ),
    Row(
        _K.OFFSET_FETCH,
        {"group_id": GROUP, "topics": [{"name": SEEN, "partition_indexes": [0]}]},
        (_group(_O.DESCRIBE), _topic(_O.DESCRIBE)),
        version=1,
    ),
    Row(
        _K.OFFSET_DELETE,
        {"group_id": GROUP, "topics": [{"name": MISSING, "partitions": [{}]}]},
        (_group(_O.DELETE), _topic(_O.READ, MISSING)),
    ),
    Row(
        _K.DELETE_GROUPS,
        {"groups_names": ["no-group", "other"]},
        (Right(_O.DELETE, AclResource.GROUP, "no-group"),),
    ),
    # Transactions
    Row(_K.INIT_PRODUCER_ID, {"transactional_id": None}, (_cluster(_O.IDEMPOTENT_WRITE),)),
    Row(
        _K.INIT_PRODUCER_ID,
        {"transactional_id": None},
        (_topic(_O.WRITE, "any"),),
        note="any-topic",
    ),
    Row(
        _K.INIT_PRODUCER_ID,
        {"transactional_id": TRANSACTION, "transaction_timeout_ms": 60000},
        (_WRITE_TRANSACTION,),
        note="transaction",
    ),
    Row(
        _K.ADD_PARTITIONS_TO_TXN,
        {
            "v3_and_below_transactional_id": TRANSACTION,
            "v3_and_below_producer_id": 900,
            "v3_and_below_producer_epoch": 3,
            "v3_and_below_topics": [{"name": SEEN, "partitions": [0]}],
        },
        (_WRITE_TRANSACTION, _topic(_O.WRITE)),
        version=3,
    ),
    Row(
        _K.ADD_PARTITIONS_TO_TXN,
        {
            "transactions": [
                {
                    "transactional_id": TRANSACTION,
                    "producer_id": 900,
                    "topics": [{"name": SEEN, "partitions": [0]}],
                }
            ]
        },
        (_ACTION,),
        note="broker",
    ),
    Row(
        _K.ADD_OFFSETS_TO_TXN,
        {"transactional_id": TRANSACTION, "group_id": GROUP, "producer_id": 900},
        (_WRITE_TRANSACTION, _READ_GROUP),
    ),
    Row(
        _K.TXN_OFFSET_COMMIT,
        {
            "transactional_id": TRANSACTION,
            "group_id": GROUP,
            "producer_id": 900,
            "topics": [{"name": name, "partitions": _COMMITS} for name in (SEEN, MISSING)],
        },
        (_WRITE_TRANSACTION, _READ_GROUP, _topic(_O.READ), _topic(_O.READ, MISSING)),
        version=4,
    ),
    Row(_K.END_TXN, {"transactional_id": TRANSACTION, "producer_id": 900}, (_WRITE_TRANSACTION,)),
    Row(
        _K.DESCRIBE_TRANSACTIONS, {"transactional_ids": [TRANSACTION]}, (_transaction(_O.DESCRIBE),)
    ),
    Row(_K.LIST_TRANSACTIONS, {}, (_transaction(_O.DESCRIBE),)),
    Row(
        _K.WRITE_TXN_MARKERS,
        {
            "markers": [
                {"producer_id": 900, "topics": [{"name": MISSING, "partition_indexes": [0]}]}
            ]
        },
        (_ACTION,),
    ),
    Row(
        _K.WRITE_TXN_MARKERS,
        {
            "markers": [
                {"producer_id": 900, "topics": [{"name": MISSING, "partition_indexes": [0]}]}
            ]
        },
        (_cluster(_O.ALTER),),
        note="alter",
    ),
    # Topics
    Row(
        _K.CREATE_TOPICS,
        {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
        (_topic(_O.CREATE, "new"), _topic(_O.DESCRIBE_CONFIGS, "new")),
    ),
    Row(
        _K.CREATE_TOPICS,
        {
            "topics": [{"name": "new", "num_partitions": 1, "replication_factor": 1}],
            "timeout_ms": 5000,
            "validate_only": True,
        },
        (_cluster(_O.CREATE),),
        note="cluster",
    ),
    Row(
        _K.CREATE_PARTITIONS,
        {
            "topics": [{"name": name, "count": 9, "assignments": None} for name in (SEEN, MISSING)],
            "timeout_ms": 5000,
            "validate_only": True,
        },
        (_topic(_O.ALTER), _topic(_O.ALTER, MISSING)),
    ),
    Row(
        _K.DELETE_TOPICS,
        {"topics": [{"name": MISSING}], "timeout_ms": 5000},
        (_topic(_O.DELETE, MISSING),),
    ),
    Row(
        _K.DELETE_TOPICS,
        {"topics": [{"name": SEEN}, {"name": None, "topic_id": SEEN_ID}], "timeout_ms": 5000},
        (_topic(_O.DESCRIBE),),
        note="describe-only",
    ),
    Row(
        _K.DELETE_TOPICS,
        {"topics": [{"name": MISSING}], "timeout_ms": 5000},
        (_cluster(_O.DELETE),),
        note="cluster",
    ),
    # Settings
    Row(
        _K.DESCRIBE_CONFIGS,
        {
            "resources": [
                _config(2, SEEN),
                _config(2, MISSING),
                _config(4, "1"),
                _config(8, "1"),
                _config(16, "metrics"),
                _config(32, GROUP),
            ]
        },
        (
            _topic(_O.DESCRIBE_CONFIGS),
            _topic(_O.DESCRIBE_CONFIGS, MISSING),
            _cluster(_O.DESCRIBE_CONFIGS),
            _group(_O.DESCRIBE_CONFIGS),
        ),
    ),
    Row(
        _K.DESCRIBE_CONFIGS,
        {"resources": [_config(4, "1")]},
        (_cluster(_O.DESCRIBE_CONFIGS),),
        on_controller=True,
    ),
    Row(
        _K.INCREMENTAL_ALTER_CONFIGS,
        {
            "validate_only": True,
            "resources": [
                _config(2, SEEN),
                _config(2, MISSING),
                _config(4, "1"),
                _config(8, "1"),
                _config(16, "metrics"),
                _config(32, GROUP),
            ],
        },
        (
            _topic(_O.ALTER_CONFIGS),
            _topic(_O.ALTER_CONFIGS, MISSING),
            _cluster(_O.ALTER_CONFIGS),
            _group(_O.ALTER_CONFIGS),
        ),
    ),
    Row(
        _K.INCREMENTAL_ALTER_CONFIGS,
        {"validate_only": True, "resources": [_config(8, "1")]},
        (_ACTION,),
        on_controller=True,
    ),
    Row(
        _K.ALTER_CONFIGS,
        {"validate_only": True, "resources": [_config(2, SEEN), _config(4, "1")]},
        (_topic(_O.ALTER_CONFIGS), _cluster(_O.ALTER_CONFIGS)),
    ),
    Row(_K.LIST_CONFIG_RESOURCES, {}, (_cluster(_O.DESCRIBE_CONFIGS),)),
    Row(_K.DESCRIBE_CLIENT_QUOTAS, {}, (_cluster(_O.DESCRIBE_CONFIGS),)),
    Row(_K.ALTER_CLIENT_QUOTAS, _NEW_QUOTA, (_cluster(_O.ALTER_CONFIGS),)),
    Row(_K.ALTER_CLIENT_QUOTAS, _NEW_QUOTA, (_cluster(_O.ALTER_CONFIGS),), on_controller=True),
    # The cluster
    Row(_K.DESCRIBE_LOG_DIRS, {"topics": []}, (_cluster(_O.DESCRIBE),)),
    Row(
        _K.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/none", "topics": [{"name": SEEN, "partitions": [0]}]}]},
        (_cluster(_O.ALTER),),
    ),
    Row(_K.DESCRIBE_ACLS, _ANY_ACL, (_cluster(_O.DESCRIBE),)),
    Row(_K.DESCRIBE_ACLS, _ANY_ACL, (_cluster(_O.DESCRIBE),), on_controller=True),
    Row(_K.CREATE_ACLS, {"creations": [_NEW_ACL]}, (_cluster(_O.ALTER),)),
    Row(_K.DELETE_ACLS, {"filters": [_ANY_ACL]}, (_cluster(_O.ALTER),)),
    Row(
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS,
        {"users": [{"name": "nobody"}]},
        (_cluster(_O.DESCRIBE),),
    ),
    Row(
        _K.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "nobody", "mechanism": 1}]},
        (_cluster(_O.ALTER),),
    ),
    Row(_K.DESCRIBE_QUORUM, {"topics": _QUORUM}, (_cluster(_O.DESCRIBE),)),
    Row(
        _K.ELECT_LEADERS,
        {"topic_partitions": [{"topic": SEEN, "partitions": [0]}], "timeout_ms": 5000},
        (_cluster(_O.ALTER),),
    ),
    Row(
        _K.UPDATE_FEATURES,
        {"feature_updates": [{"feature": "none", "max_version_level": 1}], "validate_only": True},
        (_cluster(_O.ALTER),),
    ),
    Row(_K.LIST_PARTITION_REASSIGNMENTS, {"timeout_ms": 5000}, (_cluster(_O.DESCRIBE),)),
    Row(_K.UNREGISTER_BROKER, {"broker_id": 77}, (_cluster(_O.ALTER),)),
    # Requests of nodes
    Row(_K.BROKER_HEARTBEAT, {"broker_id": 77}, (_ACTION,), on_controller=True),
    Row(
        _K.BROKER_REGISTRATION,
        {"broker_id": 77, "cluster_id": "other"},
        (_ACTION,),
        on_controller=True,
    ),
    Row(_K.CONTROLLER_REGISTRATION, {"controller_id": 77}, (_ACTION,), on_controller=True),
    Row(
        _K.ALTER_PARTITION,
        {"broker_id": 77, "topics": [{"topic_id": SEEN_ID}]},
        (_ACTION,),
        on_controller=True,
    ),
    Row(_K.ALLOCATE_PRODUCER_IDS, {"broker_id": 77}, (_ACTION,), on_controller=True),
    Row(_K.ASSIGN_REPLICAS_TO_DIRS, {"broker_id": 77}, (_ACTION,), on_controller=True),
    Row(_K.VOTE, {"cluster_id": "other", "topics": _QUORUM}, (_ACTION,), on_controller=True),
    Row(
        _K.BEGIN_QUORUM_EPOCH,
        {"cluster_id": "other", "topics": _QUORUM},
        (_ACTION,),
        on_controller=True,
    ),
    Row(
        _K.END_QUORUM_EPOCH,
        {"cluster_id": "other", "topics": _QUORUM},
        (_ACTION,),
        on_controller=True,
    ),
    Row(
        _K.FETCH,
        _FETCH
        | {
            "cluster_id": "other",
            "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": _FETCHED}],
        },
        (_ACTION,),
        on_controller=True,
    ),
    Row(_K.FETCH_SNAPSHOT, {"cluster_id": "other", "topics": []}, (_ACTION,), on_controller=True),
    Row(_K.ENVELOPE, {"client_host_address": bytes(4)}, (_ACTION,), on_controller=True),
    Row(_K.ADD_RAFT_VOTER, {"cluster_id": "other"}, (_cluster(_O.ALTER),), on_controller=True),
    Row(_K.REMOVE_RAFT_VOTER, {"cluster_id": "other"}, (_cluster(_O.ALTER),), on_controller=True),
    Row(_K.UPDATE_RAFT_VOTER, {"cluster_id": "other"}, (_ACTION,), on_controller=True),
)

# What is not about rights: it differs between nodes, and from run to run.
_UNCOMPARED = frozenset(
    {"api_keys", "brokers", "configs", "node_endpoints", "nodes", "partitions_metadata"}
)


def request_of(row: Row, topic_id: bytes) -> Message:
    return _filled(request_class(row.api), row.fields, topic_id)


def _filled(cls: type[M], values: Mapping[str, Any], topic_id: bytes) -> M:
    made = empty(cls)
    structs = {field.name: field.struct for field in fields_of(cls)}
    for name, value in values.items():
        assert name in structs, (cls.__name__, name)
        struct = structs[name]
        if value is SEEN_ID:
            value = topic_id
        elif isinstance(value, list) and struct is not None:
            value = [_filled(struct, each, topic_id) for each in value]
        setattr(made, name, value)
    return made


def outcome(message: Message) -> Any:
    """Returns what of an answer depends on rights."""
    found: dict[str, Any] = {}
    for name in type(message).__annotations__:
        value = getattr(message, name)
        if name in _UNCOMPARED:
            continue
        if isinstance(value, list) and value and isinstance(value[0], Message):
            found[name] = sorted(map(outcome, value), key=repr)
        elif (
            "error_code" in name
            or name.endswith("authorized_operations")
            or name
            in (
                "name",
                "topic",
                "topic_name",
                "group_id",
                "transactional_id",
                "resource_name",
            )
        ):
            found[name] = value
    return found


def codes(found: Any) -> Iterator[int]:
    """Returns all error codes in an outcome."""
    for name, value in found.items():
        if name.endswith("error_code"):
            yield value
        elif isinstance(value, list):
            for each in value:
                yield from codes(each)


class Guard:
    """A node with an authorizer, whose administrator comes from one host and a client from
    another."""

    SETTINGS: Mapping[str, str] = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        # Until the administrator has made rules for everything, all is allowed.
        "allow.everyone.if.no.acl.found": "true",
        "group.initial.rebalance.delay.ms": "0",
    }

    def __init__(self, broker: str, controller: str | None) -> None:
        self._addresses = {False: broker, True: controller}
        self._admins = [Wire(each) for each in (broker, controller) if each is not None]
        self.admin = self._admins[0]
        everything = [
            Right(_O.ALL, kind, CLUSTER_NAME if kind is AclResource.CLUSTER else "*")
            for kind in AclResource
            if kind > AclResource.ANY
        ]
        self._create(everything, ADMIN_HOST)
        self._await_rules(len(everything), ADMIN_HOST)
        self.topic_id = self.admin.create_topic(SEEN)
        self.admin.create_topic("unseen")
        self._prepare_group()
        self._join()

    def _prepare_group(self) -> None:
        self.admin.await_coordinator(GROUP)
        for api, fields in (
            (
                _K.OFFSET_COMMIT,
                {
                    "group_id": GROUP,
                    "topics": [{"topic_id": self.topic_id, "partitions": _COMMITS}],
                },
            ),
            (_K.FIND_COORDINATOR, {"key_type": 1, "coordinator_keys": [TRANSACTION]}),
            (
                _K.INIT_PRODUCER_ID,
                {"transactional_id": TRANSACTION, "transaction_timeout_ms": 60000},
            ),
        ):
            request = _filled(request_class(api), fields, self.topic_id)
            until(partial(self._succeeds, request), api.name)

    def _succeeds(self, request: Message) -> bool:
        return not any(codes(outcome(self.admin.ask(request))))

    def _join(self) -> None:
        """Makes the administrator a member of a group, with an assignment."""
        fields = {
            "group_id": BUSY_GROUP,
            "member_id": "member",
            "member_epoch": 0,
            "rebalance_timeout_ms": 60000,
            "subscribed_topic_names": [SEEN],
            "topic_partitions": [],
        }
        join = _filled(request_class(_K.CONSUMER_GROUP_HEARTBEAT), fields, self.topic_id)

        def is_assigned() -> bool:
            found = self.admin.ask(join)
            return bool(found.assignment and found.assignment.topic_partitions)

        self.admin.await_coordinator(BUSY_GROUP)
        until(is_assigned, "an assignment")

    def ask(self, row: Row, rights: Iterable[Right], *, denied: Iterable[Right] = ()) -> Any:
        """Sends the request of a row from the client's host, with exactly these rights."""
        with (
            self.rights(rights, denied=denied),
            self.connect(on_controller=row.on_controller) as wire,
        ):
            version = newest(row.api) if row.version is None else row.version
            try:
                return outcome(wire.ask(request_of(row, self.topic_id), version))
            except Closed:
                return {"closed": True}

    def connect(self, *, on_controller: bool = False) -> Wire:
        """Returns a connection from the client's host."""
        address = self._addresses[on_controller]
        assert address is not None
        wire = Wire(address, source=CLIENT_HOST)
        wire.note_topic_id(SEEN, self.topic_id)
        return wire

    @contextlib.contextmanager
    def rights(self, allowed: Iterable[Right], *, denied: Iterable[Right] = ()) -> Iterator[None]:
        given, refused = list(allowed), list(denied)
        self._create(given, CLIENT_HOST)
        self._create(refused, CLIENT_HOST, AclPermission.DENY)
        self._await_rules(len(given) + len(refused), CLIENT_HOST)
        yield
        everything = _filled(
            DeleteAclsFilter,
            _ANY_ACL | {"principal_filter": PRINCIPAL, "host_filter": CLIENT_HOST},
            b"",
        )
        self.admin.ask(DeleteAclsRequest(filters=[everything]))
        self._await_rules(0, CLIENT_HOST)

    def _create(
        self, rights: Sequence[Right], host: str, permission: AclPermission = AclPermission.ALLOW
    ) -> None:
        if not rights:
            return
        answer = self.admin.ask(
            CreateAclsRequest(
                creations=[
                    AclCreation(
                        resource_type=right.resource,
                        resource_name=right.name,
                        principal=PRINCIPAL,
                        host=host,
                        operation=right.operation,
                        permission_type=permission,
                    )
                    for right in rights
                ]
            )
        )
        assert not any(codes(outcome(answer))), answer

    def _await_rules(self, count: int, host: str) -> None:
        """Waits until broker and controller know so many rules for a host."""
        wanted = _ANY_ACL | {"principal_filter": PRINCIPAL, "host_filter": host}
        request = _filled(DescribeAclsRequest, wanted, b"")
        for admin in self._admins:
            until(partial(_has_rules, admin, request, count), f"{count} rules")

    def close(self) -> None:
        for each in self._admins:
            each.socket.close()


def _has_rules(admin: Wire, request: DescribeAclsRequest, count: int) -> bool:
    return sum(len(each.acls) for each in admin.ask(request).resources) == count


def trials(row: Row) -> Iterator[tuple[str, tuple[Right, ...]]]:
    """Returns the sets of rights with which a row is tried, with what to call them."""
    yield "no rights", ()
    yield "all rights", row.rights
    if len(row.rights) > 1:
        for left_out in row.rights:
            yield f"without {left_out}", tuple(each for each in row.rights if each != left_out)
