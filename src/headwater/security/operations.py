"""Operations on resources, as the protocol numbers them, and sets of them as bit fields."""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """An operation on a resource, as ACLs and responses number it. `ANY` is for filters."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


# The bit field of a response whose request did not ask for operations.
NOT_ASKED = -(2**31)


def bit_field(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def operation_names(bits: int) -> frozenset[str] | None:
    """Returns the names of the operations in a bit field, or None if they were not asked for."""
    if bits == NOT_ASKED:
        return None
    return frozenset(each.name for each in Operation if bits >> each & 1)


# Without an authorizer everybody may do all that can be done to a resource.
TOPIC_OPERATIONS = bit_field(
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS = bit_field(
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)
GROUP_OPERATIONS = bit_field(
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
