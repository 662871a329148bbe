"""Reads the state that an app has committed, from the checkpoints of its queries.

Spark's own operators keep rows of columns. Those of keyed machines are in pages, whose values carry
their types, so that no code of the app is needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.streams.machine import Timer, states_of
from headwater.streams.state_bytes import Page

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_JOIN, _MACHINE = "symmetricHashJoin", "transformWithState"
_KEY, _WINDOW = "_key", "__window"


@dataclass(frozen=True, slots=True)
class StateRow:
    """What an operator of a query keeps for a key."""

    operator: int  # its number in the query
    kind: str  # Spark's name of the operator; for a join with the side
    key: Any
    value: Any
    timers: tuple[Timer, ...] = ()


def state_rows(
    spark: SparkSession, checkpoint: str, *, operator: int | None = None
) -> list[StateRow]:
    """Returns the state of a query as of its last finished micro-batch."""
    return list(read_state(spark, checkpoint, operator=operator))


def read_state(
    spark: SparkSession, checkpoint: str, *, operator: int | None = None
) -> Iterator[StateRow]:
    """Yields the state of a query as of its last finished micro-batch, operator by operator."""
    known = spark.read.format("state-metadata").load(checkpoint)
    names = {row.operatorId: row.operatorName for row in known.collect()}
    for number, name in sorted(names.items()):
        if operator is not None and number != operator:
            continue
        reader = spark.read.format("statestore").option("operatorId", number)
        if name.startswith(_MACHINE):
            pages = reader.option("stateVarName", "state").load(checkpoint)
            yield from _of_machine(number, name, pages)
        elif name == _JOIN:
            for side in ("left", "right"):
                frame = reader.option("joinSide", side).load(checkpoint)
                yield from _of_spark(number, f"{name} {side}", frame)
        else:
            yield from _of_spark(number, name, reader.load(checkpoint))


def _of_machine(number: int, name: str, pages: DataFrame) -> Iterator[StateRow]:
    found = pages.where("user_map_key.number >= 0").select("user_map_value.data")
    for row in found.toLocalIterator():
        for key, fields, timers in states_of(Page.from_bytes(bytes(row.data))):
            yield StateRow(number, name, key, fields, tuple(timers))


def _of_spark(number: int, name: str, frame: DataFrame) -> Iterator[StateRow]:
    for row in frame.select("key", "value").toLocalIterator():
        yield StateRow(number, name, _plain(row.key), _plain(row.value))


def _plain(row: Any) -> Any:
    if row is None:
        return None
    fields: dict[str, Any] = row.asDict(recursive=True)
    if list(fields) == [_KEY]:
        return fields[_KEY]
    return fields
