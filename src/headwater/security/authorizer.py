"""Kafka's StandardAuthorizer (KIP-801) over the rules in the metadata.

Rules that deny win over rules that allow. A check looks only at rules of the principal, or of
everybody, for the resource's name or one of its prefixes, however many rules there are. Decisions
are remembered until a rule changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple, Protocol

from headwater.errors import ApiError, ErrorCode
from headwater.security.acls import (
    EVERYBODY,
    WILDCARD,
    AclPattern,
    AclPermission,
    AclResource,
    Rule,
    host_text,
    prefixes,
)
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.protocol.records.metadata_security import AccessControlEntryRecord
    from headwater.security.principal import Principal

# A rule that allows one of these allows the operation, too; a rule that denies it does not deny it.
_IMPLIED_BY = {
    Operation.DESCRIBE: frozenset(
        (Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
    ),
    Operation.DESCRIBE_CONFIGS: frozenset((Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)),
}

_REMEMBERED_MAX = 20_000  # decisions; about 5 MB
_REMEMBERED_NAME_MAX = 249  # characters, as of a topic; a client without rights chooses the names
_RESOURCE_BITS = 8
_KEPT_OUT_MAX = 100
_SAMPLE_NAME = "hardcode"  # Kafka's: stands for the right to do an operation on every name


class NotReady(ApiError):
    """The rules are not loaded yet, and only super users are let in."""

    def __init__(self, *, is_first: bool) -> None:
        super().__init__(
            ErrorCode.UNKNOWN_SERVER_ERROR, "the access control rules are not loaded yet"
        )
        self.is_first = is_first  # of this principal: a line in the log says it once


class Verdict(NamedTuple):
    """A decision and what it is based on: a rule, or what holds without one."""

    allowed: bool
    rule: Rule | None
    reason: str


class Authorizer(Protocol):
    """Decides whether a principal may do something. `keeps_rules`: it goes by the rules of the
    metadata, which requests create and delete."""

    @property
    def keeps_rules(self) -> bool: ...

    @property
    def generation(self) -> object | None:
        """Another object after each change of the rules: while it is the same, what was allowed is
        allowed. None if that cannot be said."""
        ...

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: AclResource,
        name: str,
    ) -> bool: ...

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource: AclResource
    ) -> bool:
        """Returns whether there is a resource of this type on which the operation is allowed."""
        ...

    def follow(
        self, rules: Mapping[bytes, AccessControlEntryRecord], changed: Iterable[bytes]
    ) -> None:
        """Takes a change of the rules in the metadata; the first call says that they are loaded."""
        ...


class StandardAuthorizer:
    """Decides by the rules of the metadata."""

    keeps_rules = True

    def __init__(
        self, super_users: Iterable[str] = (), *, allow_if_no_rule_is_found: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_no_rule_is_found
        self.generation: object = object()
        self._is_loaded = False
        self._kept_out: set[str] = set()  # before the rules were loaded
        self._rules: dict[bytes, Rule] = {}
        self._by_principal: dict[tuple[str, int], _Names] = {}  # and type of resource
        self._of_all: dict[int, _Names] = {}
        self._remembered: dict[tuple[Principal, str, int, str], bool] = {}

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> StandardAuthorizer:
        """Returns one that goes by these rules and no others."""
        made = cls()
        made._is_loaded = True
        for rule in rules:
            made._add(_matchable(rule))
        return made

    # Rules

    def follow(
        self, rules: Mapping[bytes, AccessControlEntryRecord], changed: Iterable[bytes]
    ) -> None:
        if not self._is_loaded:
            self._is_loaded = True
            changed = list(rules)
        for rule_id in changed:
            before = self._rules.pop(rule_id, None)
            if before is not None:
                self._remove(before)
            record = rules.get(rule_id)
            if record is not None:
                rule = self._rules[rule_id] = _matchable(Rule.from_record(record))
                self._add(rule)
            self._remembered.clear()
            self.generation = object()

    def _add(self, rule: Rule) -> None:
        key = rule.principal, rule.resource
        self._by_principal.setdefault(key, _Names()).add(rule)
        self._of_all.setdefault(rule.resource, _Names()).add(rule)

    def _remove(self, rule: Rule) -> None:
        key = rule.principal, rule.resource
        self._by_principal[key].remove(rule)
        if not self._by_principal[key]:
            del self._by_principal[key]
        self._of_all[rule.resource].remove(rule)

    # Decisions

    def allows(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: AclResource,
        name: str,
    ) -> bool:
        # One number for both: members of an Enum are slow to hash.
        key = (principal, host, operation << _RESOURCE_BITS | resource, name)
        known = self._remembered.get(key)
        if known is None:
            known = self.explain(principal, host, operation, resource, name).allowed
            if len(name) <= _REMEMBERED_NAME_MAX:
                if len(self._remembered) >= _REMEMBERED_MAX:
                    self._remembered.clear()
                self._remembered[key] = known
        return known

    def explain(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        resource: AclResource,
        name: str,
    ) -> Verdict:
        who = str(principal)
        if who in self._super_users:
            return Verdict(True, None, f"{who} is a super user")
        if not self._is_loaded:
            is_first = who not in self._kept_out and len(self._kept_out) < _KEPT_OUT_MAX
            if is_first:
                self._kept_out.add(who)
            raise NotReady(is_first=is_first)
        allowing: Rule | None = None
        for rule in self._rules_about(who, resource, name):
            if not _concerns(rule, host, operation):
                continue
            if rule.permission == AclPermission.DENY:
                return Verdict(False, rule, "a rule denies it")
            allowing = allowing or rule
        if allowing is not None:
            return Verdict(True, allowing, "a rule allows it")
        if self._allow_if_none and not self._has_rules(resource, name):
            return Verdict(True, None, "no rule is about this resource, and that means allowed")
        return Verdict(False, None, "no rule allows it")

    def _rules_about(self, who: str, resource: int, name: str) -> Iterator[Rule]:
        for principal in (who, EVERYBODY) if who != EVERYBODY else (who,):
            found = self._by_principal.get((principal, resource))
            if found is not None:
                yield from found.about(name)

    def _has_rules(self, resource: int, name: str) -> bool:
        found = self._of_all.get(resource)
        return found is not None and any(True for _ in found.about(name))

    def allows_any(
        self, principal: Principal, host: str, operation: Operation, resource: AclResource
    ) -> bool:
        """Returns whether there is a resource of this type on which the operation is allowed.

        As in Kafka implied operations do not count, and a name that rules allow counts unless that
        very name, or a prefix of it, is denied.
        """
        if self.allows(principal, host, operation, resource, _SAMPLE_NAME):
            return True
        allowed: list[Rule] = []
        denied: set[tuple[int, str]] = set()
        who = str(principal)
        for each in (who, EVERYBODY) if who != EVERYBODY else (who,):
            found = self._by_principal.get((each, resource))
            for rule in found.all() if found is not None else ():
                if rule.host not in (host, WILDCARD):
                    continue
                if rule.operation not in (operation, Operation.ALL):
                    continue
                if rule.permission == AclPermission.DENY:
                    denied.add((rule.pattern, rule.name))
                else:
                    allowed.append(rule)
        if (AclPattern.LITERAL, WILDCARD) in denied:
            return False
        return any(not _is_denied(rule, denied) for rule in allowed)


def _is_denied(rule: Rule, denied: set[tuple[int, str]]) -> bool:
    """Returns whether a denial covers all that a rule allows."""
    if rule.pattern == AclPattern.LITERAL:
        if rule.name == WILDCARD:
            return False
        if (AclPattern.LITERAL, rule.name) in denied:
            return True
    return any((AclPattern.PREFIXED, prefix) in denied for prefix in prefixes(rule.name))


def _matchable(rule: Rule) -> Rule:
    """Returns a rule with its host as connections show theirs. Java writes all eight groups of an
    IPv6 address."""
    try:
        return rule._replace(host=host_text(ip_address(rule.host)))
    except ValueError:
        return rule  # a wildcard, or a text that no address equals


def _concerns(rule: Rule, host: str, operation: Operation) -> bool:
    if rule.host not in (WILDCARD, host):
        return False
    if rule.operation in (operation, Operation.ALL):
        return True
    implied_by = _IMPLIED_BY.get(operation)
    return (
        implied_by is not None
        and rule.permission == AclPermission.ALLOW
        and rule.operation in implied_by
    )


class _Names:
    """Rules for one type of resource, by the names they are about."""

    __slots__ = ("_lengths", "_literal", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[str, list[Rule]] = {}
        self._prefixed: dict[str, list[Rule]] = {}
        self._lengths: Counter[int] = Counter()  # of the prefixes: mostly few differ

    def __bool__(self) -> bool:
        return bool(self._literal or self._prefixed)

    def _rules_for(self, rule: Rule) -> dict[str, list[Rule]]:
        return self._prefixed if rule.pattern == AclPattern.PREFIXED else self._literal

    def add(self, rule: Rule) -> None:
        rules = self._rules_for(rule)
        if rules is self._prefixed and rule.name not in rules:
            self._lengths[len(rule.name)] += 1
        rules.setdefault(rule.name, []).append(rule)

    def remove(self, rule: Rule) -> None:
        rules = self._rules_for(rule)
        rules[rule.name].remove(rule)
        if rules[rule.name]:
            return
        del rules[rule.name]
        if rules is self._prefixed:
            self._lengths[len(rule.name)] -= 1
            if not self._lengths[len(rule.name)]:
                del self._lengths[len(rule.name)]

    def all(self) -> Iterator[Rule]:
        for rules in (*self._literal.values(), *self._prefixed.values()):
            yield from rules

    def about(self, name: str) -> Iterator[Rule]:
        yield from self._literal.get(name, ())
        if name != WILDCARD:
            yield from self._literal.get(WILDCARD, ())
        for length in self._lengths:
            if length <= len(name):
                yield from self._prefixed.get(name[:length], ())
