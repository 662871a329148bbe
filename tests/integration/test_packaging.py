"""The container image and the systemd unit do what they say, as far as it shows without either."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.nodes import free_port
from harness.wire import until
from tests.support.processes import HEADWATER

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"


def instruction(name: str) -> list[str]:
    """The command of an instruction of the Containerfile, in its JSON form."""
    text = (PACKAGING / "Containerfile").read_text().replace("\\\n", " ")
    (found,) = re.findall(rf"^{name}\b.*?(\[.*\])", text, re.MULTILINE)
    command: list[str] = json.loads(found)
    assert command[0] == "headwater"
    return command[1:]


def test_the_container_starts_a_node_and_its_health_check_finds_it(tmp_path: Path) -> None:
    port = str(free_port())

    def here(command: list[str]) -> list[str]:
        moved = [part.replace("9092", port).replace("0.0.0.0", "127.0.0.1") for part in command]
        return [
            str(HEADWATER),
            *(str(tmp_path / "data") if part == "/data" else part for part in moved),
        ]

    def is_healthy() -> bool:
        check = subprocess.run(here(instruction("HEALTHCHECK")), capture_output=True, timeout=60)
        return check.returncode == 0

    assert not is_healthy()
    with subprocess.Popen(here(instruction("ENTRYPOINT")), stdout=subprocess.PIPE) as node:
        try:
            until(is_healthy, "a healthy node")
        finally:
            node.terminate()
        assert node.wait(60) == 0


def test_the_systemd_unit_is_well_formed(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    # The command must exist for the check; on this machine it is elsewhere.
    text = (PACKAGING / "headwater.service").read_text()
    unit = tmp_path / "headwater.service"
    unit.write_text(text.replace("/opt/headwater/bin/headwater", shutil.which("true") or ""))
    done = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
