"""Spark's workers through TLS and SASL, by the settings of any Kafka client."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater.testing import EmbeddedBroker
from tests.support.secure_front import Certificates, SecureFront

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def test_a_topic_behind_a_login_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    front = SecureFront(certificates.context(), ("SCRAM-SHA-512",), {"etl": "secret"})
    with front.running():
        settings = {"advertised.listeners": f"PLAINTEXT://{front.address}"}
        with EmbeddedBroker(settings) as broker:
            front.target = next(iter(broker.addresses.values()))
            options = {
                "kafka.bootstrap.servers": front.address,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": certificates.ca,
                "kafka.sasl.mechanism": "SCRAM-SHA-512",
                "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule"
                ' required username="etl" password="secret";',
            }
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
