"""Principal builders of the user's own, on each kind of listener."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from harness.wire import Wire, until
from headwater.blocking import Admin
from headwater.broker.plugins import Peer
from headwater.client.errors import AuthenticationFailed, ClientError
from headwater.testing import EmbeddedBroker

USERS = {"alice": "wonder", "mallory": "land"}
RULES = {
    "principal.builder.class": "python:company.ByDepartment",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "connection.failed.authentication.delay.ms": "1",
}


class ByDepartment:
    seen: list[Peer]

    def build(self, peer: Peer) -> str:
        self.seen.append(peer)
        if peer.user == "mallory" or peer.host == "127.0.0.2":
            raise ValueError(f"{peer.user} has left")
        return f"Department:{peer.user}s"


@pytest.fixture(autouse=True)
def company() -> Iterator[None]:
    made: Any = ModuleType("company")
    made.ByDepartment = ByDepartment
    ByDepartment.seen = []
    sys.modules["company"] = made
    yield
    del sys.modules["company"]


def test_a_login_gets_the_principal_that_the_builder_returns() -> None:
    rules = RULES | {"super.users": "Department:alices"}
    with EmbeddedBroker(rules, users=USERS) as broker:
        with Admin(broker.bootstrap, **broker.client_settings) as admin:
            admin.create_topics({"t": 1})  # as a super user
        other = {"sasl_username": "mallory", "sasl_password": "land"}
        with (
            pytest.raises(AuthenticationFailed),
            Admin(broker.bootstrap, **broker.client_settings | other) as admin,
        ):
            admin.list_topics()
        until(
            lambda: any("mallory has left" in line for line in broker.log_lines),
            "the line about the refusal",
        )
        key = "listener.name.sasl_plaintext.principal.builder.class"
        kafkas = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
        with Admin(broker.bootstrap, **broker.client_settings) as admin:
            from headwater.client.admin.configs import broker_config

            with pytest.raises(ClientError, match="only the node's own file"):
                admin.alter_config(broker_config(1), {key: kafkas})
    peer = ByDepartment.seen[-1]
    assert (peer.listener, peer.protocol, peer.mechanism) == (
        "SASL_PLAINTEXT",
        "SASL_PLAINTEXT",
        "PLAIN",
    )


def test_a_certificate_gets_the_principal_that_the_builder_returns() -> None:
    rules = RULES | {
        "super.users": "Department:clients",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
    }
    with EmbeddedBroker(rules, tls=True) as broker:
        own = {"ssl_keystore_location": broker.security_file("client.pem")}
        with Admin(broker.bootstrap, **broker.client_settings | own) as admin:
            admin.create_topics({"t": 1})
    assert ByDepartment.seen[-1].user == "client"
    assert ByDepartment.seen[-1].subject == "CN=client"


def test_a_plain_listener_has_a_principal_builder_too() -> None:
    rules = RULES | {"super.users": "Department:ANONYMOUSs"}
    with EmbeddedBroker(rules) as broker:
        with Wire(broker.bootstrap) as wire:
            wire.create_topic("t")
        with Wire(broker.bootstrap, source="127.0.0.2") as wire:
            wire.wait_until_closed()
        until(
            lambda: any("ANONYMOUS has left" in line for line in broker.log_lines),
            "the line about the refusal",
        )
