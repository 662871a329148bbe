"""Parses pipelines in SQL: three statements of ours around Spark's own.

    CREATE STREAM orders (customer STRING, amount DOUBLE, at TIMESTAMP,
                          WATERMARK FOR at AS 10 SECONDS)
    FROM TOPIC orders WITH (startingOffsets = 'latest');

    CREATE TABLE customers (id STRING, name STRING) FROM TOPIC customers;

    INSERT INTO TOPIC totals WITH (key = 'customer', mode = 'update')
    SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;

Columns are the fields of the JSON object in a record's value; without them the value stays bytes,
or text with `format = 'text'`. Names under WITH other than `format`, `key`, `mode`, `every` and
`name` are options of the source or the sink. All other statements are passed to Spark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.spark.pipeline import Input, PipelineError, Stream, Table


@dataclass(frozen=True, slots=True)
class CreateInput:
    """Names a topic that later statements select from."""

    name: str
    input: Input


@dataclass(frozen=True, slots=True)
class SparkText:
    """SQL for Spark, and the place in the script where it begins; both count from 1."""

    text: str
    line: int = field(default=1, compare=False)
    column: int = field(default=1, compare=False)

    def place_of(self, line: int, position: int) -> tuple[int, int]:
        """Returns line and column in the script for a place in the text as Spark gives it, where
        lines count from 1 and positions in a line from 0."""
        return self.line + line - 1, position + (self.column if line == 1 else 1)


@dataclass(frozen=True, slots=True)
class InsertInto:
    """A query: the result of its SELECT goes to a topic."""

    to: str
    select: SparkText
    key: str | None = None
    mode: str = "append"
    every: str | None = None
    name: str | None = None
    options: dict[str, str] = field(default_factory=dict)


Statement = CreateInput | InsertInto | SparkText

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
    """Parses a script. PipelineError has the line of a statement that is not understood."""
    return [_statement(text, *_place(script, offset)) for offset, text in split(script)]


def split(script: str) -> Iterator[tuple[int, str]]:
    """Yields the statements between semicolons, each with its offset in the script. A semicolon in
    quotes or in a comment ends nothing. Comments become blanks, so that every character keeps its
    line and column."""
    text: list[str] = []
    offset = begins = 0
    for part in [*_PARTS.findall(script), ";"]:
        if part == ";":
            statement = "".join(text)
            if statement.strip():
                yield begins + len(statement) - len(statement.lstrip()), statement.strip()
            text, begins = [], offset + 1
        elif part.startswith(("--", "/*")):
            text.append(re.sub(r"[^\n]", " ", part))
        else:
            text.append(part)
        offset += len(part)


def _place(script: str, offset: int) -> tuple[int, int]:
    return script.count("\n", 0, offset) + 1, offset - script.rfind("\n", 0, offset)


_PARTS = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|;|\s+|[^;'\"`\s/-]+|.",
    re.DOTALL,
)


def _statement(text: str, line: int, column: int) -> Statement:
    if found := _CREATE.match(text):
        return _create(found, text, line, column)
    if found := _INSERT.match(text):
        return _insert(found, text, line, column)
    if re.match(r"CREATE\s+STREAM\b|INSERT\s+INTO\s+TOPIC\b", text, re.IGNORECASE):
        raise _not_understood(line, text, "a name is missing")
    return SparkText(text, line, column)


def _create(found: re.Match[str], text: str, line: int, column: int) -> Statement:
    name, is_stream = found["name"], found["kind"].upper() == "STREAM"
    rest = text[found.end() :]
    columns = ""
    if rest.startswith("("):
        columns, rest = _in_parentheses(rest, line)
    source = _FROM.match(rest)
    if source is None:
        if not is_stream:
            return SparkText(text, line, column)
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
        raise PipelineError(error.text, line=line) from None


def _insert(found: re.Match[str], text: str, line: int, column: int) -> InsertInto:
    rest = text[found.end() :]
    options: dict[str, str] = {}
    if given := _WITH.match(rest):
        inside, rest = _in_parentheses(rest[given.end() :], line)
        options = _pairs(inside, line)
    select = rest.strip()
    if not re.match(r"SELECT\b|WITH\b|FROM\b|TABLE\b|\(", select, re.IGNORECASE):
        raise _not_understood(line, select or found[0], "expected SELECT")
    below, beside = _place(text, len(text) - len(select))
    return InsertInto(
        to=found["topic"],
        select=SparkText(select, line + below - 1, beside + (column - 1 if below == 1 else 0)),
        key=options.pop("key", None),
        mode=options.pop("mode", "append").lower(),
        every=options.pop("every", None),
        name=options.pop("name", None),
        options=options,
    )


def _in_parentheses(text: str, line: int) -> tuple[str, str]:
    """Returns the content of the parenthesis that the text begins with, and what follows it."""
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
    """Returns the schema without the watermark, and the watermark."""
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
    return PipelineError(f"{expected}, near {near!r}", line=line)
