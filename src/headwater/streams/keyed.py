"""The nodes of keyed machines: processors, aggregates of Python functions, tables grouped anew,
suppression, deduplication.

A node makes its machine when the columns of its inputs are known (`Keyed.make`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headwater.streams import building
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import is_column, written
from headwater.streams.topology import (
    Keyed,
    Named,
    Node,
    Source,
    result_type,
    written_column,
)
from headwater.streams.windows import Window, readable

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from headwater.streams.app import App
    from headwater.streams.machine import KeyedMachine
    from headwater.streams.processor import Processor
    from headwater.streams.tables import Fold
    from headwater.streams.types import Shape

GROUP = "__group"  # a column: the new key of a table's row


def milliseconds(given: timedelta) -> int:
    return round(given.total_seconds() * 1000)


def processor_node(
    app: App,
    node: Node,
    processor: Processor[Any, Any, Any] | type[Processor[Any, Any, Any]],
    *,
    to: Any,
    name: str | None,
) -> Node:
    from headwater.streams.processor import Processor, ProcessorMachine, types_of

    cls = processor if isinstance(processor, type) else type(processor)
    what = name or cls.__name__
    if not issubclass(cls, Processor):
        raise TopologyError(
            what, f"{cls.__name__} is not a Processor", then="derive it from Processor"
        )
    types = types_of(processor)
    out = types.out if to is None else to
    if out is None:
        raise TopologyError(
            what,
            "the type of its results is unknown",
            then=f"declare it: class {cls.__name__}(Processor[KEY, VALUE, RESULT])",
        )
    value = building.shape(out, what)
    out_key = None if types.out_key is None else building.shape(types.out_key, what)
    given = node.value
    if given is None and types.value is not None:
        given = building.shape(types.value, what)
    _check_given(node, given, types.value, what)
    machine = ProcessorMachine(processor, what, node.key, given, value, out_key)

    def make(schemas: Sequence[StructType], _final: bool) -> tuple[KeyedMachine, StructType]:
        if given is not None:
            _check_columns(schemas[0], given, what, node)
        return machine, value.schema

    operation = Keyed(
        what=f"process {cls.__name__}",
        make=make,
        time=machine.time,
        version=f"{cls.__name__} {machine.state_version}",
        new_key=out_key,
    )
    return building.derive(
        app,
        _dashed(cls.__name__),
        operation,
        [node],
        name=name,
        key=node.key if out_key is None else out_key,
        value=value,
        columns=tuple(value.names),
        is_table=False,
        is_windowed=node.is_windowed and out_key is None,
    )


def aggregate_node(
    app: App,
    node: Node,
    initial: Any,
    add: Callable[[Any, Any], Any],
    *,
    subtract: Callable[[Any, Any], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
    window: Window | None = None,
    to: Any = None,
    name: str | None = None,
) -> Node:
    kind = result_type(add, to, name or "aggregate")
    return _folded(
        app,
        "aggregate",
        [node],
        (add,),
        initial=initial,
        subtract=subtract,
        merge=merge,
        window=window,
        shape=building.shape(kind, name or "aggregate"),
        name=name,
    )


def reduce_node(
    app: App,
    node: Node,
    function: Callable[[Any, Any], Any],
    *,
    subtract: Callable[[Any, Any], Any] | None = None,
    window: Window | None = None,
    name: str | None = None,
) -> Node:
    return _folded(
        app,
        "reduce",
        [node],
        (function,),
        subtract=subtract,
        merge=function,
        window=window,
        shape=node.value,
        is_reduce=True,
        name=name,
    )


def cogroup_node(
    app: App,
    nodes: Sequence[Node],
    initial: Any,
    adders: Sequence[Callable[[Any, Any], Any]],
    *,
    window: Window | None,
    to: Any,
    name: str | None,
) -> Node:
    return _folded(
        app,
        "cogroup",
        nodes,
        tuple(adders),
        initial=initial,
        window=window,
        shape=building.shape(to, name or "cogroup"),
        name=name,
    )


def _folded(
    app: App,
    kind: str,
    nodes: Sequence[Node],
    add: tuple[Callable[[Any, Any], Any], ...],
    *,
    initial: Any = None,
    subtract: Callable[[Any, Any], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
    window: Window | None,
    shape: Shape | None,
    is_reduce: bool = False,
    name: str | None,
) -> Node:
    what = name or kind
    for function in (*add, *(each for each in (subtract, merge) if each is not None)):
        if not callable(function):
            raise TopologyError(what, f"{function!r} is not a function", then="give a function")
    if window is not None and window.kind == "session" and merge is None:
        raise TopologyError(
            what,
            "sessions that a record joins become one, and how is unknown",
            then="give merge=, a function of two aggregates",
        )
    begin = initial if callable(initial) else _Copies(initial)

    def make(schemas: Sequence[StructType], final: bool) -> tuple[KeyedMachine, StructType]:
        from headwater.streams.tables import Fold

        values = tuple(
            _shape_of_rows(schema, node.value) for schema, node in zip(schemas, nodes, strict=True)
        )
        result = values[0] if is_reduce else shape
        assert result is not None
        fold = Fold(
            add=add,
            initial=begin,
            subtract=subtract,
            merge=merge,
            values=values,
            shape=result,
            first=is_reduce,
        )
        return _windowed(fold, window, final), result.schema

    operation = Keyed(
        what=f"{kind} {', '.join(map(written, add))}()" + (f" in {window}" if window else ""),
        make=make,
        time="none" if window is None else "event",
        window=window,
        restores=window is None or window.kind != "sliding",  # which keeps the records
        version=str(shape.schema.simpleString()) if shape is not None else "",
    )
    return building.derive(
        app,
        kind,
        operation,
        nodes,
        name=name,
        key=None if window is not None else nodes[0].key,
        value=shape,
        columns=None if shape is None else tuple(shape.names),
        is_table=True,
        is_windowed=window is not None,
    )


def _windowed(fold: Fold, window: Window | None, final: bool) -> KeyedMachine:
    from headwater.streams.tables import Aggregate
    from headwater.streams.windowing import SessionAggregate, SlidingAggregate, WindowedAggregate

    if window is None:
        return Aggregate(fold)
    size, grace = milliseconds(window.size), milliseconds(window.grace)
    match window.kind:
        case "session":
            return SessionAggregate(fold, size, grace, final)
        case "sliding":
            return SlidingAggregate(fold, size, grace, final)
        case _:
            return WindowedAggregate(fold, size, milliseconds(window.step), grace, final)


class _Copies:
    """Makes the first aggregate of each key of a value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self) -> Any:
        return copy.deepcopy(self._value)


