"""`headwater demo`, shortened: it checks its own results, so exit code 0 says that they agree."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

HEADWATER = str(Path(sys.executable).with_name("headwater"))


@pytest.mark.timeout(600)
def test_the_demo_ends_by_itself_and_its_sums_agree(tmp_path: Path) -> None:
    picture = tmp_path / "demo.png"
    command = [HEADWATER, "demo", "--seconds", "14", "--picture", str(picture)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "sums of the live table agree with the" in done.stdout
    assert "orders were never paid, and are in no sum" in done.stdout
    assert "orders came late and corrected" in done.stdout
    assert "exactly once: each batch of the app was one transaction" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(300)
def test_sigterm_ends_the_demo_with_its_node_and_its_app(tmp_path: Path) -> None:
    command = [HEADWATER, "demo", "--picture", str(tmp_path / "demo.png")]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if line.startswith("node"))
        host, _, port = line.split()[3].partition(":")
        next(line for line in process.stdout if line.startswith("app"))
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGTERM
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5).close()
