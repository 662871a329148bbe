"""Converts values of Python types to columns, and back.

A `Shape` is made once for the key and the value of each stream. A record type (a dataclass, a
pydantic model, a TypedDict, or fields in Spark's notation) has a column for each field; any other
type has one column, `value`. Python functions get values of the type; Spark gets the columns.

A type that a shape cannot hold is refused when the shape is made, with the name of the field, and
never only when the first record arrives.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.spark.fields import FieldsError, json_of_fields

VALUE = "value"  # the column of a value that is not a record
_DEPTH_MAX = 32  # a type that contains itself has no columns
_DECIMAL = DecimalType(38, 18)
_SIMPLE: dict[Any, DataType] = {
    str: StringType(),
    int: LongType(),
    float: DoubleType(),
    bool: BooleanType(),
    bytes: BinaryType(),
    datetime: TimestampType(),
    date: DateType(),
    timedelta: DayTimeIntervalType(),
    Decimal: _DECIMAL,
}
_EXPECTED = (
    "str, int, float, bool, bytes, datetime, date, timedelta, Decimal, UUID, an Enum, list[...], "
    "dict[str, ...], a dataclass, a pydantic model, a TypedDict, or one of these with None"
)


class ShapeError(TypeError):
    """A type has no columns, or a value does not fit its type: the field, and what is expected."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Converts values of one Python type to columns, and back."""

    python: Any
    schema: StructType  # all fields may be null; `required` has those that must not be
    is_record: bool
    required: tuple[str, ...] = ()
    _load: Callable[[Any], Any] | None = None  # None: the same in Python and as a column
    _dump: Callable[[Any], Any] | None = None

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.schema.fields]

    @property
    def type_name(self) -> str:
        return _name_of(self.python)

    def to_python(self, row: Mapping[str, Any]) -> Any:
        """Returns the value whose columns these are. ShapeError if a required field is null."""
        if self.is_record:
            return row if self._load is None else self._load(row)
        value = row[VALUE]
        return value if self._load is None or value is None else self._load(value)

    def to_row(self, value: Any) -> dict[str, Any]:
        """Returns the columns of a value. ShapeError if it is of another type."""
        if self.is_record:
            if value is None:
                raise ShapeError(f"expected {self.type_name}, found None")
            row: dict[str, Any] = value if self._dump is None else self._dump(value)
            return row
        return {VALUE: value if self._dump is None or value is None else self._dump(value)}


def shape_of(kind: Any) -> Shape:
    """Returns the shape of a type, of a StructType, or of fields such as "id string, n int".

    None and Any, a type that nobody has said, are bytes.
    """
    if isinstance(kind, Shape):
        return kind
    if kind is None or kind is Any:
        kind = bytes
    if isinstance(kind, str):
        try:
            kind = StructType.fromJson(json_of_fields(kind))
        except FieldsError as error:
            raise ShapeError(f"fields {kind!r}: {error}") from None
    if isinstance(kind, StructType):
        check = _fields_of_mapping([(field.name, _SAME) for field in kind.fields], "a mapping")
        required = tuple(field.name for field in kind.fields if not field.nullable)
        return Shape(kind, _nullable(kind), True, required, _require(required), check)
    column = _column(kind, "value", 0)
    if isinstance(column.type, StructType) and not column.is_nullable:
        return Shape(kind, column.type, True, column.required, column.load, column.dump)
    one = StructType([StructField(VALUE, column.type)])
    return Shape(kind, one, False, (), column.load, column.dump)


@dataclass(frozen=True, slots=True)
class _Column:
    """One column: its type, and how a value gets in and out. None: it is the same on both sides."""

    type: DataType
    load: Callable[[Any], Any] | None = None
    dump: Callable[[Any], Any] | None = None
    is_nullable: bool = False
    required: tuple[str, ...] = ()  # of a record: its fields that must not be null


_SAME = _Column(StringType())


def _column(kind: Any, where: str, depth: int) -> _Column:
    if depth > _DEPTH_MAX:
        raise ShapeError(f"{where}: a type that contains itself has no columns")
    depth += 1
    if kind in (str, bytes, int, float, bool, Decimal, datetime, date, timedelta):
        return _Column(_SIMPLE[kind], *_SIMPLE_CONVERSIONS.get(kind, (None, _checked(kind))))
    if kind is UUID:
        return _Column(StringType(), UUID, lambda value: str(_is(value, UUID)))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _column(arguments[0], where, depth)
    if origin in (Union, types.UnionType):
        return _optional(kind, arguments, where, depth)
    if origin is Literal:
        inner = {type(each) for each in arguments}
        if len(inner) == 1:
            return _column(inner.pop(), where, depth)
    if origin in (list, Sequence, tuple, set, frozenset) or kind in (list, tuple):
        return _array(origin or kind, arguments, where, depth)
    if origin in (dict, Mapping):
        return _map(arguments, where, depth)
    if isinstance(kind, type):
        if issubclass(kind, enum.Enum):
            values = _column(type(next(iter(kind)).value), where, depth)
            return _Column(values.type, kind, lambda value: kind(value).value)
        if dataclasses.is_dataclass(kind):
            return _dataclass(kind, where, depth)
        if hasattr(kind, "model_fields") and hasattr(kind, "model_validate"):
            return _pydantic(kind, where, depth)
        if typing.is_typeddict(kind):
            return _typed_dict(kind, where, depth)
    if isinstance(kind, DataType):
        return _Column(_nullable(kind))
    raise ShapeError(f"{where}: {_name_of(kind)} has no columns; expected {_EXPECTED}")


