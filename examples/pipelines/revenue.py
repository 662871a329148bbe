"""Revenue by product in event-time windows, corrected by late orders.

headwater pipeline run examples/pipelines/revenue.py
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from headwater.spark.pipeline import Stream, pipeline

ORDERS = Stream(
    "orders",
    schema="id bigint, product string, price double, at timestamp",
    watermark="at 20 seconds",
)


@pipeline(orders=ORDERS, to="revenue", key="product", mode="update")
def revenue(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(f.window("at", "5 seconds"), "product")
    return windows.agg(f.sum("price").alias("revenue"))
