"""Records as text: one format string serves both ways, and JSON lines do too.

`%k` is the key, `%v` the value, `%h` the headers as name=value,name=value; when printing also `%t`
the topic, `%p` the partition, `%o` the offset, `%T` the timestamp in ms and `%d` as a date. `%%` is
a percent sign; `\\n`, `\\t`, `\\0` and `\\\\` are what they are everywhere.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from headwater.cli.errors import USAGE, CommandError

if TYPE_CHECKING:
    from headwater import _core

JSON = "json"
_TOKEN = re.compile(r"%(.)|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}
_PRINTED = "kvhtpoTd"
_TYPED = "kvh"
_NO_TIMESTAMP = -1  # of records that are older than timestamps

Headers = tuple[tuple[str, bytes | None], ...]


class TypedRecord(NamedTuple):
    """What one line of input says."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


@dataclass(slots=True)
class Parts:
    """A format taken apart: fields, and the literal text before each and after the last."""

    fields: list[str] = field(default_factory=list)
    literals: list[str] = field(default_factory=list)


def parts_of(text: str, known: str) -> Parts:
    parts, literal, position = Parts(), "", 0
    for found in _TOKEN.finditer(text):
        literal += text[position : found.start()]
        position = found.end()
        token, escape = found.groups()
        if token == "%":
            literal += "%"
        elif token is not None:
            if token not in known:
                allowed = ", ".join(f"%{each}" for each in known)
                raise CommandError(
                    f"--format {text!r}: %{token} is not known here; expected {allowed} or %%",
                    code=USAGE,
                )
            parts.fields.append(token)
            parts.literals.append(literal)
            literal = ""
        else:
            literal += _ESCAPES.get(escape, f"\\{escape}")
    parts.literals.append(literal + text[position:])
    return parts


# Printing


def printer(text: str | None, null: bytes = b"") -> Callable[[_core.ConsumedRecord], bytes]:
    """What turns a record into bytes for the terminal or a file; `null` stands for what a record
    has not. JSON has its own word for that."""
    if text is None:
        return lambda record: (null if record.value is None else record.value) + b"\n"
    if text == JSON:
        return _json_line
    parts = parts_of(text, _PRINTED)
    literals = [literal.encode() for literal in parts.literals]
    known = _MAKERS | {
        "k": lambda record: null if record.key is None else record.key,
        "v": lambda record: null if record.value is None else record.value,
    }
    makers = [known[name] for name in parts.fields]
    if not literals[-1].endswith(b"\n") and "\\n" not in text:
        literals[-1] += b"\n"

    def show(record: _core.ConsumedRecord) -> bytes:
        shown = b"".join(
            literal + make(record) for literal, make in zip(literals, makers, strict=False)
        )
        return shown + literals[-1]

    return show