def _optional(kind: Any, arguments: tuple[Any, ...], where: str, depth: int) -> _Column:
    rest = [each for each in arguments if each is not type(None)]
    if len(rest) != 1:
        raise ShapeError(
            f"{where}: {_name_of(kind)} may be of several types, which one column cannot; "
            "use a record with an optional field for each"
        )
    inner = _column(rest[0], where, depth)
    is_nullable = len(rest) < len(arguments)
    return dataclasses.replace(inner, is_nullable=is_nullable or inner.is_nullable)


def _array(origin: Any, arguments: tuple[Any, ...], where: str, depth: int) -> _Column:
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is Ellipsis):
        raise ShapeError(f"{where}: a tuple of fixed length has no column; use a record")
    if not arguments:
        raise ShapeError(f"{where}: a list needs the type of its elements, such as list[str]")
    inner = _column(arguments[0], f"{where}[]", depth)
    make = {Sequence: list}.get(origin, origin)
    get = _each(inner.load, make)
    put = _each(inner.dump, list)
    return _Column(ArrayType(inner.type), get, put)


def _map(arguments: tuple[Any, ...], where: str, depth: int) -> _Column:
    if not arguments or arguments[0] is not str:
        raise ShapeError(
            f"{where}: a dict needs text for keys, and a type of its values: dict[str, int]"
        )
    inner = _column(arguments[1], f"{where}[...]", depth)

    def values(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        def change(given: Mapping[str, Any] | list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(given)  # Arrow has a map as a list of pairs
            if convert is None:
                return found
            return {key: None if one is None else convert(one) for key, one in found.items()}

        return change

    return _Column(MapType(StringType(), inner.type), values(inner.load), values(inner.dump))


def _dataclass(kind: Any, where: str, depth: int) -> _Column:
    hints = _hints(kind, where)
    own = [field for field in dataclasses.fields(kind) if field.init]
    optional = {
        field.name
        for field in own
        if field.default is not dataclasses.MISSING
        or field.default_factory is not dataclasses.MISSING
    }
    columns = _columns_of({field.name: hints[field.name] for field in own}, where, depth)
    required = _required(columns, optional)
    load = _load_fields(columns, optional, required)
    dumps = [(name, column) for name, column in columns.items()]

    def dump(value: Any) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise ShapeError(f"expected {kind.__name__}, found {_short(value)}")
        return {name: _dump_field(name, column, getattr(value, name)) for name, column in dumps}

    return _Column(_struct(columns), lambda row: kind(**load(row)), dump, required=required)


def _pydantic(kind: Any, where: str, depth: int) -> _Column:
    fields = {name: info.annotation for name, info in kind.model_fields.items()}
    optional = {name for name, info in kind.model_fields.items() if not info.is_required()}
    columns = _columns_of(fields, where, depth)
    required = _required(columns, optional)
    names = {name: kind.model_fields[name].alias or name for name in fields}

    def load(row: Mapping[str, Any]) -> Any:
        found = {}
        for name, column in columns.items():
            value = row.get(name)
            if value is None and name in optional and not column.is_nullable:
                continue
            found[names[name]] = value
        try:
            return kind.model_validate(found)
        except ValueError as error:
            raise ShapeError(_pydantic_message(error)) from None

    def dump(value: Any) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise ShapeError(f"expected {kind.__name__}, found {_short(value)}")
        return {
            name: _dump_field(name, column, getattr(value, name))
            for name, column in columns.items()
        }

    return _Column(_struct(columns), load, dump, required=required)


def _pydantic_message(error: ValueError) -> str:
    problems = error.errors() if hasattr(error, "errors") else []
    if not problems:
        return str(error)
    place = ".".join(str(part) for part in problems[0]["loc"]) or "value"
    return f"field {place}: {problems[0]['msg']}"


def _typed_dict(kind: Any, where: str, depth: int) -> _Column:
    hints = _hints(kind, where)
    columns = _columns_of(hints, where, depth)
    optional = set(kind.__optional_keys__)
    required = _required(columns, optional)
    load = _load_fields(columns, optional, required)
    check = _fields_of_mapping(list(columns.items()), kind.__name__)
    return _Column(_struct(columns), load, check, required=required)


def _columns_of(fields: Mapping[str, Any], where: str, depth: int) -> dict[str, _Column]:
    if not fields:
        raise ShapeError(f"{where}: a record needs at least one field")
    lead = "" if where == VALUE else f"{where}."
    columns = {name: _column(kind, f"{lead}{name}", depth) for name, kind in fields.items()}
    for name in columns:
        if name.startswith("_"):
            raise ShapeError(
                f"{lead}{name}: names that begin with '_' are those of the record's own columns"
            )
    return columns


def _required(columns: Mapping[str, _Column], optional: set[str]) -> tuple[str, ...]:
    return tuple(
        name for name, column in columns.items() if not column.is_nullable and name not in optional
    )


def _struct(columns: Mapping[str, _Column]) -> StructType:
    return StructType([StructField(name, column.type) for name, column in columns.items()])


def _load_fields(
    columns: Mapping[str, _Column], optional: set[str], required: tuple[str, ...]
) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    loads = [
        (name, column.load, name in optional and not column.is_nullable)
        for name, column in columns.items()
    ]
    needed = frozenset(required)

    def load(row: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for name, convert, has_default in loads:
            value = row.get(name)
            if value is None:
                if name in needed:
                    raise ShapeError(f"field {name} is missing")
                if has_default:
                    continue
            elif convert is not None:
                value = convert(value)
            found[name] = value
        return found

    return load


def _require(required: tuple[str, ...]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    def load(row: Mapping[str, Any]) -> dict[str, Any]:
        for name in required:
            if row.get(name) is None:
                raise ShapeError(f"field {name} is missing")
        return dict(row)

    return load


def _fields_of_mapping(
    columns: Sequence[tuple[str, _Column]], what: str
) -> Callable[[Any], dict[str, Any]]:
    known = frozenset(name for name, _ in columns)

    def dump(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise ShapeError(f"expected {what}, found {_short(value)}")
        if not known.issuperset(value):
            unknown = next(name for name in value if name not in known)
            raise ShapeError(
                f"{unknown!r} is not a field; the fields are {', '.join(sorted(known))}"
            )
        return {name: _dump_field(name, column, value.get(name)) for name, column in columns}

    return dump


def _dump_field(name: str, column: _Column, value: Any) -> Any:
    if value is None or column.dump is None:
        return value
    try:
        return column.dump(value)
    except (TypeError, ValueError) as error:
        raise ShapeError(f"field {name}: {error}") from None


def _hints(kind: Any, where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except NameError as error:
        raise ShapeError(
            f"{where}: {kind.__name__}: {error}; define the types of its fields in its module"
        ) from None


def _nullable(kind: Any) -> Any:
    """Returns the type with all fields nullable: what is required is checked with a reason."""
    match kind:
        case StructType():
            return StructType(
                [StructField(field.name, _nullable(field.dataType)) for field in kind.fields]
            )
        case ArrayType():
            return ArrayType(_nullable(kind.elementType))
        case MapType():
            return MapType(kind.keyType, _nullable(kind.valueType))
        case _:
            return kind


# Values of simple types


def _is(value: Any, *kinds: type) -> Any:
    if not isinstance(value, kinds):
        raise ShapeError(f"expected {kinds[0].__name__}, found {_short(value)}")
    return value


def _checked(kind: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        # bool is an int in Python, and nowhere else.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ShapeError(f"expected {kind.__name__}, found {_short(value)}")
        return value

    return check


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (float, int)):
        raise ShapeError(f"expected float, found {_short(value)}")
    return float(value)


def _utc(value: Any) -> datetime:
    """Returns a time in UTC. One without a zone is UTC: a host's own zone means nothing here."""
    found: datetime = _is(value, datetime)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        raise ShapeError(f"expected date, found {_short(value)}")
    found: date = _is(value, date)
    return found


def _each(
    convert: Callable[[Any], Any] | None, make: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    def change(values: Any) -> Any:
        if isinstance(values, (str, bytes)):
            raise ShapeError(f"expected a list, found {_short(values)}")
        if convert is None:
            return make(values)
        return make([None if value is None else convert(value) for value in values])

    return change


_SIMPLE_CONVERSIONS: dict[Any, tuple[Any, Any]] = {
    float: (None, _float),
    bytes: (bytes, lambda value: bytes(_is(value, bytes, bytearray, memoryview))),
    datetime: (_utc, _utc),
    date: (None, _date),
    Decimal: (None, lambda value: Decimal(_is(value, Decimal, int))),
}


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _name_of(kind: Any) -> str:
    if isinstance(kind, DataType):
        return kind.simpleString()
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
