"""Serdes for keys and values of records: text, JSON, raw bytes, Java's numbers, or your own.

A serde turns a value into bytes and back, in Python. Those in this module have a second form, for
columns: Spark converts them itself, a batch at a time. `serde_of` chooses by type: text for `str`,
numbers and times, the bytes themselves for `bytes`, JSON for everything with parts.

    class OrderSerde:                       # a serde of your own: anything with these three
        name = "order"
        def encode(self, value: Order) -> bytes: ...
        def decode(self, data: bytes) -> Order: ...
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, runtime_checkable

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from headwater.streams.types import VALUE, Shape, ShapeError, shape_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

T = TypeVar("T")

# Microseconds, which is what Spark keeps; its default drops all but milliseconds.
_JSON_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timeZone": "UTC"}
_CORRUPT = "__corrupt"
_INTEGERS: dict[type[DataType], int] = {ByteType: 8, ShortType: 16, IntegerType: 32, LongType: 64}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SerdeError(ValueError):
    """Bytes are not of the type that is expected: what they are, and where."""


@runtime_checkable
class Serde(Protocol[T]):
    """Writes values of a type as bytes, and reads them."""

    @property
    def name(self) -> str: ...

    def encode(self, value: T, /) -> bytes: ...

    def decode(self, data: bytes, /) -> T: ...


@dataclass(frozen=True, slots=True)
class Text(Generic[T]):
    """Values of one simple type as UTF-8 text: "alice", 42, 2026-01-31T12:00:00.000000Z."""

    shape: Shape

    @property
    def name(self) -> str:
        return "text"

    def encode(self, value: T, /) -> bytes:
        return _text_of(self.shape.to_row(value)[VALUE], _value_type(self.shape)).encode()

    def decode(self, data: bytes, /) -> T:
        found: T = self.shape.to_python({VALUE: _of_text(_utf8(data), _value_type(self.shape))})
        return found


@dataclass(frozen=True, slots=True)
class Json(Generic[T]):
    """Values as JSON. Fields that are null are left out, as Spark leaves them out."""

    shape: Shape

    @property
    def name(self) -> str:
        return "json"

    def encode(self, value: T, /) -> bytes:
        row = self.shape.to_row(value)
        if self.shape.is_record:
            return _json(row, self.shape.schema).encode()
        return _json(row[VALUE], _value_type(self.shape)).encode()

    def decode(self, data: bytes, /) -> T:
        try:
            plain = json.loads(_utf8(data), parse_float=Decimal)
        except ValueError as error:
            raise SerdeError(f"the value is not JSON: {error}") from None
        try:
            found: T = self.shape.to_python(self._row(plain))
        except ShapeError as error:
            raise SerdeError(str(error)) from None
        return found

    def _row(self, plain: Any) -> dict[str, Any]:
        if not self.shape.is_record:
            return {VALUE: _of_plain(plain, _value_type(self.shape), VALUE)}
        if not isinstance(plain, dict):
            raise SerdeError(f"expected a JSON object, found {_short(plain)}")
        row: dict[str, Any] = _of_plain(plain, self.shape.schema, "")
        return row


@dataclass(frozen=True, slots=True)
class Bytes:
    """The bytes themselves."""

    @property
    def name(self) -> str:
        return "bytes"

    def encode(self, value: bytes, /) -> bytes:
        return bytes(value)

    def decode(self, data: bytes, /) -> bytes:
        return bytes(data)


@dataclass(frozen=True, slots=True)
class Number(Generic[T]):
    """A number as Kafka's serializers for Java write it: big-endian, of a fixed length."""

    name: str
    format: str
    kind: type[T]
    type: DataType

    def encode(self, value: T, /) -> bytes:
        try:
            return struct.pack(self.format, value)
        except struct.error as error:
            raise SerdeError(f"{value!r} is not a {self.name}: {error}") from None

    def decode(self, data: bytes, /) -> T:
        size = struct.calcsize(self.format)
        if len(data) != size:
            raise SerdeError(f"expected the {size} bytes of a {self.name}, found {len(data)}")
        (found,) = struct.unpack(self.format, data)
        number: T = found
        return number


LONG: Number[int] = Number("long", ">q", int, LongType())
INT: Number[int] = Number("int", ">i", int, IntegerType())
SHORT: Number[int] = Number("short", ">h", int, ShortType())
DOUBLE: Number[float] = Number("double", ">d", float, DoubleType())
FLOAT: Number[float] = Number("float", ">f", float, FloatType())
BYTES = Bytes()


