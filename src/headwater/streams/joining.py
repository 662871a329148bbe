"""The nodes of joins: two streams, a stream and a table, two tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.streams import building
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import is_column, written
from headwater.streams.topology import (
    Call,
    ForeignKeyJoin,
    GlobalJoin,
    Keyed,
    Node,
    Source,
    StreamJoin,
    result_type,
)
from headwater.streams.windows import Duration, duration

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headwater.streams.stream import Stream
    from headwater.streams.table import GlobalTable, Table
    from headwater.streams.types import Shape

STREAM_JOINS = ("inner", "left", "right", "outer", "semi")


def streams(
    left: Stream[Any, Any],
    right: Stream[Any, Any],
    *,
    within: Duration | None,
    before: Duration | None,
    after: Duration | None,
    on: Any,
    how: str,
    combine: Callable[..., Any] | None,
    to: Any,
    name: str | None,
) -> Stream[Any, Any]:
    from headwater.streams.stream import Stream

    what = name or "join"
    check_how(how, STREAM_JOINS, what)
    if within is None and before is None and after is None:
        raise TopologyError(
            what,
            "a join of two streams needs to know how far apart their records may be",
            then='give within="10 minutes", or make a table of one with .to_table()',
        )
    both = timedelta() if within is None else duration(within, f"{what}: within")
    earlier = both if before is None else duration(before, f"{what}: before")
    later = both if after is None else duration(after, f"{what}: after")
    names = names_on(on, what)
    app = left.app
    nodes = [left.node, right.node]
    if names is not None:
        nodes = [building.rekeyed(app, node, names, "key") for node in nodes]
    operation = StreamJoin(how=how, before=earlier, after=later, on=names)
    if combine is None:
        columns = joined_columns(left.node, right.node, names or (), only_left=how == "semi")
        value = left.node.value if how == "semi" else None
        node = building.derive(
            app, "join", operation, nodes, name=name, value=value, columns=columns, is_table=False
        )
        return Stream(app, node)
    if how == "semi":
        raise TopologyError(what, "a semi join has no values to combine", then="leave out combine=")
    nested = [nest(app, node, side) for node, side in zip(nodes, ("left", "right"), strict=True)]
    operation = StreamJoin(how=how, before=earlier, after=later, on=None)
    node = building.derive(
        app,
        "join",
        operation,
        nested,
        name=name,
        value=None,
        columns=("left", "right"),
        is_table=False,
    )
    result = building.shape(result_type(combine, to, what), what)
    both_values = CombinedValues(combine, left.node.value, right.node.value)
    call = Call(both_values, "map", written(combine))
    combined = building.derive(
        app, "combine", call, [node], value=result, columns=tuple(result.names)
    )
    return Stream(app, combined)


@dataclass(frozen=True, slots=True)
class CombinedValues:
    """Calls the function of a join with both values."""

    combine: Callable[..., Any]
    left: Shape | None
    right: Shape | None

    def __call__(self, row: Mapping[str, Any]) -> Any:
        return self.combine(value_of(row["left"], self.left), value_of(row["right"], self.right))


def value_of(row: Mapping[str, Any] | None, shape: Shape | None) -> Any:
    """Returns the value of a row of columns; None if there is none."""
    if row is None:
        return None
    if shape is not None:
        return shape.to_python(row)
    return row["value"] if tuple(row) == ("value",) else row


def nest(app: Any, node: Node, side: str) -> Node:
    """Makes one column of the value of a node: a struct."""
    from headwater.streams.expressions import f
    from headwater.streams.topology import Project

    if node.columns is None:
        raise TopologyError(
            node.name,
            "its columns are only known to Spark",
            then="select them, or give the type with to=, before combine=",
        )
    nested = ((side, f.struct(*(f.col(each) for each in node.columns))),)
    made: Node = building.derive(app, "nest", Project(nested), [node], value=None, columns=(side,))
    return made


def check_how(how: str, known: Sequence[str], what: str) -> None:
    if how not in known:
        raise TopologyError(what, f"how={how!r}", then=f"expected {', '.join(known)}")


def names_on(on: Any, what: str) -> tuple[str, ...] | None:
    """Returns the columns that both sides have."""
    if on is None:
        return None
    names = (on,) if isinstance(on, str) else tuple(on) if isinstance(on, list | tuple) else ()
    if not names or not all(isinstance(each, str) for each in names):
        raise TopologyError(
            what, f"on={on!r} is not the name of a column", then='give a name such as on="order_id"'
        )
    return names


def joined_columns(
    left: Node, right: Node, on: Sequence[str], *, only_left: bool = False
) -> tuple[str, ...] | None:
    """Returns the columns of the result, if they are known."""
    if only_left or left.columns is None or right.columns is None:
        return left.columns if only_left else None
    return (*left.columns, *names_of_right(left.columns, right.columns, on).values())


def names_of_right(
    left: Sequence[str], right: Sequence[str], on: Sequence[str] = ()
) -> dict[str, str]:
    """Returns what the columns of the right side are called in the result: by their names, or with
    `right_` before them where the left side has such a column. Those of `on` are there once."""
    found: dict[str, str] = {}
    for name in right:
        if name in on and name in left:
            continue
        label = name
        while label in left or label in found.values():
            label = f"right_{label}"
        found[name] = label
    return found


# Joins with tables


def with_table(
    left: Stream[Any, Any],
    right: Table[Any, Any] | GlobalTable[Any, Any],
    *,
    on: Any,
    how: str,
    combine: Callable[..., Any] | None,
    to: Any,
    name: str | None,
) -> Stream[Any, Any]:
    from headwater.streams.stream import Stream
    from headwater.streams.table import GlobalTable

    what = name or "join"
    check_how(how, ("inner", "left"), what)
    kind: Any = how
    app = left.app
    joined = Joined.of(left.node, right.node, combine, to, what)
    if isinstance(right, GlobalTable):
        source = right.node.operation
        assert isinstance(source, Source)
        if on is not None:
            left.node.check_columns(on, what)
        operation: Any = GlobalJoin(
            how=how, topic=source.topics[0], lookup=on, table=right.node, joined=joined
        )
        nodes = [left.node]
    else:
        by = left.node
        if on is not None:
            columns = [on] if isinstance(on, str) or is_column(on) else list(on)
            by = building.rekeyed(app, by, columns, "key")
        history = None
        if isinstance(right.node.operation, Source):
            history = right.node.operation.versioned

        def make(schemas: Sequence[StructType], _final: bool) -> tuple[Any, StructType]:
            from headwater.streams.joins import StreamTableJoin

            function, fields = joined.resolved(schemas)
            kept = None if history is None else round(history.total_seconds() * 1000)
            return StreamTableJoin(combine=function, how=kind, history=kept), fields

        operation = Keyed(
            what=f"{how} join with table {right.node.name}",
            make=make,
            time="none" if history is None else "event",
            keeps_null_keys=how == "left",
            can_fail=combine is not None,
        )
        nodes = [by, right.node]
    node = building.derive(
        app,
        "join",
        operation,
        nodes,
        name=name,
        value=joined.result,
        columns=joined.columns,
        is_table=False,
    )
    return Stream(app, node)


def tables(
    left: Table[Any, Any],
    right: Table[Any, Any],
    *,
    foreign_key: str | None,
    how: str,
    combine: Callable[..., Any] | None,
    to: Any,
    name: str | None,
) -> Node:
    what = name or "join"
    check_how(how, ("inner", "left") if foreign_key else ("inner", "left", "outer"), what)
    kind: Any = how
    joined = Joined.of(left.node, right.node, combine, to, what)
    operation: Any
    if foreign_key is not None:
        left.node.check_columns(foreign_key, what)
        make_both = joined.resolved if combine is None else _nested
        operation = ForeignKeyJoin(foreign_key=foreign_key, how=how, make=make_both)
        if combine is not None:
            # It may fail, and between the parts of the join there is no way out for dead letters.
            nested = building.derive(
                left.app,
                "join",
                operation,
                [left.node, right.node],
                value=None,
                columns=("left", "right"),
                is_table=True,
            )
            both = CombinedValues(combine, left.node.value, right.node.value)
            return building.derive(
                left.app,
                "combine",
                Call(both, "map", written(combine)),
                [nested],
                name=name,
                value=joined.result,
                columns=joined.columns,
            )
    else:
        versioned = _is_versioned(left.node), _is_versioned(right.node)

        def make(schemas: Sequence[StructType], _final: bool) -> tuple[Any, StructType]:
            from headwater.streams.joins import TableTableJoin

            function, fields = joined.resolved(schemas)
            machine = TableTableJoin(function, kind, versioned)
            return machine, fields

        operation = Keyed(
            what=f"{how} join with table {right.node.name}",
            make=make,
            can_fail=combine is not None,
        )
    return building.derive(
        left.app,
        "join",
        operation,
        [left.node, right.node],
        name=name,
        value=joined.result,
        columns=joined.columns,
        is_table=True,
    )


def _nested(schemas: Sequence[StructType]) -> tuple[Any, StructType]:
    """Returns a function that keeps both sides as they are, and the fields of its result."""
    from pyspark.sql.types import StructType

    left, right = schemas
    return _both_sides, StructType().add("left", left).add("right", right)


def _both_sides(left: Any, right: Any) -> dict[str, Any]:
    return {"left": left, "right": right}


def _is_versioned(node: Node) -> bool:
    return isinstance(node.operation, Source) and node.operation.versioned is not None


@dataclass(frozen=True, slots=True)
class Joined:
    """The result of a join: the columns of both sides, or what a function of both values makes."""

    left: Shape | None
    right: Shape | None
    columns: tuple[str, ...] | None
    combine: Callable[..., Any] | None
    result: Shape | None

    @classmethod
    def of(
        cls, left: Node, right: Node, combine: Callable[..., Any] | None, to: Any, what: str
    ) -> Joined:
        if combine is None:
            columns = joined_columns(left, right, ())
            result = None if to is None else building.shape(to, what)
            return cls(left.value, right.value, columns, None, result)
        if not callable(combine):
            raise TopologyError(what, f"combine={combine!r}", then="give a function of both values")
        result = building.shape(result_type(combine, to, what), what)
        return cls(left.value, right.value, tuple(result.names), combine, result)

    def resolved(
        self, schemas: Sequence[StructType]
    ) -> tuple[Callable[[Any, Any], dict[str, Any] | None], StructType]:
        """Returns the function of the columns of both sides, and the fields of its result."""
        from pyspark.sql.types import StructField, StructType

        mine, theirs = schemas
        if self.combine is None:
            labels = names_of_right(mine.fieldNames(), theirs.fieldNames())
            fields = [
                *mine.fields,
                *(StructField(labels[each.name], each.dataType) for each in theirs.fields),
            ]
            return CombinedColumns(labels), StructType(fields)
        assert self.result is not None
        left, right = (
            shape if shape is not None and shape.names == schema.fieldNames() else None
            for shape, schema in ((self.left, mine), (self.right, theirs))
        )
        return CombinedRows(self.combine, left, right, self.result), self.result.schema


@dataclass(frozen=True, slots=True)
class CombinedColumns:
    """Has the columns of both sides; `labels` says what those of the right one are called."""

    labels: Mapping[str, str]

    def __call__(
        self, left: Mapping[str, Any] | None, right: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        found = dict(left or {})
        if right is not None:
            found.update((self.labels[name], value) for name, value in right.items())
        return found


@dataclass(frozen=True, slots=True)
class CombinedRows:
    """Calls a function with both values, and returns the columns of what it makes."""

    combine: Callable[..., Any]
    left: Shape | None
    right: Shape | None
    result: Shape

    def __call__(
        self, left: Mapping[str, Any] | None, right: Mapping[str, Any] | None
    ) -> dict[str, Any] | None:
        found = self.combine(value_of(left, self.left), value_of(right, self.right))
        return None if found is None else self.result.to_row(found)
