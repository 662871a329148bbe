"""The time until all members of a large group have their assignments."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.clients import create_topic
from benchmarks.rows import Measurement, Session, at_most
from harness.nodes import Flavour, Node
from headwater.errors import ErrorCode
from headwater.protocol import Message, decode
from headwater.protocol.apis import APIS, response_class
from headwater.protocol.frame import encode_request, read_response_header
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_PATIENCE = 300.0
_TOPIC = "wide"
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x04wide\xff\xff\xff\xff"
_NOT_YET = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
# Versions of Kafka 4.0, so that results of different releases are comparable.
_FIND, _HEARTBEAT, _JOIN, _SYNC = 4, 0, 9, 5


def group_size(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Joins as many members as there are partitions, all at once."""
    count = session.size(1000, 200)
    node = session.fresh_node(flavour)
    # This load generator sends no heartbeats for a member while it serves others.
    node.settings["group.initial.rebalance.delay.ms"] = "3000"
    node.settings["group.max.session.timeout.ms"] = "600000"
    node.settings["group.consumer.session.timeout.ms"] = "60000"
    node.start()
    create_topic(node, _TOPIC, count)
    for protocol, converge in (("classic", _classic), ("consumer", _modern)):
        seconds = asyncio.run(asyncio.wait_for(converge(node, count), _PATIENCE))
        what = f"{count:,} members share {count:,} partitions, {protocol}"
        yield Measurement(f"members.{protocol}", what, "s", (seconds,), at_most(1.0))
    node.remove()


class _Peer:
    """A connection with one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, node: Node) -> _Peer:
        return cls(*await asyncio.open_connection("127.0.0.1", node.port))

    def close(self) -> None:
        self._writer.close()

    async def ask(self, request: Message, version: int) -> Any:
        api = type(request).API
        assert api is not None
        self._writer.write(encode_request(request, version, 7, "bench"))
        (size,) = struct.unpack(">i", await self._reader.readexactly(4))
        data = await self._reader.readexactly(size)
        _, position = read_response_header(APIS[api], version, data)
        return decode(response_class(api), data, version, position)


async def _coordinated(node: Node, group_id: str) -> None:
    """Waits until the coordinator is available; that time is measured elsewhere."""
    peer = await _Peer.connect(node)
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    probe = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id="AAAAAAAAAAAAAAAAAAAAAA", member_epoch=5
    )
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = (await peer.ask(request, _FIND)).coordinators[0].error_code == 0
        if found and (await peer.ask(probe, _HEARTBEAT)).error_code not in _NOT_YET:
            break
        await asyncio.sleep(0.05)
    peer.close()


async def _classic(node: Node, count: int) -> float:
    group_id = "wide-classic"
    await _coordinated(node, group_id)
    peers = [await _Peer.connect(node) for _ in range(count)]
    started = time.monotonic()
    await asyncio.gather(*(_join(peer, group_id, count) for peer in peers))
    seconds = time.monotonic() - started
    for peer in peers:
        peer.close()
    return seconds


async def _join(peer: _Peer, group_id: str, count: int) -> None:
    """Joins and syncs like a client until a generation has all members and an assignment."""
    member_id = ""
    while True:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=300_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
        )
        joined = await peer.ask(request, _JOIN)
        member_id = joined.member_id or member_id
        if joined.error_code:
            continue
        parts = [
            SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"\x00\x00" + b"x" * 64)
            for each in joined.members
        ]
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=parts,
        )
        synced = await peer.ask(sync, _SYNC)
        if not synced.error_code and (not parts or len(parts) == count):
            return


async def _modern(node: Node, count: int) -> float:
    """Sends all heartbeats over one connection; none waits for another member."""
    group_id = "wide-consumer"
    await _coordinated(node, group_id)
    peer = await _Peer.connect(node)
    epochs = dict.fromkeys((f"{number:022d}" for number in range(count)), 0)
    owned: dict[str, list[ConsumerGroupHeartbeatRequestTopicPartitions]] = {}
    started = time.monotonic()
    while True:
        for member_id, epoch in epochs.items():
            request = ConsumerGroupHeartbeatRequest(
                group_id=group_id,
                member_id=member_id,
                member_epoch=epoch,
                rebalance_timeout_ms=60_000,
                subscribed_topic_names=[_TOPIC],
                topic_partitions=owned.get(member_id, []),
            )
            answer = await peer.ask(request, _HEARTBEAT)
            assert not answer.error_code, answer.error_message
            epochs[member_id] = answer.member_epoch
            if answer.assignment is not None:
                owned[member_id] = [
                    ConsumerGroupHeartbeatRequestTopicPartitions(
                        topic_id=each.topic_id, partitions=each.partitions
                    )
                    for each in answer.assignment.topic_partitions
                ]
        held = [len(each.partitions) for parts in owned.values() for each in parts]
        if len(set(epochs.values())) == 1 and held == [1] * count:
            peer.close()
            return time.monotonic() - started