def serde_of(kind: Any) -> Serde[Any]:
    """Returns the serde of a type: raw bytes, text, or JSON. A serde is returned as it is."""
    if not isinstance(kind, type) and isinstance(kind, Serde):
        return kind
    shape = shape_of(kind)
    if shape.is_record:
        return Json(shape)
    type_ = _value_type(shape)
    if isinstance(type_, BinaryType):
        return BYTES
    return Json(shape) if isinstance(type_, (ArrayType, MapType, StructType)) else Text(shape)


def _value_type(shape: Shape) -> DataType:
    return shape.schema[VALUE].dataType


# Columns


def decode_columns(serialized: Column, shape: Shape, serde: Serde[Any]) -> Column:
    """Returns a struct of `ok` (a struct with the shape's fields) and `error` (text, or null).

    Null bytes have neither.
    """
    from pyspark.sql import functions as f

    match serde:
        case Json() if serde.shape.schema == shape.schema:
            value, error = _decode_json(serialized, shape)
        case Text() if serde.shape.schema == shape.schema:
            value, error = _decode_text(serialized, shape)
        case Bytes() if isinstance(shape.schema[0].dataType, BinaryType):
            value, error = f.struct(serialized.alias(VALUE)), f.lit(None).cast("string")
        case _:
            return _decode_in_python(serialized, shape, serde)
    # A tombstone has no value: null, not a struct of nulls.
    return f.struct(
        f.when(serialized.isNotNull() & error.isNull(), value).alias("ok"),
        f.when(serialized.isNotNull(), error).alias("error"),
    )


def encode_column(columns: Mapping[str, Column], shape: Shape, serde: Serde[Any]) -> Column:
    """Returns the bytes of a value, given by the columns of its shape's fields.

    A value that is null has null bytes, a tombstone. A record whose fields are all null may have
    bytes; the caller knows whether its row is a tombstone.
    """
    from pyspark.sql import functions as f

    match serde:
        case Json() if serde.shape.schema == shape.schema:
            return _encode_json(columns, shape)
        case Text() if serde.shape.schema == shape.schema:
            type_ = shape.schema[0].dataType
            value = columns[VALUE]
            if isinstance(type_, TimestampType):
                value = f.date_format(value, _JSON_OPTIONS["timestampFormat"])
            if not isinstance(type_, DayTimeIntervalType):
                return value.cast("string").cast("binary")
        case Bytes() if isinstance(shape.schema[0].dataType, BinaryType):
            return columns[VALUE]
    return _encode_in_python(_struct(columns, shape), shape, serde)


def _struct(columns: Mapping[str, Column], shape: Shape) -> Column:
    from pyspark.sql import functions as f

    return f.struct(*(columns[name].alias(name) for name in shape.names))


