"""Frames and handshakes that no client would send, before anybody has authenticated.

HEADWATER_HOSTILE=N sends N of each kind.
"""

from __future__ import annotations

import os
import socket
import ssl
from random import Random

import pytest

from harness.wire import Wire, until
from headwater.protocol.frame import encode_request
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.testing import EmbeddedBroker

COUNT = int(os.environ.get("HEADWATER_HOSTILE", "150"))
QUICK = {"connection.failed.authentication.delay.ms": "0"}
USERS = {"alice": "s3cret-password"}
FRAMES = (
    encode_request(ApiVersionsRequest(), 0, 1, "x"),
    encode_request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1, 2, "x"),
    encode_request(SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=nonce"), 2, 3, "x"),
    encode_request(SaslAuthenticateRequest(auth_bytes=b"c=biws,r=nonce,p=eA=="), 2, 4, "x"),
)


def send(broker: EmbeddedBroker, data: bytes) -> None:
    host, _, port = broker.bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), 20) as sock:
        try:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(65536):
                pass
        except OSError:
            return  # refused while we were still sending


def mutated(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(changed))
        match random.randrange(4):
            case 0:
                changed[at] = random.randrange(256)
            case 1:
                del changed[at : at + random.randint(1, 8)]
            case 2:
                changed[at:at] = random.randbytes(random.randint(1, 8))
            case _:
                changed[at : at + 4] = random.choice((b"\xff" * 4, b"\x7f" + b"\xff" * 3, bytes(4)))
        if not changed:
            return random.randbytes(8)
    return bytes(changed)


def is_alive(broker: EmbeddedBroker) -> bool:
    broker.send("t", "still here")
    return broker.is_running


def test_a_node_survives_hostile_frames_before_a_login() -> None:
    random = Random(16)
    with EmbeddedBroker(QUICK, users=USERS, topics={"t": 1}) as broker:
        for _ in range(COUNT):
            whole = b"".join(
                mutated(bytes(f), random) if random.random() < 0.5 else f for f in FRAMES
            )
            send(broker, whole[: random.randint(1, len(whole))])
        assert is_alive(broker)
        log = "".join(broker.log_lines)
        assert "s3cret" not in log
        assert " ERROR " not in log


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


def test_a_node_survives_hostile_and_truncated_handshakes() -> None:
    random = Random(16)
    hello = client_hello()
    with EmbeddedBroker(tls=True, topics={"t": 1}) as broker:
        for number in range(COUNT):
            data = mutated(hello, random) if number % 2 else hello[: random.randrange(len(hello))]
            send(broker, data)
        assert is_alive(broker)
        assert " ERROR " not in "".join(broker.log_lines)


def test_a_peer_that_never_proves_itself_is_closed() -> None:
    """Without this, silent connections would hold places for as long as idle ones."""
    from dataclasses import replace

    with EmbeddedBroker(users=USERS) as broker, Wire(broker.bootstrap) as wire:
        assert wire.is_served()
        node = broker._running()._started.result()  # 30 s are too long for a test
        node._server.limits = replace(node._server.limits, unproven_seconds=0.0)
        wire.socket.settimeout(20)
        wire.wait_until_closed()
        until(
            lambda: any("not authenticated within 0 s" in line for line in broker.log_lines),
            "the line about it",
        )
