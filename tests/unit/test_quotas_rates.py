"""Rates over windows and buckets of tokens: how much gets through, and who waits how long."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import pytest

from headwater.quotas.rates import Bucket, Meter, Windows

KAFKA = Windows(11, 1.0)
SECONDS = 60.0
TAKEN = list[tuple[float, int, float]]  # when, who, how much


def produce(meter: Meter, sizes: Sequence[float], *, until: float = SECONDS) -> TAKEN:
    """Clients that send, wait as they are told, and send again."""
    taken: TAKEN = []
    turns = [(0.0, who) for who in range(len(sizes))]
    while turns[0][0] < until:
        now, who = heapq.heappop(turns)
        wait = meter.take(sizes[who], now)
        taken.append((now, who, sizes[who]))
        heapq.heappush(turns, (now + wait + 0.001, who))
    return taken


def fetch(meter: Meter, sizes: Sequence[float], *, until: float = SECONDS) -> TAKEN:
    """Clients that ask, get at most what they may, or wait as they are told."""
    taken: TAKEN = []
    turns = [(0.0, who) for who in range(len(sizes))]
    while turns[0][0] < until:
        now, who = heapq.heappop(turns)
        wait = meter.wait(now, who)
        if not wait:
            size = min(sizes[who], meter.room(now))
            wait = meter.offer(size, now, who)
            if not wait:
                taken.append((now, who, size))
        heapq.heappush(turns, (now + wait + 0.001, who))
    return taken


def between(taken: TAKEN, start: float, end: float) -> float:
    return sum(size for now, _, size in taken if start <= now < end)


def share(taken: TAKEN, who: int, since: float) -> float:
    return sum(size for now, each, size in taken if each == who and now >= since)


@pytest.mark.parametrize("clients", [fetch, produce])
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("bound", [1e5, 1e6, 5e7])
def test_ten_seconds_bring_what_a_quota_allows(
    clients: Callable[..., TAKEN], count: int, bound: float
) -> None:
    taken = clients(Meter(bound, KAFKA), [bound / 100] * count)
    assert between(taken, 0, 10) == pytest.approx(10 * bound, rel=0.05)
    for start in range(11, 50):
        assert between(taken, start, start + 10) == pytest.approx(10 * bound, rel=0.05)
    assert between(taken, 0, SECONDS) == pytest.approx(SECONDS * bound, rel=0.05)


@pytest.mark.parametrize("clients", [fetch, produce])
def test_those_who_want_the_same_get_the_same(clients: Callable[..., TAKEN]) -> None:
    taken = clients(Meter(1e6, KAFKA), [2e4] * 5)
    shares = [share(taken, who, since=11) for who in range(5)]
    assert max(shares) < 1.05 * min(shares)


def test_a_consumer_that_asks_for_much_keeps_nobody_out() -> None:
    taken = fetch(Meter(1e6, KAFKA), [1e5, 5e7], until=120)
    assert share(taken, 0, since=11) > 25e6  # it takes its turns, and less in each of them


def test_nobody_waits_below_the_bound() -> None:
    """Also not where all of ten seconds comes at once, as in Kafka."""
    meter = Meter(1000, KAFKA)
    assert [meter.take(10_000, 100.0 * turn) for turn in range(5)] == [0.0] * 5
    steady = Meter(1000, KAFKA)
    assert not any(steady.take(99, turn / 10) for turn in range(1000))


def test_the_wait_is_until_the_rate_is_back_at_the_bound() -> None:
    meter = Meter(1000, KAFKA)
    assert meter.take(5_000, 50.0) == 0.0
    assert meter.take(10_000, 51.0) == pytest.approx(14.0)  # 15,000 are paid at 65
    assert meter.wait(60.0) == pytest.approx(5.0)
    assert meter.take(1_000, 65.0) == pytest.approx(1.0)


def test_who_takes_less_for_a_while_may_take_much_at_once_again() -> None:
    meter = Meter(1000, KAFKA)
    assert meter.take(12_000, 0.0) == pytest.approx(12.0)
    assert meter.take(5_000, 40.0) == 0.0


def test_a_fetch_that_is_held_back_counts_nothing() -> None:
    meter = Meter(1000, KAFKA)
    assert meter.offer(10_000, 0.0, "a") == 0.0
    for moment in range(9):
        assert meter.offer(10_000, float(moment), "a") > 0
    assert meter.offer(10_000, 10.0, "a") == 0.0
    assert meter.rate(10.0) == pytest.approx(2000)


def test_who_does_not_come_back_loses_the_turn() -> None:
    meter = Meter(1000, KAFKA)
    meter.take(11_000, 0.0)
    assert meter.offer(100, 0.0, "gone") == pytest.approx(11.0)
    assert meter.offer(100, 0.0, "here") > 11.0
    assert meter.offer(100, 11.3, "here") == 0.0


def test_what_is_carried_counts_with_what_comes_next() -> None:
    meter = Meter(1000, KAFKA)
    meter.carry(15_000)
    assert meter.take(1_000, 0.0) == pytest.approx(16.0)
    assert meter.take(1_000, 16.0) == pytest.approx(1.0)


def test_another_bound_counts_at_once() -> None:
    meter = Meter(1000, KAFKA)
    assert meter.take(20_000, 0.0) == pytest.approx(20.0)
    meter.rebind(10_000, 5.0)
    assert meter.wait(5.0) == pytest.approx(1.5)
    meter.rebind(100, 5.0)
    assert meter.wait(5.0) == pytest.approx(150.0)


def test_a_debt_may_have_a_limit() -> None:
    meter = Meter(0.1, KAFKA, debt_seconds_max=11)
    assert meter.take(50, 0.0) == pytest.approx(11)


def test_one_window_has_no_room_for_a_burst() -> None:
    meter = Meter(1000, Windows(1, 1.0))
    assert meter.take(100, 0.0) == pytest.approx(0.1)


def test_a_meter_is_idle_when_its_windows_have_passed_and_all_is_paid() -> None:
    meter = Meter(1000, KAFKA)
    assert meter.is_idle(0.0)
    meter.take(30_000, 0.0)
    assert not meter.is_idle(12.0)
    assert meter.is_idle(30.0)


def test_a_bucket_gives_a_burst_and_then_its_rate() -> None:
    bucket = Bucket(2.0, KAFKA, 0.0)
    assert bucket.wait(0.0) == 0.0
    assert bucket.take(22, 0.0) == 0.0
    assert bucket.take(10, 0.0) == pytest.approx(5.0)  # the burst may be exceeded once
    assert bucket.wait(1.0) == pytest.approx(4.0)
    assert bucket.wait(5.0) == 0.0
    assert not bucket.is_idle(5.0)
    assert bucket.is_idle(16.0)
    bucket.rebind(4.0, 20.0)
    assert bucket.take(23, 20.0) == pytest.approx(1 / 4)
