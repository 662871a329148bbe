"""Pipelines in SQL: three statements of ours around Spark's own.

    CREATE STREAM orders (customer STRING, amount DOUBLE, at TIMESTAMP,
                          WATERMARK FOR at AS 10 SECONDS)
    FROM TOPIC orders WITH (startingOffsets = 'latest');

    CREATE TABLE customers (id STRING, name STRING) FROM TOPIC customers;

    INSERT INTO TOPIC totals WITH (key = 'customer', mode = 'update')
    SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;

Columns are the fields of the JSON in a record's value; without them the value stays bytes, or text
with `format = 'text'`. Names under WITH that are not `format`, `key`, `mode`, `every` and `name`
are options of the source or the sink. Every other statement goes to Spark as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.spark.pipeline import Input, PipelineError, Stream, Table


@dataclass(frozen=True, slots=True)
class CreateInput:
    """A name for a topic that later statements select from."""

    name: str
    input: Input


@dataclass(frozen=True, slots=True)
class InsertInto:
    """A query: what its SELECT gives goes to a topic."""

    to: str
    select: str
    key: str | None = None
    mode: str = "append"
    every: str | None = None
    name: str | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Other:
    """A statement that Spark runs as it is."""

    text: str


Statement = CreateInput | InsertInto | Other

_NAME = r"`?(?P<{0}>[\w.-]+)`?"
_CREATE = re.compile(
    r"CREATE\s+(?P<kind>STREAM|TABLE)\s+" + _NAME.format("name") + r"\s*", re.IGNORECASE
)
_FROM = re.compile(r"\s*FROM\s+TOPIC\s+" + _NAME.format("topic") + r"\s*", re.IGNORECASE)
_INSERT = re.compile(r"INSERT\s+INTO\s+TOPIC\s+" + _NAME.format("topic") + r"\s*", re.IGNORECASE)
_WITH = re.compile(r"WITH\s*(?=\()", re.IGNORECASE)
_WATERMARK = re.compile(
    r"WATERMARK\s+FOR\s+`?(?P<column>\w+)`?\s+AS\s+(?:INTERVAL\s+)?'?(?P<delay>\d+\s+\w+)'?",
    re.IGNORECASE,
)
_OPTION = re.compile(
    r"\s*(?:'(?P<quoted>[^']+)'|`?(?P<name>[\w.]+)`?)\s*=\s*"
    r"(?:'(?P<text>(?:[^']|'')*)'|(?P<word>[\w.-]+))\s*"
)


def parse(script: str) -> list[Statement]:
    """The statements of a script. PipelineError says in which line one is not understood."""
    return [_statement(text, line) for line, text in split(script)]


def split(script: str) -> Iterator[tuple[int, str]]:
    """The statements between semicolons, without comments, each with the line it begins in. A
    semicolon in quotes or in a comment ends nothing."""
    text: list[str] = []
    line, begins = 1, 1
    for part in _PARTS.findall(script):
        if part == ";":
            if "".join(text).strip():
                yield begins, "".join(text).strip()
            text = []
        elif part.startswith(("--", "/*")):
            text.append(" ")
        else:
            if not "".join(text).strip():
                text = []
                begins = line + part[: len(part) - len(part.lstrip())].count("\n")
            text.append(part)
        line += part.count("\n")
    if "".join(text).strip():
        yield begins, "".join(text).strip()


_PARTS = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|;|\s+|[^;'\"`\s/-]+|.",
    re.DOTALL,
)


def _statement(text: str, line: int) -> Statement:
    if found := _CREATE.match(text):
        return _create(found, text[found.end() :], line)
    if found := _INSERT.match(text):
        return _insert(found, text[found.end() :], line)
    if re.match(r"CREATE\s+STREAM\b|INSERT\s+INTO\s+TOPIC\b", text, re.IGNORECASE):
        raise _not_understood(line, text, "a name is missing")
    return Other(text)


def _create(found: re.Match[str], rest: str, line: int) -> Statement:
    name, is_stream = found["name"], found["kind"].upper() == "STREAM"
    columns = ""
    if rest.startswith("("):
        columns, rest = _in_parentheses(rest, line)
    source = _FROM.match(rest)
    if source is None:
        if not is_stream:
            return Other(f"{found[0]}{f'({columns}) ' if columns else ''}{rest}")
        raise _not_understood(line, rest or found[0], "expected FROM TOPIC name")
    options = _options(rest[source.end() :], line)
    schema, watermark = _columns(columns)
    topic, format_ = source["topic"], options.pop("format", None)
    try:
        if is_stream:
            return CreateInput(name, Stream(topic, schema, format_, options, watermark))
        if watermark is not None:
            raise PipelineError(f"table {name} has a watermark; only streams have one")
        return CreateInput(name, Table(topic, schema, format_, options))
    except PipelineError as error:
        raise PipelineError(f"line {line}: {error}") from None


def _insert(found: re.Match[str], rest: str, line: int) -> InsertInto:
    options: dict[str, str] = {}
    if given := _WITH.match(rest):
        inside, rest = _in_parentheses(rest[given.end() :], line)
        options = _pairs(inside, line)
    select = rest.strip()
    if not re.match(r"SELECT\b|WITH\b|FROM\b|TABLE\b|\(", select, re.IGNORECASE):
        raise _not_understood(line, select or found[0], "expected SELECT")
    return InsertInto(
        to=found["topic"],
        select=select,
        key=options.pop("key", None),
        mode=options.pop("mode", "append").lower(),
        every=options.pop("every", None),
        name=options.pop("name", None),
        options=options,
    )


def _in_parentheses(text: str, line: int) -> tuple[str, str]:
    """What is inside the parenthesis that the text begins with, and what follows it."""
    depth = 0
    at = 0
    for part in _PARTS_DEEP.findall(text):
        at += len(part)
        depth += (part == "(") - (part == ")")
        if depth == 0:
            return text[1 : at - 1].strip(), text[at:].strip()
    raise _not_understood(line, text, "a parenthesis is not closed")


_PARTS_DEEP = re.compile(r"'(?:[^'\\]|\\.|'')*'|`[^`]*`|.", re.DOTALL)


def _columns(text: str) -> tuple[str | None, str | None]:
    """The schema without the watermark, and the watermark."""
    found = _WATERMARK.search(text)
    if found is None:
        return text.strip() or None, None
    schema = (text[: found.start()].rstrip().rstrip(",") + text[found.end() :]).strip().strip(",")
    return schema.strip() or None, f"{found['column']} {found['delay']}"


def _options(text: str, line: int) -> dict[str, str]:
    if not text:
        return {}
    given = _WITH.match(text)
    if given is None:
        raise _not_understood(line, text, "expected WITH (name = 'value', ...) or the end")
    inside, rest = _in_parentheses(text[given.end() :], line)
    if rest:
        raise _not_understood(line, rest, "expected the end of the statement")
    return _pairs(inside, line)


def _pairs(text: str, line: int) -> dict[str, str]:
    options: dict[str, str] = {}
    while text:
        found = _OPTION.match(text)
        if found is None or (found.end() < len(text) and text[found.end()] != ","):
            raise _not_understood(line, text, "expected name = 'value'")
        value = found["text"]
        options[found["quoted"] or found["name"]] = (
            found["word"] if value is None else value.replace("''", "'")
        )
        text = text[found.end() + 1 :]
    return options


def _not_understood(line: int, text: str, expected: str) -> PipelineError:
    shown = " ".join(text.split())
    near = shown if len(shown) <= 60 else shown[:57] + "..."
    return PipelineError(f"line {line}: {expected}, near {near!r}")