def changes_node(app: App, node: Node, columns: Sequence[Any], *, to: Any) -> Node:
    """Makes of the changes of a table what goes and what comes, by a new key."""
    first, what = columns[0], "group_by"
    function: Callable[[Any], Any] | None = None
    group: Named = ()
    if len(columns) == 1 and callable(first) and not is_column(first):
        function = first
        key: Shape | None = building.shape(result_type(first, to, what), what)
        label = f"{written(first)}()"
    else:
        group = building.key_columns(node, columns, what)
        key = building.shape(to, what) if to is not None else building.key_of(node, columns)
        label = ", ".join(written_column(column) for _, column in group)
    versioned = isinstance(node.operation, Source) and node.operation.versioned is not None

    def make(schemas: Sequence[StructType], _final: bool) -> tuple[KeyedMachine, StructType]:
        from headwater.streams.tables import TableChanges

        fields = StructType([each for each in schemas[0].fields if each.name != GROUP])
        if function is None:
            return TableChanges(_take_group, versioned=versioned), fields
        assert key is not None
        return TableChanges(
            _GroupOf(function, _shape_of_rows(fields, node.value), key), versioned=versioned
        ), fields

    from pyspark.sql.types import StructType

    operation = Keyed(
        what=f"group by {label}",
        make=make,
        group=group,
        new_key=key,
        changes=True,
        can_fail=function is not None,
        version=label,
    )
    return building.derive(app, "group_by", operation, [node], key=key, is_windowed=False)


def _take_group(row: dict[str, Any]) -> Any:
    return row.get(GROUP)


class _GroupOf:
    """The new key of a row, by a function of its value."""

    def __init__(self, function: Callable[[Any], Any], value: Shape, key: Shape) -> None:
        self._function = function
        self._value = value
        self._key = key

    def __call__(self, row: dict[str, Any]) -> Any:
        found = self._function(self._value.to_python(row))
        if found is None:
            return None
        made = self._key.to_row(found)
        return made if self._key.is_record else made["value"]


def suppress_node(app: App, node: Node, *, until: timedelta, name: str | None) -> Node:
    def make(schemas: Sequence[StructType], _final: bool) -> tuple[KeyedMachine, StructType]:
        from headwater.streams.tables import Suppress

        return Suppress(milliseconds(until)), schemas[0]

    operation = Keyed(
        what=f"suppress until {readable(until)}", make=make, time="event", can_fail=False
    )
    return building.derive(app, "suppress", operation, [node], name=name)


def deduplicate_node(app: App, node: Node, *, within: timedelta, on: Any, name: str | None) -> Node:
    if on is not None:
        node = building.rekeyed(app, node, (on,), "key")

    def make(schemas: Sequence[StructType], _final: bool) -> tuple[KeyedMachine, StructType]:
        from headwater.streams.tables import Deduplicate

        return Deduplicate(milliseconds(within)), schemas[0]

    operation = Keyed(
        what=f"deduplicate within {readable(within)}", make=make, time="event", can_fail=False
    )
    return building.derive(app, "deduplicate", operation, [node], name=name)


def _shape_of_rows(schema: StructType, known: Shape | None) -> Shape:
    """Returns the shape of values with these columns: the declared one, if it is theirs."""
    from headwater.streams.types import VALUE, shape_of

    if known is not None and known.names == schema.fieldNames():
        return known
    if schema.fieldNames() == [VALUE]:
        return shape_of(schema[0].dataType)
    return shape_of(schema)


def _check_given(node: Node, given: Shape | None, declared: Any, what: str) -> None:
    """TopologyError if a processor is declared for another type than the stream has."""
    if declared is None or given is None or node.value is None:
        return
    if declared != node.value.python and not _is_string(node.value.python, declared):
        raise TopologyError(
            what,
            f"it takes {getattr(declared, '__name__', declared)}, and {node.name} has "
            f"{node.value.type_name}",
            then="declare it for that type, or map the stream",
        )


def _is_string(python: Any, declared: Any) -> bool:
    return isinstance(declared, str) and getattr(python, "__name__", None) == declared


def _check_columns(schema: StructType, given: Shape, what: str, node: Node) -> None:
    missing = [name for name in given.names if name not in schema.fieldNames()]
    if missing:
        raise TopologyError(
            what,
            f"{node.name} has no column {missing[0]}, which {given.type_name} needs",
            then="select it",
        )


def _dashed(name: str) -> str:
    found = "".join(f"-{each.lower()}" if each.isupper() else each for each in name)
    return found.strip("-")
