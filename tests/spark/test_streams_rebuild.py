"""State that is made from the topics of tables, by `headwater streams rebuild`, continues."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from headwater.blocking import Consumer
from headwater.model import TopicPartition
from headwater.streams import App, f, session, tumbling
from headwater.streams.restoring import latest_records, restore
from headwater.streams.running import TopicEnvironment, run_once

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.conftest import Topics

pytestmark = pytest.mark.timeout(900)
AT = datetime(2026, 3, 1, tzinfo=UTC)


@dataclass
class Sale:
    country: str
    total: float
    at: datetime


def add(totals: list[float], sale: Sale) -> list[float]:
    return [*totals, sale.total]


def larger(one: Sale, other: Sale) -> Sale:
    return max(one, other, key=lambda sale: sale.total)


def make() -> App:
    app = App("sold")
    sales = app.stream("sales", Sale, time="at", late="1 hour").group_by("country")
    sales.agg(n=f.count("total"), s=f.sum("total"), last=f.max("at"), name="totals")
    sales.window(tumbling("1 minute")).count(name="minutes")
    sales.aggregate(list, add, to=list[float], name="lists")
    sales.window(session("30 seconds")).reduce(larger, name="visits")
    return app


def sale(country: str, total: float, seconds: int) -> str:
    at = (AT + timedelta(seconds=seconds)).isoformat()
    return json.dumps({"country": country, "total": total, "at": at})


def table(topics: Topics, name: str) -> dict[Any, Any]:
    """Returns the latest value of each key; windows by their ends, in seconds."""
    with Consumer(topics.bootstrap, isolation_level="read_committed") as consumer:
        place = TopicPartition(f"sold-{name}-changelog", 0)
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets(place)[place]
        found: dict[Any, Any] = {}
        while consumer.position(place) < end:
            for each in consumer.poll(timeout_ms=1000):
                assert each.key is not None
                key: Any = each.key.decode()
                if key.startswith("{"):
                    window = json.loads(key)
                    ends = (datetime.fromisoformat(window[end]) for end in ("start", "end"))
                    key = (window["key"], *((at - AT) // timedelta(seconds=1) for at in ends))
                found[key] = None if each.value is None else json.loads(each.value)
        return {key: value for key, value in found.items() if value is not None}


def test_state_from_tables_continues_with_the_same_values(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    topics.create("sales", 2)
    for name in ("totals", "minutes", "lists", "visits"):
        topics.create(f"sold-{name}-changelog", 1, cleanup_policy="compact")
    # Workers find this module, whose functions they run.
    spark.sparkContext.environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    environment = TopicEnvironment(bootstrap=topics.bootstrap, checkpoints=str(tmp_path))
    plan = make().plan()
    topics.write("sales", [sale("at", 1.5, 0), sale("at", 2.5, 10)], partition=0)
    topics.write("sales", [sale("de", 4.0, 70)], partition=1)
    run_once(spark, plan, environment)
    before = {name: table(topics, name) for name in ("totals", "minutes", "lists", "visits")}
    # What was read is gone: the inputs could not be read again.
    topics.delete_records("sales", partition=0, before=2)
    at = {"sales": {"0": 2, "1": 1}}
    stopped = replace(environment, start=at, stop=at)
    topics.write("sales", [sale("at", 8.0, 20), sale("de", 1.0, 140)], partition=0)
    for query in plan.queries:
        shutil.rmtree(environment.checkpoint(query))
        assert restore(spark, plan, query, stopped) == 2
    assert {name: table(topics, name) for name in before} == before  # nothing is written
    topics.grow("sales", 3)
    topics.write("sales", [sale("at", 16.0, 30)], partition=2)
    run_once(spark, plan, environment)
    totals = table(topics, "totals")
    assert {key: (each["n"], each["s"]) for key, each in totals.items()} == {
        "at": (4, 28.0),
        "de": (2, 5.0),
    }
    assert datetime.fromisoformat(totals["at"]["last"]) == AT + timedelta(seconds=30)
    assert table(topics, "minutes") == {
        ("at", 0, 60): 4,
        ("de", 60, 120): 1,
        ("de", 120, 180): 1,
    }
    lists = table(topics, "lists")
    assert {key: each[:2] for key, each in lists.items()} == {"at": [1.5, 2.5], "de": [4.0, 1.0]}
    assert sorted(lists["at"]) == [1.5, 2.5, 8.0, 16.0]
    visits = table(topics, "visits")
    assert {key: each["total"] for key, each in visits.items()} == {
        ("at", 0, 30): 16.0,
        ("de", 70, 70): 4.0,
        ("de", 140, 140): 1.0,
    }


def test_the_last_record_of_a_key_counts_whatever_its_time(spark: SparkSession) -> None:
    """Times of results fall where records come out of order; offsets do not."""
    columns = "key string, partition int, offset long, at int, value string"
    rows = [
        ("restarted", 0, 7, 300, None),  # deleted, and begun again by an older record
        ("restarted", 0, 8, 180, "8"),
        ("deleted", 0, 9, 200, "9"),
        ("deleted", 0, 10, 100, None),
        ("falling", 0, 11, 200, "11"),
        ("falling", 0, 12, 100, "12"),
        ("moved", 0, 90, 100, "90"),  # the topic has grown: its offsets do not compare
        ("moved", 1, 3, 200, "3"),
        (None, 0, 91, 400, "91"),
    ]
    table = spark.createDataFrame(rows, columns).selectExpr(
        "key", "value", "'t' as topic", "partition", "offset", "timestamp_seconds(at) as timestamp",
        "array() as headers",
    )  # fmt: skip
    found = {row.key: row.value for row in latest_records(table).collect()}
    assert found == {"restarted": "8", "falling": "12", "moved": "3"}
