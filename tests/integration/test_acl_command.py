"""`headwater acl` against a broker with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.testing import EmbeddedBroker
from tests.support.commands import Command


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedBroker]:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:root;User:ANONYMOUS",
    }
    with EmbeddedBroker(settings) as broker:
        yield broker


@pytest.fixture
def acl(
    guarded: EmbeddedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Command:
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", guarded.bootstrap)
    command = Command("acl", capsys)
    command("delete", "--all", "--yes")
    return command


def test_rules_are_added_listed_and_deleted(acl: Command) -> None:
    assert "added" in acl("add", "alice", "read,describe-configs", "topic:orders-*")
    acl("add", "Group:staff", "write", "topic:orders-eu", "--deny", "--host", "10.0.0.7")
    acl("add", "alice", "cluster-action", "cluster")
    listed = acl.json("list", "topic:orders-eu")
    assert listed == [
        {
            "permission": "allow",
            "principal": "User:alice",
            "operation": "describe-configs",
            "resource": "topic:orders-*",
            "host": "*",
        },
        {
            "permission": "allow",
            "principal": "User:alice",
            "operation": "read",
            "resource": "topic:orders-*",
            "host": "*",
        },
        {
            "permission": "deny",
            "principal": "Group:staff",
            "operation": "write",
            "resource": "topic:orders-eu",
            "host": "10.0.0.7",
        },
    ]
    assert len(acl.json("list")) == 4
    assert len(acl.json("list", "cluster")) == 1
    assert len(acl.json("list", "--permission", "deny")) == 1
    shown = acl("delete", "--resource", "topic:orders-*", "--operation", "read")
    assert "would be deleted" in shown
    assert "--yes does it" in shown
    acl("delete", "--resource", "topic:orders-*", "--operation", "read", "--yes")
    assert len(acl.json("list")) == 3
    acl("delete", "--principal", "alice", "--yes")
    assert [rule["principal"] for rule in acl.json("list")] == ["Group:staff"]
    assert "no such rules" in acl("delete", "--principal", "nobody", "--yes")


def test_a_check_names_the_rule_that_decides(acl: Command) -> None:
    acl("add", "*", "read", "topic:orders-*")
    acl("add", "mallory", "all", "topic:*", "--deny", "--host", "10.0.0.7")
    allowed = acl("check", "mallory", "describe", "topic:orders-eu")
    assert "allowed\nby the rule: ALLOW User:* to READ TOPIC prefixed orders-" in allowed
    denied = acl.json("check", "mallory", "read", "topic:orders-eu", "--host", "10.0.0.7", code=1)
    assert denied["allowed"] is False
    assert denied["rule"] == "DENY User:mallory to ALL TOPIC * from host 10.0.0.7"
    assert "no rule allows it" in acl("check", "alice", "write", "topic:orders-eu", code=1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "alice", "fly", "topic:t"), "fly: expected one of all, read"),
        (("add", "alice", "read", "lake:t"), "lake:t: expected KIND:NAME"),
        (("add", "alice", "read", "topic"), "topic: expected KIND:NAME"),
        (("add", ":alice", "read", "topic:t"), ":alice: expected a user, or TYPE:NAME"),
        (("add", "alice", "read", "cluster:other"), "there is one cluster"),
        (("check", "alice", "read", "topic:t*"), "expected one name, not a prefix"),
        (("delete",), "expected what to delete"),
    ],
)
def test_what_cannot_be_read_is_refused(
    acl: Command, arguments: tuple[str, ...], said: str
) -> None:
    assert said in acl(*arguments, code=2)
