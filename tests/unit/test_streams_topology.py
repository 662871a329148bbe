"""Topologies: what is refused when they are built and planned, how they are cut into queries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest

from headwater.streams import (
    App,
    Stream,
    TopologyError,
    cogroup,
    f,
    hopping,
    session,
    sliding,
    tumbling,
)
from headwater.streams.expressions import names_read, result_name, written
from headwater.streams.planner import Plan
from headwater.streams.windows import duration, readable


@dataclass
class Order:
    order_id: str
    country: str
    total: float
    at: datetime


@dataclass
class Payment:
    order_id: str
    amount: float
    at: datetime


def shout(text: str) -> str:
    return text.upper()


@pytest.fixture
def app() -> App:
    return App("shop")


@pytest.fixture
def orders(app: App) -> Stream[str, Order]:
    return app.stream("orders", Order, time="at", late="1 minute")


def queries(app: App) -> dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Returns the mode of each query, and the topics that it reads and writes."""
    return {
        each.name: (each.mode, each.topics_read, each.topics_written) for each in app.plan().queries
    }


def refusal(app: App) -> str:
    with pytest.raises(TopologyError) as caught:
        app.plan()
    return str(caught.value)


# Expressions


def test_an_expression_says_what_it_reads_and_what_it_is_called() -> None:
    words = f.explode(f.split(f.lower("value"), " "))
    assert names_read(words) == frozenset({"value"})
    assert written(words) == "explode(split(lower('value'), ' '))"
    total = (f.col("price") * 2 + f.lit(1)).alias("total")
    assert names_read(total) == frozenset({"price"})
    assert result_name(total) == "total"
    assert names_read(f.when(f.col("a") > 1, "text").otherwise(f.col("b.c"))) == frozenset(
        {"a", "b.c"}
    )
    assert names_read(f.struct("x", "y")) == frozenset({"x", "y"})
    assert names_read(f.count("*")) == frozenset()
    assert names_read(f.expr("a + b")) is None


def test_a_function_that_spark_lacks_is_an_error_at_once() -> None:
    with pytest.raises(AttributeError, match=r"did you mean f\.lower"):
        _ = f.lowr  # type: ignore[attr-defined]
    with pytest.raises(TopologyError, match="missing a required argument: 'col'"):
        f.lower()  # type: ignore[call-arg]
    with pytest.raises(TopologyError, match="pass the function to the operator itself"):
        _ = f.udf
    with pytest.raises(TopologyError, match="combine conditions with '&'"):
        bool(f.col("a") > 1)


def test_durations_and_windows() -> None:
    assert duration("1 minute 30 seconds", "x") == timedelta(seconds=90)
    assert duration("200 ms", "x") == timedelta(milliseconds=200)
    assert readable(timedelta(minutes=90)) == "90 minutes"
    assert str(hopping("10 minutes", step="1 minute", grace="5 s")) == (
        "hopping 10 minutes every 1 minute, grace 5 seconds"
    )
    with pytest.raises(TopologyError, match="'soon' is not a duration"):
        tumbling("soon")
    with pytest.raises(TopologyError, match="longer than its size"):
        hopping("1 minute", step="2 minutes")
    with pytest.raises(TopologyError, match="its size is zero"):
        session("0 seconds")


# Names and columns


def test_a_wrong_column_is_refused_where_it_is_written(orders: Stream[str, Order]) -> None:
    with pytest.raises(TopologyError, match="did you mean total") as caught:
        orders.filter(f.col("totl") > 1)
    assert caught.value.place is not None
    assert caught.value.place[0] == __file__
    with pytest.raises(TopologyError, match="there is no column 'city'; orders-1 has order_id"):
        orders.group_by("city")
    with pytest.raises(TopologyError, match="no column 'country'"):
        orders.select("total").group_by("country")
    with pytest.raises(TopologyError, match="no column 'missing'"):
        orders.group_by("country").sum("missing")


def test_a_wrong_time_column_names_the_stream(app: App) -> None:
    with pytest.raises(TopologyError, match="stream orders: time: there is no column 'when'"):
        app.stream("orders", Order, time="when")


def test_a_function_needs_the_type_of_its_result(app: App) -> None:
    lines = app.stream("lines", str)
    with pytest.raises(TopologyError, match=r"annotate .*, or give it as map\(\.\.\., to=TYPE\)"):
        lines.map(lambda line: line.upper())
    assert lines.map(shout).node.value is not None
    assert lines.map(lambda line: len(line), to=int).node.columns == ("value",)


