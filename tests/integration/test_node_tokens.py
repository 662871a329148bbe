"""Delegation tokens and bearer tokens on the listeners of a node."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.blocking import Admin, Producer
from headwater.cli.main import main
from headwater.client.admin import DelegationToken
from headwater.client.errors import AuthenticationFailed, ClientError
from headwater.config import ConfigError
from headwater.errors import ErrorCode
from headwater.security.oauth import URLS_VARIABLE
from headwater.security.tokens import token_hmac
from headwater.testing import EmbeddedBroker
from tests.support.jwts import jwk, jwks
from tests.support.token_server import TokenServer

KEY = "a secret of the cluster"
USERS = {"alice": "wonderland", "bob": "builder"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    settings = {
        "connection.failed.authentication.delay.ms": "1",
        "delegation.token.secret.key": KEY,
    }
    with EmbeddedBroker(settings, users=USERS, topics={"t": 1}) as broker:
        yield broker


def admin_of(broker: EmbeddedBroker, user: str = "alice") -> Admin:
    login = {"sasl_username": user, "sasl_password": USERS[user]}
    return Admin(broker.bootstrap, **(broker.client_settings | login))


def by_token(token: DelegationToken, mechanism: str = "SCRAM-SHA-256") -> dict[str, Any]:
    """Returns the settings to log in with a token."""
    password = b64encode(token.hmac).decode()
    options = f'username="{token.id}" password="{password}" tokenauth="true";'
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_jaas_config": f"{SCRAM} {options}",
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_program_logs_in_with_a_token_until_it_is_expired(
    broker: EmbeddedBroker, mechanism: str
) -> None:
    with admin_of(broker) as admin:
        token = admin.create_token(renewers=["User:bob"], lifetime_ms=3_600_000)
        assert token.hmac == token_hmac(token.id, KEY)
        assert (token.owner, token.requester) == ("User:alice", "User:alice")
        with Producer(broker.bootstrap, **by_token(token, mechanism)) as producer:
            producer.send("t", value=b"by token")
        assert token in admin.describe_tokens()
        assert token in admin.describe_tokens(["User:bob"])
        assert admin.describe_tokens([]) == []
        assert admin.describe_tokens(["User:nobody"]) == []
        with admin_of(broker, "bob") as bob:
            assert bob.renew_token(token.hmac, period_ms=1000) > token.issued_ms
        admin.expire_token(token.hmac)
        assert token.id not in {each.id for each in admin.describe_tokens()}
    with (
        pytest.raises(AuthenticationFailed),
        Producer(broker.bootstrap, **by_token(token, mechanism)) as producer,
    ):
        producer.send("t", value=b"too late")


def code_of(refused: pytest.ExceptionInfo[ClientError]) -> ErrorCode | None:
    return refused.value.code


def test_a_token_cannot_make_tokens(broker: EmbeddedBroker) -> None:
    with admin_of(broker) as admin:
        token = admin.create_token()
    with Admin(broker.bootstrap, **by_token(token)) as other:
        for ask in (
            other.create_token,
            other.describe_tokens,
            lambda: other.renew_token(token.hmac),
            lambda: other.expire_token(token.hmac),
        ):
            with pytest.raises(ClientError) as refused:
                ask()
            assert code_of(refused) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_the_wrong_secret_and_a_user_as_a_token_are_refused(broker: EmbeddedBroker) -> None:
    with admin_of(broker) as admin:
        token = admin.create_token()
    login = by_token(token)["sasl_jaas_config"]
    wrong = (
        login.replace(b64encode(token.hmac).decode(), "guess"),
        login.replace('tokenauth="true"', ""),
        f'{SCRAM} username="alice" password="wonderland" tokenauth="true";',
    )
    for jaas in wrong:
        with (
            pytest.raises(AuthenticationFailed),
            Admin(broker.bootstrap, **by_token(token) | {"sasl_jaas_config": jaas}) as admin,
        ):
            admin.list_topics()


def test_without_the_key_there_are_no_tokens() -> None:
    with EmbeddedBroker(users=USERS) as broker, admin_of(broker) as admin:
        for ask in (
            admin.create_token,
            admin.describe_tokens,
            lambda: admin.renew_token(b"x"),
            lambda: admin.expire_token(b"x"),
        ):
            with pytest.raises(ClientError) as refused:
                ask()
            assert code_of(refused) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def test_expired_tokens_are_swept_and_the_others_survive_a_restart(tmp_path: Path) -> None:
    settings = {
        "delegation.token.secret.key": KEY,
        "delegation.token.expiry.check.interval.ms": "10",
    }
    with EmbeddedBroker(settings, users=USERS, data=tmp_path / "d") as broker:
        with admin_of(broker) as admin:
            kept = admin.create_token()
            brief = admin.create_token(lifetime_ms=1)
            while {each.id for each in admin.describe_tokens()} != {kept.id}:
                pass  # until the sweep; the test's time limit ends it otherwise
        assert any(f"token {brief.id} has ended" in line for line in broker.log_lines)
        broker.stop()
        broker.start()
        with Admin(broker.bootstrap, **by_token(kept)) as admin:
            admin.list_topics()
        assert b64encode(kept.hmac).decode() not in "".join(broker.log_lines)


def test_the_command_creates_lists_renews_and_expires(
    broker: EmbeddedBroker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "client.properties"
    login = broker.client_settings
    file.write_text("".join(f"{key.replace('_', '.')}={text}\n" for key, text in login.items()))
    monkeypatch.setenv("HEADWATER_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HEADWATER_CLIENT_CONFIG", str(file))

    def token(*arguments: str) -> Any:
        assert main(("token", *arguments, "--output", "json")) == 0, capsys.readouterr()
        return json.loads(capsys.readouterr().out)

    made = token("create", "--owner", "User:etl", "--renewer", "User:bob", "--lifetime", "1h")
    assert (made["owner"], made["requester"]) == ("User:etl", "User:alice")
    assert made["expires at most"] - made["issued"] == 3_600_000
    (listed,) = token("list", "--owner", "User:etl")
    assert listed["id"] == made["id"]
    assert "hmac" not in listed
    secret = tmp_path / "hmac"
    secret.write_text(made["hmac"])
    assert token("renew", "--hmac-file", str(secret), "--period", "10m")["expires"]
    token("expire", "--hmac-file", str(secret))
    assert token("list", "--owner", "User:etl") == []
    secret.write_text("not base64!")
    assert main(("token", "renew", "--hmac-file", str(secret))) == 2
    assert "not in base64" in capsys.readouterr().err


# Bearer tokens


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[TokenServer]:
    with TokenServer() as provider:
        monkeypatch.setenv(URLS_VARIABLE, f"{provider.url()},{provider.url('/jwks')}")
        yield provider


def bearer_settings(provider: TokenServer) -> dict[str, str]:
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    prefix = "listener.name.sasl_plaintext.oauthbearer.sasl"
    return {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        f"{prefix}.server.callback.handler.class": handler,
        "sasl.oauthbearer.jwks.endpoint.url": provider.url("/jwks"),
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "20",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        "connection.failed.authentication.delay.ms": "1",
    }


def bearer_client(broker: EmbeddedBroker, provider: TokenServer) -> Admin:
    return Admin(
        broker.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_endpoint_url=provider.url(),
        sasl_oauthbearer_client_credentials_client_id="me",
        sasl_oauthbearer_client_credentials_client_secret="hidden",
    )


def test_a_client_logs_in_with_a_token_that_the_provider_signed(provider: TokenServer) -> None:
    with EmbeddedBroker(bearer_settings(provider)) as broker:
        with bearer_client(broker, provider) as admin:
            assert admin.list_topics() == []
        provider.claims["aud"] = "somebody else"
        with (
            pytest.raises(AuthenticationFailed, match="invalid_token"),
            bearer_client(broker, provider) as admin,
        ):
            admin.list_topics()
        line = next(each for each in broker.log_lines if "mechanism=OAUTHBEARER" in each)
        assert "audience" in line
        assert "eyJ" not in line, "part of a token"


def test_keys_are_rotated_while_the_node_runs(provider: TokenServer) -> None:
    provider.keys = jwks(jwk(kid="old"))
    with EmbeddedBroker(bearer_settings(provider)) as broker:
        with pytest.raises(AuthenticationFailed), bearer_client(broker, provider) as admin:
            admin.list_topics()
        provider.keys = jwks(jwk(kid="old"), jwk())
        while True:  # each attempt has the keys read again; the test's time limit ends it otherwise
            try:
                with bearer_client(broker, provider) as admin:
                    assert admin.list_topics() == []
                    return
            except AuthenticationFailed:
                continue


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("sasl.oauthbearer.jwks.endpoint.url", "", "expected where the keys are"),
        ("sasl.oauthbearer.jwks.endpoint.url", "https://other/jwks", URLS_VARIABLE),
        ("sasl.oauthbearer.jwks.endpoint.url", "file:///etc/passwd", URLS_VARIABLE),
        ("sasl.server.callback.handler.class", "evil.Handler", "not supported"),
        ("sasl.oauthbearer.jwt.validator.class", "evil.Validator", "not supported"),
    ],
)
def test_a_node_that_could_not_check_tokens_does_not_start(
    provider: TokenServer, key: str, value: str, said: str
) -> None:
    with (
        pytest.raises(ConfigError, match=said),
        EmbeddedBroker(bearer_settings(provider) | {key: value}),
    ):
        pass
