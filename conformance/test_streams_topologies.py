"""Whole topologies on Spark against the same ones of Kafka Streams in its TopologyTestDriver.

Of a table what it has in the end must be equal, of a stream all of its records. Where an operator
takes columns as well as functions of Python, there is a topology of each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from conformance.topologies import (
    START,
    Driven,
    Given,
    Out,
    both,
    drive,
    in_the_end,
    minus,
    one_more,
    plus,
    together,
)
from headwater.streams import (
    App,
    Context,
    Processor,
    Record,
    State,
    Stream,
    Table,
    TopologyTest,
    Window,
    cogroup,
    f,
    hopping,
    session,
    sliding,
    tumbling,
)

_SEEDS = 1  # a batch of Spark takes most of a second
_OUT = "out"

pytestmark = pytest.mark.timeout(600)

Build = Callable[[App], Any]
WAYS: dict[str, list[Build]] = {}  # in which a topology can be written here


def way(name: str) -> Callable[[Build], Build]:
    """Adds one of our topologies to those that are compared with the one of this name."""

    def add(build: Build) -> Build:
        WAYS.setdefault(name, []).append(build)
        return build

    return add


def stream(app: App, topic: str = "a", late: str = "0 seconds") -> Stream[str, str]:
    return app.stream(topic, str, late=late)


def table(app: App, topic: str = "t", **options: Any) -> Table[str, str]:
    return app.table(topic, str, **options)


BOTH = f.concat(
    f.coalesce("value", f.lit("null")), f.lit("+"), f.coalesce("right_value", f.lit("null"))
)


# Without state


@way("map-filter")
def _(app: App) -> None:
    kept = stream(app).filter(f.col("value").isNotNull() & ~f.col("value").startswith("x"))
    kept.with_columns(old=f.col("_key")).select_key("value").map("old").to(_OUT)


@way("map-filter")
def _(app: App) -> None:
    def swapped(record: Record[str, str]) -> Record[str, str]:
        return Record(record.key, key=record.value)

    kept = stream(app).filter(lambda value: not value.startswith("x"))
    kept.map_records(swapped, to=str, key=str).to(_OUT)


@way("merge")
def _(app: App) -> None:
    stream(app).merge(stream(app, "b")).to(_OUT)


@way("branch")
def _(app: App) -> None:
    short, x, rest = stream(app).branch(f.length("value") < 3, f.col("value").startswith("x"))
    short.map(f.concat(f.lit("s"), "value")).to(_OUT)
    x.map(f.concat(f.lit("x"), "value")).to(_OUT)
    rest.map(f.concat(f.lit("r"), "value")).to(_OUT)


@way("branch")
def _(app: App) -> None:
    short, x, rest = stream(app).branch(lambda v: len(v) < 3, lambda v: v.startswith("x"))
    parts = zip((short, x, rest), "sxr", strict=True)
    marked = [part.map(marker(mark), to=str) for part, mark in parts]
    marked[0].merge(*marked[1:]).to(_OUT)


def marker(mark: str) -> Callable[[str], str]:
    return lambda value: mark + value


# Aggregates


@way("flat-map-words-count")
def _(app: App) -> None:
    words = stream(app).flat_map(f.explode(f.split("value", " ")))
    words.group_by("value").count().to(_OUT)


@way("flat-map-words-count")
def _(app: App) -> None:
    words = stream(app).flat_map(str.split, to=str)
    words.group_by(itself).aggregate(0, one_more, to=int).to(_OUT)


def itself(word: str) -> str:
    return word


@way("count")
def _(app: App) -> None:
    stream(app).group_by_key().count().to(_OUT)


@way("count")
def _(app: App) -> None:
    stream(app).group_by_key().aggregate(0, one_more, to=int).to(_OUT)


@way("reduce")
def _(app: App) -> None:
    stream(app).group_by_key().reduce(both).to(_OUT)


@way("sum")
def _(app: App) -> None:
    stream(app).group_by_key().sum(f.col("value").cast("bigint")).to(_OUT)


@way("sum")
def _(app: App) -> None:
    stream(app).group_by_key().aggregate(0, plus, to=int).to(_OUT)


@way("cogroup")
def _(app: App) -> None:
    a, b = stream(app).group_by_key(), stream(app, "b").group_by_key()
    cogroup(a=a, b=b).aggregate(
        "", to=str, a=lambda s, v: f"{s}a{v}", b=lambda s, v: f"{s}b{v}"
    ).to(_OUT)


@way("repartition-count")
def _(app: App) -> None:
    firsts = stream(app).select_key(f.substring("value", 1, 1)).repartition()
    firsts.group_by_key().count().to(_OUT)


@way("count-of-counts")
def _(app: App) -> None:
    counts = stream(app).group_by_key().count()
    counts.to_stream().group_by(f.col("value").cast("string")).count().to(_OUT)


# Windows


def windows(name: str, window: Window, *, final: bool, columns: bool = True) -> None:
    """Adds counts in these windows: of columns, unless Spark lacks them, and of functions."""

    def counted(app: App) -> None:
        table = stream(app).group_by_key().window(window).count()
        (table.final() if final else table).to(_OUT)

    def folded(app: App) -> None:
        grouped = stream(app).group_by_key().window(window)
        table = grouped.aggregate(0, one_more, to=int, merge=together)
        (table.final() if final else table).to(_OUT)

    if columns:
        way(name)(counted)
    way(name)(folded)


for _final in (False, True):
    _more = "-final" if _final else ""
    windows(f"tumbling-count{_more}", tumbling("10 seconds", grace="2 seconds"), final=_final)
    windows(
        f"hopping-count{_more}",
        hopping("10 seconds", step="5 seconds", grace="2 seconds"),
        final=_final,
    )
    windows(
        f"session-count{_more}",
        session("5 seconds", grace="2 seconds"),
        final=_final,
        columns=_final,
    )
    windows(
        f"sliding-count{_more}",
        sliding("5 seconds", grace="2 seconds"),
        final=_final,
        columns=False,
    )


@way("tumbling-reduce")
def _(app: App) -> None:
    grouped = stream(app).group_by_key().window(tumbling("10 seconds", grace="2 seconds"))
    grouped.reduce(both).to(_OUT)


@way("cogroup-tumbling")
def _(app: App) -> None:
    a, b = stream(app).group_by_key(), stream(app, "b").group_by_key()
    groups = cogroup(a=a, b=b).window(tumbling("10 seconds", grace="2 seconds"))
    groups.aggregate("", to=str, a=lambda s, v: f"{s}a{v}", b=lambda s, v: f"{s}b{v}").to(_OUT)


@way("suppress-until-time-limit")
def _(app: App) -> None:
    stream(app).group_by_key().count().suppress(until="5 seconds").to(_OUT)


# Joins of streams


def joins(name: str, how: str, **bounds: Any) -> None:
    def joined(app: App, **options: Any) -> Stream[Any, Any]:
        a, b = stream(app, "a", "2 seconds"), stream(app, "b", "2 seconds")
        return a.join(b, how=how, **(bounds or {"within": "5 seconds"}), **options)

    def combined(app: App) -> None:
        joined(app, combine=both, to=str).to(_OUT)

    way(name)(lambda app: joined(app).map(BOTH).to(_OUT))
    way(name)(combined)


joins("stream-join-inner", "inner")
joins("stream-join-left", "left")
joins("stream-join-right", "right")
joins("stream-join-outer", "outer")
joins("stream-join-after", "inner", before="0 seconds", after="5 seconds")


@way("stream-join-window-final")
def _(app: App) -> None:
    a, b = stream(app, "a", "2 seconds"), stream(app, "b", "2 seconds")
    joined = a.join(b, within="5 seconds").group_by_key()
    joined.window(tumbling("10 seconds", grace="10 seconds")).count().final().to(_OUT)


# Joins with tables


for _how in ("inner", "left"):

    @way(f"stream-table-{_how}")
    def _(app: App, how: str = _how) -> None:
        stream(app).join(table(app), how=how).map(BOTH).to(_OUT)

    @way(f"stream-table-{_how}")
    def _(app: App, how: str = _how) -> None:
        stream(app).join(table(app), how=how, combine=both, to=str).to(_OUT)

    @way(f"stream-global-{_how}")
    def _(app: App, how: str = _how) -> None:
        values = app.global_table("t", str)
        stream(app).join(values, on="value", how=how, combine=both, to=str).to(_OUT)


@way("stream-table-versioned")
def _(app: App) -> None:
    stream(app).join(table(app, versioned="1 hour"), combine=both, to=str).to(_OUT)


for _how in ("inner", "left", "outer"):

    @way(f"table-join-{_how}")
    def _(app: App, how: str = _how) -> None:
        table(app, "s").join(table(app), how=how, combine=both, to=str).to(_OUT)


for _how in ("inner", "left"):
    # The first letter of the one's values is the key of the other.
    @way(f"foreign-key-{_how}")
    def _(app: App, how: str = _how) -> None:
        left = table(app, "s").with_columns(first=f.substring("value", 1, 1))
        joined = left.join(table(app), foreign_key="first", how=how)
        joined.map(BOTH).to(_OUT)


# Tables


@way("table-filter")
def _(app: App) -> None:
    table(app).filter(f.length("value") > 2).to(_OUT)


@way("table-map-values")
def _(app: App) -> None:
    table(app).map(f.upper("value")).to(_OUT)


@way("table-map-values")
def _(app: App) -> None:
    table(app).map(str.upper, to=str).to(_OUT)


@way("to-table")
def _(app: App) -> None:
    stream(app).to_table().map(f.concat("value", f.lit("!"))).to(_OUT)


@way("table-group-count")
def _(app: App) -> None:
    table(app).group_by(f.substring("value", 1, 1)).count().to(_OUT)


def length_key(value: str) -> str:
    return f"n{len(value)}"


LENGTH = f.concat(f.lit("n"), f.length("value"))


@way("table-group-sum")
def _(app: App) -> None:
    table(app).group_by(LENGTH).sum(f.col("value").cast("bigint")).to(_OUT)


@way("table-group-sum")
def _(app: App) -> None:
    table(app).group_by(LENGTH).aggregate(0, plus, minus, to=int).to(_OUT)


def add_texts(one: str, other: str) -> str:
    return str(int(one) + int(other))


def subtract_texts(one: str, other: str) -> str:
    return str(int(one) - int(other))


@way("table-group-reduce")
def _(app: App) -> None:
    table(app).group_by(LENGTH).reduce(add_texts, subtract_texts).to(_OUT)


# Processors


class Silence(Processor[str, str, str]):
    """Counts the records of each key, and says so once a key was silent for five seconds."""

    seen: State[tuple[int, int]]

    def process(self, record: Record[str, str], ctx: Context[str]) -> None:
        assert record.timestamp is not None
        at = record.timestamp
        count, _ = self.seen.get() or (0, 0)
        self.seen.set((count + 1, round(at.timestamp() * 1000)))
        ctx.timer(at + timedelta(seconds=5))

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[str]:
        count, last = self.seen.get() or (0, 0)
        self.seen.clear()
        yield f"{count} {last}"


@way("processor")
def _(app: App) -> None:
    stream(app).process(Silence).to(_OUT)


# Both sides


def ours(build: Build, given: list[list[Given]]) -> list[Out]:
    app = App("driver")
    build(app)
    with TopologyTest(app) as test:
        for batch in given:
            records: list[Any] = [
                Record(
                    None if each.value is None else each.value.encode(),
                    key=each.key,
                    timestamp=START + timedelta(milliseconds=each.at),
                )
                for each in batch
            ]
            test.pipe(batch[0].topic, *records)
        found = []
        for record in test.read(_OUT, key=bytes, value=bytes):
            assert record.timestamp is not None
            value = None if record.value is None else record.value.decode()
            found.append((_key(record.key), value, _milliseconds(record.timestamp)))
        return found


def _key(key: bytes | None) -> str | None:
    if key is None or not key.startswith(b"{"):
        return None if key is None else key.decode()
    parts = json.loads(key)
    first, last = (_milliseconds(datetime.fromisoformat(parts[name])) for name in ("start", "end"))
    return f"{parts['key']}@{first}/{last}"


def _milliseconds(at: datetime) -> int:
    return round((at - START) / timedelta(milliseconds=1))


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Driven]]:
    return drive(WAYS, tmp_path_factory.mktemp("driver"), seeds=_SEEDS)


@pytest.mark.parametrize("name", WAYS)
def test_a_topology_has_the_results_of_kafka_streams(
    driven: dict[str, list[Driven]], name: str
) -> None:
    for seed, each in enumerate(driven[name]):
        expected = in_the_end(name, each.wanted)
        assert expected, "Kafka Streams wrote nothing, so that nothing is compared"
        for way, build in enumerate(WAYS[name]):
            assert in_the_end(name, ours(build, each.given)) == expected, (seed, way)
