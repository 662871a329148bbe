"""The hash of a group's topics, compared with values of Kafka's library (hash4j)."""

from __future__ import annotations

import pytest

from headwater.groups.consumer.topics import group_hash, topic_hash, xxh3

# The hash of n bytes, byte i being 7 * i + 3.
KNOWN = {
    4: 7895465118229274323,
    8: 6941064856527638883,
    9: -72226354546400344,
    16: -5131753158909839995,
    17: 8163341949877205007,
    33: 4486878507168070088,
    128: 7440608504995537343,
    129: -4150982730466284604,
    240: 7229805477010515663,
    241: -8364630114420064745,
    1024: -7241394453710343503,
    1025: -9192937061388044938,
    4000: -5310789161534124362,
}


@pytest.mark.parametrize(("length", "expected"), KNOWN.items())
def test_it_is_xxh3(length: int, expected: int) -> None:
    assert xxh3(bytes((i * 7 + 3) & 255 for i in range(length))) == expected


def test_a_topic_is_hashed_as_kafka_does() -> None:
    racks = [frozenset(("rack1",))] * 3
    assert topic_hash(bytes(range(1, 17)), "orders", 3, racks) == 5429360822202776991


def test_a_group_is_hashed_by_its_topics_in_the_order_of_their_names() -> None:
    assert group_hash([("b", 77), ("a", -5)]) == -6866509273373571706
    assert group_hash([]) == 0
