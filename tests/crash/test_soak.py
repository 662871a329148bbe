"""A short soak: `python -m harness.soak` runs the same for as long as one likes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from harness.nodes import Headwater
from harness.record_checker import anomalies
from harness.soak import Protocol, soak


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_nothing_is_lost_doubled_or_reordered_when_connections_and_the_broker_die(
    tmp_path: Path, protocol: Protocol
) -> None:
    run = asyncio.run(
        soak(Headwater(), tmp_path / "node", seconds=20, seed=11, protocol=protocol, kills=True)
    )
    assert anomalies(run.history) == {}
    assert run.counts["broker killed"] == 1
    assert run.counts["proxy: cut"] > 0
    assert run.counts["sends acknowledged"] > 1000
