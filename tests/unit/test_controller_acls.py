"""Creating and deleting access control rules."""

from __future__ import annotations

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Replay
from headwater.metadata.snapshot import image_records
from headwater.security.acls import AclPattern, AclPermission, AclResource, Rule, RuleFilter
from headwater.security.operations import Operation
from tests.support.controllers import Bench

READ = Rule(
    AclResource.TOPIC,
    "orders",
    AclPattern.LITERAL,
    "User:alice",
    "*",
    Operation.READ,
    AclPermission.ALLOW,
)
WRITE = READ._replace(operation=Operation.WRITE)
EVERY = RuleFilter(
    AclResource.ANY, None, AclPattern.ANY, None, None, Operation.ANY, AclPermission.ANY
)


def rules(bench: Bench) -> list[Rule]:
    return [Rule.from_record(record) for record in bench.machine.image.acls.values()]


def test_a_rule_is_created_once() -> None:
    bench = Bench()
    assert bench.do(bench.machine.decide_create_acls([READ, WRITE, READ])) == [None] * 3
    assert bench.do(bench.machine.decide_create_acls([WRITE])) == [None]
    assert rules(bench) == [READ, WRITE]


@pytest.mark.parametrize(
    "changes",
    [
        {"resource": AclResource.ANY},
        {"resource": 99},
        {"pattern": AclPattern.MATCH},
        {"operation": Operation.ANY},
        {"operation": 99},
        {"permission": AclPermission.ANY},
        {"name": ""},
        {"resource": AclResource.CLUSTER},
        {"principal": "alice"},
    ],
    ids=str,
)
def test_an_invalid_rule_is_refused_and_the_others_are_created(changes: dict[str, object]) -> None:
    bench = Bench()
    invalid = READ._replace(**changes)  # type: ignore[arg-type]
    refusal, created = bench.do(bench.machine.decide_create_acls([invalid, WRITE]))
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert created is None
    assert rules(bench) == [WRITE]


def test_more_rules_than_a_batch_has_records_are_refused_together() -> None:
    bench = Bench()
    many = [READ._replace(name=f"topic-{number}") for number in range(10_001)]
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_create_acls(many)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_each_filter_tells_what_it_matches_and_a_rule_is_deleted_once() -> None:
    bench = Bench()
    bench.do(bench.machine.decide_create_acls([READ, WRITE]))
    reads = EVERY._replace(operation=Operation.READ)
    unknown = EVERY._replace(permission=AclPermission.UNKNOWN)
    first, second, third = bench.do(bench.machine.decide_delete_acls([reads, EVERY, unknown]))
    assert first == [READ]
    assert second == [READ, WRITE]
    assert isinstance(third, ApiError)
    assert third.code is ErrorCode.INVALID_REQUEST
    assert rules(bench) == []


@pytest.mark.parametrize(
    ("pattern", "name", "found"),
    [
        (AclPattern.MATCH, "orders-eu", {"orders-eu", "orders", "*"}),
        (AclPattern.ANY, "orders", {"orders"}),
        (AclPattern.PREFIXED, "orders", {"orders"}),
        (AclPattern.LITERAL, "orders", set()),
        (AclPattern.LITERAL, None, {"orders-eu", "orders-us", "*"}),
    ],
)
def test_a_filter_by_name_follows_its_pattern(
    pattern: AclPattern, name: str | None, found: set[str]
) -> None:
    all_rules = [READ._replace(name=each) for each in ("orders-eu", "orders-us", "*")]
    all_rules.append(READ._replace(name="orders", pattern=AclPattern.PREFIXED))
    wanted = EVERY._replace(pattern=pattern, name=name)
    assert {rule.name for rule in all_rules if wanted.matches(rule)} == found


def test_rules_are_in_a_snapshot() -> None:
    bench = Bench()
    bench.do(bench.machine.decide_create_acls([READ, WRITE]))
    replay = Replay()
    replay.apply(list(image_records(bench.machine.image)))
    assert replay.image.acls == bench.machine.image.acls
