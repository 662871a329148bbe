"""Spark's driver and workers through TLS and SASL, by the settings of any Kafka client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.spark.pipeline import Stream, pipeline
from headwater.spark.pipeline_query import Setting, start
from headwater.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def secured() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tls=True, users={"etl": "secret"}, topics={"orders": 2}) as broker:
        yield broker


def options_of(broker: EmbeddedBroker) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": broker.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": broker.security_file("ca.pem"),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f'{SCRAM} username="etl" password="secret";',
    }


def test_a_topic_behind_a_login_is_written_and_read(
    spark: SparkSession, secured: EmbeddedBroker
) -> None:
    options = options_of(secured)
    rows = spark.range(1000).selectExpr("cast(id as string) as value")
    writer = rows.write.format("headwater").mode("append").options(**options)
    writer.option("topic", "secrets").save()
    reader = spark.read.format("headwater").options(**options)
    got = (
        reader.option("subscribe", "secrets")
        .load()
        .selectExpr("cast(cast(value as string) as int) as value")
    )
    assert sorted(row.value for row in got.collect()) == list(range(1000))


def test_a_pipeline_runs_exactly_once_behind_a_login(
    spark: SparkSession, secured: EmbeddedBroker, tmp_path: Path
) -> None:
    """Offsets, records, transactions: the driver and the workers log in for each."""

    @pipeline(orders=Stream("orders", "customer string, amount double"), to="totals", mode="update")
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("customer").agg({"amount": "sum"}).toDF("customer", "total")

    for customer, amount in (("ada", 1.5), ("ada", 2.0), ("bob", 4.0)):
        secured.send("orders", json.dumps({"customer": customer, "amount": amount}))
    options = options_of(secured)
    bootstrap = options.pop("kafka.bootstrap.servers")
    setting = Setting(bootstrap=bootstrap, options=options, checkpoints=str(tmp_path), once=True)
    start(spark, totals, setting).awaitTermination()
    written = [json.loads(each.value or b"") for each in secured.records("totals", 2)]
    assert sorted(written, key=str) == [
        {"customer": "ada", "total": 3.5},
        {"customer": "bob", "total": 4.0},
    ]
