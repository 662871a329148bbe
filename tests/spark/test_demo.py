"""`headwater demo`, shorter: it checks itself, so that it ends well is what is to be seen."""

from __future__ import annotations

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
    assert "sums agree with the" in done.stdout
    assert "orders came late and corrected" in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
