"""What one may do to a resource, as answers tell it: a bit for each operation."""

from __future__ import annotations

from enum import IntEnum

_NOT_TOLD = -(2**31)


class Operation(IntEnum):
    """What can be done to a resource, as ACLs and answers number it. `ANY` is for filters."""

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


def operations(bits: int) -> frozenset[str] | None:
    """The names of the operations in a bit field, or None if the answer does not tell."""
    if bits == _NOT_TOLD:
        return None
    return frozenset(each.name for each in Operation if bits >> each & 1)
