"""What the docs show is run here, as a user would run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_first_steps_read_back_what_they_sent() -> None:
    headwater = str(Path(sys.executable).with_name("headwater"))
    command = [headwater, "start", "--memory", "--listen", "127.0.0.1:0"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        address = next(line for line in node.stdout if line.startswith("ready: ")).split()[1]
        steps = [sys.executable, str(EXAMPLES / "first_steps.py"), address]
        done = subprocess.run(steps, capture_output=True, text=True, timeout=60)
    finally:
        node.terminate()
        node.wait(30)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "offset 0: first = hello\noffset 1: first = world\n"


def test_the_web_service_passes_its_own_tests() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    folder = EXAMPLES / "orders_service"
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("....")
