"""examples/cluster/walkthrough.sh does what docs/cluster.md says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headwater.cli.cluster_plan import free_ports
from tests.support.processes import HEADWATER

SCRIPT = Path(__file__).resolve().parents[2] / "examples" / "cluster" / "walkthrough.sh"


@pytest.mark.timeout(300)
def test_a_cluster_lives_through_everything_in_the_walkthrough() -> None:
    first = free_ports("127.0.0.1", 27_000, 1, must_be_first=False)[0]
    done = subprocess.run(
        ["bash", str(SCRIPT), str(first)],
        env=os.environ | {"PATH": f"{HEADWATER.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("2,000 records in 6 partitions") == 2
    assert "node 3 is a voter now" in done.stdout
