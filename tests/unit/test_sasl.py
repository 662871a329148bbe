"""Messages of a client that authenticates, and servers that it does not believe."""

from __future__ import annotations

from base64 import b64encode

import pytest

from headwater.net.peer.security import Login
from headwater.security.sasl.client import BearerClient, PlainClient, SaslFailed
from headwater.security.sasl.jaas import jaas_entry, jaas_options
from headwater.security.sasl.scram import ScramClient

# The example of RFC 7677.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = NONCE + "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = f"r={SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
PROOF = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
VERIFIER = "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def scram(user: str = "user", password: str = "pencil") -> ScramClient:
    return ScramClient("SCRAM-SHA-256", user, password, NONCE)


def test_scram_says_what_the_standard_says() -> None:
    client = scram()
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    final = client.answer(CHALLENGE.encode())
    assert final == f"c=biws,r={SERVER_NONCE},p={PROOF}".encode()
    assert client.answer(f"v={VERIFIER}".encode()) is None


def test_scram_escapes_a_name_and_says_when_it_is_a_token() -> None:
    assert scram("a=b,c").first() == f"n,,n=a=3Db=2Cc,r={NONCE}".encode()
    client = ScramClient("SCRAM-SHA-512", "id", "secret", NONCE, is_token=True)
    assert client.first().endswith(b",tokenauth=true")


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        ("r=somebody-else,s=c2FsdA==,i=4096", "nonce"),
        (f"r={NONCE},s=c2FsdA==,i=4096", "nonce"),
        (f"r={SERVER_NONCE},s=c2FsdA==,i=4095", "4095 iterations"),
        (f"r={SERVER_NONCE},s=c2FsdA==,i=100001", "100001 iterations"),
        (f"r={SERVER_NONCE},s=c2FsdA==,i=-1", "iterations is '-1'"),
        (f"r={SERVER_NONCE},s=c2FsdA==,i=99999999999999", "iterations"),
        (f"r={SERVER_NONCE},s=c2FsdA==", "iterations"),
        (f"r={SERVER_NONCE},s=!!,i=4096", "no s="),
        (f"r={SERVER_NONCE},s=é,i=4096", "no s="),
        (f"r={SERVER_NONCE},i=4096", "no s="),
        ("e=unknown-user", "unknown-user"),
        ("", "not part"),
        ("rubbish", "not part"),
    ],
)
def test_a_server_that_does_not_keep_to_scram_is_not_believed(challenge: str, reason: str) -> None:
    client = scram()
    client.first()
    with pytest.raises(SaslFailed, match=reason):
        client.answer(challenge.encode())


def test_bytes_that_are_no_text_are_no_challenge() -> None:
    with pytest.raises(SaslFailed, match="not text"):
        scram().answer(b"\xff\xfe")


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        (f"v={b64encode(bytes(32)).decode()}", "signature is wrong"),
        ("v=", "signature is wrong"),
        ("e=invalid-proof", "invalid-proof"),
        ("x=1", "no v="),
    ],
)
def test_a_server_that_does_not_know_the_password_is_not_believed(final: str, reason: str) -> None:
    client = scram()
    client.answer(CHALLENGE.encode())
    with pytest.raises(SaslFailed, match=reason):
        client.answer(final.encode())


def test_plain_and_bearer_say_it_all_at_once() -> None:
    assert "päss" not in repr(Login("PLAIN", "me", "päss"))
    plain = PlainClient("me", "päss")
    assert plain.first() == "\0me\0päss".encode()
    assert plain.answer(b"") is None
    bearer = BearerClient("abc.def.", {"cluster": "lkc-1"})
    assert bearer.first() == b"n,,\x01auth=Bearer abc.def.\x01cluster=lkc-1\x01\x01"
    assert bearer.answer(b"") is None
    assert bearer.answer(b'{"status":"invalid_token"}') == b"\x01"


def test_a_jaas_config_has_the_options_of_its_module() -> None:
    text = """org.apache.kafka.common.security.scram.ScramLoginModule required
        username="a \\"b\\"" password='x' tokenauth=true;"""
    with pytest.raises(ValueError, match="after username"):
        jaas_options(text.replace("password='x'", 'password="'))
    assert jaas_options(text)["password"] == "x"
    found = jaas_options(text.replace("'x'", '"x;y\\\\"'))
    assert found == {"username": 'a "b"', "password": "x;y\\", "tokenauth": "true"}
    assert "x;y" not in repr(jaas_entry(text.replace("'x'", '"x;y"')))
    assert jaas_options("some.Module required;") == {}
    assert jaas_options("some.Module OPTIONAL a=1") == {"a": "1"}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        (r'a="p\tq\\r\"s\101\60z"', {"a": 'p\tq\\r"sA0z'}),
        (r'a="\q\8\400"', {"a": "q8 0"}),
        ("""'user_a@b.c'="x y" b='it"s'""", {"user_a@b.c": "x y", "b": 'it"s'}),
        ('/* c */ a="//x" // y "b"="no"\n c="/*z*/"', {"a": "//x", "c": "/*z*/"}),
        ('a="1"b="2"', {"a": "1", "b": "2"}),
        ('a="ü€" ü=x1.y-z', {"a": "ü€", "ü": "x1.y-z"}),
    ],
)
def test_the_words_of_a_jaas_config_are_those_of_java(options: str, found: dict[str, str]) -> None:
    """Kafka's JaasContext gives the same, by java.io.StreamTokenizer."""
    assert jaas_options(f"some.Module required {options};") == found
    assert jaas_options(f"some.Module required {options}; // of the node") == found


def test_a_jaas_config_may_have_addresses_and_apostrophes_without_quotes() -> None:
    text = "some.Module required url=https://a/b name=o'neil;"
    assert jaas_options(text) == {"url": "https://a/b", "name": "o'neil"}
    with pytest.raises(ValueError, match="after the module"):
        jaas_options("some.Module required password='open;")


@pytest.mark.parametrize("text", ["", "username=me", "some.Module perhaps a=1;", "a b c"])
def test_what_is_no_jaas_config_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="expected") as refused:
        jaas_options(text)
    assert not text or text not in str(refused.value)