def _decode_json(serialized: Column, shape: Shape) -> tuple[Column, Column]:
    from pyspark.sql import functions as f

    text = serialized.cast("string")
    # `from_json` wants an object.
    wrapped = text if shape.is_record else f.concat(f.lit('{"value":'), text, f.lit("}"))
    fields = StructType([*shape.schema.fields, StructField(_CORRUPT, StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = f.from_json(wrapped, fields, options)
    value = f.struct(*(parsed[name].alias(name) for name in shape.names))
    error = f.when(f.try_parse_json(text).isNull(), f.lit("the value is not JSON")).when(
        parsed[_CORRUPT].isNotNull(),
        f.concat(
            f.lit(f"the value is JSON, but does not fit {shape.type_name}: "),
            f.left(text, f.lit(80)),
        ),
    )
    for name in shape.required:
        error = error.when(parsed[name].isNull(), f.lit(f"field {name} is missing"))
    return value, error


def _decode_text(serialized: Column, shape: Shape) -> tuple[Column, Column]:
    from pyspark.sql import functions as f

    type_ = shape.schema[0].dataType
    text = serialized.cast("string")
    error = f.when(~f.is_valid_utf8(text), f.lit("the value is not UTF-8 text"))
    if isinstance(type_, StringType):
        return f.struct(text.alias(VALUE)), error
    value = f.try_to_timestamp(text) if isinstance(type_, TimestampType) else text.try_cast(type_)
    wrong = f.concat(f.lit(f"the value is not {type_.simpleString()}: "), f.left(text, f.lit(80)))
    return f.struct(value.alias(VALUE)), error.when(value.isNull(), wrong)


def _encode_json(columns: Mapping[str, Column], shape: Shape) -> Column:
    from pyspark.sql import functions as f

    given = _struct(columns, shape) if shape.is_record else columns[VALUE]
    return f.to_json(given, _JSON_OPTIONS).cast("binary")


def _decode_in_python(serialized: Column, shape: Shape, serde: Serde[Any]) -> Column:
    from pyspark.sql.pandas.types import to_arrow_type

    result = StructType([StructField("ok", shape.schema), StructField("error", StringType())])
    arrow: Any = to_arrow_type(result, timezone="UTC")

    def decode(column: pa.Array) -> pa.Array:
        import pyarrow as pa

        return pa.array([_decoded(data, shape, serde) for data in column.to_pylist()], arrow)

    return _arrow_udf(decode, result, serialized)


def _encode_in_python(row: Column, shape: Shape, serde: Serde[Any]) -> Column:
    def encode(column: pa.Array) -> pa.Array:
        import pyarrow as pa

        rows = column.to_pylist(maps_as_pydicts="strict")
        found = [None if each is None else _encoded(each, shape, serde) for each in rows]
        return pa.array(found, pa.binary())

    return _arrow_udf(encode, BinaryType(), row)


def _arrow_udf(
    function: Callable[[pa.Array], pa.Array], result: DataType, column: Column
) -> Column:
    import pyarrow as pa
    from pyspark.sql.pandas import functions

    # Spark reads from the annotations what kind of function it is; ours are text.
    function.__annotations__ = {"column": pa.Array, "return": pa.Array}
    arrow_udf: Any = functions.arrow_udf  # typed for a third argument that warns
    made: Column = arrow_udf(function, result)(column)
    return made


def _decoded(data: bytes | None, shape: Shape, serde: Serde[Any]) -> dict[str, Any]:
    if data is None:
        return {"ok": None, "error": None}
    try:
        return {"ok": shape.to_row(serde.decode(data)), "error": None}
    except Exception as error:  # the serde is the user's: what it raises is about this record
        return {"ok": None, "error": f"{serde.name}: {type(error).__name__}: {error}"[:1000]}


def _encoded(row: Mapping[str, Any], shape: Shape, serde: Serde[Any]) -> bytes | None:
    # Spark calls Python functions for all rows, whatever `when` says: also for tombstones.
    if all(each is None for each in row.values()):
        return None
    value = shape.to_python(row)
    return None if value is None else serde.encode(value)


# Python values and their text, as Spark has them


def _utf8(data: bytes) -> str:
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise SerdeError("the value is not UTF-8 text") from None


def _text_of(value: Any, type_: DataType) -> str:
    if value is None:
        raise SerdeError("null has no text: a record with a null value is a tombstone")
    return str(value) if isinstance(type_, StringType) else _json(value, type_).strip('"')


def _of_text(text: str, type_: DataType) -> Any:
    try:
        match type_:
            case StringType() | CharType() | VarcharType():
                return text
            case BooleanType():
                return {"true": True, "false": False}[text.strip().lower()]
            case DoubleType() | FloatType():
                return float(text)
            case DecimalType():
                return Decimal(text.strip())
            case _ if type(type_) in _INTEGERS:
                return _within(int(text), type_)
            case _:
                return _of_plain(text, type_, VALUE)
    except (ValueError, KeyError, InvalidOperation):
        raise SerdeError(f"the value is not {type_.simpleString()}: {_short(text)}") from None


def _within(number: int, type_: DataType) -> int:
    if not -(1 << _INTEGERS[type(type_)] - 1) <= number < 1 << _INTEGERS[type(type_)] - 1:
        raise ValueError(number)
    return number


def _json(value: Any, type_: DataType) -> str:
    """Returns the JSON of a column's value. `json` alone would cut the digits of a Decimal."""
    if value is None:
        return "null"
    match type_:
        case StructType():
            given = ((field, value[field.name]) for field in type_.fields)
            parts = (
                f"{_quoted(field.name)}:{_json(each, field.dataType)}"
                for field, each in given
                if each is not None
            )
            return "{" + ",".join(parts) + "}"
        case ArrayType():
            return "[" + ",".join(_json(each, type_.elementType) for each in value) + "]"
        case MapType():
            parts = (
                f"{_quoted(key)}:{_json(each, type_.valueType)}" for key, each in value.items()
            )
            return "{" + ",".join(parts) + "}"
        case BinaryType():
            return f'"{base64.b64encode(value).decode()}"'
        case TimestampType():
            return f'"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"'
        case DateType():
            return f'"{value.isoformat()}"'
        case DayTimeIntervalType():
            return f'"{_interval(value)}"'
        case DecimalType():
            return format(value, "f")
        case DoubleType() | FloatType() if not isfinite(value):
            return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
        case _:
            return _quoted(value)


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _of_plain(value: Any, type_: DataType, where: str) -> Any:
    """Returns the value of a column for what JSON has. SerdeError names the field."""
    if value is None:
        return None
    convert = _FROM_PLAIN.get(type(type_))
    try:
        if convert is not None:
            return convert(value, type_)
        match type_:
            case StructType() if isinstance(value, dict):
                lead = f"{where}." if where else ""
                return {
                    field.name: _of_plain(
                        value.get(field.name), field.dataType, f"{lead}{field.name}"
                    )
                    for field in type_
                }
            case ArrayType() if isinstance(value, list):
                return [_of_plain(each, type_.elementType, f"{where}[]") for each in value]
            case MapType() if isinstance(value, dict):
                return {
                    key: _of_plain(each, type_.valueType, f"{where}.{key}")
                    for key, each in value.items()
                }
    except SerdeError:
        raise
    except (ValueError, TypeError, KeyError, InvalidOperation):
        pass
    raise SerdeError(f"field {where}: expected {type_.simpleString()}, found {_short(value)}")


def _plain_text(value: Any, _type: DataType) -> str:
    # As `from_json` does: what is not text is taken as it is written.
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=float)


def _plain_integer(value: Any, type_: DataType) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return _within(value, type_)


def _plain_float(value: Any, _type: DataType) -> float:
    is_number = isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)
    if not is_number and value not in ("NaN", "Infinity", "-Infinity"):
        raise TypeError(value)
    return float(value)


def _plain_decimal(value: Any, _type: DataType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
        raise TypeError(value)
    return Decimal(value)


def _plain_bool(value: Any, _type: DataType) -> bool:
    if not isinstance(value, bool):
        raise TypeError(value)
    return value


def _plain_time(value: Any, _type: DataType) -> datetime:
    if isinstance(value, int) and not isinstance(value, bool):
        return _EPOCH + timedelta(seconds=value)
    found = datetime.fromisoformat(value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


_INTERVAL = re.compile(
    r"INTERVAL '(?P<sign>-?)(?P<days>\d+) (?P<h>\d+):(?P<m>\d+):(?P<s>\d+)(?:\.(?P<f>\d{1,6}))?' "
    r"DAY TO SECOND"
)


def _interval(value: timedelta) -> str:
    microseconds = value // timedelta(microseconds=1)
    sign = "-" if microseconds < 0 else ""
    seconds, fraction = divmod(abs(microseconds), 1_000_000)
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    rest = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"INTERVAL '{sign}{days} {hour:02}:{minute:02}:{second:02}{rest}' DAY TO SECOND"


def _plain_interval(value: Any, _type: DataType) -> timedelta:
    found = _INTERVAL.fullmatch(value)
    if found is None:
        raise ValueError(value)
    length = timedelta(
        days=int(found["days"]),
        hours=int(found["h"]),
        minutes=int(found["m"]),
        seconds=int(found["s"]),
        microseconds=int((found["f"] or "0").ljust(6, "0")),
    )
    return -length if found["sign"] else length


_FROM_PLAIN: dict[type[DataType], Callable[[Any, Any], Any]] = {
    **dict.fromkeys((StringType, CharType, VarcharType), _plain_text),
    **dict.fromkeys(_INTEGERS, _plain_integer),
    DoubleType: _plain_float,
    FloatType: _plain_float,
    DecimalType: _plain_decimal,
    BooleanType: _plain_bool,
    BinaryType: lambda value, _type: base64.b64decode(value, validate=True),
    TimestampType: _plain_time,
    DateType: lambda value, _type: date.fromisoformat(value),
    DayTimeIntervalType: _plain_interval,
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
