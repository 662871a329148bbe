"""Asks the authorizer on behalf of handlers, and writes the audit line of each decision.

A node without an authorizer allows everything; where a check would cost something for each topic
or partition, a handler looks at `node.authorizer` first. A node's requests to itself are always
allowed. A denial is logged as one line; permissions are logged at level debug of
`headwater.authorizer`. Checks that only filter a list or fill in a bit field of operations are
`quiet`: nobody has attempted anything. A check is `tentative` if another right is asked about where
it denies: its denials are not final and not logged, its permissions are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Protocol

from headwater.errors import ApiError, ErrorCode
from headwater.observability import Log, printable
from headwater.security.acls import CLUSTER_NAME, AclResource
from headwater.security.authorizer import NotReady
from headwater.security.operations import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
    Operation,
)

if TYPE_CHECKING:
    from headwater.broker.context import Context
    from headwater.security.authorizer import Authorizer

AUTHORIZER = "headwater.authorizer"  # the name of the audit log

_NONE: frozenset[str] = frozenset()
_GRANTED_MAX = 1000  # topics of one connection
_AUDITED_MAX = 100  # names of one request, each with a line of the log
_REFUSALS = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_SUPPORTED = {
    AclResource.TOPIC: TOPIC_OPERATIONS,
    AclResource.GROUP: GROUP_OPERATIONS,
    AclResource.CLUSTER: CLUSTER_OPERATIONS,
}


class Guarded(Protocol):
    """A node's role, as far as it matters here."""

    @property
    def authorizer(self) -> Authorizer | None: ...

    @property
    def log(self) -> Log: ...


def is_allowed(
    node: Guarded,
    context: Context,
    operation: Operation,
    resource: AclResource,
    name: str = CLUSTER_NAME,
    *,
    quiet: bool = False,
    tentative: bool = False,
) -> bool:
    if node.authorizer is None or context.is_internal:
        return True
    quiet_now = quiet or tentative
    refused = _denied(node, node.authorizer, context, operation, resource, (name,), quiet=quiet_now)
    if tentative and not refused:
        log = node.log.named(AUTHORIZER)
        if log.is_debug:
            _audit(log, context, operation, resource, name, allowed=True)
    return not refused


def _denied(
    node: Guarded,
    authorizer: Authorizer,
    context: Context,
    operation: Operation,
    resource: AclResource,
    names: Collection[str],
    *,
    quiet: bool,
) -> Collection[str]:
    """Asks the authorizer about some names; returns those that it denies."""
    principal, host = context.principal, context.client_host
    allows = authorizer.allows
    try:
        refused = {name for name in names if not allows(principal, host, operation, resource, name)}
    except NotReady as not_ready:
        if not_ready.is_first:
            node.log.warn(
                f"{printable(str(principal))} at {host} must wait: {not_ready}; a node that takes "
                "part in finding the leader of the quorum has to be in super.users"
            )
        raise
    if not quiet:
        log = node.log.named(AUTHORIZER)
        if refused or log.is_debug:
            denials_first = sorted(names, key=lambda name: name not in refused)
            for name in denials_first[:_AUDITED_MAX]:
                _audit(log, context, operation, resource, name, allowed=name not in refused)
            if len(names) > _AUDITED_MAX:
                what = f"{len(names)} {resource.name} in all, of which {len(refused)} are denied"
                _audit(log, context, operation, resource, what, allowed=not refused)
    return refused


def _audit(
    log: Log,
    context: Context,
    operation: Operation,
    resource: AclResource,
    name: str,
    *,
    allowed: bool,
) -> None:
    verdict = "allowed" if allowed else "denied"
    fields = {
        "verdict": verdict,
        "principal": context.principal,
        "operation": operation.name,
        "resource": f"{resource.name}:{name}",
        "host": context.client_host,
        "api": "" if context.api is None else context.api.name,
    }
    if allowed:
        log.debug(f"authorization {verdict}", **fields)
    else:
        log.bounded.info(f"authorization {verdict}", **fields)


def check(
    node: Guarded,
    context: Context,
    operation: Operation,
    resource: AclResource,
    name: str = CLUSTER_NAME,
) -> None:
    """Raises ApiError with the code for this kind of resource unless the operation is allowed."""
    if not is_allowed(node, context, operation, resource, name):
        raise ApiError(
            _REFUSALS[resource], f"not allowed to {operation.name} {resource.name} {name}"
        )


def check_cluster(node: Guarded, context: Context, operation: Operation) -> None:
    check(node, context, operation, AclResource.CLUSTER)


def check_keeps_rules(node: Guarded) -> None:
    """Refuses requests about rules where no authorizer goes by them."""
    if node.authorizer is None:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured")
    if not node.authorizer.keeps_rules:
        raise ApiError(
            ErrorCode.SECURITY_DISABLED, "the authorizer of this cluster does not use ACLs"
        )


