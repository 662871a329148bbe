"""The exceptions of the clients.

`RetriableError` may be transient; the client has already retried until the caller's deadline.
`FatalError` is permanent: make a new client, or change something first. `AbortableError` ends a
transaction, not its producer. `AuthorizationError` needs another permission. Each has `code`, the
broker's error code if there was one; the message quotes the invalid value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headwater.errors import RETRIABLE, ErrorCode
from headwater.model import NO_OFFSET

if TYPE_CHECKING:
    from headwater._core import ConsumedRecord


class ClientError(Exception):
    """Base class of all errors that the clients raise."""

    def __init__(self, message: str, *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class PartitionError(ClientError):
    """An error about one place in one partition, which `topic`, `partition` and `offset` name.

    `offset` is -1 if no offset is involved.
    """

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        topic: str = "",
        partition: int = -1,
        offset: int = NO_OFFSET,
    ) -> None:
        super().__init__(message, code=code)
        self.topic = topic
        self.partition = partition
        self.offset = offset


class RetriableError(ClientError):
    """The same call may succeed later."""


class BrokersUnavailable(RetriableError):
    """No broker could be reached; the message has every address and its reason."""


class Disconnected(RetriableError):
    """The connection ended before the response came. The request may have been executed."""


class RequestTimedOut(RetriableError):
    """No response within the timeout."""


class UnknownTopic(RetriableError):
    """The topic, or this partition of it, does not exist as far as the brokers know."""


class NotLeader(RetriableError):
    """The partition has no leader now, or another one than was asked."""


class NotController(RetriableError):
    """The controller is moving or not known yet."""


class CoordinatorUnavailable(RetriableError):
    """The coordinator of a group or a transaction is moving, loading or not known yet."""


class NotEnoughReplicas(RetriableError):
    """Fewer replicas are in sync than min.insync.replicas requires."""


class Throttled(RetriableError):
    """A quota is exceeded."""


class BufferFull(RetriableError):
    """The producer's buffer stayed full for max_block_ms."""


class DeliveryTimedOut(RetriableError):
    """A record was not acknowledged within delivery_timeout_ms. It may have been written."""


class FatalError(ClientError):
    """This client, or this call, can never succeed."""


class NotKafka(FatalError):
    """The server at the address does not speak Kafka's protocol."""


class WrongListener(FatalError):
    """The address is a controller's and not a broker's, or the other way round."""


class UnsupportedVersion(FatalError):
    """The broker does not serve the request, or not in a version that can express it."""


class ClientClosed(FatalError):
    """The client was closed."""


class WrongLoop(FatalError):
    """The client belongs to another event loop, or none is running."""


class Forked(FatalError):
    """The client was made before the process forked; each process needs its own."""


class ProducerFenced(FatalError):
    """Another producer with the same transactional id has taken over, or the transaction took
    longer than transaction_timeout_ms."""


class FencedInstance(FatalError):
    """Another consumer with the same group_instance_id has taken over."""


class AbortableError(ClientError):
    """The transaction must be aborted; the producer can begin another. `__cause__` is the error
    that spoilt it, if there was one."""


class TransactionAborted(AbortableError):
    """The record was not written, or is not visible: its transaction was aborted."""


class CommitOutcomeUnknown(RetriableError):
    """No broker has said whether the transaction is committed. Commit again: the outcome cannot
    change any more, and nothing is committed twice."""


class InvalidTransactionState(ClientError):
    """The call does not fit the state of the transaction, such as a record outside of one."""


class AuthorizationError(ClientError):
    """The principal is not allowed to do this."""


class TopicForbidden(AuthorizationError):
    """An ACL for the topic is missing."""


class GroupForbidden(AuthorizationError):
    """An ACL for the group is missing."""


class ClusterForbidden(AuthorizationError):
    """An ACL for the cluster is missing: creating topics, altering configs and the like."""


class TransactionForbidden(AuthorizationError):
    """An ACL for the transactional id is missing."""


class AuthenticationFailed(AuthorizationError, FatalError):
    """The broker rejected the credentials."""


