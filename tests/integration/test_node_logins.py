"""Listeners with TLS and SASL: accepted and refused logins, and the responses to them."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from harness.wire import Closed, Wire, until
from headwater import Admin, Consumer, Producer
from headwater.client.admin.configs import ConfigResource, ResourceType, broker_config
from headwater.client.errors import AuthenticationFailed, ClientError
from headwater.errors import ErrorCode
from headwater.protocol.apis import APIS, ApiKey, request_class
from headwater.protocol.frame import request_prefix
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.security.dev_certificates import issue, new_authority
from headwater.security.sasl.scram import ScramClient
from headwater.testing import EmbeddedBroker

PASSWORD = 'wonder,land=1 "quoted" \\'
USERS = {"alice": PASSWORD, "bob": "land"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
QUICK = {"connection.failed.authentication.delay.ms": "1"}


@pytest.fixture(scope="module")
def plain() -> Iterator[EmbeddedBroker]:
    """SASL_PLAINTEXT."""
    with EmbeddedBroker(QUICK, users=USERS, topics={"t": 1}) as broker:
        yield broker


@pytest.fixture(scope="module")
def secret() -> Iterator[EmbeddedBroker]:
    """SASL_SSL."""
    with EmbeddedBroker(QUICK, tls=True, users=USERS, topics={"t": 1}) as broker:
        yield broker


async def there_and_back(broker: EmbeddedBroker, topic: str, settings: dict[str, Any]) -> None:
    async with Producer(broker.bootstrap, **settings) as producer:
        await producer.send(topic, value=b"x" * 300_000)
    async with Consumer(
        broker.bootstrap, topics=[topic], group=None, auto_offset_reset="earliest", **settings
    ) as consumer:
        async for record in consumer:
            assert record.value == b"x" * 300_000
            return


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_users_log_in(
    plain: EmbeddedBroker, secret: EmbeddedBroker, protocol: str, mechanism: str
) -> None:
    broker = plain if protocol == "SASL_PLAINTEXT" else secret
    settings = broker.client_settings | {"sasl_mechanism": mechanism}
    asyncio.run(there_and_back(broker, "t", settings))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "nobody"])
def test_wrong_users_and_passwords_are_told_the_same(
    plain: EmbeddedBroker, mechanism: str, user: str
) -> None:
    wrong = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": "guess"}
    with pytest.raises(AuthenticationFailed) as refused:
        asyncio.run(there_and_back(plain, "t", plain.client_settings | wrong))
    told = (
        "Authentication failed: Invalid username or password"
        if mechanism == "PLAIN"
        else f"due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert told in str(refused.value)
    await_line(plain, f"listener=SASL_PLAINTEXT mechanism={mechanism} user={user}")
    assert "guess" not in "".join(plain.log_lines)


def wire_to(broker: EmbeddedBroker) -> Wire:
    return Wire(broker.bootstrap)


def send_frame(wire: Wire, frame: bytes) -> None:
    wire.socket.sendall(len(frame).to_bytes(4) + frame)


def await_line(broker: EmbeddedBroker, text: str) -> None:
    """Waits for a line of the log: the peer may know of the end of a connection earlier."""
    until(lambda: any(text in line for line in broker.log_lines), f"a line with {text!r}")


def rest_of(wire: Wire) -> bytes:
    """All bytes that come until the end of the connection."""
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := wire.socket.recv(4096):
            data += chunk
    return data


def test_before_authentication_every_other_api_ends_the_connection(plain: EmbeddedBroker) -> None:
    """Nothing of the request is even decoded."""
    for key, api in APIS.items():
        if key in (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE) or api.versions is None:
            continue
        for state in ("connected", "versions known", "mechanism chosen"):
            with wire_to(plain) as wire:
                if state != "connected":
                    assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
                if state == "mechanism chosen":
                    if key == ApiKey.SASL_AUTHENTICATE:
                        continue
                    wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                body = bytes(request_prefix(api, api.versions[1], 7, "x"))[4:] + b"\xff" * 20
                send_frame(wire, body)
                answer = rest_of(wire)
                if state != "mechanism chosen":
                    assert answer == b"", (api.name, state)
                elif answer:  # an error code, at the place that the API has for it
                    assert int(ErrorCode.ILLEGAL_SASL_STATE).to_bytes(2) in answer[8:], api.name


def test_the_states_of_an_authentication_are_kafkas(plain: EmbeddedBroker) -> None:
    with wire_to(plain) as wire:
        assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
        with pytest.raises(Closed):  # a second time
            wire.ask(ApiVersionsRequest(), 0)
    with wire_to(plain) as wire:
        answer = wire.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert answer.mechanisms == list(MECHANISMS)
        wire.wait_until_closed()
    with wire_to(plain) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0wonder"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Authentication failed: Invalid username or password"
        wire.wait_until_closed()
    with wire_to(plain) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0land"), 2)
        assert (answer.error_code, answer.auth_bytes, answer.session_lifetime_ms) == (0, b"", 0)
        assert wire.ask(MetadataRequest(topics=None), 12).brokers
        # Logins do not expire here, so there is nothing to log in to again.
        answer = wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE


def test_a_client_of_handshake_version_0_sends_bare_tokens(plain: EmbeddedBroker) -> None:
    with wire_to(plain) as wire:
        assert wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 0).error_code == 0
        client = ScramClient("SCRAM-SHA-256", "bob", "land", "nonce")
        send_frame(wire, client.first())
        final = client.answer(wire.read(int.from_bytes(wire.read(4))))
        assert final is not None
        send_frame(wire, final)
        assert client.answer(wire.read(int.from_bytes(wire.read(4)))) is None
        assert wire.ask(MetadataRequest(topics=None), 12).brokers
    with wire_to(plain) as wire:
        wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        send_frame(wire, b"\0bob\0guess")
        wire.wait_until_closed()


def test_a_large_frame_before_authentication_ends_the_connection(plain: EmbeddedBroker) -> None:
    with wire_to(plain) as wire:
        wire.socket.sendall((512 * 1024 + 1).to_bytes(4))
        wire.wait_until_closed()
    await_line(plain, "invalid frame size 524289")


def test_a_login_that_expires_is_renewed_by_the_same_user() -> None:
    settings = QUICK | {"connections.max.reauth.ms": "60000"}
    with EmbeddedBroker(settings, users=USERS) as broker, wire_to(broker) as wire:

        def log_in(token: bytes, mechanism: str = "PLAIN") -> Any:
            assert wire.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
            return wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)

        assert log_in(b"\0bob\0land").session_lifetime_ms == 60000
        assert wire.ask(MetadataRequest(topics=None), 12).brokers
        assert log_in(b"\0bob\0land").session_lifetime_ms == 60000
        assert wire.ask(MetadataRequest(topics=None), 12).brokers
        # Not more often than once a second: then it is a request like any other.
        answer = wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        with wire_to(broker) as wire:  # `log_in` uses this one now
            log_in(b"\0bob\0land")
            answer = log_in(f"\0alice\0{PASSWORD}".encode())
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == (
                "Cannot change principals during re-authentication from User.bob: User.alice"
            )
            wire.wait_until_closed()


def test_a_session_ends_when_it_has_expired() -> None:
    settings = QUICK | {"connections.max.reauth.ms": "100"}
    with EmbeddedBroker(settings, users=USERS) as broker:

        async def run() -> None:
            async with Admin(broker.bootstrap, **broker.client_settings) as admin:
                for _ in range(30):
                    await admin.list_topics()
                    await asyncio.sleep(0.01)

        asyncio.run(run())  # our clients replace their connections in time
        with wire_to(broker) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0land"), 2)
            with contextlib.suppress(Closed):
                while True:
                    wire.ask(MetadataRequest(topics=[]), 12)
        await_line(broker, "User:bob has expired")


def test_no_log_line_has_a_secret_even_at_debug_level() -> None:
    with EmbeddedBroker(QUICK, tls=True, users={"alice": "s3cret-one"}) as broker:
        asyncio.run(_at_debug_level(broker))
        for mechanism in MECHANISMS:
            settings = broker.client_settings | {"sasl_mechanism": mechanism}
            asyncio.run(there_and_back(broker, "t", settings))
            with pytest.raises(AuthenticationFailed):
                asyncio.run(there_and_back(broker, "t", settings | {"sasl_password": "s3cret-two"}))
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        users = f'{module} required user_alice="s3cret-one" user_bob="s3cret-three";'
        asyncio.run(alter(broker, {"listener.name.sasl_ssl.plain.sasl.jaas.config": users}))
        log = "".join(broker.log_lines)
        assert "SASL_AUTHENTICATE" in log or "authenticated on SASL_SSL as User:alice" in log
        for secret in ("s3cret", base64.b64encode(b"s3cret")[:6].decode(), "PRIVATE KEY"):
            assert secret not in log


async def _at_debug_level(broker: EmbeddedBroker) -> None:
    async with Admin(broker.bootstrap, **broker.client_settings) as admin:
        logger = ConfigResource(ResourceType.BROKER_LOGGER, "1")
        await admin.alter_config(logger, {"root": "DEBUG"})


# TLS


def tls_to(broker: EmbeddedBroker, **versions: ssl.TLSVersion) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=broker.security_file("ca.pem"))
    for name, version in versions.items():
        setattr(context, name, version)
    host, _, port = broker.bootstrap.rpartition(":")
    sock = socket.create_connection((host, int(port)), 10)
    try:
        return context.wrap_socket(sock, server_hostname="localhost")
    except BaseException:
        sock.close()
        raise


def test_the_versions_of_tls_are_those_of_the_settings() -> None:
    settings = {"ssl.enabled.protocols": "TLSv1.3"}
    with EmbeddedBroker(settings, tls=True) as broker:
        with tls_to(broker) as secured:
            assert secured.version() == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            tls_to(broker, maximum_version=ssl.TLSVersion.TLSv1_2)
        await_line(broker, "TLS failed: unsupported protocol")


def test_cipher_suites_have_the_names_that_java_gives_them() -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    with EmbeddedBroker({"ssl.cipher.suites": suite}, tls=True) as broker:
        with tls_to(broker) as secured:
            assert secured.cipher() == ("ECDHE-ECDSA-AES256-GCM-SHA384", "TLSv1.2", 256)
        with pytest.raises(ssl.SSLError):
            tls_to(broker, minimum_version=ssl.TLSVersion.TLSv1_3)


def test_a_client_certificate_is_the_user() -> None:
    settings = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1@tls/U",
    }
    broker = EmbeddedBroker(settings, tls=True)
    with broker:
        own = {"ssl_keystore_location": broker.security_file("client.pem")}
        asyncio.run(there_and_back(broker, "made", broker.client_settings | own))
        with pytest.raises(ClientError):
            asyncio.run(_refused(broker, broker.client_settings))
        await_line(broker, "TLS failed: peer did not return a certificate")


async def _refused(broker: EmbeddedBroker, settings: dict[str, Any]) -> None:
    async with Producer(broker.bootstrap, start_timeout_ms=2000, **settings):
        pass


def test_who_does_not_speak_tls_is_refused_in_one_line(secret: EmbeddedBroker) -> None:
    before = len(secret.log_lines)
    with wire_to(secret) as wire, pytest.raises(Closed):
        wire.ask(ApiVersionsRequest(), 0)
    await_line(secret, "closed: TLS failed:")
    assert len(secret.log_lines) == before + 1


def test_a_probe_of_the_port_is_not_logged(secret: EmbeddedBroker) -> None:
    before = secret.log_lines
    host, _, port = secret.bootstrap.rpartition(":")
    socket.create_connection((host, int(port)), 10).close()
    with tls_to(secret) as secured:  # accepted after the other one
        secured.close()
    assert secret.log_lines == before


def test_every_api_has_a_request_to_send_before_authentication() -> None:
    """The test above covers all that exist."""
    assert all(request_class(key) for key, api in APIS.items() if api.versions is not None)


# Changes while the node runs


async def alter(broker: EmbeddedBroker, changes: dict[str, str]) -> None:
    async with Admin(broker.bootstrap, **broker.client_settings) as admin:
        await admin.alter_config(broker_config(1), changes)


def presented(broker: EmbeddedBroker, ca: str) -> bytes | None:
    context = ssl.create_default_context(cadata=ca)
    host, _, port = broker.bootstrap.rpartition(":")
    with (
        socket.create_connection((host, int(port)), 10) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as secured,
    ):
        return secured.getpeercert(binary_form=True)


def test_users_and_mechanisms_change_while_the_node_runs() -> None:
    with EmbeddedBroker(QUICK, users={"alice": "wonder"}) as broker:
        prefix = "listener.name.sasl_plaintext"
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        bob = broker.client_settings | {"sasl_username": "bob", "sasl_password": "land"}
        with pytest.raises(AuthenticationFailed):
            asyncio.run(there_and_back(broker, "t", bob))
        jndi = "com.sun.security.auth.module.JndiLoginModule required;"
        with pytest.raises(ClientError, match="PlainLoginModule"):
            asyncio.run(alter(broker, {f"{prefix}.plain.sasl.jaas.config": jndi}))
        users = f'{module} required user_alice="wonder" user_bob="land";'
        asyncio.run(alter(broker, {f"{prefix}.plain.sasl.jaas.config": users}))
        asyncio.run(there_and_back(broker, "t", bob))
        with pytest.raises(ClientError, match="Kerberos"):
            asyncio.run(alter(broker, {f"{prefix}.sasl.enabled.mechanisms": "PLAIN,GSSAPI"}))
        asyncio.run(alter(broker, {f"{prefix}.sasl.enabled.mechanisms": "PLAIN"}))
        scram = broker.client_settings | {"sasl_mechanism": "SCRAM-SHA-256"}
        with pytest.raises(AuthenticationFailed, match="this listener offers PLAIN"):
            asyncio.run(there_and_back(broker, "t", scram))
        log = "".join(broker.log_lines)
        assert "wonder" not in log
        assert "Jndi" not in log


def test_a_new_certificate_is_for_the_same_subject_unless_that_may_change() -> None:
    now = datetime.now(UTC)
    other = new_authority("other", now=now, days=1)

    def keys(name: str, *hosts: str) -> dict[str, str]:
        pem = issue(other, name, hosts, now=now, days=1).pem
        start = "listener.name.ssl.ssl.keystore"
        return {f"{start}.key": pem, f"{start}.certificate.chain": pem}

    with EmbeddedBroker(tls=True) as broker:
        with pytest.raises(ClientError, match="expected the subject"):
            asyncio.run(alter(broker, keys("somebody", "localhost", "127.0.0.1")))
        with pytest.raises(ClientError, match="all subject alternative names"):
            asyncio.run(alter(broker, keys("broker", "localhost")))
        with pytest.raises(ClientError, match="PEM"):
            asyncio.run(alter(broker, {"listener.name.ssl.ssl.keystore.certificate.chain": "x"}))
        asyncio.run(alter(broker, keys("broker", "localhost", "127.0.0.1", "more")))
        until(
            lambda: _is_trusted(broker, other.certificate),
            "the new certificate",
        )
        assert "PRIVATE KEY" not in "".join(broker.log_lines)


def _is_trusted(broker: EmbeddedBroker, ca: str) -> bool:
    try:
        return presented(broker, ca) is not None
    except ssl.SSLError:
        return False


def test_the_authorities_of_clients_change_while_the_node_runs() -> None:
    now = datetime.now(UTC)
    other = new_authority("other", now=now, days=1)
    with EmbeddedBroker({"ssl.client.auth": "required"}, tls=True) as broker:
        ours = broker.client_settings
        first = ours | {"ssl_keystore_location": broker.security_file("client.pem")}
        second_file = Path(broker.security_file("second.pem"))
        second_file.write_text(issue(other, "second", (), now=now, days=1).pem)
        second = ours | {"ssl_keystore_location": str(second_file)}
        trusted = Path(broker.security_file("ca.pem"))
        before = trusted.read_text()

        def is_let_in(settings: dict[str, Any]) -> bool:
            try:
                asyncio.run(_refused(broker, settings))
            except ClientError:
                return False
            return True

        assert is_let_in(first)
        assert not is_let_in(second)
        # A file that was replaced is noticed within seconds; both authorities may sign for a while.
        (new := trusted.with_name("new.pem")).write_text(before + other.certificate)
        new.replace(trusted)
        until(lambda: is_let_in(second), "the client of the new authority", 60)
        assert is_let_in(first)
        # By a request, for one listener.
        key = "listener.name.ssl.ssl.truststore.certificates"

        async def trust(pem: str, settings: dict[str, Any]) -> None:
            async with Admin(broker.bootstrap, **settings) as admin:
                await admin.alter_config(broker_config(1), {key: pem})

        asyncio.run(trust(other.certificate, first))
        until(lambda: not is_let_in(first), "the end of the old authority", 60)
        assert is_let_in(second)
        with pytest.raises(ClientError, match="PEM"):
            asyncio.run(trust("nonsense", second))
        assert is_let_in(second)


def test_a_setting_of_one_mechanism_is_not_one_of_the_others() -> None:
    prefix = "listener.name.sasl_plaintext"
    settings = QUICK | {
        "connections.max.reauth.ms": "1000000",
        f"{prefix}.connections.max.reauth.ms": "2000000",
        f"{prefix}.plain.connections.max.reauth.ms": "3000000",
    }
    with EmbeddedBroker(settings, users={"bob": "land"}) as broker:
        with wire_to(broker) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"\0bob\0land"), 2)
            assert answer.session_lifetime_ms == 3_000_000
        with wire_to(broker) as wire:
            wire.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            client = ScramClient("SCRAM-SHA-256", "bob", "land", "nonce")
            token: bytes | None = client.first()
            while token is not None:
                answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
                token = client.answer(answer.auth_bytes)
            assert answer.session_lifetime_ms == 2_000_000


def test_the_rules_for_names_in_certificates_change_while_the_node_runs() -> None:
    settings = {
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:client;User:CLIENT@TLS",
    }
    with EmbeddedBroker(settings, tls=True) as broker:
        own = broker.client_settings | {"ssl_keystore_location": broker.security_file("client.pem")}

        async def set_rules(rules: str) -> None:
            async with Admin(broker.bootstrap, **own) as admin:
                key = "listener.name.ssl.ssl.principal.mapping.rules"
                await admin.alter_config(broker_config(1), {key: rules})

        def denials() -> list[str]:
            return [line for line in broker.log_lines if "authorization denied" in line]

        asyncio.run(set_rules("RULE:^CN=([^,]*).*$/$1@tls/U"))
        asyncio.run(set_rules("RULE:^CN=([^,]*).*$/$1@elsewhere/L"))
        assert not denials()
        with pytest.raises(ClientError, match=r"not allowed|AUTHORIZATION"):
            asyncio.run(set_rules("DEFAULT"))
        assert any("principal=User:client@elsewhere " in line for line in denials())
