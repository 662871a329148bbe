"""Waits grow to a bound, and not all clients wait alike."""

from __future__ import annotations

from random import Random

import pytest

from headwater.client.backoff import Backoff, Retries
from headwater.io import Host


def test_waits_double_up_to_their_bound() -> None:
    backoff = Backoff(100, 1_000)
    random = Random(1)
    for failures, plain in ((1, 100), (2, 200), (3, 400), (4, 800), (5, 1_000), (500, 1_000)):
        for _ in range(50):
            wait_ms = backoff.seconds(failures, random) * 1000
            assert plain * 0.8 <= wait_ms <= min(plain * 1.2, 1_000)


def test_two_clients_do_not_come_back_together() -> None:
    backoff = Backoff(100, 1_000)
    assert backoff.seconds(3, Random(1)) != backoff.seconds(3, Random(2))


def test_no_backoff_is_no_wait() -> None:
    assert Backoff(0, 1_000).seconds(9, Random(1)) == 0


def test_a_bound_below_the_first_wait_is_the_first_wait() -> None:
    assert Backoff(500, 100).seconds(7, Random(1)) <= 0.5


def test_before_the_first_failure_there_is_no_wait_to_ask_for() -> None:
    with pytest.raises(AssertionError):
        Backoff(100, 1_000).seconds(0, Random(1))


def test_an_operation_gives_up_when_the_next_wait_would_pass_its_deadline() -> None:
    host = Host.system()
    now = host.clock.monotonic()
    patient = Retries(Backoff(100, 100), host, now + 60)
    hurried = Retries(Backoff(100, 100), host, now + 0.001)
    wait = patient.next_wait()
    assert wait is not None
    assert 0.08 <= wait <= 0.1
    assert hurried.next_wait() is None
    assert (patient.failures, hurried.failures) == (1, 1)
