"""What a person can do about an error code, where its name leaves that open."""

from __future__ import annotations

from headwater.errors import ErrorCode

ADVICE: dict[ErrorCode, str] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "something went wrong in the broker; its log says what",
    ErrorCode.OFFSET_OUT_OF_RANGE: (
        "the log does not have it, or not any more; seek, or look at retention"
    ),
    ErrorCode.CORRUPT_MESSAGE: "the batch was damaged on its way or on the disk",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "create the topic, or look at its name and partition",
    ErrorCode.UNKNOWN_TOPIC_ID: "the topic was deleted, or the broker has not heard of it yet",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic was deleted and created again meanwhile",
    ErrorCode.LEADER_NOT_AVAILABLE: "a leader is being elected, or no replica is up",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "the partition has another leader by now",
    ErrorCode.REQUEST_TIMED_OUT: (
        "the brokers were too slow; look whether some are down, or give it more time"
    ),
    ErrorCode.MESSAGE_TOO_LARGE: "raise the topic's max.message.bytes, or send smaller records",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise the topic's segment.bytes, or send smaller batches",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "shorten the metadata, or raise the broker's offset.metadata.max.bytes"
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is reading its log; wait a moment",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: (
        "no broker coordinates this now; look whether some are down"
    ),
    ErrorCode.INVALID_TOPIC_EXCEPTION: (
        "a topic's name has 1 to 249 of the ASCII letters, digits, '.', '_' and '-', and is "
        "neither '.' nor '..'"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: "look which brokers are down, or lower min.insync.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        "it was written, but to fewer replicas than min.insync.replicas; look which brokers "
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
    ErrorCode.INVALID_GROUP_ID: "give the group a name that is not empty",
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "the broker allows group.min.session.timeout.ms to group.max.session.timeout.ms"
    ),
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "the group is full; raise the broker's group.max.size, or use fewer members"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: (
        "the broker does not have it; leave group_remote_assignor out, or use range or uniform"
    ),
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the broker reads patterns as RE2 does",
    ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED: (
        "set delegation.token.secret.key on the brokers and the controllers"
    ),
    ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: (
        "tokens are for those whom the broker knows by SASL or TLS, but not by a token"
    ),
    ErrorCode.DELEGATION_TOKEN_NOT_FOUND: "it has expired, or there never was such a token",
    ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH: "only its owner and its renewers may do that",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "the principal needs an ACL for the topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the principal needs an ACL for the group",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "the principal needs an ACL for the cluster",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "the principal needs an ACL for the transactional id"
    ),
    ErrorCode.SASL_AUTHENTICATION_FAILED: "look at the user's name and password",
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: "the broker offers other mechanisms than this one",
    ErrorCode.ILLEGAL_SASL_STATE: (
        "this listener wants no SASL; take its security_protocol, or the port of another listener"
    ),
    ErrorCode.SECURITY_DISABLED: "the brokers have no authorizer; set authorizer.class.name there",
    ErrorCode.INVALID_TIMESTAMP: (
        "the topic's message.timestamp.before.max.ms and after.max.ms allow no such time"
    ),
    ErrorCode.INVALID_RECORD: (
        "the broker checked the record and does not take it; a compacted topic wants a key"
    ),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the broker is too old for this codec",
    ErrorCode.UNSUPPORTED_VERSION: "the broker is too old for this, or has it switched off",
    ErrorCode.INVALID_PARTITIONS: "a topic has at least one partition, and never fewer than before",
    ErrorCode.INVALID_REPLICATION_FACTOR: "there are not so many brokers",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: "name brokers that are there, each once",
    ErrorCode.INVALID_CONFIG: "look at the setting's name and value",
    ErrorCode.INVALID_REQUEST: "the broker can make nothing of it; its log may say more",
    ErrorCode.POLICY_VIOLATION: "the brokers have a rule against it",
    ErrorCode.TOPIC_DELETION_DISABLED: "set the brokers' delete.topic.enable=true",
    ErrorCode.NOT_CONTROLLER: "the controller has just moved",
    ErrorCode.KAFKA_STORAGE_ERROR: "a disk of the broker is full or has failed; its log says which",
    ErrorCode.LOG_DIR_NOT_FOUND: "the broker has no such log directory; describe_log_dirs has them",
    ErrorCode.REASSIGNMENT_IN_PROGRESS: (
        "wait until the partition has moved; list_reassignments has what is under way"
    ),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "nothing of this partition is under way",
    ErrorCode.ELECTION_NOT_NEEDED: "the leader is already the one that would be elected",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "the first replica is down or not in sync",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "no replica that could lead is up",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that read the topic first",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "there is no such broker; describe_cluster has them",
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: "wait, or raise the quota",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "a batch before this one is missing",
    ErrorCode.PRODUCER_FENCED: "a newer producer has the same transactional_id",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer has the same transactional_id",
    ErrorCode.TRANSACTION_ABORTABLE: "abort the transaction, then begin another",
    ErrorCode.FENCED_INSTANCE_ID: "a newer consumer has this group_instance_id; give each its own",
    ErrorCode.UNRELEASED_INSTANCE_ID: "another consumer still has this group_instance_id; "
    "close it, or wait for its session to end, or give each its own",
    ErrorCode.TOPIC_ALREADY_EXISTS: "it is there already",
    ErrorCode.GROUP_ID_NOT_FOUND: "no such group, or not of this kind; list_groups has them all",
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: "no such transaction; list_transactions has them all",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
}
