"""Other people's clients log in: each mechanism, with and without TLS, and by certificate."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import pytest

from headwater.testing import EmbeddedBroker

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
USERS = {"alice": "wonder,land=1"}


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, EmbeddedBroker]]:
    made = {
        "SASL_PLAINTEXT": EmbeddedBroker(users=USERS, topics={"t": 1}),
        "SASL_SSL": EmbeddedBroker(users=USERS, tls=True, topics={"t": 1}),
        "SSL": EmbeddedBroker({"ssl.client.auth": "required"}, tls=True),
    }
    try:
        for broker in made.values():
            broker.start()
        yield made
    finally:
        for broker in made.values():
            broker.close()


def ways() -> list[tuple[str, str | None]]:
    return [("SSL", None), *((p, m) for p in PROTOCOLS for m in MECHANISMS)]


@pytest.mark.parametrize(("protocol", "mechanism"), ways())
def test_librdkafka_logs_in(
    brokers: dict[str, EmbeddedBroker], protocol: str, mechanism: str | None
) -> None:
    broker = brokers[protocol]
    settings = {"bootstrap.servers": broker.bootstrap, "security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.ca.location"] = broker.security_file("ca.pem")
    if mechanism is None:
        own = broker.security_file("client.pem")
        settings |= {"ssl.certificate.location": own, "ssl.key.location": own}
    else:
        (user, password), *_ = USERS.items()
        settings |= {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    producer = confluent_kafka.Producer(settings)
    delivered: list[Any] = []
    producer.produce("t", b"x" * 100_000, on_delivery=lambda *report: delivered.append(report))
    assert producer.flush(30) == 0
    assert delivered[0][0] is None


def python_settings(broker: EmbeddedBroker, protocol: str, mechanism: str | None) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": protocol,
    }
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=broker.security_file("ca.pem"))
        if mechanism is None:
            context.load_cert_chain(broker.security_file("client.pem"))
        settings["ssl_context"] = context
    if mechanism is not None:
        (user, password), *_ = USERS.items()
        settings |= {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
    return settings


@pytest.mark.parametrize(("protocol", "mechanism"), ways())
def test_kafka_python_logs_in(
    brokers: dict[str, EmbeddedBroker], protocol: str, mechanism: str | None
) -> None:
    producer = kafka.KafkaProducer(**python_settings(brokers[protocol], protocol, mechanism))
    try:
        assert producer.send("t", b"x" * 100_000).get(30).topic == "t"
    finally:
        producer.close()


@pytest.mark.parametrize(("protocol", "mechanism"), ways())
def test_aiokafka_logs_in(
    brokers: dict[str, EmbeddedBroker], protocol: str, mechanism: str | None
) -> None:
    async def run() -> None:
        settings = python_settings(brokers[protocol], protocol, mechanism)
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            assert (await producer.send_and_wait("t", b"x" * 100_000)).topic == "t"

    asyncio.run(run())
