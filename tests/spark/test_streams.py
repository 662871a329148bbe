"""An app with all kinds of operators, run on Spark: what each of its topics has.

All of it runs once, in the fixture `shop`; each test makes one claim about the results.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from headwater.streams import (
    App,
    Context,
    Processor,
    Record,
    State,
    TopologyError,
    TopologyTest,
    cogroup,
    f,
    session,
    tumbling,
)
from headwater.streams.running import TopicEnvironment, prepare

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


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


@dataclass
class Reading:
    sensor: str
    at: datetime


@dataclass
class Alarm:
    sensor: str
    last: datetime


@dataclass
class User:
    name: str
    city: str


@dataclass
class City:
    country: str


class Silence(Processor[str, Reading, Alarm]):
    last: State[datetime]

    def process(self, record: Record[str, Reading], ctx: Context[str]) -> None:
        self.last.set(record.value.at)
        ctx.timer(record.value.at + timedelta(minutes=5))

    def on_timer(self, at: datetime, ctx: Context[str]) -> Iterator[Alarm]:
        last = self.last.get()
        assert last is not None
        yield Alarm(ctx.key, last)


def shout(line: str) -> str:
    if line == "boom":
        raise ValueError("too loud")
    return line.upper()


def words_of(line: str) -> Iterator[str]:
    yield from line.split()


def swap(record: Record[str, str]) -> list[Record[str, str]]:
    headers = [*(record.headers or ()), ("was", record.key.encode())]
    return [Record(record.key, key=record.value, headers=headers)]


def longest(one: str, other: str) -> str:
    return max(one, other, key=len)


def add_length(total: int, line: str) -> int:
    return total + len(line)


def add_order(total: float, order: Order) -> float:
    return total + order.total


def take_payment(total: float, payment: Payment) -> float:
    return total - payment.amount


def make_shop() -> App:
    app = App("shop")
    lines = app.stream("lines", str)
    # The example of the documentation.
    words = lines.flat_map(f.explode(f.split(f.lower("value"), " ")))
    counts = words.group_by("value").count(name="counts")
    counts.to("word-counts")
    orders = app.stream("orders", Order, time="at", late="1 minute")
    payments = app.stream("payments", Payment, time="at", late="1 minute")
    paid = orders.join(payments, on="order_id", within="10 minutes", how="left")
    paid.group_by("country").window(tumbling("5 minutes")).sum("total").final().to("revenue")
    readings = app.stream("readings", Reading, time="at", late="10 seconds")
    readings.process(Silence).to("alarms")
    # Without state: columns and functions, several outputs of one topic.
    short, rest = lines.branch(f.length("value") < 5)
    short.map(shout, name="shout").to("loud")
    rest.flat_map(words_of).filter(lambda word: len(word) > 3).to("words")
    rest.map_records(swap, to=str).to("swapped")
    lines.with_headers(length=f.length("value")).to(f.concat(f.lit("by-"), f.col("_key")))
    lines.to(lambda record: f"also-by-{record.key}")
    lines.map(f.upper("value")).merge(app.stream("more-lines", str)).to("merged")
    # Tables.
    users = app.table("users", User)
    cities = app.table("cities", City)
    users.join(cities, foreign_key="city", name="homes").to("user-countries")
    users.group_by("city").count(name="inhabitants").to("inhabitants")
    users.filter(f.col("city") != "Bonn").to("not-in-bonn")
    users.filter(lambda user: user.city == "Bonn").to("in-bonn")
    visits = app.stream("visits", int)
    visits.join(users, how="left").to("visits-of")
    named = app.global_table("cities", City)
    users.to_stream().join(named, on="city", name="looked-up").to("user-cities")
    # Aggregates of functions, sessions, groups of several streams.
    grouped = lines.group_by_key()
    grouped.reduce(longest, name="longest").to("longest-lines")
    grouped.aggregate(0, add_length, to=int, name="lengths").to("line-lengths")
    readings.group_by("sensor").window(session("1 minute")).count().final().to("sessions")
    both = cogroup(orders=orders.group_by("order_id"), payments=payments.group_by("order_id"))
    both.agg(due=f.sum("orders.total"), paid=f.sum("payments.amount"), name="dues").to("dues")
    both.aggregate(0.0, to=float, orders=add_order, payments=take_payment, name="open").to("open")
    app.sql("SELECT _key, upper(value) AS value FROM l", l=lines, stateful=False).to("from-sql")
    return app


BASE = datetime(2026, 1, 1, tzinfo=UTC)


def at(minutes: float) -> str:
    return (BASE + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")


INPUTS: dict[str, list[tuple[str | None, Any]]] = {
    "cities": [("Bonn", {"country": "DE"}), ("Lyon", {"country": "FR"})],
    "lines": [
        ("a", "to be or not to be"),
        ("b", "boom"),
        ("a", "be"),
        ("b", b"\xff\xfe"),
        ("b", "question"),
    ],
    "more-lines": [("c", "another line")],
    "orders": [
        ("x", {"order_id": "1", "country": "DE", "total": 10.0, "at": at(0)}),
        ("x", {"order_id": "2", "country": "DE", "total": 20.0, "at": at(1)}),
        ("x", {"order_id": "3", "country": "FR", "total": 30.0, "at": at(2)}),
        ("x", {"order_id": "4", "country": "FR", "total": "much", "at": at(2)}),
        ("x", {"country": "FR", "total": 1.0, "at": at(2)}),
        ("x", {"order_id": "9", "country": "DE", "total": 90.0, "at": at(60)}),
    ],
    "payments": [
        ("x", {"order_id": "1", "amount": 10.0, "at": at(7)}),
        ("x", {"order_id": "3", "amount": 15.0, "at": at(1)}),
        ("x", {"order_id": "9", "amount": 15.0, "at": at(60)}),
    ],
    "readings": [
        ("s1", {"sensor": "s1", "at": at(0)}),
        ("s1", {"sensor": "s1", "at": at(0.5)}),
        ("s1", {"sensor": "s1", "at": at(4)}),
        ("s2", {"sensor": "s2", "at": at(30)}),
    ],
    "users": [
        ("u1", {"name": "Ada", "city": "Bonn"}),
        ("u2", {"name": "Bob", "city": "Lyon"}),
        ("u3", {"name": "Cid", "city": "Bonn"}),
        ("u3", None),
    ],
    "visits": [("u1", 1), ("u2", 2), ("nobody", 3)],
}

Found = list[tuple[str | None, Any, dict[str, str]]]


@dataclass
class Shop:
    """Returns the output as a program that knows nothing of the app reads it."""

    test: TopologyTest
    _known: dict[str, Found] = field(default_factory=dict)

    def records(self, topic: str) -> Found:
        """Returns keys, values and headers of a topic."""
        if topic not in self._known:
            self._known[topic] = [
                (
                    None if each.key is None else each.key.decode(),
                    None if each.value is None else _plain(each.value),
                    {name: (data or b"").decode() for name, data in each.headers or ()},
                )
                for each in self.test.read(topic, key=bytes, value=bytes)
            ]
        return self._known[topic]

    def pairs(self, topic: str) -> list[tuple[Any, Any]]:
        return sorted(((key, value) for key, value, _ in self.records(topic)), key=repr)

    def table(self, topic: str) -> dict[Any, Any]:
        """Returns the latest value of each key."""
        found = {key: value for key, value, _ in self.records(topic)}
        return {key: value for key, value in found.items() if value is not None}


def _plain(value: bytes) -> Any:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return value
    return json.loads(text) if text.startswith("{") else text


def encoded(value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    return (json.dumps(value) if isinstance(value, dict) else str(value)).encode()


@pytest.fixture(scope="module")
def shop(spark: SparkSession) -> Iterator[Shop]:
    with TopologyTest(make_shop(), spark=spark) as test:
        for topic, records in INPUTS.items():
            found: list[Any] = [Record(encoded(value), key=key) for key, value in records]
            test.pipe(topic, *found)
        yield Shop(test)


# The tests here wait for the fixture, which starts a dozen queries on a machine that may be busy.
pytestmark = pytest.mark.timeout(900)


def test_words_are_counted_and_the_named_table_is_a_topic(shop: Shop) -> None:
    expected = {"to": "2", "be": "3", "or": "1", "not": "1", "boom": "1", "question": "1"}
    assert shop.table("word-counts") == expected
    assert shop.table("shop-counts-changelog") == expected


def test_a_left_join_and_final_windows(shop: Shop) -> None:
    # An order counts in the window of the later of its two times, as in Kafka Streams.
    found = {
        (key["key"], key["start"][11:16]): value
        for key, value in ((json.loads(k), v) for k, v, _ in shop.records("revenue") if k)
    }
    assert found == {("DE", "00:00"): "20.0", ("DE", "00:05"): "10.0", ("FR", "00:00"): "30.0"}


def test_a_processor_fires_its_timers(shop: Shop) -> None:
    ((key, alarm),) = shop.pairs("alarms")
    assert key == "s1"
    assert alarm["sensor"] == "s1"
    assert alarm["last"].startswith("2026-01-01T00:04:00")


def test_functions_and_columns_without_state(shop: Shop) -> None:
    assert shop.pairs("loud") == [("a", "BE")]
    assert shop.pairs("words") == [("b", "question")]
    assert [(key, value, each["was"]) for key, value, each in shop.records("swapped")] == [
        ("to be or not to be", "a", "a"),
        ("question", "b", "b"),
    ]
    assert shop.pairs("from-sql")[0] == ("a", "BE")


def test_a_column_or_a_function_chooses_the_topic(shop: Shop) -> None:
    found = shop.records("by-a")
    assert [(value, headers["length"]) for _, value, headers in found] == [
        ("to be or not to be", "18"),
        ("be", "2"),
    ]
    assert shop.pairs("also-by-b") == [("b", "boom"), ("b", "question")]


def test_merged_streams_are_one(shop: Shop) -> None:
    assert shop.pairs("merged") == [
        ("a", "BE"),
        ("a", "TO BE OR NOT TO BE"),
        ("b", "BOOM"),
        ("b", "QUESTION"),
        ("c", "another line"),
    ]


def test_records_that_fail_are_dead_letters_once(shop: Shop) -> None:
    letters = {
        (headers["headwater.topic"], headers["headwater.offset"]): headers
        for _, _, headers in shop.records("shop.dead-letters")
    }
    assert len(letters) == len(shop.records("shop.dead-letters"))
    reasons = {place: headers["headwater.reason"] for place, headers in letters.items()}
    orders = "operator orders-1 (topic orders, partition 0, offset"
    assert reasons == {
        ("lines", "1"): "operator shout (topic lines, partition 0, offset 1): ValueError: too loud",
        ("lines", "3"): "operator lines-1 (topic lines, partition 0, offset 3): the value is not "
        "UTF-8 text",
        ("orders", "3"): f"{orders} 3): the value is JSON, but does not fit Order: "
        + json.dumps(INPUTS["orders"][3][1])[:80],
        ("orders", "4"): f"{orders} 4): field order_id is missing",
    }
    failed = letters["lines", "1"]
    assert failed["headwater.operator"] == "shout"
    assert 'raise ValueError("too loud")' in failed["headwater.traceback"]


def test_tables_are_joined_by_a_foreign_key(shop: Shop) -> None:
    assert shop.table("user-countries") == {
        "u1": {"name": "Ada", "city": "Bonn", "country": "DE"},
        "u2": {"name": "Bob", "city": "Lyon", "country": "FR"},
    }


def test_a_stream_is_joined_with_a_global_table(shop: Shop) -> None:
    assert shop.pairs("user-cities") == [
        ("u1", {"name": "Ada", "city": "Bonn", "country": "DE"}),
        ("u2", {"name": "Bob", "city": "Lyon", "country": "FR"}),
        ("u3", {"name": "Cid", "city": "Bonn", "country": "DE"}),
    ]


def test_a_table_is_grouped_anew(shop: Shop) -> None:
    assert shop.table("inhabitants") == {"Bonn": "1", "Lyon": "1"}


def test_what_a_table_filters_out_is_deleted(shop: Shop) -> None:
    assert shop.table("not-in-bonn") == {"u2": {"name": "Bob", "city": "Lyon"}}
    assert ("u1", None) in shop.pairs("not-in-bonn")
    assert shop.table("in-bonn") == {"u1": {"name": "Ada", "city": "Bonn"}}
    assert ("u2", None) in shop.pairs("in-bonn")


def test_a_stream_is_joined_with_a_table(shop: Shop) -> None:
    found = shop.table("visits-of")
    assert found["nobody"] == {"value": 3}
    assert set(found) == {"u1", "u2", "nobody"}


def test_functions_of_python_aggregate(shop: Shop) -> None:
    assert shop.table("longest-lines") == {"a": "to be or not to be", "b": "question"}
    assert shop.table("line-lengths") == {"a": "20", "b": "12"}


def test_sessions_close(shop: Shop) -> None:
    keys = [json.loads(key) for key, _, _ in shop.records("sessions") if key]
    counts = [value for _, value, _ in shop.records("sessions")]
    spans = [(key["start"][11:19], key["end"][11:19]) for key in keys]
    assert sorted(zip(spans, counts, strict=True)) == [
        (("00:00:00", "00:00:30"), "2"),  # with its last record, as in Kafka Streams
        (("00:04:00", "00:04:00"), "1"),
    ]


def test_streams_are_grouped_together(shop: Shop) -> None:
    assert shop.table("dues") == {
        "1": {"due": 10.0, "paid": 10.0},
        "2": {"due": 20.0},
        "3": {"due": 30.0, "paid": 15.0},
        "9": {"due": 90.0, "paid": 15.0},
    }
    assert shop.table("open") == {"1": "0.0", "2": "20.0", "3": "15.0", "9": "75.0"}


# What Spark alone can find is said before any query starts


def preparing(spark: SparkSession, app: App, folder: Path) -> str:
    environment = TopicEnvironment(bootstrap="localhost:1", checkpoints=str(folder))
    with pytest.raises(TopologyError) as caught:
        prepare(spark, app.plan(), _Empty(environment))
    return str(caught.value)


@dataclass
class _Empty:
    """Reads nothing, for queries that are only prepared."""

    environment: TopicEnvironment

    def read(self, spark: SparkSession, source: Any, query: Any) -> DataFrame:
        from pyspark.sql import functions as g

        from headwater.streams.columns import HEADERS_TYPE

        rate = spark.readStream.format("rate").load()
        return rate.select(
            g.lit(b"").alias("key"),
            g.lit(b"").alias("value"),
            g.lit("t").alias("topic"),
            g.lit(0).alias("partition"),
            g.col("value").cast("long").alias("offset"),
            g.col("timestamp"),
            g.array().cast(HEADERS_TYPE).alias("headers"),
        )

    def writer(self, query: Any) -> Any:
        return self.environment.writer(query)

    def copies(self, source: Any) -> Any:
        return self.environment.copies(source)

    def sink_options(self, query: Any) -> Any:
        return self.environment.sink_options(query)

    def checkpoint(self, query: Any) -> str:
        return self.environment.checkpoint(query)


def test_keys_of_two_types_are_not_joined(spark: SparkSession, tmp_path: Path) -> None:
    app = App("mixed")
    one = app.stream("one", int)
    other = app.stream("other", str)
    one.select_key("value").join(other.select_key("value"), within="1 minute", name="both").to(
        "out"
    )
    assert preparing(spark, app, tmp_path) == (
        "both: the key is bigint in select-key-1 and string in select-key-2; give both the same "
        "type, or cast one before the join"
    )


def test_columns_of_another_type_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    app = App("mixed")
    app.stream("orders", Order).select("country", name="picked").map(
        f.col("country"), to=int, name="number"
    ).to("out")
    assert preparing(spark, app, tmp_path).startswith(
        "number: column value is string, and int has bigint; cast the column"
    )
