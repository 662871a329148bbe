"""Tests of topologies as users write them: records in, records and tables out; no cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

# The tests of the examples run here as well.
from examples.streams.test_cafe import test_an_hour_at_the_cafe
from examples.streams.test_shop import test_a_silent_door_is_told, test_totals_by_country
from examples.streams.test_words import test_words_are_counted_whatever_their_case
from headwater.streams import (
    App,
    Context,
    Processor,
    Record,
    State,
    TopologyError,
    TopologyTest,
    f,
    tumbling,
)
from headwater.streams.running import check_cores
from headwater.testing.plugin import MakeTopologyTest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(600)
AT = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Order:
    product: str
    price: float


def test_records_go_in_and_tables_come_out(headwater_topology: MakeTopologyTest) -> None:
    app = App("shop")
    orders = app.stream(["orders", "old-orders"], Order)
    sums = orders.group_by("product").agg(total=f.sum("price"), name="totals")
    sums.to("totals")
    expensive = orders.filter(f.col("price") > 100).with_headers(why=f.lit("price"))
    expensive.map(lambda order: order.product.upper(), to=str).to("expensive")
    test = headwater_topology(app)
    test.pipe("orders", Order("tea", 2.5), Order("cake", 200.0), key="alice", timestamp=AT)
    assert test.read("expensive") == [
        Record("CAKE", key="alice", timestamp=AT, headers=(("why", b"price"),))
    ]
    assert test.table("totals") == {"tea": {"total": 2.5}, "cake": {"total": 200.0}}
    test.pipe("old-orders", Order("tea", 1.5), timestamp=AT + timedelta(seconds=1))
    assert test.table("totals")["tea"] == {"total": 4.0}
    assert test.values("expensive") == []
    test.pipe("orders", b"{", Order("tea", 1.0))
    (letter,) = test.dead_letters()
    assert letter.value == b"{"
    reason = letter.header("headwater.reason")
    assert reason is not None
    assert b"topic orders, partition 0, offset 2): the value is not JSON" in reason
    assert test.table("totals")["tea"] == {"total": 5.0}
    with pytest.raises(TopologyError, match="the app does not read this topic; it reads orders"):
        test.pipe("order", Order("tea", 1.0))


def test_topics_that_a_pattern_names_and_cuts_are_followed() -> None:
    app = App("counts")
    numbers = app.stream(re.compile("numbers-.*"), int)
    counts = numbers.group_by("value").count()
    counts.to_stream().group_by("value").count().to("how-many")
    with TopologyTest(app) as test:
        test.pipe("numbers-a", 1, 2, 3)
        test.pipe("numbers-b", 3)
        assert len(test.plan.queries) == 2
        # 1 and 2 came once, 3 came once and then twice: updates of a count are records.
        assert test.table("how-many", key=int, value=int) == {1: 3, 2: 1}


@dataclass
class Seen:
    name: str
    at: datetime


class Silence(Processor[str, Seen, str]):
    times: State[int] = State(default=0)

    def process(self, record: Record[str, Seen], ctx: Context[str]) -> None:
        self.times.set(self.times.get(0) + 1)
        ctx.timer(record.value.at + timedelta(minutes=5))

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[str]:
        yield f"{ctx.key} at {at:%H:%M}"


def test_time_advances_without_records_and_state_is_read() -> None:
    app = App("doors")
    seen = app.stream("seen", Seen, time="at", late="10 seconds")
    counts = seen.group_by("name").window(tumbling("1 minute")).count(name="counts")
    counts.final().to("closed")
    seen.process(Silence).to("silent")
    with TopologyTest(app) as test:
        test.advance_to(AT - timedelta(days=1))  # before the first record
        test.pipe("seen", Seen("cellar", AT), Seen("cellar", AT), key="k")
        assert test.values("closed") == test.values("silent") == []
        (kept,) = test.state("silence-1")
        assert (kept.key, kept.value) == ("k", {"times": 2})
        assert [timer.at for timer in kept.timers] == [
            round((AT + timedelta(minutes=5)).timestamp() * 1000)
        ]
        test.advance_to(AT + timedelta(minutes=2))
        (closed,) = test.read("closed", key=bytes, value=int)
        assert closed.value == 2
        assert test.values("silent") == []
        test.advance_to(AT + timedelta(minutes=6))
        assert test.values("silent") == ["k at 00:05"]
        test.pipe("seen", Seen("late", AT))  # the window is closed
        test.advance_to(AT + timedelta(minutes=10))
        assert test.values("closed", value=int) == []
        with pytest.raises(TopologyError, match="no operator of this name has state"):
            test.state("silence")


class Patience(Processor[str, str, str]):
    """Says who has waited for a minute, by the clock, and whose day is over."""

    time = "both"

    def process(self, record: Record[str, str], ctx: Context[str]) -> None:
        ctx.timer(ctx.now + timedelta(minutes=1), "wait", clock="processing")
        ctx.timer(ctx.timestamp + timedelta(days=1), "day", clock="event")

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[str]:
        yield f"{ctx.key}: {ctx.timer_name} until {at:%d %H:%M:%S} at {ctx.now:%H:%M:%S}"


def test_the_clock_of_the_host_advances() -> None:
    app = App("queue", every="1 hour")
    app.stream("arrived", str, late="10 seconds").process(Patience).to("waited")
    with TopologyTest(app) as test:
        test.pipe("arrived", "here", key="ada")
        test.advance_clock("59 seconds")
        assert test.values("waited") == []
        test.pipe("arrived", "here", key="bob")
        test.advance_clock("1 second")
        assert test.values("waited") == ["ada: wait until 01 00:01:00 at 00:01:00"]
        assert test.clock.replace(microsecond=0) == datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
        test.advance_clock(timedelta(minutes=1))
        assert test.values("waited") == ["bob: wait until 01 00:01:59 at 00:02:00"]
        test.advance_to(test.now + timedelta(days=1))
        assert sorted(test.values("waited")) == [
            "ada: day until 02 00:00:00 at 00:02:00",
            "bob: day until 02 00:00:00 at 00:02:00",
        ]


def test_state_of_an_aggregation_is_read() -> None:
    app = App("words")
    app.stream("words", str).group_by("value").count(name="counts")
    with TopologyTest(app) as test:
        test.pipe("words", "to", "be", "to")
        rows = {each.key: each.value for each in test.state("counts")}
        assert set(rows) == {"to", "be"}
        assert 2 in rows["to"].values()


__all__ = [
    "test_a_silent_door_is_told",
    "test_an_hour_at_the_cafe",
    "test_totals_by_country",
    "test_words_are_counted_whatever_their_case",
]


def test_real_time_is_refused_where_tasks_would_wait_for_cores(spark: SparkSession) -> None:
    app = App("fast", latency="real-time")
    app.stream("words", str).map(f.upper("value"), to=str).to("loud")
    cores = spark.sparkContext.defaultParallelism
    check_cores(spark, app.plan(), {"words": cores})
    with pytest.raises(TopologyError, match=rf"each of {cores + 1} tasks, and Spark has {cores}"):
        check_cores(spark, app.plan(), {"words": cores + 1})


@dataclass
class Person:
    name: str
    city: str | None


def test_deletions_pass_through_a_join_by_foreign_key() -> None:
    app = App("people")
    cities = app.table("cities", str)
    people = app.table("people", Person)
    people.join(cities, foreign_key="city", how="left").to("joined")
    people.filter(f.col("name") != "Eve").to("others")
    with TopologyTest(app) as test:
        test.pipe("cities", "Bonn", key="b")
        test.pipe("people", Person("Ada", "b"), key="ada")
        test.pipe("people", Person("Bob", "c"), key="bob")
        test.pipe("people", Person("Eve", "b"))  # a table needs keys
        names = {key: value["name"] for key, value in test.table("joined").items()}
        assert names == {"ada": "Ada", "bob": "Bob"}
        test.pipe("people", None, key="ada")
        test.pipe("cities", None, key="b")
        assert list(test.table("joined")) == ["bob"]
        assert list(test.table("others")) == ["bob"]
        (letter,) = test.dead_letters()
        assert b"key: a table needs one" in (letter.header("headwater.reason") or b"")


def test_a_record_without_a_key_is_no_change_of_a_table_made_of_a_stream() -> None:
    app = App("words")
    app.stream("words", str).to_table().to("latest")
    with TopologyTest(app) as test:
        test.pipe("words", Record("one", key="a"), Record("two"))
        assert test.table("latest") == {"a": "one"}
        (letter,) = test.dead_letters()
        assert letter.value == b"two"
        assert b"the key is null" in (letter.header("headwater.reason") or b"")