class InvalidRecord(ClientError):
    """The record itself cannot be sent or read; sending it again does not help."""


class RecordTooLarge(InvalidRecord):
    """The record exceeds max_request_size, buffer_memory or the topic's max.message.bytes."""


class SerializationFailed(InvalidRecord):
    """The serializer failed, or the key or value is neither bytes nor text."""


class CorruptRecord(InvalidRecord, PartitionError):
    """The batch at `offset` is corrupt: `seek` past it, or read it from another replica."""


class DeserializationFailed(InvalidRecord, PartitionError):
    """A deserializer raised. `record` is the record with its raw key and value, None where it has
    none, and `part` says which of the two failed. Seek past it, or give the consumer an
    `on_bad_record`."""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        topic: str = "",
        partition: int = -1,
        offset: int = NO_OFFSET,
        part: Literal["key", "value"] = "value",
        record: ConsumedRecord[bytes | None, bytes | None] | None = None,
    ) -> None:
        super().__init__(message, code=code, topic=topic, partition=partition, offset=offset)
        self.part = part
        self.record = record


class CommitFailed(ClientError):
    """The partitions belong to another member by now; their records may be processed twice."""


class RebalanceInProgress(ClientError):
    """The group is rebalancing; poll, then try again."""


class OffsetOutOfRange(PartitionError):
    """The log does not contain `offset`, and auto_offset_reset is "none"."""


class LogTruncated(PartitionError):
    """The log was truncated below the consumer's position, `offset`, and auto_offset_reset is
    "none". From `divergent_offset` on, records differ from those that were read; -1 if the broker
    does not know where that begins."""

    def __init__(
        self,
        message: str,
        *,
        code: ErrorCode | None = None,
        topic: str = "",
        partition: int = -1,
        offset: int = NO_OFFSET,
        divergent_offset: int = NO_OFFSET,
    ) -> None:
        super().__init__(message, code=code, topic=topic, partition=partition, offset=offset)
        self.divergent_offset = divergent_offset


class NoOffsetForPartition(PartitionError):
    """The group has no committed offset for the partition, and auto_offset_reset is "none"."""


class PollIntervalExceeded(ClientError):
    """poll was not called for max_poll_interval_ms, so the group removed this member."""


class Refused(ClientError):
    """The broker refused the request, and would refuse it again."""


class TopicExists(Refused):
    """A topic of this name already exists."""


class InvalidTopic(Refused):
    """An invalid topic name, or a topic that cannot be used for this."""


class GroupNotFound(Refused):
    """There is no group of this name."""


class GroupNotEmpty(Refused):
    """The group has members; stop them first."""


class ConfigError(ClientError, ValueError):
    """A setting is unknown, has an invalid value, or contradicts another one."""


