"""The nodes of a topology: what a user declared, before anything is planned.

A `Node` is an operation, its inputs, and what is known about its rows without Spark: the types of
key and value, and the names of the value's columns. Nodes never change; `stream` and `table` make
them, `planner` makes queries of them, `operators` makes frames of them.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal

from headwater.streams.errors import TopologyError
from headwater.streams.expressions import names_read, written
from headwater.streams.windows import Window, readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from headwater.streams.types import Shape

OnError = Literal["fail", "continue", "dead_letter"]
ON_ERROR: tuple[OnError, ...] = ("fail", "continue", "dead_letter")
# The columns of a row besides its value, as every operator may read them.
ABOUT = ("_key", "_timestamp", "_headers", "_topic", "_partition", "_offset")
Named = tuple[tuple[str, Any], ...]  # columns and their names


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Topics that are read. `time` is the column with the event time; None: the record's own."""

    topics: tuple[str, ...]
    pattern: str | None = None
    key_serde: Any = None
    value_serde: Any = None
    time: Any = None
    late: timedelta = timedelta()
    options: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False  # written by another query of the same app
    versioned: timedelta | None = None

    def __str__(self) -> str:
        return f"topic {', '.join(self.topics)}" if self.topics else f"topics {self.pattern}"


@dataclass(frozen=True, slots=True)
class Project:
    """New columns for the value; one of them may be an explode."""

    columns: Named
    adds: bool = False  # to the columns that are there

    def __str__(self) -> str:
        named = ", ".join(
            written_column(column) if name == "value" else f"{name}={written_column(column)}"
            for name, column in self.columns
        )
        return f"{'with_columns' if self.adds else 'select'} {named}"


@dataclass(frozen=True, slots=True)
class Filter:
    """Keeps the rows for which all conditions hold; each is a column and whether it must be true
    (or must not)."""

    conditions: tuple[tuple[Any, bool], ...]

    def __str__(self) -> str:
        return "filter " + " and ".join(
            written_column(column) if wanted else f"not {written_column(column)}"
            for column, wanted in self.conditions
        )


@dataclass(frozen=True, slots=True)
class Rekey:
    """Sets the key: one column, or several as a struct."""

    columns: Named

    def __str__(self) -> str:
        return f"key {', '.join(written_column(column) for _, column in self.columns)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Sets the event time, or adds headers."""

    timestamp: Any = None
    headers: Named = ()

    def __str__(self) -> str:
        if self.timestamp is not None:
            return f"time {written_column(self.timestamp)}"
        return f"headers {', '.join(name for name, _ in self.headers)}"


CallKind = Literal[
    "map",
    "filter",
    "filter_not",
    "flat_map",
    "key",
    "records",
    "peek",
    "foreach",
    "topic",
    "columns",
]


@dataclass(frozen=True, slots=True)
class Call:
    """Calls a Python function for each row, by Arrow batches."""

    function: Callable[..., Any]
    kind: CallKind
    label: str | None = None  # how the user knows the function

    def __str__(self) -> str:
        return f"{self.kind} {self.label or written(self.function)}()"


@dataclass(frozen=True, slots=True)
class Merge:
    def __str__(self) -> str:
        return "merge"


