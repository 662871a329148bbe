"""Java's clients on our listeners with TLS and SASL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.nodes import run_java
from headwater.testing import EmbeddedBroker

USERS = {"alice": "wonder,land=1"}
TOPICS = "org.apache.kafka.tools.TopicCommand"
_MODULES = "org.apache.kafka.common.security"


@pytest.fixture(scope="module")
def brokers() -> Iterator[dict[str, EmbeddedBroker]]:
    with (
        EmbeddedBroker(users=USERS) as plain,
        EmbeddedBroker(users=USERS, tls=True) as secret,
        EmbeddedBroker({"ssl.client.auth": "required"}, tls=True) as mutual,
    ):
        yield {"SASL_PLAINTEXT": plain, "SASL_SSL": secret, "SSL": mutual}


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [
        ("SSL", None),
        ("SASL_SSL", "PLAIN"),
        ("SASL_SSL", "SCRAM-SHA-256"),
        ("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    ],
)
def test_kafkas_tools_log_in(
    brokers: dict[str, EmbeddedBroker],
    jars: Path,
    tmp_path: Path,
    protocol: str,
    mechanism: str | None,
) -> None:
    broker = brokers[protocol]
    settings = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        settings["ssl.truststore.type"] = "PEM"
        settings["ssl.truststore.location"] = broker.security_file("ca.pem")
    if mechanism is None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.location"] = broker.security_file("client.pem")
    else:
        kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        (user, password), *_ = USERS.items()
        settings["sasl.mechanism"] = mechanism
        settings["sasl.jaas.config"] = (
            f'{_MODULES}.{kind}LoginModule required username="{user}" password="{password}";'
        )
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    aimed = ["--bootstrap-server", broker.bootstrap, "--command-config", str(file)]
    topic = f"made-{mechanism or protocol}"
    run_java(jars, TOPICS, *aimed, "--create", "--topic", topic)
    assert topic in run_java(jars, TOPICS, *aimed, "--list").stdout
