"""Running `headwater` commands in a test: the exit code is a claim, what is printed the answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.cli.main import main


class Command:
    """One command of `headwater`, and its actions."""

    def __init__(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._name = name
        self._capsys = capsys

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """Returns the output for people."""
        self._capsys.readouterr()
        try:
            ended = main((self._name, *arguments))
        except SystemExit as end:  # argparse ends the process by itself
            ended = end.code if isinstance(end.code, int) else -1
        printed = self._capsys.readouterr()
        assert ended == code, printed
        return printed.out + printed.err

    def json(self, *arguments: str, code: int = 0) -> Any:
        """Returns the output for programs."""
        return json.loads(self(*arguments, "--output", "json", code=code))
