"""One version, wherever it is asked for."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import headwater

ROOT = Path(__file__).parents[2]


def test_the_package_the_project_and_the_core_have_one_version() -> None:
    """`__version__` is a literal: looking it up in the installed package costs a command 0.1 s."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == headwater.__version__
    core = tomllib.loads((ROOT / "rust" / "Cargo.toml").read_text())["workspace"]["package"]
    assert core["version"] == headwater.__version__


def test_no_other_module_has_a_version_of_its_own() -> None:
    literal = re.compile(rf'["\']{re.escape(headwater.__version__)}["\']')
    root = ROOT / "src" / "headwater"
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if literal.search(path.read_text())
    ]
    assert found == ["__init__.py"]
