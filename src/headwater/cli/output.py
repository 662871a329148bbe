"""What commands print: tables for people, JSON for programs."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence


def add_output_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="text for people (default), json for programs",
    )


def print_json(value: object) -> None:
    import json

    print(json.dumps(value, indent=2))


def print_outcome(text: str, *, is_done: bool) -> None:
    """What came of one of many things. What was not done is for the person, not for the pipe."""
    print(text, file=sys.stdout if is_done else sys.stderr)


def print_fields(fields: Mapping[str, object], *, output: str) -> None:
    """Names and values, one a line."""
    if output == "json":
        print_json(dict(fields))
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {value}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, output: str) -> None:
    """Rows under their columns; numbers stand to the right."""
    kept = [list(row) for row in rows]
    if output == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in kept])
        return
    texts = [[str(cell) for cell in row] for row in kept]
    widths = [max(map(len, cells)) for cells in zip(columns, *texts, strict=True)]
    print("  ".join(f"{name:<{w}}" for name, w in zip(columns, widths, strict=True)).rstrip())
    for row, text in zip(kept, texts, strict=True):
        cells = [
            f"{cell:>{width}}" if isinstance(value, int) else f"{cell:<{width}}"
            for value, cell, width in zip(row, text, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())
