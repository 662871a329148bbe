"""A minimal client: frames are encoded once and sent repeatedly.

The cost of a request in the broker shows only when the client costs next to nothing. So a frame
with one record is built before the measurement starts, responses are counted and not parsed, and
several connections keep a window of requests in flight. Both brokers get the same bytes.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

_PRODUCE, _FETCH, _LIST_OFFSETS, _METADATA, _API_VERSIONS = 0, 1, 2, 3, 18
JOIN_GROUP = 11
_CLIENT_ID = b"bench"


class NotReady(Exception):
    """The broker could not be reached or returned an error; try again."""


@dataclass(slots=True)
class Wire:
    """A blocking connection for the requests before and after a measurement."""

    socket: socket.socket

    @classmethod
    def connect(cls, port: int, timeout: float = 10.0) -> Wire:
        try:
            return cls(_connected(port, timeout))
        except OSError as problem:
            raise NotReady(str(problem)) from problem

    def close(self) -> None:
        self.socket.close()

    def ask(self, frame: bytes) -> bytes:
        try:
            self.socket.sendall(frame)
            size = struct.unpack(">i", self._exactly(4))[0]
            return self._exactly(size)
        except OSError as problem:
            raise NotReady(str(problem)) from problem

    def supports(self, api: int) -> bool:
        """Returns whether the broker advertises an API."""
        answer = self.ask(_request(_API_VERSIONS, 0, b""))
        (count,) = struct.unpack_from(">i", answer, 6)
        return any(
            struct.unpack_from(">h", answer, 10 + 6 * number)[0] == api for number in range(count)
        )

    def leader_is_known(self, topic: str) -> bool:
        """Requests the metadata of a topic, which creates it where that is allowed; returns
        whether it has a leader."""
        body = struct.pack(">i", 1) + _string(topic) + b"\x01"
        answer = self.ask(_request(_METADATA, 4, body))
        # Correlation id, throttle time, brokers, cluster id, controller id; then the topic.
        position = 8
        (brokers,) = struct.unpack_from(">i", answer, position)
        position += 4
        for _ in range(brokers):
            position += 4
            position = _after_string(answer, position) + 4
            position = _after_string(answer, position)
        position = _after_string(answer, position) + 4
        _topics, error = struct.unpack_from(">ih", answer, position)
        position = _after_string(answer, position + 6) + 1
        (partitions,) = struct.unpack_from(">i", answer, position)
        if error or not partitions:
            return False
        partition_error, _partition, leader = struct.unpack_from(">hii", answer, position + 4)
        return bool(partition_error == 0 and leader >= 0)

    def produce(self, topic: str, partition: int, batch: bytes) -> int:
        """Appends a batch with acks=all; returns its base offset."""
        answer = self.ask(produce_frame(topic, partition, batch))
        error, offset = struct.unpack_from(">hq", answer, _error_position(topic))
        if error:
            raise NotReady(f"produce answered error {error}")
        return int(offset)

    def fetch_bytes(self, topic: str, offset: int) -> int:
        """Fetches from partition 0 once; returns the number of bytes of records."""
        body = struct.pack(">iiiib", -1, 500, 1, 1 << 20, 0) + struct.pack(">i", 1)
        body += _string(topic) + struct.pack(">iiqi", 1, 0, offset, 1 << 20)
        answer = self.ask(_request(_FETCH, 4, body))
        position = 8 + 4 + 2 + len(topic.encode()) + 4
        _partition, error = struct.unpack_from(">ih", answer, position)
        if error:
            raise NotReady(f"fetch answered error {error}")
        position += 6 + 8 + 8
        (aborted,) = struct.unpack_from(">i", answer, position)
        position += 4 + 16 * max(aborted, 0)
        return max(int(struct.unpack_from(">i", answer, position)[0]), 0)

    def log_end(self, topic: str, partition: int) -> int:
        body = struct.pack(">i", -1) + struct.pack(">i", 1) + _string(topic)
        body += struct.pack(">iiq", 1, partition, -1)
        answer = self.ask(_request(_LIST_OFFSETS, 1, body))
        position = 4 + 4 + 2 + len(topic.encode()) + 4 + 4
        error, _timestamp, offset = struct.unpack_from(">hqq", answer, position)
        if error:
            raise NotReady(f"list offsets answered error {error}")
        return int(offset)

    def _exactly(self, size: int) -> bytes:
        chunks = bytearray()
        while len(chunks) < size:
            chunk = self.socket.recv(size - len(chunks))
            if not chunk:
                raise NotReady("the connection was closed")
            chunks += chunk
        return bytes(chunks)


def wait_for_ack(port: int, topic: str, *, seconds: float, alive: Callable[[], None]) -> float:
    """Retries until a produce request is acknowledged; returns the monotonic time."""
    batch = record_batch(b"first")
    deadline = time.monotonic() + seconds
    while True:
        try:
            wire = Wire.connect(port, timeout=seconds)
            try:
                while not wire.leader_is_known(topic):
                    _again(deadline)
                wire.produce(topic, 0, batch)
                return time.monotonic()
            finally:
                wire.close()
        except NotReady:
            alive()
            _again(deadline)


def wait_for_fetch(port: int, topic: str, *, seconds: float) -> float:
    """Retries until a fetch from offset 0 returns records; returns the monotonic time."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            wire = Wire.connect(port, timeout=seconds)
            try:
                while not wire.fetch_bytes(topic, 0):
                    _again(deadline)
                return time.monotonic()
            finally:
                wire.close()
        except NotReady:
            _again(deadline)


