"""Access control rules: what they say, which of them a filter selects, and which are valid.

A rule allows or denies an operation on resources to a principal from a host. `Rule` is the form in
which the metadata, the authorizer and the requests share it.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address
from typing import TYPE_CHECKING, NamedTuple

from headwater.errors import ApiError, ErrorCode
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.protocol.records.metadata_security import AccessControlEntryRecord

WILDCARD = "*"
EVERYBODY = "User:*"
CLUSTER_NAME = "kafka-cluster"
_PRINCIPAL = "principal {!r}, expected TYPE:NAME, for instance User:alice"


class AclResource(IntEnum):
    """The type of a resource. `ANY` is for filters."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    """The ways in which a rule matches names. `ANY` and `MATCH` (every rule that applies to a name)
    are for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclPermission(IntEnum):
    """Whether a rule allows or denies. `ANY` is for filters."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Rule(NamedTuple):
    """One rule. The numbers are those of the protocol: a newer cluster may have some that the enums
    do not know."""

    resource: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int

    @classmethod
    def from_record(cls, record: AccessControlEntryRecord) -> Rule:
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def applies_to(self, name: str) -> bool:
        """Returns whether the rule is about the resource of that name."""
        if self.pattern == AclPattern.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def check(self) -> None:
        """Refuses a rule that cannot be created."""
        if self.resource not in _RESOURCES:
            raise _invalid(f"resource type {self.resource} cannot have rules")
        if self.pattern not in (AclPattern.LITERAL, AclPattern.PREFIXED):
            raise _invalid(f"pattern type {self.pattern}, expected LITERAL (3) or PREFIXED (4)")
        if self.operation not in _OPERATIONS:
            raise _invalid(f"operation {self.operation} cannot be allowed or denied")
        if self.permission not in (AclPermission.DENY, AclPermission.ALLOW):
            raise _invalid(f"permission type {self.permission}, expected DENY (2) or ALLOW (3)")
        if not self.name:
            raise _invalid("expected the name of a resource, got an empty one")
        if self.resource == AclResource.CLUSTER and self.name != CLUSTER_NAME:
            raise _invalid(f"the only resource of type CLUSTER is {CLUSTER_NAME}")
        if ":" not in self.principal:  # Kafka asks for no more
            raise _invalid(_PRINCIPAL.format(self.principal))

    def __str__(self) -> str:
        pattern = " prefixed" if self.pattern == AclPattern.PREFIXED else ""
        return (
            f"{enum_name(AclPermission, self.permission)} {self.principal} to "
            f"{enum_name(Operation, self.operation)} "
            f"{enum_name(AclResource, self.resource)}{pattern} {self.name} from host {self.host}"
        )


_RESOURCES = frozenset(AclResource) - {AclResource.UNKNOWN, AclResource.ANY}
_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN, Operation.ANY}


class RuleFilter(NamedTuple):
    """Selects rules; None and ANY match everything."""

    resource: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @property
    def has_unknown(self) -> bool:
        """Returns whether an element is not one that this release knows."""
        return (
            self.resource not in _FILTER_RESOURCES
            or self.pattern not in _FILTER_PATTERNS
            or self.operation not in _FILTER_OPERATIONS
            or self.permission not in _FILTER_PERMISSIONS
        )

    def matches(self, rule: Rule) -> bool:
        return (
            self.resource in (AclResource.ANY, rule.resource)
            and self._matches_name(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (Operation.ANY, rule.operation)
            and self.permission in (AclPermission.ANY, rule.permission)
        )

    def _matches_name(self, rule: Rule) -> bool:
        if self.pattern not in (AclPattern.ANY, AclPattern.MATCH, rule.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern == AclPattern.MATCH:
            return rule.applies_to(self.name)
        return self.name == rule.name


_FILTER_RESOURCES = frozenset(AclResource) - {AclResource.UNKNOWN}
_FILTER_PATTERNS = frozenset(AclPattern) - {AclPattern.UNKNOWN}
_FILTER_OPERATIONS = frozenset(Operation) - {Operation.UNKNOWN}
_FILTER_PERMISSIONS = frozenset(AclPermission) - {AclPermission.UNKNOWN}


def host_text(address: IPv4Address | IPv6Address) -> str:
    """Returns an address as connections show theirs; IPv4 inside of IPv6 is IPv4, as in Java."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)


def principal_of(text: str) -> tuple[str, str]:
    """Returns type and name of a principal such as `User:alice`; raises ApiError for another
    form."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise _invalid(_PRINCIPAL.format(text))
    return kind, name


def parse_super_users(text: str) -> frozenset[str]:
    """Returns the principals in super.users, which semicolons separate."""
    users = frozenset(part.strip() for part in text.split(";") if part.strip())
    for user in sorted(users):
        principal_of(user)
    return users


def enum_name(kind: type[IntEnum], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def prefixes(name: str) -> Iterator[str]:
    return (name[:length] for length in range(1, len(name) + 1))


def _invalid(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)