_CLASSES: dict[ErrorCode, type[ClientError]] = {
    ErrorCode.OFFSET_OUT_OF_RANGE: OffsetOutOfRange,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopic,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopic,
    ErrorCode.INCONSISTENT_TOPIC_ID: UnknownTopic,
    ErrorCode.LEADER_NOT_AVAILABLE: NotLeader,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: NotLeader,
    ErrorCode.FENCED_LEADER_EPOCH: NotLeader,
    ErrorCode.UNKNOWN_LEADER_EPOCH: NotLeader,
    ErrorCode.REPLICA_NOT_AVAILABLE: NotLeader,
    ErrorCode.REQUEST_TIMED_OUT: RequestTimedOut,
    ErrorCode.BROKER_NOT_AVAILABLE: BrokersUnavailable,
    ErrorCode.REBOOTSTRAP_REQUIRED: BrokersUnavailable,
    ErrorCode.NETWORK_EXCEPTION: Disconnected,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: CoordinatorUnavailable,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: CoordinatorUnavailable,
    ErrorCode.NOT_COORDINATOR: CoordinatorUnavailable,
    ErrorCode.NOT_CONTROLLER: NotController,
    ErrorCode.NOT_ENOUGH_REPLICAS: NotEnoughReplicas,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: NotEnoughReplicas,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Throttled,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLarge,
    ErrorCode.RECORD_LIST_TOO_LARGE: RecordTooLarge,
    ErrorCode.INVALID_RECORD: InvalidRecord,
    ErrorCode.INVALID_TIMESTAMP: InvalidRecord,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: InvalidRecord,
    ErrorCode.ILLEGAL_GENERATION: CommitFailed,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitFailed,
    ErrorCode.STALE_MEMBER_EPOCH: CommitFailed,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitFailed,
    ErrorCode.REBALANCE_IN_PROGRESS: RebalanceInProgress,
    ErrorCode.FENCED_INSTANCE_ID: FencedInstance,
    ErrorCode.UNRELEASED_INSTANCE_ID: FencedInstance,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.INVALID_PRODUCER_EPOCH: ProducerFenced,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ProducerFenced,
    ErrorCode.TRANSACTION_ABORTABLE: AbortableError,
    ErrorCode.INVALID_TXN_STATE: FatalError,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: FatalError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedVersion,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: TopicForbidden,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: GroupForbidden,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ClusterForbidden,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: TransactionForbidden,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.SASL_AUTHENTICATION_FAILED: AuthenticationFailed,
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: AuthenticationFailed,
    ErrorCode.ILLEGAL_SASL_STATE: AuthenticationFailed,
    ErrorCode.TOPIC_ALREADY_EXISTS: TopicExists,
    ErrorCode.INVALID_TOPIC_EXCEPTION: InvalidTopic,
    ErrorCode.GROUP_ID_NOT_FOUND: GroupNotFound,
    ErrorCode.NON_EMPTY_GROUP: GroupNotEmpty,
}

_FENCED = (
    "a newer producer has the same transactional_id, or the transaction took longer than "
    "transaction_timeout_ms and was aborted"
)

