"""A few rounds of `make kills`."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.exactly_once import run


@pytest.mark.timeout(1800)
def test_each_record_is_written_once_whatever_is_killed(tmp_path: Path) -> None:
    # By this seed a driver dies between the commits of two tasks, and none is started in vain.
    done = run(6, 1458, folder=tmp_path)
    assert done.total() == 6
    assert not [what for what in done if "not reached" in what]
