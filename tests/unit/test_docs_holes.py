"""The page about old holes names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/internals/security.md").read_text()


def test_every_test_that_the_page_names_exists() -> None:
    named = 0
    for line in PAGE.splitlines():
        path = ""
        for text in re.findall(r"`((?:tests/[\w/.]+)?::test_\w+)`", line):
            file, _, name = text.partition("::")
            path = file or path
            assert f"def {name}(" in (ROOT / path).read_text(), text
            named += 1
    assert named >= 20


def test_each_hole_that_applies_has_a_test() -> None:
    applies, _, _ = PAGE.partition("What does not apply:")
    holes = [line for line in applies.splitlines() if line.startswith("| CVE-")]
    assert len(holes) >= 15
    assert all("::test_" in line for line in holes)
