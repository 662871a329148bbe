"""The simulation sees bugs: each planted one breaks a promise within a few seeds."""

from __future__ import annotations

import pytest

from headwater.testing.sim.runner import run_seed
from tests.simulation.mutants import LOG_MUTANTS, MUTANTS, Mutant


@pytest.mark.parametrize("name", MUTANTS)
def test_a_planted_bug_is_found(name: str) -> None:
    find(name, *MUTANTS[name], kind="node")


@pytest.mark.parametrize("name", LOG_MUTANTS)
def test_a_bug_planted_in_the_log_is_found(name: str) -> None:
    find(name, *LOG_MUTANTS[name], kind="log")


def find(name: str, mutant: Mutant, seeds: range, *, kind: str) -> None:
    with mutant():
        for seed in seeds:
            result = run_seed(seed, kind=kind)
            if result.failure is not None:
                first = result.failure.splitlines()[0]
                # A patch that no longer fits the code breaks it, too, and proves nothing.
                assert not any(word in first for word in ("TypeError", "AttributeError")), first
                print(f"{name}: caught by seed {seed}: {first}")
                return
    pytest.fail(f"{name} was not caught by {len(seeds)} seeds")
