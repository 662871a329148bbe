"""TLS and users for the broker of a test."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_DAYS = 1


class Protection:
    """Settings of a broker with one protected listener, and of its clients."""

    def __init__(self, *, tls: bool, users: Mapping[str, str] | None) -> None:
        self.users = dict(users or {})
        self.protocol = ("SASL_" if self.users else "") + ("SSL" if tls else "PLAINTEXT")
        self._folder = tempfile.TemporaryDirectory(prefix="headwater-") if tls else None
        self._server_pem = ""
        if self._folder is not None:
            self._make_certificates(Path(self._folder.name))

    def _make_certificates(self, folder: Path) -> None:
        from headwater.security.dev_certificates import issue, new_authority

        now = datetime.now(UTC)
        authority = new_authority("Headwater tests", now=now, days=_DAYS)
        hosts = ("localhost", "127.0.0.1")
        self._server_pem = issue(authority, "broker", hosts, now=now, days=_DAYS).pem
        client = issue(authority, "client", (), now=now, days=_DAYS)
        (folder / "ca.pem").write_text(authority.certificate)
        (folder / "client.pem").write_text(client.pem)

    def file(self, name: str) -> str:
        assert self._folder is not None, "only with tls=True"
        return f"{self._folder.name}/{name}"

    def settings(self) -> dict[str, str]:
        """The settings of the broker, which may be overridden."""
        name, prefix = self.protocol, f"listener.name.{self.protocol.lower()}"
        settings = {
            "listeners": f"{name}://127.0.0.1:0",
            "security.inter.broker.protocol": name,
        }
        if self._folder is not None:
            settings |= {
                "ssl.keystore.type": "PEM",
                # One value has the key and the chain: nothing of the broker is in a file.
                "ssl.keystore.key": self._server_pem,
                "ssl.keystore.certificate.chain": self._server_pem,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.file("ca.pem"),
            }
        if self.users:
            listed = " ".join(
                f'user_{user}="{_quoted(password)}"' for user, password in self.users.items()
            )
            settings |= {
                "sasl.enabled.mechanisms": ",".join(MECHANISMS),
                "sasl.mechanism.inter.broker.protocol": MECHANISMS[0],
                f"{prefix}.plain.sasl.jaas.config": f"{_MODULE} required {listed};",
            }
        return settings

    def client_settings(self, mechanism: str = MECHANISMS[0]) -> dict[str, Any]:
        """Returns the settings with which a client of Headwater logs in as the first user."""
        settings: dict[str, Any] = {"security_protocol": self.protocol}
        if self._folder is not None:
            settings["ssl_truststore_location"] = self.file("ca.pem")
        if self.users:
            user, password = next(iter(self.users.items()))
            settings |= {
                "sasl_mechanism": mechanism,
                "sasl_username": user,
                "sasl_password": password,
            }
        return settings

    def add_scram(self, bootstrap: str) -> None:
        """Lets the users log in with SCRAM as well."""
        if not self.users:
            return
        from headwater.blocking import Admin

        with Admin(bootstrap, **self.client_settings()) as admin:
            for user, password in self.users.items():
                admin.set_scram(user, password, mechanism="SCRAM-SHA-256")
                admin.set_scram(user, password, mechanism="SCRAM-SHA-512")

    def close(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')
