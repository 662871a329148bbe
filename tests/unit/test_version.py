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
    for manifest in (ROOT / "rust").glob("**/Cargo.toml"):
        if "target" in manifest.parts:
            continue
        for section in ("package", "workspace"):
            declared = _version(tomllib.loads(manifest.read_text()).get(section, {}))
            assert declared in (None, headwater.__version__), manifest


def _version(section: dict[str, object]) -> str | None:
    """A workspace declares the version of its members below `package`."""
    found = section.get("version")
    package = section.get("package")
    if found is None and isinstance(package, dict):
        found = package.get("version")
    return found if isinstance(found, str) else None


def test_no_other_module_has_a_version_of_its_own() -> None:
    literal = re.compile(rf'["\']{re.escape(headwater.__version__)}["\']')
    root = ROOT / "src" / "headwater"
    found = [
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if literal.search(path.read_text())
    ]
    assert found == ["__init__.py"]
