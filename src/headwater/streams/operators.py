"""Makes the frames of a query: for each operator of its plan, a DataFrame of another.

Up to its head a query is a streaming DataFrame. Behind it, `Frames` works in one of two ways: on
the same streaming DataFrame, if each row is used once, or on the rows of a micro-batch, of which
those that are used several times are kept until it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.spark.dead_letters import OFFSET as OFFSET_HEADER
from headwater.spark.dead_letters import PARTITION as PARTITION_HEADER
from headwater.spark.dead_letters import PIPELINE, REASON
from headwater.spark.dead_letters import TOPIC as TOPIC_HEADER
from headwater.spark.failures import spark_message
from headwater.streams.calls import Caller
from headwater.streams.columns import (
    CHANGE,
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
    letter,
    value_fields,
    value_names,
    with_row,
)
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import Expression, to_column
from headwater.streams.host import (
    DROPPED,
    FAILURE,
    WINDOW_END,
    WINDOW_START,
    TimeMode,
    run_keyed,
)
from headwater.streams.joining import names_of_right
from headwater.streams.joins import (
    LEFT,
    LEFT_KEY,
    MOVED,
    SEQUENCE,
    ForeignKeyLookup,
    ForeignKeyResolve,
    ForeignKeySubscribe,
)
from headwater.streams.keyed import GROUP
from headwater.streams.planner import Plan, QueryPlan, grace, lateness, reached
from headwater.streams.serde import decode_columns, encode_column, serde_of
from headwater.streams.topology import (
    About,
    Aggregate,
    Call,
    Filter,
    ForeignKeyJoin,
    Frame,
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

OPERATOR_HEADER, TRACEBACK_HEADER = "headwater.operator", "headwater.traceback"
_WATERMARK = "spark.watermarkDelayMs"  # where Spark keeps that a column is event time
FAILURE_SCHEMA = StructType(
    [
        StructField("reason", StringType()),
        StructField("traceback", StringType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
    ]
)
_EXPLODES = ("explode", "posexplode", "inline", "explode_outer", "posexplode_outer", "stack")

Read = Callable[["SparkSession", Node], "DataFrame"]
Schemas = dict[Node, StructType]  # of nodes whose rows go through internal topics


class Frames:
    """The frames of one query. `read` opens a source; `schemas` is shared by the queries of a plan:
    what one writes to an internal topic tells the next what it reads there."""

    def __init__(
        self, spark: SparkSession, plan: Plan, query: QueryPlan, read: Read, schemas: Schemas
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._query = query
        self._read = read
        self._schemas = schemas
        self._frames: dict[Node, DataFrame | None] = {}
        self._letters: list[DataFrame] = []
        self._consumers = query.consumers()
        self._kept: list[DataFrame] = []
        self._start: Node | None = None

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
            return self._source(source) if source in self._query.sources else None
        if not own and (node.is_stateful or isinstance(node.operation, Source)):
            return self._source(node) if node in self._query.sources else None
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
            case Merge() | Repartition():
                return frame
            case _:
                raise AssertionError(node)

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
        return self._typed(node, _union(good, _only_letters(frame)))

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
        self, node: Node, frame: DataFrame, function: Callable[..., Any], kind: str
    ) -> DataFrame:
        names = value_names(frame)
        before = node.inputs[0]
        given = _shape_if_known(before.value, frame)
        result = node.value if kind in ("map", "flat_map", "records") else None
        fields: list[StructField] = []
        for field in frame.schema.fields:
            if field.name == KEY and kind in ("key", "records") and node.key is not None:
                fields.append(StructField(KEY, _key_type(node.key)))
            elif field.name in OWN or result is None:
                fields.append(field)
        if result is not None:
            fields += result.schema.fields
        if kind == "topic":
            fields.append(StructField("_to", StringType()))
        output = StructType([StructField(each.name, each.dataType) for each in fields])
        caller = Caller(
            operator=node.name,
            function=function,
            kind=kind,
            names=tuple(names),
            load=None if given is None else given.to_python,
            load_key=_key_loader(before.key),
            dump=None if result is None else result.to_row,
            dump_key=_key_dumper(node.key),
            output=to_arrow_schema(output, timezone="UTC"),
            on_error=self._handler(node),
        )
        if node.is_table and kind in ("filter", "filter_not"):
            raise TopologyError(
                node.name,
                "a table is filtered by columns",
                then="give a column (f.…), or filter before the table",
                place=node.place,
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

    def _source(self, node: Node) -> DataFrame:
        operation = node.operation
        assert isinstance(operation, Source)
        raw = self._read(self._spark, node)
        key_shape, value_shape = self._shapes_read(node)
        key = decode_columns(raw["key"], key_shape, serde_of(operation.key_serde or key_shape))
        value = decode_columns(
            raw["value"], value_shape, serde_of(operation.value_serde or value_shape)
        )
        read = raw.select("*", key.alias("__key"), value.alias("__value"))
        ok, reason = f.col("__value.ok"), f.col("__value.error")
        time = f.col("timestamp")
        if operation.time is not None:
            # The columns of the value have to be there for an expression over them.
            names = [f"`{name}`" for name in value_shape.names]
            fields = {name: ok[name.strip("`")] for name in names}
            read = read.select("*", *(col.alias(name.strip("`")) for name, col in fields.items()))
            time = to_column(operation.time).cast("timestamp")
            read = read.withColumn("__time", time)
            for name in value_shape.names:
                if name not in ("key", "value", "topic", "partition", "offset", "timestamp"):
                    read = read.drop(name)
            time = f.col("__time")
            missing = time.isNull() & f.col("value").isNotNull()
            reason = f.coalesce(
                reason, f.when(missing, f.lit(f"the event time {operation.time} is null"))
            )
        is_bad = f.coalesce(reason, f.concat(f.lit("key: "), f.col("__key.error")))
        place = f.concat(
            f.lit(f"operator {node.name} (topic "),
            f.col("topic"),
            f.lit(", partition "),
            f.col("partition").cast("string"),
            f.lit(", offset "),
            f.col("offset").cast("string"),
            f.lit("): "),
        )
        handler = self._handler(node)
        why = f.concat(place, is_bad)
        if handler == "fail":
            then = f.lit('; mend the record, or set on_error="dead_letter" for this source')
            dead = f.when(is_bad.isNotNull(), f.raise_error(f.concat(why, then)).cast("string"))
            letters = f.when(dead.isNotNull(), f.lit(None)).cast(LETTER_TYPE)
        else:
            made = letter(
                operator=node.name,
                reason=why,
                key=f.col("key"),
                value=f.col("value"),
                timestamp=f.col("timestamp"),
                headers=f.col("headers"),
                topic=f.col("topic"),
                partition=f.col("partition"),
                offset=f.col("offset"),
            )
            letters = f.when(is_bad.isNotNull(), made)
        if handler == "continue":
            read = read.where(is_bad.isNull())
        given = {
            TIMESTAMP: f.coalesce(time, f.col("timestamp")),
            HEADERS: f.col("headers"),
            TOPIC: f.col("topic"),
            PARTITION: f.col("partition"),
            OFFSET: f.col("offset"),
            TOMBSTONE: f.col("value").isNull(),
            RAW_KEY: f.col("key"),
            RAW_VALUE: f.col("value"),
            LETTER: letters,
        }
        key_column = f.col("__key.ok")
        columns = [(key_column if key_shape.is_record else key_column["value"]).alias(KEY)]
        columns += [given[name].alias(name) for name in ROW]
        columns += [ok[name].alias(name) for name in value_shape.names]
        frame = read.select(*columns)
        if handler == "fail":
            # Spark would leave out a letter that nobody looks at, and the error with it.
            frame = frame.where(f.col(LETTER).isNull())
        return frame

    def _shapes_read(self, node: Node) -> tuple[Shape, Shape]:
        operation = node.operation
        assert isinstance(operation, Source)
        if not operation.internal:
            assert node.key is not None
            assert node.value is not None
            return node.key, node.value
        written = next(each for each, source in self._plan.cuts.items() if source is node)
        schema = self._schemas[_written(written)]
        return shape_of(schema[KEY].dataType), _value_shape(schema, node.value)

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
        self._take_letters(frame)
        if keeps_null:
            return frame.where(f.col(LETTER).isNull())
        if self._handler(node) == "dead_letter":
            made = letter(
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
        match node.operation:
            case Aggregate():
                made = self._aggregate(node, node.operation)
            case StreamJoin():
                made = self._stream_join(node, node.operation)
            case Keyed():
                made = self._keyed(node, node.operation)
            case ForeignKeyJoin():
                made = self._foreign_key_join(node, node.operation)
            case Frame():
                frames = [self._input(node, at) for at in range(len(node.inputs))]
                made = self._user_frame(node, [each for each in frames if each is not None])
            case _:
                raise AssertionError(node)
        if node is self._query.head:
            made = self._with_letters(made)
            self._schemas[node] = made.schema
        return made

    def _aggregate(self, node: Node, operation: Aggregate) -> DataFrame:
        good = self._good(node, 0, "the key").where(~f.col(TOMBSTONE))
        keys: list[Column] = [f.col(KEY)]
        window = operation.window
        if window is not None:
            good = self._watermarked(node, 0, good)
            if window.kind == "session":
                spans = f.session_window(TIMESTAMP, interval(window.size))
            elif window.kind == "tumbling":
                spans = f.window(TIMESTAMP, interval(window.size))
            else:
                spans = f.window(TIMESTAMP, interval(window.size), interval(window.step))
            keys.append(spans.alias("__window"))
        aggregates = [to_column(column).alias(name) for name, column in operation.aggregates]
        result = good.groupBy(*keys).agg(f.max(TIMESTAMP).alias(TIMESTAMP), *aggregates)
        key = f.col(KEY)
        if window is not None:
            key = f.struct(
                key.alias("key"),
                f.col("__window.start").alias("start"),
                f.col("__window.end").alias("end"),
            )
        given = {KEY: key, TIMESTAMP: f.col(TIMESTAMP), TOMBSTONE: f.lit(False)}
        return self._typed(
            node, with_row(result, given, [name for name, _ in operation.aggregates])
        )

    def _stream_join(self, node: Node, operation: StreamJoin) -> DataFrame:
        what = ", ".join(operation.on) if operation.on else "the key"
        sides = []
        for at, mark in enumerate(("l", "r")):
            lonely = ("left", "outer") if at == 0 else ("right", "outer")
            good = self._good(node, at, what, keeps_null=operation.how in lonely)
            good = self._watermarked(node, at, good)
            good = good.where(~f.col(TOMBSTONE))
            sides.append(good.select(*(f.col(f"`{n}`").alias(f"{mark}:{n}") for n in good.columns)))
        left, right = sides
        mine, theirs = left.schema[f"l:{KEY}"].dataType, right.schema[f"r:{KEY}"].dataType
        if mine != theirs:
            one, other = node.inputs
            raise TopologyError(
                node.name,
                f"{what} is {mine.simpleString()} in {one.name} and {theirs.simpleString()} in "
                f"{other.name}",
                then="give both the same type, or cast one before the join",
                place=node.place,
            )

        def col(name: str) -> Column:
            return f.col(f"`{name}`")

        time, other_time = col(f"l:{TIMESTAMP}"), col(f"r:{TIMESTAMP}")
        condition = (
            (col(f"l:{KEY}") == col(f"r:{KEY}"))
            & (other_time >= time - f.expr(f"INTERVAL '{_seconds(operation.before)}' SECOND"))
            & (other_time <= time + f.expr(f"INTERVAL '{_seconds(operation.after)}' SECOND"))
        )
        how = {"outer": "full_outer", "semi": "left_semi"}.get(operation.how, operation.how)
        joined = left.join(right, condition, how)
        is_semi = operation.how == "semi"
        values = [name.removeprefix("l:") for name in left.columns]
        values = [name for name in values if name not in OWN]
        others = [name.removeprefix("r:") for name in right.columns]
        others = [name for name in others if name not in OWN]
        on = operation.on or ()
        columns: dict[str, Column] = {}
        for name in values:
            mine_ = col(f"l:{name}")
            both = name in on and name in others and not is_semi
            columns[name] = f.coalesce(mine_, col(f"r:{name}")) if both else mine_
        if not is_semi:
            for name, label in names_of_right(values, others, on).items():
                columns[label] = col(f"r:{name}")
        later = time if is_semi else f.greatest(time, other_time)
        key = col(f"l:{KEY}") if is_semi else f.coalesce(col(f"l:{KEY}"), col(f"r:{KEY}"))
        delay = max(lateness(each) for each in node.inputs) + grace(self._query.stateful)
        metadata = {_WATERMARK: round(delay.total_seconds() * 1000)}
        result = joined.select(
            key.alias(KEY),
            # Event time for what follows in this query: `greatest` alone would be no such column.
            later.alias(TIMESTAMP, metadata=metadata),
            col(f"l:{HEADERS}").alias(HEADERS),
            *(column.alias(name) for name, column in columns.items()),
        )
        given = {
            KEY: f.col(KEY),
            TIMESTAMP: f.col(TIMESTAMP),
            HEADERS: f.col(HEADERS),
            TOMBSTONE: f.lit(False),
        }
        return with_row(result, given, list(columns))

    def _keyed(self, node: Node, operation: Keyed) -> DataFrame:
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
        schemas = [value_fields(frame.schema) for frame in frames]
        machine, fields = operation.make(schemas, operation.final)
        key = frames[0].schema[KEY].dataType
        if operation.group:
            key = frames[0].schema[GROUP].dataType
        elif operation.new_key is not None:
            key = _key_type(operation.new_key)
        window = operation.window is not None
        result = self._run_keyed(
            node,
            frames,
            machine,
            key,
            fields,
            time=operation.time,
            window=window,
            changes=operation.changes,
        )
        return self._row_of_keyed(result, fields.fieldNames(), window=window)

    def _run_keyed(
        self,
        node: Node,
        frames: list[DataFrame],
        machine: Any,
        key: DataType,
        fields: StructType,
        *,
        time: TimeMode = "none",
        window: bool = False,
        changes: bool = False,
        name: str | None = None,
    ) -> DataFrame:
        output = StructType().add(KEY, key)
        for column in (TIMESTAMP, HEADERS, TOPIC, PARTITION, OFFSET, TOMBSTONE):
            output.add(column, ROW[column])
        if window:
            output.add(WINDOW_START, TimestampType()).add(WINDOW_END, TimestampType())
        if changes:
            output.add(CHANGE, IntegerType())
        output.add(FAILURE, FAILURE_SCHEMA).add(DROPPED, StringType())
        for field in fields.fields:
            output.add(StructField(field.name, field.dataType))
        ran = run_keyed(
            frames,
            machine,
            output=output,
            name=name or node.name,
            time=time,
            on_error=self._handler(node),
            output_mode="Append" if self._query.mode == "append" else "Update",
        )
        # Rows that had no effect are counted; the progress of the query shows how many.
        late = f.count_if(f.col(DROPPED) == "late").alias("late")
        ran = ran.observe(f"{node.name}", late, f.count(DROPPED).alias("dropped"))
        return ran.where(f.col(DROPPED).isNull())

    def _row_of_keyed(self, result: DataFrame, names: list[str], *, window: bool) -> DataFrame:
        failure = f.col(FAILURE)
        letters = f.struct(
            failure["key"].alias("key"),
            failure["value"].alias("value"),
            f.col(TIMESTAMP).alias("timestamp"),
            f.col(HEADERS).alias("headers"),
            failure["topic"].alias("topic"),
            failure["partition"].alias("partition"),
            failure["offset"].alias("offset"),
            f.lit("").alias("operator"),
            failure["reason"].alias("reason"),
            failure["traceback"].alias("traceback"),
        ).cast(LETTER_TYPE)
        key = f.col(KEY)
        if window:
            key = f.struct(
                key.alias("key"),
                f.col(WINDOW_START).alias("start"),
                f.col(WINDOW_END).alias("end"),
            )
        given = {name: f.col(name) for name in ROW if name in result.columns}
        given |= {KEY: key, LETTER: f.when(failure.isNotNull(), letters)}
        given[TOMBSTONE] = f.coalesce(f.col(TOMBSTONE), f.lit(False))
        own = [CHANGE] if CHANGE in result.columns else []
        return with_row(result, given, [*own, *names])

    def _foreign_key_join(self, node: Node, operation: ForeignKeyJoin) -> DataFrame:
        left, right = (self._good(node, at, "the key").drop(LETTER) for at in (0, 1))
        combine, fields = operation.make([value_fields(left.schema), value_fields(right.schema)])
        left_key, foreign_key = left.schema[KEY].dataType, right.schema[KEY].dataType
        column = operation.foreign_key
        found = left.schema[column].dataType
        if found != foreign_key:
            one, other = node.inputs
            raise TopologyError(
                node.name,
                f"{column} is {found.simpleString()} in {one.name}, and the key of {other.name} is "
                f"{foreign_key.simpleString()}",
                then="give both the same type, or cast one before the join",
                place=node.place,
            )
        subscriptions = (
            StructType()
            .add(LEFT_KEY, left_key)
            .add(LEFT, value_fields(left.schema))
            .add(SEQUENCE, LongType())
            .add(MOVED, BooleanType())
        )
        how: Any = operation.how
        subscribe = ForeignKeySubscribe(itemgetter(column), how)
        sent = self._run_keyed(
            node, [left], subscribe, foreign_key, subscriptions, name=f"{node.name}-subscribe"
        )
        results = StructType([*fields.fields, StructField(SEQUENCE, LongType())])
        sent = self._split_failures(sent)
        looked_up = self._run_keyed(
            node,
            [sent, right],
            ForeignKeyLookup(combine, how),
            left_key,
            results,
            name=f"{node.name}-lookup",
        )
        looked_up = self._split_failures(looked_up)
        resolved = self._run_keyed(
            node, [looked_up], ForeignKeyResolve(), left_key, fields, name=f"{node.name}-resolve"
        )
        return self._row_of_keyed(resolved, fields.fieldNames(), window=False)

    def _split_failures(self, result: DataFrame) -> DataFrame:
        rows = self._row_of_keyed(result, [], window=False)
        self._take_letters(rows)
        return result.where(f.col(FAILURE).isNull()).drop(FAILURE, DROPPED)

    # Letters and records

    def _take_letters(self, frame: DataFrame) -> None:
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
            topic: Column = f.lit(None).cast("string")
            operation = Sink(to="")
        else:
            assert isinstance(operation, Sink)
            if operation.internal:
                self._schemas[_written(end.inputs[0])] = frame.schema
            if isinstance(operation.to, str):
                topic = f.lit(operation.to)
            elif callable(operation.to):
                frame = self._call(end, frame, operation.to, "topic")
                topic = f.col("_to")
            else:
                topic = to_column(operation.to)
        schema = frame.schema
        before = end.inputs[0]
        key_type = schema[KEY].dataType
        key_shape = shape_of(key_type)
        key = encode_column(
            _parts(f.col(KEY), key_shape), key_shape, serde_of(operation.key_serde or key_shape)
        )
        value_shape = _value_shape(schema, before.value, without=("_to",))
        value = encode_column(
            {name: f.col(f"`{name}`") for name in value_shape.names},
            value_shape,
            serde_of(operation.value_serde or value_shape),
        )
        is_letter = f.col(LETTER).isNotNull()
        letters = f.col(LETTER)
        known = f.coalesce(f.col(HEADERS), f.array().cast(HEADERS_TYPE))
        return frame.select(
            f.when(is_letter, f.lit(self._plan.dead_letters)).otherwise(topic).alias("topic"),
            f.when(is_letter, letters["key"]).when(f.col(KEY).isNotNull(), key).alias("key"),
            f.when(is_letter, letters["value"]).when(~f.col(TOMBSTONE), value).alias("value"),
            f.when(is_letter, self._letter_headers()).otherwise(known).alias("headers"),
            f.when(is_letter, letters["timestamp"]).otherwise(f.col(TIMESTAMP)).alias("timestamp"),
        )

    def _letter_headers(self) -> Column:
        letters = f.col(LETTER)
        ours = {
            REASON: letters["reason"],
            PIPELINE: f.lit(self._plan.app.name),
            OPERATOR_HEADER: letters["operator"],
            TOPIC_HEADER: letters["topic"],
            PARTITION_HEADER: letters["partition"].cast("string"),
            OFFSET_HEADER: letters["offset"].cast("string"),
            TRACEBACK_HEADER: letters["traceback"],
        }
        added = f.array(
            *(
                f.struct(f.lit(name).alias("key"), value.cast("binary").alias("value"))
                for name, value in ours.items()
            )
        ).cast(HEADERS_TYPE)
        given = f.filter(added, lambda each: each["value"].isNotNull())
        return f.concat(f.coalesce(letters["headers"], f.array().cast(HEADERS_TYPE)), given)


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


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


def _parts(column: Column, shape: Shape) -> dict[str, Column]:
    if shape.is_record:
        return {name: column[name] for name in shape.names}
    return {"value": column}


def _key_type(shape: Shape) -> DataType:
    return shape.schema if shape.is_record else shape.schema["value"].dataType


def _key_loader(shape: Shape | None) -> Callable[[Any], Any] | None:
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


def _value_shape(
    schema: StructType, known: Shape | None, *, without: tuple[str, ...] = ()
) -> Shape:
    fields = [each for each in value_fields(schema).fields if each.name not in without]
    if known is not None and StructType(fields) == known.schema:
        return known
    if len(fields) == 1 and fields[0].name == "value":
        return shape_of(fields[0].dataType)
    return shape_of(StructType([StructField(each.name, each.dataType) for each in fields]))


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


def _seconds(given: Any) -> str:
    return f"{given.total_seconds():.3f}"
