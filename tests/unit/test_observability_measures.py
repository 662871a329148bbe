"""Means and maxima of the last minute: old values fade, and no value is kept."""

from __future__ import annotations

import pytest

from headwater.client.consumer.metrics import GroupMetrics, PollMetrics
from headwater.observability.measures import WINDOW_SECONDS, RecentRate, Window
from headwater.observability.quorum import MetadataMeter


def test_a_window_has_the_mean_and_the_highest() -> None:
    window = Window()
    for value in (1.0, 5.0, 3.0):
        window.note(value, 100.0)
    assert window.shown("x", 100.0, scale=1000) == {"x-avg": 3000.0, "x-max": 5000.0}


def test_a_window_tells_a_rate() -> None:
    window = Window()
    assert window.rate(0.0) == 0
    window.note(60, 0.0)
    assert window.rate(0.0) == 2  # as if it had been quiet before
    assert window.rate(30.0) == 2
    assert window.rate(59.0) == 60 / 59
    assert window.rate(90.0) == 0


def test_a_recent_rate_is_that_of_the_last_one_to_two_minutes() -> None:
    rate = RecentRate()
    assert rate.read(100, 0.0) == 0
    assert rate.read(130, 30.0) == 1
    assert rate.read(160, 60.0) == 1
    assert rate.read(160, 90.0) == pytest.approx(60 / 90)
    assert rate.read(160, 120.0) == 0
    assert rate.read(220, 150.0) == pytest.approx(60 / 90)


def test_an_election_lasts_from_the_first_request_for_votes_to_a_leader() -> None:
    meter = MetadataMeter()
    meter.on_step(is_electing=False, has_leader=True, now=0.0)
    assert meter.election_ms(0.0) == (0.0, 0.0)
    meter.on_step(is_electing=True, has_leader=True, now=1.0)
    meter.on_step(is_electing=True, has_leader=False, now=1.5)
    meter.on_step(is_electing=False, has_leader=False, now=2.0)
    meter.on_step(is_electing=False, has_leader=True, now=3.0)
    meter.on_step(is_electing=False, has_leader=True, now=4.0)
    assert meter.election_ms(4.0) == (2000.0, 2000.0)


def test_a_window_that_saw_nothing_shows_zero() -> None:
    assert Window().shown("x", 5.0) == {"x-avg": 0.0, "x-max": 0.0}


def test_what_is_old_fades_after_one_window_and_is_gone_after_two() -> None:
    window = Window()
    window.note(9.0, 0.0)
    window.note(1.0, WINDOW_SECONDS)
    assert window.shown("x", WINDOW_SECONDS) == {"x-avg": 5.0, "x-max": 9.0}
    assert window.shown("x", 2 * WINDOW_SECONDS) == {"x-avg": 1.0, "x-max": 1.0}
    assert window.shown("x", 3 * WINDOW_SECONDS) == {"x-avg": 0.0, "x-max": 0.0}


def test_a_pause_longer_than_two_windows_forgets_all() -> None:
    window = Window()
    window.note(9.0, 0.0)
    assert window.shown("x", 10 * WINDOW_SECONDS) == {"x-avg": 0.0, "x-max": 0.0}


def test_a_rebalance_takes_from_its_first_step_to_its_last() -> None:
    metrics = GroupMetrics()
    assert metrics.shown(0.0)["last-rebalance-seconds-ago"] == -1
    metrics.rebalancing(1.0)
    metrics.rebalancing(2.0)  # the next step of the same one
    metrics.rebalanced(4.0)
    metrics.rebalanced(5.0)  # nothing was to be done
    shown = metrics.shown(6.0)
    assert shown["rebalance-total"] == 1
    assert shown["rebalance-latency-max"] == shown["rebalance-latency-total"] == 3000.0
    assert shown["last-rebalance-seconds-ago"] == 2.0


def test_the_time_between_polls_begins_with_the_second_one() -> None:
    metrics = PollMetrics()
    assert metrics.shown(0.0)["last-poll-seconds-ago"] == -1
    metrics.polled(1.0)
    assert metrics.shown(1.0)["time-between-poll-max"] == 0
    metrics.ended(1.5)
    metrics.polled(3.5)
    metrics.ended(5.0)
    assert metrics.shown(4.0) == {
        "last-poll-seconds-ago": 0.5,
        "time-between-poll-avg": 2500.0,
        "time-between-poll-max": 2500.0,
        # All of the first; of the second, 1.5 s after 2.5 s since the one before.
        "poll-idle-ratio-avg": (1.0 + 1.5 / 4.0) / 2,
    }