def _headers_text(record: _core.ConsumedRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


def _date(record: _core.ConsumedRecord) -> str:
    moment = datetime.fromtimestamp(record.timestamp / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


_MAKERS: dict[str, Callable[[Any], bytes]] = {
    "h": _headers_text,
    "t": lambda record: record.topic.encode(),
    "p": lambda record: str(record.partition).encode(),
    "o": lambda record: str(record.offset).encode(),
    "T": lambda record: str(record.timestamp).encode(),
    "d": lambda record: _date(record).encode(),
}


def _json_line(record: _core.ConsumedRecord) -> bytes:
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _as_json(record.key),
        "value": _as_json(record.value),
        "headers": _headers_as_json(record.headers),
    }
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _headers_as_json(headers: Headers) -> object:
    """An object; where a name comes twice, which an object cannot say, a list of pairs."""
    pairs = [(name, _as_json(value)) for name, value in headers]
    by_name = dict(pairs)
    return by_name if len(by_name) == len(pairs) else pairs


def _as_json(data: bytes | None) -> object:
    """Text where it is text; other bytes say so."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# Reading


def reader(text: str | None, null: bytes | None = None) -> Callable[[bytes], TypedRecord]:
    """What turns a line, without its end, into a record. It raises ValueError with the reason.
    `null` is what stands for no key and for no value; JSON has its own word for that."""
    if text == JSON:
        return _from_json
    read = TypedRecord if text is None else _by_format(text)
    if null is None:
        return read

    def read_nulls(line: bytes) -> TypedRecord:
        record = read(line)
        value = None if record.value == null else record.value
        return record._replace(value=value, key=None if record.key == null else record.key)

    return read_nulls


def _by_format(text: str) -> Callable[[bytes], TypedRecord]:
    parts = parts_of(text, _TYPED)
    literals = [literal.rstrip("\n").encode() for literal in parts.literals]
    between = literals[1:-1]
    if not parts.fields or "" in parts.literals[1:-1]:
        raise CommandError(
            f"--format {text!r}: between two fields must be what separates them, as in '%k\\t%v'",
            code=USAGE,
        )
    pattern = b"(.*?)".join(re.escape(each) for each in (literals[0], *between, literals[-1]))
    whole = re.compile(pattern, re.DOTALL)

    def read(line: bytes) -> TypedRecord:
        found = whole.fullmatch(line)
        if found is None:
            raise ValueError(f"it does not look like {text!r}")
        given = dict(zip(parts.fields, found.groups(), strict=True))
        headers = _headers(given["h"].decode().split(",")) if given.get("h") else ()
        return TypedRecord(given.get("v"), given.get("k"), headers)

    return read


def _headers(items: Sequence[str]) -> Headers:
    pairs = [item.partition("=") for item in items]
    bad = next((name for name, equals, _ in pairs if not equals), None)
    if bad is not None:
        raise ValueError(f"header {bad!r} is not name=value")
    return tuple((name, value.encode()) for name, _, value in pairs)


def headers_given(items: Sequence[str]) -> Headers:
    """Those of --header NAME=VALUE."""
    try:
        return _headers(items)
    except ValueError as error:
        raise CommandError(f"--header: {error}", code=USAGE) from None


def _from_json(line: bytes) -> TypedRecord:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise ValueError(f"it is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError("it is no JSON object with key, value, headers, partition or timestamp")
    unknown = given.keys() - _JSON_FIELDS
    if unknown:
        raise ValueError(f"it has the unknown field {min(unknown)!r}")
    if "offset" in given:
        # It was printed by `consume`: which partition it was in says nothing of where it goes.
        given.pop("partition", None)
        if given.get("timestamp") == _NO_TIMESTAMP:
            del given["timestamp"]
    return TypedRecord(
        _from_json_value(given.get("value")),
        _from_json_value(given.get("key")),
        _from_json_headers(given.get("headers") or {}),
        _from_json_number(given, "partition", bits=32),
        _from_json_number(given, "timestamp", bits=64),
    )


def _from_json_headers(given: object) -> Headers:
    pairs = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)
        for pair in pairs
    ):
        raise ValueError("its headers are neither an object nor a list of [name, value]")
    for name, _ in pairs:
        _utf8(name)
    return tuple((name, _from_json_value(value)) for name, value in pairs)


def _from_json_number(given: dict[str, object], name: str, *, bits: int) -> int | None:
    number = given.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << bits - 1:
        raise ValueError(f"its {name} is {json.dumps(number)}, expected a whole number from 0 on")
    return number


# What `consume --format json` prints can be given back to `produce --format json`.
_JSON_FIELDS = {"key", "value", "headers", "partition", "timestamp", "topic", "offset"}


def _from_json_value(value: object) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return _utf8(value)
    if isinstance(value, dict) and value.keys() == {"base64"}:
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (ValueError, TypeError):
            raise ValueError(f"{json.dumps(value['base64'])} is no base64") from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError('it has half a character, such as "\\ud800" alone') from None
