"""One version, wherever it is asked for."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import headwater

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_version_of_the_core() -> None:
    core = tomllib.loads((ROOT / "rust" / "Cargo.toml").read_text())["workspace"]["package"]
    assert headwater.__version__ == core["version"]
    assert metadata.version("headwater") == core["version"]


def test_no_module_has_a_version_of_its_own() -> None:
    literal = re.compile(rf'["\']{re.escape(headwater.__version__)}["\']')
    root = ROOT / "src" / "headwater"
    found = [path.name for path in root.rglob("*.py") if literal.search(path.read_text())]
    assert found == []
