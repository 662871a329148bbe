"""The rate at which a user gets producer ids."""

from __future__ import annotations

from headwater.broker.producer_id_pace import BURST_SECONDS, WAIT_SECONDS_MAX, ProducerIdPace
from headwater.security.principal import Principal

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
RATE = 5
AT_ONCE = int(RATE * BURST_SECONDS)


def delays(pace: ProducerIdPace, count: int, *, now: float = 100.0) -> list[float | None]:
    found = (pace.delay(ALICE, "h", now, per_second=RATE) for _ in range(count))
    return [each if each is None else round(each, 3) for each in found]


def test_some_ids_come_at_once_and_the_next_ones_in_turn() -> None:
    pace = ProducerIdPace()
    assert delays(pace, AT_ONCE) == [0.0] * AT_ONCE
    first, second = delays(pace, 2)
    assert first is not None
    assert second is not None
    assert 0 < first < second <= 2 / RATE


def test_nobody_waits_for_long_and_who_was_refused_has_used_nothing() -> None:
    pace = ProducerIdPace()
    waiting = AT_ONCE + int(RATE * WAIT_SECONDS_MAX)
    assert delays(pace, 2 * waiting).count(None) >= waiting - 1
    # Had the refused ones counted, it would be full much later.
    later = 100.0 + BURST_SECONDS + WAIT_SECONDS_MAX + 1 / RATE
    assert delays(pace, AT_ONCE, now=later) == [0.0] * AT_ONCE


def test_users_and_addresses_do_not_wait_for_each_other() -> None:
    pace = ProducerIdPace()
    delays(pace, AT_ONCE + 3)
    assert pace.delay(BOB, "h", 100.0, per_second=RATE) == 0.0
    assert pace.delay(ALICE, "other", 100.0, per_second=RATE) == 0.0


def test_zero_is_no_limit() -> None:
    pace = ProducerIdPace()
    assert {pace.delay(ALICE, "h", 0.0, per_second=0) for _ in range(1000)} == {0.0}


def test_the_number_of_users_is_bounded() -> None:
    pace = ProducerIdPace()
    delays(pace, AT_ONCE)
    for number in range(25_000):
        pace.delay(Principal("User", str(number)), "h", 100.0, per_second=RATE)
    assert len(pace._full_at) <= 10_000
    assert (Principal("User", "24999"), "h") in pace._full_at
