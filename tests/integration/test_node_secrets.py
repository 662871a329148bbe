"""Secrets of every kind, planted in one node: none of them is in anything that it writes or shows.

CVE-2026-33558: Kafka wrote whole requests, with passwords and tokens in them, into its log at debug
level.
"""

from __future__ import annotations

import os
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headwater.blocking import Admin, Producer
from headwater.client.admin import ConfigResource, ResourceType
from headwater.client.admin.configs import broker_config
from headwater.client.errors import AuthenticationFailed, ClientError
from headwater.security.dev_certificates import issue, new_authority
from tests.support.processes import HEADWATER, NodeProcess

PROVIDERS = "org.apache.kafka.common.config.provider"
PREFIX = "listener.name.sasl_ssl"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLANTED = {
    "plain": "s3cret-of-admin",
    "looked up": "s3cret-from-a-file",
    "variable": "s3cret-from-the-environment",
    "token key": "s3cret-of-tokens",
    "scram": "s3cret-of-carol",
    "wrong": "s3cret-guess",
    "altered": "s3cret-of-bob",
    "malformed": "s3cret-in-no-syntax",
    "of a store": "s3cret-of-no-store",
    "client id": "s3cret-of-an-unknown-setting",
}


class Planted(NamedTuple):
    node: NodeProcess
    login: dict[str, Any]
    client_file: Path
    key: str  # of TLS, as PEM


class NodeOfFile(NodeProcess):
    """Its listeners are in its file."""

    def command(self) -> list[str]:
        (file,) = self.options
        return [str(HEADWATER), "start", "--config", file, "--data", str(self.data)]


@pytest.fixture(params=["text", "json"])
def planted(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Planted]:
    now = datetime.now(UTC)
    authority = new_authority("tests", now=now, days=1)
    issued = issue(authority, "node", ("localhost", "127.0.0.1"), now=now, days=1).pem
    (tmp_path / "ca.pem").write_text(authority.certificate)
    (tmp_path / "server.pem").write_text(issued)
    (tmp_path / "secrets").write_text(f"word={PLANTED['looked up']}\n")
    monkeypatch.setenv("NODE_SECRET", PLANTED["variable"])
    users = f'user_admin="{PLANTED["plain"]}" user_etl="${{file:{tmp_path}/secrets:word}}"'
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_SSL",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
        "ssl.key.password": "${env:NODE_SECRET}",
        "delegation.token.secret.key": PLANTED["token key"],
        "config.providers": "file,env",
        "config.providers.file.class": f"{PROVIDERS}.FileConfigProvider",
        "config.providers.env.class": f"{PROVIDERS}.EnvVarConfigProvider",
        f"{PREFIX}.plain.sasl.jaas.config": f"{PLAIN} {users};",
        "headwater.log.slow.ms": "1",
        "headwater.log.format": request.param,
        "connection.failed.authentication.delay.ms": "1",
    }
    file = tmp_path / "node.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    login: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "ssl_truststore_location": str(tmp_path / "ca.pem"),
        "sasl_mechanism": "PLAIN",
        "sasl_username": "admin",
        "sasl_password": PLANTED["plain"],
    }
    client_file = tmp_path / "client.properties"
    client_file.write_text(
        f"security.protocol=SASL_SSL\nssl.truststore.location={tmp_path}/ca.pem\n"
        "sasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} username="admin" password="{PLANTED["plain"]}";\n'
    )
    node = NodeOfFile(tmp_path / "node", str(file))
    with node:
        yield Planted(node, login, client_file, issued)


def refused(admin: Admin, resource: ConfigResource, changes: dict[str, str]) -> str:
    with pytest.raises(ClientError) as error:
        admin.alter_config(resource, changes)
    return str(error.value)