def test_columns_of_a_record_need_names(orders: Stream[str, Order]) -> None:
    with pytest.raises(TopologyError, match=r"upper\('country'\) has no name"):
        orders.select(f.upper("country"))
    with pytest.raises(TopologyError, match="two columns are called total"):
        orders.select("total", total=f.lit(1))


def test_a_type_must_have_the_columns_that_are_selected(orders: Stream[str, Order]) -> None:
    with pytest.raises(TopologyError, match="not those of Payment: country"):
        orders.select("order_id", "at", "country", amount="total", to=Payment)


def test_two_operators_cannot_have_one_name(app: App) -> None:
    lines = app.stream("lines", str)
    lines.filter(f.length("value") > 1, name="long")
    with pytest.raises(TopologyError, match="filter long: another operator has this name"):
        lines.filter(f.length("value") > 2, name="long")


def test_streams_of_two_apps_do_not_mix(app: App) -> None:
    other = App("other").stream("lines", str)
    with pytest.raises(TopologyError, match="belongs to another app"):
        app.stream("lines", str).merge(other)


def test_merged_streams_have_the_same_columns(app: App, orders: Stream[str, Order]) -> None:
    payments = app.stream("payments", Payment)
    with pytest.raises(TopologyError, match="differ in the columns amount, country, total"):
        orders.merge(payments)  # type: ignore[arg-type]


def test_two_streams_are_joined_within_a_time(app: App, orders: Stream[str, Order]) -> None:
    payments = app.stream("payments", Payment, time="at")
    with pytest.raises(TopologyError, match="how far apart"):
        orders.join(payments, on="order_id")
    with pytest.raises(TopologyError, match="how='cross'; expected inner, left"):
        orders.join(payments, on="order_id", within="1 minute", how="cross")
    joined = orders.join(payments, on="order_id", within="1 minute")
    assert joined.node.columns == ("order_id", "country", "total", "at", "amount", "right_at")


def test_final_is_for_windows(orders: Stream[str, Order]) -> None:
    with pytest.raises(TopologyError, match=r"window it first"):
        orders.group_by("country").count().final()


def test_what_final_replaced_cannot_be_used(orders: Stream[str, Order]) -> None:
    early = orders.group_by("country").window(tumbling("1 minute")).count()
    early.final().to("counts")
    with pytest.raises(TopologyError, match="was replaced"):
        early.to("early")


# Plans


def test_stateless_outputs_of_a_topic_are_one_query(app: App) -> None:
    lines = app.stream("lines", str)
    long, short = lines.branch(f.length("value") > 7)
    long.map(shout).to("long")
    short.to("short")
    assert queries(app) == {"long": ("append", ("lines",), ("long", "short"))}


def test_an_aggregation_is_a_query_with_its_changelog(app: App) -> None:
    words = app.stream("lines", str).flat_map(f.explode(f.split("value", " ")))
    words.group_by("value").count(name="counts").to("word-counts")
    assert queries(app) == {
        "counts": ("update", ("lines",), ("word-counts", "shop-counts-changelog"))
    }
    assert [(each.name, each.compacted) for each in app.plan().topics] == [
        ("shop-counts-changelog", True)
    ]


def test_a_left_join_and_a_window_behind_it_are_one_query(
    app: App, orders: Stream[str, Order]
) -> None:
    payments = app.stream("payments", Payment, time="at", late="2 minutes")
    paid = orders.join(payments, on="order_id", within="10 minutes", how="left")
    paid.group_by("country").window(tumbling("5 minutes")).sum("total").final().to("revenue")
    assert queries(app) == {"revenue": ("append", ("orders", "payments"), ("revenue",))}


def test_rows_of_a_join_that_are_used_twice_go_through_a_topic(
    app: App, orders: Stream[str, Order]
) -> None:
    payments = app.stream("payments", Payment, time="at")
    paid = orders.join(payments, on="order_id", within="10 minutes", name="paid")
    paid.to("paid")
    paid.group_by("country").window(tumbling("5 minutes")).sum("total").final().to("revenue")
    cut = "shop-paid-repartition"
    assert queries(app) == {
        "paid": ("append", ("orders", "payments"), ("paid", cut)),
        "revenue": ("append", (cut,), ("revenue",)),
    }
    assert app.plan().queries[1].why == "to-1 reads paid as well"


def test_what_spark_refuses_behind_an_aggregation_is_cut_at_its_changelog(
    app: App, orders: Stream[str, Order]
) -> None:
    by_order = orders.group_by("order_id").max("total", name="by-order")
    by_order.to_stream().group_by("value").count().to("counts")
    assert queries(app) == {
        "by-order": ("update", ("orders",), ("shop-by-order-changelog",)),
        "counts": ("update", ("shop-by-order-changelog",), ("counts",)),
    }


