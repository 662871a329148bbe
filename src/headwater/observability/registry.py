"""The metrics of a process, as families of samples that are collected during a scrape.

Counting is done elsewhere, in plain integers. A collector is a function that is called for each
scrape and yields a `Family`, then the samples of that family, then the next family. It does little
between two yields, and yields None after some work without a sample: the reader (`exposition`)
pauses there to let the event loop run, so that a scrape of many thousand partitions never blocks it
for long.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from headwater.observability.histogram import Histogram

Kind = Literal["counter", "gauge", "histogram", "summary"]

_RELEASED_AT_ONCE = 10

_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_NO_NAME = re.compile(r"[^a-zA-Z0-9_]+")


class Family(NamedTuple):
    """The name and the meaning of the samples that follow. A counter's name ends in `_total`."""

    name: str
    kind: Kind
    meaning: str


class Labels:
    """Labels of a sample: values by name, and their text, which is made once."""

    __slots__ = ("text", "values")

    def __init__(self, /, **values: str | int) -> None:  # a client may push a label "self"
        self.values = values
        self.text = ",".join([f'{name}="{_escaped(value)}"' for name, value in values.items()])


def _escaped(value: str | int) -> str | int:
    return value if isinstance(value, int) else value.translate(_ESCAPED)


NO_LABELS = Labels()


class Sample(NamedTuple):
    """The value of a counter or a gauge."""

    labels: Labels
    value: float


class Distribution(NamedTuple):
    """The values of a histogram family."""

    labels: Labels
    histogram: Histogram


@dataclass(frozen=True, slots=True)
class Quantiles:
    """The values of a summary family: what each quantile is, and all values ever. `total` is None
    where it is not known."""

    labels: Labels
    quantiles: tuple[tuple[float, float], ...]
    count: int
    total: float | None


Item = Family | Sample | Distribution | Quantiles | None
Collector = Callable[[], Iterator[Item]]


class Registry:
    """The collectors of a process, in the order in which they were registered."""

    def __init__(self) -> None:
        self._collectors: dict[Collector, str | None] = {}

    def register(self, collector: Collector, *, naming: str | None = None) -> Callable[[], None]:
        """Has a collector read at each scrape, or at those that ask for the names of an exporter;
        returns what ends that."""
        self._collectors[collector] = naming

        def unregister() -> None:
            self._collectors.pop(collector, None)

        return unregister

    def collect(self, naming: str | None = None) -> Iterator[Item]:
        """Yields everything, each family once: samples of a family that another collector has
        already told of are left out, for no reader takes a family in two places. With `naming`
        also what only that exporter has."""
        seen: set[str] = set()
        for collector, only_in in tuple(self._collectors.items()):
            if only_in not in (None, naming):
                continue
            is_new = False
            for item in collector():
                if isinstance(item, Family):
                    is_new = item.name not in seen
                    seen.add(item.name)
                yield item if is_new else None


def release(*lists: list[Any]) -> Iterator[Item]:
    """Empties lists a little at a time: freeing many thousand rows at once takes milliseconds."""
    for each in lists:
        while each:
            del each[-_RELEASED_AT_ONCE:]
            yield None


def metric_name(text: str) -> str:
    """Returns a text as the name of a metric or of a label: lower case, with underscores."""
    name = _NO_NAME.sub("_", text).strip("_").lower()
    return f"_{name}" if not name or name[0].isdigit() else name


def one(name: str, kind: Kind, meaning: str, value: float) -> tuple[Item, Item]:
    """Returns a family with its only sample, which has no labels."""
    return Family(name, kind, meaning), Sample(NO_LABELS, value)
