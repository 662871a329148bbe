"""The bytes in which keyed operators keep their state: values, and pages of the values of keys.

Spark refuses a query whose state has another schema than its checkpoint. So all state is bytes to
Spark, and what is in them, and in which version, is decided here. A value carries its own types, so
it can be read without the code that wrote it; a name that is a field is written once for each page.

A page has the state of some keys of one operator, with the version of that operator's state. It is
read without decoding any of it: what a batch does not touch is copied as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import accumulate
from typing import Any

_NONE, _TRUE, _FALSE, _FLOAT, _TEXT, _BYTES, _LIST, _TUPLE, _DICT, _RECORD = range(10)
_DATETIME, _DATETIME_UTC, _DATETIME_OFFSET, _DATE, _DURATION, _DECIMAL, _SET, _LONG = range(10, 18)
_INT = 32  # plus the number of bytes, below 16
_SMALL = 64  # plus the value, below 128
_SHORT_TEXT = 192  # plus the number of bytes, below 64

_INLINE = 255  # in place of the number of a field's name
_NAMES_MAX = 128
_DEPTH_MAX = 100
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)
_DOUBLE = struct.Struct("<d")
_QUAD = struct.Struct("<q")

_MAGIC = 0xA7
_FORMAT = 1
_HEADER = struct.Struct("<BBIIB")  # magic, format, version of the state, keys, names


_UNREADABLE = (
    IndexError,
    struct.error,
    ValueError,
    ArithmeticError,
    TypeError,  # a key that cannot be one
    RecursionError,
)


class StateBytesError(ValueError):
    """Bytes are not a value or a page, or a value has no bytes."""


class Names:
    """The names of fields that values of one page share."""

    def __init__(self, names: list[str] | None = None) -> None:
        self.list = names if names is not None else []
        self._number = {name: number for number, name in enumerate(self.list)}

    def number(self, name: str) -> int:
        """Returns the number of a name, a new one if there is room; otherwise _INLINE."""
        found = self._number.get(name)
        if found is not None:
            return found
        if len(self.list) >= _NAMES_MAX or len(name) > 40:
            return _INLINE
        self.list.append(name)
        self._number[name] = number = len(self.list) - 1
        return number


def encode(value: Any, names: Names | None = None) -> bytes:
    """Returns the bytes of a value. StateBytesError names a type that has none."""
    out = bytearray()
    try:
        _encode(value, out, names, 0)
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise StateBytesError(f"{_short(value)} cannot be kept as state: {error}") from None
    return bytes(out)


def decode(data: bytes, names: Names | None = None) -> Any:
    """Returns the value. StateBytesError if the bytes are not those of one value."""
    try:
        value, end = _decode(data, 0, names.list if names is not None else [])
    except _UNREADABLE as error:
        raise StateBytesError(f"state is not readable: {error}") from None
    if end != len(data):
        raise StateBytesError(f"state has {len(data) - end} bytes after its end")
    return value


def _encode(value: Any, out: bytearray, names: Names | None, depth: int) -> None:
    kind = type(value)
    if kind is int:
        if 0 <= value < 128:
            out.append(_SMALL + value)
            return
        size = (value.bit_length() >> 3) + 1
        if size < 16:
            out.append(_INT + size)
        else:
            out.append(_LONG)
            _put_size(size, out)
        out += value.to_bytes(size, "little", signed=True)
    elif kind is str:
        data = value.encode("utf-8", "surrogatepass")
        if len(data) < 64:
            out.append(_SHORT_TEXT + len(data))
        else:
            out.append(_TEXT)
            _put_size(len(data), out)
        out += data
    elif value is None:
        out.append(_NONE)
    elif kind is float:
        out.append(_FLOAT)
        out += _DOUBLE.pack(value)
    elif kind is dict:
        _encode_dict(value, out, names, depth)
    elif kind is list or kind is tuple:
        _check_depth(depth)
        out.append(_LIST if kind is list else _TUPLE)
        _put_size(len(value), out)
        for each in value:
            _encode(each, out, names, depth + 1)
    elif kind is bool:
        out.append(_TRUE if value else _FALSE)
    elif kind is bytes:
        out.append(_BYTES)
        _put_size(len(value), out)
        out += value
    elif kind is datetime:
        _encode_datetime(value, out)
    else:
        _encode_rare(value, out, names, depth)


def _encode_dict(value: dict[Any, Any], out: bytearray, names: Names | None, depth: int) -> None:
    _check_depth(depth)
    is_record = names is not None and all(type(key) is str for key in value)
    out.append(_RECORD if is_record else _DICT)
    _put_size(len(value), out)
    if is_record:
        assert names is not None
        for key, each in value.items():
            number = names.number(key)
            out.append(number)
            if number == _INLINE:
                _encode(key, out, None, depth + 1)
            _encode(each, out, names, depth + 1)
    else:
        for key, each in value.items():
            _encode(key, out, names, depth + 1)
            _encode(each, out, names, depth + 1)


def _encode_datetime(value: datetime, out: bytearray) -> None:
    offset = value.utcoffset()
    if offset is None:
        out.append(_DATETIME)
    elif value.tzinfo is UTC or not offset:
        out.append(_DATETIME_UTC)
    else:
        out.append(_DATETIME_OFFSET)
        out += struct.pack("<i", int(offset.total_seconds()))
    plain = value.replace(tzinfo=None) - (offset or timedelta())
    out += _QUAD.pack((plain - _EPOCH) // _MICROSECOND)


def _encode_rare(value: Any, out: bytearray, names: Names | None, depth: int) -> None:
    kind = type(value)
    if kind is date:
        out.append(_DATE)
        out += struct.pack("<i", value.toordinal())
    elif kind is timedelta:
        out.append(_DURATION)
        out += _QUAD.pack(value // _MICROSECOND)
    elif kind is Decimal:
        out.append(_DECIMAL)
        data = str(value).encode()
        _put_size(len(data), out)
        out += data
    elif kind in (set, frozenset):
        _check_depth(depth)
        out.append(_SET)
        _put_size(len(value), out)
        # In the order of their bytes: equal sets are equal state.
        for data in sorted(encode(each) for each in value):
            out += data
    elif isinstance(value, bool):
        out.append(_TRUE if value else _FALSE)
    elif isinstance(value, (bytearray, memoryview)):
        _encode(bytes(value), out, names, depth)
    elif isinstance(value, (int, str, float)):  # subclasses, such as those of an Enum
        for base in (int, str, float):
            if isinstance(value, base):
                _encode(base(value), out, names, depth)
                return
    elif isinstance(value, Mapping):
        _encode(dict(value), out, names, depth)
    elif isinstance(value, (tuple, list)):
        _encode(list(value), out, names, depth)
    else:
        raise StateBytesError(
            f"{_short(value)} cannot be kept as state: {kind.__name__} is not None, bool, int, "
            "float, str, bytes, datetime, date, timedelta, Decimal, list, tuple, set or dict"
        )


def _check_depth(depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise StateBytesError(f"state is nested more than {_DEPTH_MAX} deep")


def _put_size(size: int, out: bytearray) -> None:
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)


def _size(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 128:
        return byte, at
    size, shift = byte & 127, 7
    while byte > 127:
        byte = data[at]
        at += 1
        size |= (byte & 127) << shift
        shift += 7
        if shift > 63:
            raise ValueError("a size is not readable")
    return size, at


def _cut(data: bytes, at: int, size: int) -> tuple[bytes, int]:
    end = at + size
    if end > len(data):
        raise ValueError("it ends too early")
    return data[at:end], end


def _decode(data: bytes, at: int, names: list[str]) -> tuple[Any, int]:
    tag = data[at]
    at += 1
    if tag >= _SHORT_TEXT:
        end = at + tag - _SHORT_TEXT
        if end > len(data):
            raise ValueError("it ends too early")
        return data[at:end].decode("utf-8", "surrogatepass"), end
    if tag >= _SMALL:
        return tag - _SMALL, at
    if tag > _INT:
        end = at + tag - _INT
        if end > len(data):
            raise ValueError("it ends too early")
        return int.from_bytes(data[at:end], "little", signed=True), end
    if tag == _FLOAT:
        return _DOUBLE.unpack_from(data, at)[0], at + 8
    if tag in (_RECORD, _DICT):
        return _decode_dict(data, at, names, is_record=tag == _RECORD)
    if tag in (_LIST, _TUPLE, _SET):
        count, at = _size(data, at)
        items: list[Any] = []
        for _ in range(count):
            item, at = _decode(data, at, names)
            items.append(item)
        return items if tag == _LIST else tuple(items) if tag == _TUPLE else set(items), at
    if tag <= _FALSE:
        return (None, True, False)[tag], at
    return _decode_rare(tag, data, at)


def _decode_dict(
    data: bytes, at: int, names: list[str], *, is_record: bool
) -> tuple[dict[Any, Any], int]:
    count, at = _size(data, at)
    found: dict[Any, Any] = {}
    for _ in range(count):
        if is_record and data[at] != _INLINE:
            key: Any = names[data[at]]
            at += 1
        else:
            key, at = _decode(data, at + 1 if is_record else at, names)
        found[key], at = _decode(data, at, names)
    return found, at


def _decode_rare(tag: int, data: bytes, at: int) -> tuple[Any, int]:
    if tag in (_TEXT, _BYTES, _DECIMAL, _LONG):
        size, at = _size(data, at)
        cut, at = _cut(data, at, size)
        if tag == _TEXT:
            return cut.decode("utf-8", "surrogatepass"), at
        if tag == _LONG:
            return int.from_bytes(cut, "little", signed=True), at
        return Decimal(cut.decode()) if tag == _DECIMAL else cut, at
    if tag == _DATE:
        return date.fromordinal(struct.unpack_from("<i", data, at)[0]), at + 4
    zone: timezone | None = UTC if tag == _DATETIME_UTC else None
    if tag == _DATETIME_OFFSET:
        zone = timezone(timedelta(seconds=struct.unpack_from("<i", data, at)[0]))
        at += 4
    elif tag not in (_DATETIME, _DATETIME_UTC, _DURATION):
        raise ValueError(f"unknown type {tag}")
    duration = timedelta(microseconds=_QUAD.unpack_from(data, at)[0])
    if tag == _DURATION:
        return duration, at + 8
    plain = _EPOCH + duration
    return plain if zone is None else plain.replace(tzinfo=UTC).astimezone(zone), at + 8


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


class Page:
    """The state of some keys, by the bytes of the key: each a value in bytes."""

    __slots__ = ("entries", "names", "version")

    def __init__(
        self,
        version: int,
        entries: dict[bytes, bytes] | None = None,
        names: Names | None = None,
    ) -> None:
        self.version = version
        self.entries = entries if entries is not None else {}
        self.names = names if names is not None else Names()

    def to_bytes(self) -> bytes:
        names = [name.encode() for name in self.names.list]
        count = len(self.entries)
        values = list(self.entries.values())
        return b"".join(
            [
                _HEADER.pack(_MAGIC, _FORMAT, self.version, count, len(names)),
                bytes(len(name) for name in names),
                *names,
                struct.pack(f"<{count}I", *map(len, self.entries)),
                struct.pack(f"<{count}I", *map(len, values)),
                *self.entries,
                *values,
            ]
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Page:
        """StateBytesError if it is not a page, or one of a later format."""
        try:
            magic, format_, version, count, named = _HEADER.unpack_from(data)
            if magic != _MAGIC:
                raise StateBytesError("state is not readable: it is not a page")
            if format_ != _FORMAT:
                raise StateBytesError(
                    f"state has format {format_}; this release reads format {_FORMAT}"
                )
            at = _HEADER.size + named
            names = []
            for size in data[_HEADER.size : at]:
                names.append(data[at : at + size].decode())
                at += size
            sizes = struct.unpack_from(f"<{2 * count}I", data, at)
        except (struct.error, UnicodeDecodeError) as error:
            raise StateBytesError(f"state is not readable: {error}") from None
        at += 8 * count
        ends = list(accumulate(sizes, initial=at))
        if ends[-1] != len(data):
            raise StateBytesError("state is not readable: a page has another length than it says")
        keys = [data[ends[i] : ends[i + 1]] for i in range(count)]
        values = [data[ends[i] : ends[i + 1]] for i in range(count, 2 * count)]
        return cls(version, dict(zip(keys, values, strict=True)), Names(names))

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        """Yields keys and their state, decoded."""
        for key, value in self.entries.items():
            yield decode(key), decode(value, self.names)

    def migrated(self, version: int, change: Callable[[Any], Any]) -> Page:
        """Returns a page of another version, each value of which is made from the one here."""
        page = Page(version)
        for key, value in self.entries.items():
            page.entries[key] = encode(change(decode(value, self.names)), page.names)
        return page
