"""Histories of whole clusters under faults: 3 to 5 nodes, 1 to 5 voters, our clients and groups.

`CLUSTER_SEEDS` says how many are run; `python -m headwater.testing.sim --kind cluster --seed N
--events` runs one of them again.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from headwater.testing.sim.fleet_history import FAULTS
from headwater.testing.sim.runner import run_seed

# A history costs seconds of a core, which a busy machine gives in minutes.
pytestmark = pytest.mark.timeout(600)

SEEDS = int(os.environ.get("CLUSTER_SEEDS", "180"))
CHUNK = 5
ROUNDS = 4
# How the world calls what a fault has done, where it is not the fault's own name.
LABELS = {
    "cut": "connection cut",
    "kill": "process killed",
    "kill all": "process killed",
    "kill client": "client killed",
    "pause client": "client paused",
    "stop": "clean stop",
}


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


def test_a_start_that_fails_on_a_broken_disk_is_no_failure_of_the_cluster() -> None:
    """The node was killed between the end of its start and the next look at it."""
    assert run_seed(710060, kind="cluster", rounds=2).failure is None


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


@pytest.mark.parametrize("fault", dict.fromkeys(FAULTS))
def test_a_cluster_survives_each_kind_of_fault(fault: str) -> None:
    """Each kind does happen: a run that never pauses, cuts or loses proves nothing."""
    label = LABELS.get(fault, fault)
    for seed in range(10):
        result = run_seed(seed, kind="cluster", rounds=2, faults=(fault,))
        assert result.failure is None, result.failure
        assert result.sometimes["quorum leader elected"]
        assert result.sometimes["metadata replayed"]
        if result.sometimes[label]:
            return
    pytest.fail(f"{label} did not happen")


def test_a_dynamic_voter_that_lost_its_disk_votes_again() -> None:
    for seed in range(20):
        result = run_seed(seed, kind="cluster", rounds=3, faults=("disk loss",))
        assert result.failure is None, result.failure
        if result.sometimes["disk of a voter lost"]:
            return
    pytest.fail("no voter lost its disk")


def test_faults_cost_what_they_should() -> None:
    """Nodes end by themselves when their disks fail, and partitions may lose records when too many
    replicas have lost theirs."""
    wanted = {"a node ended by itself", "a partition that may lose records"}
    for seed in range(10):
        result = run_seed(seed, kind="cluster", faults=("power cut", "write error", "sync error"))
        assert result.failure is None, result.failure
        wanted -= set(result.sometimes)
        if not wanted:
            return
    pytest.fail(f"{wanted} did not happen")
