"""Java's and Go's clients on our listeners with TLS and SASL."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import kafka_jars
from harness.nodes import run_java
from headwater import Admin
from headwater.client.admin.configs import ConfigResource, ResourceType
from headwater.security.oauth import URLS_VARIABLE
from headwater.testing import EmbeddedBroker
from headwater.testing.protection import MECHANISMS
from tests.support.token_server import TokenServer

USERS = {"alice": "wonder,land=1"}
TOPICS = "org.apache.kafka.tools.TopicCommand"
PERFORMANCE = "org.apache.kafka.tools.ProducerPerformance"
REAUTHENTICATION_MS = 1500
_MODULES = "org.apache.kafka.common.security"
_GO = Path(__file__).parent / "go"
WAYS = [("SSL", "none")] + [
    (protocol, mechanism)
    for protocol in ("SASL_SSL", "SASL_PLAINTEXT")
    for mechanism in (*MECHANISMS, "OAUTHBEARER")
]


class Secured(NamedTuple):
    brokers: dict[str, EmbeddedBroker]  # by protocol
    provider: TokenServer


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with TokenServer() as provider, pytest.MonkeyPatch.context() as patch, ExitStack() as running:
        patch.setenv(URLS_VARIABLE, provider.url("/jwks"))
        bearer = {
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            "sasl.oauthbearer.jwks.endpoint.url": provider.url("/jwks"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
        }
        brokers = {
            "SASL_PLAINTEXT": EmbeddedBroker(bearer, users=USERS),
            "SASL_SSL": EmbeddedBroker(bearer, users=USERS, tls=True),
            "SSL": EmbeddedBroker({"ssl.client.auth": "required"}, tls=True),
        }
        for broker in brokers.values():
            running.enter_context(broker)
        yield Secured(brokers, provider)


def java_settings(secured: Secured, protocol: str, mechanism: str) -> dict[str, str]:
    broker = secured.brokers[protocol]
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.location"] = broker.security_file("ca.pem")
    if mechanism == "none":
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = broker.security_file("client.pem")
        return settings
    settings["sasl.mechanism"] = mechanism
    if mechanism == "OAUTHBEARER":
        module = f"{_MODULES}.oauthbearer.OAuthBearer"
        return settings | {
            "sasl.jaas.config": f"{module}LoginModule required;",
            "sasl.login.callback.handler.class": f"{module}LoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": secured.provider.url(),
            "sasl.oauthbearer.client.credentials.client.id": "me",
            "sasl.oauthbearer.client.credentials.client.secret": "hidden",
        }
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    (user, password), *_ = USERS.items()
    settings["sasl.jaas.config"] = (
        f'{_MODULES}.{kind}LoginModule required username="{user}" password="{password}";'
    )
    return settings


def write(file: Path, settings: dict[str, str]) -> Path:
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_kafkas_tools_log_in(
    secured: Secured, jars: Path, tmp_path: Path, protocol: str, mechanism: str
) -> None:
    broker = secured.brokers[protocol]
    file = write(tmp_path / "client.properties", java_settings(secured, protocol, mechanism))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={secured.provider.url()}"
    topic = f"java-{protocol}-{mechanism}"
    command = kafka_jars.java_command(
        jars, TOPICS, "--bootstrap-server", broker.bootstrap, "--command-config", str(file),
        "--create", "--topic", topic, options=(allowed,),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert f"Created topic {topic}." in done.stdout, done.stdout + done.stderr


@pytest.fixture(scope="module")
def go_client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("go") is None:
        pytest.skip("needs Go")
    made = tmp_path_factory.mktemp("go") / "login"
    subprocess.run(["go", "build", "-o", str(made), "."], cwd=_GO, check=True, timeout=280)
    return made


@pytest.mark.parametrize(("protocol", "mechanism"), WAYS)
def test_franz_go_logs_in(secured: Secured, go_client: Path, protocol: str, mechanism: str) -> None:
    broker = secured.brokers[protocol]
    (user, password), *_ = USERS.items()
    if mechanism == "OAUTHBEARER":
        password = json.loads(secured.provider.granted())["access_token"]
    ca = broker.security_file("ca.pem") if protocol.endswith("SSL") else ""
    own = broker.security_file("client.pem") if mechanism == "none" else ""
    topic = f"go-{protocol}-{mechanism}"
    done = subprocess.run(
        [go_client, broker.bootstrap, topic, mechanism, user, password, ca, own],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == f"{mechanism}\n", done.stdout + done.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_java_producer_logs_in_again_on_its_connections(
    secured: Secured, jars: Path, tmp_path: Path, mechanism: str
) -> None:
    """KIP-368: it goes on by the connections that it has, and no record is sent twice or lost."""
    settings = {"connections.max.reauth.ms": str(REAUTHENTICATION_MS)}
    with EmbeddedBroker(settings, users=USERS, topics={"t": 1}) as broker:

        async def at_debug_level() -> None:
            async with Admin(broker.bootstrap, **broker.client_settings) as admin:
                logger = ConfigResource(ResourceType.BROKER_LOGGER, "1")
                await admin.alter_config(logger, {"headwater.authentication": "DEBUG"})

        asyncio.run(at_debug_level())
        before = len(broker.log_lines)
        login = java_settings(secured, "SASL_PLAINTEXT", mechanism)
        file = write(tmp_path / "client.properties", login)
        done = run_java(
            jars, PERFORMANCE, "--topic", "t", "--num-records", "400", "--record-size", "10",
            "--throughput", "50", "--producer.config", str(file),
            "--producer-props", f"bootstrap.servers={broker.bootstrap}",
        )  # fmt: skip
        assert "400 records sent" in done.stdout
        assert "disconnected" not in done.stdout + done.stderr
        assert len(broker.records("t")) == 400
        logins = [
            line.partition(" authenticated")[0].rpartition(" ")[2]
            for line in broker.log_lines[before:]
            if f"as User:alice with {mechanism}" in line
        ]
        most = max(map(logins.count, set(logins)))
        assert most >= 8 * 1000 // REAUTHENTICATION_MS - 1, logins