def test_repartition_writes_a_topic(app: App) -> None:
    lines = app.stream("lines", str)
    lines.select_key("value").repartition(6, name="by-line").map(shout).to("out")
    made = app.plan()
    topic = made.topics[0]
    assert (topic.name, topic.partitions) == ("shop-by-line-repartition", 6)
    assert [(each.topics_read, each.topics_written) for each in made.queries] == [
        (("lines",), (topic.name,)),
        ((topic.name,), ("out",)),
    ]


def test_a_table_grouped_anew_is_one_query(app: App) -> None:
    users = app.table("users", Order)
    users.group_by("country").count().to("users-by-country")
    (query,) = app.plan().queries
    assert [node.name for node in query.stateful] == ["group-by-1", "count-1"]
    assert query.mode == "update"


def test_streams_that_meet_in_a_merge_are_one_query(app: App) -> None:
    one, other = app.stream("one", str), app.stream("other", str)
    one.merge(other).map(shout).to("all")
    assert queries(app) == {"all": ("append", ("one", "other"), ("all",))}


def test_cogroup_is_one_aggregation(app: App, orders: Stream[str, Order]) -> None:
    payments = app.stream("payments", Payment)
    both = cogroup(orders=orders.group_by("order_id"), payments=payments.group_by("order_id"))
    both.agg(total=f.sum("orders.total"), paid=f.sum("payments.amount")).to("balance")
    (query,) = app.plan().queries
    assert query.topics_read == ("orders", "payments")
    assert len(query.stateful) == 1


def test_a_record_that_two_queries_read_is_reported_by_one(app: App) -> None:
    lines = app.stream("lines", str)
    lines.to("copy")
    lines.group_by("value").count().to("counts")
    made: Plan = app.plan()
    assert made.owner(lines.node).name == "copy"
    assert all(lines.node in each.evaluated() for each in made.queries)


# Refusals


def test_rows_that_nothing_reads_are_refused(app: App) -> None:
    app.stream("lines", str).to("copy")
    app.stream("other", str).filter(f.length("value") > 1, name="lonely")
    assert refusal(app) == (
        'lonely: nothing reads its rows; add .to("topic"), .foreach(function), or name= if it is a '
        "table"
    )


def test_an_app_that_writes_nothing_is_refused(app: App) -> None:
    app.stream("lines", str)
    assert "it writes nothing" in refusal(app)


@pytest.mark.parametrize("window", [session("1 minute"), sliding("1 minute")])
def test_early_results_of_columns_that_spark_lacks_are_refused(
    app: App, orders: Stream[str, Order], window: object
) -> None:
    orders.group_by("country").window(window).sum("total", name="spent").to("out")  # type: ignore[arg-type]
    assert "spent: Spark has no early results of columns" in refusal(app)
    assert "with Python functions" in refusal(app)


def test_an_aggregation_in_real_time_has_no_dead_letters() -> None:
    app = App("fast", latency="real-time")
    seen = app.stream("seen", str, on_error="continue")
    seen.group_by("value").count(name="times").to("out")
    with pytest.raises(TopologyError) as refused:
        app.plan()
    assert str(refused.value).startswith(
        'times: latency="real-time" is not possible: dead letters beside an aggregation'
    )
    assert str(refused.value).endswith('or the app on_processing_error="continue"')


def test_real_time_says_which_operator_is_in_the_way() -> None:
    app = App("fast", latency="real-time")
    lines = app.stream("lines", str)
    lines.filter(f.length("value") > 1).to("out")
    assert [each.name for each in app.plan().queries] == ["out"]
    lines.map(shout, name="shout").to("loud")
    assert refusal(app).startswith(
        'shout: latency="real-time" is not possible: map shout() is a Python function'
    )


def test_the_plan_is_drawn(app: App, orders: Stream[str, Order]) -> None:
    orders.group_by("country").count(name="counts").to("by-country")
    assert app.describe().splitlines() == [
        "app shop: 1 query, exactly once",
        "",
        "query counts (output mode update)",
        "  orders-1               topic orders  (MicroBatchScan)",
        "  group-by-1             key country  <- orders-1  (projection)",
        "  counts                 [state] aggregate count(lit(1)) = table counts  <- group-by-1  "
        "(aggregation)",
        "  to-1                   topic by-country  <- counts  (one transaction for each "
        "micro-batch)",
        "  shop-counts-changelog  topic shop-counts-changelog  <- counts  (one transaction for "
        "each micro-batch)",
        "",
        "internal topics",
        "  shop-counts-changelog (compacted)",
        "",
        "dead letters: shop.dead-letters",
    ]
