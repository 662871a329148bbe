"""Metrics as text: Prometheus' format, and OpenMetrics.

`render` is read in parts. Each part is the result of a bounded number of steps, whatever the size
of the whole, and between two parts other work goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf, isinf, isnan

from headwater.observability.naming import NAMINGS, has_capitals, lowered
from headwater.observability.registry import (
    Distribution,
    Family,
    Item,
    Labels,
    Quantiles,
    Registry,
    Sample,
)

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

# Items that are read for one part: about a millisecond of work.
STEPS = 200
_TOTAL = "_total"


def accepted(accept: str) -> str:
    """Returns the content type for an Accept header: OpenMetrics for those that prefer it."""
    weights = {"openmetrics": 0.0, "plain": 0.0, "any": 0.0}
    for each in accept.split(","):
        media, *parameters = (part.strip() for part in each.lower().split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        kind = {
            "application/openmetrics-text": "openmetrics",
            "text/plain": "plain",
            "text/*": "plain",
        }.get(media, "any")
        weights[kind] = max(weights[kind], weight)
    is_preferred = weights["openmetrics"] > 0 and weights["openmetrics"] >= weights["plain"]
    return OPENMETRICS if is_preferred else PROMETHEUS


def render(
    registry: Registry, *, openmetrics: bool = False, names: str | None = None, steps: int = STEPS
) -> Iterator[str]:
    """Yields the text of all metrics in parts, each made in `steps` steps; a part may be empty.
    `names` is the exporter whose names they get, one of `NAMINGS`."""
    naming = None if names is None else NAMINGS[names]
    lines: list[str] = []
    name = ""
    is_lowered: bool | None = False  # whether the labels of this family are; None: not known yet
    done = 0
    for item in registry.collect(names):
        if isinstance(item, Family):
            family = item if naming is None else item._replace(name=naming.name(item.name))
            name = family.name
            is_lowered = False if naming is None else None
            lines.append(_head(family, openmetrics=openmetrics))
        elif item is not None:
            if is_lowered is None:
                is_lowered = has_capitals(item.labels)  # as of all samples
            done += _append(lines, name, _lowered(item) if is_lowered else item)
        done += 1
        if done >= steps:
            yield "".join(lines)
            lines.clear()
            done = 0
    if openmetrics:
        lines.append("# EOF\n")
    yield "".join(lines)


def _lowered(item: Sample | Distribution | Quantiles) -> Item:
    labels = lowered(item.labels)
    if isinstance(item, Quantiles):
        return replace(item, labels=labels)
    return item._replace(labels=labels)


def _head(family: Family, *, openmetrics: bool) -> str:
    name, kind = family.name, str(family.kind)
    if kind == "counter" and not name.endswith(_TOTAL):  # by the name of another exporter
        kind = "unknown" if openmetrics else "untyped"
    if openmetrics and kind == "counter":
        name = name.removesuffix(_TOTAL)
    text = family.meaning.replace("\\", "\\\\").replace("\n", "\\n")
    if openmetrics:
        text = text.replace('"', '\\"')
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _append(lines: list[str], name: str, item: Item) -> int:
    """Appends the lines of an item; returns how many there are besides the first."""
    if isinstance(item, Sample):
        labels, value = item
        text = labels.text
        shown = value if isinstance(value, int) else number(value)
        lines.append(f"{name}{{{text}}} {shown}\n" if text else f"{name} {shown}\n")
        return 0
    before = len(lines)
    if isinstance(item, Distribution):
        for bound, count in item.histogram.buckets():
            lines.append(f"{name}_bucket{{{_with(item.labels, 'le', bound)}}} {count}\n")
        _append_sums(lines, name, item.labels, item.histogram.count, item.histogram.total)
    elif isinstance(item, Quantiles):
        for share, value in item.quantiles:
            lines.append(f"{name}{{{_with(item.labels, 'quantile', share)}}} {number(value)}\n")
        _append_sums(lines, name, item.labels, item.count, item.total)
    return len(lines) - before - 1


def _append_sums(
    lines: list[str], name: str, labels: Labels, count: int, total: float | None
) -> None:
    within = f"{{{labels.text}}}" if labels.text else ""
    if total is not None:
        lines.append(f"{name}_sum{within} {number(total)}\n")
    lines.append(f"{name}_count{within} {count}\n")


def _with(labels: Labels, name: str, value: float) -> str:
    own = f'{name}="{number(value)}"'
    return f"{labels.text},{own}" if labels.text else own


def number(value: float) -> str:
    if isinf(value):
        return "+Inf" if value == inf else "-Inf"
    if isnan(value):
        return "NaN"
    return repr(float(value))
