"""The pipeline of `headwater demo`: revenue by product in event-time windows, corrected by late
orders. `headwater pipeline run` runs it like any other pipeline file."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headwater.spark.pipeline import Stream, pipeline

ORDERS = Stream(
    "orders",
    schema="id bigint, product string, price double, at timestamp",
    watermark="at 20 seconds",
)


@pipeline(orders=ORDERS, to="revenue", key="product", mode="update", every="1 second")
def revenue(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(f.window("at", "5 seconds"), "product")
    totals = windows.agg(f.count("*").alias("orders"), f.round(f.sum("price"), 2).alias("revenue"))
    return totals.select("window.start", "product", "orders", "revenue")
