"""The producer's example runs as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.wire import Wire
from headwater.testing import EmbeddedBroker

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "producer.py"


def test_the_example_sends_what_it_says() -> None:
    with EmbeddedBroker() as broker:
        command = [sys.executable, str(EXAMPLE), broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stderr == ""
        first, too_large, as_json = done.stdout.splitlines()
        assert first == "orders, partition 0, 7 bytes"
        assert "max_request_size=1048576" in too_large
        assert as_json == "100 sent as JSON"
        with Wire(broker.bootstrap) as wire:
            assert len(wire.values("orders")) == 10_103
