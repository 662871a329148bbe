"""Three nodes that log in to each other with bearer tokens, and delegation tokens among them."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.clusters import Cluster
from headwater import Admin, NewTopic, Producer
from headwater.client.admin import DelegationToken
from headwater.security.oauth import URLS_VARIABLE
from tests.support.token_server import TokenServer

_PACKAGE = "org.apache.kafka.common.security"
SECRET = "never shown"


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    with TokenServer() as provider:
        monkeypatch.setenv(URLS_VARIABLE, f"{provider.url()},{provider.url('/jwks')}")
        yield provider


@pytest.fixture
def cluster(tmp_path: Path, provider: TokenServer) -> Iterator[Cluster]:
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.mechanism.controller.protocol": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("/jwks"),
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "sasl.oauthbearer.token.endpoint.url": provider.url(),
        "sasl.oauthbearer.client.credentials.client.id": "node",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "delegation.token.secret.key": SECRET,
    }
    with Cluster(tmp_path, settings=settings) as started:
        yield started.start()


def bearer(provider: TokenServer) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": provider.url(),
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": SECRET,
    }


def by_token(token: DelegationToken) -> dict[str, Any]:
    password = b64encode(token.hmac).decode()
    options = f'username="{token.id}" password="{password}" tokenauth="true";'
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_jaas_config": f"{_PACKAGE}.scram.ScramLoginModule required {options}",
    }


def test_nodes_log_in_with_bearer_tokens_and_tokens_survive_a_failover(
    cluster: Cluster, provider: TokenServer
) -> None:
    async def story() -> None:
        async with Admin(cluster.bootstrap, **bearer(provider)) as admin:
            await admin.create_topics([NewTopic("t", partitions=3, replication=3)])
            token = await admin.create_token()
            quorum = await admin.describe_quorum()
            cluster.kill(quorum.leader_id)
            renewed_ms = await admin.renew_token(token.hmac, period_ms=3_600_000)
            assert renewed_ms < token.expires_ms
            (found,) = await admin.describe_tokens()
            assert (found.id, found.hmac) == (token.id, token.hmac)
        async with Producer(cluster.bootstrap, acks="all", **by_token(token)) as producer:
            for number in range(30):
                producer.submit("t", value=b"%d" % number)
            await producer.flush()

    asyncio.run(story())
    printed = "".join(each.output.read_text(errors="replace") for each in cluster.nodes.values())
    assert SECRET not in printed
    assert "eyJ" not in printed, "part of a token"
