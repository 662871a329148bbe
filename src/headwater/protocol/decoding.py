"""Writes the decoder of one message in one version.

What makes it quick: neighbouring fields of fixed size are read by one `struct` call, together with
the length that follows them; a varint of one byte, as nearly all are, costs one comparison; parts
are decoded in place, without a call for each; a message without tagged fields pays one test.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from headwater.protocol.errors import DecodeError
from headwater.protocol.schema import Field, Message, fields_of
from headwater.protocol.writing import (
    Source,
    default_expression,
    element_minimal_size,
)

_STRING_BYTES_MAX = 0x7FFF


def compile_decoder(
    cls: type[Message], version: int
) -> Callable[[bytes | bytearray | memoryview, int], tuple[Any, int]]:
    flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
    return _Writer(cls, version, flexible).compile()


def read_varint(data: bytes | memoryview, position: int, value: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte had its high bit set."""
    value &= 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise DecodeError("varint has more than 5 bytes")
    if value > 0xFFFFFFFF:
        raise DecodeError("varint does not fit 32 bits")
    return value, position


def read_unknown_tags(
    data: bytes | memoryview, position: int, count: int
) -> tuple[dict[int, bytes] | None, int]:
    """The tagged fields of a struct that knows none."""
    if count > 127:
        count, position = read_varint(data, position, count)
    limit = len(data)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        number = data[position]
        position += 1
        if number > 127:
            number, position = read_varint(data, position, number)
        size = data[position]
        position += 1
        if size > 127:
            size, position = read_varint(data, position, size)
        end = position + size
        if end > limit:
            raise DecodeError(f"tag {number} of {size} bytes, {limit - position} left")
        tags[number] = bytes(data[position:end])
        position = end
    return tags or None, position


def _refuse_null(field: str) -> NoReturn:
    raise DecodeError(f"{field} must not be null")


def _refuse_length(field: str, length: int) -> NoReturn:
    raise DecodeError(f"{field} has length {length}, more than is left or allowed")


def _refuse_tag(field: str) -> NoReturn:
    raise DecodeError(f"tagged field {field} does not fill its size")


_HELPERS: dict[str, Any] = {
    "read_varint": read_varint,
    "read_unknown_tags": read_unknown_tags,
    "unpack_from": struct.unpack_from,
    "refuse_null": _refuse_null,
    "refuse_length": _refuse_length,
    "refuse_tag": _refuse_tag,
    "DecodeError": DecodeError,
    "Malformed": (struct.error, IndexError, UnicodeDecodeError),
}


