"""The topics that consumer groups subscribe to, as the cluster's metadata has them.

A group raises its epoch when the hash of its topics changes: a topic was created, deleted, grown,
or moved to other racks. The hash is XXH3 (64 bits, seed 0), bit for bit as Kafka writes it into the
group's record: a group must not rebalance only because another broker has loaded it. Each topic is
hashed once for all groups of a shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from struct import pack, unpack_from
from typing import NamedTuple, Protocol

from headwater.groups.consumer.assignors import Partitions
from headwater.model import TopicPartition


class TopicsView(Protocol):
    """The cluster's topics, as far as groups need them."""

    def partitions(self, name: str) -> int | None: ...

    def id(self, name: str) -> bytes | None: ...

    def name(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]: ...

    def racks(self, name: str) -> Sequence[frozenset[str]]: ...


class _Hashed(NamedTuple):
    id: bytes
    partitions: int
    racks: Sequence[frozenset[str]]
    hash: int
    checked: int  # the update after which it was last found correct


class Topics:
    """The current topics, shared by all groups of a shard."""

    def __init__(self) -> None:
        self._view: TopicsView | None = None
        self._updates = 0
        self._hashes: dict[str, _Hashed] = {}
        self.names: frozenset[str] = frozenset()
        # Raised when topics are created, which patterns may match.
        self.version = 0

    def update(self, view: TopicsView) -> None:
        """Takes the topics after a change."""
        self._view = view
        self._updates += 1
        names = frozenset(view.names())
        if not names <= self.names:
            self.version += 1
        self.names = names

    def name(self, topic_id: bytes) -> str | None:
        return self._view.name(topic_id) if self._view is not None else None

    def id(self, name: str) -> bytes | None:
        return self._view.id(name) if self._view is not None else None

    def ids(self, names: Iterable[str]) -> Set[bytes]:
        """Returns the ids of the topics that exist."""
        if self._view is None:
            return frozenset()
        return {found for name in names if (found := self._view.id(name)) is not None}

    def by_id(self, named: Iterable[TopicPartition]) -> Partitions:
        """Groups partitions by the ids of their topics; topics that do not exist are left out."""
        found: dict[bytes, set[int]] = {}
        for name, number in named:
            topic_id = self.id(name)
            if topic_id is not None:
                found.setdefault(topic_id, set()).add(number)
        return {topic_id: frozenset(numbers) for topic_id, numbers in found.items()}

    def by_name(self, partitions: Mapping[bytes, Iterable[int]]) -> list[TopicPartition]:
        """Names the topics of these partitions; topics that do not exist are left out."""
        return [
            TopicPartition(name, number)
            for topic_id, numbers in partitions.items()
            if (name := self.name(topic_id)) is not None
            for number in numbers
        ]

    def partitions(self, names: Iterable[str]) -> dict[bytes, int]:
        """Returns the number of partitions of the topics that exist, by id."""
        counts: dict[bytes, int] = {}
        if self._view is not None:
            for name in names:
                topic_id, count = self._view.id(name), self._view.partitions(name)
                if topic_id is not None and count is not None:
                    counts[topic_id] = count
        return counts

    def hash(self, names: Iterable[str]) -> int:
        """Returns the hash of these topics, as the group's record has it."""
        hashes = ((name, self._hash(name)) for name in names)
        return group_hash((name, found) for name, found in hashes if found is not None)

    def _hash(self, name: str) -> int | None:
        known = self._hashes.get(name)
        if known is not None and known.checked == self._updates:
            return known.hash
        view = self._view
        topic_id = view.id(name) if view is not None else None
        count = view.partitions(name) if view is not None else None
        if view is None or topic_id is None or count is None:
            self._hashes.pop(name, None)
            return None
        racks = view.racks(name)
        if known is not None and known[:3] == (topic_id, count, racks):
            hashed = known.hash
        else:
            hashed = topic_hash(topic_id, name, count, racks)
        self._hashes[name] = _Hashed(topic_id, count, racks, hashed, self._updates)
        return hashed


_MASK = 0xFFFFFFFFFFFFFFFF
_PRIME32_1, _PRIME32_2, _PRIME32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_PRIME64_1, _PRIME64_2 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F
_PRIME64_3, _PRIME64_4 = 0x165667B19E3779F9, 0x85EBCA77C2B2AE63
_PRIME64_5 = 0x27D4EB2F165667C5
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def _secret(at: int) -> int:
    return int.from_bytes(_SECRET[at : at + 8], "little")


_STRIPE_KEYS = [[_secret(8 * (stripe + lane)) for lane in range(8)] for stripe in range(16)]
_SCRAMBLE_KEYS = [_secret(128 + 8 * lane) for lane in range(8)]
_LAST_KEYS = [_secret(121 + 8 * lane) for lane in range(8)]


