"""Connections: order, bounds, and how a broken one ends without harm to the others."""

from __future__ import annotations

import socket
import struct
import time

import pytest

from harness.wire import Closed, Wire, batch, newest, until
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.frame import encode_request
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker


def closings(broker: EmbeddedBroker, words: str) -> list[str]:
    return [line for line in broker.log_lines if "closed" in line and words in line]


def test_pipelined_requests_are_answered_in_their_order(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    sent = []
    for number in range(200):
        if number % 5 == 4:
            names = [MetadataRequestTopic(name=topic)]
            sent.append(wire.send(MetadataRequest(topics=names)))
        elif number % 7 == 6:
            request, version = wire.fetch_request(topic, 10_000, version=12, max_wait_ms=20)
            sent.append(wire.send(request, version))
        else:
            produce, version = wire.produce_request(topic, batch([b"%d" % number]), version=12)
            sent.append(wire.send(produce, version))
    answered = [wire.receive_answer() for _ in sent]
    assert [correlation_id for correlation_id, _ in answered] == sent
    offsets = [
        response.responses[0].partition_responses[0].base_offset
        for _, response in answered
        if type(response).__name__ == "ProduceResponse"
    ]
    assert offsets == list(range(len(offsets)))


def test_a_request_in_small_pieces_is_served(wire: Wire) -> None:
    frame = encode_request(ApiVersionsRequest(), 0, 77, "slow")
    for byte in frame:
        wire.socket.sendall(bytes([byte]))
    (size,) = struct.unpack(">i", wire.read(4))
    (correlation_id,) = struct.unpack_from(">i", wire.read(size))
    assert correlation_id == 77


def test_an_api_versions_request_from_the_future_is_answered_in_version_zero(wire: Wire) -> None:
    body = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, 4) + b"test" + b"\0what is this"
    wire.socket.sendall(struct.pack(">i", len(body)) + body)
    (size,) = struct.unpack(">i", wire.read(4))
    correlation_id, error, count = struct.unpack_from(">ihi", wire.read(size))
    assert (correlation_id, error) == (5, ErrorCode.UNSUPPORTED_VERSION)
    assert count == 1
    assert wire.is_served()


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 104_857_601])
def test_a_frame_of_an_impossible_size_ends_its_connection_with_one_line(
    make_broker: MakeBroker, size: int
) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as bad, Wire(broker.bootstrap) as good:
        bad.socket.sendall(struct.pack(">i", size))
        bad.wait_until_closed()
        assert good.is_served()
    assert len(closings(broker, str(size))) == 1


def header(api: int, version: int, client_id_size: int = -1) -> bytes:
    return struct.pack(">hhih", api, version, 1, client_id_size)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        pytest.param(header(9999, 0), "9999", id="unknown API"),
        pytest.param(header(-1, 0), "-1", id="negative API"),
        pytest.param(header(ApiKey.METADATA, 99), "99", id="version of the future"),
        pytest.param(header(ApiKey.LEADER_AND_ISR, 0), "4", id="API of the past"),
        pytest.param(
            header(ApiKey.METADATA, 1) + b"\x7f\xff\xff\xff",
            "malformed request",
            id="endless array",
        ),
        pytest.param(header(ApiKey.METADATA, 1, 500), "malformed request", id="cut client id"),
        pytest.param(header(ApiKey.METADATA, 1), "malformed request", id="no body"),
        pytest.param(b"\0", "malformed request", id="one byte"),
        pytest.param(b"", "malformed request", id="empty"),
    ],
)
def test_a_request_that_makes_no_sense_ends_its_connection_with_one_line(
    make_broker: MakeBroker, body: bytes, words: str
) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as bad, Wire(broker.bootstrap) as good:
        bad.socket.sendall(struct.pack(">i", len(body)) + body)
        bad.wait_until_closed()
        assert good.is_served()
    assert len(closings(broker, words)) == 1
    assert not [line for line in broker.log_lines if " ERROR " in line]


@pytest.mark.parametrize(
    ("said", "what"),
    [(b"GET / HTTP/1.1\r\n\r\n", "speaks HTTP"), (b"\x16\x03\x01\x02\x00\x01", "speaks TLS")],
)
def test_a_peer_of_another_protocol_is_named_in_the_log(
    make_broker: MakeBroker, said: bytes, what: str
) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.socket.sendall(said)
        assert wire.socket.recv(1) == b""
    assert len(closings(broker, what)) == 1