class _Writer:
    """Writes `def decode(data, pos)`. `pos` always stands behind what has been read, except for a
    run of fixed fields that are still to be read by one call."""

    def __init__(self, cls: type[Message], version: int, flexible: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._source = Source(dict(_HELPERS))
        self._run: list[tuple[str, int, str]] = []  # code, size, target
        self._keeps_views = _has_records(cls)

    def compile(self) -> Callable[..., Any]:
        source = self._source
        with source.block("def decode(data, pos):"):
            with source.block("try:"):
                if self._keeps_views:
                    # Records stay views into the frame.
                    with source.block("if type(data) is not memoryview:"):
                        source.line("data = memoryview(data)")
                else:
                    # Reading bytes is quicker than reading a view, by more than the copy costs.
                    with source.block("if type(data) is not bytes:"):
                        source.line("data = bytes(data)")
                source.line("limit = len(data)")
                target = source.name("m")
                self._struct(self._cls, target)
                source.line(f"return {target}, pos")
            with source.block("except Malformed as error:"):
                title = f"{self._cls.__name__} v{self._version}"
                source.line(f"raise DecodeError(f'{title}: {{error}}') from None")
        return source.compile("decode", f"decode {self._cls.__name__} v{self._version}")

    # Runs of fixed fields.

    def _fixed(self, code: str, size: int, target: str) -> None:
        self._run.append((code, size, target))

    def _flush(self) -> None:
        run, self._run = self._run, []
        if not run:
            return
        codes = "".join(code for code, _, _ in run)
        if codes == "B":
            self._source.line(f"{run[0][2]} = data[pos]")
        else:
            targets = "".join(f"{target}, " for _, _, target in run)
            unpack = self._source.layout("unpack_from", codes)
            self._source.line(f"{targets}= {unpack}(data, pos)")
        self._source.line(f"pos += {sum(size for _, size, _ in run)}")

    def _varint(self, target: str) -> None:
        """A varint whose first byte is read together with the run before it."""
        self._fixed("B", 1, target)
        self._flush()
        with self._source.block(f"if {target} > 127:"):
            self._source.line(f"{target}, pos = read_varint(data, pos, {target})")

    # Fields.

    def _struct(self, cls: type[Message], target: str) -> None:
        source = self._source
        version = self._version
        made = source.constant("Struct", cls)
        source.line(f"{target} = {source.constant('new', cls.__new__)}({made})")
        tagged = []
        absent: dict[str, list[str]] = {}
        for field in fields_of(cls):
            if not field.exists_in(version) or field.tag is not None:
                value = default_expression(source, field)
                if value[-1] in ")]":  # each its own
                    source.line(f"{target}.{field.name} = {value}")
                else:
                    absent.setdefault(value, []).append(field.name)
                if field.exists_in(version):
                    tagged.append(field)
        if not self._flexible:
            absent.setdefault("None", []).append("unknown_tags")
        for value, names in absent.items():
            source.line(" = ".join([*(f"{target}.{name}" for name in names), value]))
        for field in fields_of(cls):
            if field.exists_in(version) and field.tag is None:
                self._field(field, f"{target}.{field.name}", cls)
        if self._flexible:
            self._tags(tagged, target, cls)
        self._flush()

    def _field(self, field: Field, target: str, owner: type[Message]) -> None:
        title = f"{owner.__name__}.{field.name}"
        if field.is_array:
            self._array(field, target, title)
        elif field.struct is not None:
            self._nested(field, target, title)
        elif field.wire is not None and field.wire.size:
            self._fixed(field.wire.code, field.wire.size, target)
        else:
            compact = self._flexible and not field.never_compact
            self._sized(field, target, title, compact=compact)

    def _nested(self, field: Field, target: str, title: str) -> None:
        assert field.struct is not None
        part = self._source.name("m")
        if not field.nullable_in(self._version):
            self._struct(field.struct, part)
            self._source.line(f"{target} = {part}")
            return
        here = self._source.name("n")
        self._fixed("b", 1, here)
        self._flush()
        is_null = f"{here} < 0" if field.tag is None else f"{here} <= 0"
        with self._source.block(f"if {is_null}:"):
            self._source.line(f"{target} = None")
        with self._source.block("else:"):
            self._struct(field.struct, part)
            self._source.line(f"{target} = {part}")

    def _length(self, code: str, *, compact: bool) -> tuple[str, str, str]:
        """Reads a length; returns its name, the test for null, and the expression of the length."""
        length = self._source.name("n")
        if compact:
            self._varint(length)
            return length, f"{length} == 0", f"{length} - 1"
        self._fixed(code, struct.calcsize(">" + code), length)
        self._flush()
        return length, f"{length} < 0", length

    def _null(self, field: Field, target: str, title: str, test: str) -> None:
        with self._source.block(f"if {test}:"):
            if field.nullable_in(self._version):
                self._source.line(f"{target} = None")
            else:
                self._source.line(f"refuse_null({title!r})")

    def _sized(self, field: Field, target: str, title: str, *, compact: bool) -> None:
        """A string, bytes or records: a length, then that many bytes."""
        assert field.wire is not None
        source = self._source
        kind = field.wire.kind
        length, null, count = self._length("h" if kind == "string" else "i", compact=compact)
        self._null(field, target, title, null)
        with source.block("else:"):
            source.line(f"end = pos + {count}")
            too_long = "end > limit"
            if kind == "string" and compact:
                too_long += f" or {length} > {_STRING_BYTES_MAX + 1}"
            with source.block(f"if {too_long}:"):
                source.line(f"refuse_length({title!r}, {count})")
            source.line(f"{target} = {self._slice(kind)}")
            source.line("pos = end")

    def _slice(self, kind: str) -> str:
        if kind == "records":
            return "data[pos:end]"
        plain = "data[pos:end].tobytes()" if self._keeps_views else "data[pos:end]"
        # Bytes that are no UTF-8 are replaced, as Java does: the name is then unknown or invalid.
        return f'{plain}.decode("utf-8", "replace")' if kind == "string" else plain

    def _array(self, field: Field, target: str, title: str) -> None:
        source = self._source
        length, null, count = self._length("i", compact=self._flexible)
        self._null(field, target, title, null)
        with source.block("else:"):
            if count != length:
                source.line(f"{length} -= 1")
            least = element_minimal_size(field, self._version, flexible=self._flexible)
            size = length if least == 1 else f"{length} * {least}"
            with source.block(f"if {size} > limit - pos:"):
                source.line(f"refuse_length({title!r}, {length})")
            wire = field.wire
            if wire is not None and wire.kind == "uuid":
                one = "data[at:at + 16]"
                one = f"{one}.tobytes()" if self._keeps_views else one
                source.line(f"end = pos + {length} * 16")
                source.line(f"{target} = [{one} for at in range(pos, end, 16)]")
                source.line("pos = end")
            elif wire is not None and wire.size:
                layout = f"f'>{{{length}}}{wire.code}'"
                source.line(f"{target} = list(unpack_from({layout}, data, pos))")
                source.line(f"pos += {size}")
            else:
                self._elements(field, target, title, length)

    def _elements(self, field: Field, target: str, title: str, length: str) -> None:
        source = self._source
        source.line(f"{target} = items = []")
        items = source.name("append")
        source.line(f"{items} = items.append")
        with source.block(f"for _ in range({length}):"):
            element = source.name("m")
            if field.struct is not None:
                self._struct(field.struct, element)
            else:
                # Elements of an array are never null.
                plain = Field(field.name, str, "", required=False)
                self._sized(plain, element, title, compact=self._flexible)
            source.line(f"{items}({element})")

    def _tags(self, tagged: list[Field], target: str, cls: type[Message]) -> None:
        source = self._source
        count = source.name("n")
        self._fixed("B", 1, count)
        self._flush()
        with source.block(f"if {count} == 0:"):
            source.line(f"{target}.unknown_tags = None")
        with source.block("else:"):
            if not tagged:
                source.line(f"{target}.unknown_tags, pos = read_unknown_tags(data, pos, {count})")
                return
            self._known_tags(tagged, target, count, cls)

    def _known_tags(self, tagged: list[Field], target: str, count: str, cls: type[Message]) -> None:
        source = self._source
        number, size, stop, unknown = (source.name(stem) for stem in ("tag", "size", "stop", "u"))
        with source.block(f"if {count} > 127:"):
            source.line(f"{count}, pos = read_varint(data, pos, {count})")
        source.line(f"{unknown} = {{}}")
        with source.block(f"for _ in range({count}):"):
            self._varint(number)
            self._varint(size)
            source.line(f"{stop} = pos + {size}")
            with source.block(f"if {stop} > limit:"):
                source.line(f"refuse_length({cls.__name__ + ' tag'!r}, {size})")
            keyword = "if"
            for field in tagged:
                with source.block(f"{keyword} {number} == {field.tag}:"):
                    self._field(field, f"{target}.{field.name}", cls)
                    self._flush()
                    with source.block(f"if pos != {stop}:"):
                        source.line(f"refuse_tag({cls.__name__ + '.' + field.name!r})")
                keyword = "elif"
            with source.block("else:"):
                source.line(f"{unknown}[{number}] = bytes(data[pos:{stop}])")
                source.line(f"pos = {stop}")
        source.line(f"{target}.unknown_tags = {unknown} or None")


def _has_records(cls: type[Message]) -> bool:
    return any(
        (field.wire is not None and field.wire.kind == "records")
        or (field.struct is not None and _has_records(field.struct))
        for field in fields_of(cls)
    )
