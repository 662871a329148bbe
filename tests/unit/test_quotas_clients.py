"""The choice of a client's quota, and the lifetime and sharing of meters."""

from __future__ import annotations

from itertools import product

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.quotas.clients import METERS_MAX, ClientQuotas, Subject, find_quota
from headwater.quotas.entities import (
    CONNECTION,
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    canonical_ip,
    check_value,
    entity_of,
    keys_of,
)
from headwater.quotas.rates import Windows

KAFKA = Windows(11, 1.0)

# Kafka's documentation, the most specific first.
LEVELS: list[dict[str, str | None]] = [
    {"user": "alice", "client-id": "app"},
    {"user": "alice", "client-id": None},
    {"user": "alice"},
    {"user": None, "client-id": "app"},
    {"user": None, "client-id": None},
    {"user": None},
    {"client-id": "app"},
    {"client-id": None},
]


def entity(**names: str | None) -> Entity:
    return entity_of((kind.replace("_", "-"), name) for kind, name in names.items())


def machine(**quotas: dict[Entity, float]) -> ClientQuotas:
    """Quotas by their keys."""
    every: dict[Entity, dict[str, float]] = {}
    for key, values in quotas.items():
        for who, value in values.items():
            every.setdefault(who, {})[key] = value
    made = ClientQuotas(KAFKA, KAFKA)
    made.follow(every)
    return made


def test_the_most_specific_of_eight_levels_applies() -> None:
    """All sets of levels, against their order."""
    for present in product((False, True), repeat=len(LEVELS)):
        quotas = {
            entity_of(names.items()): {PRODUCE: float(level)}
            for level, (names, is_there) in enumerate(zip(LEVELS, present, strict=True))
            if is_there
        }
        found = find_quota(quotas, PRODUCE, "alice", "app")
        assert (found and found.value) == (present.index(True) if any(present) else None)


def test_each_kind_of_quota_is_looked_for_by_itself() -> None:
    quotas = {
        entity(user="alice"): {FETCH: 1.0},
        entity(user=None): {PRODUCE: 2.0},
        entity(client_id="app"): {REQUEST: 3.0},
    }
    assert [find_quota(quotas, key, "alice", "app") for key in (FETCH, PRODUCE, REQUEST)] == [
        (1.0, Subject("alice", None)),
        (2.0, Subject("alice", None)),
        (3.0, Subject(None, "app")),
    ]
    assert find_quota(quotas, MUTATION, "alice", "app") is None


@pytest.mark.parametrize(
    ("who", "same", "other"),
    [
        (entity(user="alice"), [("alice", "one"), ("alice", "two")], None),
        (entity(user=None), [("alice", "one"), ("alice", "two")], ("bob", "one")),
        (entity(client_id="app"), [("alice", "app"), ("bob", "app")], None),
        (entity(client_id=None), [("alice", "app"), ("bob", "app")], ("alice", "web")),
        (
            entity(user="alice", client_id=None),
            [("alice", "app"), ("alice", "app")],
            ("alice", "web"),
        ),
        (entity(user=None, client_id=None), [("bob", ""), ("bob", "")], ("bob", "web")),
    ],
    ids=str,
)
def test_who_shares_a_quota(
    who: Entity, same: list[tuple[str, str]], other: tuple[str, str] | None
) -> None:
    quotas = machine(producer_byte_rate={who: 1000.0})
    one, two = (quotas.limits_of(*each, 0.0) for each in same)
    assert one is not None
    assert two is not None
    assert one.produce is two.produce
    assert one[1:] == (None, None, None)
    if other is not None:
        third = quotas.limits_of(*other, 0.0)
        assert third is not None
        assert third.produce is not one.produce


def test_nobody_is_limited_without_a_quota() -> None:
    quotas = machine()
    assert not quotas.is_on
    assert not quotas.limits_addresses
    assert machine(producer_byte_rate={entity(user="bob"): 1.0}).limits_of("alice", "", 0) is None


def test_what_was_taken_counts_on_when_a_quota_changes() -> None:
    who = entity(user="alice")
    quotas = machine(producer_byte_rate={who: 1000.0})
    limits = quotas.limits_of("alice", "app", 0.0)
    assert limits is not None
    assert limits.produce is not None
    assert limits.produce.take(20_000, 0.0) == pytest.approx(20.0)
    quotas.follow({who: {PRODUCE: 2000.0}})
    now = quotas.limits_of("alice", "app", 0.0)
    assert now is not None
    assert now.produce is not None
    assert now.produce.wait(0.0) == pytest.approx(10.0)
    quotas.follow({})
    assert not quotas.is_on
    assert quotas.limits_of("alice", "app", 0.0) is None


