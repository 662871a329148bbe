"""TLS that no client would speak: truncated, downgraded, renegotiated, and hostile frames in it.

HEADWATER_HOSTILE=N sends N of each kind.
"""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from random import Random

import pytest

from harness.wire import until
from headwater.testing import EmbeddedBroker
from tests.integration.test_node_hostile_logins import FRAMES, client_hello, is_alive, mutated

COUNT = int(os.environ.get("HEADWATER_HOSTILE", "150"))
ALERT, FATAL = 21, 2
INAPPROPRIATE_FALLBACK, PROTOCOL_VERSION, HANDSHAKE_FAILURE = 86, 70, 40


@pytest.fixture(scope="module")
def secret() -> Iterator[EmbeddedBroker]:
    settings = {"connection.failed.authentication.delay.ms": "0"}
    users = {"alice": "s3cret-password"}
    with EmbeddedBroker(settings, tls=True, users=users, topics={"t": 1}) as broker:
        yield broker
        assert is_alive(broker)
        log = "".join(broker.log_lines)
        assert "s3cret" not in log
        assert " ERROR " not in log


def connect(broker: EmbeddedBroker) -> socket.socket:
    host, _, port = broker.bootstrap.rpartition(":")
    return socket.create_connection((host, int(port)), 20)


def context_of(broker: EmbeddedBroker) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=broker.security_file("ca.pem"))


def answer_to(broker: EmbeddedBroker, data: bytes) -> bytes:
    with connect(broker) as sock:
        sock.sendall(data)
        received = b""
        while len(received) < 7:
            chunk = sock.recv(4096)
            if not chunk:
                break
            received += chunk
    return received


def test_a_node_survives_hostile_frames_inside_of_tls(secret: EmbeddedBroker) -> None:
    random = Random(17)
    context = context_of(secret)
    for _ in range(COUNT):
        parts = [mutated(bytes(f), random) if random.random() < 0.5 else f for f in FRAMES]
        whole = b"".join(parts)
        with (
            connect(secret) as sock,
            context.wrap_socket(sock, server_hostname="localhost") as secured,
        ):
            try:
                secured.sendall(whole[: random.randint(1, len(whole))])
                if random.random() < 0.5:
                    continue  # hangs up without a farewell
                secured.unwrap()
            except OSError:
                continue  # refused while we were still sending


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_handshake_may_end_anywhere(secret: EmbeddedBroker, version: ssl.TLSVersion) -> None:
    """The second flight of the client is cut off, after an honest first one."""
    random = Random(18)
    context = context_of(secret)
    context.minimum_version = context.maximum_version = version
    for _ in range(COUNT):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
        with connect(secret) as sock:
            with pytest.raises(ssl.SSLWantReadError):
                tls.do_handshake()
            sock.sendall(outgoing.read())
            while True:
                incoming.write(sock.recv(65536))
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    if outgoing.pending:
                        break
            flight = outgoing.read()
            sock.sendall(flight[: random.randrange(len(flight))])


def hello_of(version: ssl.TLSVersion, **changes: bytes) -> bytearray:
    """A ClientHello without TLS 1.3; `offered` replaces its version, `suite` is added to it."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    context.maximum_version = version
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = bytearray(outgoing.read())
    hello[9:11] = changes.get("offered", hello[9:11])
    at = 43 + 1 + hello[43]  # after the session id: the suites, with their length in two bytes
    if suite := changes.get("suite", b""):
        hello[at + 2 : at + 2] = suite
        for start, size in ((3, 2), (6, 3), (at, 2)):  # of the record, the message, the suites
            longer = int.from_bytes(hello[start : start + size]) + len(suite)
            hello[start : start + size] = longer.to_bytes(size)
    return hello


@pytest.mark.parametrize("offered", [b"\x03\x00", b"\x03\x01", b"\x03\x02"])
def test_old_versions_are_refused(secret: EmbeddedBroker, offered: bytes) -> None:
    """SSL 3.0, TLS 1.0 and TLS 1.1."""
    answer = answer_to(secret, bytes(hello_of(ssl.TLSVersion.TLSv1_2, offered=offered)))
    assert (answer[0], answer[5]) == (ALERT, FATAL)
    assert answer[6] in (PROTOCOL_VERSION, HANDSHAKE_FAILURE)  # the latter to SSL 3.0


def test_a_client_that_was_talked_down_is_refused(secret: EmbeddedBroker) -> None:
    """TLS_FALLBACK_SCSV (RFC 7507): somebody between has cut off its better offers."""
    hello = hello_of(ssl.TLSVersion.TLSv1_2, suite=b"\x56\x00")
    answer = answer_to(secret, bytes(hello))
    assert (answer[0], answer[5], answer[6]) == (ALERT, FATAL, INAPPROPRIATE_FALLBACK)


def test_ciphers_without_encryption_or_identity_are_refused(secret: EmbeddedBroker) -> None:
    for ciphers in ("eNULL:@SECLEVEL=0", "aNULL:@SECLEVEL=0"):
        context = context_of(secret)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        try:
            context.set_ciphers(ciphers)
        except ssl.SSLError:
            continue  # not even this client has them
        with connect(secret) as sock, pytest.raises(ssl.SSLError):
            context.wrap_socket(sock, server_hostname="localhost")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command")
def test_a_client_cannot_renegotiate(secret: EmbeddedBroker) -> None:
    """In TLS 1.2 a client could have the node do one handshake after the other."""
    command = ["openssl", "s_client", "-connect", secret.bootstrap, "-tls1_2"]
    command += ["-CAfile", secret.security_file("ca.pem"), "-servername", "localhost"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(b"R\n")  # the line that has it renegotiate
        client.stdin.flush()
        output = client.stdout.read().decode(errors="replace")
        client.stdin.close()
    assert "Verify return code: 0 (ok)" in output
    assert "RENEGOTIATING" in output
    assert "no renegotiation" in output


def test_a_hello_that_never_ends_is_bounded(secret: EmbeddedBroker) -> None:
    """Handshake messages that announce more than any hello has are refused, not collected."""
    record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + b"\x03\x03" + bytes(16378)
    with connect(secret) as sock:
        sent = 0
        try:
            while sent < 64:
                sock.sendall(record)
                sent += 1
            while sock.recv(65536):
                pass
        except OSError:
            pass
    until(
        lambda: any("TLS failed" in line for line in secret.log_lines), "the line about the refusal"
    )
    assert client_hello()
