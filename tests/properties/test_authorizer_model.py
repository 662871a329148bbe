"""The authorizer against a plain reading of the rules, over rules that come and go."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from headwater.protocol.records.metadata_security import AccessControlEntryRecord
from headwater.security.acls import AclPattern, AclPermission, AclResource, Rule
from headwater.security.authorizer import StandardAuthorizer
from headwater.security.operations import Operation
from headwater.security.principal import Principal

SUPER_USER = Principal("User", "root")
PRINCIPALS = (Principal("User", "a"), Principal("User", "b", is_token=True), SUPER_USER)
HOSTS = ("10.0.0.1", "10.0.0.2")
NAMES = ("a", "ab", "abc", "b", "*")
RESOURCES = (AclResource.TOPIC, AclResource.GROUP)
OPERATIONS = (
    Operation.READ,
    Operation.DESCRIBE,
    Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALL,
)

IMPLIED = {
    Operation.DESCRIBE: {
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    },
    Operation.DESCRIBE_CONFIGS: {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS},
}

rules = st.builds(
    Rule,
    st.sampled_from(RESOURCES),
    st.sampled_from(NAMES),
    st.sampled_from((AclPattern.LITERAL, AclPattern.PREFIXED)),
    st.sampled_from(("User:a", "User:b", "User:*", "Group:a")),
    st.sampled_from(("*", *HOSTS)),
    st.sampled_from(OPERATIONS),
    st.sampled_from((AclPermission.ALLOW, AclPermission.ALLOW, AclPermission.DENY)),
)
Question = tuple[Principal, str, Operation, AclResource, str]
QUESTIONS: tuple[Question, ...] = tuple(product(PRINCIPALS, HOSTS, OPERATIONS, RESOURCES, NAMES))
questions = st.sampled_from(QUESTIONS)


def record(rule_id: bytes, rule: Rule) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=rule_id,
        resource_type=rule.resource,
        resource_name=rule.name,
        pattern_type=rule.pattern,
        principal=rule.principal,
        host=rule.host,
        operation=rule.operation,
        permission_type=rule.permission,
    )


def is_about(rule: Rule, resource: AclResource, name: str) -> bool:
    if rule.resource != resource:
        return False
    if rule.pattern == AclPattern.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, "*")


def concerns(rule: Rule, principal: Principal, host: str) -> bool:
    return rule.principal in (str(principal), "User:*") and rule.host in (host, "*")


def model_allows(all_rules: Iterable[Rule], question: Question, *, if_none: bool) -> bool:
    principal, host, operation, resource, name = question
    if principal == SUPER_USER:
        return True
    about = [rule for rule in all_rules if is_about(rule, resource, name)]
    if not about:
        return if_none
    allowed = False
    for rule in about:
        if not concerns(rule, principal, host):
            continue
        exactly = rule.operation in (operation, Operation.ALL)
        if rule.permission == AclPermission.DENY:
            if exactly:
                return False
        else:
            allowed = allowed or exactly or rule.operation in IMPLIED.get(operation, set())
    return allowed


@given(
    st.lists(st.lists(rules, max_size=12), min_size=1, max_size=3),
    st.booleans(),
)
def test_decisions_are_those_of_the_plain_rules(
    generations: list[list[Rule]], if_none: bool
) -> None:
    authorizer = StandardAuthorizer({"User:root"}, allow_if_no_rule_is_found=if_none)
    known: dict[bytes, AccessControlEntryRecord] = {}
    for number, generation in enumerate(generations):
        # Every other rule of the generation before stays.
        kept = {key: each for at, (key, each) in enumerate(known.items()) if at % 2}
        new = {
            b"%d-%d" % (number, at): record(b"%d-%d" % (number, at), rule)
            for at, rule in enumerate(generation)
        }
        changed = set(known) ^ set(kept) | set(new)
        known = kept | new
        authorizer.follow(known, changed)
        live = [Rule.from_record(each) for each in known.values()]
        for question in QUESTIONS:
            expected = model_allows(live, question, if_none=if_none)
            assert authorizer.allows(*question) is expected
            assert authorizer.allows(*question) is expected, "as remembered"
            verdict = authorizer.explain(*question)
            assert verdict.allowed is expected
            if verdict.rule is not None:
                assert is_about(verdict.rule, question[3], question[4])
                assert (verdict.rule.permission == AclPermission.ALLOW) is expected


@given(st.lists(rules, max_size=10), questions)
def test_what_is_allowed_by_name_is_allowed_on_some_resource(
    all_rules: list[Rule], question: Question
) -> None:
    """An explicit right on a name that nothing denies is a right on some resource of the type."""
    principal, host, operation, resource, _ = question
    authorizer = StandardAuthorizer({"User:root"})
    records = {b"%d" % at: record(b"%d" % at, rule) for at, rule in enumerate(all_rules)}
    authorizer.follow(records, ())
    denied = [r for r in all_rules if r.permission == AclPermission.DENY]
    granted = any(
        rule.resource == resource
        and rule.permission == AclPermission.ALLOW
        and concerns(rule, principal, host)
        and rule.operation in (operation, Operation.ALL)
        for rule in all_rules
    )
    if granted and not denied:
        assert authorizer.allows_any(principal, host, operation, resource)
    if authorizer.allows_any(principal, host, operation, resource) and principal != SUPER_USER:
        assert granted or authorizer.allows(principal, host, operation, resource, "hardcode")
