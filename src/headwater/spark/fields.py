"""Parses lists of fields in Spark's notation, such as "id bigint, tags array<string>".

Spark has a parser for them, but only in a running JVM, and its errors are about text that we made
out of the user's. This one finds typing errors before Spark is started and quotes what was written.
Pipelines still have Spark parse what passes; streams take the types from here.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any

# The types, and their names in Spark's JSON.
_SIMPLE = {
    "bigint": "long",
    "binary": "binary",
    "boolean": "boolean",
    "byte": "byte",
    "date": "date",
    "double": "double",
    "float": "float",
    "int": "integer",
    "integer": "integer",
    "interval": "interval",
    "long": "long",
    "real": "float",
    "short": "short",
    "smallint": "short",
    "string": "string",
    "timestamp": "timestamp",
    "timestamp_ltz": "timestamp",
    "timestamp_ntz": "timestamp_ntz",
    "tinyint": "byte",
    "variant": "variant",
    "void": "void",
}
_WITH_NUMBERS = {
    "char": "char",
    "character": "char",
    "dec": "decimal",
    "decimal": "decimal",
    "numeric": "decimal",
    "time": "time",
    "varchar": "varchar",
}
_NUMBERS = {"char": "(1)", "decimal": "(10,0)", "time": "(6)", "varchar": "(1)"}
_NESTED = ("array", "map", "struct")
_TOKEN = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<word>\w+)|(?P<sign>.))",
    re.DOTALL,
)
_END = ""


class FieldsError(ValueError):
    """A list of fields is not understood: which part, and what is expected."""


def field_names(text: str) -> list[str]:
    """Returns the names of the fields. FieldsError says what is wrong."""
    return [field["name"] for field in _Parser(text).parse()]


def json_of_fields(text: str) -> dict[str, Any]:
    """Returns the fields as a struct in JSON, which `StructType.fromJson` takes."""
    return _struct(_Parser(text).parse())


def _struct(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "struct", "fields": fields}


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [
            found["quoted"] or found["text"] or found["word"] or found["sign"]
            for found in _TOKEN.finditer(text.strip())
        ]
        self._at = 0

    def parse(self) -> list[dict[str, Any]]:
        fields = self._fields()
        if self._next != _END:
            raise FieldsError(f"expected a comma or the end, found {self._next!r}")
        return fields

    @property
    def _next(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def _take(self) -> str:
        token = self._next
        self._at += 1
        return token

    def _takes(self, *words: str) -> bool:
        """Takes the words if they come next, whatever their case."""
        coming = [each.lower() for each in self._tokens[self._at : self._at + len(words)]]
        if coming != list(words):
            return False
        self._at += len(words)
        return True

    def _fields(self) -> list[dict[str, Any]]:
        fields = [self._field()]
        while self._takes(","):
            fields.append(self._field())
        return fields

    def _field(self) -> dict[str, Any]:
        name = self._take()
        if not name.startswith("`") and not re.fullmatch(r"\w+", name):
            raise FieldsError(
                f"expected a field such as 'id string', found {name!r}"
                if name
                else "expected a field such as 'id string'"
            )
        bare = name.strip("`").replace("``", "`")
        self._takes(":")
        if self._next in (_END, ",", ">"):
            raise FieldsError(f"field {bare} has no type: write '{bare} string', for example")
        type_ = self._type(bare)
        nullable = not self._takes("not", "null")
        if self._takes("comment"):
            self._take()
        return {"name": bare, "type": type_, "nullable": nullable, "metadata": {}}

    def _type(self, field: str) -> Any:
        word = self._take()
        kind = word.lower()
        if kind in _NESTED:
            return self._nested(field, word)
        if kind == "interval":
            units = [kind]
            while re.fullmatch(r"(year|month|day|hour|minute|second|to)s?", self._next.lower()):
                units.append(self._take().lower())
            return " ".join(units)
        if kind in _WITH_NUMBERS:
            name = _WITH_NUMBERS[kind]
            numbers = []
            if self._takes("("):
                while re.fullmatch(r"\d+|,|-", self._next):
                    numbers.append(self._take())
                self._expect(")", field, word)
            if name == "decimal" and len(numbers) == 1:
                numbers += [",", "0"]
            return f"{name}({''.join(numbers)})" if numbers else name + _NUMBERS[name]
        if kind in _SIMPLE:
            if kind == "string" and self._takes("collate"):
                self._take()
            if kind == "timestamp":
                if self._takes("without", "time", "zone"):
                    return "timestamp_ntz"
                self._takes("with", "time", "zone")
            return _SIMPLE[kind]
        near = get_close_matches(kind, (*_SIMPLE, *_WITH_NUMBERS, *_NESTED), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise FieldsError(f"field {field}: {word!r} is not a type of Spark{hint}")

    def _nested(self, field: str, word: str) -> dict[str, Any]:
        kind = word.lower()
        self._expect("<", field, word)
        found: dict[str, Any]
        if kind == "struct":
            found = _struct(self._fields() if self._next != ">" else [])
        elif kind == "array":
            found = {"type": kind, "elementType": self._type(field), "containsNull": True}
        else:
            key = self._type(field)
            self._expect(",", field, word)
            value = self._type(field)
            found = {"type": kind, "keyType": key, "valueType": value, "valueContainsNull": True}
        self._expect(">", field, word)
        return found

    def _expect(self, sign: str, field: str, kind: str) -> None:
        if self._next != sign:
            found = repr(self._next) if self._next else "the end"
            raise FieldsError(f"field {field}: expected {sign!r} in {kind}, found {found}")
        self._take()
