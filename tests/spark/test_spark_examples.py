"""The examples of the pages about Spark run, and do what the pages say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.cli.pipeline_file import PipelineFile
from headwater.spark.pipeline_query import Setting, start
from tests.conftest import MakeBroker
from tests.spark.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(400)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ORDERS = [
    {"id": 1, "customer": "Ada", "product": "tea", "price": 2.5, "at": "2026-03-01T08:00:01Z"},
    {"id": 2, "customer": "Ada", "product": "tea", "price": 1.5, "at": "2026-03-01T08:00:02Z"},
    {"id": 3, "customer": "Bob", "product": "cake", "price": 0, "at": "2026-03-01T08:00:09Z"},
]


@pytest.fixture
def orders(make_broker: MakeBroker) -> Topics:
    topics = Topics(make_broker().bootstrap)
    topics.create("orders", 2)
    topics.write("orders", [json.dumps(order) for order in ORDERS])
    return topics


def values(topics: Topics, name: str) -> list[dict[str, Any]]:
    return [json.loads(value) for value in topics.read(name, 1)]


def test_the_program_totals_and_copies_orders(orders: Topics, tmp_path: Path) -> None:
    for name in ("order-totals", "orders-copy", "orders-stored", "order-counts"):
        orders.create(name)
    program = [sys.executable, str(EXAMPLES / "spark_program.py"), orders.bootstrap, str(tmp_path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "|     Ada|  4.0|" in done.stdout
    assert values(orders, "order-totals") == [
        {"customer": "Ada", "spent": 4.0},
        {"customer": "Bob", "spent": 0.0},
    ]
    assert [each["id"] for each in values(orders, "orders-copy")] == [1, 2, 3]
    assert [each["id"] for each in values(orders, "orders-stored")] == [1, 2, 3]
    assert sorted(str(each["customer"]) for each in values(orders, "order-counts")) == [
        "Ada",
        "Bob",
    ]


@pytest.mark.parametrize(
    ("file", "to", "expected"),
    [
        (
            "totals.sql",
            "totals",
            [
                {"customer": "Ada", "orders": 2, "spent": 4.0},
                {"customer": "Bob", "orders": 1, "spent": 0.0},
            ],
        ),
        (
            "checked.py",
            "orders.checked",
            [
                {"id": 1, "customer": "ada", "cents": 250},
                {"id": 2, "customer": "ada", "cents": 150},
            ],
        ),
        ("revenue.py", "revenue", [("cake", 0.0), ("tea", 4.0)]),
    ],
)
def test_a_pipeline_of_the_examples_writes_its_topic(
    spark: SparkSession,
    orders: Topics,
    tmp_path: Path,
    file: str,
    to: str,
    expected: list[object],
) -> None:
    for name in (to, "dead"):
        orders.create(name)
    [pipeline] = PipelineFile(EXAMPLES / "pipelines" / file).pipelines(None)
    setting = Setting(
        bootstrap=orders.bootstrap, checkpoints=str(tmp_path), dead_letters="dead", once=True
    )
    start(spark, pipeline, setting).awaitTermination()
    found: list[object] = list(values(orders, to))
    if file == "revenue.py":
        found = [(each["product"], each["revenue"]) for each in values(orders, to)]
    assert sorted(found, key=str) == sorted(expected, key=str)
