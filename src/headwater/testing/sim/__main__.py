"""Runs many seeds: `python -m headwater.testing.sim --seeds 1000 --jobs 2`.

Without `--kind`, as many of a node, of a log, of a cluster and of its transactions. One seed again,
with all that happened in it: `--kind cluster --seed 17 --events`. A failure prints its seed and the
last events; the last line says how many seeds held and which rare things were seen.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial

from headwater.testing.sim.runner import KINDS, Result, run_seed


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m headwater.testing.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds, from --first on")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--kind", choices=KINDS, help="only histories of this kind")
    parser.add_argument("--rounds", type=int, help="faults in each history of a node or cluster")
    parser.add_argument("--events", action="store_true", help="print all events of a failure")
    return parser.parse_args()


def _results(seeds: list[int], jobs: int, kind: str, rounds: int | None) -> Iterator[Result]:
    run = partial(run_seed, kind=kind, rounds=rounds)
    if jobs <= 1 or len(seeds) == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(run, seeds)


def _summary(kind: str, results: Iterable[Result], *, events: bool) -> int:
    failed: list[int] = []
    sometimes: Counter[str] = Counter()
    count = acknowledged = 0
    virtual_seconds = 0.0
    for result in results:
        count += 1
        sometimes += result.sometimes
        acknowledged += result.acknowledged
        virtual_seconds += result.virtual_seconds
        if result.failure is not None:
            failed.append(result.seed)
            print(f"{kind} seed {result.seed} failed: {result.failure}", flush=True)
            if events:
                print("\n".join(result.events))
    for label, times in sorted(sometimes.items()):
        print(f"  {times:8} {label}")
    print(
        f"{kind}: {count - len(failed)} of {count} seeds held; {acknowledged} sends acknowledged "
        f"in {virtual_seconds:.0f} virtual seconds" + (f"; failed: {failed}" if failed else "")
    )
    return 1 if failed else 0


def main() -> int:
    arguments = _arguments()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    chosen = [arguments.seed] if arguments.seed is not None else list(seeds)
    started = time.monotonic()
    codes = []
    for kind in KINDS if arguments.kind is None else (arguments.kind,):
        results = _results(chosen, arguments.jobs, kind, arguments.rounds)
        codes.append(_summary(kind, results, events=arguments.events))
    print(f"{time.monotonic() - started:.1f} s")
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
