"""Makes the frames of a query: for each operator of its plan, a DataFrame of another.

Up to its head a query is a streaming DataFrame. Behind it, `Frames` works in one of two ways: on
the same streaming DataFrame, if each row is used once, or on the rows of a micro-batch, of which
those that are used several times are kept until it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    DataType,
    StringType,
    StructField,
    StructType,
)

from headwater.spark.failures import spark_message
from headwater.streams import sources, stateful
from headwater.streams.calls import Caller
from headwater.streams.columns import (
    HEADERS,
    HEADERS_TYPE,
    KEY,
    LETTER,
    LETTER_TYPE,
    OFFSET,
    OWN,
    PARTITION,
    RAW_KEY,
    RAW_VALUE,
    ROW,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    key_type,
    letter,
    value_fields,
    value_names,
    with_row,
)
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import Expression, to_column
from headwater.streams.global_tables import Copies, Lookup
from headwater.streams.host import WINDOW_END, WINDOW_START
from headwater.streams.keyed import GROUP
from headwater.streams.planner import Plan, QueryPlan, grace, lateness, reached
from headwater.streams.restoring import source_of
from headwater.streams.serde import serde_of
from headwater.streams.sinks import CHOSEN, Records, records, value_shape
from headwater.streams.stateful import Hosting
from headwater.streams.topology import (
    About,
    Aggregate,
    Call,
    CallKind,
    Filter,
    ForeignKeyJoin,
    Frame,
    GlobalJoin,
    Keyed,
    Merge,
    Node,
    OnError,
    Project,
    Rekey,
    Repartition,
    Sink,
    Source,
    StreamJoin,
)
from headwater.streams.types import Shape, shape_of
from headwater.streams.windows import interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

LOOKUP = "__lookup"  # a column: the key to look up in a global table
_EXPLODES = ("explode", "posexplode", "inline", "explode_outer", "posexplode_outer", "stack")

Read = Callable[["SparkSession", Node], "DataFrame"]
Schemas = dict[Node, StructType]  # of nodes whose rows go through internal topics


class Frames:
    """The frames of one query. `read` opens a source, `copies` says how a worker gets a copy of a
    global table. `schemas` is shared by the queries of a plan: what one writes to an internal topic
    tells the next what it reads there."""

    def __init__(
        self,
        spark: SparkSession,
        plan: Plan,
        query: QueryPlan,
        read: Read,
        copies: Callable[[Source], Copies],
        schemas: Schemas,
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._query = query
        self._read = read
        self._copies = copies
        self._schemas = schemas
        self._frames: dict[Node, DataFrame | None] = {}
        self._letters: list[DataFrame] = []
        self._consumers = query.consumers()
        self._kept: list[DataFrame] = []
        self._start: Node | None = None
        self._makers: dict[Node, tuple[StructType, Records]] = {}
        self._table: DataFrame | None = None
        # In real time Spark does not run a union behind an aggregation, nor reads a topic twice.
        self._has_letters = not (query.real_time and query.stateful)

    def streaming(self) -> DataFrame:
        """Returns the streaming frame: of records to write, if nothing is used twice behind the
        head, else of the rows of the head."""
        query = self._query
        if not query.fans_out:
            (end,) = query.ends
            return self._records(end)
        (self._start,) = query.starts
        frame = self._frame(self._start)
        assert frame is not None
        frame = self._with_letters(frame)
        self._note_schemas(frame)
        return frame

    def restoring(self, table: DataFrame) -> DataFrame:
        """Returns the streaming frame of the head, whose state comes from the records of its table
        (see `restoring`)."""
        head = self._query.head
        assert head is not None
        self._table = table
        frame = self._frame(head)
        assert frame is not None
        return frame

    def records(self, batch: DataFrame) -> DataFrame:
        """Returns the records to write of a micro-batch of the streaming frame."""
        if not self._query.fans_out:
            return batch
        assert self._start is not None
        self._frames = {self._start: self._keep(batch)}
        self._letters = []
        parts = [self._records(end) for end in self._query.ends]
        return reduce(_union, parts)

    def release(self) -> None:
        """Frees what was kept for a micro-batch."""
        for frame in self._kept:
            frame.unpersist()
        self._kept = []
        self._frames = {}

    def _handler(self, node: Node) -> OnError:
        """Returns what happens if a node fails for a record. Where several queries run it, one of
        them reports that."""
        found = self._plan.on_error(node)
        if found == "dead_letter" and self._plan.owner(node) is not self._query:
            return "continue"
        return found

    # Frames of nodes

    def _frame(self, node: Node) -> DataFrame | None:
        """Returns the rows of a node; None if none of them come through this query."""
        if node not in self._frames:
            try:
                self._frames[node] = self._made(node)
            except AnalysisException as error:
                text, _ = spark_message(error)
                raise TopologyError(node.name, text, place=node.place) from None
        return self._frames[node]

    def _input(self, node: Node, at: int = 0) -> DataFrame | None:
        """Returns the rows of an input. Of several consumers the first one has the letters."""
        given = node.inputs[at]
        frame = self._frame(given)
        consumers = self._consumers.get(given, [])
        if frame is not None and len(consumers) > 1 and consumers[0] is not node:
            return frame.where(f.col(LETTER).isNull())
        return frame

    def _made(self, node: Node) -> DataFrame | None:
        own = node in self._query.stateful
        if not own and node in self._plan.cuts:
            source = self._plan.cuts[node]
            return self._rows_of(source) if source in self._query.sources else None
        if not own and (node.is_stateful or isinstance(node.operation, Source)):
            return self._rows_of(node) if node in self._query.sources else None
        if own:
            return self._stateful(node)
        frames = [self._input(node, at) for at in range(len(node.inputs))]
        known = [frame for frame in frames if frame is not None]
        if not known:
            return None
        if isinstance(node.operation, Frame):
            return self._user_frame(node, known)
        frame = reduce(_union, known)
        made = self._stateless(node, frame)
        if len(self._consumers.get(node, ())) > 1 and self._start is not None:
            made = self._keep(made)
        return made

    def _keep(self, frame: DataFrame) -> DataFrame:
        if frame.isStreaming:
            return frame
        frame = frame.persist()
        self._kept.append(frame)
        return frame

    def _stateless(self, node: Node, frame: DataFrame) -> DataFrame:
        match node.operation:
            case Project(columns=columns, adds=adds):
                return self._project(node, frame, dict(columns), adds)
            case Filter(conditions=conditions):
                kept = f.lit(True)
                for condition, wanted in conditions:
                    holds = f.coalesce(to_column(condition), f.lit(False))
                    kept = kept & (holds if wanted else ~holds)
                if node.is_table:
                    return _deleted(frame, ~kept)
                return frame.where(f.col(LETTER).isNotNull() | (kept & ~f.col(TOMBSTONE)))
            case Rekey(columns=columns):
                return frame.withColumn(KEY, _key([(n, to_column(c)) for n, c in columns]))
            case About(timestamp=timestamp) if timestamp is not None:
                time = f.when(f.col(LETTER).isNull(), to_column(timestamp).cast("timestamp"))
                return frame.withColumn(TIMESTAMP, f.coalesce(time, f.col(TIMESTAMP)))
            case About(headers=headers):
                added = f.array(
                    *(
                        f.struct(
                            f.lit(name).alias("key"),
                            to_column(value).cast("string").cast("binary").alias("value"),
                        )
                        for name, value in headers
                    )
                ).cast(HEADERS_TYPE)
                known = f.coalesce(f.col(HEADERS), f.array().cast(HEADERS_TYPE))
                return frame.withColumn(HEADERS, f.concat(known, added))
            case Call(kind="peek") if self._plan.owner(node) is not self._query:
                return frame
            case Call():
                return self._call(node, frame, node.operation.function, node.operation.kind)
            case GlobalJoin():
                return self._global_join(node, node.operation, frame)
            case Merge() if node.is_table:
                return self._keyed_rows(node, frame)
            case Merge() | Repartition():
                return frame
            case _:
                raise AssertionError(node)

    def _keyed_rows(self, node: Node, frame: DataFrame) -> DataFrame:
        """Makes letters of rows without a key, which cannot be changes of a table."""
        is_missing = f.col(LETTER).isNull() & f.col(KEY).isNull()
        stateful = any(each in self._query.stateful for each in reached(node))
        # There are no letters behind a stateful operator (see _good).
        if stateful or self._handler(node) != "dead_letter":
            return frame.where(~is_missing)
        made = f.when(is_missing, _without_key(node, "the key")).cast(LETTER_TYPE)
        return frame.withColumn(LETTER, f.coalesce(f.col(LETTER), made))

    def _project(
        self, node: Node, frame: DataFrame, columns: Mapping[str, Any], adds: bool
    ) -> DataFrame:
        own = [f.col(f"`{name}`") for name in frame.columns if name in OWN]
        names = value_names(frame)
        kept = [f.col(f"`{name}`") for name in names if adds and name not in columns]
        explodes = any(
            not isinstance(column, str)
            and (not isinstance(column, Expression) or column.has_function(*_EXPLODES))
            for column in columns.values()
        )
        made = [to_column(column).alias(name) for name, column in columns.items()]
        if not explodes:
            return self._typed(node, frame.select(*own, *kept, *made))
        # A row without elements vanishes, and so would the letters.
        good = frame.where(f.col(LETTER).isNull()).select(*own, *kept, *made)
        if self._has_letters:
            good = _union(good, _only_letters(frame))
        return self._typed(node, good)

    def _typed(self, node: Node, frame: DataFrame) -> DataFrame:
        """Casts to the type that the user gave, if it is another one that fits."""
        if node.value is None:
            return frame
        schema = node.value.schema
        for field in schema.fields:
            found = frame.schema[field.name].dataType
            if found == field.dataType:
                continue
            if not _fits(found, field.dataType):
                raise TopologyError(
                    node.name,
                    f"column {field.name} is {found.simpleString()}, and "
                    f"{node.value.type_name} has {field.dataType.simpleString()}",
                    then="cast the column, or change the type",
                    place=node.place,
                )
            frame = frame.withColumn(field.name, f.col(f"`{field.name}`").cast(field.dataType))
        return frame

    def _call(
        self, node: Node, frame: DataFrame, function: Callable[..., Any], kind: CallKind
    ) -> DataFrame:
        names = value_names(frame)
        before = node.inputs[0]
        given = _shape_if_known(before.value, frame)
        result = node.value if kind in ("map", "flat_map", "records") else None
        fields: list[StructField] = []
        for field in frame.schema.fields:
            if field.name == KEY and kind in ("key", "records") and node.key is not None:
                fields.append(StructField(KEY, key_type(node.key)))
            elif field.name in OWN or result is None:
                fields.append(field)
        if result is not None:
            fields += result.schema.fields
        if kind == "topic":
            fields.append(StructField(CHOSEN, StringType()))
        output = StructType([StructField(each.name, each.dataType) for each in fields])
        caller = Caller(
            operator=node.name,
            function=function,
            kind=kind,
            names=tuple(names),
            load=None if given is None else given.to_python,
            load_key=key_loader(before.key),
            dump=None if result is None else result.to_row,
            dump_key=_key_dumper(node.key),
            output=to_arrow_schema(output, timezone="UTC"),
            on_error=self._handler(node),
            deletes=node.is_table,
        )
        return frame.mapInArrow(caller, output)

    def _global_join(self, node: Node, operation: GlobalJoin, frame: DataFrame) -> DataFrame:
        table = operation.table
        source = table.operation
        assert isinstance(source, Source)
        assert table.key is not None
        assert table.value is not None
        left = value_fields(frame.schema)
        combine, fields = operation.joined.resolved([left, table.value.schema])
        key = f.col(KEY) if operation.lookup is None else to_column(operation.lookup)
        frame = frame.withColumn(LOOKUP, key)
        found, wanted = frame.schema[LOOKUP].dataType, key_type(table.key)
        if found != wanted and not _fits(found, wanted):
            raise TopologyError(
                node.name,
                f"its rows are looked up by {found.simpleString()}, and the keys of "
                f"{operation.topic} are {wanted.simpleString()}",
                then="cast the column of on=, or give the table another type of keys",
                place=node.place,
            )
        load = key_loader(table.key)
        assert load is not None
        copies = self._copies(source)
        lookup = Lookup(
            copies,
            None if frame.isStreaming else copies.ends(),
            column=LOOKUP,
            how=operation.how,
            combine=combine,
            key=serde_of(source.key_serde or table.key),
            load_key=load,
            value=serde_of(source.value_serde or table.value),
            shape=table.value,
        )
        own = [field for field in frame.schema.fields if field.name in OWN]
        output = StructType([StructField(e.name, e.dataType) for e in (*own, *fields.fields)])
        caller = Caller(
            operator=node.name,
            function=lookup,
            kind="columns",
            names=(*left.fieldNames(), LOOKUP),
            load=None,
            load_key=None,
            dump=None,
            dump_key=None,
            output=to_arrow_schema(output, timezone="UTC"),
            on_error=self._handler(node),
        )
        return frame.mapInArrow(caller, output)

    def _user_frame(self, node: Node, frames: list[DataFrame]) -> DataFrame:
        operation = node.operation
        assert isinstance(operation, Frame)
        good = []
        for frame in frames:
            self._take_letters(frame)
            good.append(frame.where(f.col(LETTER).isNull()))
        try:
            result: Any = operation.function(*good)
        except AnalysisException:
            raise
        except Exception as error:
            raise TopologyError(
                node.name, f"{type(error).__name__}: {error}", place=node.place
            ) from error
        if type(result).__name__ != "DataFrame":
            raise TopologyError(
                node.name,
                f"{operation.what} returned {result!r}",
                then="return a DataFrame",
                place=node.place,
            )
        given = {name: f.col(name) for name in (KEY, *ROW) if name in result.columns}
        given.setdefault(KEY, f.lit(None).cast("string"))
        given[TOMBSTONE] = f.coalesce(given.get(TOMBSTONE, f.lit(False)), f.lit(False))
        given[LETTER] = f.lit(None).cast(LETTER_TYPE)
        frame = with_row(result, given, value_names(result))
        return self._typed(node, frame)

    # Sources

    def _rows_of(self, node: Node) -> DataFrame:
        raw = self._read(self._spark, node)
        return sources.rows(raw, node, *self._shapes_read(node), self._handler(node))

    def _shapes_read(self, node: Node) -> tuple[Shape, Shape]:
        operation = node.operation
        assert isinstance(operation, Source)
        if not operation.internal:
            assert node.key is not None
            assert node.value is not None
            return node.key, node.value
        written = next(each for each, source in self._plan.cuts.items() if source is node)
        schema = self._schemas[_written(written)]
        return shape_of(schema[KEY].dataType), value_shape(schema, node.value)

    def _note_schemas(self, frame: DataFrame) -> None:
        """Remembers the schema of rows that are written to internal topics."""
        for end in self._query.ends:
            if isinstance(end.operation, Sink) and end.operation.internal:
                (written,) = end.inputs
                if written is self._start:
                    self._schemas[written] = frame.schema

    # Stateful operators

    def _good(self, node: Node, at: int, what: str, *, keeps_null: bool = False) -> DataFrame:
        """Returns the rows of an input of a stateful operator: with keys, and without letters."""
        frame = self._input(node, at)
        assert frame is not None
        before = node.inputs[at]
        if any(each in self._query.stateful for each in (before, *reached(before))):
            # Looking at its rows a second time would run the operator before it twice. The planner
            # sees to it that there are no letters.
            return frame.where(f.col(KEY).isNotNull()) if not keeps_null else frame
        self._take_letters(frame)
        if keeps_null:
            return frame.where(f.col(LETTER).isNull())
        if self._handler(node) == "dead_letter":
            made = _without_key(node, what)
            null = frame.where(f.col(LETTER).isNull() & f.col(KEY).isNull())
            self._letters.append(null.select(made.alias(LETTER)))
        return frame.where(f.col(LETTER).isNull() & f.col(KEY).isNotNull())

    def _watermarked(self, node: Node, at: int, frame: DataFrame) -> DataFrame:
        before = node.inputs[at]
        if any(each in self._query.stateful for each in (before, *reached(before))):
            return frame  # the stateful operator before it has declared it
        late = lateness(before) + grace(self._query.stateful)
        return frame.withWatermark(TIMESTAMP, interval(late))

    def _stateful(self, node: Node) -> DataFrame:
        how = Hosting(self._handler(node), self._query.mode)
        match node.operation:
            case Aggregate(window=window):
                good = self._good(node, 0, "the key").where(~f.col(TOMBSTONE))
                if window is not None:
                    good = self._watermarked(node, 0, good)
                made = self._typed(node, stateful.aggregate(node.operation, good))
                if self._table is not None:
                    rows = self._rows_of_table(node, made, self._table)
                    made = stateful.restored_aggregate(node, node.operation, good, rows)
            case StreamJoin():
                made = self._stream_join(node, node.operation)
            case Keyed():
                made = self._keyed(node, node.operation, how)
            case ForeignKeyJoin():
                left, right = (self._good(node, at, "the key").drop(LETTER) for at in (0, 1))
                made = stateful.foreign_key_join(node, node.operation, left, right, how)
            case Frame():
                frames = [self._input(node, at) for at in range(len(node.inputs))]
                made = self._user_frame(node, [each for each in frames if each is not None])
            case _:
                raise AssertionError(node)
        if node is self._query.head:
            made = self._with_letters(made)
            self._schemas[node] = made.schema
        return made

    def _stream_join(self, node: Node, operation: StreamJoin) -> DataFrame:
        what = ", ".join(operation.on) if operation.on else "the key"
        sides = []
        for at, lonely in enumerate((("left", "outer"), ("right", "outer"))):
            good = self._good(node, at, what, keeps_null=operation.how in lonely)
            sides.append(self._watermarked(node, at, good).where(~f.col(TOMBSTONE)))
        delay = max(lateness(each) for each in node.inputs) + grace(self._query.stateful)
        return stateful.stream_join(node, operation, sides, delay)

    def _keyed(self, node: Node, operation: Keyed, how: Hosting) -> DataFrame:
        frames = []
        for at in range(len(node.inputs)):
            is_kept = operation.keeps_null_keys and at == 0
            frame = self._good(node, at, "the key", keeps_null=is_kept)
            if operation.time in ("event", "both"):
                frame = self._watermarked(node, at, frame)
            if operation.group:
                group = _key([(name, to_column(column)) for name, column in operation.group])
                frame = frame.withColumn(GROUP, group)
            frames.append(frame.drop(LETTER))
        made = stateful.keyed(node, operation, frames, how)
        if self._table is None:
            return made
        rows = self._rows_of_table(node, made, self._table)
        if operation.window is not None:
            key = f.col(KEY)
            rows = rows.select(
                key["key"].alias(KEY),
                key["start"].alias(WINDOW_START),
                key["end"].alias(WINDOW_END),
                *(f.col(f"`{name}`") for name in rows.columns if name != KEY),
            )
            late = max(lateness(each) for each in node.inputs)
            rows = rows.withWatermark(TIMESTAMP, interval(late))
        return stateful.keyed(node, operation, frames, how, rows.drop(LETTER))

    def _rows_of_table(self, node: Node, made: DataFrame, table: DataFrame) -> DataFrame:
        """Returns the records of the table that a node makes as rows of the same types."""
        key, value = shape_of(made.schema[KEY].dataType), value_shape(made.schema, node.value)
        return sources.rows(table, source_of(self._query), key, value, "fail")

    # Letters and records

    def _take_letters(self, frame: DataFrame) -> None:
        if not self._has_letters:
            return
        self._letters.append(frame.where(f.col(LETTER).isNotNull()).select(LETTER))

    def _with_letters(self, frame: DataFrame) -> DataFrame:
        """Adds the letters that were left before stateful operators."""
        letters, self._letters = self._letters, []
        for each in letters:
            frame = frame.unionByName(each, allowMissingColumns=True)
        return frame

    def _records(self, end: Node) -> DataFrame:
        """Returns the records of a sink, and the letters that came with its rows."""
        frame = self._input(end)
        assert frame is not None
        frame = self._with_letters(frame)
        operation = end.operation
        if isinstance(operation, Call):
            frame = self._call(end, frame, operation.function, operation.kind)
        else:
            assert isinstance(operation, Sink)
            if operation.internal:
                self._schemas[_written(end.inputs[0])] = frame.schema
            if callable(operation.to):
                frame = self._call(end, frame, operation.to, "topic")
        return self._maker(end, frame.schema)(frame)

    def _maker(self, end: Node, schema: StructType) -> Records:
        made_for, maker = self._makers.get(end, (None, None))
        if maker is None or made_for != schema:
            maker = self._made_maker(end, schema)
            self._makers[end] = schema, maker
        return maker

    def _made_maker(self, end: Node, schema: StructType) -> Records:
        operation = end.operation
        if isinstance(operation, Call):
            topic: Column = f.lit(None).cast("string")
            operation = Sink(to="(none)")
        else:
            assert isinstance(operation, Sink)
            if isinstance(operation.to, str):
                topic = f.lit(operation.to)
            elif callable(operation.to):
                topic = f.col(CHOSEN)
            else:
                topic = to_column(operation.to)
        return records(
            schema,
            operation,
            operator=end.name,
            topic=topic,
            known=end.inputs[0].value,
            app=self._plan.app.name,
            dead_letters=self._plan.dead_letters,
            on_error=self._handler(end),
            bytes_max=self._plan.app.record_bytes_max,
        )


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


def _without_key(node: Node, what: str) -> Column:
    """Returns the letter of a row that an operator leaves out, as it needs what is null."""
    return letter(
        operator=node.name,
        reason=f.concat(
            f.lit(f"operator {node.name} (topic "),
            f.coalesce(f.col(TOPIC), f.lit("-")),
            f.lit(", partition "),
            f.coalesce(f.col(PARTITION).cast("string"), f.lit("-")),
            f.lit(", offset "),
            f.coalesce(f.col(OFFSET).cast("string"), f.lit("-")),
            f.lit(f"): {what} is null, so that the record is left out"),
        ),
        key=f.col(RAW_KEY),
        value=f.col(RAW_VALUE),
        timestamp=f.col(TIMESTAMP),
        headers=f.col(HEADERS),
        topic=f.col(TOPIC),
        partition=f.col(PARTITION),
        offset=f.col(OFFSET),
    )


def _only_letters(frame: DataFrame) -> DataFrame:
    return frame.where(f.col(LETTER).isNotNull()).select(LETTER, TOMBSTONE)


def _deleted(frame: DataFrame, gone: Column) -> DataFrame:
    """Makes deletions of the rows of a table that are gone."""
    gone = f.col(LETTER).isNull() & (gone | f.col(TOMBSTONE))
    return frame.select(
        *(f.col(name) for name in frame.columns if name in OWN and name != TOMBSTONE),
        gone.alias(TOMBSTONE),
        *(f.when(~gone, f.col(f"`{name}`")).alias(name) for name in value_names(frame)),
    )


def _key(columns: list[tuple[str, Column]]) -> Column:
    """Returns the key: one column, or a struct, which is null if one of its parts is."""
    if len(columns) == 1:
        return columns[0][1]
    known = reduce(lambda a, b: a & b, (column.isNotNull() for _, column in columns))
    return f.when(known, f.struct(*(column.alias(name) for name, column in columns)))


def key_loader(shape: Shape | None) -> Callable[[Any], Any] | None:
    if shape is None:
        return None
    if shape.is_record:
        return shape.to_python
    load = shape.to_python
    return lambda key: load({"value": key})


def _key_dumper(shape: Shape | None) -> Callable[[Any], Any] | None:
    if shape is None:
        return None
    dump = shape.to_row
    return dump if shape.is_record else lambda key: dump(key)["value"]


def _shape_if_known(shape: Shape | None, frame: DataFrame) -> Shape | None:
    """Returns the shape, if the columns are still its own."""
    return shape if shape is not None and shape.names == value_names(frame) else None


def _written(node: Node) -> Node:
    """Returns the node whose rows an internal topic has."""
    return node.inputs[0] if isinstance(node.operation, Repartition) else node


def _fits(found: DataType, wanted: DataType) -> bool:
    numbers = ("byte", "tinyint", "short", "smallint", "int", "integer", "bigint", "long")
    order = [*numbers, "decimal", "float", "double"]
    one, other = found.typeName(), wanted.typeName()
    if one in order and other in order:
        return order.index(one) <= order.index(other) or one.startswith("decimal")
    return one == other or one == "void"
