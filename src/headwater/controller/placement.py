"""Placement of the replicas of new partitions: striped over racks, as Kafka does it.

The first replica of each partition is in the next rack, its others in the racks after that; within
a rack brokers take turns. Fenced brokers are used last, and never for the first replica, the
preferred leader. The start is random, so that small topics do not all begin on one broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import NamedTuple

from headwater.errors import ApiError, ErrorCode


class UsableBroker(NamedTuple):
    id: int
    rack: str | None
    fenced: bool


def place(
    brokers: Iterable[UsableBroker], *, partitions: int, replicas: int, random: Random
) -> list[list[int]]:
    """Returns the replicas of each new partition, the preferred leader first."""
    known = list(brokers)
    if replicas <= 0:
        raise _refused(f"replication factor {replicas}, expected at least 1")
    if all(broker.fenced for broker in known):
        raise _refused("all brokers are fenced")
    if replicas > len(known):
        raise _refused(
            f"replication factor {replicas}, expected at most the number of brokers, {len(known)}"
        )
    racks = _Racks(known, random)
    return [racks.place(replicas) for _ in range(partitions)]


def _refused(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICATION_FACTOR, message)


class _Turns:
    """A rotation over brokers: each round has each broker once and starts one further."""

    __slots__ = ("_brokers", "_index", "_offset", "_round")

    def __init__(self, brokers: list[int], random: Random) -> None:
        self._brokers = sorted(brokers)
        self._offset = random.randrange(len(brokers)) if brokers else 0
        self._index = 0
        self._round = 0

    def next(self, round_number: int) -> int | None:
        size = len(self._brokers)
        if not size:
            return None
        if self._round != round_number:
            self._round = round_number
            self._index = 0
            self._offset = (self._offset + 1) % size
        if self._index >= size:
            return None
        broker = self._brokers[(self._index + self._offset) % size]
        self._index += 1
        return broker

    def shuffle(self, random: Random) -> None:
        random.shuffle(self._brokers)


class _Racks:
    __slots__ = ("_active", "_fenced", "_names", "_offset", "_random", "_round", "_unfenced")

    def __init__(self, brokers: list[UsableBroker], random: Random) -> None:
        # Brokers without a rack share one, which comes first.
        self._names = sorted({broker.rack or "" for broker in brokers})

        def turns(rack: str, *, fenced: bool) -> _Turns:
            return _Turns(
                [b.id for b in brokers if (b.rack or "") == rack and b.fenced == fenced], random
            )

        self._unfenced = {rack: turns(rack, fenced=False) for rack in self._names}
        self._fenced = {rack: turns(rack, fenced=True) for rack in self._names}
        self._active = sum(not broker.fenced for broker in brokers)
        self._offset = random.randrange(len(self._names))
        self._round = 0
        self._random = random

    def place(self, replicas: int) -> list[int]:
        if self._round == self._active and self._active > 1:
            # Each broker has led once: shuffle, or every further round would be the same.
            self._shuffle()
            self._round = 0
        start = self._offset % len(self._names)
        order = self._names[start:] + self._names[:start]
        leader_rack, leader = self._leader(order)
        chosen = [leader]
        # The leader's rack has already contributed to the first round.
        racks = [rack for rack in order if rack != leader_rack]
        while len(chosen) < replicas:
            for rack in racks:
                broker = self._next(rack)
                if broker is not None:
                    chosen.append(broker)
                    if len(chosen) == replicas:
                        break
            racks = order
        self._round += 1
        self._offset = start + 1
        return chosen

    def _leader(self, order: list[str]) -> tuple[str, int]:
        for rack in order:
            broker = self._unfenced[rack].next(self._round)
            if broker is not None:
                return rack, broker
        raise AssertionError("some broker is not fenced")

    def _next(self, rack: str) -> int | None:
        broker = self._unfenced[rack].next(self._round)
        return self._fenced[rack].next(self._round) if broker is None else broker

    def _shuffle(self) -> None:
        self._random.shuffle(self._names)
        for turns in (*self._unfenced.values(), *self._fenced.values()):
            turns.shuffle(self._random)
