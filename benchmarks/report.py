"""The results of a run as a table, a JSON file and a chart."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.rows import Measurement


@dataclass(frozen=True, slots=True)
class Row:
    """A measurement of both sides; None for a side that failed."""

    other: Measurement | None
    subject: Measurement | None

    @property
    def named(self) -> Measurement:
        found = self.other or self.subject
        assert found is not None
        return found

    @property
    def ratio(self) -> float | None:
        if self.other is None or self.subject is None or not self.other.value:
            return None
        return self.subject.value / self.other.value

    @property
    def holds(self) -> bool | None:
        goal = self.named.goal
        if goal is not None and goal.of_value:
            return goal.holds(self.subject.value) if self.subject is not None else None
        if self.ratio is None or goal is None:
            return None
        return goal.holds(self.ratio)


def rows_of(other: Sequence[Measurement], subject: Sequence[Measurement]) -> list[Row]:
    ours = {each.key: each for each in subject}
    theirs = {each.key: each for each in other}
    return [Row(theirs.get(key), ours.get(key)) for key in dict.fromkeys([*theirs, *ours])]


def merged(runs: Sequence[Measurement]) -> list[Measurement]:
    """Makes one measurement of each row of several runs; its samples are the values of the runs."""
    by_key: dict[str, list[Measurement]] = {}
    for each in runs:
        by_key.setdefault(each.key, []).append(each)
    return [
        replace(found[0], samples=tuple(each.value for each in found)) if found[1:] else found[0]
        for found in by_key.values()
    ]


def spread(rows: Sequence[Row], other: str, subject: str) -> str:
    """The lowest and the highest sample of each side, of rows that have several."""
    lines = []
    for row in rows:
        for name, side in ((other, row.other), (subject, row.subject)):
            if side is not None and side.samples[1:]:
                low, high = _number(min(side.samples)), _number(max(side.samples))
                count = len(side.samples)
                lines.append(f"{side.what}, {name}: {low} to {high} {side.unit} ({count})")
    return "\n".join(lines)


def table(rows: Sequence[Row], other: str, subject: str) -> str:
    cells = [("", "unit", other, subject, "ratio", "goal", "")]
    for row in rows:
        goal = row.named.goal
        mark = {True: "✓", False: "✗", None: ""}[row.holds]
        cells.append(
            (
                row.named.what,
                row.named.unit,
                _number(row.other.value if row.other else None),
                _number(row.subject.value if row.subject else None),
                f"{row.ratio:.2f}" if row.ratio is not None else "-",
                str(goal) if goal else "",
                mark,
            )
        )
    widths = [max(len(line[column]) for line in cells) for column in range(7)]
    lines = []
    for line in cells:
        left = f"{line[0]:<{widths[0]}}  {line[1]:<{widths[1]}}"
        rest = (f"{text:>{width}}" for text, width in zip(line[2:], widths[2:], strict=True))
        lines.append("  ".join([left, *rest]).rstrip())
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join(lines)


# The rows that README has, by their names there.
HEADLINES = {
    "start to first acknowledged produce": "start",
    "resident memory under load": "memory.load",
    "one-record requests/s, librdkafka": "requests.librdkafka",
    "produce 100 B, ProducerPerformance": "produce.100.none.records",
    "consume 100 B, ConsumerPerformance": "consume.100.java",
    "restart to first acknowledgement after kill -9, 1 GB of log": "restart.kill",
}


# Says below the table's heading how the figures were measured.
_MEASURED = re.compile(r"Each figure is [^.]*\.")


def with_headlines(document: str, rows: Sequence[Row]) -> str:
    """Returns a Markdown document whose rows of HEADLINES have these medians, each with the lowest
    and the highest sample. Rows that were not measured on both sides stay as they are; if all were
    measured, the document also says how often."""
    by_key = {row.named.key: row for row in rows if row.ratio is not None}
    sides = [by_key[key] for key in HEADLINES.values() if key in by_key]
    if len(sides) == len(HEADLINES):
        runs = min(len(side.samples) for row in sides for side in (row.other, row.subject) if side)
        how = f"the median of {runs} runs, with the lowest and highest in parentheses"
        document = _MEASURED.sub(f"Each figure is {how if runs > 1 else 'from one run'}.", document)
    lines = document.split("\n")
    for at, line in enumerate(lines):
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) < 2 or (key := HEADLINES.get(cells[1])) not in by_key:
            continue
        row = by_key[key]
        assert row.other is not None
        assert row.subject is not None
        assert row.ratio is not None
        ratio = f"{row.ratio:.2f}" if row.ratio < 1 else f"{row.ratio:.1f}"
        lines[at] = f"| {cells[1]} | {_cell(row.other)} | {_cell(row.subject)} | {ratio}× |"  # noqa: RUF001
    return "\n".join(lines)


def _cell(side: Measurement) -> str:
    unit = "" if side.unit in ("requests/s", "times") else f" {side.unit}"
    if not side.samples[1:]:
        return f"{_rounded(side.value)}{unit}"
    low, high = _rounded(min(side.samples)), _rounded(max(side.samples))
    return f"{_rounded(side.value)}{unit} ({low} to {high})"


def _rounded(value: float) -> str:
    """Three digits from ten on and two below: more would be noise."""
    digits = 3 if value >= 10 else 2
    decimals = 0 if value >= 100 else 1 if value >= 1 else 2
    return f"{float(f'{value:.{digits}g}'):,.{decimals}f}"


def save(rows: Sequence[Row], folder: Path, facts: dict[str, Any]) -> Path:
    """Writes all samples of the run and the facts needed to interpret them."""
    folder.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = folder / f"{now:%Y%m%d-%H%M%S}.json"
    content = {
        "at": now.isoformat(timespec="seconds"),
        "machine": {
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "processor": _processor(),
            "python": platform.python_version(),
        },
        **facts,
        "rows": [
            {
                "key": row.named.key,
                "what": row.named.what,
                "unit": row.named.unit,
                "other": list(row.other.samples) if row.other else None,
                "subject": list(row.subject.samples) if row.subject else None,
                "ratio": row.ratio,
                "goal": str(row.named.goal) if row.named.goal else None,
                "holds": row.holds,
            }
            for row in rows
        ],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    return path


def plot(rows: Sequence[Row], path: Path, subject: str) -> None:
    """Draws how many times better (to the right) or worse than Kafka each row is."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "matplotlib"], check=True)
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    drawn = [row for row in rows if row.ratio]
    better = [
        row.ratio if row.named.more_is_better else 1 / row.ratio for row in drawn if row.ratio
    ]
    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.28 * len(drawn)))
    names = [f"{row.named.what} ({row.named.unit})" for row in drawn]
    axes.barh(names, better, color=["#2a7f62" if each >= 1 else "#b5483a" for each in better])
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=0.8)
    axes.invert_yaxis()
    axes.set_xlabel(f"times better than Apache Kafka ({subject}, same machine, same clients)")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
