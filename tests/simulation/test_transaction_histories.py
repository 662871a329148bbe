"""Histories of transactions in clusters under faults, with late requests of every kind.

`TRANSACTION_SEEDS` says how many are run; `python -m headwater.testing.sim --kind transactions
--seed N --events` runs one of them again.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from headwater.testing.sim.runner import run_seed

# A history costs seconds of a core, which a busy machine gives in minutes.
pytestmark = pytest.mark.timeout(600)

SEEDS = int(os.environ.get("TRANSACTION_SEEDS", "200"))
CHUNK = 5
ROUNDS = 1


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_transactions_are_atomic_under_faults_and_none_hangs_after_them(first: int) -> None:
    results = [
        run_seed(seed, kind="transactions", rounds=ROUNDS)
        for seed in range(first, min(first + CHUNK, SEEDS))
    ]
    failures = [result.failure for result in results if result.failure is not None]
    assert not failures, "\n\n".join(failures)
    assert all(result.acknowledged for result in results)


def test_the_same_seed_gives_the_same_history_of_transactions() -> None:
    first, second = (run_seed(3, kind="transactions", rounds=2) for _ in range(2))
    assert first.failure is None
    assert first.digest == second.digest


def test_what_matters_does_happen() -> None:
    """A run without late requests, fencing and aborts proves nothing."""
    wanted = {
        "ProducerFenced of a transactional producer",
        "a batch was given up",
        "coordinator replayed",
        "index of aborted transactions compared",
        "late ADD_PARTITIONS_TO_TXN",
        "late END_TXN",
        "late PRODUCE",
        "late TXN_OFFSET_COMMIT",
        "late WRITE_TXN_MARKERS",
        "transaction fail",
        "transaction ok",
        "transaction unknown",
    }
    seen: Counter[str] = Counter()
    for seed in range(20):
        result = run_seed(seed, kind="transactions", rounds=2, faults=("kill", "isolate"))
        assert result.failure is None, result.failure
        seen += result.sometimes
        if wanted <= set(seen):
            return
    pytest.fail(f"{wanted - set(seen)} did not happen")
