"""The server's side of SASL, against our clients and against what a hostile one might say."""

from __future__ import annotations

import hashlib
import sys
from base64 import b64encode
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from headwater.security.principal import Principal
from headwater.security.sasl.client import BearerClient, PlainClient, SaslClient, SaslFailed
from headwater.security.sasl.jaas import jaas_entry, jaas_entry_for
from headwater.security.sasl.scram import ScramClient, mac, salted_password
from headwater.security.sasl.scram_server import ScramSecret, ScramServer
from headwater.security.sasl.server import (
    Authenticated,
    BearerServer,
    Challenge,
    InvalidToken,
    PlainServer,
    PlainUsers,
    SaslRefused,
    SaslServer,
)

ALICE = Principal("User", "alice")
KEY = b"k" * 32
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def secret_of(mechanism: str, password: str, principal: Principal = ALICE) -> ScramSecret:
    salted = salted_password(mechanism, password, b"salt", 4096)
    digest = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[mechanism]
    stored = hashlib.new(digest, mac(digest, salted, b"Client Key")).digest()
    return ScramSecret(b"salt", stored, mac(digest, salted, b"Server Key"), 4096, principal)


def scram(
    mechanism: str = "SCRAM-SHA-256", password: str = "wonder", nonce: str = "n"
) -> ScramServer:
    def find(name: str, is_token: bool) -> ScramSecret | None:
        if is_token:
            owned = secret_of(mechanism, password, Principal("User", "owner", True))
            return owned._replace(expires_at_ms=7000) if name == "token" else None
        return secret_of(mechanism, password) if name in ("alice", "a=l,ice") else None

    return ScramServer(mechanism, find, nonce, KEY)


def plain() -> PlainServer:
    return PlainServer(PlainUsers({"alice": "wonder", "bob": "land"}, KEY).check)


def exchange(client: SaslClient, server: SaslServer) -> Authenticated:
    token: bytes | None = client.first()
    while True:
        assert token is not None
        said = server.answer(token)
        if isinstance(said, Authenticated):
            client.answer(said.token_to_send)
            return said
        token = client.answer(said.token)


def refusal(server: SaslServer, *tokens: bytes) -> SaslRefused:
    for token in tokens[:-1]:
        assert isinstance(server.answer(token), Challenge)
    with pytest.raises(SaslRefused) as refused:
        server.answer(tokens[-1])
    return refused.value


def test_a_user_logs_in_with_plain() -> None:
    assert exchange(PlainClient("alice", "wonder"), plain()).principal == ALICE


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0land", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0land", "Authentication failed: Invalid username or password"),
        (b"\0\0land", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0wonder",
            "Authentication failed: Client requested an authorization id that is different from "
            "username",
        ),
        (b"\0alice", "Invalid SASL/PLAIN response: expected 3 tokens, got 2"),
        (b"\0alice\0wonder\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\xff\0\xfe\0\xfd", "Authentication failed: Invalid username or password"),
        (b"\xff\xfe", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_plain_refuses_in_the_words_of_kafka(token: bytes, told: str) -> None:
    refused = refusal(plain(), token)
    assert refused.is_told
    assert str(refused) == told


def test_what_is_not_text_is_no_password() -> None:
    replaced = PlainServer(PlainUsers({"alice": "\ufffd"}, KEY).check)
    assert replaced.answer("\0alice\0\ufffd".encode()) == Authenticated(ALICE, b"")
    refusal(replaced, b"\0alice\0\xff")


def test_plain_takes_an_authorization_id_that_is_the_user() -> None:
    assert plain().answer(b"alice\0alice\0wonder") == Authenticated(ALICE, b"")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_both_sides_of_scram_prove_the_password(mechanism: str) -> None:
    client = ScramClient(mechanism, "alice", "wonder", "nonce")
    assert exchange(client, scram(mechanism)).principal == ALICE
    with pytest.raises(SaslRefused, match="wrong password") as refused:
        exchange(ScramClient(mechanism, "alice", "land", "nonce"), scram(mechanism))
    assert not refused.value.is_told


def test_names_with_commas_and_equals_signs_log_in() -> None:
    exchange(ScramClient("SCRAM-SHA-256", "a=l,ice", "wonder", "nonce"), scram())


def test_a_delegation_token_logs_in_as_its_owner() -> None:
    client = ScramClient("SCRAM-SHA-256", "token", "wonder", "nonce", is_token=True)
    done = exchange(client, scram())
    assert (done.principal, done.expires_at_ms) == (Principal("User", "owner", True), 7000)
    with pytest.raises(SaslRefused):  # a user's name is not a token's
        exchange(ScramClient("SCRAM-SHA-256", "alice", "wonder", "n", is_token=True), scram())


def test_an_unknown_user_is_refused_at_the_end_like_a_wrong_password() -> None:
    def first(name: str) -> bytes:
        said = scram().answer(f"n,,n={name},r=nonce".encode())
        assert isinstance(said, Challenge)
        return said.token

    assert first("nobody") == first("nobody") != first("somebody")
    with pytest.raises(SaslRefused, match="unknown user"):
        exchange(ScramClient("SCRAM-SHA-256", "nobody", "wonder", "nonce"), scram())


def work_of(server: SaslServer, *tokens: bytes) -> Counter[str]:
    """Counts the calls of all functions until the refusal."""
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[called.__qualname__] += 1

    sys.setprofile(note)
    try:
        for token in tokens:
            server.answer(token)
    except SaslRefused:
        pass
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_costs_the_same_work_as_a_wrong_password(mechanism: str) -> None:
    """Of a clock a test cannot be sure, of the work that is done it can."""
    users = {"alice": secret_of(mechanism, "wonder")}
    work = []
    for name in ("alice", "mallo"):
        server = ScramServer(mechanism, lambda user, is_token: users.get(user), "n", KEY)
        client = ScramClient(mechanism, name, "guess", "nonce")
        first = client.first()
        challenge = scram(mechanism).answer(first)
        assert isinstance(challenge, Challenge)
        final = client.answer(challenge.token)
        assert final is not None
        work.append(work_of(server, first, final))
    assert work[0] == work[1]
    assert work[0]["compare_digest"] == 2


def test_an_unknown_user_of_plain_costs_the_same_work_as_a_wrong_password() -> None:
    work = [work_of(plain(), f"\0{user}\0guess".encode()) for user in ("alice", "mallo")]
    assert work[0] == work[1]
    assert work[0]["compare_digest"] == 1


def test_a_proof_for_another_exchange_is_refused() -> None:
    """CVE-2024-56128: the nonce of the final message was not compared."""
    client = ScramClient("SCRAM-SHA-256", "alice", "wonder", "nonce")
    first = client.first()
    challenge = scram(nonce="one").answer(first)
    assert isinstance(challenge, Challenge)
    final = client.answer(challenge.token)
    assert final is not None
    assert "nonce" in str(refusal(scram(nonce="two"), first, final))


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=alice,r=x",
        b"p=tls-unique,,n=alice,r=x",
        b"n,,m=must,n=alice,r=x",
        b"n,,n=ali=ce,r=x",
        b"n,,n=,r=x",
        b"n,,n=alice,r=",
        b"n,,n=alice",
        b"\xff\xff",
        b"n,a=bob,n=alice,r=x",
        b"n,,n=" + b"a" * 20_000 + b",r=x",
    ],
)
def test_a_first_message_that_is_not_scram_is_refused(first: bytes) -> None:
    refusal(scram(), first)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        b"c=biws,r=xn",
        b"c=biws,r=xn,p=",
        b"c=biws,r=xn,p=====",
        b"c=biws,r=xn,p=" + b64encode(b"short"),
        b"c=biws,r=xn,p=" + b64encode(b"x" * 32),
        b"c=eSws,r=xn,p=" + b64encode(b"x" * 32),
        b"c=\xff,r=xn,p=x",
        "c=biws,r=é,p=AA==".encode(),
        b"c=biws,r=xn,p=" + b64encode(b"x" * 20_000),
    ],
)
def test_a_final_message_that_proves_nothing_is_refused(final: bytes) -> None:
    refusal(scram(), b"n,,n=alice,r=x", final)


