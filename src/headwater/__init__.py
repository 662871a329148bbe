"""Headwater: an event streaming platform that speaks Apache Kafka's protocol.

`Producer`, `Consumer` and `Admin` are for asyncio; `headwater.blocking` has the same for scripts
and threads. They, what they take and give, and the errors are loaded when they are first used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what typing calls so, without loading typing for every command
if TYPE_CHECKING:
    from headwater._core import VERSION as __version__
    from headwater.client.admin import (
        HIGH_WATERMARK,
        QUOTA_ANY,
        QUOTA_DEFAULT,
        Acl,
        AclFilter,
        AclPattern,
        AclPermission,
        AclResource,
        Admin,
        Append,
        CommittedOffset,
        ConfigResource,
        FeatureUpdate,
        NewPartitions,
        NewTopic,
        OffsetSpec,
        Operation,
        QuotaEntity,
        QuotaFilter,
        Replica,
        ResourceType,
        Subtract,
        UpgradeType,
        broker_config,
        client_metrics_config,
        group_config,
        or_raise,
        topic_config,
    )
    from headwater.client.consumer import (
        ConsumedRecord,
        Consumer,
        DeadLetter,
        GroupMetadata,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RebalanceListener,
    )
    from headwater.client.errors import (
        AbortableError,
        AuthenticationFailed,
        AuthorizationError,
        BrokersUnavailable,
        BufferFull,
        ClientClosed,
        ClientError,
        ClusterForbidden,
        CommitFailed,
        CommitOutcomeUnknown,
        ConfigError,
        CoordinatorUnavailable,
        CorruptRecord,
        DeliveryTimedOut,
        DeserializationFailed,
        Disconnected,
        FatalError,
        FencedInstance,
        Forked,
        GroupForbidden,
        GroupNotEmpty,
        GroupNotFound,
        InvalidRecord,
        InvalidTopic,
        InvalidTransactionState,
        LogTruncated,
        NoOffsetForPartition,
        NotController,
        NotEnoughReplicas,
        NotKafka,
        NotLeader,
        OffsetOutOfRange,
        PartitionError,
        PollIntervalExceeded,
        ProducerFenced,
        RebalanceInProgress,
        RecordTooLarge,
        Refused,
        RequestTimedOut,
        RetriableError,
        SerializationFailed,
        Throttled,
        TopicExists,
        TopicForbidden,
        TransactionAborted,
        TransactionForbidden,
        UnknownTopic,
        UnsupportedVersion,
        WrongListener,
        WrongLoop,
    )
    from headwater.client.exactly_once import TransactionBatch, exactly_once
    from headwater.client.producer import (
        Interceptor,
        PreparedTransaction,
        Producer,
        ProducerRecord,
        RecordMetadata,
    )
    from headwater.errors import ErrorCode
    from headwater.model import TopicPartition

__all__ = [
    "HIGH_WATERMARK",
    "QUOTA_ANY",
    "QUOTA_DEFAULT",
    "AbortableError",
    "Acl",
    "AclFilter",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "Admin",
    "Append",
    "AuthenticationFailed",
    "AuthorizationError",
    "BrokersUnavailable",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "ClusterForbidden",
    "CommitFailed",
    "CommitOutcomeUnknown",
    "CommittedOffset",
    "ConfigError",
    "ConfigResource",
    "ConsumedRecord",
    "Consumer",
    "CoordinatorUnavailable",
    "CorruptRecord",
    "DeadLetter",
    "DeliveryTimedOut",
    "DeserializationFailed",
    "Disconnected",
    "ErrorCode",
    "FatalError",
    "FeatureUpdate",
    "FencedInstance",
    "Forked",
    "GroupForbidden",
    "GroupMetadata",
    "GroupNotEmpty",
    "GroupNotFound",
    "Interceptor",
    "InvalidRecord",
    "InvalidTopic",
    "InvalidTransactionState",
    "LogTruncated",
    "NewPartitions",
    "NewTopic",
    "NoOffsetForPartition",
    "NotController",
    "NotEnoughReplicas",
    "NotKafka",
    "NotLeader",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetOutOfRange",
    "OffsetSpec",
    "Operation",
    "PartitionError",
    "PollIntervalExceeded",
    "PreparedTransaction",
    "Producer",
    "ProducerFenced",
    "ProducerRecord",
    "QuotaEntity",
    "QuotaFilter",
    "RebalanceInProgress",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLarge",
    "Refused",
    "Replica",
    "RequestTimedOut",
    "ResourceType",
    "RetriableError",
    "SerializationFailed",
    "Subtract",
    "Throttled",
    "TopicExists",
    "TopicForbidden",
    "TopicPartition",
    "TransactionAborted",
    "TransactionBatch",
    "TransactionForbidden",
    "UnknownTopic",
    "UnsupportedVersion",
    "UpgradeType",
    "WrongListener",
    "WrongLoop",
    "__version__",
    "broker_config",
    "client_metrics_config",
    "exactly_once",
    "group_config",
    "or_raise",
    "topic_config",
]

_CONSUMER = (
    "ConsumedRecord",
    "Consumer",
    "DeadLetter",
    "GroupMetadata",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
)
_PRODUCER = (
    "Interceptor",
    "PreparedTransaction",
    "Producer",
    "ProducerRecord",
    "RecordMetadata",
)
_EXACTLY_ONCE = ("TransactionBatch", "exactly_once")
# What a call of Admin takes; what it gives back is named in headwater.client.admin, too.
_ADMIN = (
    "HIGH_WATERMARK",
    "QUOTA_ANY",
    "QUOTA_DEFAULT",
    "Acl",
    "AclFilter",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "Admin",
    "Append",
    "CommittedOffset",
    "ConfigResource",
    "FeatureUpdate",
    "NewPartitions",
    "NewTopic",
    "OffsetSpec",
    "Operation",
    "QuotaEntity",
    "QuotaFilter",
    "Replica",
    "ResourceType",
    "Subtract",
    "UpgradeType",
    "broker_config",
    "client_metrics_config",
    "group_config",
    "or_raise",
    "topic_config",
)
_WHERE: dict[str, str] = (
    dict.fromkeys(__all__, "headwater.client.errors")
    | dict.fromkeys(_ADMIN, "headwater.client.admin")
    | dict.fromkeys(_CONSUMER, "headwater.client.consumer")
    | dict.fromkeys(_PRODUCER, "headwater.client.producer")
    | dict.fromkeys(_EXACTLY_ONCE, "headwater.client.exactly_once")
    | {"ErrorCode": "headwater.errors", "TopicPartition": "headwater.model"}
)


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        if name == "__version__":  # rust/Cargo.toml has it, and nothing else does
            from headwater import _core

            return _core.VERSION
        module = _WHERE.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
