"""Shapes: Python types as columns; serdes: values as bytes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, TypedDict
from uuid import UUID

import pytest
from pydantic import BaseModel

from headwater.streams import serde
from headwater.streams.serde import SerdeError, serde_of
from headwater.streams.types import ShapeError, shape_of

AT = datetime(2026, 1, 31, 12, 30, 0, 250, tzinfo=UTC)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Line:
    product: str
    count: int = 1


@dataclass
class Order:
    id: int
    total: float
    at: datetime
    lines: list[Line] = field(default_factory=list)
    tags: dict[str, int] = field(default_factory=dict)
    note: str | None = None


class Payment(BaseModel):
    order_id: int
    amount: Decimal
    method: Literal["card", "cash"] = "card"


class Reading(TypedDict):
    sensor: str
    celsius: float


@dataclass
class Everything:
    a: bytes
    b: bool
    c: date
    d: timedelta
    e: UUID
    f: Colour
    g: tuple[int, ...]
    h: set[str]
    i: Line
    j: list[dict[str, float]]


ORDER = Order(1, 2.5, AT, [Line("tea", 2)], {"gift": 1})
EVERYTHING = Everything(
    b"\x00\xff",
    True,
    date(2026, 2, 3),
    timedelta(days=-1, seconds=3, microseconds=5),
    UUID(int=7),
    Colour.BLUE,
    (1, 2),
    {"x"},
    Line("tea"),
    [{"y": 1.5}],
)


def test_a_record_type_has_a_column_for_each_field() -> None:
    shape = shape_of(Order)
    assert shape.is_record
    assert shape.schema.simpleString() == (
        "struct<id:bigint,total:double,at:timestamp,lines:array<struct<product:string,count:bigint>>,"
        "tags:map<string,bigint>,note:string>"
    )
    assert shape.required == ("id", "total", "at")


@pytest.mark.parametrize("value", [ORDER, EVERYTHING], ids=lambda value: type(value).__name__)
def test_a_dataclass_comes_back_from_its_columns_and_from_json(value: Any) -> None:
    shape = shape_of(type(value))
    assert shape.to_python(shape.to_row(value)) == value
    known = serde_of(type(value))
    assert known.decode(known.encode(value)) == value


def test_other_record_types_come_back_as_well() -> None:
    payment = Payment(order_id=1, amount=Decimal("2.50"), method="cash")
    known = serde_of(Payment)
    assert known.encode(payment) == b'{"order_id":1,"amount":2.50,"method":"cash"}'
    assert known.decode(known.encode(payment)) == payment
    reading: Reading = {"sensor": "a", "celsius": 21.5}
    assert serde_of(Reading).decode(b'{"sensor":"a","celsius":21.5}') == reading
    fields = serde_of("id string, amount decimal(10,2)")
    assert fields.decode(b'{"id":"a","amount":1.25,"more":1}') == {
        "id": "a",
        "amount": Decimal("1.25"),
    }


def test_nested_records_know_their_defaults() -> None:
    found = serde_of(Order).decode(
        b'{"id":1,"total":2,"at":"2026-01-31T12:30:00.000250Z","lines":[{"product":"tea"}]}'
    )
    assert found == Order(1, 2.0, AT, [Line("tea", 1)])


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        (str, "grün", "grün".encode()),
        (int, 42, b"42"),
        (float, 0.5, b"0.5"),
        (bool, True, b"true"),
        (bytes, b"\xff", b"\xff"),
        (Decimal, Decimal("1.50"), b"1.50"),
        (datetime, AT, b"2026-01-31T12:30:00.000250Z"),
        (date, date(2026, 1, 2), b"2026-01-02"),
        (UUID, UUID(int=7), b"00000000-0000-0000-0000-000000000007"),
        (Colour, Colour.RED, b"red"),
        (list[int], [1, 2], b"[1,2]"),
        (dict[str, int], {"a": 1}, b'{"a":1}'),
        (str | None, "a", b"a"),
    ],
)
def test_a_value_that_is_no_record_is_text_or_json(kind: Any, value: Any, data: bytes) -> None:
    known = serde_of(kind)
    assert known.encode(value) == data
    assert known.decode(data) == value
    shape = shape_of(kind)
    assert not shape.is_record
    assert shape.names == ["value"]
    assert shape.to_python(shape.to_row(value)) == value


@pytest.mark.parametrize(
    ("known", "value", "data"),
    [
        (serde.LONG, -2, b"\xff" * 7 + b"\xfe"),
        (serde.INT, 1, b"\0\0\0\1"),
        (serde.SHORT, 1, b"\0\1"),
        (serde.DOUBLE, 1.0, b"\x3f\xf0" + b"\0" * 6),
        (serde.FLOAT, 1.0, b"\x3f\x80\0\0"),
    ],
)
def test_numbers_can_be_those_of_java(known: serde.Number[Any], value: Any, data: bytes) -> None:
    assert known.encode(value) == data
    assert known.decode(data) == value
    with pytest.raises(SerdeError, match=f"expected the {len(data)} bytes of a {known.name}"):
        known.decode(b"x")


@pytest.mark.parametrize(
    ("kind", "data", "message"),
    [
        (Order, b"{", "the value is not JSON"),
        (Order, b"[]", "expected a JSON object"),
        (Order, b'{"total":1,"at":0}', "field id is missing"),
        (Order, b'{"id":"x","total":1,"at":0}', "field id: expected bigint, found 'x'"),
        (
            Order,
            b'{"id":1,"total":1,"at":0,"lines":[{"product":"a","count":"b"}]}',
            "field lines[].count: expected bigint, found 'b'",
        ),
        (Payment, b'{"order_id":1,"amount":1,"method":"gold"}', "field method: "),
        (int, b"four", "the value is not bigint: 'four'"),
        (int, b"9223372036854775808", "the value is not bigint"),
        (str, b"\xff", "the value is not UTF-8 text"),
    ],
)
def test_what_does_not_fit_is_named(kind: Any, data: bytes, message: str) -> None:
    with pytest.raises((SerdeError, ShapeError)) as raised:
        serde_of(kind).decode(data)
    assert message in str(raised.value)


def test_a_value_of_another_type_is_refused_with_its_field() -> None:
    with pytest.raises(ShapeError, match="field total: expected float, found 'much'"):
        shape_of(Order).to_row(Order(1, "much", AT))  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="expected Order, found 1"):
        shape_of(Order).to_row(1)
    with pytest.raises(ShapeError, match="expected int, found True"):
        shape_of(int).to_row(True)
    with pytest.raises(ShapeError, match="'x' is not a field; the fields are celsius, sensor"):
        shape_of(Reading).to_row({"x": 1})


@dataclass
class Endless:
    next: Endless | None


@dataclass
class Vague:
    payload: dict[int, str]


@dataclass
class Hidden:
    _key: str


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (object, "value: object has no columns; expected str, int"),
        (int | str, "may be of several types"),
        (tuple[int, str], "a tuple of fixed length has no column"),
        (list, "needs the type of its elements"),
        (Vague, "payload: a dict needs text for keys"),
        (Hidden, "_key: names that begin with '_'"),
        (Endless, "contains itself"),
        ("id strin", "'strin' is not a type of Spark; did you mean string?"),
    ],
)
def test_types_without_columns_are_refused(kind: Any, message: str) -> None:
    with pytest.raises(ShapeError) as raised:
        shape_of(kind)
    assert message in str(raised.value)


def test_a_serde_of_ones_own_is_taken_as_it_is() -> None:
    class Upper:
        name = "upper"

        def encode(self, value: str) -> bytes:
            return value.upper().encode()

        def decode(self, data: bytes) -> str:
            return data.decode().lower()

    own = Upper()
    assert serde_of(own) is own


def test_times_without_a_zone_are_utc() -> None:
    row: Mapping[str, Any] = shape_of(datetime).to_row(datetime(2026, 1, 1))
    assert row["value"] == datetime(2026, 1, 1, tzinfo=UTC)
