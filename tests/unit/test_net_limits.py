"""Limits on connections: of all listeners, of one, and how quickly they come."""

from __future__ import annotations

import pytest

from headwater.net.pace import Pace


def test_a_burst_of_one_second_may_come_at_once() -> None:
    pace = Pace()
    assert [pace.count(10.0, 5) for _ in range(4)] == [0, 0, 0, 0]
    assert pace.count(10.0, 5) == pytest.approx(0.2)
    assert pace.count(10.2, 5) == pytest.approx(0.2)
    assert pace.count(20.0, 5) == 0


def test_the_pace_is_kept_over_time() -> None:
    pace, now = Pace(), 0.0
    for _ in range(1000):
        now += pace.count(now, 50)
    assert 1000 / now == pytest.approx(50, rel=0.06)
