"""Java's string hash, which says which partition of a coordinator's topic has an id."""

from __future__ import annotations

import pytest

from headwater.broker.coordinators import hashing
from headwater.broker.coordinators.hashing import is_too_long, java_hash, partition_of


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello world", 1794106052),
        ("polygenelubricants", -(2**31)),
        ("\N{SNOWMAN}", 9731),
        ("\N{GRINNING FACE}", 1772899),  # two units of UTF-16
    ],
)
def test_the_hash_is_javas(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_hash_has_no_absolute_value_in_java() -> None:
    assert partition_of("polygenelubricants", 50) == 0


def test_a_long_id_is_not_remembered() -> None:
    """An id may be as long as a request; remembering thousands would fill the memory."""
    before = hashing._remembered.cache_info().currsize
    for number in range(20):
        java_hash(f"{number}" + "t" * 300)
    assert hashing._remembered.cache_info().currsize == before


def test_an_id_that_no_record_can_have_is_not_hashed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashing takes a second for every ten megabytes, in which the node would do nothing else."""
    hashed: list[int] = []

    def noted(text: str) -> int:
        hashed.append(len(text))
        return 7

    monkeypatch.setattr(hashing, "java_hash", noted)
    assert partition_of("t" * 32_768, 50) == 0
    assert hashed == []
    assert partition_of("t" * 32_767, 50) == 7


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t" * 32_767, False),
        ("t" * 32_768, True),
        ("\N{SNOWMAN}" * 10_922, False),
        ("\N{SNOWMAN}" * 10_923, True),
        ("t" * 10_000_000, True),
    ],
)
def test_a_key_of_a_record_has_32767_bytes_at_most(text: str, expected: bool) -> None:
    assert is_too_long(text) is expected
