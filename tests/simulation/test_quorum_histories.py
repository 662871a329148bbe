"""Histories of controllers alone: elections, commits, crashes, cuts, pauses, restarts."""

from __future__ import annotations

import pytest

from tests.support.quorum_history import run

# A history costs seconds of a core, which a busy machine gives in minutes.
pytestmark = pytest.mark.timeout(600)

SEEDS = 30


@pytest.mark.parametrize("seed", range(SEEDS))
def test_controllers_agree_under_faults_and_make_progress_after_them(seed: int) -> None:
    _, answered = run(seed)
    assert answered


@pytest.mark.parametrize("seed", [1, 4])
def test_the_same_seed_gives_the_same_history_of_a_quorum(seed: int) -> None:
    assert run(seed) == run(seed)
