"""The memory of a node: what connections cost while they are idle and after they have closed."""

from __future__ import annotations

from pathlib import Path

from harness.wire import Wire
from tests.support.processes import NodeProcess

IDLE = 500
IDLE_BYTES_MAX = 12_000
SHORT = 2000
GROWTH_MAX = 1.2


def served(node: NodeProcess) -> Wire:
    wire = Wire(node.address)
    assert wire.is_served()
    return wire


def test_connections_cost_little_and_closed_ones_nothing(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--memory") as node:
        for _ in range(100):
            served(node).socket.close()
        before = node.resident_bytes()
        held = [served(node) for _ in range(IDLE)]
        assert (node.resident_bytes() - before) / IDLE < IDLE_BYTES_MAX
        for each in held:
            each.socket.close()
        for _ in range(SHORT):
            served(node).socket.close()
        assert node.resident_bytes() < GROWTH_MAX * before
