"""Reads and writes topics in a Spark program of your own.

python examples/spark_program.py 127.0.0.1:9092 /tmp/checkpoints
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headwater.spark import exactly_once_writer, spark_session


def total_orders(spark: SparkSession, bootstrap: str) -> None:
    """Reads a topic as a table, and writes one row for each customer to another topic."""
    orders = (
        spark.read.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("valueFormat", "json")
        .option("valueSchema", "customer string, price double")
        .load()
    )
    totals = orders.groupBy("value.customer").agg(f.sum("value.price").alias("spent"))
    totals.show()

    (
        totals.selectExpr("customer AS key", "to_json(struct(*)) AS value")
        .write.format("headwater")
        .mode("append")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "order-totals")
        .option("delivery", "exactly_once")  # all of it, or nothing
        .save()
    )


def copy_orders(spark: SparkSession, bootstrap: str, checkpoints: str) -> None:
    """Copies a topic as it grows. A second run continues where the first one stopped."""
    stream = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("group", "copy-orders")  # its lag shows in `headwater group describe copy-orders`
        .load()
    )

    query = (
        stream.select("key", "value")
        .writeStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "orders-copy")
        .option("checkpointLocation", f"{checkpoints}/copy-orders")
        .trigger(availableNow=True)  # reads what is there now, then stops
        .start()
    )
    query.awaitTermination()


def store_orders(spark: SparkSession, bootstrap: str, checkpoints: str) -> None:
    """Copies a topic exactly once: no record is lost or written twice, whatever fails."""
    stream = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("isolation", "read_committed")
        .load()
    )

    query = (
        stream.select("key", "value")
        .writeStream.format("headwater")
        .option("delivery", "exactly_once")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", "orders-stored")
        .option("checkpointLocation", f"{checkpoints}/store-orders")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def count_orders(spark: SparkSession, bootstrap: str, checkpoints: str) -> None:
    """Keeps a count for each customer, exactly once: a micro-batch is one transaction."""
    orders = (
        spark.readStream.format("headwater")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
        .option("valueSchema", "customer string, price double")
        .load()
    )
    counts = orders.groupBy("value.customer").count()
    rows = counts.selectExpr("customer AS key", "to_json(struct(*)) AS value")

    writer = exactly_once_writer({"kafka.bootstrap.servers": bootstrap, "topic": "order-counts"})
    query = (
        rows.writeStream.foreachBatch(writer)
        .outputMode("update")
        .option("checkpointLocation", f"{checkpoints}/count-orders")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    bootstrap, checkpoints = sys.argv[1:]
    spark = spark_session("orders", master="local[*]")
    total_orders(spark, bootstrap)
    copy_orders(spark, bootstrap, checkpoints)
    store_orders(spark, bootstrap, checkpoints)
    count_orders(spark, bootstrap, checkpoints)
    spark.stop()
