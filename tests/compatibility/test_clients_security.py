"""Other people's clients log in: each mechanism, with and without TLS, and by certificate.

The Java client and franz-go do so in `conformance/test_secure_listeners.py`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Iterator
from typing import Any

import aiokafka
import aiokafka.abc
import confluent_kafka
import kafka
import kafka.net.sasl.oauth
import pytest

from headwater.security.oauth import URLS_VARIABLE
from headwater.testing import EmbeddedBroker
from tests.support.token_server import TokenServer

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


# Bearer tokens, which each client gets from a function of the user's own


@pytest.fixture(scope="module")
def bearers() -> Iterator[tuple[EmbeddedBroker, str]]:
    """A broker for holders of tokens, and a token."""
    with TokenServer() as provider, pytest.MonkeyPatch.context() as patch:
        patch.setenv(URLS_VARIABLE, provider.url("/jwks"))
        settings = {
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": provider.url("/jwks"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
        }
        with EmbeddedBroker(settings, users=USERS, tls=True, topics={"t": 1}) as broker:
            yield broker, json.loads(provider.granted())["access_token"]


def test_librdkafka_logs_in_with_a_token(bearers: tuple[EmbeddedBroker, str]) -> None:
    broker, token = bearers
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": broker.security_file("ca.pem"),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + 3000),
        }
    )
    delivered: list[Any] = []
    producer.produce("t", b"x" * 100_000, on_delivery=lambda *report: delivered.append(report))
    assert producer.flush(30) == 0
    assert delivered[0][0] is None


def bearer_settings(broker: EmbeddedBroker) -> dict[str, Any]:
    return {
        "bootstrap_servers": broker.bootstrap,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=broker.security_file("ca.pem")),
        "sasl_mechanism": "OAUTHBEARER",
    }


def test_kafka_python_logs_in_with_a_token(bearers: tuple[EmbeddedBroker, str]) -> None:
    broker, given = bearers

    class Provider(kafka.net.sasl.oauth.AbstractTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return given

    settings = bearer_settings(broker) | {"sasl_oauth_token_provider": Provider()}
    producer = kafka.KafkaProducer(**settings)
    try:
        assert producer.send("t", b"x" * 100_000).get(30).topic == "t"
    finally:
        producer.close()


def test_aiokafka_logs_in_with_a_token(bearers: tuple[EmbeddedBroker, str]) -> None:
    broker, given = bearers

    class Provider(aiokafka.abc.AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return given

    async def run() -> None:
        settings = bearer_settings(broker) | {"sasl_oauth_token_provider": Provider()}
        async with aiokafka.AIOKafkaProducer(**settings) as producer:
            assert (await producer.send_and_wait("t", b"x" * 100_000)).topic == "t"

    asyncio.run(run())
