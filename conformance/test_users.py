"""Users, delegation tokens and bearer tokens: Kafka's tools manage them and log in with them."""

from __future__ import annotations

import re
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from conformance.conftest import Subject
from harness import kafka_jars
from harness.nodes import HEADWATER, Flavour, Kafka, Node, free_port, run_java
from harness.wire import Closed, Wire
from headwater.blocking import Admin
from headwater.client.admin import Acl, AclResource
from headwater.client.errors import ClientError
from headwater.io import Host
from headwater.protocol import Message
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.security.oauth import URLS_VARIABLE
from headwater.security.operations import Operation
from headwater.security.tokens import token_hmac
from headwater.testing import EmbeddedBroker
from tests.support.token_server import TokenServer

CONFIGS = "kafka.admin.ConfigCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
STORAGE = "kafka.tools.StorageTool"
_SECURITY = "org.apache.kafka.common.security"
KEY = "a secret of the cluster"


def test_config_command_adds_lists_and_deletes_users(subject: Subject, topic: str) -> None:
    entity = ("--entity-type", "users", "--entity-name", topic)

    def shown() -> str:
        return subject.tool(CONFIGS, "--describe", *entity)

    added = "SCRAM-SHA-256=[iterations=8192,password=secret]"
    assert "Completed updating config" in subject.tool(
        CONFIGS, "--alter", *entity, "--add-config", added
    )
    subject.tool(CONFIGS, "--alter", *entity, "--add-config", "SCRAM-SHA-512=[password=secret]")
    assert "SCRAM credential configs for user-principal" in shown()
    assert "SCRAM-SHA-256=iterations=8192" in shown()
    assert "SCRAM-SHA-512=iterations=4096" in shown()
    subject.tool(CONFIGS, "--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in shown()
    gone = ("--alter", *entity, "--delete-config", "SCRAM-SHA-256")
    assert "ResourceNotFoundException" in subject.refusal(CONFIGS, *gone)
    weak = ("--alter", *entity, "--add-config", "SCRAM-SHA-256=[iterations=5,password=x]")
    assert "iterations" in subject.refusal(CONFIGS, *weak).lower()


def test_first_users_are_written_as_by_kafka_storage(jars: Path, tmp_path: Path) -> None:
    """Both write the same record for a user whose salt is given."""
    from headwater.broker.formatting import read_bootstrap
    from headwater.protocol.records.metadata_security import UserScramCredentialRecord

    users = (
        'SCRAM-SHA-512=[name=alice,iterations=8192,salt="N3E=",saltedpassword="YCE="]',
        'SCRAM-SHA-256=[name=bob,password="a b",salt="N3E="]',
    )
    options = [word for user in users for word in ("--add-scram", user)]
    found = []
    for name in ("kafka", "headwater"):
        data, file = tmp_path / name, tmp_path / f"{name}.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": "localhost:9093",
            "log.dirs": str(data),
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        common = ["format", "--config", str(file), "--standalone", "--cluster-id"]
        common += ["3Db5QLSqSZieL3rJBUUegA", *options]
        if name == "kafka":
            run_java(jars, STORAGE, *common)
        else:
            subprocess.run([str(HEADWATER), *common], check=True)
        records = read_bootstrap(Host.system().disk, str(data))
        found.append([each for each in records if isinstance(each, UserScramCredentialRecord)])
    assert len(found[0]) == 2
    assert sorted(found[0], key=repr) == sorted(found[1], key=repr)


class Guarded:
    """A broker with delegation tokens and rules, where these users log in with PLAIN."""

    USERS = {"admin": "root", "alice": "wonderland", "bob": "builder", "eve": "apple"}
    RULES = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }

    def __init__(self, flavour: Flavour, folder: Path, stack: ExitStack) -> None:
        if not isinstance(flavour, Kafka):
            broker = EmbeddedBroker(
                self.RULES | {"delegation.token.secret.key": KEY}, users=self.USERS
            )
            stack.enter_context(broker)
            self.address = broker.bootstrap
            return
        node = Node(flavour, folder)
        self.address = f"127.0.0.1:{free_port()}"
        listed = " ".join(f'user_{user}="{word}"' for user, word in self.USERS.items())
        prefix = "listener.name.sasl_plaintext"
        node.settings |= {
            "listeners": f"PLAINTEXT://{node.bootstrap},SASL_PLAINTEXT://{self.address},"
            f"CONTROLLER://127.0.0.1:{node.controller_port}",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            ),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            f"{prefix}.plain.sasl.jaas.config": (
                f"{_SECURITY}.plain.PlainLoginModule required {listed};"
            ),
            f"{prefix}.scram-sha-256.sasl.jaas.config": (
                f"{_SECURITY}.scram.ScramLoginModule required;"
            ),
            "delegation.token.secret.key": KEY,
            **self.RULES,
        }
        node.start()
        stack.callback(node.remove)
        stack.callback(node.stop)

    def admin(self, user: str) -> Admin:
        return Admin(
            self.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username=user,
            sasl_password=self.USERS[user],
        )

    def by_token(self, token: Any) -> Admin:
        password = b64encode(token.hmac).decode()
        return Admin(
            self.address,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_jaas_config=f'{_SECURITY}.scram.ScramLoginModule required username="{token.id}" '
            f'password="{password}" tokenauth="true";',
        )


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, jars: Path, flavour: Flavour
) -> Iterator[tuple[Guarded, Guarded]]:
    """Kafka, and the subject."""
    with ExitStack() as stack:
        yield (
            Guarded(Kafka(jars), tmp_path_factory.mktemp("kafka"), stack),
            Guarded(flavour, tmp_path_factory.mktemp("subject"), stack),
        )


