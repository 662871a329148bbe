"""Shared by the writers of decoders and encoders: lines, constants, names that do not clash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

from headwater.protocol.schema import EMPTY, Field, Message, fields_of


class Source:
    """Python source in the making, and the constants it will see as globals."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self._lines: list[str] = []
        self._depth = 0
        self._numbers: dict[str, int] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def name(self, stem: str) -> str:
        """A name that nothing else in this source has."""
        number = self._numbers[stem] = self._numbers.get(stem, 0) + 1
        return f"{stem}{number}"

    def constant(self, stem: str, value: Any) -> str:
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.name(stem)
        self.names[name] = value
        return name

    def layout(self, method: str, codes: str) -> str:
        """The bound method of a struct with these codes, made once for each source."""
        name = f"{method}_{codes.replace('?', 'o')}"
        if name not in self.names:
            self.names[name] = getattr(Struct(">" + codes), method)
        return name

    def literal(self, value: Any) -> str:
        """A default as an expression."""
        if value is None or value is True or value is False or isinstance(value, int | str):
            return repr(value)
        return self.constant("default", value)

    def compile(self, function: str, title: str) -> Callable[..., Any]:
        code = compile("\n".join(self._lines), f"<{title}>", "exec")
        exec(code, self.names)
        made: Callable[..., Any] = self.names.pop(function)
        return made


def minimal_size(cls: type[Message], version: int, *, flexible: bool) -> int:
    """The least number of bytes a struct can take: it bounds how many of them a frame can hold."""
    size = 1 if flexible else 0
    for field in fields_of(cls):
        if field.exists_in(version) and field.tag is None:
            size += _minimal_field_size(field, version, flexible=flexible)
    return max(size, 1)


def element_minimal_size(field: Field, version: int, *, flexible: bool) -> int:
    """The least number of bytes one element of this array can take."""
    if field.struct is not None:
        return minimal_size(field.struct, version, flexible=flexible)
    assert field.wire is not None
    return field.wire.size or (1 if flexible else 2)


def _minimal_field_size(field: Field, version: int, *, flexible: bool) -> int:
    if field.is_array:
        return 1 if flexible else 4
    if field.struct is not None:
        if field.nullable_in(version):
            return 1
        return minimal_size(field.struct, version, flexible=flexible)
    assert field.wire is not None
    if field.wire.size:
        return field.wire.size
    if flexible and not field.never_compact:
        return 1
    return 2 if field.wire.kind == "string" else 4


def default_expression(source: Source, field: Field) -> str:
    """The value of a field that did not come over the wire, as an expression."""
    if field.default is EMPTY:
        return f"{source.constant('fresh', field.fresh_default)}()"
    if field.is_array and field.default is not None:
        return "[]"
    return source.literal(field.default)
