"""Writes the encoder of one message in one version: the twin of `decoding.py`.

Neighbouring fields of fixed size are packed by one `struct` call, with the length that follows
them; an empty tag section is one pad byte of that call.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NoReturn

from headwater.protocol.errors import EncodeError
from headwater.protocol.schema import EMPTY, Field, Message, empty, fields_of
from headwater.protocol.writing import Source

# Records up to this size are copied in between the other bytes: a part of their own costs more.
_INLINE_BYTES_MAX = 4096
_STRING_BYTES_MAX = 0x7FFF


def compile_encoder(
    cls: type[Message], version: int, *, parts: bool = False
) -> Callable[..., None]:
    flexible = cls.FLEXIBLE is not None and version >= cls.FLEXIBLE
    return _Writer(cls, version, flexible, parts).compile()


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_tags(
    out: bytearray, known: list[tuple[int, bytes | bytearray]], unknown: dict[int, bytes] | None
) -> None:
    """A tag section, in the order of the tags."""
    tags = known
    if unknown:
        tags = sorted([*known, *unknown.items()], key=lambda tag: tag[0])
    write_varint(out, len(tags))
    for number, value in tags:
        write_varint(out, number)
        write_varint(out, len(value))
        out += value


def _refuse_field(cls: str, field: str, version: int, value: object) -> NoReturn:
    raise EncodeError(f"{cls} v{version} has no field {field}, and it is set to {value!r}")


def _refuse_tags(cls: str, version: int) -> NoReturn:
    raise EncodeError(f"{cls} v{version} has no place for tagged fields, and some are set")


def _refuse_length(field: str, length: int) -> NoReturn:
    raise EncodeError(f"{field} has length {length}")


_HELPERS: dict[str, Any] = {
    "write_varint": write_varint,
    "write_tags": write_tags,
    "pack": struct.pack,
    "refuse_field": _refuse_field,
    "refuse_tags": _refuse_tags,
    "refuse_length": _refuse_length,
    "EncodeError": EncodeError,
    "Unfit": (struct.error, AttributeError, TypeError, UnicodeEncodeError),
    "IN_MEMORY": (bytes, bytearray, memoryview),
}


class _Writer:
    """Writes `def encode(m1, out)`; with parts, `def encode(m1, out, parts)`, in which `out` is
    what has gathered since the last records."""

    def __init__(self, cls: type[Message], version: int, flexible: bool, parts: bool) -> None:
        self._cls = cls
        self._version = version
        self._flexible = flexible
        self._parts = parts
        self._source = Source(dict(_HELPERS))
        self._out = "out"
        self._run: list[tuple[str, str]] = []  # code, expression

    def compile(self) -> Callable[..., None]:
        source = self._source
        target = source.name("m")
        parts = ", parts" if self._parts else ""
        with source.block(f"def encode({target}, out{parts}):"):
            with source.block("try:"):
                self._struct(self._cls, target)
                self._flush()
                source.line("parts.append(out)" if self._parts else "return")
            with source.block("except Unfit as error:"):
                title = f"{self._cls.__name__} v{self._version}"
                source.line(f"raise EncodeError(f'{title}: {{error}}') from error")
        return source.compile("encode", f"encode {self._cls.__name__} v{self._version}")

    # Runs of fixed fields.

    def _fixed(self, code: str, expression: str) -> None:
        self._run.append((code, expression))

    def _packed(self, run: list[tuple[str, str]]) -> None:
        if not run:
            return
        codes = "".join(code for code, _ in run)
        if codes == "x":
            self._source.line(f"{self._out}.append(0)")
        elif codes == "B":
            self._source.line(f"{self._out}.append({run[0][1]})")
        else:
            values = ", ".join(expression for code, expression in run if code != "x")
            self._source.line(f"{self._out} += {self._source.layout('pack', codes)}({values})")

    def _flush(self) -> None:
        run, self._run = self._run, []
        self._packed(run)

    def _varint(self, value: str, *, limit: int | None = None, title: str = "") -> None:
        """A varint that is packed with the run before it while it is a single byte."""
        run, self._run = self._run, []
        with self._source.block(f"if {value} < 128:"):
            self._packed([*run, ("B", value)])
        with self._source.block("else:"):
            if limit is not None:
                with self._source.block(f"if {value} > {limit}:"):
                    self._source.line(f"refuse_length({title!r}, {value} - 1)")
            self._packed(run)
            self._source.line(f"write_varint({self._out}, {value})")

    # Fields.

    def _struct(self, cls: type[Message], target: str) -> None:
        source = self._source
        tagged = []
        for field in fields_of(cls):
            if not field.exists_in(self._version):
                if not field.ignorable:
                    self._absent(field, target, cls)
            elif field.tag is not None:
                tagged.append(field)
            else:
                self._field(field, f"{target}.{field.name}", cls)
        if self._flexible:
            self._tags(tagged, target, cls)
            return
        with source.block(f"if {target}.unknown_tags:"):
            source.line(f"refuse_tags({cls.__name__!r}, {self._version})")

    def _absent(self, field: Field, target: str, cls: type[Message]) -> None:
        value = f"{target}.{field.name}"
        with self._source.block(f"if {self._differs(field, value)}:"):
            self._source.line(
                f"refuse_field({cls.__name__!r}, {field.name!r}, {self._version}, {value})"
            )

    def _differs(self, field: Field, value: str) -> str:
        default = field.default
        if field.never_null:
            assert field.struct is not None
            unset = self._source.constant("empty", empty(field.struct))
            return f"{value} is not None and {value} != {unset}"
        if default is None:
            return f"{value} is not None"
        if default is EMPTY:
            assert field.struct is not None
            return f"{value} != {self._source.constant('empty', empty(field.struct))}"
        if field.is_array:
            return value if field.nullable is None else f"{value} != []"
        if isinstance(default, bool):
            return f"{value}" if not default else f"not {value}"
        return f"{value} != {self._source.literal(default)}"

    def _field(self, field: Field, value: str, owner: type[Message]) -> None:
        title = f"{owner.__name__}.{field.name}"
        if field.is_array:
            self._array(field, value, title)
        elif field.struct is not None:
            self._nested(field, value)
        elif field.wire is not None and field.wire.size:
            if field.wire.kind == "uuid":
                with self._source.block(f"if len({value}) != 16:"):
                    self._source.line(f"refuse_length({title!r}, len({value}))")
            self._fixed(field.wire.code, value)
        else:
            compact = self._flexible and not field.never_compact
            self._sized(field, value, title, compact=compact)

    def _nested(self, field: Field, value: str) -> None:
        assert field.struct is not None
        source = self._source
        part = source.name("m")
        source.line(f"{part} = {value}")
        if not field.nullable_in(self._version):
            self._struct(field.struct, part)
            return
        run, self._run = self._run, []
        # Java has two ways to write a null struct: -1 among the fields, and 0 in a tag.
        null = "255" if field.tag is None else "0"
        with source.block(f"if {part} is None:"):
            self._packed([*run, ("B", null)])
        with source.block("else:"):
            self._run = [*run, ("B", "1")]
            self._struct(field.struct, part)
            self._flush()

    def _length(self, field: Field, local: str, code: str, title: str, *, compact: bool) -> None:
        """Writes the length of a local; null has a length of its own."""
        source = self._source
        length = source.name("n")
        counted = f"len({local}) + 1" if compact else f"len({local})"
        if field.nullable_in(self._version):
            counted = f"{0 if compact else -1} if {local} is None else {counted}"
        source.line(f"{length} = {counted}")
        if compact:
            string = field.wire is not None and field.wire.kind == "string" and not field.is_array
            limit = _STRING_BYTES_MAX + 1 if string else None
            self._varint(length, limit=limit, title=title)
        else:
            self._fixed(code, length)
            self._flush()

    def _sized(self, field: Field, value: str, title: str, *, compact: bool) -> None:
        assert field.wire is not None
        source = self._source
        kind = field.wire.kind
        local = source.name("v")
        may_be_null = field.nullable_in(self._version)
        if kind != "string":
            source.line(f"{local} = {value}")
        elif may_be_null:
            source.line(f"{local} = {value}")
            with source.block(f"if {local} is not None:"):
                source.line(f"{local} = {local}.encode()")
        else:
            source.line(f"{local} = {value}.encode()")
        self._length(field, local, "h" if kind == "string" else "i", title, compact=compact)
        if kind == "records" and self._parts:
            self._records(local)
        elif may_be_null:
            with source.block(f"if {local}:"):
                source.line(f"{self._out} += {local}")
        else:
            source.line(f"{self._out} += {local}")

    def _records(self, local: str) -> None:
        source = self._source
        small = f"len({local}) <= {_INLINE_BYTES_MAX} and isinstance({local}, IN_MEMORY)"
        with source.block(f"if {local} is None or len({local}) == 0:"):
            source.line("pass")
        with source.block(f"elif {small}:"):
            source.line(f"{self._out} += {local}")
        with source.block("else:"):
            source.line(f"parts += ({self._out}, {local})")
            source.line(f"{self._out} = bytearray()")

    def _array(self, field: Field, value: str, title: str) -> None:
        source = self._source
        local = source.name("v")
        source.line(f"{local} = {value}")
        self._length(field, local, "i", title, compact=self._flexible)
        with source.block(f"if {local}:"):
            wire = field.wire
            if wire is not None and wire.size and wire.kind != "uuid":
                layout = f"f'>{{len({local})}}{wire.code}'"
                source.line(f"{self._out} += pack({layout}, *{local})")
                return
            element = source.name("m")
            with source.block(f"for {element} in {local}:"):
                if field.struct is not None:
                    self._struct(field.struct, element)
                elif wire is not None and wire.kind == "uuid":
                    with source.block(f"if len({element}) != 16:"):
                        source.line(f"refuse_length({title!r}, len({element}))")
                    source.line(f"{self._out} += {element}")
                else:
                    plain = Field(field.name, str, "", required=False)
                    self._sized(plain, element, title, compact=self._flexible)
                self._flush()

    def _tags(self, tagged: list[Field], target: str, cls: type[Message]) -> None:
        source = self._source
        plain = " and ".join(
            [
                f"not {target}.unknown_tags",
                *(f"not ({self._differs(f, f'{target}.{f.name}')})" for f in tagged),
            ]
        )
        run, self._run = self._run, []
        with source.block(f"if {plain}:"):
            self._packed([*run, ("x", "")])
        with source.block("else:"):
            self._packed(run)
            if not tagged:
                source.line(f"write_tags({self._out}, [], {target}.unknown_tags)")
                return
            known = source.name("tags")
            source.line(f"{known} = []")
            outer = self._out
            for field in sorted(tagged, key=lambda field: field.tag or 0):
                value = f"{target}.{field.name}"
                self._out = source.name("tagged")
                with source.block(f"if {self._differs(field, value)}:"):
                    source.line(f"{self._out} = bytearray()")
                    self._field(field, value, cls)
                    self._flush()
                    source.line(f"{known}.append(({field.tag}, {self._out}))")
            self._out = outer
            source.line(f"write_tags({self._out}, {known}, {target}.unknown_tags)")
