"""Histories under faults: of a log on a disk that crashes, and of a whole node with its clients.

`SEEDS` says how many of a node's are run; `python -m headwater.testing.sim --seed N --events` runs
one of them again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable

import pytest

from headwater.testing.sim.runner import Result, run_seed

SEEDS = int(os.environ.get("SEEDS", "100"))
CHUNK = 5
LOG_SEEDS = 2 * SEEDS
LOG_CHUNK = 25


# Seeds beyond those that each run takes, which have found something once.
FOUND_SOMETHING = (254, 519, 597, 823)


def _run(seeds: Iterable[int], kind: str) -> list[Result]:
    results = [run_seed(seed, kind=kind) for seed in seeds]
    failures = [result.failure for result in results if result.failure is not None]
    assert not failures, "\n\n".join(failures)
    return results


@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_node_keeps_its_promises_under_faults_and_makes_progress_after_them(first: int) -> None:
    results = _run(range(first, min(first + CHUNK, SEEDS)), "node")
    assert all(result.acknowledged for result in results)


@pytest.mark.parametrize("seed", FOUND_SOMETHING)
def test_a_seed_that_found_something_once_holds_now(seed: int) -> None:
    _run([seed], "node")


@pytest.mark.parametrize("first", range(0, LOG_SEEDS, LOG_CHUNK))
def test_a_log_is_a_prefix_of_what_was_written_after_any_crash(first: int) -> None:
    _run(range(first, min(first + LOG_CHUNK, LOG_SEEDS)), "log")


@pytest.mark.parametrize("seed", [3, 14])
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    assert run_seed(seed).digest == run_seed(seed).digest


def test_a_history_does_not_depend_on_the_process_that_runs_it() -> None:
    """Python hashes texts with a number that each process draws; no set of them may matter."""
    code = "from headwater.testing.sim.runner import run_seed; print(run_seed(7).digest)"
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


def test_the_rare_things_happen() -> None:
    """A run that never tears, fills, cuts or repeats proves nothing."""
    sometimes = sum((run_seed(seed).sometimes for seed in range(0, 30, 2)), run_seed(31).sometimes)
    missing = {
        "clean stop",
        "connection cut",
        "crash soon after a start",
        "duplicate recognised",
        "full disk refuses a produce",
        "metadata snapshot at a start",
        "one-way block",
        "power cut",
        "process killed",
        "produce without an answer",
        "producer started anew",
        "read error",
        "records deleted",
        "several segments at a start",
        "sync error",
        "topic deleted",
        "torn tail cut at a start",
        "unsynced tail lost",
        "write error",
    } - set(sometimes)
    assert not missing
