"""Every API of the protocol: its key, its versions, and who may be asked for it.

Versions are those of Kafka 4.4, whose schemas we carry; `advertised` is what a Kafka 4.3 node tells
its clients, which is what we tell ours unless unstable versions are switched on.
"""

from __future__ import annotations

from enum import IntEnum
from importlib import import_module
from typing import NamedTuple

from headwater.protocol.errors import DecodeError
from headwater.protocol.schema import Message

Versions = tuple[int, int]


class ApiKey(IntEnum):
    """The number of an API on the wire."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class Api(NamedTuple):
    """The facts about an API that need none of its messages."""

    key: ApiKey
    name: str
    versions: Versions | None  # None: the key is known, and no version of it is served any more
    advertised: Versions | None
    flexible: int | None
    on_broker: bool
    on_controller: bool
    forwardable: bool = False  # a broker hands it on to the active controller
    cluster_action: bool = False  # only for nodes of the cluster

    @property
    def module(self) -> str:
        """The module of its messages."""
        return self.key.name.lower()

    def response_header_version(self, version: int) -> int:
        # A client reads an ApiVersions response before it knows what the broker speaks, so its
        # header never changed (KIP-511).
        if self.key == ApiKey.API_VERSIONS or self.flexible is None or version < self.flexible:
            return 0
        return 1

    def has(self, version: int) -> bool:
        return self.versions is not None and self.versions[0] <= version <= self.versions[1]


def _api(
    key: int,
    versions: Versions | None,
    advertised: Versions | None,
    flexible: int | None,
    listeners: str,
    flags: str = "",
) -> Api:
    api_key = ApiKey(key)
    return Api(
        api_key,
        "".join(word.capitalize() for word in api_key.name.split("_")),
        versions,
        advertised,
        flexible,
        on_broker="b" in listeners,
        on_controller="c" in listeners,
        forwardable="F" in flags,
        cluster_action="C" in flags,
    )


# key, versions, advertised, flexible from, listeners (b: broker, c: controller), flags
APIS: dict[int, Api] = {
    api.key: api
    for api in (
        _api(0, (3, 13), (0, 13), 9, "b"),
        _api(1, (4, 18), (4, 18), 12, "bc"),
        _api(2, (1, 11), (1, 11), 6, "b"),
        _api(3, (0, 13), (0, 13), 9, "b"),
        _api(4, None, None, None, "", "C"),
        _api(5, None, None, None, "", "C"),
        _api(6, None, None, None, "", "C"),
        _api(7, None, None, None, "", "C"),
        _api(8, (2, 10), (2, 10), 8, "b"),
        _api(9, (1, 10), (1, 10), 6, "b"),
        _api(10, (0, 6), (0, 6), 3, "b"),
        _api(11, (0, 9), (0, 9), 6, "b"),
        _api(12, (0, 4), (0, 4), 4, "b"),
        _api(13, (0, 5), (0, 5), 4, "b"),
        _api(14, (0, 5), (0, 5), 4, "b"),
        _api(15, (0, 6), (0, 6), 5, "b"),
        _api(16, (0, 5), (0, 5), 3, "b"),
        _api(17, (0, 1), (0, 1), None, "bc"),
        _api(18, (0, 5), (0, 4), 3, "bc"),
        _api(19, (2, 7), (2, 7), 5, "bc", "F"),
        _api(20, (1, 6), (1, 6), 4, "bc", "F"),
        _api(21, (0, 2), (0, 2), 2, "b"),
        _api(22, (0, 6), (0, 5), 2, "b"),
        _api(23, (2, 4), (2, 4), 4, "b"),
        _api(24, (0, 5), (0, 5), 3, "b"),
        _api(25, (0, 4), (0, 4), 3, "b"),
        _api(26, (0, 5), (0, 5), 3, "b"),
        _api(27, (1, 2), (1, 2), 1, "b", "C"),
        _api(28, (0, 6), (0, 5), 3, "b"),
        _api(29, (1, 3), (1, 3), 2, "bc"),
        _api(30, (1, 3), (1, 3), 2, "bc", "F"),
        _api(31, (1, 3), (1, 3), 2, "bc", "F"),
        _api(32, (1, 4), (1, 4), 4, "bc"),
        _api(33, (0, 2), (0, 2), 2, "bc", "F"),
        _api(34, (1, 2), (1, 2), 2, "b"),
        _api(35, (1, 5), (1, 5), 2, "b"),
        _api(36, (0, 2), (0, 2), 2, "bc"),
        _api(37, (0, 3), (0, 3), 2, "bc", "F"),
        _api(38, (1, 3), (1, 3), 2, "bc", "F"),
        _api(39, (1, 2), (1, 2), 2, "bc", "F"),
        _api(40, (1, 2), (1, 2), 2, "bc", "F"),
        _api(41, (1, 3), (1, 3), 2, "bc"),
        _api(42, (0, 3), (0, 2), 2, "b"),
        _api(43, (0, 2), (0, 2), 2, "bc", "F"),
        _api(44, (0, 1), (0, 1), 1, "bc", "F"),
        _api(45, (0, 1), (0, 1), 0, "bc", "F"),
        _api(46, (0, 0), (0, 0), 0, "bc", "F"),
        _api(47, (0, 0), (0, 0), None, "b"),
        _api(48, (0, 1), (0, 1), 1, "b"),
        _api(49, (0, 1), (0, 1), 1, "bc", "F"),
        _api(50, (0, 0), (0, 0), 0, "bc"),
        _api(51, (0, 0), (0, 0), 0, "bc", "F"),
        _api(52, (0, 2), (0, 2), 0, "c", "C"),
        _api(53, (0, 1), (0, 1), 1, "c", "C"),
        _api(54, (0, 1), (0, 1), 1, "c", "C"),
        _api(55, (0, 2), (0, 2), 0, "bc", "FC"),
        _api(56, (2, 3), (2, 3), 0, "c", "C"),
        _api(57, (0, 2), (0, 2), 0, "bc", "FC"),
        _api(58, (0, 0), (0, 0), 0, "c", "C"),
        _api(59, (0, 1), (0, 1), 0, "c"),
        _api(60, (0, 2), (0, 2), 0, "bc"),
        _api(61, (0, 0), (0, 0), 0, "b"),
        _api(62, (0, 4), (0, 4), 0, "c", "C"),
        _api(63, (0, 2), (0, 2), 0, "c", "C"),
        _api(64, (0, 0), (0, 0), 0, "bc", "F"),
        _api(65, (0, 0), (0, 0), 0, "b"),
        _api(66, (0, 2), (0, 2), 0, "b"),
        _api(67, (0, 0), (0, 0), 0, "c", "FC"),
        _api(68, (0, 1), (0, 1), 0, "b"),
        _api(69, (0, 1), (0, 1), 0, "b"),
        _api(70, (0, 0), (0, 0), 0, "c"),
        _api(71, (0, 0), (0, 0), 0, "b"),
        _api(72, (0, 0), (0, 0), 0, "b"),
        _api(73, (0, 0), (0, 0), 0, "c"),
        _api(74, (0, 1), (0, 1), 0, "b"),
        _api(75, (0, 0), (0, 0), 0, "b"),
        _api(76, (1, 1), (1, 1), 0, "b"),
        _api(77, (1, 1), (1, 1), 0, "b"),
        _api(78, (1, 2), (1, 2), 0, "b"),
        _api(79, (1, 2), (1, 2), 0, "b"),
        _api(80, (0, 1), (0, 1), 0, "bc", "F"),
        _api(81, (0, 0), (0, 0), 0, "bc", "F"),
        _api(82, (0, 0), (0, 0), 0, "c"),
        _api(83, (0, 0), (0, 0), 0, "b", "C"),
        _api(84, (0, 0), (0, 0), 0, "b", "C"),
        _api(85, (0, 1), (0, 1), 0, "b", "C"),
        _api(86, (0, 0), (0, 0), 0, "b", "C"),
        _api(87, (0, 1), (0, 1), 0, "b", "C"),
        _api(88, (0, 1), (0, 0), 0, "b"),
        _api(89, (0, 1), (0, 0), 0, "b"),
        _api(90, (0, 1), (0, 1), 0, "b"),
        _api(91, (0, 0), (0, 0), 0, "b"),
        _api(92, (0, 0), (0, 0), 0, "b"),
        _api(93, (0, 0), None, 0, "b"),
        _api(94, (0, 0), None, 0, "bc", "F"),
    )
}


def request_class(key: int) -> type[Message]:
    """The request of an API; its module is loaded on first use."""
    return _class(key, "Request")


def response_class(key: int) -> type[Message]:
    return _class(key, "Response")


_classes: dict[tuple[int, str], type[Message]] = {}


def _class(key: int, kind: str) -> type[Message]:
    found = _classes.get((key, kind))
    if found is None:
        api = APIS.get(key)
        if api is None or api.versions is None:
            raise DecodeError(f"no messages for API key {key}")
        module = import_module(f"headwater.protocol.messages.{api.module}")
        found = _classes[key, kind] = getattr(module, api.name + kind)
    return found
