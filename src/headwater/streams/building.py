"""Shared by `Stream`, `Table` and groups: makes nodes, names them, and checks arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.streams.errors import TopologyError, declared_at
from headwater.streams.expressions import is_column, result_name
from headwater.streams.topology import (
    ON_ERROR,
    Call,
    CallKind,
    Filter,
    Named,
    Node,
    OnError,
    Operation,
    Project,
    Rekey,
    Sink,
    result_type,
    written_column,
)

if TYPE_CHECKING:
    from headwater.streams.app import App
    from headwater.streams.types import Shape

VALUE = "value"
WHOLE: Any = None  # a key or a value whose type only Spark knows


def derive(
    app: App,
    kind: str,
    operation: Operation,
    inputs: Sequence[Node],
    *,
    name: str | None = None,
    on_error: OnError | None = None,
    **changes: Any,
) -> Node:
    """Makes a node after others; what is not given is as in the first of them."""
    if on_error is not None and on_error not in ON_ERROR:
        raise TopologyError(
            name or kind, f"on_error {on_error!r}", then=f"expected {', '.join(ON_ERROR)}"
        )
    for each in inputs:
        app.check_own(each, name or kind)
    first = inputs[0]
    known: dict[str, Any] = {
        "key": first.key,
        "value": first.value,
        "columns": first.columns,
        "is_table": first.is_table,
        "is_windowed": first.is_windowed,
    }
    node = Node(
        name=app.name_of(kind, name),
        operation=operation,
        inputs=tuple(inputs),
        is_named=name is not None,
        on_error=on_error,
        place=declared_at(),
        **(known | changes),
    )
    app.add(node)
    return node


def named(columns: Sequence[Any], more: Mapping[str, Any], operator: str) -> Named:
    """Returns columns with their names. TopologyError for one without a name, or two of a name."""
    found: list[tuple[str, Any]] = []
    for each in columns:
        name = result_name(each)
        if not (isinstance(each, str) or is_column(each)):
            raise TopologyError(
                operator, f"{each!r} is not a column", then='give a name such as "total", or f.…'
            )
        if name is None:
            raise TopologyError(
                operator,
                f"the column {written_column(each)} has no name",
                then="name it: NAME=column, or column.alias(NAME)",
            )
        found.append((name, each))
    found += more.items()
    if not found:
        raise TopologyError(operator, "no columns are given", then="give at least one")
    names = [name for name, _ in found]
    for name in names:
        if names.count(name) > 1:
            raise TopologyError(operator, f"two columns are called {name}", then="rename one")
        if name.startswith("_"):
            raise TopologyError(
                operator, f"a column is called {name}", then="only Headwater's begin with '_'"
            )
    return tuple(found)


def shape(kind: Any, what: str) -> Shape:
    from headwater.streams.types import ShapeError, shape_of

    try:
        return shape_of(kind)
    except ShapeError as error:
        raise TopologyError(what, str(error)) from None


def projected(
    app: App, node: Node, columns: Named, operator: str, *, adds: bool, to: Any, name: str | None
) -> Node:
    for _, column in columns:
        node.check_columns(column, name or operator)
    names = [each for each, _ in columns]
    own = tuple(names)
    if adds:
        own = (
            None  # type: ignore[assignment]
            if node.columns is None
            else (*node.columns, *(each for each in names if each not in node.columns))
        )
    value = None
    if to is not None:
        value = shape(to, name or operator)
        if own is not None and set(value.names) != set(own):
            missing = sorted(set(value.names) ^ set(own))
            raise TopologyError(
                name or operator,
                f"the columns are not those of {value.type_name}: {', '.join(missing)}",
                then="select exactly its fields",
            )
        own = tuple(value.names)
    return derive(
        app, operator, Project(columns, adds), [node], name=name, value=value, columns=own
    )


def filtered(app: App, node: Node, condition: Any, *, negated: bool, name: str | None) -> Node:
    kind = "filter_not" if negated else "filter"
    if is_column(condition) or isinstance(condition, str):
        node.check_columns(condition, name or kind)
        operation: Operation = Filter(((condition, not negated),))
    else:
        operation = called(condition, "filter_not" if negated else "filter", name or kind)
    return derive(app, kind, operation, [node], name=name)


def mapped(
    app: App, node: Node, function: Any, operator: str, *, to: Any, name: str | None
) -> Node:
    """For map and flat_map, with a column or a Python function."""
    if is_column(function) or isinstance(function, str):
        columns: Named = ((VALUE, function),)
        return projected(app, node, columns, operator, adds=False, to=to, name=name)
    several = operator == "flat_map"
    kind = result_type(function, to, name or operator, each=several)
    value = shape(kind, name or operator)
    operation = called(function, "flat_map" if several else "map", name or operator)
    return derive(
        app, operator, operation, [node], name=name, value=value, columns=tuple(value.names)
    )


def called(function: Any, kind: CallKind, operator: str) -> Call:
    if not callable(function):
        raise TopologyError(
            operator, f"{function!r} is neither a column nor a function", then="give one of them"
        )
    return Call(function, kind)


def rekeyed(
    app: App,
    node: Node,
    columns: Sequence[Any],
    operator: str,
    *,
    to: Any = None,
    name: str | None = None,
) -> Node:
    """Sets the key to columns, or to what a function of the value returns."""
    if len(columns) == 1 and callable(columns[0]) and not is_column(columns[0]):
        function: Callable[..., Any] = columns[0]
        key = shape(result_type(function, to, name or operator), name or operator)
        call = called(function, "key", name or operator)
        return derive(app, operator, call, [node], name=name, key=key)
    found = key_columns(node, columns, name or operator)
    known = shape(to, name or operator) if to is not None else key_of(node, columns)
    return derive(app, operator, Rekey(found), [node], name=name, key=known)


def key_columns(node: Node, columns: Sequence[Any], operator: str) -> Named:
    """Returns the columns of a key with their names."""
    found: list[tuple[str, Any]] = []
    for at, column in enumerate(columns):
        if not (isinstance(column, str) or is_column(column)):
            raise TopologyError(
                operator, f"{column!r} is not a column", then='give a name such as "country"'
            )
        node.check_columns(column, operator)
        found.append((result_name(column) or f"key{at}", column))
    if not found:
        raise TopologyError(operator, "no columns are given", then="give at least one")
    return tuple(found)


def key_of(node: Node, columns: Sequence[Any]) -> Shape | None:
    """Returns the type of a key that is one field of the value, if that is known."""
    if len(columns) != 1 or not isinstance(columns[0], str) or node.value is None:
        return None
    for field in node.value.schema.fields:
        if field.name == columns[0]:
            if not node.value.is_record:
                return node.value
            return shape(field.dataType, columns[0])
    return node.key if columns[0] == "_key" else None


def sink(
    app: App,
    node: Node,
    to: Any,
    *,
    key: Any,
    value: Any,
    partitions: int | None,
    name: str | None,
) -> None:
    from headwater.spark.pipeline import TOPIC_NAME

    if isinstance(to, str) and not TOPIC_NAME.fullmatch(to):
        raise TopologyError(
            name or "to",
            f"topic {to!r} is not a valid name",
            then="a name has letters, digits, '.', '_' and '-'",
        )
    if not isinstance(to, str) and not is_column(to) and not callable(to):
        raise TopologyError(
            name or "to", f"{to!r} is not the name of a topic", then="give its name"
        )
    if is_column(to):
        node.check_columns(to, name or "to")
    operation = Sink(
        to=to, key_serde=key, value_serde=value, compacted=node.is_table, partitions=partitions
    )
    app.add_end(derive(app, "to", operation, [node], name=name))


def renamed(app: App, node: Node, **changes: Any) -> Node:
    """Returns the node with changes, in place of it."""
    changed = replace(node, **changes)
    app.replace(node, changed)
    return changed