@dataclass(frozen=True, slots=True)
class Repartition:
    """Writes the rows by key to an internal topic, and reads them there."""

    partitions: int | None

    def __str__(self) -> str:
        return "repartition" + (f" into {self.partitions}" if self.partitions else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregate:
    """A built-in aggregation by key, in windows or not. `final`: one result for each window."""

    aggregates: Named
    window: Window | None = None
    final: bool = False

    def __str__(self) -> str:
        named = ", ".join(written_column(column) for _, column in self.aggregates)
        text = f"aggregate {named}"
        if self.window is not None:
            text += f" in {self.window}"
        return f"{text}, final" if self.final else text


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamJoin:
    """Joins two streams by key where their times are at most so far apart: the right one `before`
    or `after` the left one."""

    how: str
    before: timedelta
    after: timedelta
    on: tuple[str, ...] | None

    def __str__(self) -> str:
        by = ", ".join(self.on) if self.on else "key"
        within = readable(self.before)
        if self.after != self.before:
            within = f"{within} before and {readable(self.after)} after"
        return f"{self.how} join by {by} within {within}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """A keyed machine. `make` takes the fields of its inputs, and whether only final results of
    windows are wanted; it returns the machine and the fields of its output.

    group: columns for another key of each row, which the machine finds in the column `__group`
    changes: what it emits has the column `_change`, -1 for an old value and 1 for a new one
    """

    what: str
    make: Callable[[Sequence[StructType], bool], tuple[Any, StructType]]
    time: Literal["none", "event", "processing", "both"] = "none"
    window: Window | None = None
    final: bool = False
    group: Named = ()
    new_key: Shape | None = None
    changes: bool = False
    keeps_null_keys: bool = False
    restores: bool = False  # from its table: its results have all that it keeps
    can_fail: bool = True  # for a record: it calls functions of the user
    version: str = ""  # what else its state depends on

    def __str__(self) -> str:
        return f"{self.what}, final" if self.final else self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignKeyJoin:
    """Joins two tables by a column of the left one with the keys of the right one."""

    foreign_key: str
    how: str
    make: Callable[[Sequence[StructType]], tuple[Any, StructType]]  # combine, and its fields

    def __str__(self) -> str:
        return f"{self.how} join by foreign key {self.foreign_key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlobalJoin:
    """Looks each row up in a copy of a whole table."""

    how: str
    topic: str
    lookup: Any  # the column with the key of the table; None: the row's key
    table: Node
    joined: Any  # what the result is made of: joining.Joined

    def __str__(self) -> str:
        return f"{self.how} join with global table {self.topic}"


@dataclass(frozen=True, slots=True)
class Frame:
    """A function over DataFrames of Spark, or a query in SQL."""

    function: Callable[..., DataFrame]
    what: str
    stateful: bool = True

    def __str__(self) -> str:
        return self.what


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """Writes to a topic; `to` is its name, or a column or a function that names it for a row."""

    to: Any
    key_serde: Any = None
    value_serde: Any = None
    compacted: bool = False
    internal: bool = False
    partitions: int | None = None

    def __str__(self) -> str:
        to = self.to if isinstance(self.to, str) else f"({written_column(self.to)})"
        return f"topic {to}"


Operation = (
    Source
    | Project
    | Filter
    | Rekey
    | About
    | Call
    | Merge
    | Repartition
    | Aggregate
    | StreamJoin
    | Keyed
    | ForeignKeyJoin
    | GlobalJoin
    | Frame
    | Sink
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Node:
    """One operator. `columns` and the shapes are None where only Spark can know them."""

    name: str
    operation: Operation
    inputs: tuple[Node, ...] = ()
    key: Shape | None = None
    value: Shape | None = None
    columns: tuple[str, ...] | None = None
    is_table: bool = False
    is_windowed: bool = False  # the key is a Windowed
    store: str | None = None  # the name under which a table is materialized
    is_named: bool = False  # by the user
    on_error: OnError | None = None  # None: as the app says
    place: tuple[str, int] | None = None

    def __repr__(self) -> str:
        return f"<{self.name}: {self.operation}>"

    @property
    def is_stateful(self) -> bool:
        match self.operation:
            case Aggregate() | StreamJoin() | Keyed() | ForeignKeyJoin():
                return True
            case Frame(stateful=stateful):
                return stateful
            case _:
                return False

    def check_columns(self, column: Any, what: str) -> None:
        """TopologyError if the column reads another column that the rows of this node lack."""
        if self.columns is None or (read := names_read(column)) is None:
            return
        known = (*self.columns, *ABOUT)
        for name in sorted(read):
            if name in known or name.split(".")[0] in known:
                continue
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "select or add it first"
            has = ", ".join(self.columns)
            raise TopologyError(
                what, f"there is no column {name!r}; {self.name} has {has}", then=hint
            )


def ancestors(nodes: Sequence[Node]) -> list[Node]:
    """Returns the nodes and all that they depend on, inputs first."""
    found: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node in found:
            return
        for each in inputs_of(node):
            visit(each)
        found[node] = None

    for node in nodes:
        visit(node)
    return list(found)


def inputs_of(node: Node) -> Iterator[Node]:
    yield from node.inputs


def written_column(column: Any) -> str:
    return column if isinstance(column, str) else written(column)


def result_type(
    function: Callable[..., Any], given: Any, operator: str, *, each: bool = False
) -> Any:
    """Returns the type that a function returns, or that it yields (`each`)."""
    if given is not None:
        return given
    try:
        hints = typing.get_type_hints(_annotated(function))
    except Exception:
        hints = {}
    found = hints.get("return")
    if each and found is not None:
        arguments = typing.get_args(found)
        found = arguments[0] if arguments else None
    if found is None or found is Any:
        name = written(function)
        raise TopologyError(
            operator,
            f"the return type of {name} is unknown",
            then=f"annotate {name}, or give it as {operator}(..., to=TYPE)",
        )
    return found


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isfunction(function) or inspect.ismethod(function) or inspect.isclass(function):
        return function
    return type(function).__call__
