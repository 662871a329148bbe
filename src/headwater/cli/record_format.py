"""Records as text: one format string serves both ways, and JSON lines do too.

`%k` is the key, `%v` the value, `%h` the headers as name=value,name=value; when printing also `%t`
the topic, `%p` the partition, `%o` the offset, `%T` the timestamp in ms, `%d` its date, and `%K`,
`%V` and `%H` the size of the key, the size of the value and the number of headers. `%v{hex}` and
`%v{base64}` are the bytes in that encoding. `%%`, `%{` and `%}` are the characters themselves;
`\\n`, `\\t`, `\\r`, `\\0`, `\\xNN` and `\\\\` are escapes as usual.
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
_ESCAPE = r"\\(?:x(?P<hex>[0-9a-fA-F]{2})|(?P<escape>.))"
_TOKEN = re.compile(
    rf"%(?P<literal>[%{{}}])|%(?P<field>.)(?:\{{(?P<encoding>\w*)\}})?|{_ESCAPE}", re.DOTALL
)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PRINTED = "kvhtpoTdKVSH"
_TYPED = "kvh"
_ENCODED = "kv"  # fields that may be hex or base64
_ENCODINGS = ("hex", "base64")
_NO_TIMESTAMP = -1  # of records that are older than timestamps

Headers = tuple[tuple[str, bytes | None], ...]


class TypedRecord(NamedTuple):
    """A record as one line of input describes it."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


class Field(NamedTuple):
    """A part of a record, such as `%v{hex}`."""

    name: str
    encoding: str | None = None


@dataclass(slots=True)
class Parts:
    """A format taken apart: fields, and the literal bytes before each and after the last."""

    fields: list[Field] = field(default_factory=list)
    literals: list[bytes] = field(default_factory=list)


def parts_of(text: str, known: str) -> Parts:
    parts, literal, position = Parts(), b"", 0
    for found in _TOKEN.finditer(text):
        literal += _bytes(text[position : found.start()])
        position = found.end()
        if found["field"] is not None:
            parts.fields.append(_field(text, found, known))
            parts.literals.append(literal)
            literal = b""
        else:
            literal += _literal(found)
    parts.literals.append(literal + _bytes(text[position:]))
    return parts


def unescaped(text: str) -> bytes:
    """A text in which `\\0`, `\\t` and the like are escapes, as for --delimiter."""
    literal, position = b"", 0
    for found in re.finditer(_ESCAPE, text, re.DOTALL):
        literal += _bytes(text[position : found.start()]) + _escaped(found)
        position = found.end()
    return literal + _bytes(text[position:])


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")  # bytes of a command line need not be UTF-8


def _literal(found: re.Match[str]) -> bytes:
    return _escaped(found) if found["literal"] is None else _bytes(found["literal"])


def _escaped(found: re.Match[str]) -> bytes:
    if found["hex"] is not None:
        return bytes.fromhex(found["hex"])
    return _ESCAPES.get(found["escape"], _bytes(f"\\{found['escape']}"))


def _field(text: str, found: re.Match[str], known: str) -> Field:
    name, encoding = found["field"], found["encoding"]
    if name not in known:
        allowed = ", ".join(f"%{each}" for each in known)
        raise CommandError(
            f"--format {text!r}: %{name} is not known here; expected {allowed} or %%", code=USAGE
        )
    if encoding is not None and (name not in _ENCODED or encoding not in _ENCODINGS):
        raise CommandError(
            f"--format {text!r}: %{name} has no {{{encoding}}}; %k and %v have {{hex}} and "
            "{base64}, and %{ is a brace",
            code=USAGE,
        )
    return Field(name, encoding)


# Printing


def printer(
    text: str | None, null: bytes = b"", delimiter: bytes | None = None
) -> Callable[[_core.ConsumedRecord], bytes]:
    """Returns the function that turns a record into bytes for the terminal or a file. `null` stands
    for a missing key or value; JSON has its own word for that. Each record ends with `delimiter`,
    by default a newline unless the format says where newlines are."""
    if text == JSON:
        return _json_line
    if delimiter is None:
        delimiter = b"" if text is not None and "\\n" in text else b"\n"
    if text is None:
        return lambda record: (null if record.value is None else record.value) + delimiter
    parts = parts_of(text, _PRINTED)
    literals = parts.literals
    if delimiter != b"\n" or not literals[-1].endswith(b"\n"):
        literals[-1] += delimiter
    makers = [_maker(each, null) for each in parts.fields]

    def show(record: _core.ConsumedRecord) -> bytes:
        shown = b"".join(
            literal + make(record) for literal, make in zip(literals, makers, strict=False)
        )
        return shown + literals[-1]

    return show