# What a person can do about an error code, where its name does not tell.
_ADVICE: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "something went wrong in the broker; its log says what",
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "the log does not have it, or no longer; seek, or check retention"
    ),
    ErrorCode.CORRUPT_MESSAGE: "the batch was corrupted in transit or on disk",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or check its name and partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, or the broker does not know it yet",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic was deleted and created again meanwhile",
    ErrorCode.LEADER_NOT_AVAILABLE: "a leader is being elected, or no replica is up",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has another leader by now",
    ErrorCode.REQUEST_TIMED_OUT: (
        "the brokers were too slow; check whether some are down, or raise the timeout"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, or send smaller records",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes, or send smaller batches",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "shorten the metadata, or raise the broker's offset.metadata.max.bytes"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is reading its log; wait a moment",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "no broker coordinates this now; check whether some are down"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has 1 to 249 of the ASCII letters, digits, '.', '_' and '-', and is "
        "neither '.' nor '..'"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: "check which brokers are down, or lower min.insync.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "it was written, but to fewer replicas than min.insync.replicas; check which brokers "
        "are down"
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: "use acks 0, 1 or all",
    ErrorCode.ILLEGAL_GENERATION: "the group has been rebalanced meanwhile; poll again",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has gone on without this member; poll again",
    ErrorCode.STALE_MEMBER_EPOCH: "the group has been rebalanced meanwhile; poll again",
    ErrorCode.FENCED_MEMBER_EPOCH: "the group has gone on without this member; poll again",
    ErrorCode.REBALANCE_IN_PROGRESS: "poll, then try again",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "the members have no assignor in common, or the group is of another kind; give all of "
        "them the same group_protocol and strategies"
    ),
    ErrorCode.INVALID_GROUP_ID: "the group needs a name that is not empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker allows group.min.session.timeout.ms to group.max.session.timeout.ms"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group is full; raise the broker's group.max.size, or use fewer members"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "the broker does not have it; omit group_remote_assignor, or use range or uniform"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker reads patterns in RE2 syntax",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "set delegation.token.secret.key on the brokers and the controllers"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "request tokens over SASL or TLS, but not with a token as the login"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "it has expired, or never existed",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs an ACL for the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs an ACL for the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the principal needs an ACL for the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "the principal needs an ACL for the transactional id"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: "check the user name and the password",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the broker does not offer this mechanism",
    ErrorCode.ILLEGAL_SASL_STATE: (
        "this listener does not use SASL; change security_protocol, or use another port"
    ),
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer; set authorizer.class.name there",
    ErrorCode.INVALID_TIMESTAMP: (
        "outside of what the topic's message.timestamp.before.max.ms and after.max.ms allow"
    ),
    ErrorCode.INVALID_RECORD: (
        "the broker validated the record and refused it; a compacted topic requires a key"
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker is too old for this codec",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for this, or has it switched off",
    ErrorCode.INVALID_PARTITIONS: "a topic has at least one partition, and cannot lose any",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are fewer brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "name existing brokers, each once",
    ErrorCode.INVALID_CONFIG: "check the setting's name and value",
    ErrorCode.INVALID_REQUEST: "the broker finds it malformed; its log may say more",
    ErrorCode.POLICY_VIOLATION: "a policy of the brokers forbids it",
    ErrorCode.TOPIC_DELETION_DISABLED: "set the brokers' delete.topic.enable=true",
    ErrorCode.NOT_CONTROLLER: "the controller has just moved",
    ErrorCode.KAFKA_STORAGE_ERROR: "a disk of the broker is full or has failed; its log says which",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such directory; describe_log_dirs lists them",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: (
        "wait until the partition has moved; list_reassignments shows progress"
    ),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "the partition is not being moved",
    ErrorCode.ELECTION_NOT_NEEDED: "the leader is already the one that would be elected",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the first replica is down or not in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no eligible replica is up",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "there is no such broker; describe_cluster lists them",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "wait, or raise the quota",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch before this one is missing",
    ErrorCode.PRODUCER_FENCED: _FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH: _FENCED,
    ErrorCode.INVALID_TXN_STATE: (
        "the coordinator has no such open transaction; it may have timed out"
    ),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: (
        "the transactional id has another producer id by now, or has expired "
        "(transactional.id.expiration.ms of the brokers)"
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: (
        "lower transaction_timeout_ms, or raise the brokers' transaction.max.timeout.ms"
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: "the transaction before it is still being completed",
    ErrorCode.TRANSACTION_ABORTABLE: "abort the transaction, then begin another",
    ErrorCode.FENCED_INSTANCE_ID: "a newer consumer has this group_instance_id; give each its own",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another consumer still has this group_instance_id; "
    "close it, or wait for its session to end, or give each its own",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it already exists",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or not of this kind; list_groups lists all",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "no such transaction; list_transactions lists all",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
}

# Advice by kind of error where there is none for the code; the first that fits.
_ADVICE_BY_CLASS: tuple[tuple[type[ClientError], str], ...] = (
    (RetriableError, "it may be transient; try again later"),
    (AuthorizationError, "the principal may not do this"),
    (FatalError, "this client cannot continue; create a new one"),
    (ClientError, "the broker refused this; its log may say why"),
)


def code_of(code: int) -> ErrorCode:
    """Returns the code as an enum member; UNKNOWN_SERVER_ERROR for one newer than this client."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def error_class(code: int) -> type[ClientError]:
    """Returns the exception class of an error code."""
    known = code_of(code)
    found = _CLASSES.get(known)
    if found is not None:
        return found
    return RetriableError if known in RETRIABLE else Refused


def error_for(code: int, what: str, message: str | None = None) -> ClientError:
    """Returns the exception of an error code. `what` names the topic, group or value that it is
    about; `message` is the broker's own, if there is one."""
    known = code_of(code)
    name = known.name if known == code else f"error {code}"
    made = error_class(code)
    return made(f"{what}: {message or _advice(known, made)} ({name})", code=known)


def _advice(code: ErrorCode, made: type[ClientError]) -> str:
    known = _ADVICE.get(code)
    if known is not None:
        return known
    return next(advice for base, advice in _ADVICE_BY_CLASS if issubclass(made, base))
