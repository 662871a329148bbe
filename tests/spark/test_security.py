"""Spark's driver and workers through TLS and SASL, by the settings of any Kafka client."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)

from harness.wire import until
from headwater.spark.pipeline import Stream, pipeline
from headwater.spark.pipeline_query import Setting, start
from headwater.testing import EmbeddedBroker
from tests.support.token_server import TokenServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
BEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
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
    check_there_and_back(spark, options_of(secured))


def test_a_login_without_tls(spark: SparkSession) -> None:
    with EmbeddedBroker(users={"etl": "secret"}) as broker:
        options = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{PLAIN} username="etl" password="secret";',
        }
        check_there_and_back(spark, options)


def test_a_certificate_from_a_key_store(spark: SparkSession, tmp_path: Path) -> None:
    """As for Java's clients: the key and what is trusted are in one file, with a password."""
    with EmbeddedBroker({"ssl.client.auth": "required"}, tls=True) as broker:
        (key, own) = read_pem(broker.security_file("client.pem"))
        authority = x509.load_pem_x509_certificate(
            Path(broker.security_file("ca.pem")).read_bytes()
        )
        store = tmp_path / "client.p12"
        store.write_bytes(
            pkcs12.serialize_key_and_certificates(
                b"client", key, own, [authority], BestAvailableEncryption(b"open sesame")
            )
        )
        options = {"kafka.bootstrap.servers": broker.bootstrap, "kafka.security.protocol": "SSL"}
        for which in ("keystore", "truststore"):
            options[f"kafka.ssl.{which}.type"] = "PKCS12"
            options[f"kafka.ssl.{which}.location"] = str(store)
            options[f"kafka.ssl.{which}.password"] = "open sesame"
        check_there_and_back(spark, options)


def read_pem(path: str) -> tuple[EllipticCurvePrivateKey, x509.Certificate]:
    data = Path(path).read_bytes()
    key = load_pem_private_key(data, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    return key, x509.load_pem_x509_certificate(data)


@pytest.fixture
def guarded(provider: TokenServer) -> Iterator[EmbeddedBroker]:
    """A broker that takes tokens of the provider.

    However late a token is presented, it is not refused as expired: a pause of the machine between
    its grant and the login is no failure of the client. It is of no use after its expiry all the
    same, for the connection ends with the next request.
    """
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("/jwks"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.clock.skew.seconds": "600",  # longer than any test may take
    }
    with EmbeddedBroker(settings, tls=True, users={"etl": "secret"}, topics={"in": 1}) as broker:
        provider.requests.clear()
        yield broker


def bearer_options(broker: EmbeddedBroker, provider: TokenServer) -> dict[str, str]:
    return options_of(broker) | {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": provider.url(),
        "kafka.sasl.jaas.config": f'{BEARER} clientId="spark" clientSecret="secret";',
        "kafka.sasl.login.refresh.min.period.seconds": "0",
        "kafka.sasl.login.refresh.buffer.seconds": "0",
    }


def test_driver_and_workers_log_in_with_tokens_that_they_fetch(
    spark: SparkSession, guarded: EmbeddedBroker, provider: TokenServer
) -> None:
    check_there_and_back(spark, bearer_options(guarded, provider))
    fetched = [fields for path, _, fields in provider.requests if path == "/token"]
    assert len(fetched) >= 2  # each process fetches its own
    assert all(fields["grant_type"] == "client_credentials" for fields in fetched)
    assert not any("authentication failed" in line for line in guarded.log_lines)


def test_a_stream_outlives_its_tokens(
    spark: SparkSession,
    guarded: EmbeddedBroker,
    provider: TokenServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(provider, "lifetime_seconds", 4.0)
    options = bearer_options(guarded, provider)
    source = spark.readStream.format("headwater").options(**options).option("subscribe", "in")
    query = (
        source.option("startingOffsets", "earliest")
        .load()
        .select("value")
        .writeStream.format("headwater")
        .options(**options)
        .option("topic", "out")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        guarded.send("in", "before")
        guarded.records("out", 1, timeout_ms=60_000)
        expiry, fetched = provider.last_expiry, len(provider.requests)
        until(lambda: time.time() > expiry, "the end of all tokens so far")
        guarded.send("in", "after")
        written = guarded.records("out", 2, timeout_ms=60_000)
    finally:
        query.stop()
    assert [record.value for record in written] == [b"before", b"after"]
    assert len(provider.requests) > fetched
    assert not any("authentication failed" in line for line in guarded.log_lines)


def check_there_and_back(spark: SparkSession, options: dict[str, str]) -> None:
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
