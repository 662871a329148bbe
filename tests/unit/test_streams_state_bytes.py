"""State as bytes: what comes back is what was kept, and what is damaged is refused."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.streams.state_bytes import Names, Page, StateBytesError, decode, encode

_scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(),
    st.dates(),
    st.timedeltas(timedelta(days=-(10**8)), timedelta(days=10**8)),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
    st.decimals(allow_nan=False),
)
_values: st.SearchStrategy[Any] = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
        st.dictionaries(st.integers(), inner, max_size=4),
    ),
    max_leaves=20,
)


@given(_values)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    for names in (None, Names()):
        found = decode(encode(value, names), names)
        assert found == value
        assert type(found) is type(value)


def test_a_time_keeps_its_offset() -> None:
    at = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=-5)))
    assert decode(encode(at)) == at
    assert decode(encode(at)).utcoffset() == timedelta(hours=-5)


def test_equal_sets_are_equal_bytes() -> None:
    one, other = {f"key-{number}" for number in range(50)}, set()
    for number in reversed(range(50)):
        other.add(f"key-{number}")
    assert encode(one) == encode(other)
    assert decode(encode(one)) == one


def test_a_subclass_of_int_is_kept_as_its_value() -> None:
    class Level(IntEnum):
        HIGH = 3

    assert decode(encode({"level": Level.HIGH, "at": date(2026, 1, 1)})) == {
        "level": 3,
        "at": date(2026, 1, 1),
    }


def test_a_type_without_bytes_is_named() -> None:
    with pytest.raises(StateBytesError, match="object is not None, bool, int"):
        encode([object()])


def test_state_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(StateBytesError, match="nested"):
        encode(value)


@given(_values, st.data())
def test_damaged_bytes_are_refused_or_another_value(value: Any, data: st.DataObject) -> None:
    kept = bytearray(encode(value))
    at = data.draw(st.integers(0, len(kept) - 1))
    kept[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(kept), encode(value)[:at]):
        with suppress(StateBytesError):
            decode(damaged)


@given(st.dictionaries(st.binary(max_size=8), st.dictionaries(st.text(max_size=4), _scalars)))
def test_a_page_comes_back(state: dict[bytes, dict[str, Any]]) -> None:
    page = Page(3)
    for key, fields in state.items():
        page.entries[key] = encode(fields, page.names)
    found = Page.from_bytes(page.to_bytes())
    assert found.version == 3
    assert {key: decode(each, found.names) for key, each in found.entries.items()} == state


def test_names_are_kept_once() -> None:
    page = Page(1)
    fields = {"a_rather_long_name": 1, "another_long_name": Decimal("1.5")}
    for number in range(100):
        page.entries[encode(number)] = encode(fields, page.names)
    assert page.to_bytes().count(b"a_rather_long_name") == 1


def test_more_names_than_there_is_room_for() -> None:
    names = Names()
    fields = {f"name-{number}": number for number in range(1000)}
    assert decode(encode(fields, names), names) == fields
    assert len(names.list) < 200


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda data: b"\0" + data[1:], "not a page"),
        (lambda data: data[:1] + b"\x09" + data[2:], "format 9; this release reads format 1"),
        (lambda data: data[:-1], "another length"),
        (lambda data: data[:5], "not readable"),
    ],
)
def test_what_is_no_page_is_refused(change: Any, text: str) -> None:
    page = Page(1, {b"key": encode({"a": 1})})
    with pytest.raises(StateBytesError, match=text):
        Page.from_bytes(change(page.to_bytes()))