def test_no_planted_secret_is_ever_shown(planted: Planted) -> None:
    node, login = planted.node, planted.login
    shown: list[str] = []
    secrets = dict(PLANTED)
    with Admin(node.address, **login) as admin:
        admin.alter_config(ConfigResource(ResourceType.BROKER_LOGGER, "1"), {"root": "DEBUG"})
        admin.create_topics({"t": 1})
        admin.set_scram("carol", PLANTED["scram"], mechanism="SCRAM-SHA-256")
        token = admin.create_token(renewers=["User:carol"])
        admin.renew_token(token.hmac)
        shown.append(repr(admin.describe_tokens()))
        secrets["hmac"] = b64encode(token.hmac).decode()
        key = f"{PREFIX}.plain.sasl.jaas.config"
        users = f'user_admin="{PLANTED["plain"]}" user_bob="{PLANTED["altered"]}"'
        admin.alter_config(broker_config(1), {key: f"{PLAIN} {users};"})
        shown.append(refused(admin, broker_config(1), {key: f"{PLAIN} {PLANTED['malformed']}"}))
        store = f"{PREFIX}.ssl.keystore"
        shown.append(refused(admin, broker_config(1), {
            f"{store}.type": "PEM",
            f"{store}.key": PLANTED["of a store"],
            f"{store}.certificate.chain": PLANTED["of a store"],
        }))  # fmt: skip
        admin.alter_config(broker_config(1), {f"{PREFIX}.ssl.key.password": PLANTED["of a store"]})
        # Nobody knows this setting: it may be a plugin's password.
        admin.alter_config(broker_config(1), {"sasl.plugin.password": PLANTED["client id"]})
        shown.append(repr(admin.describe_config(broker_config(1))))
    for mechanism, user in (("PLAIN", "admin"), ("SCRAM-SHA-256", "carol")):
        guess = {"sasl_mechanism": mechanism, "sasl_username": user}
        guess["sasl_password"] = PLANTED["wrong"]
        with (
            pytest.raises(AuthenticationFailed) as error,
            Admin(node.address, **login | guess) as admin,
        ):
            admin.list_topics()
        shown.append(str(error.value))
    carol = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": "carol"}
    with Producer(node.address, **login | carol | {"sasl_password": PLANTED["scram"]}) as producer:
        producer.send("t", value=b"x")
    jaas = f'{SCRAM} username="{token.id}" password="{secrets["hmac"]}" tokenauth="true";'
    by_token = {"sasl_mechanism": "SCRAM-SHA-256", "sasl_jaas_config": jaas}
    base = {k: v for k, v in login.items() if k not in ("sasl_username", "sasl_password")}
    with Admin(node.address, **base | by_token) as admin:
        admin.list_topics()
    environment = os.environ | {"HEADWATER_CLIENT_CONFIG": str(planted.client_file)}
    for words in (
        ("config", "get", "broker", "1"),
        ("config", "get", "broker", "1", "--output", "json"),
        ("config", "get", "broker", "1", "--all"),
        ("user", "list"),
        ("token", "list"),
        ("start", "--help"),
    ):
        command = [str(HEADWATER), *words]
        if words[0] != "start":
            command += ["--bootstrap", node.address]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        shown.append(done.stdout + done.stderr)
    shown.append(Path(f"/proc/{node.pid}/cmdline").read_text())
    assert node.stop() == 0
    shown.append(node.errors)
    text = "\n".join(shown)
    assert "CREATE_DELEGATION_TOKEN" in text, "the log is at debug level"
    assert "slow" in text
    for what, secret in secrets.items():
        for form in forms(secret):
            at = text.find(form)
            assert at < 0, (what, text[max(0, at - 200) : at + 50])
    assert "PRIVATE KEY" not in text
    assert planted.key.splitlines()[1] not in text


def forms(secret: str) -> list[str]:
    """A secret as it may stand in a text: as it is, and in base64 behind 0 to 2 other bytes."""
    found = [secret, secret.encode().hex()]
    for before in range(3):
        encoded = b64encode(b"x" * before + secret.encode()).decode()
        found.append(encoded[4 if before else 0 : -4])
    return found


def test_the_forms_of_a_secret_are_found() -> None:
    for before in range(4):
        text = b64encode(b"\0" * before + b"s3cret-of-admin" + b"yz").decode()
        assert any(form in text for form in forms("s3cret-of-admin")), before
