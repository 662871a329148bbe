"""The stateful operators of Spark: aggregations, joins of streams, and keyed machines.

What they take has passed `operators`: rows with keys, without dead letters, and with a watermark
where event time matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as f
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headwater.streams.columns import (
    CHANGE,
    HEADERS,
    KEY,
    LETTER,
    LETTER_TYPE,
    OFFSET,
    OWN,
    PARTITION,
    ROW,
    TIMESTAMP,
    TOMBSTONE,
    TOPIC,
    key_type,
    value_fields,
    with_row,
)
from headwater.streams.errors import TopologyError
from headwater.streams.expressions import to_column
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
    FOUND,
    LEFT,
    LEFT_KEY,
    MOVED,
    RIGHT,
    SEQUENCE,
    ForeignKeyLookup,
    ForeignKeyResolve,
    ForeignKeySubscribe,
)
from headwater.streams.keyed import GROUP
from headwater.streams.restoring import RESTORED
from headwater.streams.tables import Restored
from headwater.streams.topology import (
    Aggregate,
    ForeignKeyJoin,
    Keyed,
    Node,
    OnError,
    StreamJoin,
)
from headwater.streams.windows import interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WATERMARK = "spark.watermarkDelayMs"  # where Spark keeps that a column is event time
_WINDOW, _AT = "__window", "__at"
_BLOCK = 65_536
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


@dataclass(frozen=True, slots=True)
class Hosting:
    """Options of machines in a query: the handling of records that fail, and the output mode."""

    on_error: OnError
    mode: str


def aggregate(operation: Aggregate, good: DataFrame) -> DataFrame:
    """Aggregates rows by key. In windows, their time carries the watermark."""
    keys: list[Column] = [f.col(KEY)]
    window = operation.window
    if window is not None:
        if window.kind == "session":
            spans = f.session_window(TIMESTAMP, interval(window.size))
        elif window.kind == "tumbling":
            spans = f.window(TIMESTAMP, interval(window.size))
        else:
            spans = f.window(TIMESTAMP, interval(window.size), interval(window.step))
        keys.append(spans.alias(_WINDOW))
    aggregates = [to_column(column).alias(name) for name, column in operation.aggregates]
    result = good.groupBy(*keys).agg(f.max(TIMESTAMP).alias(TIMESTAMP), *aggregates)
    key = f.col(KEY)
    if window is not None:
        # A session of Spark ends a gap after its last record, one of Kafka Streams with it.
        end = TIMESTAMP if window.kind == "session" else "__window.end"
        key = f.struct(
            key.alias("key"), f.col("__window.start").alias("start"), f.col(end).alias("end")
        )
    given = {KEY: key, TIMESTAMP: f.col(TIMESTAMP), TOMBSTONE: f.lit(False)}
    return with_row(result, given, [name for name, _ in operation.aggregates])


def restored_aggregate(
    node: Node, operation: Aggregate, good: DataFrame, table: DataFrame
) -> DataFrame:
    """Aggregates the rows of a table into the state from which the table came: into the same
    functions of Spark goes what makes them what they were. `good` are the inputs of the operator;
    no row of them is read."""
    schema = aggregate(operation, good).schema
    at = f.col(_AT)
    kept: list[Column] = []
    aggregates: list[tuple[str, Column]] = []
    counts: list[Column] = [f.lit(1)]
    for name, column in operation.aggregates:
        function, result = column.function, schema[name].dataType
        assert function in RESTORED, f"{name} is a {function}, which keeps more than its result"
        if function == "sum" and not isinstance(result, LongType | DoubleType):
            raise TopologyError(
                node.name,
                f"the sum {name} is {result.simpleString()}, of which Spark keeps more",
                then="--from inputs reads its topics again",
                place=node.place,
            )
        value = f.col(f"`{name}`").cast(result)
        if function == "count":
            counts.append(value)
            # A count of n is made of n rows; everything else comes with the first of them.
            kept.append(f.when(at < value, f.lit(1)).alias(name))
        else:
            kept.append(f.when(at == 0, value).alias(name))
        aggregates.append((name, getattr(f, function)(f"`{name}`")))
    key, window = f.col(KEY), operation.window
    keys = [key]
    if window is not None:
        keys = [key["key"].alias(KEY), f.struct(key["start"], key["end"]).alias(_WINDOW)]
    rows = _repeated(table.where(~f.col(TOMBSTONE)), f.greatest(*counts, f.lit(1)))
    rows = rows.select(*keys, TIMESTAMP, *kept)
    nothing = good.where(f.lit(False)).select(
        *(
            f.lit(None).cast(field.dataType).alias(field.name)
            if field.name not in (KEY, TIMESTAMP)
            else f.col(field.name)
            for field in rows.schema.fields
        )
    )
    names = [KEY] if window is None else [KEY, _WINDOW]
    made = [column.alias(name) for name, column in aggregates]
    grouped = nothing.unionByName(rows).groupBy(*names)
    return grouped.agg(f.max(TIMESTAMP).alias(TIMESTAMP), *made)


def _repeated(frame: DataFrame, times: Column) -> DataFrame:
    """Repeats each row, with numbers from 0 on, in two steps: an array has its limits."""
    frame = frame.withColumn("__times", times.cast("bigint"))
    blocks = f.sequence(f.lit(0).cast("bigint"), f.expr(f"(__times - 1) div {_BLOCK}"))
    frame = frame.withColumn("__block", f.explode(blocks))
    frame = frame.withColumn("__first", f.col("__block") * _BLOCK)
    last = f.least(f.col("__times") - f.col("__first"), f.lit(_BLOCK)) - 1
    own = f.explode(f.sequence(f.lit(0).cast("bigint"), last))
    return frame.withColumn("__own", own).withColumn(_AT, f.col("__first") + f.col("__own"))


def stream_join(
    node: Node, operation: StreamJoin, sides: Sequence[DataFrame], delay: timedelta
) -> DataFrame:
    """Joins two streams whose times carry watermarks, of which `delay` is the longer."""
    left, right = (
        side.select(*(f.col(f"`{name}`").alias(f"{mark}:{name}") for name in side.columns))
        for side, mark in zip(sides, ("l", "r"), strict=True)
    )
    mine, theirs = left.schema[f"l:{KEY}"].dataType, right.schema[f"r:{KEY}"].dataType
    if mine != theirs:
        what = ", ".join(operation.on) if operation.on else "the key"
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


def keyed(
    node: Node,
    operation: Keyed,
    frames: list[DataFrame],
    how: Hosting,
    table: DataFrame | None = None,
) -> DataFrame:
    """Runs a keyed machine on frames. With `table`, its state is made of the rows of the table that
    it has made."""
    schemas = [value_fields(frame.schema) for frame in frames]
    machine, fields = operation.make(schemas, operation.final)
    if table is not None:
        machine = Restored(machine, len(frames))
        frames = [*frames, table]
    key = frames[0].schema[KEY].dataType
    if operation.group:
        key = frames[0].schema[GROUP].dataType
    elif operation.new_key is not None:
        key = key_type(operation.new_key)
    window = operation.window is not None
    result = _run_keyed(
        node,
        how,
        frames,
        machine,
        key,
        fields,
        time=operation.time,
        window=window,
        changes=operation.changes,
    )
    return _row_of_keyed(result, fields.fieldNames(), window=window)


def foreign_key_join(
    node: Node, operation: ForeignKeyJoin, left: DataFrame, right: DataFrame, how: Hosting
) -> DataFrame:
    """Joins two tables by a column of the left one: three machines, one behind the other."""
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
    kind: Any = operation.how
    subscribe = ForeignKeySubscribe(itemgetter(column), kind)
    sent = _run_keyed(
        node, how, [left], subscribe, foreign_key, subscriptions, name=f"{node.name}-subscribe"
    ).drop(FAILURE, DROPPED)
    sides = (
        StructType()
        .add(LEFT, value_fields(left.schema))
        .add(RIGHT, value_fields(right.schema))
        .add(SEQUENCE, LongType())
        .add(FOUND, BooleanType())
    )
    looked_up = _run_keyed(
        node,
        how,
        [sent, right],
        ForeignKeyLookup(kind),
        left_key,
        sides,
        name=f"{node.name}-lookup",
    ).drop(FAILURE, DROPPED)
    resolve, name = ForeignKeyResolve(combine), f"{node.name}-resolve"
    resolved = _run_keyed(node, how, [looked_up], resolve, left_key, fields, name=name)
    return _row_of_keyed(resolved, fields.fieldNames(), window=False)


def _run_keyed(
    node: Node,
    how: Hosting,
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
        on_error=how.on_error,
        output_mode="Append" if how.mode == "append" else "Update",
    )
    # Rows that had no effect are counted; the progress of the query shows how many.
    late = f.count_if(f.col(DROPPED) == "late").alias("late")
    ran = ran.observe(name or node.name, late, f.count(DROPPED).alias("dropped"))
    return ran.where(f.col(DROPPED).isNull())


def _row_of_keyed(result: DataFrame, names: list[str], *, window: bool) -> DataFrame:
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


def _seconds(given: Any) -> str:
    return f"{given.total_seconds():.3f}"
