"""A cluster, asked one plain question at a time over blocking sockets.

For tools and measurements that put questions no client would put, or that want no client between
themselves and the node. Whatever goes wrong on the way is a `CommandError`.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from headwater import __version__
from headwater.cli.errors import USAGE, CommandError
from headwater.errors import ErrorCode
from headwater.protocol import DecodeError, EncodeError, Message, decode
from headwater.protocol.apis import APIS, ApiKey, Versions, response_class
from headwater.protocol.frame import encode_request, read_response_header
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

TIMEOUT_SECONDS = 30.0

_CLIENT_ID = "headwater-tools"
_PORT_DEFAULT = "9092"
_HANDSHAKE_VERSION = 3
_ANSWER_BYTES_MAX = 256 << 20
_RETRY_SECONDS = 0.1

# The coordinator is on its way: it is being elected, or reads its log.
_COORDINATOR_SOON = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class Connection:
    """One socket to one node, and the versions that both sides speak."""

    def __init__(self, address: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self.address = address
        self._timeout = timeout
        self._correlation_id = 0
        host, port = _host_and_port(address)
        try:
            self._socket = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise CommandError(
                f"{address}: {_reason(error)}",
                then="is a node up there?",
            ) from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._versions = self._handshake()
        except BaseException:
            self._socket.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def version(self, api: int, *, at_most: int | None = None) -> int | None:
        """The newest version that both sides have, or None."""
        ours, theirs = APIS[api].versions, self._versions.get(api)
        if ours is None or theirs is None:
            return None
        newest = min(ours[1], theirs[1]) if at_most is None else min(ours[1], theirs[1], at_most)
        return newest if newest >= max(ours[0], theirs[0]) else None

    def ask(self, request: Message, *, at_most: int | None = None) -> Any:
        """The answer in the newest version of both sides, or in one that is not above a bound."""
        api = type(request).API
        assert api is not None
        version = self.version(api, at_most=at_most)
        if version is None:
            raise CommandError(
                f"{self.address} does not serve {APIS[api].name} in a version that is known here",
                then="a newer node may",
            )
        try:
            return self._exchange(request, version)
        except EncodeError as error:
            raise CommandError(f"{self.address} is too old for this: {error}") from None

    def _handshake(self) -> dict[int, Versions]:
        request = ApiVersionsRequest(
            client_software_name="headwater", client_software_version=__version__
        )
        answer = self._exchange(request, _HANDSHAKE_VERSION)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = self._exchange(request, 0)
        if answer.error_code:
            raise CommandError(f"{self.address} refused: {code_name(answer.error_code)}")
        return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}

    def _exchange(self, request: Message, version: int) -> Any:
        api = type(request).API
        assert api is not None
        self._correlation_id += 1
        frame = encode_request(request, version, self._correlation_id, _CLIENT_ID)
        is_first = self._correlation_id == 1
        try:
            self._socket.sendall(frame)
            size = self._size(self._read(4, is_first), is_first)
            data = self._read(size, is_first)
        except TimeoutError:
            raise CommandError(
                f"{self.address} did not answer {APIS[api].name} within {self._timeout:g} s",
                then="is it a Kafka listener without TLS?",
            ) from None
        except OSError as error:
            raise CommandError(f"{self.address}: {_reason(error)}") from None
        if api == ApiKey.API_VERSIONS and data[4:6] == _UNSUPPORTED:
            version = 0  # what an older node answers to a version that it does not know
        try:
            _, position = read_response_header(APIS[api], version, data)
            return decode(response_class(api), data, version, position)
        except DecodeError as error:
            raise CommandError(
                f"{self.address} answered {APIS[api].name} with what is none: {error}"
            ) from None

    def _size(self, start: bytes, is_first: bool) -> int:
        if start == b"HTTP":
            raise self._not_kafka("HTTP")
        if is_first and start[:2] in (b"\x15\x03", b"\x16\x03"):
            raise self._not_kafka("TLS")
        (size,) = struct.unpack(">i", start)
        if not 4 <= size <= _ANSWER_BYTES_MAX:
            raise self._not_kafka("something else")
        return int(size)

    def _not_kafka(self, what: str) -> CommandError:
        return CommandError(
            f"{self.address} speaks {what}, not Kafka's protocol in the clear",
            then="name the port of a PLAINTEXT listener",
        )

    def _read(self, count: int, is_first: bool) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(min(count - len(data), 1 << 20))
            if not chunk:
                then = "is it a Kafka listener, without TLS and SASL?" if is_first else None
                raise CommandError(f"{self.address} closed the connection", then=then)
            data += chunk
        return bytes(data)


_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


class Cluster:
    """The nodes of a cluster, found from one of them; connections are made when needed."""

    def __init__(self, bootstrap: str, *, timeout: float = TIMEOUT_SECONDS) -> None:
        self._bootstrap = [each.strip() for each in bootstrap.split(",") if each.strip()]
        self._timeout = timeout
        self._open: dict[str, Connection] = {}
        self._addresses: dict[int, str] = {}
        self._coordinators: dict[str, str] = {}
        self._first: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._open.values():
            connection.close()

    def any(self) -> Connection:
        """A node: the first that was named and can be reached."""
        if self._first is None:
            failures = []
            for address in self._bootstrap:
                try:
                    self._first = self.at(address)
                    break
                except CommandError as error:
                    if error.code == USAGE:
                        raise
                    failures.append(error)
            else:
                raise failures[0]
        return self._first

    def at(self, address: str) -> Connection:
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = Connection(address, timeout=self._timeout)
        return connection

    def node(self, node_id: int) -> Connection:
        if node_id not in self._addresses:
            self.metadata([])
        address = self._addresses.get(node_id)
        if address is None:
            raise CommandError(f"node {node_id} is not up", then="start it, or wait until it is")
        return self.at(address)

    def node_ids(self) -> list[int]:
        """Every node that serves clients."""
        self.metadata([])
        return sorted(self._addresses)

    def metadata(self, topics: Iterable[str]) -> MetadataResponse:
        """Asks about topics without creating them."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        answer: MetadataResponse = self.any().ask(request)
        self._addresses = {each.node_id: f"{each.host}:{each.port}" for each in answer.brokers}
        return answer

    def coordinator(self, group_id: str) -> Connection:
        """The node that leads a group; waits while there is none yet."""
        known = self._coordinators.get(group_id)
        if known is not None:
            return self.at(known)
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self.any().ask(
                FindCoordinatorRequest(coordinator_keys=[group_id])
                if (self.any().version(ApiKey.FIND_COORDINATOR) or 0) >= _MANY_KEYS_SINCE
                else FindCoordinatorRequest(key=group_id)
            )
            found = answer.coordinators[0] if answer.coordinators else answer
            if not found.error_code:
                address = self._coordinators[group_id] = f"{found.host}:{found.port}"
                return self.at(address)
            if found.error_code not in _COORDINATOR_SOON or time.monotonic() > deadline:
                raise CommandError(
                    f"no coordinator for group {group_id}: {code_name(found.error_code)}"
                )
            time.sleep(_RETRY_SECONDS)

    def ask_coordinator(
        self,
        group_id: str,
        request: Message,
        code_of: Callable[[Any], int],
        *,
        at_most: int | None = None,
    ) -> Any:
        """Asks the group's coordinator, again while it loads or moves; `code_of` finds the error
        in an answer."""
        deadline = time.monotonic() + self._timeout
        while True:
            answer = self.coordinator(group_id).ask(request, at_most=at_most)
            if code_of(answer) not in _COORDINATOR_SOON or time.monotonic() > deadline:
                return answer
            self._coordinators.pop(group_id, None)
            time.sleep(_RETRY_SECONDS)


# From this version on FindCoordinator takes many keys, and has no place for one.
_MANY_KEYS_SINCE = 4


def _host_and_port(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, _PORT_DEFAULT
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise CommandError(f"{address}: expected HOST:PORT such as 127.0.0.1:9092", code=USAGE)
    return host.strip("[]"), int(port)


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer"
    return (error.strerror or str(error)).lower()
