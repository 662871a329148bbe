"""The example of the docs, run as a user would."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness.wire import Plain, Wire, batch
from headwater.testing import EmbeddedBroker

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "consumer.py"


def test_the_example_reads_all_records(
    shared_broker: EmbeddedBroker, wire: Wire, topic: str
) -> None:
    wire.create_topic(topic)
    wire.produce(topic, batch([Plain(b"tea", b"alice"), Plain(b"coffee", b"bob")]))
    command = [sys.executable, str(EXAMPLE), shared_broker.bootstrap, topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == [
        f"{topic}-0 @0: tea",
        f"{topic}-0 @1: coffee",
        "polled 2 records, keys [b'alice', b'bob']",
        "a table of 2 rows: topic, partition, offset, timestamp, key, value, headers",
    ]
