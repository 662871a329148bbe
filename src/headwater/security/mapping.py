"""`ssl.principal.mapping.rules`: the user that a certificate's subject stands for (KIP-371)."""

from __future__ import annotations

import re
from typing import NamedTuple

_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_GROUP = re.compile(r"\\(.)|\$(\d)|\$\{(\w+)\}", re.DOTALL)


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None  # None: the subject itself
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        name = self.pattern.sub(self._replaced, subject)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, found: re.Match[str]) -> str:
        """Returns the replacement in Java's syntax: `$1` is a group, `\\x` is x."""

        def part(of: re.Match[str]) -> str:
            if of[1] is not None:
                return of[1]
            group: int | str = int(of[2]) if of[2] is not None else of[3]
            return found[group] or ""

        return _GROUP.sub(part, self.replacement)


class PrincipalMapping:
    """The rules of one listener, in order; the first that matches decides."""

    __slots__ = ("_rules",)

    def __init__(self, text: str) -> None:
        """Raises ValueError for a rule that cannot be read."""
        self._rules: list[_Rule] = []
        rest = text.strip() or "DEFAULT"
        while rest:
            rule = _RULE.match(rest)
            if rule is None:
                raise ValueError("expected DEFAULT and RULE:pattern/replacement/[LU], with commas")
            self._rules.append(_Rule(None) if rule["default"] else _read(rule))
            rest = rest[rule.end() :].strip()

    def name_of(self, subject: str) -> str | None:
        """Returns the user of a subject, or None if no rule matches."""
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name
        return None


def _read(rule: re.Match[str]) -> _Rule:
    try:
        pattern = re.compile(_in_python(rule["pattern"]))
    except re.error as error:
        raise ValueError(f"{rule['pattern']} is not a regular expression: {error}") from None
    replacement = rule["replacement"]
    for group in _GROUP.finditer(replacement):
        number = group[2]
        if number is not None and int(number) > pattern.groups:
            raise ValueError(f"{replacement} names a group that {rule['pattern']} does not have")
        if group[3] is not None and group[3] not in pattern.groupindex:
            raise ValueError(f"{replacement} names a group that {rule['pattern']} does not have")
    return _Rule(pattern, replacement, rule["case"])


def _in_python(pattern: str) -> str:
    """Returns a pattern of Java's in Python's syntax, where groups are named differently."""
    return re.sub(r"\(\?<(?![=!])", "(?P<", pattern)
