"""Python processors with state in Spark: packed by buckets of keys, and each key by itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.rows import Comparison, Session, at_least, value_at_most
from harness.nodes import Flavour

_SECONDS_MAX = 3600


def streams_state(session: Session, _: Flavour) -> Iterator[Comparison]:
    """Counts by key on local[2]; needs no broker."""
    folder = session.folder / "streams-state"
    folder.mkdir()
    if session.wants("streams.state"):
        rounds = session.size(3, 1)
        found = _run("count", 50_000, session.size(200_000, 100_000), rounds, folder)
        yield Comparison(
            "streams.state",
            "count 50,000 keys with a Python processor, all in each batch",
            "records/s",
            {"packed": found["packed"], "by hand": found["by hand"], "keys": found["keys"]},
            {"by hand": at_least(5.0), "keys": at_least(5.0)},
            more_is_better=True,
        )
    if session.wants("streams.restart"):
        keys = 1_000_000
        _run("fill", keys, 1000, 1, folder)
        found = _run("restart", keys, 1000, 1, folder)
        yield Comparison(
            "streams.restart",
            "start with 1,000,000 keys of state, to the end of the first batch",
            "s",
            {"with state": found["state"], "without": found["none"]},
            {"without": value_at_most(10.0)},
        )


def _run(
    action: str, keys: int, rows: int, rounds: int, folder: Path
) -> dict[str, tuple[float, ...]]:
    command = [sys.executable, "-m", "benchmarks.streams_load", action]
    done = subprocess.run(
        [*command, str(keys), str(rows), str(rounds), str(folder)],
        capture_output=True,
        text=True,
        timeout=_SECONDS_MAX,
    )
    assert done.returncode == 0, f"streams {action}: {done.stderr.strip()[-1500:]}"
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: tuple(samples) for name, samples in found.items()}