def _fold(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value &= _MASK
    value = ((value ^ (value >> 37)) * 0x165667919E3779F9) & _MASK
    return value ^ (value >> 32)


def _mix(data: bytes, at: int, secret: int) -> int:
    low, high = unpack_from("<QQ", data, at)
    return _fold(low ^ _secret(secret), high ^ _secret(secret + 8))


def _few_bytes(data: bytes) -> int:
    """Hashes 4 to 16 bytes; shorter texts do not occur."""
    length = len(data)
    if length <= 8:
        first, last = int.from_bytes(data[:4], "little"), int.from_bytes(data[-4:], "little")
        value = (last + (first << 32)) ^ _secret(8) ^ _secret(16)
        turned = ((value << 49) | (value >> 15)) ^ ((value << 24) | (value >> 40))
        value = ((value ^ turned) & _MASK) * 0x9FB21C651E98DF25 & _MASK
        value = (value ^ ((value >> 35) + length)) * 0x9FB21C651E98DF25 & _MASK
        return value ^ (value >> 28)
    low = int.from_bytes(data[:8], "little") ^ _secret(24) ^ _secret(32)
    high = int.from_bytes(data[-8:], "little") ^ _secret(40) ^ _secret(48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return _avalanche(length + swapped + high + _fold(low, high))


def _some_bytes(data: bytes) -> int:
    """Hashes 17 to 240 bytes."""
    length = len(data)
    total = length * _PRIME64_1
    if length <= 128:
        for pair in range((length - 1) // 32 + 1):
            total += _mix(data, 16 * pair, 32 * pair)
            total += _mix(data, length - 16 * pair - 16, 32 * pair + 16)
        return _avalanche(total)
    for turn in range(8):
        total += _mix(data, 16 * turn, 16 * turn)
    total = _avalanche(total)
    for turn in range(8, length // 16):
        total += _mix(data, 16 * turn, 16 * (turn - 8) + 3)
    return _avalanche(total + _mix(data, length - 16, 119))


def _many_bytes(data: bytes) -> int:
    lanes = [
        *(_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3),
        *(_PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1),
    ]

    def take(at: int, keys: Sequence[int]) -> None:
        words = unpack_from("<8Q", data, at)
        for lane in range(8):
            word = words[lane]
            key = word ^ keys[lane]
            lanes[lane ^ 1] = (lanes[lane ^ 1] + word) & _MASK
            lanes[lane] = (lanes[lane] + (key & 0xFFFFFFFF) * (key >> 32)) & _MASK

    for stripe in range((len(data) - 1) // 64):
        take(64 * stripe, _STRIPE_KEYS[stripe % 16])
        if stripe % 16 == 15:
            for lane, key in enumerate(_SCRAMBLE_KEYS):
                value = lanes[lane]
                lanes[lane] = (value ^ (value >> 47) ^ key) * _PRIME32_1 & _MASK
    take(len(data) - 64, _LAST_KEYS)
    total = len(data) * _PRIME64_1
    for pair in range(4):
        at = 11 + 16 * pair
        total += _fold(lanes[2 * pair] ^ _secret(at), lanes[2 * pair + 1] ^ _secret(at + 8))
    return _avalanche(total)


def xxh3(data: bytes) -> int:
    """Returns XXH3 as a signed number, like Java."""
    assert len(data) >= 4, len(data)
    hashed = (
        _few_bytes(data)
        if len(data) <= 16
        else _some_bytes(data)
        if len(data) <= 240
        else _many_bytes(data)
    )
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _string(text: str) -> bytes:
    """Returns the UTF-16 units of a text and then their number."""
    units = text.encode("utf-16-le")
    return units + pack("<i", len(units) // 2)


def topic_hash(topic_id: bytes, name: str, partitions: int, racks: Sequence[Iterable[str]]) -> int:
    """Hashes one topic: its id, its name, and for each partition the racks of its replicas."""
    parts = [b"\0", topic_id[7::-1], topic_id[:7:-1], _string(name), pack("<i", partitions)]
    for partition in range(partitions):
        parts.append(pack("<i", partition))
        near = sorted(racks[partition]) if partition < len(racks) else ()
        parts.extend(_string(rack)[-4:] + _string(rack) for rack in near)
    return xxh3(b"".join(parts))


def group_hash(topic_hashes: Iterable[tuple[str, int]]) -> int:
    """Hashes all topics of a group, in the order of their names; 0 if there are none."""
    ordered = [hashed for _, hashed in sorted(topic_hashes)]
    return xxh3(pack(f"<{len(ordered)}q", *ordered)) if ordered else 0
