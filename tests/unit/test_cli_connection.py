"""What a command says when the other end is not what it takes it for."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from headwater.cli.connection import BOOTSTRAP_VARIABLE, Cluster, Connection
from headwater.cli.errors import USAGE, CommandError
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.list_groups import ListGroupsRequest


@contextmanager
def peer(*answers: bytes, closes: bool = True) -> Iterator[str]:
    """Somebody who answers whatever is asked with these bytes, and then hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection, suppress(ConnectionResetError):
                for answer in answers:
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                connection.recv(1 << 16)
                if not closes:
                    connection.recv(1)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join(10)


def refusal(address: str, timeout: float = 5.0) -> CommandError:
    with pytest.raises(CommandError) as caught:
        Connection(address, timeout=timeout)
    assert "\n" not in caught.value.what
    return caught.value


def frame(body: bytes, correlation_id: int) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body


def versions_0(correlation_id: int, *apis: tuple[int, int, int], code: int = 0) -> bytes:
    keys = b"".join(struct.pack(">hhh", *api) for api in apis)
    return frame(struct.pack(">hi", code, len(apis)) + keys, correlation_id)


def test_a_dead_address_says_how_to_run_a_node() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    error = refusal(f"127.0.0.1:{port}")
    assert error.what == f"127.0.0.1:{port}: connection refused"
    assert "headwater start" in (error.then or "")


def test_a_web_server_is_told_from_a_node() -> None:
    with peer(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        assert "speaks HTTP" in refusal(address).what


def test_a_tls_listener_is_told_from_a_plain_one() -> None:
    with peer(b"\x15\x03\x03\x00\x02\x02\x0a") as address:
        assert "speaks TLS" in refusal(address).what


def test_bytes_that_are_no_frame_are_not_waited_for() -> None:
    with peer(b"\xff\xff\xff\xff or other") as address:
        assert "not Kafka's protocol" in refusal(address).what


def test_a_peer_that_hangs_up_is_said_to() -> None:
    with peer() as address:
        error = refusal(address)
    assert error.what == f"{address} closed the connection"
    assert "TLS" in (error.then or "")


def test_a_peer_that_says_nothing_is_not_waited_for_forever() -> None:
    with peer(closes=False) as address:
        assert "did not answer ApiVersions within 0.2 s" in refusal(address, 0.2).what


def test_an_answer_that_is_none_is_said_to_be_none() -> None:
    with peer(frame(b"\x00\x00\x7f", 1)) as address:
        assert "answered ApiVersions with what is none" in refusal(address).what


def test_an_older_node_is_asked_again_in_words_it_knows() -> None:
    old = versions_0(1, (ApiKey.API_VERSIONS, 0, 0), code=ErrorCode.UNSUPPORTED_VERSION)
    new = versions_0(2, (ApiKey.API_VERSIONS, 0, 0), (ApiKey.LIST_GROUPS, 0, 2))
    with peer(old, new) as address:
        connection = Connection(address)
        assert connection.version(ApiKey.LIST_GROUPS) == 2
        assert connection.version(ApiKey.LIST_GROUPS, at_most=1) == 1
        assert connection.version(ApiKey.DELETE_GROUPS) is None
        connection.close()


def test_an_api_that_the_node_does_not_serve_is_named() -> None:
    old = versions_0(1, (ApiKey.API_VERSIONS, 0, 0), code=ErrorCode.UNSUPPORTED_VERSION)
    new = versions_0(2, (ApiKey.API_VERSIONS, 0, 0), (ApiKey.LIST_GROUPS, 90, 91))
    with peer(old, new) as address:
        connection = Connection(address)
        with pytest.raises(CommandError, match="does not serve ListGroups in a version"):
            connection.ask(ListGroupsRequest())
        connection.close()


@pytest.mark.parametrize("address", ["", "host:", ":9092", "host:none", "host:70000", "host:0"])
def test_what_is_no_address_is_a_usage_error(address: str) -> None:
    with pytest.raises(CommandError) as caught:
        Connection(address)
    assert caught.value.code == USAGE


def test_the_next_address_is_tried_when_the_first_is_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    old = versions_0(1, (ApiKey.API_VERSIONS, 0, 0), code=ErrorCode.UNSUPPORTED_VERSION)
    new = versions_0(2, (ApiKey.API_VERSIONS, 0, 0))
    with peer(old, new) as address:
        monkeypatch.setenv(BOOTSTRAP_VARIABLE, f"127.0.0.1:1, {address}")
        with Cluster(None) as cluster:
            assert cluster.any().address == address
