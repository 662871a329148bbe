"""Runs stories written as text: a command, `----`, and what it printed.

A story is a file of blocks separated by blank lines. Lines that start with `#` before a command are
comments. A command is one line: a name, then words and `key=value` options.

    # A sole voter elects itself.
    start 1
    ----
    1 leads epoch 1

`REWRITE=1 pytest tests/transcripts` writes what the commands print now into the files; review that
as a diff. Without it, a story that prints anything else fails and shows the difference.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

_SEPARATOR = "----"


class Command(NamedTuple):
    """One command of a story: `name word word key=value`."""

    name: str
    words: list[str]
    options: dict[str, str]

    @classmethod
    def parse(cls, line: str) -> Command:
        name, *rest = line.split()
        options = dict(item.split("=", 1) for item in rest if "=" in item)
        return cls(name, [item for item in rest if "=" not in item], options)


Run = Callable[[Command], str]


def stories(folder: Path) -> list[Path]:
    """Returns the story files below a folder, for `pytest.mark.parametrize`."""
    found = sorted(folder.rglob("*.txt"))
    assert found, f"no stories in {folder}"
    return found


def check_story(path: Path, run: Run) -> None:
    """Runs a story's commands in order and compares all output with the file."""
    written = path.read_text(encoding="utf-8")
    actual = "\n\n".join(_run_block(block, run) for block in _blocks(written)) + "\n"
    if os.environ.get("REWRITE") == "1":
        if actual != written:
            path.write_text(actual, encoding="utf-8")
        return
    difference = difflib.unified_diff(
        written.splitlines(), actual.splitlines(), "written", "actual", lineterm=""
    )
    assert actual == written, f"{path.name} differs:\n" + "\n".join(difference)


def _blocks(text: str) -> list[list[str]]:
    blocks = [block.splitlines() for block in text.split("\n\n")]
    return [[line for line in block if line.strip()] for block in blocks if block]


def _run_block(block: list[str], run: Run) -> str:
    end = block.index(_SEPARATOR) if _SEPARATOR in block else len(block)
    head = block[:end]
    commands = [line for line in head if not line.startswith("#")]
    if not commands:
        return "\n".join(head)  # a comment of its own
    assert len(commands) == 1, f"expected one command in a block, got {commands}"
    lines = [line for line in run(Command.parse(commands[0])).splitlines() if line.strip()]
    return "\n".join([*head, _SEPARATOR, *(lines or ["ok"])])
