"""Hints on missing packages can be followed, with or without a release on an index."""

from __future__ import annotations

import tomllib
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from unittest.mock import patch

import pytest

from headwater.cli.extras import install_command

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("extra", ["arrow", "spark", "demo"])
def test_the_requirements_of_an_extra_are_named(extra: str) -> None:
    declared = tomllib.loads(PROJECT.read_text())["project"]["optional-dependencies"][extra]
    command = install_command(extra, "x")
    assert command.startswith("pip install ")
    assert "headwater[" not in command
    for requirement in declared:
        name = requirement.split(">")[0].split("[")[0]
        assert name in command
    assert "'pyarrow>=18'" in install_command("spark", "x")


def test_without_metadata_the_missing_module_is_named() -> None:
    with patch("headwater.cli.extras.requires", side_effect=PackageNotFoundError("headwater")):
        assert install_command("spark", "pyspark") == "pip install pyspark"
