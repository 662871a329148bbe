"""Histories of whole clusters under faults: 3 to 5 nodes, 1 to 5 voters, our clients and groups.

`CLUSTER_SEEDS` says how many are run; `python -m headwater.testing.sim --kind cluster --seed N
--events` runs one of them again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter

import pytest

from headwater.testing.sim.runner import run_seed

SEEDS = int(os.environ.get("CLUSTER_SEEDS", "130"))
CHUNK = 5
ROUNDS = 4


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_cluster_keeps_its_promises_under_faults_and_makes_progress_after_them(
    first: int,
) -> None:
    results = [
        run_seed(seed, kind="cluster", rounds=ROUNDS)
        for seed in range(first, min(first + CHUNK, SEEDS))
    ]
    failures = [result.failure for result in results if result.failure is not None]
    assert not failures, "\n\n".join(failures)
    assert all(result.acknowledged for result in results)


def test_the_same_seed_gives_the_same_history_of_a_cluster() -> None:
    first, second = (run_seed(12, kind="cluster", rounds=2) for _ in range(2))
    assert first.failure is None
    assert first.digest == second.digest


def test_a_cluster_does_not_depend_on_the_process_that_runs_it() -> None:
    """Python hashes texts with a number that each process draws; no set of them may matter."""
    code = (
        "from headwater.testing.sim.runner import run_seed; "
        "print(run_seed(15, kind='cluster', rounds=2).digest)"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": number},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(digests) == 1


def test_rare_things_happen_to_clusters() -> None:
    """A run that never pauses, cuts, loses or elects proves nothing."""
    sometimes: Counter[str] = Counter()
    for seed in range(30):
        sometimes += run_seed(seed, kind="cluster", rounds=ROUNDS).sometimes
    missing = {
        "a node ended by itself",
        "a partition that may lose records",
        "block both ways",
        "block one way",
        "clean stop",
        "client killed",
        "client paused",
        "connection cut",
        "disk loss",
        "full",
        "isolate",
        "metadata replayed",
        "pause",
        "power cut",
        "process killed",
        "quorum leader elected",
        "read error",
        "slow disk",
        "slow link",
        "sync error",
        "weather",
        "write error",
    } - set(sometimes)
    assert not missing
