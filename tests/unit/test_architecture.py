"""ARCHITECTURE.md names the layers and the machines that are checked, and modules that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from tests.unit.test_seam import MACHINES

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "headwater"
MAP = (ROOT / "ARCHITECTURE.md").read_text()


def _contract(name: str) -> dict[str, Any]:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (found,) = (each for each in linter["contracts"] if each["name"] == name)
    return dict(found)


def _exists(name: str) -> bool:
    return (PACKAGE / name).is_dir() or any(PACKAGE.glob(f"{name}.*"))


def test_the_picture_of_the_layers_is_the_contract() -> None:
    """Highest layer first; what is to the right on a line is below what is to its left."""
    rows = [
        re.findall(r"\w+", layer)
        for layer in _contract("A package imports only what stands below it")["layers"]
    ]
    wanted = [name for row in rows for name in row if _exists(name)]
    (picture,) = re.findall(r"## Layers\n.*?```\n(.*?)```", MAP, re.DOTALL)
    drawn = []
    for line in picture.splitlines():
        # The name of the layer, its packages, and perhaps a remark behind more space.
        packages = re.split(r" {5,}", line[15:].strip())[0]
        drawn += re.findall(r"\w+", packages)
    assert drawn == wanted


def test_there_is_one_list_of_machines() -> None:
    (listed,) = re.findall(r"\*\*The machines\*\* are `([^`]*)`", MAP)
    machines = listed.split()
    contract = _contract("Machines do no I/O and know no clock")["source_modules"]
    assert sorted(machines) == sorted(each.removeprefix("headwater.") for each in contract)
    assert set(machines) == {each for each in MACHINES if _exists(each)}


def test_every_module_of_a_journey_exists() -> None:
    for name in re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", MAP):
        places = (PACKAGE, PACKAGE / "broker", PACKAGE / "client/consumer", ROOT)
        assert any((at / name).is_dir() or (at / f"{name}.py").exists() for at in places), name
