"""Our clients against listeners of Apache Kafka that want TLS, a certificate or a login."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from harness.nodes import Kafka, Node, free_port
from headwater import Admin, Consumer, Producer
from headwater.client.errors import AuthenticationFailed, ClientError

LISTENERS = ("SSL", "SASL_SSL", "SASL_PLAINTEXT")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PASSWORD = "wonder,land=1"
REAUTHENTICATION_MS = 2000
_MODULES = "org.apache.kafka.common.security"


class Secured:
    """A broker, its listeners, and the files that a client needs."""

    def __init__(self, folder: Path, jars: Path) -> None:
        authority = trustme.CA()
        own = authority.issue_cert("client@example.org")
        self.authority, self.own = str(folder / "ca.pem"), str(folder / "own.pem")
        authority.cert_pem.write_to_path(self.authority)
        own.private_key_and_cert_chain_pem.write_to_path(self.own)
        (folder / "server.pem").write_bytes(_as_kafka_reads_it(authority.issue_cert("localhost")))
        self._ports = {name: free_port() for name in LISTENERS}
        self.node = Node(Kafka(jars), folder / "node")
        self.node.settings |= self._settings(folder)
        self.node.start()

    def address(self, listener: str) -> str:
        return f"localhost:{self._ports[listener]}"

    def _settings(self, folder: Path) -> dict[str, str]:
        plain = f'{_MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
        scram = f"{_MODULES}.scram.ScramLoginModule required;"
        bearer = (
            f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        )
        listeners = [f"PLAINTEXT://{self.node.bootstrap}"]
        listeners += [f"CONTROLLER://127.0.0.1:{self.node.controller_port}"]
        listeners += [f"{name}://{self.address(name)}" for name in LISTENERS]
        settings = {
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:{name}" for name in LISTENERS),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.authority,
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_plaintext.connections.max.reauth.ms": str(REAUTHENTICATION_MS),
            "group.initial.rebalance.delay.ms": "0",
        }
        for name in ("sasl_ssl", "sasl_plaintext"):
            start = f"listener.name.{name}"
            settings[f"{start}.plain.sasl.jaas.config"] = plain
            settings[f"{start}.scram-sha-256.sasl.jaas.config"] = scram
            settings[f"{start}.scram-sha-512.sasl.jaas.config"] = scram
            settings[f"{start}.oauthbearer.sasl.jaas.config"] = bearer
        return settings


def _as_kafka_reads_it(certificate: trustme.LeafCert) -> bytes:
    """Java takes keys in PKCS #8 only."""
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    written = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return written + b"".join(pem.bytes() for pem in certificate.cert_chain_pems)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, jars: Path) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("secured"), jars)

    async def add_user() -> None:
        async with Admin(secured.node.bootstrap) as admin:
            await admin.set_scram("alice", PASSWORD, mechanism="SCRAM-SHA-256")
            await admin.set_scram("alice", PASSWORD, mechanism="SCRAM-SHA-512")

    asyncio.run(add_user())
    yield secured
    secured.node.stop()
    secured.node.remove()


def token() -> str:
    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'iat': now, 'exp': now + 600})}."


def login(mechanism: str) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauthbearer_token": token}
    return {
        "sasl_mechanism": mechanism,
        "sasl_username": "alice",
        "sasl_password": PASSWORD,
    }


async def there_and_back(address: str, topic: str, settings: dict[str, Any]) -> None:
    async with Producer(address, **settings) as producer:
        for number in range(2000):
            producer.submit(topic, value=b"%d" % number * 50)
        await producer.flush()
    async with Consumer(
        address, topics=[topic], group=topic, auto_offset_reset="earliest", **settings
    ) as consumer:
        seen = [record.offset async for record in _first(consumer, 2000)]
    assert seen == list(range(2000))


async def _first(consumer: Consumer, count: int) -> Any:
    async for record in consumer:
        yield record
        count -= 1
        if not count:
            return


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_clients_log_in_over_tls(secured: Secured, topic: str, mechanism: str) -> None:
    settings = {"security_protocol": "SASL_SSL", "ssl_ca_location": secured.authority}
    address = secured.address("SASL_SSL")
    asyncio.run(there_and_back(address, topic, settings | login(mechanism)))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_does_not_believe_a_wrong_password(secured: Secured, mechanism: str) -> None:
    wrong = {"sasl_password": "guessed"}
    if mechanism == "OAUTHBEARER":
        wrong = {"sasl_oauthbearer_token": lambda: "forged"}  # type: ignore[dict-item]
    settings = {"security_protocol": "SASL_PLAINTEXT", **login(mechanism), **wrong}
    with pytest.raises(AuthenticationFailed, match="SASL_AUTHENTICATION_FAILED"):
        asyncio.run(_start(secured.address("SASL_PLAINTEXT"), settings))


async def _start(address: str, settings: dict[str, Any]) -> None:
    async with Producer(address, start_timeout_ms=3000, **settings):
        pass


def test_our_clients_show_their_certificate(secured: Secured, topic: str) -> None:
    settings = {
        "security_protocol": "SSL",
        "ssl_truststore_location": secured.authority,
        "ssl_keystore_location": secured.own,
    }
    asyncio.run(there_and_back(secured.address("SSL"), topic, settings))


def test_our_clients_say_what_is_wrong_with_a_listener(secured: Secured) -> None:
    trusting = {"ssl_ca_location": secured.authority}
    for listener, settings, said in (
        ("SSL", {"security_protocol": "SSL", **trusting}, "ssl_keystore_location"),
        ("SSL", {"security_protocol": "SSL"}, "ssl_truststore_location"),
        ("SSL", {}, "speaks TLS"),
        ("SASL_PLAINTEXT", {}, "set security_protocol"),
        ("SASL_PLAINTEXT", {"security_protocol": "SSL", **trusting}, "PLAINTEXT listener"),
    ):
        with pytest.raises(ClientError) as refused:
            asyncio.run(_start(secured.address(listener), settings))
        assert said in str(refused.value), (listener, settings)


def test_our_clients_outlive_the_time_of_their_login(secured: Secured, topic: str) -> None:
    """Kafka ends a connection on which something is asked after connections.max.reauth.ms."""
    settings = {"security_protocol": "SASL_PLAINTEXT", **login("SCRAM-SHA-256")}
    address = secured.address("SASL_PLAINTEXT")

    async def run() -> tuple[int, dict[str, float]]:
        async with Producer(address, **settings) as producer:
            end = time.monotonic() + 3.5 * REAUTHENTICATION_MS / 1000
            sent = 0
            while time.monotonic() < end:
                assert (await producer.send(topic, value=b"x")).offset == sent
                sent += 1
                await asyncio.sleep(0.001)
            return sent, producer.metrics()

    sent, metrics = asyncio.run(run())
    assert sent > 100
    assert metrics["record-retry-total"] == 0
    assert metrics["connection-creation-total"] >= 4