def test_a_right_proof_for_another_channel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    binding = "c=" + b64encode(b"y,,").decode()
    monkeypatch.setattr("headwater.security.sasl.scram._FINAL_WITHOUT_PROOF", binding)
    with pytest.raises(SaslRefused, match="binds another channel"):
        exchange(ScramClient("SCRAM-SHA-256", "alice", "wonder", "nonce"), scram())


def test_the_client_notices_a_server_that_does_not_know_the_password() -> None:
    liar = scram()
    secret = secret_of("SCRAM-SHA-256", "wonder")
    liar._find = lambda name, is_token: secret._replace(server_key=b"x" * 32)
    with pytest.raises(SaslFailed):
        exchange(ScramClient("SCRAM-SHA-256", "alice", "wonder", "nonce"), liar)


class Someone:
    name = "alice"
    expires_at_ms = 5000


def validate(token: str) -> Someone:
    if token != "good":
        raise InvalidToken("signature is wrong")
    return Someone()


def test_a_bearer_of_a_valid_token_logs_in_until_it_expires() -> None:
    done = exchange(BearerClient("good", {"traceId": "1"}), BearerServer(validate))
    assert done == Authenticated(ALICE, b"", 5000)


def test_an_invalid_token_is_described_before_it_is_refused() -> None:
    server = BearerServer(validate)
    assert server.answer(BearerClient("bad").first()) == Challenge(b'{"status":"invalid_token"}')
    refused = refusal(server, b"\x01")
    assert str(refused) == '{"status":"invalid_token"}'
    assert refused.is_told
    assert "signature is wrong" in refused.user


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,a=bob,\x01auth=Bearer good\x01\x01",
        b"\xff",
    ],
)
def test_a_message_that_is_not_of_oauthbearer_is_refused(token: bytes) -> None:
    refusal(BearerServer(validate), token)


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_jaas_setting_has_the_users_of_plain() -> None:
    text = f'{PLAIN} required username="n" password="p;\\"" user_alice="w=1" user_bob=land;'
    entry = jaas_entry_for("PLAIN", text)
    assert entry.users == {"alice": "w=1", "bob": "land"}
    assert entry.options["password"] == 'p;"'


@pytest.mark.parametrize(
    "text",
    [
        "com.sun.security.auth.module.JndiLoginModule required;",
        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
    ],
)
def test_another_login_module_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected the login module"):
        jaas_entry_for("PLAIN", text)


def test_a_jaas_setting_that_cannot_be_read_is_not_quoted() -> None:
    for text in (f'{PLAIN} required user_alice="s3cret', "s3cret", f"{PLAIN} s3cret x=y;"):
        with pytest.raises(ValueError, match="expected") as refused:
            jaas_entry(text)
        assert "s3cret" not in str(refused.value)
