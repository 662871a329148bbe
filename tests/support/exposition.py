"""A strict reader of what Prometheus scrapes: refuses whatever the formats do not allow."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
_SAMPLE = re.compile(rf"({_NAME})(?:\{{(.*)\}})? (-?[0-9.e+-]+|NaN|[+-]Inf)")
_SUFFIXES = {
    "counter": ("",),
    "gauge": ("",),
    "untyped": ("",),
    "unknown": ("",),
    "summary": ("", "_sum", "_count"),
    "histogram": ("_bucket", "_sum", "_count"),
}

Labels = tuple[tuple[str, str], ...]


@dataclass
class ScrapedFamily:
    name: str
    kind: str
    meaning: str
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)  # by name and labels

    def value(self, **labels: str) -> float:
        """Returns the value of the only sample with these labels and perhaps others."""
        found = [
            value
            for (name, pairs), value in self.samples.items()
            if name == self.name and labels.items() <= dict(pairs).items()
        ]
        assert len(found) == 1, f"{len(found)} samples of {self.name} have {labels}"
        return found[0]


def parse(text: str, *, openmetrics: bool = False) -> dict[str, ScrapedFamily]:
    """Returns the families by the names that their samples have."""
    assert text.endswith("\n"), "the last line has no end"
    lines = text.split("\n")[:-1]
    if openmetrics:
        assert lines.pop() == "# EOF", "no # EOF at the end"
    families: dict[str, ScrapedFamily] = {}
    current: ScrapedFamily | None = None
    meaning: tuple[str, str] | None = None
    for line in lines:
        if line.startswith("# HELP "):
            name, _, text_ = line[len("# HELP ") :].partition(" ")
            assert text_, f"no meaning: {line}"
            meaning = name, text_
        elif line.startswith("# TYPE "):
            name, kind = line[len("# TYPE ") :].split(" ")
            assert re.fullmatch(_NAME, name), f"no name: {line}"
            assert kind in _SUFFIXES, f"no kind: {line}"
            assert kind != ("untyped" if openmetrics else "unknown"), f"of the other format: {line}"
            assert meaning is not None, f"no HELP before {line}"
            assert meaning[0] == name, f"{meaning} before {line}"
            if kind == "counter":
                assert name.endswith("_total") is not openmetrics, f"a counter: {line}"
                name = name if name.endswith("_total") else f"{name}_total"
            assert name not in families, f"twice: {line}"
            current = families[name] = ScrapedFamily(name, kind, meaning[1])
            meaning = None
        else:
            assert current is not None, f"no family: {line}"
            _add(current, line)
    for family in families.values():
        _check(family)
    return families


def _add(family: ScrapedFamily, line: str) -> None:
    match = _SAMPLE.fullmatch(line)
    assert match is not None, f"malformed: {line!r}"
    name, within, value = match.groups()
    suffix = name.removeprefix(family.name)
    assert name.startswith(family.name), f"{line} within {family.name}"
    assert suffix in _SUFFIXES[family.kind], f"{line} within {family.name}"
    pairs: list[tuple[str, str]] = []
    position = 0
    while within and position < len(within):
        label = _LABEL.match(within, position)
        assert label is not None, f"malformed labels: {line}"
        pairs.append((label[1], label[2]))
        position = label.end()
    assert len({name for name, _ in pairs}) == len(pairs), f"a label is there twice: {line}"
    key = name, tuple(pairs)
    assert key not in family.samples, f"twice: {line}"
    family.samples[key] = float(value.replace("Inf", "inf"))


def _check(family: ScrapedFamily) -> None:
    """Checks that each histogram is one: buckets that grow, up to the count."""
    if family.kind == "counter":
        assert all(value >= 0 for value in family.samples.values()), f"below zero: {family}"
    if family.kind != "histogram":
        return
    before: dict[Labels, tuple[float, float]] = {}
    for (name, pairs), value in family.samples.items():
        if name.endswith("_bucket"):
            own = tuple(pair for pair in pairs if pair[0] != "le")
            bound = float(dict(pairs)["le"].replace("Inf", "inf"))
            low = before.get(own, (float("-inf"), 0.0))
            assert bound > low[0], f"buckets of {family.name} are not in order"
            assert value >= low[1], f"buckets of {family.name} are not in order"
            before[own] = bound, value
        elif name.endswith("_count"):
            assert before[pairs] == (float("inf"), value), f"{family.name}{pairs} has lost some"
