"""Runs the examples of the docs as a user would."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def address() -> Iterator[str]:
    """A node as the README starts it."""
    headwater = str(Path(sys.executable).with_name("headwater"))
    command = [headwater, "start", "--memory", "--listen", "127.0.0.1:0"]
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        yield next(line for line in node.stdout if line.startswith("ready: ")).split()[1]
    finally:
        node.terminate()
        node.wait(30)


def run(example: str, address: str) -> str:
    command = [sys.executable, str(EXAMPLES / example), address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_first_steps_read_back_what_they_sent(address: str) -> None:
    assert run("first_steps.py", address) == (
        "sent to partition 0, offset 0\n0/0: b'second' = b'hello from Python'\n"
    )


def test_any_client_reads_back_what_it_sent(address: str) -> None:
    printed = run("any_client.py", address)
    assert printed == "offset 0: first = hello\noffset 1: first = world\n"


@pytest.mark.parametrize("folder", ["orders_service", "testing"])
def test_the_tests_among_the_examples_pass(folder: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    done = subprocess.run(
        command, cwd=EXAMPLES / folder, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("....")
