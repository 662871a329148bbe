"""Java's `.properties` format, used by server.properties files."""

from __future__ import annotations

import re

_NATURAL_BLANKS = " \t\f"
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.|$)", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """Parses the text of a file; the last value of a repeated key counts."""
    properties: dict[str, str] = {}
    for line in _logical_lines(text):
        key_end = _key_end(line)
        rest = line[key_end:].lstrip(_NATURAL_BLANKS)
        if rest[:1] in ("=", ":"):
            rest = rest[1:].lstrip(_NATURAL_BLANKS)
        properties[_unescape(line[:key_end])] = _unescape(rest)
    return properties


def _logical_lines(text: str) -> list[str]:
    """Yields lines without comments and blank lines; lines ending in a backslash are joined."""
    lines: list[str] = []
    carried: str | None = None
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(_NATURAL_BLANKS)
        if not carried and (not line or line[0] in "#!"):
            carried = None
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        carried = (carried or "") + (line[:-1] if continues else line)
        if not continues:
            if carried:
                lines.append(carried)
            carried = None
    if carried:
        lines.append(carried)
    return lines


def _key_end(line: str) -> int:
    position = 0
    while position < len(line):
        if line[position] == "\\":
            position += 1
        elif line[position] in "=:" + _NATURAL_BLANKS:
            return position
        position += 1
    return len(line)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_escaped, text) if "\\" in text else text


def _escaped(match: re.Match[str]) -> str:
    escape = match[1]
    if escape == "u":
        raise ValueError(rf"\u without four hexadecimal digits in {match.string!r}")
    if len(escape) == 5:
        return chr(int(escape[1:], 16))
    return _LETTERS.get(escape, escape)
