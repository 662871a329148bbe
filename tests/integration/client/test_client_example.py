"""The example of docs/clients.md says what the page says that it says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headwater.testing import EmbeddedBroker

ROOT = Path(__file__).resolve().parents[3]


def test_the_example_of_connecting_ends_as_the_page_shows_it() -> None:
    with EmbeddedBroker() as broker:
        command = [sys.executable, str(ROOT / "examples" / "connecting.py"), broker.bootstrap]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    page = (ROOT / "docs" / "clients.md").read_text()
    for line in done.stdout.splitlines():
        assert line in page
