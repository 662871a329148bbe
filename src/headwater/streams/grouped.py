"""Groups and their aggregations: built-in ones with columns, others with Python functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from headwater.streams import building
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import f, is_column
from headwater.streams.table import Table, materialized
from headwater.streams.topology import Aggregate, Merge, Named, Node, Project, result_type
from headwater.streams.windows import Window, Windowed

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headwater.streams.app import App

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Grouped(Generic[K, V]):
    """A stream by key, and in windows."""

    def __init__(self, app: App, node: Node, window: Window | None = None) -> None:
        self._app = app
        self._node = node
        self._window = window

    @property
    def node(self) -> Node:
        return self._node

    def window(self, window: Window) -> Grouped[Windowed[K], V]:
        """Splits each group into windows of event time."""
        if not isinstance(window, Window):
            raise TopologyError(
                "window",
                f"{window!r} is not a window",
                then='give tumbling("5 minutes"), for example',
            )
        return Grouped(self._app, self._node, window)

    def count(self, *, name: str | None = None) -> Table[K, int]:
        """Counts the records of each group; those without a value do not count."""
        return self._aggregate("count", (("value", f.count(f.lit(1))),), to=int, name=name)

    def sum(self, column: Column | str, *, name: str | None = None) -> Table[K, Any]:
        return self._aggregate("sum", (("value", f.sum(column)),), name=name)

    def min(self, column: Column | str, *, name: str | None = None) -> Table[K, Any]:
        return self._aggregate("min", (("value", f.min(column)),), name=name)

    def max(self, column: Column | str, *, name: str | None = None) -> Table[K, Any]:
        return self._aggregate("max", (("value", f.max(column)),), name=name)

    def avg(self, column: Column | str, *, name: str | None = None) -> Table[K, float]:
        return self._aggregate("avg", (("value", f.avg(column)),), to=float, name=name)

    @overload
    def agg(self, *, to: type[W], name: str | None = None, **columns: Any) -> Table[K, W]: ...
    @overload
    def agg(self, *, to: None = None, name: str | None = None, **columns: Any) -> Table[K, Any]: ...
    def agg(self, *, to: Any = None, name: str | None = None, **columns: Any) -> Table[K, Any]:
        """Aggregates with functions of Spark: `agg(total=f.sum("total"), last=f.max("at"))`."""
        found = building.named((), columns, name or "agg")
        for label, column in found:
            if not is_column(column):
                raise TopologyError(
                    name or "agg",
                    f"{label}={column!r} is not an aggregate",
                    then="give f.sum(...), for example; functions go to .aggregate(...)",
                )
        return self._aggregate("agg", found, to=to, name=name)

    def reduce(self, function: Callable[[V, V], V], *, name: str | None = None) -> Table[K, V]:
        """Combines the values of each group, two at a time."""
        from headwater.streams.keyed import reduce_node

        node = reduce_node(self._app, self._node, function, window=self._window, name=name)
        return Table(self._app, materialized(self._app, node, name))

    def aggregate(
        self,
        initial: Callable[[], W] | W,
        add: Callable[[W, V], W],
        *,
        merge: Callable[[W, W], W] | None = None,
        to: type[W] | None = None,
        name: str | None = None,
    ) -> Table[K, W]:
        """Folds the values of each group into one: `add(aggregate, value)`, from `initial` (or what
        it returns) on. `merge` joins two sessions."""
        from headwater.streams.keyed import aggregate_node

        node = aggregate_node(
            self._app,
            self._node,
            initial,
            add,
            merge=merge,
            window=self._window,
            to=to,
            name=name,
        )
        return Table(self._app, materialized(self._app, node, name))

    def _aggregate(
        self, kind: str, columns: Named, *, to: Any = None, name: str | None
    ) -> Table[Any, Any]:
        for _, column in columns:
            self._node.check_columns(column, name or kind)
        value = None if to is None else building.shape(to, name or kind)
        names = tuple(each for each, _ in columns)
        if value is not None and set(value.names) != set(names):
            missing = ", ".join(sorted(set(value.names) ^ set(names)))
            raise TopologyError(
                name or kind,
                f"the columns are not those of {value.type_name}: {missing}",
                then="aggregate exactly its fields",
            )
        node = building.derive(
            self._app,
            kind,
            Aggregate(aggregates=columns, window=self._window),
            [self._node],
            name=name,
            value=value,
            columns=names,
            is_table=True,
            is_windowed=self._window is not None,
            key=None if self._window is not None else self._node.key,
        )
        return Table(self._app, materialized(self._app, node, name))


class Cogrouped:
    """Several groups with the same key, aggregated together."""

    def __init__(
        self, app: App, groups: dict[str, Grouped[Any, Any]], window: Window | None = None
    ) -> None:
        self._app = app
        self._groups = groups
        self._window = window

    def window(self, window: Window) -> Cogrouped:
        """Splits each group into windows of event time."""
        return Cogrouped(self._app, self._groups, window)

    def agg(self, *, to: Any = None, name: str | None = None, **columns: Any) -> Table[Any, Any]:
        """Aggregates with functions of Spark, over a struct column for each group, which is null in
        the records of others: `agg(clicks=f.count("clicks"), spent=f.sum("orders.total"))`."""
        nodes = []
        for label, group in self._groups.items():
            own = group.node.columns
            if own is None:
                raise TopologyError(
                    name or "cogroup",
                    f"the columns of {group.node.name} are only known to Spark",
                    then="select them before the group_by",
                )
            nested = ((label, f.struct(*(f.col(each) for each in own))),)
            node = building.derive(
                self._app, "cogroup", Project(nested), [group.node], value=None, columns=(label,)
            )
            nodes.append(node)
        merged = building.derive(
            self._app, "cogroup", Merge(), nodes, value=None, columns=tuple(self._groups)
        )
        return Grouped[Any, Any](self._app, merged, self._window).agg(to=to, name=name, **columns)

    def aggregate(
        self,
        initial: Callable[[], W] | W,
        *,
        to: type[W] | None = None,
        name: str | None = None,
        **add: Callable[[Any, Any], Any],
    ) -> Table[Any, W]:
        """Folds the values of all groups into one: a function `add(aggregate, value)` for each."""
        from headwater.streams.keyed import cogroup_node

        unknown = set(add) ^ set(self._groups)
        if unknown:
            raise TopologyError(
                name or "cogroup",
                f"{', '.join(sorted(unknown))}: groups and functions differ",
                then="give one function for each group, under its name",
            )
        adders = [add[label] for label in self._groups]
        nodes = [each.node for each in self._groups.values()]
        kind = result_type(adders[0], to, name or "cogroup")
        node = cogroup_node(
            self._app, nodes, initial, adders, window=self._window, to=kind, name=name
        )
        return Table(self._app, materialized(self._app, node, name))


def cogroup(**groups: Grouped[Any, Any]) -> Cogrouped:
    """Groups several streams by the same key: `cogroup(clicks=clicks.group_by("user"), ...)`."""
    if len(groups) < 2:
        raise TopologyError("cogroup", "fewer than two groups are given", then="give NAME=group")
    return Cogrouped(next(iter(groups.values()))._app, groups)


class GroupedTable(Generic[K, V]):
    """The rows of a table by another key. A row that changes leaves its group with its old value
    and joins one with its new value."""

    def __init__(self, app: App, node: Node) -> None:
        self._app = app
        self._node = node  # its rows have a column _change: -1 for an old value, 1 for a new one

    def count(self, *, name: str | None = None) -> Table[K, int]:
        return self._signed("count", (("value", f.sum("_change")),), to=int, name=name)

    def sum(self, column: Column | str, *, name: str | None = None) -> Table[K, Any]:
        return self._signed("sum", (("value", f.sum(_col(column) * f.col("_change"))),), name=name)

    def reduce(
        self,
        add: Callable[[V, V], V],
        subtract: Callable[[V, V], V],
        *,
        name: str | None = None,
    ) -> Table[K, V]:
        """Combines the values of each group; `subtract` takes an old value out again."""
        from headwater.streams.keyed import reduce_node

        node = reduce_node(self._app, self._node, add, subtract=subtract, name=name)
        return Table(self._app, materialized(self._app, node, name))

    def aggregate(
        self,
        initial: Callable[[], W] | W,
        add: Callable[[W, V], W],
        subtract: Callable[[W, V], W],
        *,
        to: type[W] | None = None,
        name: str | None = None,
    ) -> Table[K, W]:
        """Folds the values of each group into one; `subtract` takes an old value out again."""
        from headwater.streams.keyed import aggregate_node

        node = aggregate_node(
            self._app, self._node, initial, add, subtract=subtract, to=to, name=name
        )
        return Table(self._app, materialized(self._app, node, name))

    def _signed(
        self, kind: str, columns: Named, *, to: Any = None, name: str | None
    ) -> Table[Any, Any]:
        value = None if to is None else building.shape(to, name or kind)
        node = building.derive(
            self._app,
            kind,
            Aggregate(aggregates=columns),
            [self._node],
            name=name,
            value=value,
            columns=("value",),
            is_table=True,
            is_windowed=False,
        )
        return Table(self._app, materialized(self._app, node, name))


def _col(column: Any) -> Any:
    return f.col(column) if isinstance(column, str) else column