def denied(
    node: Guarded,
    context: Context,
    operation: Operation,
    resource: AclResource,
    names: Iterable[str],
    *,
    quiet: bool = False,
) -> frozenset[str]:
    """Returns those of the names on which the operation is not allowed. Each name is looked at
    once, and none without an authorizer."""
    if node.authorizer is None or context.is_internal:
        return _NONE
    asked = dict.fromkeys(names)
    refused = _denied(node, node.authorizer, context, operation, resource, asked, quiet=quiet)
    return frozenset(refused) if refused else _NONE


class _Granted:
    """Permissions of one connection, valid until a rule changes: of thousands of requests only the
    first asks the authorizer."""

    __slots__ = ("audit", "generation", "readable", "writable")

    def __init__(self, generation: object, audit: Log) -> None:
        self.generation = generation
        self.audit = audit
        self.readable: set[str] = set()  # topics
        self.writable: set[str] = set()


# This one and the next run for each request, so that they are written twice instead of taking the
# operation as an argument.
def unreadable_topics(
    node: Guarded, context: Context, names: Collection[str | None]
) -> frozenset[str]:
    """Returns those of the topics of a fetch that the client may not read; None is a topic that is
    not known."""
    granted = _granted(node, context)
    if granted is None:
        return denied(node, context, Operation.READ, AclResource.TOPIC, _known(names))
    if granted.readable.issuperset(names):
        return _NONE
    return _grant(node, context, Operation.READ, names, granted.readable)


def unwritable_topics(
    node: Guarded, context: Context, names: Collection[str | None]
) -> frozenset[str]:
    """Returns those of the topics of a produce request to which the client may not write."""
    granted = _granted(node, context)
    if granted is None:
        return denied(node, context, Operation.WRITE, AclResource.TOPIC, _known(names))
    if granted.writable.issuperset(names):
        return _NONE
    return _grant(node, context, Operation.WRITE, names, granted.writable)


def _granted(node: Guarded, context: Context) -> _Granted | None:
    """Returns what the connection has been allowed; None where each request has to be asked for,
    or has a line of the log."""
    granted = context.connection.granted
    assert node.authorizer is not None
    generation = node.authorizer.generation
    if generation is None or context.origin is not None:
        return None
    if type(granted) is not _Granted or granted.generation is not generation:
        granted = _Granted(generation, node.log.named(AUTHORIZER))
        context.connection.granted = granted
    return None if granted.audit.is_debug else granted


def _grant(
    node: Guarded,
    context: Context,
    operation: Operation,
    names: Collection[str | None],
    topics: set[str],
) -> frozenset[str]:
    """Asks the authorizer, and adds what it allows to the topics of the connection."""
    known = _known(names)
    refused = denied(node, context, operation, AclResource.TOPIC, known)
    if len(topics) + len(known) <= _GRANTED_MAX:
        topics.update(name for name in known if name not in refused)
    return refused


def _known(names: Collection[str | None]) -> list[str]:
    return [name for name in names if name is not None]


def may(
    node: Guarded,
    context: Context,
    operation: Operation,
    resource: AclResource,
    *,
    quiet: bool = False,
) -> Callable[[str], bool]:
    """Returns the check of one operation, for what asks it name by name."""
    return lambda name: is_allowed(node, context, operation, resource, name, quiet=quiet)


def may_in_cluster(
    node: Guarded,
    context: Context,
    operation: Operation,
    resource: AclResource,
    *,
    through: Operation | None = None,
) -> Callable[[str], bool]:
    """Returns the check of an operation that is also allowed by a right on the whole cluster: the
    same operation, or `through`."""
    on_cluster = operation if through is None else through
    if is_allowed(node, context, on_cluster, AclResource.CLUSTER, tentative=True):
        return lambda name: True
    return may(node, context, operation, resource)


def may_any(node: Guarded, context: Context, operation: Operation, resource: AclResource) -> bool:
    """Returns whether the operation is allowed on any resource of this type."""
    authorizer = node.authorizer
    if authorizer is None or context.is_internal:
        return True
    return authorizer.allows_any(context.principal, context.client_host, operation, resource)


def operations(
    node: Guarded, context: Context, resource: AclResource, name: str = CLUSTER_NAME
) -> int:
    """Returns the bit field of the operations that the client may do (KIP-430)."""
    supported = _SUPPORTED[resource]
    if node.authorizer is None or context.is_internal:
        return supported
    return sum(
        1 << operation
        for operation in Operation
        if supported >> operation & 1
        and is_allowed(node, context, operation, resource, name, quiet=True)
    )


def cluster_operations(node: Guarded, context: Context) -> int:
    """Returns the bit field for the cluster, 0 for a client that may not describe it."""
    if not is_allowed(node, context, Operation.DESCRIBE, AclResource.CLUSTER):
        return 0
    return operations(node, context, AclResource.CLUSTER)
