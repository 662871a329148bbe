"""Looks for planted bugs: `python -m tests.simulation.mutant_hunt` (`make mutants`).

Prints for each bug the seed that caught it and what was seen there, and fails if one was not
caught. `--only TEXT` takes those whose names have the text in them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from headwater.testing.sim.runner import run_seed
from headwater.testing.sim.violation import Violation
from tests.simulation.cluster_mutants import CLUSTER_MUTANTS, Wanted
from tests.simulation.mutants import LOG_MUTANTS, MUTANTS
from tests.simulation.transaction_mutants import TRANSACTION_MUTANTS
from tests.support import quorum_history

_CLUSTER_ROUNDS = 4
# What a patch that no longer fits the code breaks proves nothing.
_BROKEN_PATCH = ("TypeError", "AttributeError", "NameError")


class Caught(NamedTuple):
    seed: int
    what: str


def all_mutants() -> dict[str, Wanted]:
    found = {name: Wanted(plant, "node", (), seeds) for name, (plant, seeds) in MUTANTS.items()}
    for name, (plant, seeds) in LOG_MUTANTS.items():
        found[name] = Wanted(plant, "log", (), seeds)
    return found | CLUSTER_MUTANTS | TRANSACTION_MUTANTS


def hunt(wanted: Wanted) -> Caught | None:
    """Runs histories with the bug until one of them fails; returns that one. Without the bug the
    same history has to hold."""
    with wanted.plant():
        found = ((seed, _failure_of(wanted, seed)) for seed in wanted.seeds)
        seed, failure = next(((seed, what) for seed, what in found if what), (0, None))
    if failure is None:
        return None
    assert not any(word in failure for word in _BROKEN_PATCH), failure
    without = _failure_of(wanted, seed)
    assert without is None, f"seed {seed} fails without the bug as well: {without}"
    return Caught(seed, failure.splitlines()[0].removeprefix(f"seed {seed}: "))


def _failure_of(wanted: Wanted, seed: int) -> str | None:
    if wanted.kind == "quorum":
        try:
            quorum_history.run(seed)
        except (AssertionError, Violation) as failure:
            return str(failure) or repr(failure)
        return None
    rounds = _CLUSTER_ROUNDS if wanted.kind in ("cluster", "transactions") else None
    return run_seed(seed, kind=wanted.kind, rounds=rounds, faults=wanted.faults).failure


def _hunt_by_name(name: str) -> tuple[str, Caught | None, float]:
    started = time.process_time()
    caught = hunt(all_mutants()[name])
    return name, caught, time.process_time() - started


def _results(names: list[str], jobs: int) -> Iterator[tuple[str, Caught | None, float]]:
    if jobs <= 1:
        yield from map(_hunt_by_name, names)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(_hunt_by_name, names)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutant_hunt")
    parser.add_argument("--only", default="", help="only bugs whose names have this text in them")
    parser.add_argument("--kind", default="", help="only bugs of this kind, such as transactions")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    arguments = parser.parse_args()
    mutants = all_mutants()
    names = [
        name
        for name, wanted in mutants.items()
        if arguments.only in name and arguments.kind in ("", wanted.kind)
    ]
    missed: list[str] = []
    for name, caught, seconds in _results(names, arguments.jobs):
        kind = mutants[name].kind
        if caught is None:
            missed.append(name)
            seeds = mutants[name].seeds
            result = f"NOT CAUGHT by seeds {seeds.start} to {seeds.stop - 1}"
        else:
            result = f"{kind} seed {caught.seed}: {caught.what}"
        print(f"{seconds:6.1f} s  {name}\n          {result}", flush=True)
    print(f"{len(names) - len(missed)} of {len(names)} planted bugs caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
