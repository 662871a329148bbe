"""The clients through TLS and SASL: to the real broker, behind a front that has both."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import runpy
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509 import load_pem_x509_certificates

from headwater import Admin, Consumer, Producer, blocking
from headwater.client.errors import AuthenticationFailed, ConfigError
from headwater.testing import EmbeddedBroker
from tests.support.secure_front import Certificates, SecureFront

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "security.py"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
USERS = {"alice": "wonder,land=1", "token-of-alice": "any"}
ALICE = {"sasl_username": "alice", "sasl_password": "wonder,land=1"}

Open = Callable[..., SecureFront]


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def front() -> Iterator[Open]:
    with ExitStack() as stack:

        def make(**options: Any) -> SecureFront:
            front = stack.enter_context(SecureFront(**options).running())
            settings = {
                "advertised.listeners": f"PLAINTEXT://{front.address}",
                "group.initial.rebalance.delay.ms": "0",
            }
            broker = stack.enter_context(EmbeddedBroker(settings))
            front.target = next(iter(broker.addresses.values()))
            return front

        yield make


async def there_and_back(address: str, settings: dict[str, Any], *, count: int = 3000) -> None:
    """Sends, reads back in a group, and asks the admin."""
    async with Producer(address, **settings) as producer:
        first = await producer.send("secrets", value=b"first")
        assert first.offset == 0
        for number in range(1, count):
            producer.submit("secrets", value=b"%d" % number * 100)
        await producer.flush()
    async with Consumer(
        address, group="readers", topics=["secrets"], auto_offset_reset="earliest", **settings
    ) as consumer:
        seen = 0
        async for record in consumer:
            assert record.offset == seen
            seen += 1
            if seen == count:
                break
    async with Admin(address, **settings) as admin:
        assert "secrets" in {each.name for each in await admin.list_topics()}


def sasl(mechanism: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"sasl_mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauthbearer_token": lambda: "token-of-alice"}
    return settings | ALICE


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_everything_goes_through_tls_and_sasl(
    front: Open, certificates: Certificates, mechanism: str
) -> None:
    at = front(context=certificates.context(), mechanisms=(mechanism,), users=USERS)
    settings: dict[str, Any] = {"security_protocol": "SASL_SSL", "ssl_ca_location": certificates.ca}
    asyncio.run(there_and_back(at.address, settings | sasl(mechanism)))


def test_a_client_shows_its_certificate(front: Open, certificates: Certificates) -> None:
    at = front(context=certificates.context(wants_client=True))
    ways: tuple[dict[str, Any], ...] = (
        {
            "ssl_truststore_location": certificates.ca,
            "ssl_keystore_location": certificates.client,
        },
        {
            "ssl_ca_location": certificates.ca,
            "ssl_certificate_location": certificates.chain,
            "ssl_key_location": certificates.key,
        },
        {
            "ssl_ca_location": certificates.ca,
            "ssl_certificate_location": certificates.chain,
            "ssl_key_location": certificates.locked_key,
            "ssl_key_password": certificates.KEY_PASSWORD,
            "ssl_enabled_protocols": "TLSv1.2",
            "ssl_cipher_suites": "ECDHE-ECDSA-AES256-GCM-SHA384,ECDHE-RSA-AES256-GCM-SHA384",
        },
    )
    for way in ways:
        with blocking.Admin(at.address, security_protocol="SSL", **way) as admin:
            assert admin.describe_cluster().nodes
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.client)
    asyncio.run(
        there_and_back(at.address, {"security_protocol": "SSL", "ssl_context": context}, count=5)
    )


def test_kafkas_own_names_for_all_of_it(front: Open, certificates: Certificates) -> None:
    at = front(context=certificates.context(), mechanisms=("SCRAM-SHA-512",), users=USERS)
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    config = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": Path(certificates.ca).read_text(),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="alice" password="wonder,land=1";',
    }
    with blocking.Producer(at.address, config=config) as producer:
        producer.send("secrets", value=b"x")
    assert "wonder" not in repr(Producer(at.address, config=config).config)


def test_a_token_may_be_awaited_and_is_asked_for_at_each_login(front: Open) -> None:
    at = front(mechanisms=("OAUTHBEARER",), users=USERS)
    asked = 0

    async def token() -> str:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        return "token-of-alice"

    settings: dict[str, Any] = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token": token,
    }
    asyncio.run(there_and_back(at.address, settings, count=5))
    assert asked == at.logins > 2


def test_a_login_that_runs_out_is_renewed_and_nothing_is_lost(front: Open) -> None:
    at = front(mechanisms=("PLAIN",), users=USERS, lifetime_ms=400)
    settings: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", **sasl("PLAIN")}

    async def run() -> None:
        loop = asyncio.get_running_loop()
        async with (
            Producer(at.address, **settings) as producer,
            Consumer(
                at.address, group="readers", topics=["t"], auto_offset_reset="earliest", **settings
            ) as consumer,
        ):
            end = loop.time() + 2.0
            sent = 0
            while loop.time() < end:
                producer.submit("t", value=b"%d" % sent)
                sent += 1
                await asyncio.sleep(0.002)
            await producer.flush()
            seen: list[bytes | None] = []
            async with asyncio.timeout(20):
                while len(seen) < sent:
                    seen += [record.value for record in await consumer.poll(timeout_ms=500)]
            assert seen == [b"%d" % number for number in range(sent)]
            # Only a machine that stalls for longer than a renewal is early may cost a retry.
            assert at.expired or producer.metrics()["record-retry-total"] == 0

    asyncio.run(run())
    assert at.logins > 8


# What is refused


def failed(address: str, **settings: Any) -> Exception:
    """Returns why a producer cannot start. It has more time where a busy front said nothing yet."""

    async def run(timeout_ms: int) -> None:
        async with Producer(address, start_timeout_ms=timeout_ms, **settings):
            pass

    for timeout_ms in (1500, 6000, 24_000):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # which one is asked by the tests
            asyncio.run(run(timeout_ms))
        if "no answer" not in str(caught.value):
            break
    return caught.value


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_is_not_believed_hears_it_at_once(front: Open, mechanism: str) -> None:
    at = front(mechanisms=(mechanism,), users=USERS)
    settings = sasl(mechanism) | {"security_protocol": "SASL_PLAINTEXT"}
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauthbearer_token"] = lambda: "forged"
    else:
        settings["sasl_password"] = "guessed"
    error = failed(at.address, **settings)
    assert isinstance(error, AuthenticationFailed), error
    assert "SASL_AUTHENTICATION_FAILED" in str(error)
    assert "guessed" not in str(error)
    assert "forged" not in str(error)


def test_a_broker_that_does_not_know_the_password_is_not_believed(front: Open) -> None:
    at = front(mechanisms=("SCRAM-SHA-256",), users=USERS, is_liar=True)
    error = failed(at.address, security_protocol="SASL_PLAINTEXT", **sasl("SCRAM-SHA-256"))
    assert isinstance(error, AuthenticationFailed)
    assert "signature is wrong" in str(error)


def test_another_mechanism_than_the_listener_has(front: Open) -> None:
    at = front(mechanisms=("SCRAM-SHA-512",), users=USERS)
    error = failed(at.address, security_protocol="SASL_PLAINTEXT", **sasl("PLAIN"))
    assert isinstance(error, AuthenticationFailed)
    assert "this listener offers SCRAM-SHA-512" in str(error)


def test_certificates_that_do_not_fit(front: Open, certificates: Certificates) -> None:
    at = front(context=certificates.context(wants_client=True))
    error = failed(at.address, security_protocol="SSL")
    assert isinstance(error, AuthenticationFailed)
    assert "ssl_truststore_location" in str(error)
    error = failed(at.address, security_protocol="SSL", ssl_ca_location=certificates.ca)
    assert "ssl_keystore_location" in str(error)  # this front hangs up and says nothing
    elsewhere = at.address.replace("localhost", "127.0.0.1")
    settings: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_ca_location": certificates.ca,
        "ssl_keystore_location": certificates.client,
    }
    error = failed(elsewhere, **settings)
    assert isinstance(error, AuthenticationFailed)
    assert "127.0.0.1" in str(error)
    # With this setting, any host name is accepted.
    settings["ssl_endpoint_identification_algorithm"] = ""
    with blocking.Admin(elsewhere, **settings) as admin:
        assert admin.describe_cluster().nodes


def test_listeners_of_another_kind_are_named(front: Open, certificates: Certificates) -> None:
    secret, plain = front(context=certificates.context()), front()
    error = failed(secret.address)
    assert "is it a listener for TLS or SASL" in str(error)  # this front hangs up on it
    error = failed(plain.target, security_protocol="SSL", ssl_ca_location=certificates.ca)
    assert "PLAINTEXT listener" in str(error)
    wants_login = front(mechanisms=("PLAIN",), users=USERS)
    error = failed(wants_login.address)
    assert "security_protocol" in str(error)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"security_protocol": "SASL_SSL"}, "sasl_mechanism is needed"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI"}, "PLAIN, SCRAM"),
        ({"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}, "needs sasl_username"),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER"},
            "needs sasl_oauthbearer_token",
        ),
        (
            {
                "security_protocol": "SASL_SSL",
                "sasl_mechanism": "PLAIN",
                "sasl_jaas_config": 'password="hidden"',
            },
            "sasl_jaas_config cannot be read",
        ),
        ({"security_protocol": "SSL", "ssl_ca_location": "nowhere.pem"}, "nowhere.pem"),
        ({"security_protocol": "SSL", "ssl_truststore_location": "nowhere.pem"}, "nowhere.pem"),
        ({"security_protocol": "SSL", "ssl_enabled_protocols": "TLSv1.1"}, "TLSv1.2, TLSv1.3"),
        ({"security_protocol": "SSL", "ssl_cipher_suites": "NOT_A_CIPHER"}, "TLS cannot be set up"),
        ({"security_protocol": "SSL", "ssl_context": "yes"}, "an ssl.SSLContext"),
        ({"security_protocol": "TLS"}, "one of PLAINTEXT, SSL"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_opened(
    settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Producer("localhost:9092", **settings)
    assert said in str(refused.value)
    assert "hidden" not in str(refused.value)


@pytest.mark.parametrize("password", [None, "guessed"])
def test_a_key_that_stays_locked_is_refused_without_asking(
    certificates: Certificates, password: str | None
) -> None:
    with pytest.raises(ConfigError, match=r"locked-key\.pem") as refused:
        Producer(
            "localhost:9092",
            security_protocol="SSL",
            ssl_certificate_location=certificates.chain,
            ssl_key_location=certificates.locked_key,
            ssl_key_password=password,
        )
    assert "guessed" not in str(refused.value)


def test_what_goes_along_with_a_token_is_in_the_jaas_config(front: Open) -> None:
    at = front(mechanisms=("OAUTHBEARER",), users=USERS)
    module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
    with blocking.Admin(
        at.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token=lambda: "token-of-alice",
        sasl_jaas_config=f'{module} required extension_logicalCluster="lkc-1";',
    ) as admin:
        assert admin.describe_cluster().nodes
    assert at.extensions == {"logicalCluster=lkc-1"}


def pkcs12_of(certificates: Certificates, *, password: str) -> tuple[bytes, bytes]:
    """A keystore with the client's certificate, and a truststore with the authority."""
    chain = load_pem_x509_certificates(Path(certificates.chain).read_bytes())
    key = load_pem_private_key(Path(certificates.key).read_bytes(), None)
    authority = load_pem_x509_certificates(Path(certificates.ca).read_bytes())
    lock = BestAvailableEncryption(password.encode())
    own = pkcs12.serialize_key_and_certificates(b"own", key, chain[0], chain[1:], lock)  # type: ignore[arg-type]  # an RSA or EC key
    trusted = pkcs12.serialize_java_truststore(
        [pkcs12.PKCS12Certificate(each, b"ca") for each in authority], lock
    )
    return own, trusted


