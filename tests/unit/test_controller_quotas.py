"""Changing quotas: the records, the refusals, and what a replayed log says."""

from __future__ import annotations

import pytest

from headwater.controller.quotas import Outcomes, QuotaChange
from headwater.errors import ErrorCode
from headwater.metadata import Replay
from headwater.metadata.snapshot import image_records
from headwater.protocol import Message
from headwater.quotas.entities import Entity, entity_of
from tests.support.controllers import Bench

ALICE: Entity = (("user", "alice"),)
PAIR: Entity = (("client-id", None), ("user", "alice"))


def alter(bench: Bench, *changes: QuotaChange, validate_only: bool = False) -> Outcomes:
    machine = bench.machine
    return bench.do(machine.decide_alter_client_quotas(changes, validate_only=validate_only))


def change(entity: Entity, *values: tuple[str, float | None]) -> QuotaChange:
    return QuotaChange(entity, values)


def test_quotas_are_set_changed_and_removed() -> None:
    bench = Bench()
    both = (("producer_byte_rate", 1e6), ("request_percentage", 12.5))
    assert alter(bench, change(ALICE, *both), change(PAIR, ("consumer_byte_rate", 5.0))) == {
        ALICE: None,
        PAIR: None,
    }
    assert bench.machine.image.client_quotas == {
        ALICE: dict(both),
        PAIR: {"consumer_byte_rate": 5.0},
    }
    alter(bench, change(ALICE, ("producer_byte_rate", 2e6), ("request_percentage", None)))
    alter(bench, change(PAIR, ("consumer_byte_rate", None)))
    assert bench.machine.image.client_quotas == {ALICE: {"producer_byte_rate": 2e6}}


def test_what_changes_nothing_writes_nothing() -> None:
    bench = Bench()
    alter(bench, change(ALICE, ("producer_byte_rate", 1.0)))
    before = bench.offset
    alter(bench, change(ALICE, ("producer_byte_rate", 1.0), ("consumer_byte_rate", None)))
    alter(bench, change(ALICE, ("no_such_rate", None)))
    alter(bench, change(ALICE))
    alter(bench, change(ALICE, ("producer_byte_rate", 9.0)), validate_only=True)
    assert bench.offset == before


@pytest.mark.parametrize(
    "refused",
    [
        change((), ("producer_byte_rate", 1.0)),
        change((("planet", "x"),), ("producer_byte_rate", 1.0)),
        change((("user", ""),), ("producer_byte_rate", 1.0)),
        change((("ip", "10.0.0.1"), ("user", "bob")), ("connection_creation_rate", 1.0)),
        change((("ip", "nowhere"),), ("connection_creation_rate", 1.0)),
        change((("ip", "10.0.0.1"),), ("producer_byte_rate", 1.0)),
        change((("client-id", "app"),), ("connection_creation_rate", 1.0)),
        change((("user", "bob"),), ("no_such_rate", 1.0)),
        change((("user", "bob"),), ("producer_byte_rate", 0.0)),
        change((("user", "bob"),), ("producer_byte_rate", 1.5)),
        change((("user", "bob"),), ("producer_byte_rate", float("nan"))),
        change((("user", "bob"),), ("producer_byte_rate", 1.0), ("no_such_rate", 1.0)),
        change((("user", "bob"),), ("producer_byte_rate", 1.0), ("producer_byte_rate", 2.0)),
    ],
    ids=str,
)
def test_a_refused_change_does_not_affect_the_others(refused: QuotaChange) -> None:
    bench = Bench()
    outcomes = alter(bench, refused, change(ALICE, ("producer_byte_rate", 1.0)))
    refusal = outcomes[refused.entity]
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert refusal.message
    assert outcomes[ALICE] is None
    assert bench.machine.image.client_quotas == {ALICE: {"producer_byte_rate": 1.0}}


def test_of_an_entity_that_is_named_twice_the_first_change_is_made() -> None:
    bench = Bench()
    same = entity_of((("user", "alice"), ("client-id", "app")))
    outcomes = alter(
        bench,
        change(same, ("producer_byte_rate", 1.0)),
        change(same, ("producer_byte_rate", 2.0)),
    )
    refusal = outcomes[same]
    assert refusal is not None
    assert refusal.code is ErrorCode.INVALID_REQUEST
    assert bench.machine.image.client_quotas == {same: {"producer_byte_rate": 1.0}}


def test_a_type_that_is_named_twice_counts_once() -> None:
    assert entity_of((("user", "alice"), ("user", "bob"))) == (("user", "bob"),)


def test_a_snapshot_has_the_same_quotas() -> None:
    bench = Bench()
    alter(
        bench, change(ALICE, ("producer_byte_rate", 1e6)), change(PAIR, ("request_percentage", 1.5))
    )
    records: list[Message] = list(image_records(bench.machine.image))
    replay = Replay()
    replay.apply(records)
    assert replay.image.client_quotas == bench.machine.image.client_quotas
