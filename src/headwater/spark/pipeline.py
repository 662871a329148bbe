"""Declares pipelines: topics in, a function over tables, a topic out.

    from headwater.spark.pipeline import Stream, pipeline

    @pipeline(
        orders=Stream("orders", schema="customer string, amount double"),
        to="totals", key="customer", mode="update",
    )
    def totals(orders):
        return orders.groupBy("customer").sum("amount")

A Python file with such functions is a pipeline file; `headwater pipeline run` runs each of them as
one Spark query. A SQL file declares the same in statements (`pipeline_sql`). `pipeline_query` makes
Spark queries of the declarations.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, overload

from headwater.spark.fields import FieldsError, field_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headwater.spark.pipeline_sql import SparkText

FORMATS = ("json", "text", "bytes")
MODES = ("append", "update")
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class PipelineError(Exception):
    """A pipeline cannot be run as it is: what is wrong, with which value, and what to do.

    `line` and `column` count from 1 in the user's file; `file` is set if that is not the pipeline
    file itself but one that it imports.
    """

    def __init__(
        self,
        text: str,
        *,
        line: int | None = None,
        column: int | None = None,
        file: str | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.line = line
        self.column = column
        self.file = file

    def __str__(self) -> str:
        return self.text if self.line is None else f"{self._place()}: {self.text}"

    def _place(self) -> str:
        return f"line {self.line}" + (f", column {self.column}" if self.column else "")

    def in_file(self, path: str) -> str:
        """Returns the message with the file it is about."""
        return f"{self.file or path}{', ' if self.line else ': '}{self}"


@dataclass(frozen=True, slots=True)
class Input:
    """A topic that a pipeline reads.

    With a `schema` ("id string, amount double") a record's value is a JSON object whose fields are
    the columns; values that do not parse go to the dead letters. With format="text" or "bytes"
    there is a column `value` instead. All have the columns `_key`, `_topic`, `_partition`,
    `_offset`, `_timestamp` and `_headers`, which are not fields of the result.
    """

    topic: str
    schema: str | None = None
    format: str | None = None  # json if there is a schema, else bytes
    options: Mapping[str, str] = field(default_factory=dict)  # of the source, by its names

    def __post_init__(self) -> None:
        if not TOPIC_NAME.fullmatch(self.topic):
            raise PipelineError(
                f"topic {self.topic!r}: a name consists of letters, digits, '.', '_' and '-'"
            )
        if self.value_format not in FORMATS:
            raise PipelineError(
                f"topic {self.topic}: format {self.format!r}: expected {', '.join(FORMATS)}"
            )
        if (self.value_format == "json") != (self.schema is not None):
            raise PipelineError(
                f"topic {self.topic}: format json and a schema go together; give the fields of "
                'the value, such as schema="id string, amount double"'
            )
        if self.schema is not None:
            _check_fields(self.schema, f"topic {self.topic}: schema")

    @property
    def value_format(self) -> str:
        return self.format or ("json" if self.schema is not None else "bytes")


@dataclass(frozen=True, slots=True)
class Stream(Input):
    """A topic read as it grows. `watermark` is a timestamp column and how late an event may be,
    such as "at 10 seconds": later ones are dropped from windows."""

    watermark: str | None = None

    def __post_init__(self) -> None:
        Input.__post_init__(self)
        if self.watermark is not None:
            self.watermark_parts()

    def watermark_parts(self) -> tuple[str, str]:
        column, _, delay = (self.watermark or "").strip().partition(" ")
        if not column or not re.fullmatch(r"\d+\s+\w+", delay.strip()):
            raise PipelineError(
                f"topic {self.topic}: watermark {self.watermark!r}: expected a column and how late "
                'an event may be, such as "at 10 seconds"'
            )
        return column, delay.strip()


@dataclass(frozen=True, slots=True)
class Table(Input):
    """The latest value of each key when the pipeline starts; keys whose latest value is null are
    left out."""


def _check_fields(text: str, what: str) -> None:
    try:
        field_names(text)
    except FieldsError as error:
        raise PipelineError(f"{what} {text!r}: {error}") from None


Function = Callable[..., "DataFrame | Any"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """One query: its inputs, its function, its output topic.

    `function` takes a DataFrame for each input, by name, and returns one. If `each` is a schema, it
    takes a dict for each record instead and returns a dict with these fields, or several, or None.
    """

    name: str
    inputs: Mapping[str, Input]
    function: Function
    to: str
    key: str | None = None
    mode: str = "append"
    each: str | None = None
    every: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)  # of the sink, by its names
    sql: SparkText | None = None  # its SELECT, if it comes from a SQL script

    def __post_init__(self) -> None:
        if not TOPIC_NAME.fullmatch(self.to):
            raise PipelineError(
                f"{self.name}: writes to {self.to!r}, which is not a valid name of a topic"
            )
        if self.mode not in MODES:
            raise PipelineError(
                f"{self.name}: mode {self.mode!r}: expected append (each row once, when it is "
                "final) or update (a row whenever it changes)"
            )
        if not self.inputs:
            raise PipelineError(
                f"{self.name} reads nothing: add a parameter such as orders, and declare it with "
                '@pipeline(orders=Stream("orders", schema="id string"))'
            )
        if self.each is not None:
            if len(self.inputs) != 1:
                raise PipelineError(f"{self.name}: a function for each record reads one topic")
            _check_fields(self.each, f"{self.name}: each =")
        if self.is_batch and self.mode != "append":
            raise PipelineError(f"{self.name} reads tables only, so each row is written once")

    @property
    def is_batch(self) -> bool:
        """Whether it reads no stream: it runs once and ends."""
        return not any(isinstance(each, Stream) for each in self.inputs.values())

    def with_name(self, name: str) -> Pipeline:
        return replace(self, name=name)


@overload
def pipeline(function: Function, /) -> Pipeline: ...
@overload
def pipeline(
    *,
    to: str | None = None,
    key: str | None = None,
    mode: str = "append",
    each: str | None = None,
    every: str | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    **inputs: Input,
) -> Callable[[Function], Pipeline]: ...
def pipeline(
    function: Function | None = None,
    /,
    *,
    to: str | None = None,
    key: str | None = None,
    mode: str = "append",
    each: str | None = None,
    every: str | None = None,
    name: str | None = None,
    options: Mapping[str, str] | None = None,
    **inputs: Input,
) -> Pipeline | Callable[[Function], Pipeline]:
    """Declares a function as a pipeline.

    inputs: a `Stream` or a `Table` for each parameter of the function, by name; a parameter without
        one reads the topic of the same name, as bytes
    to: the output topic (default: the function's name, with '-' for '_')
    key: the column that becomes the key of each record (default: `_key`, if the result has it)
    mode: "append" writes a row once, when it is final; "update" whenever it changes
    each: the function takes one record (a dict), and this is the schema of its result
    every: how often a batch starts, such as "5 seconds" (default: when there are new records)
    """

    def declare(declared: Function) -> Pipeline:
        own = name or declared.__name__
        return Pipeline(
            name=own,
            inputs=_inputs(declared, inputs),
            function=declared,
            to=to or own.replace("_", "-"),
            key=key,
            mode=mode,
            each=each,
            every=every,
            options=dict(options or {}),
        )

    return declare if function is None else declare(function)


def _inputs(function: Function, given: Mapping[str, Input]) -> dict[str, Input]:
    parameters = _parameters(function)
    for name, what in given.items():
        if name not in parameters:
            takes = ", ".join(parameters) or "nothing"
            raise PipelineError(f"{function.__name__} has no parameter {name}: it takes {takes}")
        if not isinstance(what, Input):
            raise PipelineError(
                f"{function.__name__}: {name} is {what!r}: expected a Stream or a Table"
            )
    return {name: given.get(name) or Stream(name.replace("_", "-")) for name in parameters}


def _parameters(function: Function) -> list[str]:
    # Their types may have names that only type checkers know. Python 3.14 evaluates annotations
    # when asked for them (PEP 649), unless it is asked for their text.
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        signature = inspect.signature(function, annotation_format=Format.STRING)
    else:
        signature = inspect.signature(function)
    return list(signature.parameters)


def declared_in(namespace: Mapping[str, Any]) -> list[Pipeline]:
    """Returns the pipelines that a module declares, in order."""
    found = [value for value in namespace.values() if isinstance(value, Pipeline)]
    return list({id(each): each for each in found}.values())
