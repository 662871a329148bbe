"""Metrics in OpenTelemetry's format, as clients push them (KIP-714): protobuf, written and read.

Only what Kafka's clients use: gauges and sums of numbers, with text attributes. What else a payload
has (histograms, exemplars, scopes, schemas) is checked as far as its framing goes and skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from headwater.protocol.errors import DecodeError

_NAME_BYTES_MAX = 512
_VALUE_BYTES_MAX = 4096
_ATTRIBUTES_MAX = 64  # of one resource or point

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_GAUGE, _SUM = 5, 7  # fields of Metric
_OTHER_KINDS = frozenset({9, 10, 11})  # histogram, exponential histogram, summary
_DELTA, _CUMULATIVE = 1, 2

_FIXED = Struct("<Q")
_DOUBLE = Struct("<d")
_SIGNED = Struct("<q")

Attributes = tuple[tuple[str, str], ...]


class Point(NamedTuple):
    """One number of one metric."""

    name: str
    attributes: Attributes
    value: int | float
    is_sum: bool = False  # else a gauge
    is_delta: bool = False  # what a sum has grown by since the last point
    is_monotonic: bool = False
    start_ns: int = 0
    time_ns: int = 0


class Payload(NamedTuple):
    points: list[Point]
    skipped: int  # points beyond the bound, and metrics of kinds that are not read


# Reading


def decode_metrics(data: bytes, *, points_max: int) -> Payload:
    """Reads a `MetricsData`. Raises DecodeError for what is not one."""
    reader = _Reader(points_max)
    try:
        for field, wire, value in _fields(data, 0, len(data)):
            if field == 1:
                reader.resource_metrics(data, *_span(wire, value))
    except (IndexError, StructError, UnicodeDecodeError) as error:
        raise DecodeError(f"metrics: {error}") from None
    return Payload(reader.points, reader.skipped)


class _Reader:
    def __init__(self, points_max: int) -> None:
        self.points: list[Point] = []
        self.skipped = 0
        self._points_max = points_max

    def resource_metrics(self, data: bytes, start: int, end: int) -> None:
        attributes: dict[str, str] = {}
        scopes: list[tuple[int, int]] = []
        for field, wire, value in _fields(data, start, end):
            if field == 1:
                for inner, its_wire, its_value in _fields(data, *_span(wire, value)):
                    if inner == 1:
                        _attribute(data, *_span(its_wire, its_value), attributes)
            elif field == 2:
                scopes.append(_span(wire, value))
        for scope in scopes:
            for field, wire, value in _fields(data, *scope):
                if field == 2:
                    self._metric(data, *_span(wire, value), attributes)

    def _metric(self, data: bytes, start: int, end: int, shared: dict[str, str]) -> None:
        name = ""
        body: tuple[int, int] | None = None
        is_sum = False
        for field, wire, value in _fields(data, start, end):
            if field == 1:
                name = _text(data, *_span(wire, value), _NAME_BYTES_MAX)
            elif field in (_GAUGE, _SUM):
                body = _span(wire, value)
                is_sum = field == _SUM
            elif field in _OTHER_KINDS:
                self.skipped += 1
        if body is None:
            return
        if not name:
            raise DecodeError("a metric without a name")
        spans: list[tuple[int, int]] = []
        temporality = 0
        is_monotonic = False
        for field, wire, value in _fields(data, *body):
            if field == 1:
                spans.append(_span(wire, value))
            elif field == 2 and is_sum:
                temporality = _number(wire, value)
            elif field == 3 and is_sum:
                is_monotonic = bool(_number(wire, value))
        for span in spans:
            if len(self.points) >= self._points_max:
                self.skipped += 1
                continue
            point = _point(data, *span, name, shared)
            if point is None:
                self.skipped += 1  # without a value
            elif is_sum:
                self.points.append(
                    point._replace(
                        is_sum=True, is_delta=temporality == _DELTA, is_monotonic=is_monotonic
                    )
                )
            else:
                self.points.append(point)


def _point(data: bytes, start: int, end: int, name: str, shared: dict[str, str]) -> Point | None:
    attributes = dict(shared)
    number: int | float | None = None
    start_ns = time_ns = 0
    for field, wire, value in _fields(data, start, end):
        if field == 7:
            _attribute(data, *_span(wire, value), attributes)
        elif field == 4 and wire == _FIXED64:
            (number,) = _DOUBLE.unpack_from(data, _number(wire, value))
        elif field == 6 and wire == _FIXED64:
            (number,) = _SIGNED.unpack_from(data, _number(wire, value))
        elif field == 2 and wire == _FIXED64:
            (start_ns,) = _FIXED.unpack_from(data, _number(wire, value))
        elif field == 3 and wire == _FIXED64:
            (time_ns,) = _FIXED.unpack_from(data, _number(wire, value))
    if number is None:
        return None
    return Point(name, tuple(attributes.items()), number, start_ns=start_ns, time_ns=time_ns)


def _attribute(data: bytes, start: int, end: int, into: dict[str, str]) -> None:
    key, text = "", None
    for field, wire, value in _fields(data, start, end):
        if field == 1:
            key = _text(data, *_span(wire, value), _NAME_BYTES_MAX)
        elif field == 2:
            text = _any_value(data, *_span(wire, value))
    if not key or text is None:
        return
    if key not in into and len(into) >= _ATTRIBUTES_MAX:
        raise DecodeError(f"more than {_ATTRIBUTES_MAX} attributes")
    into[key] = text


def _any_value(data: bytes, start: int, end: int) -> str | None:
    """Returns a text, a bool or a number as text; None for lists and the like."""
    found: str | None = None
    for field, wire, value in _fields(data, start, end):
        if field == 1:
            found = _text(data, *_span(wire, value), _VALUE_BYTES_MAX)
        elif field == 2:
            found = "true" if _number(wire, value) else "false"
        elif field == 3:
            number = _number(wire, value)
            found = str(number - (1 << 64) if number >> 63 else number)
        elif field == 4 and wire == _FIXED64:
            found = str(_DOUBLE.unpack_from(data, _number(wire, value))[0])
    return found


def _text(data: bytes, start: int, end: int, bytes_max: int) -> str:
    if end - start > bytes_max:
        raise DecodeError(f"a text of {end - start} bytes, at most {bytes_max}")
    return data[start:end].decode()


def _span(wire: int, value: int | tuple[int, int]) -> tuple[int, int]:
    if not isinstance(value, tuple):
        raise DecodeError(f"wire type {wire} where bytes were expected")
    return value


def _number(wire: int, value: int | tuple[int, int]) -> int:
    if isinstance(value, tuple):
        raise DecodeError(f"wire type {wire} where a number was expected")
    return value


def _fields(
    data: bytes, position: int, end: int
) -> Iterator[tuple[int, int, int | tuple[int, int]]]:
    """Yields the fields of a message: number, wire type and value. The value of bytes is where they
    are; that of a fixed number is its position."""
    while position < end:
        key = data[position]
        position += 1
        if key > 127:
            key, position = _varint(data, position - 1, end)
        field, wire = key >> 3, key & 7
        if not field:
            raise DecodeError("field number 0")
        if wire == _BYTES:
            size = data[position]
            position += 1
            if size > 127:
                size, position = _varint(data, position - 1, end)
            if size > end - position:
                raise DecodeError(f"{size} bytes, {end - position} left")
            yield field, wire, (position, position + size)
            position += size
        elif wire == _VARINT:
            value, position = _varint(data, position, end)
            yield field, wire, value
        elif wire in (_FIXED64, _FIXED32):
            size = 8 if wire == _FIXED64 else 4
            if size > end - position:
                raise DecodeError(f"{size} bytes, {end - position} left")
            yield field, wire, position
            position += size
        else:
            raise DecodeError(f"wire type {wire}")
    if position != end:
        raise DecodeError("a message does not fill its size")


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    number = 0
    for shift in range(0, 70, 7):
        if position >= end:
            raise DecodeError("a number is cut short")
        byte = data[position]
        position += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number & 0xFFFF_FFFF_FFFF_FFFF, position
    raise DecodeError("a number of more than ten bytes")


# Writing


def encode_metrics(resource: Mapping[str, str], points: Iterable[Point]) -> bytes:
    """Returns the points as a `MetricsData` of one resource."""
    scope = bytearray()
    for point in points:
        _write_bytes(scope, 2, _metric(point))
    written = bytearray()
    for key, value in resource.items():
        _write_bytes(written, 1, _key_value(key, value))
    body = bytearray()
    _write_bytes(body, 1, written)
    _write_bytes(body, 2, scope)
    out = bytearray()
    _write_bytes(out, 1, body)
    return bytes(out)


def _metric(point: Point) -> bytearray:
    number = bytearray()
    if point.start_ns:
        number += b"\x11" + _FIXED.pack(point.start_ns)
    number += b"\x19" + _FIXED.pack(point.time_ns)
    if isinstance(point.value, int):
        number += b"\x31" + _SIGNED.pack(point.value)
    else:
        number += b"\x21" + _DOUBLE.pack(point.value)
    for key, value in point.attributes:
        _write_bytes(number, 7, _key_value(key, value))
    body = bytearray()
    _write_bytes(body, 1, number)
    if point.is_sum:
        body += bytes((0x10, _DELTA if point.is_delta else _CUMULATIVE))
        if point.is_monotonic:
            body += b"\x18\x01"
    out = bytearray()
    _write_bytes(out, 1, point.name.encode())
    _write_bytes(out, _SUM if point.is_sum else _GAUGE, body)
    return out


def _key_value(key: str, value: str) -> bytearray:
    text = bytearray()
    _write_bytes(text, 1, value.encode())
    out = bytearray()
    _write_bytes(out, 1, key.encode())
    _write_bytes(out, 2, text)
    return out


def _write_bytes(out: bytearray, field: int, value: bytes | bytearray) -> None:
    out.append(field << 3 | _BYTES)
    size = len(value)
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    out += value
