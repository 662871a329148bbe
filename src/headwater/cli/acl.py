"""`headwater acl`: access control rules, and which of them decides a question."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import add_output_option, print_json, print_outcome, print_table
from headwater.cli.parser import add_actions
from headwater.security.acls import CLUSTER_NAME, AclPattern, AclPermission, AclResource, Rule
from headwater.security.authorizer import StandardAuthorizer
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.client.admin.acls import Acl, AclFilter

_EXAMPLES = """\
examples:
  headwater acl add alice read,write topic:orders
  headwater acl add alice read group:billing
  headwater acl add alice read 'topic:orders-*'          all topics that begin with orders-
  headwater acl add '*' read topic:news                  everybody
  headwater acl add mallory all 'topic:*' --deny --host 10.0.0.7
  headwater acl list                                     all rules
  headwater acl list topic:orders                        the rules that apply to this topic
  headwater acl check alice read topic:orders            whether this is allowed, and by which rule
  headwater acl delete --principal alice --yes

PRINCIPAL is a user, or TYPE:NAME. RESOURCE is cluster, or topic:NAME, group:NAME,
transactional-id:NAME, delegation-token:NAME, user:NAME; a name that ends in * is a prefix.
OPERATION is all, read, write, create, delete, alter, describe, cluster-action, describe-configs,
alter-configs, idempotent-write, create-tokens, describe-tokens or two-phase-commit.
"""
_HEADINGS = ("permission", "principal", "operation", "resource", "host")


class Target(NamedTuple):
    """A resource as it is typed."""

    kind: AclResource
    name: str | None  # None: every name
    pattern: AclPattern


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("add", "allow or deny operations on a resource", _define_add),
            ("list", "list the rules", _define_list),
            ("delete", "delete rules", _define_delete),
            ("check", "show whether something is allowed, and why", _define_check),
        ),
        examples=_EXAMPLES,
    )


def _define_add(action: ArgumentParser) -> None:
    action.add_argument("principal", metavar="PRINCIPAL", type=read_principal)
    action.add_argument("operations", metavar="OPERATION[,…]", type=read_operations)
    action.add_argument("resource", metavar="RESOURCE", type=read_target)
    action.add_argument(
        "--deny", action="store_true", help="deny instead of allow; deny rules take precedence"
    )
    action.add_argument(
        "--host", default="*", help="only from this address (default: *, from everywhere)"
    )
    _finish(action)
    action.set_defaults(run=_add)


def _define_list(action: ArgumentParser) -> None:
    action.add_argument(
        "resource",
        metavar="RESOURCE",
        type=read_target,
        nargs="?",
        help="only rules that apply to it (default: all)",
    )
    _add_filters(action)
    _finish(action)
    action.set_defaults(run=_list)


def _define_delete(action: ArgumentParser) -> None:
    action.add_argument(
        "--resource",
        metavar="RESOURCE",
        type=read_target,
        help="only rules for exactly this; a name that ends in * means the rule for that prefix",
    )
    _add_filters(action)
    action.add_argument("--all", action="store_true", help="every rule of the cluster")
    action.add_argument(
        "--yes",
        "--execute",
        action="store_true",
        help="do it; without this only what would be deleted is shown",
    )
    _finish(action)
    action.set_defaults(run=_delete)


def _define_check(action: ArgumentParser) -> None:
    action.add_argument("principal", metavar="PRINCIPAL", type=read_principal)
    action.add_argument("operation", metavar="OPERATION", type=read_operation)
    action.add_argument("resource", metavar="RESOURCE", type=read_target)
    action.add_argument("--host", default="127.0.0.1", help="from this address")
    _finish(action)
    action.set_defaults(run=_check)


def _add_filters(action: ArgumentParser) -> None:
    action.add_argument("--principal", metavar="PRINCIPAL", type=read_principal)
    action.add_argument("--operation", metavar="OPERATION", type=read_operation)
    action.add_argument("--host", help="only rules for this address")
    action.add_argument("--permission", choices=("allow", "deny"))


def _finish(action: ArgumentParser) -> None:
    add_cluster_options(action)
    add_output_option(action)


# Arguments


def read_principal(text: str) -> str:
    kind, colon, name = text.partition(":")
    if not colon:
        kind, name = "User", text
    if not kind or not name:
        raise ArgumentTypeError(f"{text}: expected a user, or TYPE:NAME")
    return f"{kind}:{name}"


def read_operation(text: str) -> Operation:
    name = text.strip().upper().replace("-", "_")
    if name not in Operation.__members__ or Operation[name] <= Operation.ANY:
        expected = ", ".join(_typed(each.name) for each in Operation if each > Operation.ANY)
        raise ArgumentTypeError(f"{text}: expected one of {expected}")
    return Operation[name]


def read_operations(text: str) -> list[Operation]:
    return [read_operation(each) for each in text.split(",")]


def read_target(text: str) -> Target:
    typed, colon, name = text.partition(":")
    kind = typed.upper().replace("-", "_")
    if kind not in AclResource.__members__ or AclResource[kind] <= AclResource.ANY:
        expected = ", ".join(_typed(each.name) for each in AclResource if each > AclResource.ANY)
        raise ArgumentTypeError(f"{text}: expected KIND:NAME, where KIND is one of {expected}")
    found = AclResource[kind]
    if found is AclResource.CLUSTER:
        if name not in ("", CLUSTER_NAME):
            raise ArgumentTypeError(f"{text}: there is one cluster; expected cluster")
        return Target(found, CLUSTER_NAME, AclPattern.LITERAL)
    if not colon:
        return Target(found, None, AclPattern.ANY)
    if not name:
        raise ArgumentTypeError(f"{text}: expected a name behind the colon")
    if name.endswith("*") and name != "*":
        return Target(found, name[:-1], AclPattern.PREFIXED)
    return Target(found, name, AclPattern.LITERAL)


def _typed(name: str) -> str:
    return name.lower().replace("_", "-")


def _named(target: Target) -> str:
    if target.name is None:
        raise CommandError(
            f"{_typed(target.kind.name)}: expected KIND:NAME, * for every name", code=USAGE
        )
    return target.name


# Actions


def _add(options: Namespace) -> int:
    from headwater.client.admin.acls import Acl

    target: Target = options.resource
    rules = [
        Acl(
            resource=target.kind,
            name=_named(target),
            principal=options.principal,
            operation=operation,
            permission=AclPermission.DENY if options.deny else AclPermission.ALLOW,
            host=options.host,
            pattern=target.pattern,
        )
        for operation in options.operations
    ]
    with open_admin(options) as admin:
        results = admin.create_acls(rules)
    if options.output == "json":
        print_json(
            [{**_fields(rule), "error": error and str(error)} for rule, error in results.items()]
        )
    else:
        for rule, error in results.items():
            outcome = "added" if error is None else f"not added: {error}"
            print_outcome(f"{_line(rule)}: {outcome}", is_done=error is None)
    return FAILED if any(results.values()) else 0


def _list(options: Namespace) -> int:
    with open_admin(options) as admin:
        found = admin.describe_acls(_filter(options, exactly=False))
    if not found and options.output == "text":
        print("no rules")
        return 0
    print_table(
        _HEADINGS,
        [tuple(_fields(rule).values()) for rule in sorted(found, key=_order)],
        output=options.output,
    )
    return 0


def _delete(options: Namespace) -> int:
    wanted = _filter(options, exactly=True)
    given = (options.resource, options.principal, options.operation, options.host)
    if not any(given) and options.permission is None and not options.all:
        raise CommandError(
            "expected what to delete, for instance --principal; or --all", code=USAGE
        )
    with open_admin(options) as admin:
        if options.yes:
            found = admin.delete_acls([wanted])[wanted]
            if not isinstance(found, list):
                raise CommandError(str(found))
        else:
            found = admin.describe_acls(wanted)
    if options.output == "json":
        print_json([_fields(rule) for rule in sorted(found, key=_order)])
        return 0
    for rule in sorted(found, key=_order):
        print(f"{_line(rule)}: {'deleted' if options.yes else 'would be deleted'}")
    if not found:
        print("no such rules")
    elif not options.yes:
        print("nothing was deleted; --yes does it", file=sys.stderr)
    return 0


def _check(options: Namespace) -> int:
    from headwater.security.principal import Principal  # with the protocol: not for the help

    target: Target = options.resource
    name = _named(target)
    if target.pattern is AclPattern.PREFIXED:
        raise CommandError(f"{name}*: expected one name, not a prefix", code=USAGE)
    with open_admin(options) as admin:
        rules = admin.describe_acls()
    kind, _, who = options.principal.partition(":")
    verdict = StandardAuthorizer.of(_rules(rules)).explain(
        Principal(kind, who), options.host, options.operation, target.kind, name
    )
    rule = None if verdict.rule is None else str(verdict.rule)
    if options.output == "json":
        print_json({"allowed": verdict.allowed, "rule": rule})
        return 0 if verdict.allowed else FAILED
    print("allowed" if verdict.allowed else "denied")
    if rule is not None:
        print(f"by the rule: {rule}")
    else:
        print(
            f"no rule allows it; the settings of the nodes still do if {options.principal} is in "
            "super.users, or, for a resource without any rule, if allow.everyone.if.no.acl.found "
            "is true"
        )
    return 0 if verdict.allowed else FAILED


# Rules


def _filter(options: Namespace, *, exactly: bool) -> AclFilter:
    from headwater.client.admin.acls import AclFilter

    target: Target | None = options.resource
    kind, name, pattern = target or (AclResource.ANY, None, AclPattern.ANY)
    if not exactly and pattern is AclPattern.LITERAL:
        pattern = AclPattern.MATCH
    permission = AclPermission.ANY
    if options.permission is not None:
        permission = AclPermission[options.permission.upper()]
    return AclFilter(
        resource=kind,
        name=name,
        pattern=pattern,
        principal=options.principal,
        operation=options.operation or Operation.ANY,
        permission=permission,
        host=options.host,
    )


def _rules(acls: Iterable[Acl]) -> list[Rule]:
    return [
        Rule(
            acl.resource,
            acl.name,
            acl.pattern,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission,
        )
        for acl in acls
    ]


def _fields(acl: Acl) -> dict[str, str]:
    star = "*" if acl.pattern is AclPattern.PREFIXED else ""
    kind = _typed(acl.resource.name)
    resource = kind if acl.resource is AclResource.CLUSTER else f"{kind}:{acl.name}{star}"
    return {
        "permission": _typed(acl.permission.name),
        "principal": acl.principal,
        "operation": _typed(acl.operation.name),
        "resource": resource,
        "host": acl.host,
    }


def _line(acl: Acl) -> str:
    return " ".join(_fields(acl).values())


def _order(acl: Acl) -> tuple[str, ...]:
    fields = _fields(acl)
    return fields["resource"], fields["principal"], fields["permission"], fields["operation"]