def test_a_percentage_is_a_share_of_the_time() -> None:
    limits = machine(request_percentage={entity(user="alice"): 10.0}).limits_of("alice", "", 0.0)
    assert limits is not None
    assert limits.request is not None
    assert limits.request.take(2.0, 0.0) == pytest.approx(11.0)  # as long as all windows


def test_meters_are_bounded_and_dropped_when_they_are_idle() -> None:
    quotas = machine(producer_byte_rate={entity(client_id=None): 1000.0})

    def meters() -> int:
        return sum(1 for _ in quotas.used(0.0))

    for number in range(METERS_MAX + 500):
        limits = quotas.limits_of("ANONYMOUS", f"client-{number}", 0.0)
        assert limits is not None
        assert limits.produce is not None
        limits.produce.take(1.0, 0.0)
    assert meters() == METERS_MAX
    assert quotas.limits_of("ANONYMOUS", "another", 60.0) is not None
    assert meters() == 1


def test_a_dropped_meter_is_not_used_by_those_who_knew_it() -> None:
    """Two clients of one user share a meter also after it was dropped."""
    quotas = machine(producer_byte_rate={entity(user="alice"): 1000.0})
    quotas.limits_of("alice", "one", 0.0)
    quotas.expire(60.0)
    one, two = (quotas.limits_of("alice", name, 60.0) for name in ("one", "two"))
    assert one is not None
    assert two is not None
    assert one.produce is two.produce


def test_an_address_that_connects_too_often_is_held_off() -> None:
    quotas = machine(connection_creation_rate={entity(ip="10.0.0.1"): 2.0, entity(ip=None): 1.0})
    assert quotas.limits_addresses
    assert not quotas.is_on  # requests cost nothing for it
    assert [quotas.admit("10.0.0.1", 0.0) > 0 for _ in range(25)] == [False] * 20 + [True] * 5
    assert quotas.admit("::ffff:10.0.0.1", 0.0) > 0
    assert [quotas.admit("10.0.0.2", 0.0) > 0 for _ in range(15)] == [False] * 10 + [True] * 5
    admitted = sum(not quotas.admit("10.0.0.1", 11 + turn / 100) for turn in range(1000))
    assert admitted == pytest.approx(20, abs=3)
    assert quotas.throttled[CONNECTION].count == 5 + 5 + 1 + 1000 - admitted
    assert quotas.admit("10.0.0.1", 12.0) <= 1.0


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ({"user": "a"}, (PRODUCE, FETCH, REQUEST, MUTATION)),
        ({"user": None, "client-id": "b"}, (PRODUCE, FETCH, REQUEST, MUTATION)),
        ({"client-id": None}, (PRODUCE, FETCH, REQUEST, MUTATION)),
        ({"ip": "10.0.0.1"}, (CONNECTION,)),
        ({"ip": None}, (CONNECTION,)),
        ({"ip": "::1"}, (CONNECTION,)),
    ],
    ids=str,  # of tuples: sets are printed in another order in each process of pytest-xdist
)
def test_the_quotas_of_an_entity(names: dict[str, str | None], keys: tuple[str, ...]) -> None:
    assert keys_of(entity_of(names.items())).keys() == set(keys)


@pytest.mark.parametrize(
    "names",
    [{}, {"planet": "x"}, {"user": ""}, {"ip": "a"}, {"ip": "10.0"}, {"ip": "::1", "user": "a"}],
    ids=str,
)
def test_an_entity_that_can_have_no_quota(names: dict[str, str | None]) -> None:
    with pytest.raises(ApiError) as refused:
        keys_of(entity_of(names.items()))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1.5, 1e30])
def test_values_that_are_refused(value: float) -> None:
    with pytest.raises(ApiError):
        check_value(PRODUCE, value, keys_of(entity(user="a"))[PRODUCE])


@pytest.mark.parametrize("value", [1.0, 1.0000001, 1e15, 2.0**53])
def test_values_that_are_whole_enough(value: float) -> None:
    check_value(PRODUCE, value, keys_of(entity(user="a"))[PRODUCE])
    check_value(REQUEST, value / 3, keys_of(entity(user="a"))[REQUEST])


def test_one_form_for_each_address() -> None:
    assert canonical_ip("0:0:0:0:0:0:0:1") == canonical_ip("::1") == "::1"
    assert canonical_ip("::ffff:10.0.0.1") == canonical_ip("10.0.0.1") == "10.0.0.1"
    assert canonical_ip("fe80::1%eth0") == "fe80::1"
    assert canonical_ip("localhost") is None