def _maker(each: Field, null: bytes) -> Callable[[Any], bytes]:
    if each.name not in _ENCODED:
        return _MAKERS[each.name]
    name = "key" if each.name == "k" else "value"
    encode = _ENCODERS[each.encoding]

    def make(record: _core.ConsumedRecord) -> bytes:
        data: bytes | None = getattr(record, name)
        return null if data is None else encode(data)

    return make


_ENCODERS: dict[str | None, Callable[[bytes], bytes]] = {
    None: lambda data: data,
    "hex": lambda data: data.hex().encode(),
    "base64": base64.b64encode,
}


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else str(len(data)).encode()


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
    "K": lambda record: _size(record.key),
    "V": lambda record: _size(record.value),
    "S": lambda record: _size(record.value),  # as kcat calls it
    "H": lambda record: str(len(record.headers)).encode(),
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
    """Returns an object, or a list of pairs if a name occurs twice."""
    pairs = [(name, _as_json(value)) for name, value in headers]
    by_name = dict(pairs)
    return by_name if len(by_name) == len(pairs) else pairs


def _as_json(data: bytes | None) -> object:
    """Returns text if the bytes are UTF-8, otherwise their base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# Reading


def reader(text: str | None, null: bytes | None = None) -> Callable[[bytes], TypedRecord]:
    """Returns the function that turns a line, without its end, into a record; it raises ValueError
    with the reason. `null` stands for a missing key or value; JSON has its own word for that."""
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
    literals = [literal.rstrip(b"\n") for literal in parts.literals]
    between = literals[1:-1]
    if not parts.fields or b"" in parts.literals[1:-1]:
        raise CommandError(
            f"--format {text!r}: two fields need a separator between them, as in '%k\\t%v'",
            code=USAGE,
        )
    pattern = b"(.*?)".join(re.escape(each) for each in (literals[0], *between, literals[-1]))
    whole = re.compile(pattern, re.DOTALL)

    def read(line: bytes) -> TypedRecord:
        found = whole.fullmatch(line)
        if found is None:
            raise ValueError(f"does not match the format {text!r}")
        given = {
            each.name: _decoded(each, data)
            for each, data in zip(parts.fields, found.groups(), strict=True)
        }
        headers = _headers(given["h"].decode().split(",")) if given.get("h") else ()
        return TypedRecord(given.get("v"), given.get("k"), headers)

    return read


def _decoded(each: Field, data: bytes) -> bytes:
    try:
        match each.encoding:
            case "hex":
                return bytes.fromhex(data.decode())
            case "base64":
                return base64.b64decode(data, validate=True)
    except ValueError:
        raise ValueError(f"%{each.name} is not {each.encoding}") from None
    return data


def _headers(items: Sequence[str]) -> Headers:
    pairs = [item.partition("=") for item in items]
    bad = next((name for name, equals, _ in pairs if not equals), None)
    if bad is not None:
        raise ValueError(f"header {bad!r} is not name=value")
    return tuple((name, value.encode()) for name, _, value in pairs)


def headers_given(items: Sequence[str]) -> Headers:
    """Reads --header NAME=VALUE."""
    try:
        return _headers(items)
    except ValueError as error:
        raise CommandError(f"--header: {error}", code=USAGE) from None


def _from_json(line: bytes) -> TypedRecord:
    try:
        given = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(given, dict):
        raise ValueError("not a JSON object with key, value, headers, partition or timestamp")
    unknown = given.keys() - _JSON_FIELDS
    if unknown:
        raise ValueError(f"unknown field {min(unknown)!r}")
    if "offset" in given:
        # It was printed by `consume`: its old partition does not say where it goes.
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
        raise ValueError("headers are neither an object nor a list of [name, value]")
    for name, _ in pairs:
        _utf8(name)
    return tuple((name, _from_json_value(value)) for name, value in pairs)


def _from_json_number(given: dict[str, object], name: str, *, bits: int) -> int | None:
    number = given.get(name)
    if number is None:
        return None
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < 1 << bits - 1:
        raise ValueError(f"{name} is {json.dumps(number)}, expected a whole number, at least 0")
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
            raise ValueError(f"{json.dumps(value['base64'])} is not base64") from None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise ValueError('half of a surrogate pair, such as "\\ud800", is not text') from None