@pytest.mark.parametrize("kind", ["PKCS12", "JKS", None])
def test_stores_of_java_open_a_listener(
    front: Open, certificates: Certificates, tmp_path: Path, kind: str | None
) -> None:
    at = front(context=certificates.context(wants_client=True))
    keystore, truststore = tmp_path / "own.p12", tmp_path / "trusted.p12"
    for path, data in zip(
        (keystore, truststore), pkcs12_of(certificates, password="changeit"), strict=True
    ):
        path.write_bytes(data)
    settings: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_keystore_location": str(keystore),
        "ssl_keystore_password": "changeit",
        "ssl_truststore_location": str(truststore),
        "ssl_truststore_password": "changeit",
    }
    if kind is not None:
        settings |= {"ssl_keystore_type": kind, "ssl_truststore_type": kind}
    with blocking.Admin(at.address, **settings) as admin:
        assert admin.describe_cluster().nodes
    with pytest.raises(ConfigError, match="password is wrong") as refused:
        Producer("localhost:9092", **settings | {"ssl_keystore_password": "guess"})
    assert "guess" not in str(refused.value)


def test_a_broken_store_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "store.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConfigError, match="it ends early"):
        Producer("localhost:9092", security_protocol="SSL", ssl_truststore_location=str(store))


def test_a_truststore_without_certificates_is_refused(
    tmp_path: Path, certificates: Certificates
) -> None:
    empty = tmp_path / "empty.jks"
    empty.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2\0\0\0\0" + bytes(20))
    for store in (str(empty), certificates.key):
        with pytest.raises(ConfigError, match="no certificate"):
            Producer("localhost:9092", security_protocol="SSL", ssl_truststore_location=store)


