"""Checks lists of fields in Spark's notation, such as "id bigint, tags array<string>".

Spark has a parser for them, but only in a running JVM, and its errors are about text that we made
out of the user's. This one finds typing errors before Spark is started and quotes what was written;
what passes is still parsed by Spark.
"""

from __future__ import annotations

import re
from difflib import get_close_matches

_SIMPLE = (
    "bigint",
    "binary",
    "boolean",
    "byte",
    "date",
    "double",
    "float",
    "int",
    "integer",
    "interval",
    "long",
    "real",
    "short",
    "smallint",
    "string",
    "timestamp",
    "timestamp_ltz",
    "timestamp_ntz",
    "tinyint",
    "variant",
    "void",
)
_WITH_NUMBERS = ("char", "character", "dec", "decimal", "numeric", "time", "varchar")
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
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = [
            found["quoted"] or found["text"] or found["word"] or found["sign"]
            for found in _TOKEN.finditer(text.strip())
        ]
        self._at = 0

    def parse(self) -> list[str]:
        names = self._fields()
        if self._next != _END:
            raise FieldsError(f"expected a comma or the end, found {self._next!r}")
        return names

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

    def _fields(self) -> list[str]:
        names = [self._field()]
        while self._takes(","):
            names.append(self._field())
        return names

    def _field(self) -> str:
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
        self._type(bare)
        self._takes("not", "null")
        if self._takes("comment"):
            self._take()
        return bare

    def _type(self, field: str) -> None:
        word = self._take()
        kind = word.lower()
        if kind in _NESTED:
            self._expect("<", field, word)
            if kind == "struct":
                if self._next != ">":
                    self._fields()
            else:
                self._type(field)
                if kind == "map":
                    self._expect(",", field, word)
                    self._type(field)
            self._expect(">", field, word)
        elif kind == "interval":
            while re.fullmatch(r"(year|month|day|hour|minute|second|to)s?", self._next.lower()):
                self._take()
        elif kind in _WITH_NUMBERS:
            if self._takes("("):
                while re.fullmatch(r"\d+|,|-", self._next):
                    self._take()
                self._expect(")", field, word)
        elif kind in _SIMPLE:
            if kind == "string" and self._takes("collate"):
                self._take()
            if kind == "timestamp":
                _ = self._takes("without", "time", "zone") or self._takes("with", "time", "zone")
        else:
            near = get_close_matches(kind, (*_SIMPLE, *_WITH_NUMBERS, *_NESTED), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise FieldsError(f"field {field}: {word!r} is not a type of Spark{hint}")

    def _expect(self, sign: str, field: str, kind: str) -> None:
        if self._next != sign:
            found = repr(self._next) if self._next else "the end"
            raise FieldsError(f"field {field}: expected {sign!r} in {kind}, found {found}")
        self._take()
