"""Keyed machines of ours against topologies of Kafka Streams in its TopologyTestDriver.

A machine is what runs in Spark's workers for functions of Python. Of a table what it has in the end
must be equal, of a stream all of its records, with their times.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.topologies import (
    INPUTS,
    START,
    Driven,
    Given,
    Out,
    both,
    drive,
    in_the_end,
    minus,
    one_more,
    plus,
    together,
)
from headwater.streams.joins import StreamTableJoin, TableTableJoin
from headwater.streams.machine import KeyedMachine
from headwater.streams.processor_test import MachineTest
from headwater.streams.tables import Aggregate, Fold
from headwater.streams.types import shape_of
from headwater.streams.windowing import SessionAggregate, SlidingAggregate, WindowedAggregate

_SEEDS = 3

pytestmark = pytest.mark.timeout(600)


def texts(left: Any, right: Any) -> dict[str, str]:
    return {"value": both(left and left["value"], right and right["value"])}


_TEXT, _INT = shape_of(str), shape_of(int)
_COUNT = Fold((one_more,), lambda: 0, merge=together, values=(_TEXT,), shape=_INT)
_SUM = Fold((plus,), lambda: 0, minus, values=(_TEXT,), shape=_INT)
_REDUCE = Fold((both,), values=(_TEXT,), shape=_TEXT, first=True)
_COGROUP = Fold(
    (lambda s, v: f"{s}a{v}", lambda s, v: f"{s}b{v}"),
    lambda: "",
    values=(_TEXT, _TEXT),
    shape=_TEXT,
)
MACHINES: dict[str, Callable[[], KeyedMachine]] = {
    "count": lambda: Aggregate(_COUNT),
    "sum": lambda: Aggregate(_SUM),
    "reduce": lambda: Aggregate(_REDUCE),
    "cogroup": lambda: Aggregate(_COGROUP),
    "tumbling-reduce": lambda: WindowedAggregate(_REDUCE, 10_000, 10_000, 2000),
    "cogroup-tumbling": lambda: WindowedAggregate(_COGROUP, 10_000, 10_000, 2000),
    "tumbling-count": lambda: WindowedAggregate(_COUNT, 10_000, 10_000, 2000),
    "tumbling-count-final": lambda: WindowedAggregate(_COUNT, 10_000, 10_000, 2000, final=True),
    "hopping-count": lambda: WindowedAggregate(_COUNT, 10_000, 5000, 2000),
    "hopping-count-final": lambda: WindowedAggregate(_COUNT, 10_000, 5000, 2000, final=True),
    "session-count": lambda: SessionAggregate(_COUNT, 5000, 2000),
    "session-count-final": lambda: SessionAggregate(_COUNT, 5000, 2000, final=True),
    "sliding-count": lambda: SlidingAggregate(_COUNT, 5000, 2000),
    "sliding-count-final": lambda: SlidingAggregate(_COUNT, 5000, 2000, final=True),
    "stream-table-inner": lambda: StreamTableJoin(texts),
    "stream-table-left": lambda: StreamTableJoin(texts, "left"),
    "stream-table-versioned": lambda: StreamTableJoin(texts, history=3_600_000),
    "table-join-inner": lambda: TableTableJoin(texts),
    "table-join-left": lambda: TableTableJoin(texts, "left"),
    "table-join-outer": lambda: TableTableJoin(texts, "outer"),
}


def machines(name: str, given: list[list[Given]]) -> list[Out]:
    test = MachineTest(MACHINES[name](), packed=True)
    start, topics = round(START.timestamp() * 1000), INPUTS[name].topics
    found: list[Out] = []
    for batch in given:
        rows = [
            test.row(
                each.key,
                None if each.value is None else {"value": each.value},
                start + each.at,
                input=topics.index(each.topic),
            )
            for each in batch
        ]
        for out in test.batch(rows):
            key = out.key
            if out.window is not None:
                key = f"{key}@{out.window[0] - start}/{out.window[1] - start}"
            at = out.timestamp if out.source is None or out.timestamp else out.source.timestamp
            assert at is not None
            value = None if out.tombstone or out.value is None else str(out.value["value"])
            found.append((key, value, at - start))
    return found


@pytest.fixture(scope="module")
def driven(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Driven]]:
    return drive(MACHINES, tmp_path_factory.mktemp("driver"), seeds=_SEEDS)


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_has_the_results_of_kafka_streams(
    driven: dict[str, list[Driven]], name: str
) -> None:
    for seed, each in enumerate(driven[name]):
        expected = in_the_end(name, each.wanted)
        assert expected, "Kafka Streams wrote nothing, so that nothing is compared"
        assert in_the_end(name, machines(name, each.given)) == expected, seed