def test_settings_without_an_effect_are_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "headwater.client"), contextlib.suppress(ConfigError):
        Producer("localhost:9092", sasl_username="alice", ssl_ca_location="ca.pem")
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        "ssl.ca.location has no effect with security_protocol=PLAINTEXT",
        "sasl.username has no effect with security_protocol=PLAINTEXT",
    ]


def test_the_example_of_security_is_let_in(front: Open, certificates: Certificates) -> None:
    example = runpy.run_path(str(EXAMPLE))
    users = {"orders": "secret"}
    scram = front(context=certificates.context(), mechanisms=("SCRAM-SHA-512",), users=users)
    mutual = front(context=certificates.context(wants_client=True))
    users = {"orders": "..."}
    plain = front(context=certificates.context(), mechanisms=("PLAIN",), users=users)
    context = ssl.create_default_context(cafile=certificates.ca)
    context.load_cert_chain(certificates.client)
    ca = certificates.ca
    clients = [
        example["with_a_password"](scram.address, "secret", ca),
        example["with_a_certificate"](mutual.address, ca, certificates.client),
        example["with_a_context"](mutual.address, context),
        example["with_the_settings_of_a_java_client"](plain.address, ca),
    ]

    async def run() -> None:
        for client in clients:
            async with client:
                pass

    asyncio.run(run())
    assert isinstance(example["with_a_token"](plain.address), Admin)
