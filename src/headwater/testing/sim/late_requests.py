"""Requests that come twice, the second time late: a copy that a slow network held back.

A `Wiretap` keeps requests of producers and transactions as they leave machines, brokers included;
a `LateActor` sends some of them once more to where they went, byte by byte, at any later time.

Transactions of the first generation are not safe from that while their epoch lasts: nothing tells
the end of one from the end of the next (KAFKA-17754). Those requests are repeated only when a later
epoch has been seen.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from random import Random
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.io import Address, FileSlice, Host, Stream
from headwater.protocol import decode
from headwater.protocol.apis import ApiKey, request_class
from headwater.protocol.frame import read_request_header
from headwater.testing.sim.fleet import BROKER_PORT
from headwater.testing.sim.network import SimStream
from headwater.testing.sim.world import World

if TYPE_CHECKING:
    from typing_extensions import Buffer

_SIZE = Struct(">i")
_FRAME_BYTES_MAX = 1 << 20
_KEPT_MAX = 300
# The first version of the second generation, where a request has two.
_V2_SINCE = {
    ApiKey.ADD_PARTITIONS_TO_TXN: 4,
    ApiKey.ADD_OFFSETS_TO_TXN: 99,
    ApiKey.END_TXN: 5,
    ApiKey.TXN_OFFSET_COMMIT: 5,
}
_KEPT = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.WRITE_TXN_MARKERS,
        *_V2_SINCE,
    }
)


class Overheard(NamedTuple):
    key: ApiKey
    target: Address
    frame: bytes
    weak: tuple[tuple[int, int], ...]  # producers of the first generation: id and epoch


class Wiretap:
    def __init__(self, world: World) -> None:
        self.kept: deque[Overheard] = deque(maxlen=_KEPT_MAX)
        self._parts: dict[SimStream, bytearray] = {}
        self._epochs: dict[int, int] = {}
        world.net.tap = self.hear

    def hear(self, stream: SimStream, parts: Sequence[Buffer | FileSlice]) -> None:
        if stream.peer.port != BROKER_PORT:
            return
        data = self._parts.setdefault(stream, bytearray())
        for part in parts:
            assert not isinstance(part, FileSlice), "requests have no slices of files"
            data += memoryview(part).cast("B")
        while len(data) >= _SIZE.size:
            size = _SIZE.unpack_from(data)[0]
            if len(data) < _SIZE.size + size:
                return
            frame = bytes(data[: _SIZE.size + size])
            del data[: _SIZE.size + size]
            self._keep(stream.peer, frame)

    def _keep(self, target: Address, frame: bytes) -> None:
        header, position = read_request_header(frame, _SIZE.size)
        try:
            key = ApiKey(header.api.key)
        except ValueError:
            return
        if key not in _KEPT or len(frame) > _FRAME_BYTES_MAX:
            return
        weak: list[tuple[int, int]] = []
        if key is ApiKey.WRITE_TXN_MARKERS:
            request: Any = decode(request_class(key), frame, header.version, position)
            for marker in request.markers:
                self._saw(marker.producer_id, marker.producer_epoch)
                if marker.transaction_version < 2:
                    weak.append((marker.producer_id, marker.producer_epoch))
        elif key in _V2_SINCE:
            request = decode(request_class(key), frame, header.version, position)
            if key is ApiKey.ADD_PARTITIONS_TO_TXN:
                identities = [(t.producer_id, t.producer_epoch) for t in request.transactions] or [
                    (request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
                ]
            else:
                identities = [(request.producer_id, request.producer_epoch)]
            for identity in identities:
                self._saw(*identity)
                if header.version < _V2_SINCE[key]:
                    weak.append(identity)
        self.kept.append(Overheard(key, target, frame, tuple(weak)))

    def _saw(self, producer_id: int, epoch: int) -> None:
        self._epochs[producer_id] = max(epoch, self._epochs.get(producer_id, -1))

    def is_safe(self, overheard: Overheard) -> bool:
        return all(self._epochs.get(pid, -1) > epoch for pid, epoch in overheard.weak)


class _Deaf:
    """Nobody reads what is answered to a late request."""

    def __init__(self) -> None:
        self._buffer = bytearray(4096)
        self._stream: Stream | None = None

    def accept(self, stream: Stream) -> _Deaf:
        self._stream = stream
        return self

    def buffer(self) -> memoryview:
        return memoryview(self._buffer)

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def ended(self) -> None:
        assert self._stream is not None
        self._stream.close()

    def closed(self, error: OSError | None) -> None: ...


class LateActor:
    def __init__(self, world: World, tap: Wiretap, random: Random) -> None:
        self._world = world
        self._tap = tap
        self._random = random

    async def run(self, host: Host) -> None:
        random = self._random
        while True:
            await asyncio.sleep(random.random() * 1.2)
            kept = self._tap.kept
            if not kept:
                continue
            # Those of the latest transactions are the ones that could be mistaken.
            newest = random.random() < 0.7
            chosen = random.choice(list(kept)[-25:] if newest else list(kept))
            if chosen.key is ApiKey.INIT_PRODUCER_ID and random.random() < 0.8:
                continue  # it fences the current producer, which is of little interest
            if chosen.key is ApiKey.PRODUCE and random.random() < 0.5:
                continue
            if self._tap.is_safe(chosen):
                await self._send(host, chosen)

    async def _send(self, host: Host, chosen: Overheard) -> None:
        try:
            async with asyncio.timeout(2.0):
                stream = await host.network.connect(
                    chosen.target.host, chosen.target.port, _Deaf().accept
                )
        except OSError:
            return
        self._world.note(f"late {chosen.key.name} to {chosen.target.host}")
        self._world.happened(f"late {chosen.key.name}")
        stream.send((chosen.frame,))
        await asyncio.sleep(1.0)
        stream.abort()
