"""`Stream[K, V]`: records of a topic, and what can be done with them.

Operators take columns (`f.…`, which Spark runs itself) or Python functions, which are called
with values of the stream's type. Each returns another stream or a table; nothing runs before the
app does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headwater.streams import building
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import is_column
from headwater.streams.topology import (
    About,
    Filter,
    Frame,
    Merge,
    Node,
    OnError,
    Repartition,
)
from headwater.streams.windows import Duration, duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.streams.app import App
    from headwater.streams.grouped import Grouped
    from headwater.streams.processor import Processor, Record
    from headwater.streams.table import GlobalTable, Table

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
W = TypeVar("W")


class Stream(Generic[K, V]):
    """Records with keys of type K and values of type V."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node

    def __repr__(self) -> str:
        return f"<Stream {self._node.name}>"

    @property
    def node(self) -> Node:
        return self._node

    @property
    def app(self) -> App:
        return self._app

    # Stateless operators

    def filter(
        self, condition: Callable[[V], bool] | Column | str, *, name: str | None = None
    ) -> Stream[K, V]:
        """Keeps the records for which the condition holds."""
        return self._next(
            building.filtered(self._app, self._node, condition, negated=False, name=name)
        )

    def filter_not(
        self, condition: Callable[[V], bool] | Column | str, *, name: str | None = None
    ) -> Stream[K, V]:
        """Drops the records for which the condition holds."""
        return self._next(
            building.filtered(self._app, self._node, condition, negated=True, name=name)
        )

    @overload
    def map(
        self, function: Column | str, *, to: type[W], name: str | None = None
    ) -> Stream[K, W]: ...
    @overload
    def map(
        self, function: Column | str, *, to: None = None, name: str | None = None
    ) -> Stream[K, Any]: ...
    @overload
    def map(
        self, function: Callable[[V], W], *, to: type[W] | None = None, name: str | None = None
    ) -> Stream[K, W]: ...
    def map(self, function: Any, *, to: Any = None, name: str | None = None) -> Stream[K, Any]:
        """Makes another value of each value; the key stays. The type of the result is what the
        function is annotated with, or `to`."""
        return self._next(building.mapped(self._app, self._node, function, "map", to=to, name=name))

    @overload
    def flat_map(
        self, function: Column | str, *, to: type[W], name: str | None = None
    ) -> Stream[K, W]: ...
    @overload
    def flat_map(
        self, function: Column | str, *, to: None = None, name: str | None = None
    ) -> Stream[K, Any]: ...
    @overload
    def flat_map(
        self,
        function: Callable[[V], Iterable[W]],
        *,
        to: type[W] | None = None,
        name: str | None = None,
    ) -> Stream[K, W]: ...
    def flat_map(self, function: Any, *, to: Any = None, name: str | None = None) -> Stream[K, Any]:
        """Makes any number of values of each value: `f.explode(...)`, or a function that returns
        or yields several."""
        return self._next(
            building.mapped(self._app, self._node, function, "flat_map", to=to, name=name)
        )

    def select(
        self,
        *columns: Column | str,
        to: type[Any] | None = None,
        name: str | None = None,
        **more: Any,
    ) -> Stream[K, Any]:
        """Makes a record of columns. `to` is its type, for the Python functions that get it."""
        found = building.named(columns, more, name or "select")
        return self._next(
            building.projected(self._app, self._node, found, "select", adds=False, to=to, name=name)
        )

    def with_columns(
        self, *, to: type[Any] | None = None, name: str | None = None, **columns: Any
    ) -> Stream[K, Any]:
        """Adds columns to the value, or replaces them."""
        found = building.named((), columns, name or "with_columns")
        return self._next(
            building.projected(
                self._app, self._node, found, "with_columns", adds=True, to=to, name=name
            )
        )

    def map_records(
        self,
        function: Callable[[Record[K, V]], Record[Any, W] | Iterable[Record[Any, W]] | None],
        *,
        to: type[W],
        key: type[Any] | None = None,
        name: str | None = None,
    ) -> Stream[Any, W]:
        """Makes records of each record: one, several or none, with other keys, times and headers.
        `to` and `key` are the types of their values and keys."""
        what = name or "map_records"
        value = building.shape(to, what)
        keys = self._node.key if key is None else building.shape(key, what)
        node = building.derive(
            self._app,
            "map_records",
            building.called(function, "records", what),
            [self._node],
            name=name,
            key=keys,
            value=value,
            columns=tuple(value.names),
        )
        return Stream(self._app, node)

    @overload
    def select_key(
        self, column: Callable[[V], K2], *, name: str | None = None
    ) -> Stream[K2, V]: ...
    @overload
    def select_key(
        self, column: Column | str, *more: Column | str, name: str | None = None
    ) -> Stream[Any, V]: ...
    def select_key(
        self, column: Any, *more: Any, to: Any = None, name: str | None = None
    ) -> Stream[Any, V]:
        """Sets the key to a column, to several, or to what a function of the value returns."""
        return self._next(
            building.rekeyed(self._app, self._node, (column, *more), "select_key", to=to, name=name)
        )

    def with_timestamp(self, column: Column | str, *, name: str | None = None) -> Stream[K, V]:
        """Sets the time of each record, which is written with it."""
        self._node.check_columns(column, name or "with_timestamp")
        return self._next(
            building.derive(
                self._app, "with_timestamp", About(timestamp=column), [self._node], name=name
            )
        )

    def with_headers(self, *, name: str | None = None, **headers: Any) -> Stream[K, V]:
        """Adds headers, whose values are columns of text or bytes."""
        for column in headers.values():
            self._node.check_columns(column, name or "with_headers")
        operation = About(headers=tuple(headers.items()))
        return self._next(
            building.derive(self._app, "with_headers", operation, [self._node], name=name)
        )

    def branch(self, *conditions: Column | Callable[[V], bool] | str) -> list[Stream[K, V]]:
        """Splits the stream: each record goes to the stream of the first condition that holds. The
        last stream has the rest."""
        if not conditions:
            raise TopologyError("branch", "no conditions are given", then="give at least one")
        streams: list[Stream[K, V]] = []
        rest: Stream[K, V] = self
        for condition in conditions:
            if is_column(condition) or isinstance(condition, str):
                self._node.check_columns(condition, "branch")
                yes = building.derive(
                    self._app, "branch", Filter(((condition, True),)), [rest.node]
                )
                no = building.derive(
                    self._app, "branch", Filter(((condition, False),)), [rest.node]
                )
            else:
                yes, no = (
                    building.derive(
                        self._app, "branch", building.called(condition, kind, "branch"), [rest.node]
                    )
                    for kind in ("filter", "filter_not")
                )
            streams.append(Stream(self._app, yes))
            rest = Stream(self._app, no)
        return [*streams, rest]

    def merge(self, *others: Stream[K, V], name: str | None = None) -> Stream[K, V]:
        """Has the records of several streams, whose values must have the same columns."""
        nodes = [self._node, *(each.node for each in others)]
        for each in nodes[1:]:
            mine, theirs = self._node.columns, each.columns
            if mine is not None and theirs is not None and set(mine) != set(theirs):
                differ = ", ".join(sorted(set(mine) ^ set(theirs)))
                raise TopologyError(
                    name or "merge",
                    f"{self._node.name} and {each.name} differ in the columns {differ}",
                    then="select the same columns in both",
                )
        value = self._node.value
        if any(each.value is None or each.value != value for each in nodes):
            value = value if all(_same(each, self._node) for each in nodes) else None
        return self._next(
            building.derive(self._app, "merge", Merge(), nodes, name=name, value=value)
        )

    def repartition(
        self, partitions: int | None = None, *, name: str | None = None
    ) -> Stream[K, V]:
        """Writes the records to an internal topic by their key, and reads them there."""
        return self._next(
            building.derive(
                self._app, "repartition", Repartition(partitions), [self._node], name=name
            )
        )

    def peek(self, function: Callable[[V], object], *, name: str | None = None) -> Stream[K, V]:
        """Calls a function for each value, for its side effects: at least once."""
        call = building.called(function, "peek", name or "peek")
        return self._next(building.derive(self._app, "peek", call, [self._node], name=name))

    def foreach(self, function: Callable[[V], object], *, name: str | None = None) -> None:
        """Calls a function for each value, and ends there: at least once."""
        call = building.called(function, "foreach", name or "foreach")
        self._app.add_end(building.derive(self._app, "foreach", call, [self._node], name=name))

    def on_error(self, handler: OnError) -> Stream[K, V]:
        """Says what happens when the operator that made this stream fails for a record."""
        return self._next(building.renamed(self._app, self._node, on_error=handler))

    # Ends

    def to(
        self,
        topic: str | Column | Callable[[Record[K, V]], str],
        *,
        key: Any = None,
        value: Any = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the records to a topic, or to the one that a column or a function names for each.
        `key` and `value` are serdes; `partitions` is for a topic that does not exist yet."""
        building.sink(
            self._app,
            self._node,
            topic,
            key=key,
            value=value,
            partitions=partitions,
            name=name,
        )

    def to_table(self, *, name: str | None = None) -> Table[K, V]:
        """Takes the records as changes of a table: the latest one of a key is its value, and null
        deletes it."""
        from headwater.streams.table import Table, materialized

        node = building.derive(
            self._app, "to_table", Merge(), [self._node], name=name, is_table=True
        )
        return Table(self._app, materialized(self._app, node, name))

    # Stateful operators

    def group_by_key(self) -> Grouped[K, V]:
        """Groups by the key that the records have."""
        from headwater.streams.grouped import Grouped

        return Grouped(self._app, self._node)

    @overload
    def group_by(self, column: Callable[[V], K2]) -> Grouped[K2, V]: ...
    @overload
    def group_by(self, column: Column | str, *more: Column | str) -> Grouped[Any, V]: ...
    def group_by(self, column: Any, *more: Any, to: Any = None) -> Grouped[Any, V]:
        """Groups by a column, by several, or by what a function of the value returns."""
        from headwater.streams.grouped import Grouped

        node = building.rekeyed(self._app, self._node, (column, *more), "group_by", to=to)
        return Grouped(self._app, node)

    def join(
        self,
        other: Stream[Any, W] | Table[Any, W] | GlobalTable[Any, W],
        *,
        on: str | Sequence[str] | Column | None = None,
        how: str = "inner",
        within: Duration | None = None,
        before: Duration | None = None,
        after: Duration | None = None,
        combine: Callable[..., Any] | None = None,
        to: type[Any] | None = None,
        name: str | None = None,
    ) -> Stream[Any, Any]:
        """Joins with a stream (within a time), a table (as of the record's time) or a global table.

        on: the column of this stream with the key; of both, if the other is a stream. Default: keys
        how: inner, left; with a stream also right, outer, semi
        within: how far apart the records of two streams may be; `before` and `after` say how much
            earlier or later than this stream's record the other one may be
        combine: a function of both values (None where there is none) that makes the result;
            without it the result has the columns of both
        """
        from headwater.streams import joining

        if isinstance(other, Stream):
            return joining.streams(
                self,
                other,
                within=within,
                before=before,
                after=after,
                on=on,
                how=how,
                combine=combine,
                to=to,
                name=name,
            )
        if within is not None or before is not None or after is not None:
            raise TopologyError(
                name or "join", "a join with a table takes no time", then="leave out within="
            )
        return joining.with_table(self, other, on=on, how=how, combine=combine, to=to, name=name)

    def process(
        self,
        processor: Processor[K, V, W] | type[Processor[K, V, W]],
        *,
        to: type[W] | None = None,
        name: str | None = None,
    ) -> Stream[K, W]:
        """Runs a processor, with state and timers for each key."""
        from headwater.streams.keyed import processor_node

        node = processor_node(self._app, self._node, processor, to=to, name=name)
        return Stream(self._app, node)

    def deduplicate(
        self,
        *,
        within: Duration,
        on: str | Column | None = None,
        name: str | None = None,
    ) -> Stream[K, V]:
        """Drops records whose key (or `on`) came before within this event time."""
        from headwater.streams.keyed import deduplicate_node

        how_long = duration(within, name or "deduplicate")
        return self._next(
            deduplicate_node(self._app, self._node, within=how_long, on=on, name=name)
        )

    def frame(
        self,
        function: Callable[[DataFrame], DataFrame],
        *,
        to: type[W] | None = None,
        stateful: bool = True,
        name: str | None = None,
    ) -> Stream[K, W]:
        """Leaves to plain Spark: the function takes the DataFrame of the stream and returns one.
        `stateful=False` says that it works row by row, so that it needs no query of its own."""
        what = name or "frame"
        value = None if to is None else building.shape(to, what)
        node = building.derive(
            self._app,
            "frame",
            Frame(function, f"frame {getattr(function, '__name__', 'function')}()", stateful),
            [self._node],
            name=name,
            value=value,
            columns=None if value is None else tuple(value.names),
        )
        return Stream(self._app, node)

    def _next(self, node: Node) -> Stream[Any, Any]:
        return Stream(self._app, node)


def _same(one: Node, other: Node) -> bool:
    if one.value is None or other.value is None:
        return False
    return bool(one.value.python == other.value.python)
