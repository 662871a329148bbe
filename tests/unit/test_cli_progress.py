"""The bar on a terminal."""

from __future__ import annotations

import fcntl
import os
import struct
import termios

import pytest

from headwater.cli import progress
from headwater.cli.progress import Progress


@pytest.mark.parametrize("width", [20, 200])
def test_the_bar_fits_into_the_terminal(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that wraps stays behind when the next one is drawn."""
    clear = "\r\x1b[K"
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    monkeypatch.setattr(progress, "_EVERY_SECONDS", 0.0)
    with open(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stderr", terminal)
        with Progress(1000, "records") as bar:
            bar.add(500)
        shown = ""
        while shown.count(clear) < 2:  # a terminal hands over what it has, in pieces
            shown += os.read(ours, 4096).decode()
    os.close(ours)
    before, line, after = shown.split(clear)
    assert (before, after) == ("", "")
    assert line.startswith("[###############...")
    assert len(line) < width
    assert ("s left" in line) == (width > 100)


def test_no_bar_is_drawn_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(10, "records") as bar:
        bar.add(10)
    assert bar.done == 10
    assert capsys.readouterr().err == ""
