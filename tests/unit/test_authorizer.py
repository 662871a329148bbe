"""The authorizer before its rules are there, its super users, and what it says of a decision."""

from __future__ import annotations

import pytest

from headwater.errors import ApiError
from headwater.security.acls import AclPattern, AclPermission, AclResource, Rule, parse_super_users
from headwater.security.authorizer import NotReady, StandardAuthorizer
from headwater.security.operations import Operation
from headwater.security.principal import Principal
from tests.properties.test_authorizer_model import record

ALICE = Principal("User", "alice")
READ_ORDERS = Rule(
    AclResource.TOPIC,
    "orders",
    AclPattern.PREFIXED,
    "User:alice",
    "*",
    Operation.READ,
    AclPermission.ALLOW,
)


def authorizer(*rules: Rule) -> StandardAuthorizer:
    made = StandardAuthorizer()
    made.follow({b"%d" % at: record(b"%d" % at, rule) for at, rule in enumerate(rules)}, ())
    return made


def test_only_super_users_are_let_in_before_the_rules_are_loaded() -> None:
    early = StandardAuthorizer({"User:node"}, allow_if_no_rule_is_found=True)
    question = ("10.0.0.1", Operation.CLUSTER_ACTION, AclResource.CLUSTER, "kafka-cluster")
    assert early.allows(Principal("User", "node"), *question)
    with pytest.raises(NotReady):
        early.allows(ALICE, *question)
    early.follow({}, ())
    assert early.allows(ALICE, *question)


def test_the_explanation_names_the_rule_that_decides() -> None:
    deny = READ_ORDERS._replace(
        name="orders-secret", pattern=AclPattern.LITERAL, permission=AclPermission.DENY
    )
    guard = authorizer(READ_ORDERS, deny)
    ask = ("10.0.0.1", Operation.READ, AclResource.TOPIC)
    assert guard.explain(ALICE, *ask, "orders-eu").rule == READ_ORDERS
    assert guard.explain(ALICE, *ask, "orders-secret").rule == deny
    assert guard.explain(ALICE, *ask, "payments").rule is None
    assert str(READ_ORDERS) == "ALLOW User:alice to READ TOPIC prefixed orders from host *"


@pytest.mark.parametrize(
    ("allowed", "denied", "expected"),
    [
        ([], [], False),
        ([("orders", AclPattern.LITERAL)], [], True),
        ([("orders", AclPattern.LITERAL)], [("orders", AclPattern.LITERAL)], False),
        ([("orders", AclPattern.LITERAL)], [("or", AclPattern.PREFIXED)], False),
        ([("orders", AclPattern.PREFIXED)], [("orders", AclPattern.LITERAL)], True),
        ([("*", AclPattern.LITERAL)], [("orders", AclPattern.PREFIXED)], True),
        ([("*", AclPattern.LITERAL)], [("*", AclPattern.LITERAL)], False),
    ],
)
def test_a_right_on_any_resource(
    allowed: list[tuple[str, AclPattern]],
    denied: list[tuple[str, AclPattern]],
    expected: bool,
) -> None:
    rules = [READ_ORDERS._replace(name=name, pattern=pattern) for name, pattern in allowed]
    rules += [
        READ_ORDERS._replace(name=name, pattern=pattern, permission=AclPermission.DENY)
        for name, pattern in denied
    ]
    guard = authorizer(*rules)
    assert guard.allows_any(ALICE, "h", Operation.READ, AclResource.TOPIC) is expected
    # Rights that are only implied do not count here, as with Kafka.
    assert not guard.allows_any(ALICE, "h", Operation.DESCRIBE, AclResource.TOPIC) or (
        allowed and allowed[0][0] == "*"
    )


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:CN=a,O=b ; User:c;") == {"User:CN=a,O=b", "User:c"}
    with pytest.raises(ApiError, match="'alice', expected TYPE:NAME"):
        parse_super_users("User:a;alice")


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("0:0:0:0:0:0:0:1", "::1"),  # as Java writes it
        ("::1", "::1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_the_host_of_a_rule_matches_in_any_of_its_forms(written: str, host: str) -> None:
    deny = READ_ORDERS._replace(host=written, permission=AclPermission.DENY)
    guard = authorizer(READ_ORDERS, deny)
    ask = (Operation.READ, AclResource.TOPIC, "orders-eu")
    assert not guard.allows(ALICE, host, *ask)
    assert guard.allows(ALICE, "10.0.0.2", *ask)
    guard.follow({b"0": record(b"0", READ_ORDERS)}, (b"1",))
    assert guard.allows(ALICE, host, *ask)  # the rule is deleted as it was added


def test_only_names_that_resources_can_have_are_remembered() -> None:
    guard = authorizer(READ_ORDERS)
    for name in ("orders", "x" * 249, "x" * 250, "x" * 32_767):
        guard.allows(ALICE, "10.0.0.1", Operation.READ, AclResource.TOPIC, name)
    assert len(guard._remembered) == 2
