"""Headwater: an event streaming platform that speaks Apache Kafka's protocol.

`Producer`, `Consumer` and `Admin` are for asyncio; `headwater.blocking` has the same for scripts
and threads. They and the errors are loaded when they are first used.
"""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # what typing calls so, without loading typing for every command
if TYPE_CHECKING:
    from headwater.client.admin import Admin
    from headwater.client.consumer import Consumer
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
        ConfigError,
        CoordinatorUnavailable,
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
        LogTruncated,
        NoOffsetForPartition,
        NotController,
        NotEnoughReplicas,
        NotKafka,
        NotLeader,
        OffsetOutOfRange,
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
        TransactionForbidden,
        UnknownTopic,
        UnsupportedVersion,
        WrongLoop,
    )
    from headwater.client.producer import Producer
    from headwater.model import TopicPartition

__all__ = [
    "AbortableError",
    "Admin",
    "AuthenticationFailed",
    "AuthorizationError",
    "BrokersUnavailable",
    "BufferFull",
    "ClientClosed",
    "ClientError",
    "ClusterForbidden",
    "CommitFailed",
    "ConfigError",
    "Consumer",
    "CoordinatorUnavailable",
    "DeliveryTimedOut",
    "DeserializationFailed",
    "Disconnected",
    "FatalError",
    "FencedInstance",
    "Forked",
    "GroupForbidden",
    "GroupNotEmpty",
    "GroupNotFound",
    "InvalidRecord",
    "InvalidTopic",
    "LogTruncated",
    "NoOffsetForPartition",
    "NotController",
    "NotEnoughReplicas",
    "NotKafka",
    "NotLeader",
    "OffsetOutOfRange",
    "PollIntervalExceeded",
    "Producer",
    "ProducerFenced",
    "RebalanceInProgress",
    "RecordTooLarge",
    "Refused",
    "RequestTimedOut",
    "RetriableError",
    "SerializationFailed",
    "Throttled",
    "TopicExists",
    "TopicForbidden",
    "TopicPartition",
    "TransactionForbidden",
    "UnknownTopic",
    "UnsupportedVersion",
    "WrongLoop",
    "__version__",
]

_WHERE: dict[str, str] = dict.fromkeys(__all__, "headwater.client.errors") | {
    "Admin": "headwater.client.admin",
    "Consumer": "headwater.client.consumer",
    "Producer": "headwater.client.producer",
    "TopicPartition": "headwater.model",
}


if not TYPE_CHECKING:  # a checker knows the names, and that there are no others

    def __getattr__(name: str) -> object:
        module = _WHERE.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        found = globals()[name] = getattr(import_module(module), name)
        return found


def __dir__() -> list[str]:
    return sorted(__all__)
