"""The command against a cluster that wants TLS and a login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.testing import EmbeddedBroker
from tests.integration.test_record_commands import ALL, Shell
from tests.support.secure_front import Certificates, SecureFront


@pytest.fixture
def secure_shell(tmp_path: Path) -> Iterator[Shell]:
    certificates = Certificates(tmp_path)
    front = SecureFront(certificates.context(), ("SCRAM-SHA-256",), {"ops": "secret"})
    with front.running():
        settings = {"advertised.listeners": f"PLAINTEXT://{front.address}"}
        with EmbeddedBroker(settings) as broker:
            front.target = next(iter(broker.addresses.values()))
            (tmp_path / "client.properties").write_text(
                f"""
                security.protocol=SASL_SSL
                ssl.truststore.location={certificates.ca}
                sasl.mechanism=SCRAM-SHA-256
                sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
                    username="ops" password="secret";
                max.poll.records=10
                """
            )
            yield Shell(front.address, tmp_path)


def test_commands_get_in_with_a_file_of_settings(secure_shell: Shell, tmp_path: Path) -> None:
    shell, path = secure_shell, str(tmp_path / "client.properties")
    shell.environment["HEADWATER_CLIENT_CONFIG"] = path
    shell.out("topic", "create", "secrets", "--partitions", "2")
    shell.out("produce", "secrets", "--key", "k", stdin="hello\n")
    assert shell.out("consume", "secrets", *ALL, "--format", "%k=%v") == "k=hello\n"
    del shell.environment["HEADWATER_CLIENT_CONFIG"]
    assert "secrets" in shell.out("topic", "list", "--client-config", path)
    address = shell.environment.pop("HEADWATER_BOOTSTRAP")
    shell.out("profile", "add", "secure", address, "--client-config", path)
    assert "secrets" in shell.out("topic", "describe", "secrets", "--profile", "secure")


def test_who_is_not_let_in_is_told_what_to_do(secure_shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text(path.read_text().replace("secret", "guess"))
    said = secure_shell.refusal("topic", "list", "--client-config", str(path), code=1)
    assert "SASL_AUTHENTICATION_FAILED" in said
    assert "--client-config names a file" in said
    assert "guess" not in said