def pipelined_produce(
    port: int, topic: str, *, seconds: float, connections: int, window: int, value: bytes
) -> float:
    """Returns produce requests per second, with one record each and a partition per connection."""
    frames = [produce_frame(topic, number, record_batch(value)) for number in range(connections)]
    sizes = [4 + _answer_size(topic)] * connections
    return pipelined(port, frames, sizes, seconds=seconds, window=window)


def pipelined(
    port: int, frames: list[bytes], sizes: list[int], *, seconds: float, window: int
) -> float:
    """Returns requests per second. Each connection sends its frame repeatedly with a fixed number
    in flight; responses are counted by their size, which is known."""
    selector = selectors.DefaultSelector()
    connections = len(frames)
    sent = [0] * connections
    received = [0] * connections
    burst = max(window // 2, 1)
    started = time.monotonic()
    for number, frame in enumerate(frames):
        connection = _connected(port, 30.0)
        bursts = frame * burst
        selector.register(connection, selectors.EVENT_READ, (number, bursts))
        connection.sendall(bursts * 2)
        sent[number] = 2 * burst
    deadline = started + seconds
    open_connections = connections
    while open_connections:
        for key, _events in selector.select(30.0):
            number, bursts = key.data
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            chunk = peer.recv(1 << 18)
            if not chunk:
                raise NotReady("the connection was closed during the load")
            received[number] += len(chunk)
            waiting = sent[number] - received[number] // sizes[number]
            if time.monotonic() < deadline:
                if waiting <= burst:
                    peer.sendall(bursts)
                    sent[number] += burst
            elif waiting == 0:
                selector.unregister(peer)
                peer.close()
                open_connections -= 1
    return sum(sent) / (time.monotonic() - started)


def record_batch(value: bytes) -> bytes:
    """Returns a batch (magic 2) with one record, without key, headers or producer id."""
    record = b"\x00\x00\x00\x01" + _zigzag(len(value)) + value + b"\x00"
    now_ms = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now_ms, now_ms, -1, -1, -1, 1)
    checked += _zigzag(len(record)) + record
    tail = struct.pack(">ib", -1, 2) + struct.pack(">I", crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(tail)) + tail


def produce_frame(topic: str, partition: int, batch: bytes) -> bytes:
    """Returns a Produce request in version 9: flexible, and known to every broker."""
    name = topic.encode()
    body = b"\x00" + struct.pack(">hi", -1, 30_000) + b"\x02"
    body += _unsigned(len(name) + 1) + name + b"\x02" + struct.pack(">i", partition)
    body += _unsigned(len(batch) + 1) + batch + b"\x00\x00\x00"
    return _request(_PRODUCE, 9, body, flexible=True)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc32c_table() -> list[int]:
    table = []
    for index in range(256):
        crc = index
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc32c_table()


def _request(api: int, version: int, body: bytes, *, flexible: bool = False) -> bytes:
    header = struct.pack(">hhih", api, version, 7, len(_CLIENT_ID)) + _CLIENT_ID
    frame = header + (b"\x00" if flexible else b"") + body
    return struct.pack(">i", len(frame)) + frame


def _error_position(topic: str) -> int:
    """Returns the position of the partition's error code in the response to `produce_frame`."""
    name = len(topic.encode())
    return 4 + 1 + 1 + len(_unsigned(name + 1)) + name + 1 + 4


def _answer_size(topic: str) -> int:
    # Error, base offset, append time, log start; no record errors, no message; tags of partition
    # and topic, throttle time, tags.
    return _error_position(topic) + 2 + 8 + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1


def _connected(port: int, timeout: float) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _after_string(data: bytes, position: int) -> int:
    (length,) = struct.unpack_from(">h", data, position)
    return position + 2 + max(int(length), 0)


def _unsigned(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _zigzag(number: int) -> bytes:
    return _unsigned((number << 1) ^ (number >> 63))


def _again(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise TimeoutError("the broker did not serve in time")
    time.sleep(0.002)
