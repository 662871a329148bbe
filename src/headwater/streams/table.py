"""`Table[K, V]`: the latest value of each key, as a stream of changes.

A named table is also a compacted topic, `APP-NAME-changelog`, from which a `TableView` reads it in
any process, and from which its state can be rebuilt.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headwater.streams import building
from headwater.streams.errors import TopologyError
from headwater.streams.stream import Stream
from headwater.streams.topology import Aggregate, Keyed, Merge, Node, OnError
from headwater.streams.windows import Duration, duration

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headwater.streams.app import App
    from headwater.streams.grouped import GroupedTable
    from headwater.streams.processor import Record

K = TypeVar("K")
V = TypeVar("V")
K2 = TypeVar("K2")
V2 = TypeVar("V2")
W = TypeVar("W")


class Table(Generic[K, V]):
    """The latest value of each key."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node

    def __repr__(self) -> str:
        return f"<Table {self._node.name}>"

    @property
    def node(self) -> Node:
        return self._node

    @property
    def app(self) -> App:
        return self._app

    def filter(
        self, condition: Callable[[V], bool] | Column | str, *, name: str | None = None
    ) -> Table[K, V]:
        """Has the rows for which the condition holds; others are deleted."""
        return self._next(
            building.filtered(self._app, self._node, condition, negated=False, name=name), name
        )

    def filter_not(
        self, condition: Callable[[V], bool] | Column | str, *, name: str | None = None
    ) -> Table[K, V]:
        """Has the rows for which the condition does not hold."""
        return self._next(
            building.filtered(self._app, self._node, condition, negated=True, name=name), name
        )

    @overload
    def map(
        self, function: Column | str, *, to: type[W], name: str | None = None
    ) -> Table[K, W]: ...
    @overload
    def map(
        self, function: Column | str, *, to: None = None, name: str | None = None
    ) -> Table[K, Any]: ...
    @overload
    def map(
        self, function: Callable[[V], W], *, to: type[W] | None = None, name: str | None = None
    ) -> Table[K, W]: ...
    def map(self, function: Any, *, to: Any = None, name: str | None = None) -> Table[K, Any]:
        """Makes another value of each value; deletions stay deletions."""
        return self._next(
            building.mapped(self._app, self._node, function, "map", to=to, name=name), name
        )

    def select(
        self,
        *columns: Column | str,
        to: type[Any] | None = None,
        name: str | None = None,
        **more: Any,
    ) -> Table[K, Any]:
        """Makes a record of columns."""
        found = building.named(columns, more, name or "select")
        return self._next(
            building.projected(
                self._app, self._node, found, "select", adds=False, to=to, name=name
            ),
            name,
        )

    def with_columns(
        self, *, to: type[Any] | None = None, name: str | None = None, **columns: Any
    ) -> Table[K, Any]:
        """Adds columns to the value, or replaces them."""
        found = building.named((), columns, name or "with_columns")
        return self._next(
            building.projected(
                self._app, self._node, found, "with_columns", adds=True, to=to, name=name
            ),
            name,
        )

    def final(self) -> Table[K, V]:
        """Has one result for each window, when it closes, instead of one for each change."""
        operation = self._node.operation
        if not isinstance(operation, Aggregate | Keyed) or operation.window is None:
            raise TopologyError(
                self._node.name,
                "final() is for an aggregation in windows, right behind it",
                then='window it first: .window(tumbling("5 minutes"))',
            )
        final = replace(operation, final=True)
        return self._next(building.renamed(self._app, self._node, operation=final), None)

    def suppress(self, *, until: Duration, name: str | None = None) -> Table[K, V]:
        """Has the latest change of a key once this long, in event time, has passed after the first
        one."""
        from headwater.streams.keyed import suppress_node

        how_long = duration(until, name or "suppress")
        return self._next(suppress_node(self._app, self._node, until=how_long, name=name), name)

    def on_error(self, handler: OnError) -> Table[K, V]:
        """Says what happens when the operator that made this table fails for a record."""
        return self._next(building.renamed(self._app, self._node, on_error=handler), None)

    def to_stream(self, *, name: str | None = None) -> Stream[K, V]:
        """Takes the changes as records; a deletion is one without a value."""
        node = building.derive(
            self._app, "to_stream", Merge(), [self._node], name=name, is_table=False, store=None
        )
        return Stream(self._app, node)

    def to(
        self,
        topic: str | Column | Callable[[Record[K, V]], str],
        *,
        key: Any = None,
        value: Any = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> None:
        """Writes the changes to a topic; deletions are records without a value."""
        building.sink(
            self._app, self._node, topic, key=key, value=value, partitions=partitions, name=name
        )

    @overload
    def group_by(self, column: Callable[[V], K2]) -> GroupedTable[K2, V]: ...
    @overload
    def group_by(self, column: Column | str, *more: Column | str) -> GroupedTable[Any, V]: ...
    def group_by(self, column: Any, *more: Any, to: Any = None) -> GroupedTable[Any, V]:
        """Groups the rows by a column of their values. When a row changes, its old value leaves its
        group, and the new one joins another."""
        from headwater.streams.grouped import GroupedTable
        from headwater.streams.keyed import changes_node

        node = changes_node(self._app, self._node, (column, *more), to=to)
        return GroupedTable(self._app, node)

    def join(
        self,
        other: Table[Any, W],
        *,
        foreign_key: str | None = None,
        how: str = "inner",
        combine: Callable[..., Any] | None = None,
        to: type[Any] | None = None,
        name: str | None = None,
    ) -> Table[K, Any]:
        """Joins with a table by their keys, or by a column of this one with keys of the other.

        how: inner, left; by keys also outer
        combine: a function of both values (None where there is none) that makes the result;
            without it the result has the columns of both
        """
        from headwater.streams import joining

        node = joining.tables(
            self, other, foreign_key=foreign_key, how=how, combine=combine, to=to, name=name
        )
        return self._next(node, name)

    def _next(self, node: Node, name: str | None) -> Table[Any, Any]:
        return Table(self._app, materialized(self._app, node, name))


class GlobalTable(Generic[K, V]):
    """A whole topic in each worker, for joins."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node

    @property
    def node(self) -> Node:
        return self._node


def materialized(app: App, node: Node, name: str | None) -> Node:
    """Names the store of a table; one that was read from a topic is that topic."""
    from headwater.streams.topology import Source

    if name is None or node.store is not None or isinstance(node.operation, Source):
        return node
    return building.renamed(app, node, store=name)
