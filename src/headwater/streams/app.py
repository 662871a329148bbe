"""`App`: the name of an application, its inputs, and everything that is declared after them.

    app = App("shop")
    orders = app.stream("orders", Order, time="at", late="1 minute")
    orders.group_by("country").count(name="orders-by-country")

The name is that of its checkpoints, its group, and its internal topics. Nothing runs here:
`headwater streams run` plans what was declared and runs it, and so does `running.start`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from headwater.streams import building
from headwater.streams.errors import TopologyError, declared_at
from headwater.streams.expressions import is_column
from headwater.streams.stream import Stream
from headwater.streams.table import GlobalTable, Table, materialized
from headwater.streams.topology import ON_ERROR, Frame, Node, OnError, Source
from headwater.streams.windows import Duration, duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headwater.streams.planner import Plan

K = TypeVar("K")
V = TypeVar("V")

Latency = Literal["micro-batch", "real-time"]
_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")


class App:
    """An application: one or more queries of Spark that share a name."""

    def __init__(
        self,
        name: str,
        *,
        on_deserialization_error: OnError = "dead_letter",
        on_processing_error: OnError = "dead_letter",
        on_production_error: OnError = "dead_letter",
        dead_letters: str | None = None,
        latency: Latency = "micro-batch",
        every: Duration | None = None,
        record_bytes_max: int = 1_000_000,
    ) -> None:
        """on_...: what happens to a record that cannot be read, processed or written: "fail",
            "continue" without it, or "dead_letter"
        dead_letters: the topic for them (default: NAME.dead-letters)
        latency: "real-time" for milliseconds, at least once, where the topology allows it
        every: how often a batch starts (default: when there are new records)
        record_bytes_max: keys and values that are longer together cannot be written
        """
        if not _NAME.fullmatch(name):
            raise TopologyError(
                f"app {name!r}",
                "a name begins with a letter or a digit, and has letters, digits, '.', '_' and '-'",
            )
        handlers = (on_deserialization_error, on_processing_error, on_production_error)
        for handler in handlers:
            if handler not in ON_ERROR:
                raise TopologyError(
                    f"app {name}", f"handler {handler!r}", then=f"expected {', '.join(ON_ERROR)}"
                )
        if latency not in ("micro-batch", "real-time"):
            raise TopologyError(
                f"app {name}", f"latency {latency!r}", then='expected "micro-batch" or "real-time"'
            )
        self.name = name
        self.on_deserialization_error = on_deserialization_error
        self.on_processing_error = on_processing_error
        self.on_production_error = on_production_error
        self.dead_letters = dead_letters or f"{name}.dead-letters"
        self.latency: Latency = latency
        self.every = None if every is None else duration(every, f"app {name}: every")
        self.record_bytes_max = record_bytes_max
        self._nodes: list[Node] = []
        self._ends: list[Node] = []
        self._counts: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<App {self.name}>"

    # Inputs

    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        value: type[V],
        *,
        key: type[K],
        time: str | Column | None = None,
        late: Duration = timedelta(),
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Stream[K, V]: ...
    @overload
    def stream(
        self,
        topic: str | Sequence[str],
        value: type[V],
        *,
        time: str | Column | None = None,
        late: Duration = timedelta(),
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Stream[str, V]: ...
    @overload
    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        value: Any = bytes,
        *,
        key: Any = str,
        time: str | Column | None = None,
        late: Duration = timedelta(),
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Stream[Any, Any]: ...
    def stream(
        self,
        topic: str | Sequence[str] | re.Pattern[str],
        value: Any = bytes,
        *,
        key: Any = str,
        time: str | Column | None = None,
        late: Duration = timedelta(),
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Stream[Any, Any]:
        """Reads a topic, several, or those whose names match a pattern, from the beginning.

        value, key: types; a dataclass, a pydantic model or a TypedDict has its fields as columns
        time: the column with the event time (default: the time of the record)
        late: how much later than others a record may come, for windows, joins and timers
        on_error: for records that cannot be read; else as the app says
        key_serde, value_serde: how bytes become values (default: text for str, JSON for others)
        options: of the source, such as {"maxOffsetsPerTrigger": "10000"}
        """
        return Stream(
            self,
            self._source(
                "stream",
                topic,
                value,
                key=key,
                time=time,
                late=late,
                name=name,
                on_error=on_error,
                key_serde=key_serde,
                value_serde=value_serde,
                options=options,
            ),
        )

    @overload
    def table(
        self,
        topic: str,
        value: type[V],
        *,
        key: type[K],
        time: str | Column | None = None,
        versioned: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Table[K, V]: ...
    @overload
    def table(
        self,
        topic: str,
        value: type[V],
        *,
        time: str | Column | None = None,
        versioned: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Table[str, V]: ...
    @overload
    def table(
        self,
        topic: str,
        value: Any = bytes,
        *,
        key: Any = str,
        time: str | Column | None = None,
        versioned: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Table[Any, Any]: ...
    def table(
        self,
        topic: str,
        value: Any = bytes,
        *,
        key: Any = str,
        time: str | Column | None = None,
        versioned: Duration | None = None,
        name: str | None = None,
        on_error: OnError | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
        options: Mapping[str, str] | None = None,
    ) -> Table[Any, Any]:
        """Reads a topic as the changes of a table: the latest record of a key, by its offset, is
        its value; a record without a value deletes it. `versioned` keeps the values of the past for
        so long, so that a join finds the one as of the time of the other record."""
        node = self._source(
            "table",
            topic,
            value,
            key=key,
            time=time,
            late=timedelta(),
            name=name,
            on_error=on_error,
            key_serde=key_serde,
            value_serde=value_serde,
            options=options,
            is_table=True,
            versioned=None if versioned is None else duration(versioned, f"table {topic}"),
        )
        return Table(self, materialized(self, node, name))

    @overload
    def global_table(
        self,
        topic: str,
        value: type[V],
        *,
        key: type[K],
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> GlobalTable[K, V]: ...
    @overload
    def global_table(
        self,
        topic: str,
        value: type[V],
        *,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> GlobalTable[str, V]: ...
    def global_table(
        self,
        topic: str,
        value: Any,
        *,
        key: Any = str,
        name: str | None = None,
        key_serde: Any = None,
        value_serde: Any = None,
    ) -> GlobalTable[Any, Any]:
        """Reads a whole topic into each worker, for joins by any column of a stream."""
        node = self._source(
            "global_table",
            topic,
            value,
            key=key,
            time=None,
            late=timedelta(),
            name=name,
            on_error=None,
            key_serde=key_serde,
            value_serde=value_serde,
            options=None,
            is_table=True,
        )
        return GlobalTable(self, node)

    def sql(
        self,
        query: str,
        *,
        to: type[V] | None = None,
        stateful: bool = True,
        name: str | None = None,
        **streams: Stream[Any, Any] | Table[Any, Any],
    ) -> Stream[Any, V]:
        """Leaves to Spark's SQL: `app.sql("SELECT ... FROM orders", orders=orders)`."""
        what = name or "sql"
        if not streams:
            raise TopologyError(what, "no streams are given", then="give them as NAME=stream")
        names = list(streams)

        def run(*frames: DataFrame) -> DataFrame:
            spark = frames[0].sparkSession
            for view, frame in zip(names, frames, strict=True):
                frame.createOrReplaceTempView(view)
            return spark.sql(query)

        value = None if to is None else building.shape(to, what)
        text = " ".join(query.split())
        node = building.derive(
            self,
            "sql",
            Frame(run, f"sql {text if len(text) < 60 else text[:57] + '...'}", stateful),
            [each.node for each in streams.values()],
            name=name,
            is_table=False,
            value=value,
            columns=None if value is None else tuple(value.names),
        )
        return Stream(self, node)

    # Plans

    def plan(self) -> Plan:
        """Plans the queries. TopologyError names the operator that cannot be run, and the way
        out."""
        from headwater.streams.planner import plan

        return plan(self)

    def describe(self) -> str:
        """Draws the plan: topics, operators, state, cuts, and what Spark runs."""
        from headwater.streams.describe import drawing

        return drawing(self.plan())

    # What streams and tables are made with

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes

    @property
    def ends(self) -> Sequence[Node]:
        """The nodes whose rows are written: sinks, functions for each record."""
        return self._ends

    def name_of(self, kind: str, given: str | None) -> str:
        """Returns the name of a new node. TopologyError if another one has it."""
        if given is not None:
            if not _NAME.fullmatch(given):
                raise TopologyError(
                    f"{kind} {given!r}", "a name has letters, digits, '.', '_' and '-'"
                )
            if any(each.name == given for each in self._nodes):
                raise TopologyError(
                    f"{kind} {given}", "another operator has this name", then="give it another one"
                )
            return given
        taken = {each.name for each in self._nodes}
        while True:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind.replace('_', '-')}-{self._counts[kind]}"
            if name not in taken:
                return name

    def add(self, node: Node) -> None:
        self._nodes.append(node)

    def add_end(self, node: Node) -> None:
        self._ends.append(node)

    def replace(self, node: Node, changed: Node) -> None:
        """Replaces a node that nothing was made of yet."""
        if any(node in each.inputs for each in self._nodes):
            raise TopologyError(
                node.name,
                "another operator already reads it unchanged",
                then="call this directly after the operator, before any other",
            )
        self._nodes[self._nodes.index(node)] = changed

    def check_own(self, node: Node, operator: str) -> None:
        if node not in self._nodes:
            raise TopologyError(
                operator,
                f"{node.name} belongs to another app, or was replaced by the result of .final(), "
                ".suppress() or .on_error()",
                then="use that result; connect apps through a topic",
            )

    def _source(
        self,
        kind: str,
        topic: str | Sequence[str] | re.Pattern[str],
        value: Any,
        *,
        key: Any,
        time: Any,
        late: Duration,
        name: str | None,
        on_error: OnError | None,
        key_serde: Any,
        value_serde: Any,
        options: Mapping[str, str] | None,
        is_table: bool = False,
        versioned: timedelta | None = None,
    ) -> Node:
        from headwater.spark.pipeline import TOPIC_NAME

        pattern = topic.pattern if isinstance(topic, re.Pattern) else None
        topics = () if isinstance(topic, re.Pattern) else _texts(topic)
        what = name or f"{kind} {pattern or ', '.join(topics)}"
        for each in topics:
            if not TOPIC_NAME.fullmatch(each):
                raise TopologyError(
                    what,
                    f"topic {each!r} is not a valid name",
                    then="a name has letters, digits, '.', '_' and '-'",
                )
        if not topics and not pattern:
            raise TopologyError(what, "no topic is given", then="give at least one")
        if on_error is not None and on_error not in ON_ERROR:
            raise TopologyError(
                what, f"on_error {on_error!r}", then=f"expected {', '.join(ON_ERROR)}"
            )
        shape = building.shape(value, what)
        node = Node(
            name=self.name_of("-".join(topics) or kind, name),
            operation=Source(
                topics=topics,
                pattern=pattern,
                key_serde=key_serde,
                value_serde=value_serde,
                time=time,
                late=duration(late, f"{what}: late"),
                options=dict(options or {}),
                versioned=versioned,
            ),
            key=building.shape(key, f"{what}: key"),
            value=shape,
            columns=tuple(shape.names),
            is_table=is_table,
            is_named=name is not None,
            on_error=on_error,
            place=declared_at(),
        )
        if time is not None:
            if not (isinstance(time, str) or is_column(time)):
                raise TopologyError(what, f"time {time!r}", then='give a column such as "at"')
            node.check_columns(time, f"{what}: time")
        self.add(node)
        return node


def _texts(topic: str | Sequence[str]) -> tuple[str, ...]:
    return (topic,) if isinstance(topic, str) else tuple(topic)


def app_in(namespace: Mapping[str, Any]) -> list[App]:
    """Returns the apps that a module declares."""
    found = [value for value in namespace.values() if isinstance(value, App)]
    return list({id(each): each for each in found}.values())