def story(at: Guarded) -> list[Any]:
    """Returns the tokens that alice and bob see, without times and ids."""
    seen: list[Any] = []

    def ask(work: Any) -> Any:
        try:
            found = work()
        except ClientError as refused:
            seen.append(refused.code)
            return None
        is_token = hasattr(found, "hmac")
        seen.append((found.owner, found.requester, found.renewers) if is_token else "done")
        return found

    with at.admin("alice") as alice, at.admin("bob") as bob:
        token = ask(lambda: alice.create_token(renewers=["User:bob"], lifetime_ms=600_000))
        seen.append(token.hmac == token_hmac(token.id, KEY))
        seen.append(token.expires_at_most_ms - token.issued_ms)
        own = ask(lambda: alice.create_token())
        seen.append((own.expires_ms - own.issued_ms, own.expires_at_most_ms - own.issued_ms))
        ask(lambda: alice.create_token(owner="User:carol"))
        ask(lambda: alice.create_token(renewers=["Group:bob"]))
        while True:  # Kafka's nodes learn of a token a little after it was made
            try:
                alice.renew_token(own.hmac)
                alice.renew_token(token.hmac)
                with at.by_token(own) as program:
                    program.list_topics()
            except ClientError:
                continue
            if len(alice.describe_tokens()) == 2:
                break
        ask(lambda: bob.renew_token(token.hmac, period_ms=100_000))
        ask(lambda: bob.renew_token(own.hmac))
        ask(lambda: bob.expire_token(own.hmac))
        ask(lambda: bob.renew_token(b"nobody"))
        ask(lambda: bob.expire_token(b"nobody"))
        for owners in (None, [], ["User:bob"], ["User:carol"], ["User:nobody"]):
            described = bob.describe_tokens(owners)
            seen.append(sorted((each.owner, each.requester, each.renewers) for each in described))
        with at.by_token(own) as program:
            ask(program.list_topics)
            ask(program.create_token)
            ask(lambda: program.renew_token(own.hmac))
            ask(lambda: program.expire_token(own.hmac))
            ask(program.describe_tokens)
        seen += rights_story(at, token.id)
        ask(lambda: alice.expire_token(own.hmac, period_ms=60_000))
        ask(lambda: alice.expire_token(own.hmac))
    return seen


def rights_story(at: Guarded, token_id: str) -> list[Any]:
    """Returns what rules on tokens and on their owners change (KIP-373)."""
    carol, operation, kind = "User:carol", Operation, AclResource
    rules = [
        Acl(kind.USER, carol, "User:alice", operation.CREATE_TOKENS),
        Acl(kind.USER, carol, "User:eve", operation.DESCRIBE_TOKENS),
        Acl(kind.DELEGATION_TOKEN, token_id, "User:eve", operation.DESCRIBE),
    ]
    seen: list[Any] = []

    def seen_by_eve(owners: list[str] | None = None) -> list[tuple[str, str | None]]:
        with at.admin("eve") as eve:
            return sorted((each.owner, each.requester) for each in eve.describe_tokens(owners))

    seen.append(seen_by_eve())
    with at.admin("admin") as admin:
        assert not any(admin.create_acls(rules).values())
    with at.admin("alice") as alice:
        while True:  # Kafka's nodes learn of a rule a little after it was made
            try:
                made = alice.create_token(owner=carol)
                break
            except ClientError:
                continue
        seen.append((made.owner, made.requester))
        with pytest.raises(ClientError) as other:
            alice.create_token(owner="User:dave")
        seen.append(other.value.code)
    while len(seen_by_eve()) < 2:
        pass
    seen += [seen_by_eve(), seen_by_eve([carol]), seen_by_eve(["User:bob"])]
    return seen


def test_tokens_live_and_die_as_kafkas(guarded: tuple[Guarded, Guarded]) -> None:
    kafka, subject = map(story, guarded)
    assert subject == kafka


MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
_TOKENS = (
    b"\0alice\0wonderland",
    b"alice\0alice\0wonderland",
    b"bob\0alice\0wonderland",
    b"\0alice\0guess",
    b"\0nobody\0guess",
    b"\0\0guess",
    b"\0alice\0",
    b"\0alice",
    b"",
    b"\xff\xfe",
    b"n,,n=alice",
    b"n,,n=alice,r=",
    b"n,a=bob,n=alice,r=mine",
)


def conversations() -> Iterator[list[Message]]:
    """The requests that a peer may send before it has logged in, one after the other."""
    versions = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    handshakes = [SaslHandshakeRequest(mechanism=each) for each in (*MECHANISMS, "GSSAPI", "")]
    plain, scram = handshakes[:2]
    say = [SaslAuthenticateRequest(auth_bytes=token) for token in _TOKENS]
    topics = MetadataRequest(topics=None)
    yield from ([first] for first in (versions, *handshakes, say[0], topics))
    for handshake in handshakes:
        yield [versions, handshake]
        yield [versions, versions, handshake]
        yield [handshake, versions]
        yield [handshake, handshake]
        yield [handshake, topics]
    yield from ([plain, each, topics] for each in say)
    # But for the last one: Kafka has no alice who logs in by SCRAM, and looks for her first.
    yield from ([scram, each] for each in say[:-1])
    yield [plain, say[0], plain, say[0]]
    yield [plain, say[0], versions, topics]


def answers(at: str, requests: list[Message]) -> list[Any]:
    """Returns what is said to each request, until the end of the connection."""
    found: list[Any] = []
    with Wire(at) as wire:
        for request in requests:
            version = 3 if isinstance(request, ApiVersionsRequest) else None
            try:
                answer = wire.ask(request, version)
            except Closed:
                found.append("closed")
                break
            said = {
                name: getattr(answer, name)
                for name in ("error_code", "error_message", "auth_bytes", "session_lifetime_ms")
                if hasattr(answer, name)
            }
            found.append((type(answer).__name__, said))
    return found


def test_a_login_is_answered_as_by_kafka(guarded: tuple[Guarded, Guarded]) -> None:
    """Each step, each error code, and the words of each refusal."""
    kafka, subject = guarded
    all_requests = list(conversations())
    ours, theirs = (
        [answers(each.address, requests) for requests in all_requests] for each in (subject, kafka)
    )
    differences = [
        each for each in zip(all_requests, ours, theirs, strict=True) if each[1] != each[2]
    ]
    assert not differences, differences


def test_delegation_token_command_works(
    guarded: tuple[Guarded, Guarded], jars: Path, tmp_path: Path
) -> None:
    _, subject = guarded
    file = tmp_path / "bob.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f"sasl.jaas.config={_SECURITY}.plain.PlainLoginModule required "
        'username="bob" password="builder";\n'
    )

    def tokens(*arguments: str) -> str:
        aimed = ("--bootstrap-server", subject.address, "--command-config", str(file))
        return run_java(jars, TOKENS, *aimed, *arguments).stdout

    made = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice")
    row = re.search(
        r"^(\S{22})\s+(\S+==)\s+User:bob\s+User:bob\s+\[User:alice\]", made, re.MULTILINE
    )
    assert row is not None, made
    assert b64decode(row[2]) == token_hmac(row[1], KEY)
    assert row[1] in tokens("--describe", "--owner-principal", "User:bob")
    tokens("--renew", "--renew-time-period", "3600000", "--hmac", row[2])
    tokens("--expire", "--expiry-time-period", "-1", "--hmac", row[2])
    assert row[1] not in tokens("--describe", "--owner-principal", "User:bob")


def test_a_java_client_logs_in_with_a_bearer_token(
    jars: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TokenServer() as provider:
        monkeypatch.setenv(URLS_VARIABLE, provider.url("/jwks"))
        settings = {
            "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": provider.url("/jwks"),
            "sasl.oauthbearer.expected.audience": "kafka",
            "sasl.oauthbearer.expected.issuer": "https://issuer",
        }
        file = tmp_path / "client.properties"
        file.write_text(
            "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
            f"sasl.jaas.config={_SECURITY}.oauthbearer.OAuthBearerLoginModule required;\n"
            f"sasl.login.callback.handler.class={_SECURITY}.oauthbearer."
            "OAuthBearerLoginCallbackHandler\n"
            f"sasl.oauthbearer.token.endpoint.url={provider.url()}\n"
            "sasl.oauthbearer.client.credentials.client.id=me\n"
            "sasl.oauthbearer.client.credentials.client.secret=hidden\n"
        )
        with EmbeddedBroker(settings) as broker:
            allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={provider.url()}"
            aimed = ("--bootstrap-server", broker.bootstrap, "--command-config", str(file))
            command = kafka_jars.java_command(
                jars, TOPICS, *aimed, "--create", "--topic", "orders", options=(allowed,)
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert "Created topic orders." in done.stdout, done.stdout + done.stderr