def test_a_client_cannot_write_lines_of_its_own_into_the_log(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap, client_id="x\n2026 ERROR all is lost \x1b[31m") as bad:
        bad.send(MetadataRequest(topics=[MetadataRequestTopic(name="a\nb")]))
        bad.receive()
        bad.socket.sendall(struct.pack(">ihh", 4, 9999, 0))
        bad.wait_until_closed()
    assert not any("\n" in line.rstrip("\n") or "\x1b" in line for line in broker.log_lines)


def test_acks_zero_that_fails_ends_the_connection(make_broker: MakeBroker) -> None:
    broker = make_broker({"auto.create.topics.enable": "false"})
    with Wire(broker.bootstrap) as wire:
        request, version = wire.produce_request("missing", batch([b"x"]), acks=0, version=12)
        wire.send(request, version)
        wire.wait_until_closed()
    assert len(closings(broker, "UNKNOWN_TOPIC_OR_PARTITION")) == 1


def test_more_connections_than_allowed_are_turned_away(make_broker: MakeBroker) -> None:
    broker = make_broker({"max.connections": "3"})
    wires = [Wire(broker.bootstrap) for _ in range(3)]
    for wire in wires:
        assert wire.is_served()
    with Wire(broker.bootstrap) as one_too_many:
        one_too_many.wait_until_closed()
    wires.pop().socket.close()

    def served_again() -> bool:
        with Wire(broker.bootstrap) as wire:
            try:
                return wire.is_served()
            except (Closed, OSError):
                return False

    until(served_again, "a free connection")
    for wire in wires:
        assert wire.is_served()
        wire.socket.close()
    assert closings(broker, "max.connections is 3")


def test_more_connections_from_one_address_than_allowed_are_turned_away(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker({"max.connections.per.ip": "1"})
    with Wire(broker.bootstrap) as first, Wire(broker.bootstrap) as second:
        assert first.is_served()
        second.wait_until_closed()
        assert first.is_served()


def test_an_address_may_have_a_limit_of_its_own(make_broker: MakeBroker) -> None:
    broker = make_broker(
        {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:2"}
    )
    with (
        Wire(broker.bootstrap) as first,
        Wire(broker.bootstrap) as second,
        Wire(broker.bootstrap) as third,
    ):
        assert first.is_served()
        assert second.is_served()
        third.wait_until_closed()
    assert closings(broker, "max.connections.per.ip is 2 for 127.0.0.1")


def test_an_idle_connection_is_closed(make_broker: MakeBroker) -> None:
    broker = make_broker({"connections.max.idle.ms": "300"})
    with Wire(broker.bootstrap) as wire:
        assert wire.is_served()
        wire.wait_until_closed()


def test_a_stop_answers_what_is_owed(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(topic)
        produces = [wire.produce_request(topic, batch([b"%d" % n]), version=12) for n in range(50)]
        for request, version in produces:
            wire.send(request, version)
        answers = [wire.receive() for _ in range(50)]
        broker.stop()
        wire.wait_until_closed()
    errors = [a.responses[0].partition_responses[0].error_code for a in answers]
    assert errors == [0] * 50


def test_a_stop_does_not_wait_for_long_polls(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        request, version = wire.fetch_request(topic, max_wait_ms=60_000)
        wire.send(request, version)
        started = time.monotonic()
        broker.stop()
        assert time.monotonic() - started < 10


def test_half_a_frame_does_not_hold_a_stop(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.socket.sendall(struct.pack(">i", 1000) + b"half")
        broker.stop()
        wire.wait_until_closed()


def test_a_peer_that_stops_sending_still_gets_its_answers(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    request, version = wire.produce_request(topic, batch([b"last words"]))
    wire.send(request, version)
    wire.socket.shutdown(socket.SHUT_WR)
    assert wire.receive().responses[0].partition_responses[0].error_code == 0
    wire.wait_until_closed()


def test_an_answer_of_every_served_api_is_versioned(wire: Wire) -> None:
    answer = wire.api_versions()
    versions = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
    assert versions[ApiKey.API_VERSIONS] == (0, newest(ApiKey.API_VERSIONS))
    assert versions[ApiKey.PRODUCE] == (0, newest(ApiKey.PRODUCE))
    assert all(low <= high for low, high in versions.values())
